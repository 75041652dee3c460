"""The study past the paper."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from toy_images import PRESET, toy_context

from reproduction import beyond
from reproduction.runner import Context, Results, run_cell, run_cells
from reproduction.study import (
    GapCell,
    Preparation,
    ReadingsCell,
    StudyCell,
    in_words,
    study_rows,
)
from selfexpress import SENet
from selfexpress.training.callbacks import Callback


def test_more_training_comes_nearer_to_the_optimum(tmp_path, seed):
    context = toy_context(tmp_path, seed)
    gaps = []
    for max_iter in (20, 400):
        recipe = replace(PRESET.recipe, max_iter=max_iter, batch_size=60)
        cell = GapCell(preset=replace(PRESET, recipe=recipe), n_train=60, seed=seed)
        found = cell.run(context).metrics
        assert found["objective"] >= found["optimum"]
        assert found["gap"] == pytest.approx(found["objective"] / found["optimum"] - 1)
        gaps.append(found["gap"])
    assert gaps[1] < gaps[0]


def test_every_change_is_an_argument_of_senet():
    known = SENet().get_params()
    for values in (beyond.TRAININGS | beyond.READINGS).values():
        for changes in values.values():
            assert {name for name, _ in changes} <= known.keys()
            SENet(**dict(changes))


@pytest.mark.parametrize("is_quick", [True, False])
def test_every_cell_is_shown(is_quick, tmp_path):
    asked = set()

    class Watched(Results):
        def metric(self, cell, *path, scale=1):
            asked.add(cell)
            return super().metric(cell, *path, scale=scale)

    beyond.summarize(Watched(tmp_path), is_quick)
    assert asked == set(beyond.cells(is_quick))


def test_the_defaults_are_a_cell_of_their_own():
    cell = beyond.cell("mnist", is_quick=False)
    assert cell.changes == ()
    assert cell.preparation == Preparation()


def test_rows_are_prepared_as_said(data_folder, tmp_path):
    folder = Context(torch.device("cpu"), tmp_path)
    white = StudyCell(dataset="orl", n_rows=120)
    rows, truth = study_rows(white, folder)
    assert rows.shape == (120, 30)  # a component for every four rows
    pixels = Preparation(kind="pixels", projection="none")
    rows, same = study_rows(replace(white, preparation=pixels), folder)
    assert rows.shape == (120, 1024)
    assert (truth == same).all()
    assert len(np.unique(truth)) > 1


SMALL = (("max_iter", 30), ("hidden_sizes", (32,)), ("n_embedding", 32))


def test_a_cell_is_scored_and_recorded(data_folder, tmp_path, seed):
    cell = StudyCell(dataset="orl", changes=SMALL, n_rows=120, seed=seed)
    results = Results(tmp_path)
    progress = run_cells([cell], results, Context(torch.device("cpu"), tmp_path))
    assert progress.n_failed == 0
    (accuracy,) = results.metric(cell, "accuracy")
    assert 0 < accuracy <= 1
    assert results.of(cell)[0]["metrics"]["settings"]["max_iter"] == 30


def test_readings_of_a_training_are_fits_of_their_own(
    data_folder, tmp_path, seed, monkeypatch
):
    """Only the first of them trains, and none differs from a fit that does."""
    context = Context(torch.device("cpu"), tmp_path)
    ways = ((), (("n_nonzero", 5),), (("n_clusters", "auto"),))
    steps = []
    make = StudyCell._model

    class Counter(Callback):
        def on_step_end(self, state):
            steps.append(state.step)

    def counted(self, context, truth, **changes):
        return make(self, context, truth, callbacks=(Counter(),), **changes)

    monkeypatch.setattr(StudyCell, "_model", counted)
    base = StudyCell(dataset="orl", changes=SMALL, n_rows=120, seed=seed)
    cell = ReadingsCell(
        dataset="orl", changes=SMALL, n_rows=120, seed=seed, readings=ways
    )
    found = run_cell(cell, context)["metrics"]
    assert steps[-1] == 30
    n_calls = len(steps)
    for way in ways:
        alone = run_cell(replace(base, changes=SMALL + way), context)["metrics"]
        assert found[in_words(way)] == alone
    assert len(steps) == n_calls * (1 + len(ways))
    assert len({json.dumps(scores) for scores in found.values()}) == len(ways)


def test_a_reading_that_enters_training_is_an_error(data_folder, tmp_path, seed):
    ways = ((), (("gamma", 1e4),))
    cell = ReadingsCell(
        dataset="orl", changes=SMALL, n_rows=120, seed=seed, readings=ways
    )
    record = run_cell(cell, Context(torch.device("cpu"), tmp_path))
    assert "differ in gamma" in record["error"]
