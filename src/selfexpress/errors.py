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


class IgnoredSettingWarning(SelfExpressWarning):
    """A setting that was given has no effect here."""
