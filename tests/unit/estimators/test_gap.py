from __future__ import annotations

import numpy as np
import pytest
import torch

from selfexpress.affinity.assignment import References
from selfexpress.config import NetworkConfig
from selfexpress.datasets.synthetic import make_subspaces
from selfexpress.errors import ConfigError
from selfexpress.estimators.gap import network_objectives, objective_gap
from selfexpress.estimators.senet import SENet
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.self_expression import unit_rows
from selfexpress.solvers.ensc import elastic_net_expression
from selfexpress.solvers.problem import ElasticNetConfig

# Clean subspaces may fall into more pieces than clusters; that is not tested here.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The affinity graph:selfexpress.errors.DegenerateWarning"
)


@pytest.fixture
def data(seed):
    return make_subspaces(3, dimension=2, n_features=8, n_samples=30, random_state=seed)


def with_network(data, seed, **settings):
    """A model with a network that was not trained, which the gap does not ask for."""
    model = SENet(3, gamma=50.0, device="cpu", **settings)
    config = NetworkConfig(hidden_sizes=(16,), n_embedding=16)
    generator = torch.Generator().manual_seed(seed)
    model.network_ = SelfExpressiveNetwork(8, config, generator=generator)
    with torch.no_grad():
        model.network_.threshold.fill_(0.5)
    model.n_features_in_ = 8
    model.center_ = None
    model.references_ = References(np.zeros(1, int), 1, keys=torch.zeros(1, 16))
    model.settings_ = {"gamma": 50.0, "l1_ratio": settings.get("l1_ratio", 0.9)}
    return model


def test_network_objective_equals_the_formula(data, seed):
    model = with_network(data, seed)
    rows = unit_rows(torch.from_numpy(data.X).float())
    actual = network_objectives(model, rows, torch.tensor([4, 40])).numpy()
    with torch.no_grad():
        queries = model.network_.query_tower(rows)
        keys = model.network_.key_tower(rows)
        dense = model.network_.coefficients(queries, keys).double().numpy()
    np.fill_diagonal(dense, 0)
    residuals = rows.double().numpy() - dense @ rows.double().numpy()
    penalty = 0.9 * np.abs(dense).sum(axis=1) + 0.05 * (dense**2).sum(axis=1)
    expected = 25 * (residuals**2).sum(axis=1) + penalty
    np.testing.assert_allclose(actual, expected[[4, 40]], rtol=1e-4)


def test_gap_is_the_relative_distance_to_the_exact_optimum(data, seed):
    model = with_network(data, seed)
    rows = unit_rows(torch.from_numpy(data.X).float())
    config = ElasticNetConfig(gamma=50.0, l1_ratio=0.9, tol=1e-6)
    least = elastic_net_expression(rows.double(), config).objective.mean()
    reached = float(network_objectives(model, rows, torch.arange(90)).mean())
    gap = objective_gap(model, data.X, n_rows=1000)
    assert gap == pytest.approx((reached - least) / least, rel=1e-4)
    assert gap > 0


def test_training_narrows_the_gap(data, seed):
    untrained = objective_gap(with_network(data, seed), data.X)
    settings = {"hidden_sizes": (32,), "n_embedding": 32, "n_train_samples": None}
    model = SENet(3, gamma=50.0, max_iter=60, random_state=seed, **settings)
    assert objective_gap(model.fit(data.X), data.X) < untrained


def test_random_state_fixes_the_sample(data, seed):
    model = with_network(data, seed)
    first = objective_gap(model, data.X, n_rows=10, random_state=seed)
    assert objective_gap(model, data.X, n_rows=10, random_state=seed) == first
    assert objective_gap(model, data.X, n_rows=10, random_state=seed + 1) != first


def test_least_squares_has_a_gap_too(data, seed):
    model = with_network(data, seed, l1_ratio=0.0)
    assert objective_gap(model, data.X) > 0


def test_a_sample_of_no_rows_is_refused(data, seed):
    model = with_network(data, seed)
    with pytest.raises(ConfigError, match="n_rows"):
        objective_gap(model, data.X, n_rows=0)
