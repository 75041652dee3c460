from __future__ import annotations

import math
import shutil
import warnings
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from report_problems import fitted_model

from selfexpress import ESC, SSCOMP, EnSC, SENet, make_subspaces
from selfexpress.errors import DataError, DegenerateWarning
from selfexpress.files.container import Kind
from selfexpress.report import read_run, recorded_warnings, save_run, saving
from selfexpress.report.notes import notes_on
from selfexpress.report.run_files import _RUN as RUN

FILE = "run.selfexpress"


@pytest.fixture
def model(seed):
    return fitted_model(seed=seed)


@pytest.fixture
def data(model, seed):
    images = np.random.default_rng(seed).integers(256, size=(36, 4, 4), dtype=np.uint8)
    return {"X": images, "truth": np.roll(model.labels_, 2), "title": "a <b>"}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A run to be copied and damaged."""
    model, folder = fitted_model(), tmp_path_factory.mktemp("run")
    images = np.zeros((36, 4, 4), dtype=np.uint8)
    save_run(folder, model, X=images, truth=np.roll(model.labels_, 2))
    return folder


@pytest.fixture
def folder(whole_run, tmp_path):
    return shutil.copytree(whole_run, tmp_path / "run")


def test_a_file_that_is_no_run_is_not_replaced(model, data, tmp_path):
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(DataError, match=f"without a {FILE} of its own"):
        save_run(tmp_path, model, **data)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["{}"]


def assert_equal_records(found, expected):
    if is_dataclass(expected):
        expected = {f.name: getattr(expected, f.name) for f in fields(expected)}
        found = {name: getattr(found, name) for name in expected}
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_equal_records(found[name], value)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected)
    else:
        assert found == expected


def test_a_run_is_read_as_it_was_saved(model, data, tmp_path):
    save_run(tmp_path / "run", model, title="before", warnings="one")
    assert read_run(tmp_path / "run").warnings == ("one",)
    more = {"command": "cmd", "warnings": ["w", Warning("v")]}
    saved = save_run(tmp_path / "run", model, **data, **more)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [FILE]
    assert saved.warnings == ("w", "v")
    assert_equal_records(read_run(tmp_path / "run"), saved)


def test_a_run_without_data_and_truth_can_be_saved(model, tmp_path):
    saved = save_run(tmp_path, model)
    assert saved.scores == {}
    assert not saved.has_truth
    assert_equal_records(read_run(tmp_path), saved)


@pytest.mark.filterwarnings("default::selfexpress.errors.DegenerateWarning")
@pytest.mark.parametrize("method", [EnSC, SSCOMP, ESC], ids=lambda m: m.__name__)
def test_every_method_leaves_a_run(method, tmp_path):
    data = make_subspaces(2, dimension=2, n_features=9, n_samples=15, random_state=0)
    with recorded_warnings() as warned:
        model = method(2, affinity="symmetric", n_init=2, random_state=0).fit(data.X)
    save_run(tmp_path, model, X=data.X, truth=data.labels, warnings=warned)
    run = read_run(tmp_path)
    assert len(run.warnings) == len(warned)
    assert run.method == method.__name__
    assert run.history == {}
    decided = getattr(model, "settings_", {})
    assert {each.name for each in run.settings} == {*model.get_params(), *decided}
    assert run.certificate == decided.get("certificate", {})


def test_settings_stand_beside_their_defaults(model, tmp_path):
    model.hidden_sizes = (31, 32)
    model.max_iter = "auto"
    # Whatever else a fit decided comes after them.
    model.settings_ = {"certificate": {"n": 3, "excess": 1e-4}, "max_iter": 250}
    found = save_run(tmp_path, model).settings
    settings = {each.name: (each.value, each.default) for each in found}
    assert settings["gamma"] == ("77.0", str(SENet().gamma))
    assert settings["hidden_sizes"][0] == "31, 32"
    assert settings["max_iter"][0] == "auto, here 250"
    assert list(settings) == [*SENet().get_params(), "certificate"]
    assert settings["certificate"] == ("n 3, excess 0.0001", "found by the fit")


def test_a_sampled_graph_is_reported_in_the_numbers_of_all_samples(seed, tmp_path):
    model = fitted_model(seed=seed)
    kept = np.sort(np.random.default_rng(seed).permutation(100)[:36])
    labels = np.random.default_rng(seed).integers(3, size=100)
    labels[kept] = model.labels_
    model.labels_, model.sample_indices_ = labels, kept
    truth = labels.astype(str)
    rows = np.arange(100, dtype=np.float32)[:, None] * [[1.0, 2.0]]
    save_run(tmp_path, model, X=rows, truth=truth)
    run = read_run(tmp_path)
    assert any("others were assigned by it" in note.text for note in notes_on(run))
    assert run.points.index.tolist() == kept.tolist()
    assert set(run.gallery.central[run.gallery.central >= 0]) <= set(kept)
    for cluster, members in enumerate(run.gallery.central):
        assert set(labels[members[members >= 0]]) == {cluster}
    np.testing.assert_array_equal(run.gallery.samples[:, 0], run.gallery.sample_index)
    assert run.scores["accuracy"] == 1
    assert run.scores["subspace_preserving_error"] == pytest.approx(0, abs=1e-6)


def test_very_many_points_are_thinned_out_but_keep_the_gallery(monkeypatch, tmp_path):
    monkeypatch.setattr(saving, "_MOST_POINTS", 10)
    run = save_run(tmp_path, fitted_model(n_each=40))
    members = np.concatenate([run.gallery.central, run.gallery.doubtful], axis=None)
    assert set(members[members >= 0]) <= set(run.points.index.tolist())
    assert len(run.points.index) < 120
    read_run(tmp_path)


def test_the_gallery_holds_the_smallest_margins_of_each_cluster(model, tmp_path):
    run = save_run(tmp_path, model)
    margins = run.points.margins
    for cluster, members in enumerate(run.gallery.doubtful):
        own = np.sort(margins[run.labels == cluster])
        shown = margins[members[members >= 0]]
        np.testing.assert_array_equal(shown, own[: len(shown)])
        assert (own[len(shown) :] >= 0.9).all() or len(shown) == 10


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"truth": [0, 1]}, "truth must hold one class for each of the 36"),
        ({"truth": np.full(36, 9), "class_names": ["a"]}, "positions among the 1"),
        ({"X": np.zeros((7, 3))}, "X must hold the 36 fitted samples, got 7"),
        ({"truth": np.arange(36) % 11}, "at most 10 different classes, got 11"),
    ],
)
def test_what_does_not_fit_is_refused(given, message, model, tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "_MOST_CLASSES", 10)
    with pytest.raises(DataError, match=message):
        save_run(tmp_path / "run", model, **given)
    assert not (tmp_path / "run").exists()


def test_neither_a_model_that_is_not_fitted_nor_a_file_is_taken(model, tmp_path):
    with pytest.raises(DataError, match="has no labels_, coefficients_"):
        save_run(tmp_path, SENet())
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="must be a folder for the run"):
        save_run(tmp_path / "file", model)


@pytest.mark.filterwarnings("default::selfexpress.errors.DegenerateWarning")
def test_warnings_are_recorded_and_still_shown():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with recorded_warnings() as recorded:
            warnings.warn("careful", DegenerateWarning, stacklevel=1)
    assert [str(w.message) for w in recorded] == ["careful"]
    assert [str(w.message) for w in shown] == ["careful"]


def rewrite(folder, *, facts=None, arrays=None):
    """Change a run's file and mend its checksum, as someone hostile would."""
    with RUN.reading(folder / FILE) as whole:
        kept = whole.facts | (facts or {})
        changed = whole.tensors | (arrays or {})
    changed = {name: value for name, value in changed.items() if value is not None}
    own = ("format", "version")
    kind = Kind(kept["format"], kept["version"], "", "")
    kind.write(folder / FILE, {k: v for k, v in kept.items() if k not in own}, changed)


