"""Laws of `swiglu` (rule N-13)."""

from __future__ import annotations

import math

import pytest
import torch

from ninfer_kernels.launch import REFERENCE, TRITON
from ninfer_kernels.swiglu import swiglu
from ninfer_kernels.swiglu.cases import CASES, worst_error

SMALL = [case for case in CASES if case.small]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
@pytest.mark.parametrize("backend", [REFERENCE, TRITON])
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
def test_result_is_within_its_bound_of_the_exact_one(case, backend, device):
    """N-13, with gates far outside the range of exp."""
    assert worst_error(case, device, 1, backend) <= 1


@pytest.mark.parametrize("backend", [REFERENCE, TRITON])
def test_known_values(backend, device):
    gate = torch.tensor([[0.0, 1.0, -2.0, 30.0]], device=device)
    up = torch.tensor([[5.0, 3.0, 1.0, 2.0]], device=device)
    want = [0.0, 3 / (1 + math.exp(-1)), -2 / (1 + math.exp(2)), 60.0]
    assert swiglu(gate, up, backend=backend)[0].tolist() == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("backend", [REFERENCE, TRITON])
def test_gate_is_the_first_half(backend, device):
    both = torch.randn(3, 14, device=device, generator=torch.Generator(device).manual_seed(2))
    apart = swiglu(both[:, :7], both[:, 7:], backend=backend)
    assert torch.equal(swiglu(both, backend=backend), apart)


def test_errors_name_what_does_not_fit():
    gate = torch.zeros(2, 6)
    with pytest.raises(ValueError, match=r"gate of swiglu: got \[2, 7\], want \[T, 2 \* I\]"):
        swiglu(torch.zeros(2, 7))
    with pytest.raises(ValueError, match=r"up of swiglu: got \[2, 5\] on cpu, want \[2, 6\]"):
        swiglu(gate, torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"out of swiglu: got torch\.float16"):
        swiglu(gate, gate, out=gate.half())
    with pytest.raises(ValueError, match="up of swiglu: got stride"):
        swiglu(gate, torch.zeros(6, 2).T)
    assert swiglu(gate[:0], gate[:0]).shape == (0, 6)
