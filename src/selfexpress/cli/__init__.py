"""The command line: one file a sub-command; this one joins them and reports errors."""

from __future__ import annotations

import logging
import sys
import warnings

import typer
from rich.console import Console

from selfexpress import __version__
from selfexpress.cli.data import app as data_app
from selfexpress.cli.demo import demo
from selfexpress.cli.features import features
from selfexpress.cli.fit import fit
from selfexpress.cli.predict import predict
from selfexpress.cli.score import score
from selfexpress.errors import SelfExpressError

app = typer.Typer(
    help="Subspace clustering that learns a function instead of a matrix.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (demo, fit, predict, score, features):
    app.command()(command)
app.add_typer(data_app, name="data")


def main() -> None:
    """Run the command line; bad input is one line on stderr and exit code 2."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            app()
        except (SelfExpressError, ValueError, TypeError, OSError) as error:
            _complain("error", str(error))
            sys.exit(2)


@app.callback(invoke_without_command=True)
def options(
    version: bool = typer.Option(False, "--version", help="Print the version."),
    log: bool = typer.Option(False, "--log", help="Show decisions on stderr."),
) -> None:
    """Handle what comes before the sub-command."""
    if version:
        typer.echo(__version__)
        raise typer.Exit
    if log:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _complain("warning", str(message))


def _complain(kind: str, text: str) -> None:
    line = " ".join(text.split())
    Console(stderr=True).print(f"{kind}: {line}", markup=False, soft_wrap=True)
