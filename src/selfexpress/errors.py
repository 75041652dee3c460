"""Exceptions and warnings that users may catch.

::

    Exception
    └── SelfExpressError
        ├── ConfigError (ValueError)      a setting is out of its range
        ├── DataError (ValueError)        rows, files or data sets are unusable
        ├── CheckpointError (ValueError)  a model or checkpoint file is unusable
        └── DegenerateError (ValueError)  the computation has no meaningful answer

    Warning
    └── SelfExpressWarning (UserWarning)
        ├── ConvergenceWarning            an iteration stopped before its tolerance
        ├── DegenerateWarning             the answer is doubtful
        ├── DamagedFileWarning            a damaged file was left out, another taken
        ├── MemoryWarning                 memory ran short, smaller blocks were used
        └── IgnoredSettingWarning         a setting has no effect here

Every message says what must hold, what was given and what to do.
"""

from __future__ import annotations


class SelfExpressError(Exception):
    """Root of every error raised on purpose by this package."""


class ConfigError(SelfExpressError, ValueError):
    """A setting is out of its range."""


class DataError(SelfExpressError, ValueError):
    """Rows, files or data sets cannot be used as they are."""


class CheckpointError(SelfExpressError, ValueError):
    """A model or checkpoint file cannot be used."""


class DegenerateError(SelfExpressError, ValueError):
    """The computation has no meaningful answer, such as all-zero coefficients."""


class SelfExpressWarning(UserWarning):
    """Root of every warning issued by this package."""


class ConvergenceWarning(SelfExpressWarning):
    """An iteration stopped before it reached its tolerance."""


class DegenerateWarning(SelfExpressWarning):
    """The answer may not mean much; the message says why."""


class DamagedFileWarning(SelfExpressWarning):
    """A damaged file was left out and another one taken instead."""


class MemoryWarning(SelfExpressWarning):
    """Memory ran short, so that the work went on in smaller blocks."""


class IgnoredSettingWarning(SelfExpressWarning):
    """A setting that was given has no effect here."""


def one_line(text: object, *, longest: int = 160) -> str:
    """Return text from a file or another library as one short printable line.

    Such text enters our messages, and through them terminals and logs.
    """
    # Cut first: what is cut may be huge.
    line = " ".join(str(text)[: 8 * longest].split())
    shown = "".join(letter if letter.isprintable() else "?" for letter in line)
    return shown if len(shown) <= longest else shown[: longest - 3] + "..."
