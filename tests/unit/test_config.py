from __future__ import annotations

import numpy as np
import pytest

from selfexpress.config import ClusterConfig, NetworkConfig, TrainConfig
from selfexpress.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "value", "constraint"),
    [
        ("gamma", 0, "finite number above 0"),
        ("gamma", float("nan"), "finite number above 0"),
        ("gamma", "large", "finite number above 0"),
        ("l1_ratio", 1.1, r"lie in \[0, 1\]"),
        ("l1_ratio", None, r"lie in \[0, 1\]"),
        ("max_iter", 0, "positive integer"),
        ("batch_size", 1.5, "positive integer"),
        ("block_size", True, "positive integer"),
        ("learning_rate", -1, "finite number above 0"),
        ("schedule", "linear", "one of 'adaptive', 'cosine', 'constant'"),
        ("optimizer", "sgd", "one of 'adam'"),
        ("algorithm", 3, "one of 'auto', 'naive', 'two_pass'"),
        ("precision", "int8", "one of 'auto', 'float32', 'tf32', 'bfloat16'"),
    ],
)
def test_a_bad_training_setting_is_named_with_its_value(setting, value, constraint):
    with pytest.raises(ConfigError, match=f"{setting} must .*{constraint}.*got "):
        TrainConfig(**{setting: value})


@pytest.mark.parametrize(
    ("setting", "value"),
    [("n_clusters", 0), ("affinity", "rbf"), ("n_neighbors", -1), ("n_init", 0.5)],
)
def test_a_bad_clustering_setting_is_named(setting, value):
    with pytest.raises(ConfigError, match=f"{setting} must .*got {value!r}"):
        ClusterConfig(**{"n_clusters": 2, setting: value})


def test_a_bad_network_size_is_named():
    with pytest.raises(ConfigError, match="hidden_sizes must be a positive integer"):
        NetworkConfig(hidden_sizes=(10, 0))
    with pytest.raises(ConfigError, match="n_eigenvectors must be a positive integer"):
        ClusterConfig(2, n_eigenvectors=0)


def test_numbers_of_numpy_become_those_of_python():
    network = NetworkConfig(np.array([8, 4]), np.int64(6))
    training = TrainConfig(gamma=np.float32(2), batch_size=np.int64(3))
    clusters = ClusterConfig(np.int32(3), n_eigenvectors=np.int64(4))
    numbers = [*network.hidden_sizes, network.n_embedding, training.gamma]
    numbers += [training.batch_size, clusters.n_clusters, clusters.n_eigenvectors]
    assert [type(number) for number in numbers] == [int, int, int, float, *[int] * 3]
