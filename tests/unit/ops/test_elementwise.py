"""GPU kernels against their plain twins."""

from __future__ import annotations

import pytest
import torch

from selfexpress.ops.elementwise import (
    Shrinkage,
    activation_backward,
    adam_update,
    clipping_scale,
)


@pytest.mark.gpu
@pytest.mark.parametrize("threshold", [-0.3, 0.0, 0.7])
def test_shrinkage_kernels_equal_the_plain_ones(threshold):
    generator = torch.Generator().manual_seed(0)
    products = torch.randn(50, 3001, generator=generator)
    upstream = torch.randn(50, 3001, generator=generator)
    query_index = torch.arange(50) * 7
    key_index = torch.arange(3001)
    results = []
    for device in ("cpu", "cuda"):
        shrinkage = Shrinkage(0.25, 0.9)
        coefficients, penalty = shrinkage.forward(
            products.to(device, copy=True),
            torch.tensor(threshold, device=device),
            query_index=query_index.to(device),
            key_index=key_index.to(device),
        )
        gradient, threshold_gradient = shrinkage.backward(
            coefficients, upstream.to(device, copy=True), weight=0.02, factor=-1.5
        )
        results.append(
            [coefficients, penalty.sum(), gradient, threshold_gradient.sum()]
        )
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused.cpu(), plain, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["relu", "tanh"])
@pytest.mark.parametrize("shape", [(2000, 300), (5, 8)])
def test_activation_kernel_equals_the_plain_one(kind, shape):
    generator = torch.Generator().manual_seed(0)
    upstream = torch.randn(shape, generator=generator)
    output = torch.randn(shape, generator=generator).tanh()
    results = []
    for device in ("cpu", "cuda"):
        parts = torch.full((64, shape[1]), torch.nan, device=device)
        gradient = activation_backward(
            upstream.to(device, copy=True), output.to(device), parts, kind=kind
        )
        results.append([gradient, parts.sum(dim=0)])
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused.cpu(), plain, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
def test_adam_kernel_equals_the_plain_one():
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(5120, generator=generator) for _ in range(2)]
    results = []
    for device in ("cpu", "cuda"):
        values, gradients = (tensor.to(device, copy=True) for tensor in start)
        first, second = torch.zeros_like(values), torch.zeros_like(values)
        working = values.bfloat16()
        for step in range(1, 6):
            adam_update(
                values,
                gradients * step,
                first,
                second,
                rate=torch.tensor(0.01, device=device),
                gradient_scale=torch.tensor(0.5, device=device),
                n_steps=torch.tensor(float(step), device=device),
                working=working,
            )
        results.append([values, first, second, working])
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused.cpu(), plain, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1024, 1_024_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("norm", [0.5, 1e6])
def test_clipping_kernels_equal_the_plain_ones(size, dtype, norm):
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(size, generator=generator).to(dtype)
    plain = clipping_scale(gradients.float(), norm)
    torch.testing.assert_close(clipping_scale(gradients.cuda(), norm).cpu(), plain)
    assert (float(plain) == 1) == (norm == 1e6)


@pytest.mark.parametrize(
    ("size", "scale"), [(0.0, 1.0), (0.1, 1.0), (10.0, pytest.approx(0.1, rel=1e-5))]
)
def test_only_large_gradients_are_scaled_down(size, scale):
    gradients = torch.tensor([0.6, -0.8]) * size
    assert float(clipping_scale(gradients, 1.0)) == scale
