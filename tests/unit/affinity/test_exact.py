"""Exact coefficients among candidates, against scikit-learn and the whole problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import small_network, unit_data
from sklearn.linear_model import ElasticNet

from selfexpress.affinity.exact import (
    Candidates,
    exact_coefficients,
    express_new_rows,
)
from selfexpress.solvers.ensc import elastic_net_expression
from selfexpress.solvers.problem import ElasticNetConfig

N_ROWS, N_FEATURES, GAMMA = 50, 8, 40.0
CONFIG = ElasticNetConfig(GAMMA, 0.9, tol=1e-8)


@pytest.fixture
def rows(seed):
    return unit_data(N_ROWS, N_FEATURES, seed=seed)


def solved_by_scikit_learn(row, candidates, l1_ratio):
    model = ElasticNet(
        # Its objective is ours divided by gamma and by the number of features.
        alpha=1 / (GAMMA * N_FEATURES),
        l1_ratio=l1_ratio,
        fit_intercept=False,
        tol=1e-12,
        max_iter=100_000,
    )
    return model.fit(candidates.numpy().T, row.numpy()).coef_


@pytest.mark.parametrize("l1_ratio", [0.5, 0.9, 1.0])
def test_coefficients_are_those_of_scikit_learn_among_the_candidates(rows, l1_ratio):
    config = replace(CONFIG, l1_ratio=l1_ratio)
    candidates = Candidates(12)
    found = exact_coefficients(rows, config, candidates).expression
    given = candidates.find(rows, rows, torch.arange(N_ROWS))
    dense = found.coefficients.toarray()
    for place in (0, 7, 49):
        allowed = given[place][given[place] >= 0]
        expected = np.zeros(N_ROWS)
        expected[allowed.numpy()] = solved_by_scikit_learn(
            rows[place], rows[allowed], l1_ratio
        )
        np.testing.assert_allclose(dense[place], expected, atol=1e-7)


def test_with_all_rows_for_candidates_the_whole_problem_is_solved(rows):
    whole = elastic_net_expression(rows, CONFIG).coefficients.toarray()
    for n_similar in (None, N_ROWS - 1, 10 * N_ROWS):
        found = exact_coefficients(rows, CONFIG, Candidates(n_similar))
        np.testing.assert_allclose(
            found.expression.coefficients.toarray(), whole, atol=1e-7
        )
        assert found.certificate["excess"] < 1e-9


def test_the_certificate_is_the_mean_excess_over_the_least_objective(rows):
    least = elastic_net_expression(rows, CONFIG).objective.mean()
    before = np.inf
    for n_similar in (4, 8, 16):
        found = exact_coefficients(rows, CONFIG, Candidates(n_similar))
        proof = found.certificate
        reached = found.expression.objective.mean()
        # The optimum over all rows is found to a violation of 0.05, not to CONFIG.tol.
        assert reached / least - 1 - 1e-3 < proof["excess"] <= reached / least - 1
        assert 0 < proof["excess"] < before
        assert proof["violation"] <= CONFIG.tol
        assert proof["n_judged"] == N_ROWS
        before = proof["excess"]


def test_sizes_of_batches_and_blocks_change_nothing(rows):
    expected = exact_coefficients(rows, CONFIG, Candidates(12)).expression
    config = replace(CONFIG, batch_size=7, block_size=11)
    found = exact_coefficients(rows, config, Candidates(12)).expression
    np.testing.assert_allclose(
        found.coefficients.toarray(), expected.coefficients.toarray(), atol=1e-7
    )


def test_candidates_are_others_each_once(rows, seed):
    network = small_network(N_FEATURES, seed=seed, threshold=0.0).float()
    with torch.no_grad():
        keys = network.key_tower(rows.float())
    own = torch.arange(N_ROWS)
    similar = Candidates(9).find(rows, rows, own)
    both = Candidates(9, network, keys).find(rows, rows, own)
    assert similar.shape == (N_ROWS, 9)
    for place in range(N_ROWS):
        kept = both[place][both[place] >= 0].tolist()
        assert len(set(kept)) == len(kept)
        assert place not in kept
        assert set(kept) >= set(similar[place].tolist())
        assert len(kept) <= 18
    # A network in which other rows have the largest coefficients adds some of them.
    assert (both >= 0).sum() > (similar >= 0).sum()


def test_candidates_of_the_network_lower_the_objective(rows, seed):
    network = small_network(N_FEATURES, seed=seed, threshold=0.0).float()
    with torch.no_grad():
        keys = network.key_tower(rows.float())
    alone = exact_coefficients(rows, CONFIG, Candidates(5))
    joined = exact_coefficients(rows, CONFIG, Candidates(5, network, keys))
    assert joined.certificate["excess"] < alone.certificate["excess"]


@pytest.mark.parametrize("l1_ratio", [0.9, 1.0])
def test_new_rows_are_expressed_by_the_references_most_like_them(rows, l1_ratio):
    new, references = rows[:6], rows[6:]
    config = replace(CONFIG, l1_ratio=l1_ratio)
    found = express_new_rows(new, references, config, Candidates(10)).to_csr()
    for place, row in enumerate(new):
        allowed = (references @ row).abs().topk(10).indices
        expected = np.zeros(len(references))
        expected[allowed.numpy()] = solved_by_scikit_learn(
            row, references[allowed], l1_ratio
        )
        np.testing.assert_allclose(found.toarray()[place], expected, atol=1e-7)


def test_new_rows_of_least_squares_are_expressed_by_few(rows):
    config = replace(CONFIG, l1_ratio=0.0)
    found = express_new_rows(rows[:6], rows[6:], config, Candidates(10)).to_csr()
    assert 0 < np.diff(found.indptr).max() <= 10


def test_rows_of_zeros_have_no_coefficients_and_an_excess_of_zero(rows):
    spoiled = rows.clone()
    spoiled[::2] = 0
    found = exact_coefficients(spoiled, CONFIG, Candidates(12))
    assert not found.expression.coefficients[::2].nnz
    assert 0 <= found.certificate["excess"] < 1
