"""Laws of the attention gate: rule N-29 of specs/numerics.md."""

from __future__ import annotations

import pytest
import torch

from ninfer_kernels.sigmoid_gate import sigmoid_gate
from ninfer_kernels.sigmoid_gate.cases import CASES, make_inputs, worst_error

SMALL = [case for case in CASES if case.small]
BACKENDS = ("reference", "triton")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_gate_is_within_its_derived_error(case, backend, device):
    """N-29."""
    assert worst_error(case, device, seed=1, backend=backend) <= 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_output_may_be_gated_in_place(backend, device):
    attended, gate = make_inputs(SMALL[0], device, seed=2)
    want = sigmoid_gate(attended, gate, backend=backend)
    assert sigmoid_gate(attended, gate, out=attended, backend=backend) is attended
    assert torch.equal(attended, want)


def test_a_gate_of_zero_halves():
    attended = torch.tensor([[[2.0, -6.0]]])
    assert sigmoid_gate(attended, torch.zeros(1, 1, 2)).tolist() == [[[1.0, -3.0]]]


def test_wrong_arguments_are_named():
    attended = torch.zeros(2, 3, 4)
    with pytest.raises(ValueError, match="gate: got"):
        sigmoid_gate(attended, attended[:, :2])
    with pytest.raises(ValueError, match="attended: got"):
        sigmoid_gate(attended[0], attended[0])
    with pytest.raises(ValueError, match="out: got strides"):
        sigmoid_gate(attended, attended, out=torch.zeros(2, 3, 8)[..., :4])
