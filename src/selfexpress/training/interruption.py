"""Ctrl-C and SIGTERM held back until a step is whole and saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_HELD_BACK = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Which signal, if any, asks to leave.

    Attributes
    ----------
    number : int or None
        Of a signal that came here, or that another process tells of.
    has_come : bool
        Whether one came here.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.has_come = False


@contextmanager
def held_back(*, is_wanted: bool = True) -> Iterator[Interruption]:
    """Yield an :class:`Interruption` that tells of signals instead of leaving at once.

    A signal that came during the block takes effect at its end, as if nobody had held
    it back. A second one does not wait. Handlers are changed in the main thread only,
    and only for signals that are not ignored; they are put back in the end.

    Parameters
    ----------
    is_wanted : bool
        Whether to do anything at all.
    """
    interruption = Interruption()
    is_main = threading.current_thread() is threading.main_thread()
    earlier = _earlier_handlers() if is_wanted and is_main else {}

    def note(number: int, _frame: FrameType | None) -> None:
        if interruption.has_come:
            _put_back(earlier)
            signal.raise_signal(number)
        interruption.number, interruption.has_come = number, True

    for number in earlier:
        signal.signal(number, note)
    try:
        yield interruption
    finally:
        _put_back(earlier)
    if interruption.number is not None:
        signal.raise_signal(interruption.number)


def _earlier_handlers() -> dict[int, Callable[..., Any] | int]:
    """Return the handlers in force; ignored signals and foreign handlers are left."""
    found = {number: signal.getsignal(number) for number in _HELD_BACK}
    return {
        int(number): handler
        for number, handler in found.items()
        if handler is not None and handler != signal.SIG_IGN
    }


def _put_back(earlier: dict[int, Callable[..., Any] | int]) -> None:
    for number, handler in earlier.items():
        signal.signal(number, handler)
