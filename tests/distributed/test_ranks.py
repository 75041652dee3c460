"""Two and four processes against one."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.distributed

ROWS = np.arange(82.0).reshape(41, 2)


def test_a_sum_runs_over_all_ranks(ranks):
    for result in ranks:
        assert result["sum"] == [sum(range(len(ranks)))]
        assert result["first"] == [0]


def test_parts_of_unequal_length_are_gathered_in_order(ranks, alone):
    for result in (*ranks, alone):
        np.testing.assert_array_equal(result["gathered"], ROWS)


def test_every_part_passes_every_rank_once(ranks, alone):
    for result in (*ranks, alone):
        np.testing.assert_array_equal(result["ring"], ROWS)


def test_rows_of_any_rank_can_be_taken(ranks, alone):
    for result in (*ranks, alone):
        np.testing.assert_array_equal(result["taken"], ROWS[[40, 0, 7, 7]])


@pytest.mark.parametrize("name", ["objective", "gradient", "coefficients"])
def test_float64_results_are_those_of_one_process(ranks, alone, name):
    for result in ranks:
        # Zeros of the gradient are exact in all, those of the coefficients as well.
        np.testing.assert_allclose(result[name], alone[name], rtol=1e-9, atol=1e-15)


def test_all_ranks_hold_the_same_numbers_to_the_last_bit(ranks):
    for result in ranks[1:]:
        for name in set(result):
            np.testing.assert_array_equal(result[name], ranks[0][name])


SOLVED = ["solved", "solved_sampled", "solved_candidates", "solved_joined"]


@pytest.mark.parametrize("kind", SOLVED)
def test_coefficients_that_are_solved_for_are_those_of_one_process(ranks, alone, kind):
    for result in ranks:
        expected = alone[f"{kind}_values"]
        np.testing.assert_allclose(result[f"{kind}_values"], expected, atol=1e-3)


@pytest.mark.parametrize("kind", ["exact", "sampled", *SOLVED])
def test_float32_labels_are_those_of_one_process(ranks, alone, kind):
    truth = np.repeat(np.arange(3), 40)
    assert len(set(zip(alone[f"{kind}_labels"], truth, strict=True))) == 3
    for result in ranks:
        for name in (f"{kind}_labels", f"{kind}_predicted"):
            np.testing.assert_array_equal(result[name], alone[name])


def test_all_ranks_take_the_number_of_clusters_from_the_first(ranks, alone):
    for result in (*ranks, alone):
        assert result["counted"] == result["counted_width"] == alone["counted"]


def test_all_ranks_end_training_when_the_first_says_so(ranks, alone):
    # Sums over ranks differ in the last digits, the looks do not come that close.
    for result in (*ranks, alone):
        assert result["steps"] == alone["steps"] < 900
        assert result["fall_start"] == alone["fall_start"]
        np.testing.assert_array_equal(result["rates"], alone["rates"])
