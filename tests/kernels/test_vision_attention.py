"""Laws of vision attention: rule N-32 of specs/numerics.md."""

from __future__ import annotations

import pytest
import torch

from ninfer_kernels.vision_attention import vision_attention
from ninfer_kernels.vision_attention.cases import CASES, make_inputs, worst_error

SMALL = [case for case in CASES if case.small]
BACKENDS = ("reference", "triton")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_every_patch_is_within_its_derived_error(case, backend, device):
    """N-32."""
    assert worst_error(case, device, seed=1, backend=backend) <= 1


def test_reference_is_that_of_torch():
    x = make_inputs(SMALL[1], "cpu", seed=2)
    got = vision_attention(x.q, x.k, x.v, x.boundaries, 0.2, longest=40)
    for begin, end in ((0, 33), (33, 73)):
        frame = (part[begin:end].transpose(0, 1) for part in (x.q, x.k, x.v))
        want = torch.nn.functional.scaled_dot_product_attention(*frame, scale=0.2)
        torch.testing.assert_close(got[begin:end], want.transpose(0, 1), rtol=0, atol=2e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_frames_do_not_see_each_other(backend, device):
    """N-5, N-32: NaN in one frame stays there."""
    x = make_inputs(SMALL[1], device, seed=3)
    x.k[40], x.v[50] = torch.nan, torch.nan
    out = vision_attention(x.q, x.k, x.v, x.boundaries, 0.2, longest=40, backend=backend)
    assert torch.isfinite(out[:33]).all()
    assert torch.isnan(out[33:]).all()


def test_long_frames_are_taken_in_pieces(monkeypatch):
    """The bound on memory changes nothing."""
    from ninfer_kernels.vision_attention import reference

    x = make_inputs(SMALL[1], "cpu", seed=4)
    whole = reference.vision_attention(x.q, x.k, x.v, x.boundaries, 0.2)
    monkeypatch.setattr(reference, "MOST_SCORES", 300)
    pieces = reference.vision_attention(x.q, x.k, x.v, x.boundaries, 0.2)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-6)


def test_wrong_arguments_are_named():
    q = torch.zeros(6, 2, 8)
    edges = torch.tensor([0, 6], dtype=torch.int32)
    with pytest.raises(ValueError, match="k: got"):
        vision_attention(q, q[:3], q, edges, 1.0, longest=6)
    with pytest.raises(ValueError, match="boundaries: got"):
        vision_attention(q, q, q, edges.long(), 1.0, longest=6)
    with pytest.raises(ValueError, match="longest frame: got 7, want 1 to 6"):
        vision_attention(q, q, q, edges, 1.0, longest=7)
