"""``selfexpress bench``: run a benchmark of a source checkout."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from selfexpress.errors import ConfigError
from selfexpress.experiments.records import checkout
from selfexpress.report.tables import terminal_table


def bench(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="A benchmark; without it they are listed.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="About a minute, and no record.")
    ] = False,
) -> None:
    """Run a benchmark, which writes a record; further options are handed to it.

    Example: selfexpress bench scattering --quick
    """
    benchmarks = find_benchmarks()
    if name is None:
        rows = [(known, _claim(path)) for known, path in benchmarks.items()]
        Console().print(terminal_table("Benchmarks", ("name", "claim"), rows))
        return
    if name not in benchmarks:
        raise ConfigError(
            f"The benchmark must be one of {', '.join(benchmarks)}, got {name!r}."
        )
    options = ["--quick"] if quick else []
    command = [sys.executable, str(benchmarks[name]), *options, *context.args]
    code = subprocess.run(command, check=False).returncode
    if code:
        raise typer.Exit(code)


def find_benchmarks() -> dict[str, Path]:
    """Return the benchmarks of the source checkout by name.

    Raises
    ------
    ConfigError
        If the package is installed without them.
    """
    root = checkout()
    files = [] if root is None else sorted((root / "benchmarks").glob("bench_*.py"))
    if not files:
        raise ConfigError(
            "Benchmarks must lie beside the source, but this installation has none. "
            "Clone the repository and install it with `pip install -e .`."
        )
    return {path.stem.removeprefix("bench_").replace("_", "-"): path for path in files}


def _claim(path: Path) -> str:
    """Return the first line of a benchmark's docstring, which states its claim."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.partition("\n")[0]
