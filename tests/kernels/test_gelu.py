"""Laws of GELU: rule N-31 of specs/numerics.md."""

from __future__ import annotations

import pytest
import torch

from ninfer_kernels.gelu import gelu
from ninfer_kernels.gelu.cases import CASES, make_inputs, worst_error

SMALL = [case for case in CASES if case.small]
BACKENDS = ("reference", "triton")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_gelu_is_within_its_derived_error(case, backend, device):
    """N-31."""
    assert worst_error(case, device, seed=1, backend=backend) <= 1


@pytest.mark.parametrize(("kind", "theirs"), [("tanh", "tanh"), ("erf", "none")])
def test_reference_is_that_of_torch(kind, theirs):
    x = torch.linspace(-8, 8, 1001)
    want = torch.nn.functional.gelu(x, approximate=theirs)
    torch.testing.assert_close(gelu(x, kind), want, rtol=1e-6, atol=2e-6)


def test_the_two_kinds_differ():
    x = torch.tensor([2.0])
    assert abs(gelu(x, "tanh").item() - gelu(x, "erf").item()) > 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_result_may_replace_the_input(backend, device):
    x = make_inputs(SMALL[0], device, seed=2)
    want = gelu(x, "tanh", backend=backend)
    assert torch.equal(gelu(x, "tanh", out=x, backend=backend), want)
    assert torch.equal(x, want)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="GELU kind: got quick, want tanh or erf"):
        gelu(torch.zeros(2), "quick")
    with pytest.raises(ValueError, match="x: got"):
        gelu(torch.zeros(4, 4).T[:2], "erf")
