"""Options kept in a TOML file: read for ``--config``, written beside every run."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from selfexpress.config import AUTO
from selfexpress.errors import ConfigError, DataError
from selfexpress.files.atomic import replacing

# Options that say how to show or find things, not what to compute.
_NOT_KEPT = {"config", "show-config", "quiet", "json", "help"}
# Texts that are a file or the name of a data set.
_PLACES = {"data", "images"}
_MOST_BYTES = 2**20


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options of a file for those that the command line does not give.

    The callback of an eager ``--config`` option: it runs before other options are
    looked at. Keys are their names without dashes in front, such as ``n-clusters``.

    Raises
    ------
    DataError
        If the file cannot be read as TOML.
    ConfigError
        If it has a key that is no option.
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
    found = {
        name: context.params.get(parameter)
        for name, parameter in option_names(context).items()
    }
    return {
        name: _in_full(value) if name in _PLACES else _plain(value)
        for name, value in found.items()
        if value is not None
    }


def config_text(
    options: Mapping[str, Any], chosen: Mapping[str, Any] | None = None
) -> str:
    """Return options as TOML.

    Parameters
    ----------
    options : mapping of str to value
    chosen : mapping of str to value, optional
        Settings of a fit; those that no option sets become comments.
    """
    lines = [f"{name} = {_toml(value)}" for name, value in options.items()]
    ours = {name.replace("_", "-"): value for name, value in (chosen or {}).items()}
    ours = {
        name: value for name, value in ours.items() if options.get(name, AUTO) == AUTO
    }
    if ours:
        lines += ["", '# What was left to selfexpress ("auto") became:']
        lines += [f"# {name} = {_toml(value)}" for name, value in ours.items()]
    return "\n".join(lines) + "\n"


def write_config(path: Path, text: str) -> None:
    """Write a file for ``--config``, whole or not at all."""
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
    if isinstance(value, bool):
        return value
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return ",".join(map(str, value))
    if not isinstance(value, (str, int, float)):
        raise ConfigError(
            f"{key} in {path} must be a number, a text or true or false, got "
            f"{type(value).__name__}. Write it as on the command line."
        )
    return str(value)


def _in_full(place: str) -> str:
    """Return a file in full, and the name of a data set as it is."""
    return str(Path(place).absolute()) if Path(place).exists() else place


def _plain(value: Any) -> Any:
    return str(value.absolute()) if isinstance(value, Path) else value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, (int, float)):
        return repr(value)
    return _quoted(str(value))


def _quoted(text: str) -> str:
    """Return a TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(map(_escaped, escaped)) + '"'


def _escaped(character: str) -> str:
    is_control = ord(character) < 32 or ord(character) == 127
    return f"\\u{ord(character):04x}" if is_control else character
