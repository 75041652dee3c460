"""The sub-commands as one program, and its errors as single lines."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from typing import Any

import typer

from selfexpress import __version__
from selfexpress.cli.data import app as data_app
from selfexpress.cli.demo import demo
from selfexpress.cli.features import features
from selfexpress.cli.fit import fit
from selfexpress.cli.predict import predict
from selfexpress.cli.report import report
from selfexpress.cli.score import score
from selfexpress.errors import SelfExpressError

app = typer.Typer(
    help=(
        "Subspace clustering that learns a function instead of a matrix.\n\n"
        "Example: selfexpress fit rows.csv -k 3 -o rows.selfexpress --run rows-run\n\n"
        "Then: selfexpress report rows-run"
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (demo, fit, predict, score, report, features):
    app.command()(command)
app.add_typer(data_app, name="data")

# Typer keeps its own Click private; this is the class of everything that is wrong with
# a command.
_UsageError: type[Exception] = typer.BadParameter.__mro__[2]
_INTERRUPTED = 130


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


def run() -> int:
    """Run a command; return 2 after one line on stderr about bad input."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = app(prog_name="selfexpress", standalone_mode=False)
        except _UsageError as error:
            _explain_usage(error)
            return 2
        except typer.Abort as error:
            raise KeyboardInterrupt from error
        except (SelfExpressError, ValueError, TypeError, OSError) as error:
            _complain("error", str(error))
            return 2
        except (MemoryError, RuntimeError) as error:
            from selfexpress.ops.memory import is_out_of_memory

            if not is_out_of_memory(error):
                raise
            asked = re.search(r"allocate ([\d.]+ \w+)", str(error))
            _complain(
                "error",
                "What is computed must fit into memory, but "
                f"{asked.group(1) if asked else 'something'} did not. Use smaller "
                "settings or fewer rows.",
            )
            return 2
    if code == _INTERRUPTED:
        # Newer releases of Typer make a code of it instead of raising.
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


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
    from selfexpress import distributed

    if distributed.is_main():
        _complain("warning", str(message))


def _complain(kind: str, text: str) -> None:
    """Print one line on stderr, exactly as the words in it were typed."""
    typer.echo(f"{kind}: {' '.join(text.split())}", err=True)
