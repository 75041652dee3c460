from __future__ import annotations

import json
import time
import warnings
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from toy_images import Die

from reproduction.images import senet_cell
from reproduction.presets import Recipe
from reproduction.runner import (
    Cell,
    Context,
    Outcome,
    Results,
    run_cells,
    select,
    stage,
    with_seeds,
)
from reproduction.study import StudyCell
from reproduction.synthetic import CurveCell
from selfexpress.errors import ConfigError, DataError, SelfExpressError

SHORT = Recipe(max_iter=7)
RUNS: list[tuple[int, int]] = []


@dataclass(frozen=True, kw_only=True)
class Square(Cell):
    """A cell whose result is known: its number's square, plus the seed."""

    task: ClassVar[str] = "squares"
    number: int
    recipe: Recipe = SHORT

    def label(self) -> str:
        return f"number={self.number}"

    def run(self, context: Context) -> Outcome:
        RUNS.append((self.number, self.seed))
        if self.number == 13:
            raise DataError("13 is refused.")
        if self.number == 17:
            warnings.warn("17 is doubtful", stacklevel=1)
        square = self.number**2 + self.seed
        return Outcome({"part": {"square": square}}, {"thinking": 0.25})


@pytest.fixture
def context(tmp_path) -> Context:
    RUNS.clear()
    return Context(torch.device("cpu"), tmp_path / "cache")


def test_results_are_found_by_settings_for_all_seeds(tmp_path, context):
    cells = with_seeds([Square(number=2), Square(number=3)], 2)
    assert [(c.number, c.seed) for c in cells] == [(2, 0), (3, 0), (2, 1), (3, 1)]
    progress = run_cells(cells, Results(tmp_path), context)
    assert (progress.n_run, progress.n_skipped, progress.n_left) == (4, 0, 0)
    again = Results(tmp_path)
    assert again.metric(Square(number=3), "part", "square") == (9, 10)
    assert again.metric(Square(number=3), "seconds", "thinking") == (0.25, 0.25)
    assert again.metric(Square(number=3), "part", "cube") == ()
    assert again.metric(Square(number=4), "part", "square") == ()


