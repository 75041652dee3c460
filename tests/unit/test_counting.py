"""The number of clusters, counted: the rule on known answers, then every estimator."""

from __future__ import annotations

import json
import struct
import warnings

import numpy as np
import pytest
from compare import assert_same_partition
from safetensors import safe_open
from safetensors.torch import save_file
from scipy import sparse
from sklearn.base import clone

from selfexpress import ESC, SSCOMP, EnSC, SENet, make_subspaces
from selfexpress.config import ClusterConfig
from selfexpress.errors import ConfigError, DegenerateWarning
from selfexpress.estimators.html_summary import html_summary
from selfexpress.metrics import clustering_accuracy
from selfexpress.report.saving import settings_of
from selfexpress.spectral import counting, spectral_clusters
from selfexpress.spectral.counting import gap_count, sharpest_bend
from selfexpress.spectral.information import information, information_path

SMALL = {
    "hidden_sizes": (64,),
    "n_embedding": 64,
    "max_iter": 150,
    "device": "cpu",
    "random_state": 0,
}


def groups(n_groups, *, size, outside, seed):
    """Groups whose members are joined at random, all of them a little."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(n_groups), size)
    is_same = truth[:, None] == truth
    weights = np.where(is_same, rng.random(is_same.shape) < 0.3, outside)
    weights = np.triu(weights * rng.uniform(0.5, 1, is_same.shape), 1)
    return sparse.csr_array(weights + weights.T), truth


def test_eigenvalues_before_a_plain_gap_are_counted():
    assert gap_count(np.array([0, 0.001, 0.002, 0.3, 0.4])) == 3
    # 0 but for rounding, three times: three pieces.
    assert gap_count(np.array([0, 1e-17, 3e-14, 0.2, 0.3])) == 3
    # The first is 0 in every graph, so that a gap after it means nothing.
    assert gap_count(np.array([0, 0.2, 0.3, 0.4])) is None
    assert gap_count(np.array([0, 0.1])) is None


@pytest.mark.parametrize("n_clusters", [2, 3, 7, 10])
def test_a_bend_is_where_the_slope_falls_most(n_clusters):
    logs = np.log(np.arange(1, 31))
    bend = np.log(n_clusters)
    path = np.minimum(logs, bend) + 0.25 * np.maximum(logs - bend, 0)
    found = sharpest_bend(path)
    assert found.n_clusters == n_clusters
    assert found.ratio == pytest.approx(4)


def test_a_single_uneven_merge_is_no_bend():
    logs = np.log(np.arange(1, 41))
    path = np.minimum(logs, np.log(6)) + 0.5 * np.maximum(logs - np.log(6), 0)
    # Hardly any gain by the 14th cluster: steeper before it than after it, for once.
    path[13] = path[12] + 1e-4
    assert sharpest_bend(path).n_clusters == 6


def test_information_that_grows_evenly_has_no_bend():
    found = sharpest_bend(0.7 * np.log(np.arange(1, 41)))
    assert found.ratio == pytest.approx(1)


def test_a_path_is_that_of_the_merged_pieces(seed):
    """Pieces in three groups: merging within them loses little, then much."""
    n_pieces = 12
    owner = np.repeat(np.arange(3), 4)
    joint = np.where(owner[:, None] == owner, 1.0, 0.01)
    joint *= np.random.default_rng(seed).uniform(0.95, 1.05, joint.shape)
    joint = (joint + joint.T) / (joint + joint.T).sum()
    path = information_path(joint)
    members = np.eye(3)[owner]
    assert path.shape == (n_pieces,)
    assert path[0] == 0
    assert path[-1] == pytest.approx(information(joint))
    assert path[2] == pytest.approx(information(members.T @ joint @ members))
    assert (np.diff(path) > -1e-12).all()
    assert sharpest_bend(path).n_clusters == 3


@pytest.mark.parametrize("n_groups", [2, 5, 12])
def test_groups_of_a_connected_graph_are_counted_and_found(n_groups, seed):
    affinity, truth = groups(n_groups, size=40, outside=0.02, seed=seed)
    found = spectral_clusters(affinity, "auto", n_eigenvectors="auto", seed=seed)
    assert found.n_clusters == n_groups
    assert_same_partition(found.labels, truth)


def test_groups_apart_are_counted(seed):
    affinity, truth = groups(4, size=30, outside=0, seed=seed)
    found = spectral_clusters(affinity, "auto", seed=seed)
    assert found.n_clusters == found.n_components == 4
    assert found.embedding.shape == (120, 4)
    assert_same_partition(found.labels, truth)


@pytest.mark.filterwarnings("ignore:The affinity graph")
def test_a_pair_that_stands_apart_is_no_cluster(seed):
    affinity, _ = groups(5, size=40, outside=0.02, seed=seed)
    pair = sparse.csr_array(np.array([[0, 1.0], [1, 0]]))
    together = sparse.csr_array(sparse.block_diag([affinity, pair]))
    assert spectral_clusters(together, "auto", seed=seed).n_clusters == 5


def test_a_graph_without_groups_is_a_guess_and_says_so(seed):
    affinity, _ = groups(1, size=300, outside=0, seed=seed)
    with pytest.warns(DegenerateWarning, match=r"none does, so that \d+ is a guess"):
        found = spectral_clusters(affinity, "auto", seed=seed)
    assert 2 <= found.n_clusters <= counting.MOST_CLUSTERS


@pytest.mark.parametrize("n_samples", [2, 3, 4, 7, 15, 16, 33])
def test_few_rows_give_a_number_all_the_same(n_samples):
    rows = np.random.default_rng(n_samples).normal(size=(n_samples, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateWarning)
        model = EnSC("auto", affinity="symmetric", random_state=0).fit(rows)
    assert 2 <= model.n_clusters_ <= n_samples
    assert model.labels_.max() < model.n_clusters_


@pytest.fixture(scope="module")
def data():
    return make_subspaces(
        5, dimension=3, n_features=20, n_samples=60, noise=0.2, random_state=0
    )


@pytest.fixture(scope="module")
def model(data):
    return SENet("auto", **SMALL).fit(data.X)


@pytest.mark.parametrize(
    "estimator",
    [
        EnSC("auto", affinity="symmetric", random_state=0),
        EnSC("auto", random_state=0),
        SSCOMP("auto", n_nonzero=1, join=True, random_state=0),
        ESC("auto", n_exemplars=60, affinity="symmetric", random_state=0),
    ],
    ids=lambda estimator: f"{type(estimator).__name__}-{estimator.affinity}",
)
def test_every_estimator_counts_subspaces(estimator, data):
    fitted = clone(estimator).fit(data.X)
    assert type(fitted.n_clusters_) is int
    assert fitted.n_clusters_ == 5
    assert fitted.n_clusters == clone(fitted).n_clusters == "auto"
    described = {setting.name: setting.value for setting in settings_of(fitted)}
    assert described["n_clusters"] == "auto, here 5"


def test_a_number_given_is_kept(data):
    assert EnSC(3, random_state=0).fit(data.X).n_clusters_ == 3
    assert EnSC(np.int64(3), random_state=0).fit(data.X).n_clusters_ == 3


def test_senet_uses_the_number_that_it_found(model, data):
    assert model.n_clusters == "auto"
    assert model.n_clusters_ == model.settings_["n_clusters"] == 5
    assert model.references_.n_clusters == 5
    assert model.predict_proba(data.X).shape == (300, 5)
    assert "in 5 clusters, counted" in html_summary(model)
    assert clustering_accuracy(data.labels, model.labels_) > 0.95


def test_a_sample_is_enough_to_count(data):
    model = SENet("auto", n_cluster_samples=200, **SMALL).fit(data.X)
    assert model.n_clusters_ == 5
    assert model.labels_.max() == 4


class TestFiles:
    def test_the_number_found_is_saved_and_loaded(self, model, data, tmp_path):
        model.save(tmp_path / "m")
        loaded = SENet.load(tmp_path / "m", device="cpu")
        # As for every "auto": a model carries what it became.
        assert loaded.n_clusters == loaded.n_clusters_ == 5
        assert (loaded.predict(data.X) == model.predict(data.X)).all()
        raw = (tmp_path / "m").read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8 : 8 + length])["__metadata__"]["selfexpress"]
        assert json.loads(header)["parameters"]["n_clusters"] == 5

    def test_a_file_without_a_number_is_refused(self, model, tmp_path):
        model.save(tmp_path / "m")
        with safe_open(tmp_path / "m", framework="pt") as file:
            header = json.loads(file.metadata()["selfexpress"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header["n_clusters"] = "auto"
        del header["checksum"]
        text = {"selfexpress": json.dumps(header)}
        save_file(tensors, tmp_path / "m", metadata=text)
        with pytest.raises(ValueError, match="n_clusters must be a positive integer"):
            SENet.load(tmp_path / "m", device="cpu")


@pytest.mark.parametrize("value", ["many", "AUTO", 2.5, None, True, -1])
def test_anything_else_is_refused_in_one_sentence(value):
    with pytest.raises(ConfigError, match=r"n_clusters must be a positive.*'auto'"):
        ClusterConfig(n_clusters=value)


def test_more_groups_than_are_considered_are_called_a_guess():
    block = np.ones((4, 4)) - np.eye(4)
    affinity = sparse.csr_array(sparse.block_diag([block] * 103))
    with pytest.warns(DegenerateWarning) as caught:
        found = spectral_clusters(affinity, "auto", seed=0)
    assert found.n_clusters == 100
    assert any("100 is a guess" in str(warning.message) for warning in caught)
