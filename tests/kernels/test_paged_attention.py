"""Laws of paged attention: rules N-27 and N-28 (and N-4, N-5, N-7) of specs/numerics.md, KV-3."""

from __future__ import annotations

import pytest
import torch

from ninfer_kernels.kv_codec import KV_KINDS, allocate_pages, append_kv
from ninfer_kernels.kv_codec.cases import make_tables, poisoned_pages
from ninfer_kernels.paged_attention import Machine, paged_attention, plan_attention
from ninfer_kernels.paged_attention.cases import CASES, AttentionCase, make_inputs, worst_error

SMALL = [case for case in CASES if case.small]
BACKENDS = ("reference", "triton")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_every_column_is_within_its_derived_error(case, backend, device):
    """N-27; padded columns are exact zeros, unwritten rows of the cache hold poison (KV-3)."""
    assert worst_error(case, device, seed=1, backend=backend) <= 1


def test_reference_is_causal_softmax_attention():
    """Against torch's own attention, written without pages."""
    torch.manual_seed(1)
    base, columns = (75,), (70,)
    table, *lengths, pages = make_tables(base, columns, "cpu", seed=1)
    cache = poisoned_pages("fp32", pages, 2, 24, "cpu")
    keys, values = torch.randn(2, 1, 145, 2, 24)
    append_kv(keys, values, cache, table, torch.zeros(1).int(), torch.tensor([145]).int())
    q = torch.randn(1, 70, 6, 24)
    got = paged_attention(q, cache, table, *lengths, 0.3)
    seen = torch.ones(70, 145, dtype=torch.bool).tril(75)
    want = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (q, keys, values)), seen, scale=0.3, enable_gqa=True
    )
    torch.testing.assert_close(got, want.transpose(1, 2), rtol=0, atol=2e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KV_KINDS)
def test_a_column_of_a_chunk_is_its_own_decode_step(kind, backend, device):
    """Every column, not only the last: chunk of 6 against six rounds of one column."""
    case = AttentionCase(kind, (61,), (6,), 6, 3, 1, 16, torch.float32)
    x = make_inputs(case, device, seed=2)
    chunk = paged_attention(
        x.q, x.cache, x.block_table, x.base, x.columns, x.scale, backend=backend
    )
    one = torch.ones_like(x.columns)
    for column in range(6):
        q = x.q[:, column : column + 1]
        step = paged_attention(
            q, x.cache, x.block_table, x.base + column, one, x.scale, backend=backend
        )
        torch.testing.assert_close(step[0, 0], chunk[0, column], rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [1, 7, 64, 127])
def test_chunked_prefill_gives_the_same_outputs(size):
    torch.manual_seed(3)
    length = 200
    table, base, columns, pages = make_tables((0,), (length,), "cpu", seed=3)
    cache = allocate_pages("fp32", pages, 2, 16, "cpu")
    keys, values = torch.randn(2, 1, length, 2, 16)
    append_kv(keys, values, cache, table, base, columns)
    q = torch.randn(1, length, 4, 16)
    whole = paged_attention(q, cache, table, base, columns, 0.25)
    for begin in range(0, length, size):
        part = q[:, begin : begin + size]
        tables = (table, base + begin, torch.full_like(base, part.shape[1]))
        got = paged_attention(part, cache, *tables, 0.25)
        torch.testing.assert_close(got, whole[:, begin : begin + size], rtol=0, atol=2e-6)


