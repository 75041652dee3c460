"""The command line starts at once, ends at once, and leaves words as they are typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import selfexpress
from selfexpress import cli
from selfexpress.cli.options import Setting, given_settings, settings, with_settings

SOURCE = Path(selfexpress.__file__).parents[1]
HEAVY = {"torch", "numpy", "scipy", "sklearn", "pyarrow", "matplotlib", "numba"}
START = """
import json, sys, time
from selfexpress.cli import main
try:
    main()
finally:
    print(json.dumps([time.process_time(), sorted(sys.modules)]), file=sys.stderr)
"""


def start(*words, program=("-m", "selfexpress"), folder=SOURCE):
    path = os.pathsep.join([str(folder), str(SOURCE)])
    return subprocess.run(
        [sys.executable, *program, *words],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["fit", "--help"]])
def test_help_and_version_wait_for_no_library(words):
    ran = start(*words, program=("-c", START))
    assert ran.returncode == 0
    seconds, modules = json.loads(ran.stderr)
    assert HEAVY.isdisjoint(modules)
    assert seconds < 0.5


@pytest.mark.parametrize("library", ["typer", "torch"])
def test_an_interrupt_while_libraries_load_is_one_line(library, tmp_path):
    (tmp_path / f"{library}.py").write_text("raise KeyboardInterrupt")
    output = tmp_path / "demo"
    ran = start("demo", "-o", str(output), "--quiet", folder=tmp_path)
    assert (ran.returncode, ran.stderr) == (130, "error: interrupted\n")


@pytest.mark.parametrize("place", [":x:", "[bold]no[/bold]", "[/]", "a [red] :smile:"])
def test_words_are_shown_as_they_are_typed(place, monkeypatch, capsys):
    for words in (["report", place], [place], ["fit", "rows.npy", f"--{place}"]):
        monkeypatch.setattr(sys, "argv", ["selfexpress", *words])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        assert leaving.value.code == 2
        assert place in capsys.readouterr().err


def test_a_new_setting_is_an_option_without_further_work(monkeypatch):
    new = {
        "refine": Setting("refine", "bool | str | None", "auto", "Refine [bold]C."),
        "n_rounds": Setting("n_rounds", "int | None", 3, "Rounds; 0 for none."),
        "tol": Setting("tol", "float", 1e-4, "Where to stop."),
    }
    monkeypatch.setattr("selfexpress.cli.options.settings", lambda: new)
    kept = {}

    def command(name: str, quiet: bool = False, **given: object) -> None:
        kept.update(given_settings(given))

    app = typer.Typer()
    app.command()(with_settings(command, before="quiet"))
    words = ["n", "--refine", "false", "--n-rounds", "0", "--tol", "0.5"]
    app(words, standalone_mode=False)
    assert kept == {"refine": False, "n_rounds": None, "tol": 0.5}
    kept.clear()
    app(["n", "--refine", "auto"], standalone_mode=False)
    assert kept == {"refine": "auto"}
    assert "Refine [bold]C." in CliRunner().invoke(app, ["--help"]).output


def test_help_lines_come_from_the_documentation():
    assert settings()["n_init"].help.startswith("Restarts of k-means")
    assert settings()["optimizer"].help == "adam or muon."
    assert settings()["n_train_samples"].help.endswith("0 for all of them.")
