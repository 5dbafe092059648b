"""Laws of the RMS norms: rules N-20 to N-22 (and N-1, N-4, N-5) of specs/numerics.md."""

from __future__ import annotations

import pytest
import torch

from builders.transformers_oracle import load_modeling
from ninfer_kernels.rmsnorm import add_rmsnorm, gated_rmsnorm, rmsnorm
from ninfer_kernels.rmsnorm.cases import CASES, make_inputs, worst_error

SMALL = [case for case in CASES if case.small]
BACKENDS = ("reference", "triton")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_every_norm_is_within_its_derived_error(case, backend, device):
    """N-20, N-21, N-22."""
    assert worst_error(case, device, seed=1, backend=backend) <= 1


def test_reference_is_the_norm_of_transformers():
    theirs = load_modeling()
    torch.manual_seed(1)
    x, gate = torch.randn(2, 3, 5, 48)
    weight = torch.randn(48)
    plain, gated = theirs.Qwen3_5RMSNorm(48), theirs.Qwen3_5RMSNormGated(48)
    plain.weight.data, gated.weight.data = weight, weight
    torch.testing.assert_close(
        rmsnorm(x, weight, 1e-6, offset=True), plain(x).detach(), rtol=1e-6, atol=1e-7
    )
    torch.testing.assert_close(
        gated_rmsnorm(x, gate, weight, 1e-6), gated(x, gate).detach(), rtol=1e-6, atol=1e-7
    )


def test_gated_norm_rounds_where_transformers_does():
    """N-22 in bf16: the same words."""
    theirs = load_modeling()
    torch.manual_seed(2)
    x, gate = torch.randn(2, 4, 3, 128).bfloat16()
    module = theirs.Qwen3_5RMSNormGated(128).bfloat16()
    module.weight.data = torch.randn(128).bfloat16()
    got = gated_rmsnorm(x, gate, module.weight.data, 1e-6)
    assert torch.equal(got, module(x, gate).detach())


@pytest.mark.parametrize("backend", BACKENDS)
def test_residual_stream_may_be_replaced_in_place(backend, device):
    """N-21; 8200 columns need two tiles in the kernel."""
    torch.manual_seed(3)
    for width in (64, 8200):
        x, residual = torch.randn(2, 3, width, device=device).bfloat16()
        weight = torch.randn(width, device=device)
        want, total = add_rmsnorm(x, residual, weight, 1e-6, offset=True, backend=backend)
        got, same = add_rmsnorm(
            x, residual, weight, 1e-6, offset=True, sum_out=residual, backend=backend
        )
        assert same is residual
        assert torch.equal(residual, total)
        assert torch.equal(got, want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_stays_in_its_row(backend, device):
    """N-5."""
    x = torch.randn(3, 20, device=device)
    x[1, 4] = torch.nan
    out = rmsnorm(x, torch.ones(20, device=device), 1e-6, offset=False, backend=backend)
    assert torch.isnan(out).any(1).tolist() == [False, True, False]


def test_no_row_is_fine(device):
    empty = torch.empty(0, 16, device=device)
    weight = torch.ones(16, device=device)
    for backend in BACKENDS:
        assert rmsnorm(empty, weight, 1e-6, offset=True, backend=backend).shape == (0, 16)


def test_wrong_shapes_are_named():
    x = torch.zeros(2, 8)
    with pytest.raises(ValueError, match=r"weight: got \[4\]"):
        rmsnorm(x, torch.ones(4), 1e-6, offset=True)
    with pytest.raises(ValueError, match=r"x: got .*float16"):
        rmsnorm(x.half(), torch.ones(8), 1e-6, offset=True)
    with pytest.raises(ValueError, match="residual"):
        add_rmsnorm(x, torch.zeros(3, 8), torch.ones(8), 1e-6, offset=True)
    with pytest.raises(ValueError, match="out: got"):
        rmsnorm(x, torch.ones(8), 1e-6, offset=True, out=torch.zeros(8, 2).T)
    with pytest.raises(ValueError, match="gate"):
        gated_rmsnorm(x[None], x[None].bfloat16(), torch.ones(8), 1e-6)


def test_inputs_of_a_seed_are_always_the_same():
    first, second = (make_inputs(SMALL[0], "cpu", seed=4) for _ in range(2))
    assert torch.equal(first.x, second.x)
