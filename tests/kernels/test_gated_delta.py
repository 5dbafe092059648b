"""The gated delta rule: its definition, replay, and chunks (specs/numerics.md N-42..N-46).

What taking columns back leaves is the law of `test_taking_back.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ninfer_kernels.gated_delta import (
    ReplayRecords,
    allocate_records,
    fold_records,
    gated_delta_prefill,
    gated_delta_round,
)
from ninfer_kernels.gated_delta.cases import (
    CASES,
    DeltaCase,
    DeltaInputs,
    allowed_error,
    make_inputs,
    worst_error,
)

SMALL = [case for case in CASES if case.small]
F32 = torch.float32


def integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def run_exactly(inputs: DeltaInputs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """float64 definition, head by head and column by column: (o [T, nv, Dv], state)."""
    heads, dim, key_dim = state.shape
    key_heads = inputs.records.key.shape[2]
    mixed, a, b = (x[0].double() for x in (inputs.mixed, inputs.a, inputs.b))
    state = state.double().clone()
    out = mixed.new_zeros(mixed.shape[0], heads, dim)
    for head in range(heads):
        source = head * key_heads // heads * key_dim
        rate, bias = inputs.a_log[head].double().exp(), inputs.dt_bias[head].double()
        for t, column in enumerate(mixed):
            q = column[source : source + key_dim]
            k = column[key_heads * key_dim + source :][:key_dim]
            v = column[2 * key_heads * key_dim + head * dim :][:dim]
            q, k = (x / (x.dot(x) + 1e-6).sqrt() for x in (q, k))
            decay = (-rate * torch.log1p((a[t, head] + bias).exp())).exp()
            s = decay * state[head]
            u = torch.sigmoid(b[t, head]) * (v - s @ k)
            state[head] = s + torch.outer(u, k)
            out[t, head] = state[head] @ q / key_dim**0.5
    return out, state


def within(case: DeltaCase, got: torch.Tensor, want: torch.Tensor) -> bool:
    error = float((got.double() - want.double()).abs().max())
    return error <= allowed_error(case, float(want.abs().max()))


def start(case: DeltaCase, seed: int = 5) -> DeltaInputs:
    """Inputs without pending records, at position 0."""
    inputs = make_inputs(case, "cpu", seed)
    return replace(inputs, accepted=torch.zeros_like(inputs.accepted), base=integers(0))


def pad_columns(part: torch.Tensor, width: int) -> torch.Tensor:
    """Append garbage columns [1, n, C] -> [1, width, C]: drafts that will be rejected."""
    return torch.nn.functional.pad(part, (0, 0, 0, width - part.shape[1]), value=3.0)


def play(inputs: DeltaInputs, state: torch.Tensor, widths: list[tuple[int, int]], backend: str):
    """Run rounds of (width, kept) columns, the rejected ones garbage; fold; return (o, state)."""
    slot = int(inputs.slots[0])
    records = allocate_records(
        state.shape[0],
        4,
        key_heads=inputs.records.key.shape[2],
        value_heads=state.shape[1],
        device=state.device,
    )
    accepted, settled = torch.zeros_like(inputs.accepted), torch.zeros_like(inputs.accepted)
    results, position = [], 0
    for width, kept in widths:
        mixed, a, b = (
            pad_columns(tensor[:, position : position + kept], width).to(state.device)
            for tensor in (inputs.mixed, inputs.a, inputs.b)
        )
        out = gated_delta_round(
            mixed,
            a,
            b,
            inputs.a_log.to(state.device),
            inputs.dt_bias.to(state.device),
            state,
            records,
            inputs.slots.to(state.device),
            integers(width).to(state.device),
            integers(position).to(state.device),
            accepted.to(state.device),
            settled.to(state.device),
            backend=backend,
        )
        results.append(out[:, :kept])
        settled[slot] = accepted[slot] - settled[slot]
        accepted[slot] = settled[slot] + kept
        position += kept
    rest = (integers(slot, -1), integers(position, 0), accepted)
    fold_records(state, records, *(x.to(state.device) for x in rest), backend=backend)
    return torch.cat(results, 1), state


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_kernel_agrees_with_reference(case: DeltaCase, device: str):
    """N-44, N-46, N-4: outputs, states and records; nothing left unwritten, no NaN."""
    assert worst_error(case, device, 1, "triton") <= 1


@pytest.mark.parametrize("ratio", [1, 2, 3, 4, 8])
def test_forms_agree_with_the_float64_definition(ratio: int):
    """N-42, N-43, N-44: value head j reads key head j // ratio; rounds and chunks alike."""
    case = DeltaCase(1, 70, 2 if ratio < 4 else 1, 2 * ratio if ratio < 4 else ratio, F32, True)
    inputs = start(case, ratio)
    slot = int(inputs.slots[0])
    want, final = run_exactly(inputs, inputs.state[slot])
    rounds, state = play(inputs, inputs.state.clone(), [(4, 4)] * 17 + [(2, 2)], "reference")
    assert within(case, rounds[0], want)
    assert within(case, state[slot], final)
    chunks = gated_delta_prefill(*inputs.prefill_arguments())
    assert within(case, chunks[0], want)
    assert within(case, inputs.state[slot], final)


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_replay_of_accepted_columns_is_bit_equal_to_sequential_decoding(backend: str, device: str):
    """N-45: whatever the widths, and however many columns are rejected."""
    case = DeltaCase(1, 6, 1, 3, F32, prefill=True)
    inputs = start(case)
    one, first = play(inputs, inputs.state.clone().to(device), [(1, 1)] * 6, backend)
    plans = [[(4, 4), (2, 2)], [(4, 1), (2, 2), (4, 3)]]
    for widths in plans:
        many, second = play(inputs, inputs.state.clone().to(device), widths, backend)
        assert torch.equal(one, many)
        assert torch.equal(first, second)