def test_a_newer_run_of_a_seed_replaces_the_older_one_but_hides_nothing(
    tmp_path, context
):
    cell = Square(number=3)
    run_cells(with_seeds([cell], 2), Results(tmp_path), context)
    (record, _) = Results(tmp_path).of(cell)
    results = Results(tmp_path)
    for square in (9, 8):
        results.add(cell, record | {"metrics": {"part": {"square": square}}})
    results.add(cell, record | {"error": "DataError: no memory"})
    runs = {0: [9, 9, 8], 1: [10]}
    assert results.metric_of_runs(cell, "part", "square") == runs
    results.add(cell, record | {"metrics": {"part": {"square": 7}}})
    for found in (results, Results(tmp_path)):
        assert found.metric(cell, "part", "square") == (7, 10)
        runs = {0: [9, 9, 8, 7], 1: [10]}
        assert found.metric_of_runs(cell, "part", "square") == runs
        assert found.metric_of_runs(cell, "part", "cube") == {}


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, context, monkeypatch):
    cells = with_seeds([Square(number=n) for n in (2, 3, 4)], 1)

    def interrupted(self, _):
        raise KeyboardInterrupt

    original = Square.run
    run_cells(cells[:1], Results(tmp_path), context)
    monkeypatch.setattr(Square, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_cells(cells, Results(tmp_path), context)
    monkeypatch.setattr(Square, "run", original)
    progress = run_cells(cells, Results(tmp_path), context)
    assert (progress.n_run, progress.n_skipped) == (2, 1)
    assert RUNS == [(2, 0), (3, 0), (4, 0)]


def test_an_error_is_recorded_and_tried_again(tmp_path, context, monkeypatch):
    cells = [Square(number=13), Square(number=5)]
    lines: list[str] = []
    results = Results(tmp_path)
    progress = run_cells(cells, results, context, announce=lines.append)
    assert (progress.n_run, progress.n_failed) == (2, 1)
    assert "failed: 13 is refused." in lines[0]
    assert results.of(Square(number=13)) == []
    assert results.all_of(Square(number=13))[0]["error"] == "13 is refused."
    monkeypatch.setattr(
        Square, "run", lambda *_: Outcome({"part": {"square": 169}}, {})
    )
    again = Results(tmp_path)
    assert run_cells(cells, again, context).n_run == 1
    assert again.metric(Square(number=13), "part", "square") == (169,)
    assert run_cells(cells, Results(tmp_path), context).n_run == 0


def test_a_record_names_command_machine_and_warnings(tmp_path, context):
    results = Results(tmp_path)
    run_cells([Square(number=17)], results, context)
    (record,) = results.of(Square(number=17))
    assert record["settings"]["recipe"]["max_iter"] == 7
    assert record["warnings"] == ["17 is doubtful"]
    for name in ("date", "command", "commit", "dirty", "hardware", "versions", "seed"):
        assert name in record
    assert record["seconds"]["cell"] >= 0


def test_no_cell_starts_that_could_end_after_the_limit(tmp_path, context, monkeypatch):
    def slow(self, _):
        time.sleep(0.05)
        return Outcome({}, {})

    monkeypatch.setattr(Square, "run", slow)
    cells = [Square(number=n) for n in range(100)]
    start = time.perf_counter()
    progress = run_cells(cells, Results(tmp_path), context, time_limit=0.4)
    assert time.perf_counter() - start < 1
    assert 1 <= progress.n_run < 10
    assert progress.n_run + progress.n_left == 100


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_cell_that_took_long_with_another_seed_is_left_out(tmp_path, context, n_jobs):
    results = Results(tmp_path)
    long, short = Square(number=2), Square(number=3)
    run_cells([long, short], results, context, n_jobs=n_jobs)
    path = next(tmp_path.glob("*.jsonl"))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        if record["settings"]["number"] == long.number:
            record["seconds"]["cell"] = 1000.0
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    again = with_seeds([long, short], 2)
    results = Results(tmp_path)
    progress = run_cells(again, results, context, n_jobs=n_jobs, time_limit=100)
    assert (progress.n_run, progress.n_left) == (1, 1)
    assert len(results.of(short)) == 2


def test_cells_are_selected_by_what_they_change():
    cells = [StudyCell(dataset="orl", changes=c) for c in ((), (("n_init", 5),))]
    assert select(cells, ["n_init=5"]) == cells[1:]


def test_cells_are_selected_by_settings_of_any_depth():
    cells = with_seeds([Square(number=n) for n in (2, 3)], 2)
    assert select(cells, ["number=3", "seed=1"]) == [Square(number=3, seed=1)]
    assert len(select(cells, ["number=2,3", "max_iter=7"])) == 4
    assert select(cells, ["max_iter=8"]) == []


def test_a_cells_own_setting_wins_over_one_of_the_same_name_further_down():
    cells = [senet_cell("mnist", size, False) for size in (200, 10_000)]
    assert select(cells, ["n_train=200", "algorithm=naive"]) == cells[:1]


@pytest.mark.parametrize(
    ("condition", "n_found"),
    [
        ("gamma=200", 2),
        ("gamma=2e2,7", 2),
        ("gamma=20", 0),
        ("hidden_sizes=[1024, 1024, 1024]", 2),
        ("n_train=7,500,[1,2]", 1),
        ("learn_threshold=true", 2),
        ("learn_threshold=1", 0),
        ("dataset=mnist", 2),
        ("n_images=None", 2),
        ("n_images=null", 2),
    ],
)
def test_values_are_compared_as_what_they_mean(condition, n_found):
    cells = [senet_cell("mnist", size, False) for size in (500, 10_000)]
    assert len(select(cells, [condition])) == n_found


@pytest.mark.parametrize(
    ("condition", "message"),
    [("numbre=2", r"name a setting.*'numbre'.*number"), ("number", "name=value")],
)
def test_a_condition_that_means_nothing_is_refused(condition, message):
    with pytest.raises(ConfigError, match=message):
        select([Square(number=2)], [condition])


def test_stages_add_up_their_seconds():
    seconds: dict[str, float] = {}
    for _ in range(2):
        with stage(seconds, "sleep"):
            time.sleep(0.01)
    assert 0.02 <= seconds["sleep"] < 1


def test_cells_side_by_side_find_what_cells_alone_find(tmp_path, context):
    recipe = Recipe(hidden_sizes=(8,), n_embedding=8, max_iter=5, affinity="symmetric")
    cell = CurveCell(recipe=recipe, steps=(5,), n_samples=10)
    cells = with_seeds([cell], 2)
    alone, beside = Results(tmp_path / "alone"), Results(tmp_path / "beside")
    run_cells(cells, alone, context)
    progress = run_cells(cells, beside, context, n_jobs=2)
    assert (progress.n_run, progress.n_failed) == (2, 0)
    for one, other in zip(alone.of(cell), beside.of(cell), strict=True):
        assert other["metrics"] == one["metrics"]
        assert other["n_jobs"] == 2
    assert len(alone.metric(cell, "seconds", "training")) == 2
    assert beside.metric(cell, "seconds", "training") == ()


def test_what_is_timed_runs_alone(tmp_path, context, monkeypatch):
    """Also when others may run side by side: here, in this process."""
    monkeypatch.setattr(Square, "is_timed", True)
    cells = [Square(number=2), Square(number=3)]
    progress = run_cells(cells, Results(tmp_path), context, n_jobs=2)
    assert progress.n_run == 2
    assert RUNS == [(2, 0), (3, 0)]


def test_a_cell_that_fails_takes_no_other_with_it(tmp_path, context):
    """An error that is not ours ends the run, after what ran beside it was kept."""
    recipe = Recipe(hidden_sizes=(8,), n_embedding=8, max_iter=5, affinity="symmetric")
    good = CurveCell(recipe=recipe, steps=(5,), n_samples=10)
    bad = CurveCell(recipe=recipe, steps=None, n_samples=10)
    results = Results(tmp_path)
    with pytest.raises(TypeError, match="not iterable"):
        run_cells([bad, good], results, context, n_jobs=2)
    assert len(results.of(good)) == 1


def test_a_process_that_is_gone_is_said_in_a_sentence(tmp_path, context):
    with pytest.raises(SelfExpressError, match="go on with fewer --jobs"):
        run_cells([Die()], Results(tmp_path), context, n_jobs=2)


def test_a_setting_that_came_later_has_its_default_in_older_records(tmp_path, context):
    results = Results(tmp_path)
    run_cells([Square(number=2)], results, context)
    file = tmp_path / "squares.jsonl"
    record = json.loads(file.read_text())
    del record["settings"]["recipe"]["start"]
    file.write_text(json.dumps(record) + "\n")
    again = Results(tmp_path)
    assert again.has(Square(number=2))
    assert not again.has(Square(number=2, recipe=Recipe(max_iter=7, start="alike")))
