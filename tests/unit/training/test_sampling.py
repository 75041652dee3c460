from __future__ import annotations

import torch

from selfexpress.training.step import PermutationSampler


def test_every_row_comes_once_before_any_comes_again(seed):
    sampler = PermutationSampler(10, 3, seed=seed)
    dealt = torch.cat([sampler.batch(step) for step in range(20)])
    for epoch in dealt.split(10):
        assert sorted(epoch.tolist()) == list(range(10))


def test_epochs_are_ordered_differently():
    sampler = PermutationSampler(50, 50, seed=0)
    assert not torch.equal(sampler.batch(0), sampler.batch(1))


def test_a_batch_depends_on_seed_and_step_alone(seed):
    walked = PermutationSampler(11, 4, seed=seed)
    for step in range(9):
        expected = walked.batch(step)
        assert torch.equal(PermutationSampler(11, 4, seed=seed).batch(step), expected)


def test_a_batch_is_never_larger_than_the_data():
    assert sorted(PermutationSampler(3, 100, seed=0).batch(5).tolist()) == [0, 1, 2]
