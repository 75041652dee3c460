"""Where randomness comes from."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from selfexpress.errors import ConfigError


def draw_seed(random_state: int | np.random.RandomState | None) -> int:
    """Return the seed of a fit, by scikit-learn's rules for ``random_state``."""
    try:
        state = check_random_state(random_state)
    except ValueError as error:
        raise ConfigError(
            "random_state must be None, a number from 0 to 2**32 - 1 or a "
            f"RandomState, got {random_state!r}. Use 0."
        ) from error
    return int(state.randint(2**31 - 1))
