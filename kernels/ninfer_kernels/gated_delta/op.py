"""Gated delta rule: checks, choice of implementation, launch."""

from __future__ import annotations

import torch

from ninfer_kernels.gated_delta import reference, reference_chunk
from ninfer_kernels.gated_delta.records import ReplayRecords
from ninfer_kernels.launch import TRITON, choose_backend


def gated_delta_round(
    mixed: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    state: torch.Tensor,
    records: ReplayRecords,
    slots: torch.Tensor,
    columns: torch.Tensor,
    base: torch.Tensor,
    accepted: torch.Tensor,
    settled: torch.Tensor,
    *,
    eps: float = 1e-6,
    out: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Run the columns of one round; return o [L, W, nv, Dv] in the dtype of `mixed`.

    mixed [L, W, 2 nk Dk + nv Dv]: q | k | v after the convolution. a, b [L, W, nv]: projections
    of the decay and write gates. The last dimension of these is contiguous, others may be
    strided. a_log, dt_bias [nv]. state fp32 [S, nv, Dv, Dk]. records: see `ReplayRecords`; their
    length is at least 3 W. slots, columns, base [L], accepted and settled [S]: int32.

    Lane l works on slot slots[l], of which no two active lanes may share one. The state lacks
    the newest accepted[slot] records, those of positions base - accepted .. base - 1. The first
    settled[slot] of them are folded into it and written back; the others, which are those of the
    last round, are folded into a copy, on which columns base .. base + columns - 1 run, leaving
    records only. Of these n stay: the caller sets settled to accepted - settled, accepted to
    that plus n, and advances base by n. It may later take back up to all columns of the last two
    rounds, before another one runs, by lowering base and accepted by their number and settled to
    no more than accepted. A lane with 0 columns touches nothing and its slot index is not read;
    outputs of padded columns are 0.

    Formula: the gated delta rule of Qwen3.5 (`reference.py`). Raises ValueError.
    """
    _check(mixed, a, b, a_log, dt_bias, state, records)
    lanes, width = mixed.shape[:2]
    if records.length < 3 * width:
        raise ValueError(f"records: got length {records.length}, want at least {3 * width}")
    for name, tensor in (("slots", slots), ("columns", columns), ("base", base)):
        _check_indices(name, tensor, lanes)
    for name, tensor in (("accepted", accepted), ("settled", settled)):
        _check_indices(name, tensor, state.shape[0])
    out = _prepare_output(mixed, records, out)
    arguments = (mixed, a, b, a_log, dt_bias, state, records, slots, columns, base)
    if choose_backend(mixed, backend) == TRITON:
        from ninfer_kernels.gated_delta import kernel

        return kernel.launch_round(*arguments, accepted, settled, eps, out)
    return reference.run_round(*arguments, accepted, settled, eps, out)


def gated_delta_prefill(
    mixed: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    state: torch.Tensor,
    records: ReplayRecords,
    slots: torch.Tensor,
    base: torch.Tensor,
    accepted: torch.Tensor,
    *,
    eps: float = 1e-6,
    out: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Run T columns of one sequence in chunks; return o [1, T, nv, Dv] in the dtype of `mixed`.

    Arguments as for `gated_delta_round` with L = 1, any T >= 1. All accepted records are folded
    first; the state after the last column is written to the slot. The caller sets accepted[slot]
    and settled[slot] to 0 when every layer has run. Allocates workspace: prefill is not captured.
    """
    _check(mixed, a, b, a_log, dt_bias, state, records)
    if mixed.shape[0] != 1:
        raise ValueError(f"mixed: got {mixed.shape[0]} sequences, want 1 in a prefill chunk")
    _check_indices("slots", slots, 1)
    _check_indices("base", base, 1)
    _check_indices("accepted", accepted, state.shape[0])
    out = _prepare_output(mixed, records, out)
    arguments = (mixed, a, b, a_log, dt_bias, state, records)
    if choose_backend(mixed, backend) == TRITON:
        from ninfer_kernels.gated_delta import kernel_chunk

        return kernel_chunk.launch_prefill(*arguments, slots, base, accepted, eps, out)
    return reference_chunk.run_prefill(*arguments, slots, base, accepted, eps, out)


def fold_records(
    state: torch.Tensor,
    records: ReplayRecords,
    slots: torch.Tensor,
    base: torch.Tensor,
    accepted: torch.Tensor,
    *,
    backend: str | None = None,
) -> None:
    """Fold all accepted records of the named slots into their states; no round can be taken back.

    slots, base [n] int32: each slot at most once, negative slots are skipped; base is the
    position of the next column. The caller sets `accepted` and `settled` of these slots to 0.
    """
    _check_state(state, records)
    _check_indices("base", base, slots.numel())
    _check_indices("accepted", accepted, state.shape[0])
    if choose_backend(state, backend) == TRITON:
        from ninfer_kernels.gated_delta import kernel

        kernel.launch_fold(state, records, slots, base, accepted)
        return
    reference.fold_slots(state, records, slots, base, accepted)


def _check(
    mixed: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    state: torch.Tensor,
    records: ReplayRecords,
) -> None:
    _check_state(state, records)
    value_heads, value_dim, key_dim = state.shape[1:]
    channels = 2 * records.key.shape[2] * key_dim + value_heads * value_dim
    if mixed.dim() != 3 or mixed.shape[2] != channels or mixed.stride(2) != 1:
        raise ValueError(
            f"mixed: got {tuple(mixed.shape)}, want [L, W, {channels}] with contiguous columns"
        )
    for name, gate in (("a", a), ("b", b)):
        if tuple(gate.shape) != (*mixed.shape[:2], value_heads) or gate.stride(2) != 1:
            raise ValueError(
                f"{name}: got {tuple(gate.shape)}, want {(*mixed.shape[:2], value_heads)}"
            )
    for name, vector in (("a_log", a_log), ("dt_bias", dt_bias)):
        if tuple(vector.shape) != (value_heads,):
            raise ValueError(f"{name}: got {tuple(vector.shape)}, want [{value_heads}]")


def _check_state(state: torch.Tensor, records: ReplayRecords) -> None:
    if state.dtype != torch.float32 or state.dim() != 4 or not state.is_contiguous():
        raise ValueError(
            f"state: got {state.dtype} {tuple(state.shape)}, want contiguous fp32 [S, nv, Dv, Dk]"
        )
    slots, value_heads, value_dim, key_dim = state.shape
    key_heads = records.key.shape[2]
    want = {
        "key": (slots, records.length, key_heads, key_dim),
        "update": (slots, records.length, value_heads, value_dim),
        "decay": (slots, records.length, value_heads),
    }
    for name, shape in want.items():
        plane = getattr(records, name)
        if plane.dtype != torch.float32 or tuple(plane.shape) != shape:
            raise ValueError(
                f"records.{name}: got {plane.dtype} {tuple(plane.shape)}, want fp32 {shape}"
            )
    if value_heads % key_heads:
        raise ValueError(f"heads: got {value_heads} value and {key_heads} key heads, want a ratio")


def _check_indices(name: str, tensor: torch.Tensor, count: int) -> None:
    if tensor.dtype != torch.int32 or tuple(tensor.shape) != (count,):
        raise ValueError(f"{name}: got {tensor.dtype} {tuple(tensor.shape)}, want int32 [{count}]")


def _prepare_output(
    mixed: torch.Tensor, records: ReplayRecords, out: torch.Tensor | None
) -> torch.Tensor:
    shape = (*mixed.shape[:2], *records.update.shape[2:])
    if out is None:
        return torch.empty(shape, dtype=mixed.dtype, device=mixed.device)
    if tuple(out.shape) != shape or out.dtype != mixed.dtype or not out.is_contiguous():
        raise ValueError(f"out: got {out.dtype} {tuple(out.shape)}, want {mixed.dtype} {shape}")
    return out