BAD_FACTS = [
    {"format": "other"},
    {"version": 1},
    {"title": 7},
    {"title": "x" * 100_000},
    {"n_clusters": 10**9},
    {"n_clusters": -1},
    {"n_clusters": "3"},
    {"n_features": 1.5},
    {"scores": {"accuracy": "<b>"}},
    {"scores": [1]},
    {"seconds": {"training": None}},
    {"class_names": ["only"]},
    {"class_names": [1, 2, 3]},
    {"warnings": [["nested"]]},
    {"settings": [{"name": "a"}]},
    {"settings": [{"name": "a", "value": 1, "default": "b"}]},
    {"versions": ["a"]},
    {"history": {"missing": None}},
    {"history": "objective"},
    {"points": None},
    {"graph": {}},
    {"coefficients": {"n_nonzero": -1, "n_empty": 0}},
]


BAD_ARRAYS = [
    {"labels": None},
    {"labels": np.full(36, 3)},
    {"labels": np.full(36, -1)},
    {"labels": np.zeros((6, 6), dtype=int)},
    {"labels": np.zeros(36)},
    {"labels": np.zeros(0, dtype=int)},
    {"truth": np.zeros(35, dtype=int)},
    {"points.index": np.arange(36)[::-1].copy()},
    {"points.index": np.arange(36) + 1},
    {"points.plane": np.zeros((36, 3), dtype=np.uint16)},
    {"points.margins": np.full(36, np.nan, dtype=np.float32)},
    {"coefficients.picture": np.zeros((5, 6), dtype=np.float32)},
    {"coefficients.picture": np.full((5, 5), -1, dtype=np.float32)},
    {"coefficients.picture": np.zeros((2000, 2000), dtype=np.float32)},
    {"coefficients.borders": np.array([0, 0.9, 0.2, 1])},
    {"coefficients.between": np.zeros((2, 2))},
    {"graph.degrees": np.full(36, -2)},
    {"graph.degrees": np.zeros(0, dtype=int)},
    {"gallery.central": np.full((3, 2), 36)},
    {"gallery.central": np.full((3, 2), -5)},
    {"gallery.central": np.zeros(3, dtype=int)},
    {"gallery.samples": np.zeros((3, 2, 2), dtype=np.uint8)},
    {"gallery.samples": np.zeros((36, 2, 2, 5), dtype=np.uint8)},
    {"gallery.samples": np.zeros((36, 2, 999), dtype=np.uint8)},
    {"gallery.samples": np.zeros((36, 2), dtype=int)},
    {"gallery.sample_index": np.arange(36)[::-1].copy()},
    {"history.objective": np.zeros((2, 2))},
    {"history.objective": np.full(60, np.inf)},
]


