from __future__ import annotations

import subprocess
import sys

import torch

from selfexpress.training.optimizers import Adam


def test_adam_equals_that_of_torch(seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(4, 3), (5,), ()]
    ours = [
        torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64))
        for shape in shapes
    ]
    theirs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]
    adam = Adam(ours)
    reference = torch.optim.Adam(theirs, lr=0.0)
    for step in range(50):
        rate = 0.1 / (step + 1)
        for mine, other in zip(ours, theirs, strict=True):
            gradient = torch.randn(mine.shape, generator=generator, dtype=torch.float64)
            mine.grad, other.grad = gradient, gradient.clone()
        reference.param_groups[0]["lr"] = rate
        adam.step(rate)
        reference.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-14)


def test_a_parameter_without_gradient_moves_by_its_momentum_only():
    parameter = torch.nn.Parameter(torch.ones(2))
    adam = Adam([parameter])
    adam.step(0.1)
    assert torch.equal(parameter.detach(), torch.ones(2))


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
