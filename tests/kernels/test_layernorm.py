"""Laws of layer normalisation: rule N-30 of specs/numerics.md."""

from __future__ import annotations

import pytest
import torch

from ninfer_kernels.layernorm import layernorm
from ninfer_kernels.layernorm.cases import CASES, make_inputs, worst_error

SMALL = [case for case in CASES if case.small]
BACKENDS = ("reference", "triton")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_layernorm_is_within_its_derived_error(case, backend, device):
    """N-30."""
    assert worst_error(case, device, seed=1, backend=backend) <= 1


def test_reference_is_that_of_torch():
    x, weight, bias = torch.randn(4, 3, 72), torch.randn(72), torch.randn(72)
    want = torch.nn.functional.layer_norm(x, (72,), weight, bias, 1e-6)
    torch.testing.assert_close(layernorm(x, weight, bias, 1e-6), want, rtol=0, atol=2e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_constant_row_becomes_the_bias(backend, device):
    x = torch.full((2, 24), 1000.0, device=device)
    bias = torch.randn(24, device=device)
    got = layernorm(x, torch.ones(24, device=device), bias, 1e-6, backend=backend)
    assert torch.equal(got, bias.expand(2, 24))


@pytest.mark.parametrize("backend", BACKENDS)
def test_result_may_replace_the_input(backend, device):
    x, weight, bias = make_inputs(SMALL[0], device, seed=2)
    want = layernorm(x, weight, bias, 1e-6, backend=backend)
    assert torch.equal(layernorm(x, weight, bias, 1e-6, out=x, backend=backend), want)


def test_wrong_arguments_are_named():
    x, vector = torch.zeros(2, 8), torch.ones(8)
    with pytest.raises(ValueError, match="bias: got"):
        layernorm(x, vector, vector[:4], 1e-6)
    with pytest.raises(ValueError, match="x: got"):
        layernorm(x.T, vector, vector, 1e-6)
    with pytest.raises(ValueError, match="out: got"):
        layernorm(x, vector, vector, 1e-6, out=x.bfloat16())
