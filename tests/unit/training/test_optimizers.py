from __future__ import annotations

import itertools
import subprocess
import sys
from itertools import pairwise

import torch
from torch import nn
from torch.testing import assert_close

from selfexpress.training.optimizers import Adam, FlatParameters, Muon


def network(seed, widths=(3, 4, 5)):
    generator = torch.Generator().manual_seed(seed)
    layers = torch.nn.Sequential(*itertools.starmap(nn.Linear, pairwise(widths)))
    for parameter in layers.parameters():
        parameter.data = torch.randn(
            parameter.shape, generator=generator, dtype=torch.float64
        )
    return layers


def test_adam_equals_that_of_torch(seed):
    ours, theirs = network(seed), network(seed)
    generator = torch.Generator().manual_seed(seed)
    adam = Adam(FlatParameters(ours, torch.float64))
    reference = torch.optim.Adam(theirs.parameters(), lr=0.0)
    for step in range(50):
        rate = 0.1 / (step + 1)
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            mine.grad.copy_(torch.randn(mine.shape, generator=generator))
            other.grad = mine.grad / 2
        reference.param_groups[0]["lr"] = rate
        adam.step(torch.tensor(rate, dtype=torch.float64), torch.tensor(0.5))
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        # The step counter is float32.
        assert_close(mine, other, rtol=1e-6, atol=1e-7)


def test_a_parameter_without_gradient_moves_by_its_momentum_only():
    layers = network(seed=0)
    before = [parameter.detach().clone() for parameter in layers.parameters()]
    Adam(FlatParameters(layers, torch.float64)).step(
        torch.tensor(0.1), torch.tensor(1.0)
    )
    for parameter, old in zip(layers.parameters(), before, strict=True):
        assert torch.equal(parameter.detach(), old)


def orthogonalized(matrix):
    """Five Newton-Schulz iterations of one matrix."""
    result = matrix / matrix.norm()
    for _ in range(5):
        gram = result @ result.T
        odd = 3.4445 * torch.eye(len(gram), dtype=gram.dtype) - 4.7750 * gram
        odd += 2.0315 * gram @ gram
        result = odd @ result
    return result


def test_muon_moves_each_matrix_by_its_orthogonalised_gradient(seed):
    # Two layers of one shape, as two towers have, and one that is taller than wide.
    layers = network(seed, (3, 4, 3, 4, 9))
    before = [parameter.detach().clone() for parameter in layers.parameters()]
    muon = Muon(FlatParameters(layers, torch.float64))
    generator = torch.Generator().manual_seed(seed)
    for parameter in layers.parameters():
        parameter.grad.copy_(torch.randn(parameter.shape, generator=generator))
    muon.step(torch.tensor(0.1), torch.tensor(1.0))
    for old, new in zip(before, layers.parameters(), strict=True):
        move, gradient = old - new.detach(), new.grad
        if new.ndim == 1:  # as Adam: every entry by the rate, at first
            expected = 0.1 * gradient / (gradient.abs() + 1e-8)
            assert_close(move, expected, rtol=1e-5, atol=0)
            continue
        length = 0.1 * 0.2 * max(new.shape) ** 0.5
        assert_close(move, length * orthogonalized(gradient), rtol=1e-6, atol=1e-9)
        # The polynomial settles singular values in about 0.7 to 1.2.
        sizes = torch.linalg.svdvals(move) / length
        assert ((sizes > 0.6) & (sizes < 1.3)).all()


def test_released_parameters_own_their_memory(seed):
    layers = network(seed)
    before = {name: p.detach().clone() for name, p in layers.named_parameters()}
    parameters = FlatParameters(layers, torch.float64)
    parameters.release()
    parameters.values.zero_()
    for name, parameter in layers.named_parameters():
        assert torch.equal(parameter.detach(), before[name])
        assert parameter.grad is None
        assert parameter.is_contiguous()


def test_a_fit_does_not_import_the_compiler_stack():
    """Importing it takes seconds, more than a small fit."""
    script = (
        "import sys; from selfexpress import SENet, make_subspaces;"
        "X = make_subspaces(2, dimension=2, n_features=6, n_samples=20).X;"
        "SENet(2, max_iter=2, hidden_sizes=(4,), n_embedding=4,"
        " affinity='symmetric').fit(X);"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    command = [sys.executable, "-W", "ignore", "-c", script]
    assert subprocess.run(command, check=False).returncode == 0
