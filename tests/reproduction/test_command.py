from __future__ import annotations

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest

from reproduction import first_experiment, table1, table3
from reproduction.__main__ import main
from reproduction.catalogue import EXPERIMENTS, PAPER
from reproduction.presets import FIRST_EXPERIMENT, SYNTHETIC
from reproduction.runner import Results
from reproduction.synthetic import CurveCell
from selfexpress.errors import ConvergenceWarning, DataError

TINY = {"hidden_sizes": (32,), "n_embedding": 32, "max_iter": 40, "n_init": 2}


@pytest.fixture
def call(capfd):
    """Run the command; return its exit code, stdout and stderr."""

    def run(*arguments) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([*map(str, arguments)])
        out, err = capfd.readouterr()
        return int(stop.value.code or 0), out, err

    return run


@pytest.fixture
def tiny(monkeypatch):
    """Shrink the synthetic experiments until they take a second."""
    monkeypatch.setattr(table1, "SYNTHETIC", replace(SYNTHETIC, **TINY))
    monkeypatch.setattr(table1, "_FULL_BATCH_STEPS", 50)
    monkeypatch.setattr(table1, "POINTS_PER_SUBSPACE", (10, 20))
    monkeypatch.setattr(
        first_experiment,
        "figure2_cell",
        lambda _: CurveCell(
            recipe=replace(FIRST_EXPERIMENT, **TINY),
            steps=(20, 40),
            n_samples=12,
            has_pictures=True,
        ),
    )


def test_the_paper_stands_beside_ours_and_nothing_runs_twice(call, tiny, tmp_path):
    options = ("--records", tmp_path, "--device", "cpu", "--seeds", 2)
    code, out, err = call("table1", *options)
    assert code == 0
    assert len(re.findall(r"equivalence n_samples=\d+ .* done", err)) == 8
    assert "8 cells run, 0 were finished before" in err
    assert "±" in out
    _, out, err = call("table1", *options)
    assert "0 cells run, 8 were finished before" in err
    table = table1.summarize(Results(tmp_path), False).tables[0]
    exact, network = table.rows[:2]
    assert exact[1] == "EnSC"
    assert len(exact[2].ours) == 2
    assert np.mean(exact[2].ours) < np.mean(network[2].ours)


def test_figures_are_drawn_among_the_records(call, tiny, tmp_path):
    options = ("--records", tmp_path, "--device", "cpu", "--seeds", 1)
    _, _, err = call("figure2", *options)
    picture = tmp_path / "images" / "figure2.png"
    assert f"picture written to {picture}" in err
    assert picture.read_bytes().startswith(b"\x89PNG")
    picture.unlink()
    call("figure2", "--records", tmp_path, "--show")
    assert not picture.exists()


def test_warnings_of_cells_are_told_once(call, tiny, tmp_path, monkeypatch):
    run = CurveCell.run

    def warn(cell, context):
        warnings.warn("Mind the step.", ConvergenceWarning, stacklevel=1)
        return run(cell, context)

    monkeypatch.setattr(CurveCell, "run", warn)
    options = ("--records", tmp_path, "--device", "cpu", "--seeds", 2)
    _, _, err = call("figure2", *options)
    assert err.count("warning: Mind the step.") == 1


def test_a_part_can_be_run_and_planned(call, tiny, tmp_path):
    options = ("--records", tmp_path, "--device", "cpu", "--only", "n_samples=10")
    code, _, err = call("table1", *options, "--seeds", 1)
    assert code == 0
    assert "2 cells run" in err
    _, out, _ = call("table1", "--records", tmp_path, "--plan")
    assert out.splitlines()[-1] == "10 of 12 cells to run"
    _, out, _ = call("table1", "--records", tmp_path, "--show")
    assert "EnSC" in out


def test_the_page_is_made_from_the_records(call, tiny, tmp_path):
    options = ("--records", tmp_path / "records", "--device", "cpu", "--seeds", 1)
    assert call("figure2", "table1", *options)[0] == 0
    page = tmp_path / "page.md"
    code, _, _ = call("--records", tmp_path / "records", "--document", page)
    assert code == 0
    text = page.read_text()
    for name in PAPER:
        assert f"## {name}\n" in text
    assert text.count("Not run yet.") == len(PAPER) - 2
    assert "[135.127]" in text.split("## table1")[1]
    assert "![figure2](images/figure2.png)" in text
    picture = (tmp_path / "images" / "figure2.png").read_bytes()
    assert picture.startswith(b"\x89PNG")


def test_a_cell_that_fails_shows_in_the_exit_code(call, tiny, tmp_path, monkeypatch):
    def refuse(*_):
        raise DataError("Nothing is at hand.")

    options = ("--records", tmp_path, "--device", "cpu", "--seeds", 1)
    with monkeypatch.context() as broken:
        broken.setattr(CurveCell, "run", refuse)
        code, out, err = call("figure2", *options)
    assert code == 1
    assert "1 failed" in err
    assert "training half" in out
    code, _, err = call("figure2", *options)
    assert code == 0
    assert "1 cells run, 0 were finished before" in err


def test_experiments_are_listed(call):
    code, out, _ = call()
    assert code == 0
    assert all(name in out for name in EXPERIMENTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table9"), "experiment must be one of 'all', 'figures'"),
        (("all", "table9"), "experiment must be one of"),
        (("table1", "--document", "page.md"), "without experiments"),
        (("--quick", "--document", "page.md"), "without experiments"),
        (("--seeds", "3", "--document", "page.md"), "but --records"),
        (("--jobs", "4", "--document", "page.md"), "but --records"),
        (("--device", "cpu", "--document", "page.md"), "but --records"),
        (("--document", "."), "must be a .md file"),
        (("--records", "none", "--document", "page.md"), "hold records"),
        (("table1", "--only", "n_sample=3"), "name a setting"),
        (("table1", "--only", "n_samples=3"), "leaves none"),
        (("table1", "--device", "tpu"), "device must"),
        (("--document", "gone/page.md"), "in a folder that exists"),
        (("table1", "--set", "width=3"), "--set must come with benchmarks"),
        (("streaming", "--set", "width=3"), "must name a setting of streaming"),
        (("table1", "--seeds", "0"), "--seeds must be at least 1"),
    ],
)
def test_what_does_not_exist_is_one_line_and_exit_code_two(
    arguments, message, call, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("quick", [False, True])
def test_every_experiment_can_be_summarised_without_results(name, quick, tmp_path):
    experiment = EXPERIMENTS[name]
    cells = experiment.cells(quick)
    assert cells
    assert len(set(cells)) == len(cells)
    for table in experiment.summarize(Results(tmp_path), quick).tables:
        assert all(len(row) == len(table.headings) for row in table.rows)


def test_emnist_is_run_only_where_its_files_are(monkeypatch, tmp_path):
    def cells_of_emnist() -> list[str]:
        listed = (c.settings() for c in table3.cells(False))
        return [c for c in listed if c["preset"]["dataset"] == "emnist-lower"]

    monkeypatch.setenv("SELFEXPRESS_DATA", str(tmp_path))
    assert cells_of_emnist() == []
    tables = table3.summarize(Results(tmp_path), False).tables
    (emnist,) = (table for table in tables if table.title.startswith("EMNIST"))
    assert emnist.notes[0].startswith("Not run here")
    assert str(emnist.rows[-1][1]) == "[0.721]"
    monkeypatch.setattr(table3, "locate", lambda _: tmp_path)
    assert len(cells_of_emnist()) == len(table3.METHODS)
