"""Options kept in a TOML file: read for ``--config``, written beside every run."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from selfexpress.cli.options import AUTO
from selfexpress.errors import ConfigError, DataError

CONFIG_FILE = "config.toml"
# Options that say how to show or find things, not what to compute.
_NOT_KEPT = {"config", "show-config", "quiet", "json", "help"}
# Texts that are a file or the name of a data set.
_PLACES = {"data", "images"}
_MOST_BYTES = 2**20


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options of a file for those that the command line does not give.

    The callback of an eager ``--config`` option: it runs before other options are
    looked at. Keys are their names without dashes in front, such as ``n-clusters``.
    """
    if path is None or context.resilient_parsing:
        return path
    names = option_names(context)
    values = _parse(path)
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise ConfigError(
            f"Every key of {path} must be an option of fit, such as n-clusters, got "
            f"{', '.join(unknown)}: see `selfexpress fit --help`."
        )
    context.default_map = {names[key]: _word(path, key, values[key]) for key in values}
    return path


def option_names(context: typer.Context) -> dict[str, str]:
    """Return parameters of a command by the name that users type, without dashes."""
    names: dict[str, str] = {}
    for parameter in context.command.params:
        assert parameter.name is not None
        longest = max(parameter.opts, key=len)
        name = longest.lstrip("-") if longest.startswith("-") else parameter.name
        if name not in _NOT_KEPT:
            names[name] = parameter.name
    return names


def effective_options(context: typer.Context) -> dict[str, Any]:
    """Return the options in effect by name; what is unset is left out.

    Files and folders are written in full, so that a run can be repeated from anywhere.
    """
    found = {}
    for name, parameter in option_names(context).items():
        value = context.params.get(parameter)
        if value is None:
            continue
        is_place = isinstance(value, Path) or (name in _PLACES and Path(value).exists())
        found[name] = str(Path(value).absolute()) if is_place else value
    return found


def config_text(
    options: Mapping[str, Any], chosen: Mapping[str, Any] | None = None
) -> str:
    """Return options as TOML; settings chosen by a fit become comments."""
    lines = [f"{name} = {_toml(value)}" for name, value in options.items()]
    ours = {name.replace("_", "-"): value for name, value in (chosen or {}).items()}
    left = [name for name in ours if options.get(name, AUTO) == AUTO]
    if left:
        lines += ["", '# What was left to selfexpress ("auto") became:']
        lines += [f"# {name} = {_toml(ours[name])}" for name in left]
    return "\n".join(lines) + "\n"


def write_config(path: Path, text: str) -> None:
    """Write a file for ``--config``, whole or not at all."""
    from selfexpress.files.atomic import replacing

    with replacing(path) as target:
        target.write_text(
            "# Run again with: selfexpress fit --config THIS_FILE\n" + text,
            encoding="utf-8",
        )


def _parse(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it is larger than {_MOST_BYTES} bytes")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DataError(
            f"{path} must be a TOML file of options, but cannot be read: {reason}. "
            "Correct it, or make one with `selfexpress fit ... --show-config`."
        ) from error


def _word(path: Path, key: str, value: Any) -> Any:
    """Return a value as it would stand on the command line."""
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return ",".join(map(str, value))
    if not isinstance(value, (str, int, float)):
        raise ConfigError(
            f"{key} in {path} must be a number, a text or true or false, got "
            f"{type(value).__name__}. Write it as on the command line."
        )
    return str(value).lower() if isinstance(value, bool) else str(value)


def _toml(value: Any) -> str:
    """Return a value as TOML, which writes texts as JSON does, but for one sign."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{k} = {_toml(v)}' for k, v in value.items())} }}"
    if isinstance(value, (float, int)) and not isinstance(value, bool):
        return repr(value)
    if not isinstance(value, (bool, list, tuple)):
        value = str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
