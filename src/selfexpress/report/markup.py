"""HTML that is safe by construction: text is escaped unless it is :class:`Markup`."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable
from typing import Any

# Elements that have no content and no closing tag; the rest of SVG's leaves close.
_VOID = frozenset({"meta", "img", "br", "hr", "input", "link"})


class Markup(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()


Child = str | int | Iterable["Child"]


def element(tag: str, *children: Child, **attributes: object) -> Markup:
    """Return an HTML or SVG element.

    Parameters
    ----------
    tag : str
        From the program, never from data.
    *children : str, Markup, int, or iterables of them
        Escaped, unless they are Markup.
    **attributes : object
        ``class_`` stands for ``class`` and other underscores for hyphens. ``None``
        and ``False`` leave an attribute out, ``True`` writes it without a value.
    """
    parts = [tag]
    for name, value in attributes.items():
        key = name.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(key)
        elif value is not None and value is not False:
            parts.append(f'{key}="{escape(str(value))}"')
    opening = f"<{' '.join(parts)}>"
    if tag in _VOID:
        return Markup(opening)
    return Markup(f"{opening}{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Markup:
    """Return children one after the other, escaped unless they are Markup."""
    return Markup("".join(_text(child) for child in children))


def _text(child: Child) -> str:
    if isinstance(child, Markup):
        return child
    if isinstance(child, (str, int, float)):
        return escape(str(child))
    return join(child)


def escape(text: str) -> str:
    """Escape text for content and attributes.

    Control characters, which HTML forbids or treats as the text's end, and halves of
    surrogate pairs, which cannot be written at all, become the replacement sign.
    """
    clean = "".join(_clean(letter) for letter in text)
    return html.escape(clean, quote=True)


def _clean(letter: str) -> str:
    code = ord(letter)
    is_control = (code < 32 and letter not in "\t\n") or 127 <= code < 160
    # Overrides of the writing direction could make a text read as another one.
    is_override = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069
    is_surrogate = 0xD800 <= code <= 0xDFFF
    return "\ufffd" if is_control or is_override or is_surrogate else letter


def json_script(identifier: str, value: Any) -> Markup:
    """Return data for scripts as a ``<script type="application/json">`` element.

    Inside a script only ``</script`` and ``<!--`` mean anything to the HTML parser;
    without any ``<`` in the text neither can occur.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(
        f'<script type="application/json" id="{escape(identifier)}">{text}</script>'
    )


def number(value: float, digits: int = 3) -> str:
    """Return a number as people write it: grouped, without needless digits."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    if size >= 10**digits or size < 1e-4:
        return f"{value:,.0f}" if size >= 10**digits else f"{value:.{digits - 1}e}"
    return f"{value:.{digits}g}"


def seconds(value: float) -> str:
    """Return a duration with its unit, such as ``0.4 s``, ``12 s`` or ``3 min 5 s``."""
    if value < 10:
        return f"{value:.1f} s" if value >= 0.1 else f"{1000 * value:.0f} ms"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
