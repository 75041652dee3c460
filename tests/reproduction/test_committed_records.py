"""What the committed records of full runs must show; skipped where there are none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from reproduction import ablations, algorithms, table1, table3
from reproduction.images import senet_cell
from reproduction.methods import ensc_cell
from reproduction.page import write_page
from reproduction.published import TABLE_2, TABLE_3
from reproduction.record import ROOT
from reproduction.runner import Results

# Largest gap of SENet to the optimum, by points of a subspace.
GAPS = {20: 0.001, 100: 0.001, 200: 0.001, 1000: 0.015, 2000: 0.05}


def values(results: Results, cell, *path) -> tuple[float, ...]:
    """Return a metric of at least three seeds."""
    found = results.metric(cell, *path)
    if len(found) < 3:
        pytest.skip("fewer than three seeds are recorded")
    return found


def test_the_page_is_what_the_records_say(results, tmp_path):
    page = tmp_path / "reproduction.md"
    write_page(page, results)
    committed = ROOT / "docs" / "reproduction.md"
    assert committed.read_text() == page.read_text(), (
        "run `python -m reproduction --document docs/reproduction.md`"
    )
    for picture in tmp_path.glob("images/*"):
        assert (committed.parent / "images" / picture.name).is_file()


@pytest.mark.parametrize("n_samples", GAPS)
def test_table_1_comes_near_the_optimum_and_never_below_it(n_samples, results):
    gaps = values(results, table1.cell(n_samples, False), "gap")
    assert min(gaps) >= 0
    assert max(gaps) <= GAPS[n_samples]


@pytest.mark.parametrize("n_samples", GAPS)
@pytest.mark.parametrize("heading", ["ACC %", "SRE %", "CONN, mean"])
def test_table_1_agrees_with_the_paper_on_training_points(n_samples, heading, results):
    table = table1.summarize(results, False).tables[0]
    (row,) = [row for row in table.rows if row[:2] == (str(n_samples), "SENet")]
    figure = row[table.headings.index(heading)]
    assert len(figure.ours) >= 3
    assert not figure.is_different(), str(figure)


# Not reached: the page says why. Strict, so that reaching it shows.
SWINGS = pytest.mark.xfail(strict=True, reason="k-means swings from seed to seed")


@pytest.mark.parametrize(
    ("dataset", "n_train", "least"),
    [
        ("mnist", 10_000, 0.96),
        pytest.param("mnist", 20_000, 0.96, marks=SWINGS),
        pytest.param("fashion-mnist", 10_000, 0.65, marks=SWINGS),
        pytest.param("fashion-mnist", 20_000, 0.65, marks=SWINGS),
        ("cifar10", 2_000, 0.70),
        ("cifar10", 10_000, 0.70),
    ],
)
def test_table_3_reaches_its_accuracies(dataset, n_train, least, results):
    cell = senet_cell(dataset, n_train, False)
    assert len(results.of(cell)) >= 3
    # All runs, so that running a seed again until it is lucky helps nothing.
    by_seed = results.metric_of_runs(cell, "full", "accuracy")
    assert np.mean([np.mean(runs) for runs in by_seed.values()]) >= least


@pytest.mark.parametrize(
    ("dataset", "least"), [("mnist", 0.96), ("fashion-mnist", 0.65), ("cifar10", 0.70)]
)
def test_table_3_reaches_its_accuracies_with_pieces_merged(dataset, least, results):
    cell = table3.cell(dataset, "senet", False)
    by_seed = results.metric_of_runs(cell, "merged", "accuracy")
    assert len(by_seed) >= 3
    assert np.mean([np.mean(runs) for runs in by_seed.values()]) >= least


@pytest.mark.parametrize("dataset", ["mnist", "fashion-mnist"])
def test_graphs_are_as_good_as_the_exact_method_s(dataset, results):
    """It is the clustering of graphs that swings, not the graphs."""
    trained = table3.cell(dataset, "senet", False)
    errors = values(results, trained, "full", "wrong_edges")
    exact = values(results, table3.cell(dataset, "ensc", False), "wrong_edges")
    assert max(errors) <= min(exact) + 0.005


# k-means of Fashion-MNIST ends in several places, the paper's among them.
@pytest.mark.parametrize(
    ("method", "dataset"),
    [
        ("k-means", "mnist"),
        *itertools.product(("spectral", "ssc-omp", "ensc"), ("mnist", "fashion-mnist")),
    ],
)
def test_methods_without_a_network_agree_with_the_paper(method, dataset, results):
    """Features, graphs and spectral step are what they show."""
    cell = table3.cell(dataset, method, False)
    found = [np.mean(values(results, cell, score)) for score in table3._SCORES]
    assert found == pytest.approx(TABLE_3[method][dataset], abs=0.002)


@pytest.mark.parametrize("dataset", ["mnist", "fashion-mnist"])
def test_what_table_2_calls_sre_is_that_of_the_graph(dataset, results):
    exact = ensc_cell(dataset, False, part="test", gamma_scale="relative")
    _, published = TABLE_2[dataset][None]
    assert 100 * np.mean(values(results, exact, "graph_sre")) == pytest.approx(
        published, abs=0.01
    )
    for other in ("wrong_edges", "sre"):
        assert abs(100 * np.mean(values(results, exact, other)) - published) > 0.4


def accuracy(results: Results, grid, value: str) -> float:
    cell = grid(False)[value]
    return float(np.mean(values(results, cell, "full", "accuracy")))


def test_the_threshold_helps_on_the_training_images(results):
    # The accuracy on all images does not tell them apart, as the page says.
    cells = ablations._threshold(False)
    for of in (ablations.last_objectives, training_sre):
        assert max(of(results, cells["with"])) < min(of(results, cells["without"]))


def training_sre(results: Results, cell) -> tuple[float, ...]:
    return values(results, cell, "train", "sre")


def test_width_helps(results):
    grid = ablations._width
    assert accuracy(results, grid, "1024") > accuracy(results, grid, "8")


def test_three_layers_are_enough(results):
    grid = ablations._depth
    three, four = accuracy(results, grid, "3"), accuracy(results, grid, "4")
    assert four <= three + 0.02


def test_algorithm_2_is_flat_in_memory_and_as_accurate(results):
    def mean(algorithm: str, size: int, *path: str) -> float:
        cell = algorithms.cell(algorithm, size, False)
        return float(np.mean(values(results, cell, *path)))

    sizes = algorithms.sizes(False)
    # The first training in a process takes workspaces beside, so the least counts.
    least = {
        size: min(
            values(results, algorithms.cell("two_pass", size, False), "peak_bytes")
        )
        for size in sizes
    }
    # The rows themselves are kept, and up to 6,000 of them embedded: beyond that
    # memory grows by 500 numbers a row in float32 and in bfloat16, and nothing else.
    assert least[20_000] - least[10_000] <= (4 + 2) * 500 * 10_000
    assert least[20_000] - least[1000] <= 3 * 4 * 500 * 19_000
    for size in sizes:
        first, second = (
            mean(name, size, "test", "accuracy") for name in ("naive", "two_pass")
        )
        assert abs(first - second) <= 0.05