def test_lanes_and_columns_beside_it_leave_a_row_its_bits(device):
    """N-5, N-28: kernel, lane 1 of three against alone; column 0 of three against alone."""
    case = AttentionCase("int8", (40, 300, 500), (3, 2, 3), 3, 6, 2, 32, torch.float32)
    x = make_inputs(case, device, seed=4)
    # The same number of pages in the block table, so that the plan is that of the engine.
    tables = (x.block_table, x.base, x.columns)
    together = paged_attention(x.q, x.cache, *tables, x.scale, backend="triton")
    lone = [table[1:2].contiguous() for table in tables]
    alone = paged_attention(x.q[1:2], x.cache, *lone, x.scale, backend="triton")
    assert torch.equal(alone[0], together[1])
    first = (lone[0], lone[1], torch.ones_like(lone[2]))
    single = paged_attention(x.q[1:2, :1], x.cache, *first, x.scale, backend="triton")
    assert torch.equal(single[0, 0], together[1, 0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_in_one_lane_stays_there(backend, device):
    """N-5: a poisoned row of the cache reaches its own lane, and does reach it."""
    case = AttentionCase("int8", (70, 70), (2, 2), 2, 2, 1, 16)
    x = make_inputs(case, device, seed=5)
    page = int(x.block_table[0, 0])
    assert x.cache.key_scales is not None
    x.cache.key_scales[page, 0, 7] = torch.nan
    out = paged_attention(x.q, x.cache, x.block_table, x.base, x.columns, x.scale, backend=backend)
    assert torch.isnan(out[0]).all()
    assert torch.isfinite(out[1]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_idle_lanes_are_zero(backend, device):
    """N-27: no column of any lane is real."""
    x = make_inputs(AttentionCase("bf16", (0, 5), (1, 1), 2, 2, 1, 16), device, seed=6)
    q, out = torch.full_like(x.q, torch.nan), torch.full_like(x.q, torch.nan)
    tables = (x.block_table, x.base, torch.zeros_like(x.columns))
    paged_attention(q, x.cache, *tables, x.scale, out=out, backend=backend)
    assert not out.any()


def test_one_key_gives_its_value():
    table, base, columns, pages = make_tables((0,), (1,), "cpu", seed=7)
    cache = poisoned_pages("fp32", pages, 1, 4, "cpu")
    value = torch.tensor([1.0, -2.0, 3.0, 0.5]).expand(1, 1, 1, 4)
    append_kv(torch.randn(1, 1, 1, 4), value, cache, table, base, columns)
    got = paged_attention(torch.randn(1, 1, 3, 4), cache, table, base, columns, 1.0)
    assert got[0, 0].tolist() == [[1.0, -2.0, 3.0, 0.5]] * 3


def test_plan_of_a_round_does_not_depend_on_lanes_and_columns():
    """N-28."""
    plans = [
        plan_attention(lanes, columns, 24, 4, 256, 4096, 132)
        for lanes in (1, 2, 8)
        for columns in (1, 4, 16)
    ]
    assert {(plan.rows, plan.splits) for plan in plans} == {(32, 64)}
    assert [plan.row_blocks for plan in plans[:3]] == [1, 1, 3]
    assert plans[0].workspace == 64 * 24 * 258
    assert plan_attention(1, 1, 24, 4, 256, 2, 132).splits == 2


def test_prefill_splits_keys_only_while_processors_are_idle():
    assert plan_attention(1, 2048, 24, 4, 256, 4096, 132).splits == 1
    assert plan_attention(1, 64, 24, 4, 256, 4096, 132).splits > 1


def test_tiles_fit_the_machine():
    from ninfer_kernels.paged_attention.kernel import tile_for

    small, large = Machine(82, 99 * 1024), Machine(132, 227 * 1024)
    assert tile_for(torch.bfloat16, 64, small)["KEYS"] == 32
    assert tile_for(torch.bfloat16, 64, large)["KEYS"] == 64
    keys = {tile_for(torch.bfloat16, 32, machine)["KEYS"] for machine in (small, large)}
    assert keys == {32}  # N-28: the partition of a round


def test_wrong_arguments_are_named():
    cache = allocate_pages("bf16", 2, 2, 8, "cpu")
    table, length = torch.zeros(1, 20, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    q = torch.zeros(1, 1, 4, 8, dtype=torch.bfloat16)
    tables = (table, length, length)
    with pytest.raises(ValueError, match="q: got 3 heads of 8, want a multiple of 2"):
        paged_attention(q[:, :, :3], cache, *tables, 1.0)
    with pytest.raises(ValueError, match="base: got"):
        paged_attention(q, cache, table, length.long(), length, 1.0)
    with pytest.raises(ValueError, match="out: got"):
        paged_attention(q, cache, *tables, 1.0, out=q.float())
    with pytest.raises(ValueError, match="want fp32"):
        paged_attention(q, allocate_pages("fp32", 2, 2, 8, "cpu"), *tables, 1.0)
    with pytest.raises(ValueError, match="workspace: got 3"):
        small = torch.zeros(3)
        paged_attention(q, cache, *tables, 1.0, workspace=small, backend="triton")