CASES = [("facts", bad) for bad in BAD_FACTS] + [("arrays", bad) for bad in BAD_ARRAYS]


@pytest.mark.parametrize(("part", "bad"), CASES, ids=lambda case: str(case)[:40])
def test_hostile_contents_are_refused_in_one_line(part, bad, folder):
    rewrite(folder, **{part: bad})
    with pytest.raises(DataError) as refusal:
        read_run(folder)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 600


def test_every_damaged_byte_is_noticed(folder, seed):
    rewrite(folder)
    assert len(read_run(folder).labels) == 36
    path = folder / FILE
    whole = path.read_bytes()
    for place in np.random.default_rng(seed).integers(len(whole), size=5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DataError):
            read_run(folder)
    path.unlink()
    with pytest.raises(DataError, match="--run FOLDER"):
        read_run(folder)


@pytest.mark.parametrize(
    "bad",
    [
        {"command": ["python", "run.py"]},
        {"title": 2026},
        {"title": "x" * 20_001},
        {"truth": [math.nan] + [0.0] * 35},
        {"truth": np.array([None] + [0] * 35, dtype=object)},
    ],
)
def test_what_a_report_could_not_read_replaces_no_run(bad, model, tmp_path):
    save_run(tmp_path, model, title="before")
    with pytest.raises(DataError):
        save_run(tmp_path, model, **bad)
    assert read_run(tmp_path).title == "before"
