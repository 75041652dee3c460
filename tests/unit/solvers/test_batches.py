from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from problems import unit_data

from selfexpress.solvers.batches import solve_in_batches
from selfexpress.solvers.compiled import for_row_ranges, in_threads
from selfexpress.solvers.ensc import elastic_net_expression
from selfexpress.solvers.problem import ElasticNetConfig

CPU = torch.device("cpu")


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def test_threads_share_the_items_and_keep_their_order(two_threads):
    # Each waits for the other: only two threads get past the barrier.
    barrier = threading.Barrier(2, timeout=20)

    def work(item):
        barrier.wait()
        return item, torch.get_num_threads()

    assert in_threads(work, [3, 1, 2, 0]) == [(3, 1), (1, 1), (2, 1), (0, 1)]
    assert torch.get_num_threads() == 2


def test_an_error_in_a_thread_reaches_the_caller(two_threads):
    def work(item):
        raise RuntimeError("item " + str(item))

    with pytest.raises(RuntimeError, match="item 0"):
        in_threads(work, [0, 1, 2])
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("n_rows", [0, 1, 7, 8, 100])
def test_ranges_cover_every_row_once(n_rows, two_threads):
    counts = np.zeros(n_rows)
    lock = threading.Lock()

    def kernel(rows):
        with lock:
            counts[rows] += 1

    for_row_ranges(kernel, n_rows)
    assert (counts == 1).all()


def test_every_thread_gets_a_batch_unless_a_size_is_given(two_threads):
    batches = []
    options = {"device": CPU, "progress": None}
    solve_in_batches(batches.append, 10, batch_size=None, **options)
    assert sorted(batch.start for batch in batches) == [0, 5]
    batches.clear()
    solve_in_batches(batches.append, 10, batch_size=4, **options)
    assert sorted(batch.start for batch in batches) == [0, 4, 8]


def test_progress_of_threads_only_grows(two_threads):
    calls = []
    solve_in_batches(
        lambda batch: None,
        50,
        batch_size=3,
        device=CPU,
        progress=lambda *call: calls.append(call),
    )
    assert [total for _, total in calls] == [50] * 17
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1] == (50, 50)


def test_two_threads_find_the_solution_of_one(two_threads, seed):
    rows = unit_data(60, 10, seed=seed)
    config = ElasticNetConfig(gamma=50.0, tol=1e-8, batch_size=7)
    threaded = elastic_net_expression(rows, config)
    torch.set_num_threads(1)
    alone = elastic_net_expression(rows, config)
    np.testing.assert_array_equal(
        threaded.coefficients.toarray(), alone.coefficients.toarray()
    )
    np.testing.assert_array_equal(threaded.kkt_violation, alone.kkt_violation)
