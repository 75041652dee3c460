"""The command line: one file a sub-command; this one joins them and reports errors."""

from __future__ import annotations

import functools
import logging
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import typer
from rich.console import Console

from selfexpress import __version__, distributed
from selfexpress.cli.data import app as data_app
from selfexpress.cli.demo import demo
from selfexpress.cli.features import features
from selfexpress.cli.fit import fit
from selfexpress.cli.predict import predict
from selfexpress.cli.report import report
from selfexpress.cli.score import score
from selfexpress.errors import SelfExpressError
from selfexpress.ops.memory import is_out_of_memory

app = typer.Typer(
    help=(
        "Subspace clustering that learns a function instead of a matrix.\n\n"
        "Example: selfexpress fit rows.csv -k 3 -o rows.selfexpress --run rows-run\n\n"
        "Then: selfexpress report rows-run"
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _in_group(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that many processes can run together."""

    @functools.wraps(command)
    def run(*words: Any, **options: Any) -> None:
        with distributed.process_group():
            command(*words, **options)

    return run


for command in (demo, _in_group(fit), _in_group(predict), score, report, features):
    app.command()(command)
app.add_typer(data_app, name="data")

# Typer keeps its own Click private; this is the class of everything that is wrong with
# a command.
_UsageError: type[Exception] = typer.BadParameter.__mro__[2]
_INTERRUPTED = 130


def main() -> None:
    """Run the command line; bad input is one line on stderr and exit code 2."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = app(prog_name="selfexpress", standalone_mode=False)
            if code == _INTERRUPTED:
                # Newer releases of Typer make a code of it instead of raising.
                raise KeyboardInterrupt
            sys.exit(code if isinstance(code, int) else 0)
        except _UsageError as error:
            _explain_usage(error)
            sys.exit(2)
        except (typer.Abort, KeyboardInterrupt):
            _complain("error", "interrupted")
            sys.exit(_INTERRUPTED)
        except (SelfExpressError, ValueError, TypeError, OSError) as error:
            _complain("error", str(error))
            sys.exit(2)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            _complain(
                "error",
                f"What is computed must fit into memory, but {_wanted(error)} did not. "
                "Use smaller settings or fewer rows.",
            )
            sys.exit(2)


def _wanted(error: BaseException) -> str:
    """Return how much memory was asked for, if the error tells."""
    found = re.search(r"allocate ([\d.]+ \w+)", str(error))
    return found.group(1) if found else "something"


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


def _explain_usage(error: Any) -> None:
    """Say in one line what is wrong with a command; without one, print the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "selfexpress"
    message = error.format_message().rstrip(".")
    _complain("error", f"{message}. Try '{command} --help'.")


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    if distributed.is_main():
        _complain("warning", str(message))


def _complain(kind: str, text: str) -> None:
    line = " ".join(text.split())
    Console(stderr=True).print(f"{kind}: {line}", markup=False, soft_wrap=True)
