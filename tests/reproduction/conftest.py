"""The committed records of full runs."""

from __future__ import annotations

import pytest

from reproduction.record import RECORDS
from reproduction.runner import Results


@pytest.fixture(scope="session")
def results() -> Results:
    return Results(RECORDS)
