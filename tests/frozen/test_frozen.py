"""Results that must not change while the code that finds them moves."""

from __future__ import annotations

import json

import pytest
from frozen.freeze import HASHES, PROBLEMS, RANKS, machine, solve, solve_on_two_ranks

FROZEN = json.loads(HASHES.read_text())

pytestmark = pytest.mark.skipif(
    machine() != FROZEN["machine"],
    reason=f"hashes are those of {FROZEN['machine']}, this is {machine()}",
)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_result_is_the_same_to_the_last_bit(name, tmp_path):
    assert solve(name, tmp_path) == FROZEN["problems"][name]


@pytest.mark.distributed
def test_the_result_of_two_ranks_is_the_same_to_the_last_bit(tmp_path):
    assert solve_on_two_ranks(tmp_path) == FROZEN["problems"][RANKS]