def test_chunk_borders_do_not_matter():
    """N-44: prefill in pieces of any size, pending records first, equals prefill at once."""
    case = DeltaCase(1, 200, 1, 2, F32, prefill=True)
    inputs = start(case)
    slot = int(inputs.slots[0])
    whole = inputs.state.clone()
    want = gated_delta_prefill(*replace(inputs, state=whole).prefill_arguments())
    for size in (1, 63, 64, 127):
        state, results = inputs.state.clone(), []
        for begin in range(0, 200, size):
            part = slice(begin, begin + size)
            piece = replace(
                inputs,
                mixed=inputs.mixed[:, part],
                a=inputs.a[:, part],
                b=inputs.b[:, part],
                state=state,
                base=integers(begin),
            )
            results.append(gated_delta_prefill(*piece.prefill_arguments()))
        assert within(case, torch.cat(results, 1), want)
        assert within(case, state[slot], whole[slot])


def test_prefill_folds_pending_records_first():
    """N-45: a chunk after rounds starts from the state that the next round would see."""
    case = DeltaCase(1, 5, 1, 2, F32, prefill=True)
    inputs = make_inputs(case, "cpu", 8)
    inputs.accepted.fill_(2)
    folded = inputs.state.clone()
    fold_records(folded, inputs.records, inputs.slots, inputs.base, inputs.accepted)
    clean = replace(inputs, state=folded, accepted=torch.zeros_like(inputs.accepted))
    want = gated_delta_prefill(*clean.prefill_arguments())
    got = gated_delta_prefill(*inputs.prefill_arguments())
    assert torch.equal(got, want)
    assert torch.equal(inputs.state, folded)


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_repeated_keys_stay_accurate_in_a_chunk(backend: str, device: str):
    """N-46: the triangular system of equal keys, where powers of its matrix would explode."""
    case = DeltaCase(1, 64, 1, 1, F32, prefill=True)
    inputs = make_inputs(case, device, 5)
    inputs.accepted.zero_()
    inputs.mixed[:, :, 128:256] = inputs.mixed[:, :1, 128:256]
    inputs.b.fill_(20.0)
    inputs.a.fill_(-30.0)
    want, _ = run_exactly(inputs, inputs.state[int(inputs.slots[0])])
    got = gated_delta_prefill(*inputs.prefill_arguments(), backend=backend)
    assert within(case, got[0], want)


