"""What the committed records say of SENet's defaults: the targets past the paper."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction import beyond
from reproduction.record import RECORDS, read_records
from reproduction.runner import Results

N_SEEDS = 5


def newest(claim: str):
    """Return the results of a benchmark's newest record."""
    return read_records(RECORDS / f"{claim}.jsonl")[-1]["metrics"]


def values(results: Results, cell, *path) -> tuple[float, ...]:
    found = results.metric(cell, *path)
    assert len(found) >= N_SEEDS
    return found


@pytest.mark.parametrize(
    ("dataset", "accuracy", "information"),
    [("mnist", 0.985, 0.955), ("fashion-mnist", 0.72, 0.71), ("cifar10", 0.765, 0.655)],
)
def test_the_defaults_pass_every_row_of_the_paper(
    dataset, accuracy, information, results
):
    cell = beyond.cell(dataset, is_quick=False)
    assert np.mean(values(results, cell, "accuracy")) >= accuracy
    assert np.mean(values(results, cell, "normalized_mutual_info")) >= information


def test_clothes_do_not_swing(results):
    cell = beyond.cell("fashion-mnist", is_quick=False)
    assert np.std(values(results, cell, "accuracy"), ddof=1) <= 0.02


def test_one_graph_hardly_depends_on_starts_and_eigenvectors():
    found = newest("spectral-swing-fashion-mnist")["merged"]["accuracy"]
    scores = [score for number in ("1.5", "2", "3", "4") for score in found[number]]
    assert np.std(scores, ddof=1) <= 0.02


def test_training_comes_within_a_tenth_of_the_optimum(results):
    recipe = beyond.GAPS["Muon, all rows, 12,000 steps"]
    gaps = values(results, beyond.gap_cell(recipe, False), "gap")
    assert min(gaps) >= 0
    assert max(gaps) <= 0.1


@pytest.mark.parametrize("dataset", ["coil20", "orl", "ocr-letters"])
def test_small_sets_are_at_least_as_good_as_the_exact_methods(dataset, results):
    cell = beyond.cell(dataset, is_quick=False)
    best = newest(f"small-sets-{dataset}")["pixels"]["accuracy"]
    assert np.mean(values(results, cell, "accuracy")) >= best


def test_motions_are_told_apart():
    found = newest("hopkins155")["senet"]
    assert len(found["runs"]) >= N_SEEDS
    assert found["mean"]["all"] <= 0.05


def test_every_setting_of_the_study_has_been_run_with_every_seed(results):
    gaps = {beyond.gap_cell(recipe, False) for recipe in beyond.GAPS.values()}
    for cell in beyond.cells(False):
        if cell not in gaps:
            assert len(results.of(cell)) >= N_SEEDS, cell.label()
