"""The convolution: its definition, and what a window keeps (specs/numerics.md N-40, N-41)."""

from __future__ import annotations

import pytest
import torch

from ninfer_kernels.causal_conv import causal_conv_prefill, causal_conv_round
from ninfer_kernels.causal_conv.cases import (
    CASES,
    ConvCase,
    allowed_error,
    make_inputs,
    worst_error,
)
from ninfer_kernels.checking import error_share

SMALL = [case for case in CASES if case.small]


def integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def convolve_exactly(columns: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """float64 definition by torch's own convolution: columns [3 + T, C] to [T, C]."""
    kernel = weight.double().T[:, None]
    total = torch.nn.functional.conv1d(columns.double().T[None], kernel, groups=kernel.shape[0])
    return torch.nn.functional.silu(total)[0].T


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_kernel_agrees_with_reference(case: ConvCase, device: str):
    """N-40, N-4: outputs within both bounds, windows bit-equal, nothing left unwritten."""
    assert worst_error(case, device, 1, "triton") <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_reference_is_a_causal_depthwise_convolution(dtype: torch.dtype):
    """N-40: oldest tap first, history from the window, against float64."""
    case = ConvCase(1, 21, 37, dtype, prefill=True)
    inputs = make_inputs(case, "cpu", 2)
    slot = int(inputs.slots[0])
    inputs.base.fill_(5)
    # The window has three columns: positions 2, 3 and 4 lie at 2, 0 and 1.
    columns = torch.cat((inputs.window[slot, [2, 0, 1]], inputs.mixed[0])).clone()
    got = causal_conv_prefill(
        inputs.mixed, inputs.weight, inputs.window, inputs.slots, inputs.base
    )[0]
    want = convolve_exactly(columns, inputs.weight)
    assert error_share(got, want, allowed_error(columns, inputs.weight, dtype)) <= 1
    # Positions 23, 24 and 25.
    assert torch.equal(inputs.window[slot, [2, 0, 1]], columns[-3:])


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_rejected_columns_leave_no_trace(backend: str, device: str):
    """N-41: rounds that keep some of their columns equal one pass over the kept columns."""
    channels, generator = 19, torch.Generator().manual_seed(3)
    kept = torch.randn(1, 11, channels, generator=generator).to(device)
    weight = torch.randn(4, channels, generator=generator).to(device)
    window = torch.full((2, 11, channels), float("nan"), device=device)
    slots, start = integers(1).to(device), integers(0).to(device)
    whole = causal_conv_prefill(kept, weight, window.clone(), slots, start)
    position = 0
    for count in (2, 1, 4, 3, 1):
        mixed = torch.full((1, 4, channels), 1e9, device=device)
        mixed[:, :count] = kept[:, position : position + count]
        four = integers(4).to(device)
        base = integers(position).to(device)
        got = causal_conv_round(mixed, weight, window, slots, four, base, backend=backend)
        torch.testing.assert_close(
            got[:, :count], whole[:, position : position + count], rtol=1e-6, atol=1e-6
        )
        position += count
    assert torch.equal(window[1, [8, 9, 10]], kept[0, -3:])
    assert bool(torch.isnan(window[0]).all())


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_idle_lanes_touch_nothing(backend: str, device: str):
    """N-41, N-5: an idle lane's slot index is not even read."""
    mixed = torch.full((2, 2, 5), float("nan"), device=device)
    mixed[1, 0] = 1.0
    window = torch.ones(3, 7, 5, device=device)
    before = window.clone()
    slots, columns = integers(-(10**6), 2).to(device), integers(0, 1).to(device)
    weight = torch.ones(4, 5, device=device)
    base = integers(-(10**6), 4).to(device)
    out = causal_conv_round(mixed, weight, window, slots, columns, base, backend=backend)
    assert torch.equal(out[0], torch.zeros(2, 5, device=device))
    assert torch.equal(out[1, 1], torch.zeros(5, device=device))
    assert torch.equal(window[:2], before[:2])
    assert bool(torch.isfinite(window).all())


def test_wrong_arguments_are_refused():
    case = ConvCase(2, 2, 8, torch.float32)
    inputs = make_inputs(case, "cpu", 0)
    indices = (inputs.slots, inputs.columns, inputs.base)
    with pytest.raises(ValueError, match="window: got 7 columns, want at least 9"):
        wide = torch.zeros(2, 3, 8)
        causal_conv_round(wide, inputs.weight, inputs.window, *indices)
    with pytest.raises(ValueError, match=r"weight: got \(8, 4\)"):
        causal_conv_round(inputs.mixed, torch.zeros(8, 4), inputs.window, *indices)
    with pytest.raises(ValueError, match=r"window: got torch\.bfloat16"):
        causal_conv_round(inputs.mixed, inputs.weight, inputs.window.bfloat16(), *indices)
    with pytest.raises(ValueError, match=r"slots: got torch.int64"):
        causal_conv_round(
            inputs.mixed, inputs.weight, inputs.window, inputs.slots.long(), *indices[1:]
        )
    with pytest.raises(ValueError, match="mixed: got 2 sequences"):
        causal_conv_prefill(inputs.mixed, inputs.weight, inputs.window, inputs.slots, inputs.base)
