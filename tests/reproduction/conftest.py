"""The committed records of full runs."""

from __future__ import annotations

import pytest

from selfexpress.experiments.records import checkout
from selfexpress.experiments.runner import Results


@pytest.fixture(scope="session")
def results() -> Results:
    return Results(checkout() / "benchmarks" / "records" / "reproduction")
