"""Options that commands share, and those of ``fit``, made from SENet's own signature.

The signature is read as text: what the help shows must not wait for torch.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import selfexpress

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto.")]
Data = Annotated[
    str, typer.Argument(help="File or folder of rows, or a data set's name.")
]
Name = Annotated[
    str | None, typer.Option(help="Array or column of DATA that holds the rows.")
]

AUTO = "auto"
_SENET = Path(selfexpress.__file__).with_name("estimators") / "senet.py"
# Parameters that the command sets by options of its own.
_OWN = {"n_clusters", "device", "checkpoint", "callbacks", "verbose", "random_state"}
# Where the first sentence of the documentation is not for the command line.
_HELP = {
    "block_size": "Rows handled at once.",
    "center": "Whether the mean of the rows is subtracted first.",
    "gamma_scale": "absolute, or relative to the data.",
    "learning_rate": "Of the first step.",
    "max_iter": "Most training steps; auto trains with --refine none only.",
    "n_cluster_samples": "Rows to build the graph of; 0 for all. Others are assigned.",
    "precision": "float32, or tf32 or bfloat16 on a GPU.",
    "refine": "auto solves for coefficients; none, as in the paper, learns them.",
    "schedule": "adaptive to end by itself, cosine or constant.",
    "start": "alike, or random as in the paper.",
}
_PANELS = {"block_size": "Machine", "precision": "Machine"} | dict.fromkeys(
    ("refine", "center", "n_nonzero", "affinity", "n_neighbors", "n_eigenvectors",
     "n_init", "n_references", "n_cluster_samples"), "Graph and labels",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """A constructor argument of SENet; ``type`` is its annotation as it is written."""

    name: str
    type: str
    default: object
    help: str

    @property
    def kinds(self) -> set[str]:
        """Names of the types that a value may have."""
        return {kind.strip() for kind in self.type.split("|")}


@functools.cache
def settings() -> dict[str, Setting]:
    """Return every setting of SENet that is an option, by its name."""
    tree = ast.parse(_SENET.read_text(encoding="utf-8"))
    (model,) = (node for node in tree.body if getattr(node, "name", "") == "SENet")
    assert isinstance(model, ast.ClassDef)
    (init,) = (node for node in model.body if getattr(node, "name", "") == "__init__")
    assert isinstance(init, ast.FunctionDef)
    documented = _documented(ast.get_docstring(model) or "")
    found = {}
    for argument, value in zip(
        init.args.kwonlyargs, init.args.kw_defaults, strict=True
    ):
        name, annotation = argument.arg, argument.annotation
        if name in _OWN or annotation is None or value is None:
            continue
        line = _HELP.get(name) or documented.get(name, "See the documentation.")
        setting = Setting(name, ast.unparse(annotation), ast.literal_eval(value), line)
        if setting.kinds & {*_SIMPLE, *_PARSERS}:
            found[name] = setting
    return found


def _documented(text: str) -> dict[str, str]:
    """Return the first sentence on each parameter, or the choices that it has."""
    text = text.partition("Parameters\n")[2].partition("Attributes\n")[0]
    entries = re.findall(r"^(\w+) : (.*)((?:\n +.*)*)", text, re.MULTILINE)
    found = {}
    for name, kind, body in entries:
        choices = [word for word in re.findall(r'"(\w+)"', kind) if word != AUTO]
        *others, last = choices or [""]
        sentence = re.split(r"(?<=\.)\s", " ".join(body.split()))[0]
        listed = f"{', '.join(others)} or {last}." if others else sentence
        # On the command line 0 stands for None.
        found[name] = listed.replace("`", "").replace("None for", "0 for")
    return found


def with_settings(command: Callable[..., None], *, before: str) -> Callable[..., None]:
    """Give a command an option for each setting, in the place of its ``**settings``."""
    only = inspect.Parameter.KEYWORD_ONLY
    given = inspect.signature(command, eval_str=True).parameters
    *own, _ = (parameter.replace(kind=only) for parameter in given.values())
    place = list(given).index(before)
    own[place:place] = [
        inspect.Parameter(name, only, default=None, annotation=_annotation(setting))
        for name, setting in settings().items()
    ]
    command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return command


def _annotation(setting: Setting) -> Any:
    shown: dict[str, Any] = {
        # Brackets would be taken for markup.
        "help": setting.help.replace("[", "\\["),
        "rich_help_panel": _PANELS.get(setting.name, "Training"),
        "show_default": str(setting.default),
    }
    if setting.type in _SIMPLE:
        return Annotated[_SIMPLE[setting.type] | None, typer.Option(**shown)]
    known = (_PARSERS[kind] for kind in _PARSERS if kind in setting.kinds)
    parser, metavar = next(known, (str, "TEXT"))
    if "None" in setting.kinds:
        parser = _or_none(parser)
    metavar = "auto|none" if setting.name == "refine" else f"{metavar}|auto"
    shown |= {"parser": parser, "metavar": metavar}
    return Annotated[Any, typer.Option(**shown)]


def given_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that were given; SENet decides upon the others."""
    given = {name: value for name, value in values.items() if value is not None}
    for name, value in given.items():
        # An option cannot be None, for which 0 stands.
        if value == 0 and value is not False and "None" in settings()[name].kinds:
            given[name] = None
    return given


def _or_auto(convert: Callable[[str], Any], what: str) -> Callable[[str], Any]:
    """Return a parser of values or "auto"; whoever takes them checks their range."""

    def parse(text: str) -> Any:
        try:
            return text if text == AUTO else convert(text)
        except (ValueError, KeyError) as error:
            raise typer.BadParameter(
                f"it must be {what} or auto, got {text!r}. Use auto to have it chosen."
            ) from error

    return parse


def _or_none(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser that takes none for 0, which stands for None."""
    return lambda text: 0 if text in ("0", "none") else convert(text)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(","))


count_or_auto = _or_auto(int, "an integer")
_SIMPLE = {"int": int, "float": float, "bool": bool, "str": str}
_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "bool": (
        _or_auto({"true": True, "false": False}.__getitem__, "true, false"),
        "BOOLEAN",
    ),
    "float": (_or_auto(float, "a number"), "FLOAT"),
    "int": (count_or_auto, "INTEGER"),
    "Sequence[int]": (_or_auto(_sizes, "sizes such as 512,512"), "SIZES"),
}