@pytest.mark.parametrize("backend", ["reference", "triton"])
def test_idle_lanes_and_other_slots_are_untouched(backend: str, device: str):
    """N-5: garbage in an idle lane, a padded column or another slot reaches nothing."""
    case = DeltaCase(3, 2, 1, 2, F32)
    inputs = make_inputs(case, device, 4)
    inputs.columns.copy_(integers(2, 0, 1))
    lone = replace(inputs, state=inputs.state.clone(), records=clone(inputs.records))
    slots = [int(slot) for slot in inputs.slots]
    inputs.slots[1] = -(10**6)
    inputs.mixed[1] = float("nan")
    inputs.mixed[2, 1] = float("nan")
    for other in set(range(5)) - {slots[0], slots[2]}:
        inputs.state[other] = float("nan")
    before = inputs.state.clone(), clone(inputs.records)
    out = gated_delta_round(*inputs.round_arguments(), backend=backend)
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    assert torch.equal(out[2, 1], torch.zeros_like(out[2, 1]))
    for other in set(range(5)) - {slots[0], slots[2]}:
        assert torch.equal(inputs.records.key[other], before[1].key[other])
        assert torch.equal(inputs.records.update[other], before[1].update[other])
        assert bool(torch.isnan(inputs.state[other]).all())
    for lane in (0, 2):
        pick = slice(lane, lane + 1)
        alone = replace(
            lone,
            mixed=lone.mixed[pick],
            a=lone.a[pick],
            b=lone.b[pick],
            slots=lone.slots[pick],
            columns=lone.columns[pick],
            base=lone.base[pick],
        )
        assert torch.equal(
            gated_delta_round(*alone.round_arguments(), backend=backend)[0], out[lane]
        )
        assert torch.equal(lone.state[slots[lane]], inputs.state[slots[lane]])


def clone(records: ReplayRecords) -> ReplayRecords:
    return ReplayRecords(records.key.clone(), records.update.clone(), records.decay.clone())


def test_wrong_arguments_are_refused():
    inputs = make_inputs(DeltaCase(2, 2, 1, 2, F32), "cpu", 0)
    with pytest.raises(ValueError, match="records: got length 6, want at least 9"):
        wide = replace(
            inputs,
            mixed=torch.zeros(2, 3, 512),
            a=torch.zeros(2, 3, 2),
            b=torch.zeros(2, 3, 2),
        )
        gated_delta_round(*wide.round_arguments())
    with pytest.raises(ValueError, match=r"state: got torch\.bfloat16"):
        gated_delta_round(*replace(inputs, state=inputs.state.bfloat16()).round_arguments())
    with pytest.raises(ValueError, match=r"mixed: got \(2, 2, 500\), want \[L, W, 512\]"):
        gated_delta_round(*replace(inputs, mixed=torch.zeros(2, 2, 500)).round_arguments())
    with pytest.raises(ValueError, match=r"base: got torch\.int64"):
        gated_delta_round(*replace(inputs, base=inputs.base.long()).round_arguments())
    with pytest.raises(ValueError, match="a_log: got"):
        gated_delta_round(*replace(inputs, a_log=torch.zeros(3)).round_arguments())


def test_both_forms_equal_those_of_transformers():
    """N-44: an independent implementation, which keeps S as [k, v] and repeats key heads itself."""
    from transformers.models.qwen3_5 import modeling_qwen3_5 as oracle

    case = DeltaCase(1, 70, 2, 6, F32, prefill=True)
    inputs = start(case, 12)
    slot = int(inputs.slots[0])
    query, key, value = inputs.mixed.split((256, 256, 768), dim=-1)
    query, key = (x.unflatten(-1, (2, 128)).repeat_interleave(3, 2) for x in (query, key))
    gates = -inputs.a_log.exp() * torch.nn.functional.softplus(inputs.a + inputs.dt_bias)
    arguments = (query, key, value.unflatten(-1, (6, 128)), gates, torch.sigmoid(inputs.b))
    options = {
        "initial_state": inputs.state[slot][None].mT,
        "output_final_state": True,
        "use_qk_l2norm_in_kernel": True,
    }
    chunks, chunk_state = oracle.torch_chunk_gated_delta_rule(*arguments, **options)
    rounds, round_state = oracle.torch_recurrent_gated_delta_rule(*arguments, **options)
    mine, state = play(inputs, inputs.state.clone(), [(4, 4)] * 17 + [(2, 2)], "reference")
    assert within(case, mine, rounds)
    assert within(case, state[slot], round_state[0].mT)
    got = gated_delta_prefill(*inputs.prefill_arguments())
    assert within(case, got, chunks)
    assert within(case, inputs.state[slot], chunk_state[0].mT)
