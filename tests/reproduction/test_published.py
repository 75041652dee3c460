"""The printed figures are checked against what the paper says about them."""

from __future__ import annotations

import pytest

from reproduction import published
from reproduction.presets import (
    ALGORITHM_SIZES,
    CIFAR10,
    EMNIST,
    FASHION_MNIST,
    MNIST,
    OCR_LETTERS,
    POINTS_PER_SUBSPACE,
    SYNTHETIC,
    TRAIN_SIZES,
    Recipe,
)


@pytest.mark.parametrize("n_samples", POINTS_PER_SUBSPACE)
@pytest.mark.parametrize("method", ["ensc", "senet"])
def test_objectives_of_table_1_are_the_sum_of_their_parts(n_samples, method):
    names = published.TABLE_1_METRICS
    printed = dict(zip(names, published.TABLE_1[n_samples][method], strict=True))
    slips = {
        name: published.TABLE_1_SLIPS[n_samples, method, name]
        for name in names
        if (n_samples, method, name) in published.TABLE_1_SLIPS
    }
    # Three printed decimals, of which the reconstruction's count 25-fold.
    rounding = 0.5e-3 * 27
    assert abs(_excess(printed | slips)) < rounding
    assert (abs(_excess(printed)) > rounding) == bool(slips)


def _excess(row):
    return row["objective"] - 25 * row["reconstruction"] - row["penalty"]


@pytest.mark.parametrize("n_samples", POINTS_PER_SUBSPACE)
def test_senet_is_never_below_the_optimum_in_table_1(n_samples):
    row = published.TABLE_1[n_samples]
    assert row["senet"][0] > row["ensc"][0]


def test_tables_cover_the_sizes_that_are_run():
    assert set(published.TABLE_1) == set(POINTS_PER_SUBSPACE)
    for rows in published.TABLE_2.values():
        assert set(rows) == {None, *TRAIN_SIZES}
    for rows in published.TIMES.values():
        assert set(rows) == set(TRAIN_SIZES)


def test_senet_gains_on_cifar10_what_the_paper_says():
    table = published.TABLE_3
    gain = table["senet"]["cifar10"][0] - table["ensc"]["cifar10"][0]
    assert gain == pytest.approx(0.152)
    assert table["senet"]["cifar10"] == published.ABLATION_THRESHOLD[True]


def test_presets_are_the_settings_of_the_paper():
    for preset in (MNIST, FASHION_MNIST, CIFAR10):
        assert (preset.recipe.gamma, preset.recipe.l1_ratio) == (200, 0.9)
        assert preset.n_clusters == 10
    assert (EMNIST.recipe.gamma, EMNIST.recipe.l1_ratio) == (150, 1)
    assert (EMNIST.n_clusters, EMNIST.center_after) == (26, True)
    assert OCR_LETTERS.recipe == EMNIST.recipe
    assert MNIST.recipe.n_eigenvectors == FASHION_MNIST.recipe.n_eigenvectors == 15
    assert (CIFAR10.recipe.affinity, CIFAR10.recipe.max_iter) == ("symmetric", 50_000)
    assert (MNIST.recipe.affinity, MNIST.recipe.n_neighbors) == ("nearest_neighbors", 3)
    assert SYNTHETIC.gamma == 50
    paper = Recipe()
    assert paper.hidden_sizes == (1024, 1024, 1024)
    assert (paper.n_embedding, paper.batch_size, paper.max_iter) == (1024, 100, 100_000)
    assert (paper.learning_rate, paper.schedule) == (1e-3, "cosine")
    assert ALGORITHM_SIZES == (1000, 2000, 5000, 10_000, 20_000)
