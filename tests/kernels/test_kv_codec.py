"""Laws of the paged cache: rules KV-1 to KV-5 and KV-10 to KV-16 of specs/kv-codecs.md."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ninfer_formats.codecs import rounding
from ninfer_kernels.kv_codec import (
    KV_KINDS,
    allocate_pages,
    append_kv,
    bytes_per_token,
    copy_pages,
    decode_rows,
    encode_rows,
    read_kv,
)
from ninfer_kernels.kv_codec.cases import CASES, poisoned_pages, worst_error

SMALL = [case for case in CASES if case.small]
BACKENDS = ("reference", "triton")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_append_writes_its_rows_to_the_bit_and_no_other(case, backend, device):
    """KV-5, KV-10 to KV-14."""
    assert worst_error(case, device, seed=1, backend=backend) == 0


def test_bytes_of_a_token():
    """KV-2."""
    assert [bytes_per_token(kind, 1, 256) for kind in KV_KINDS] == [2048, 1024, 516, 516]
    assert 16 * bytes_per_token("bf16", 4, 256) == 65_536
    assert 16 * bytes_per_token("int8", 4, 256) == 33_024
    for kind in KV_KINDS:
        cache = allocate_pages(kind, 3, 2, 40, "cpu")
        assert cache.byte_count == 3 * 64 * bytes_per_token(kind, 2, 40)
        assert all(plane.shape[:3] == (3, 2, 64) for plane in cache.planes)  # KV-1


def test_pages_start_zeroed():
    """KV-3."""
    for kind in KV_KINDS:
        assert not any(plane.any() for plane in allocate_pages(kind, 2, 1, 8, "cpu").planes)


def test_worked_example():
    row = torch.tensor([[1, -0.5, 0.3, 0]])
    codes, scales = encode_rows("int8", row)
    assert codes.tolist() == [[127, -64, 38, 0]]
    assert scales is not None
    assert scales.view(torch.int16).tolist() == [0x2008]
    codes, scales = encode_rows("fp8", row)
    assert codes.tolist() == [[0x7E, 0xF6, 0x70, 0x00]]
    assert scales is not None
    assert scales.view(torch.int16).tolist() == [0x1892]


def numpy_row(kind: str, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rules KV-11 to KV-13 written once more, with the rounding of the artifact codecs."""
    most = np.float32(448 if kind == "fp8" else 127)
    with np.errstate(over="ignore"):
        scale = np.clip(np.abs(row).max() / most, np.float32(2**-24), np.float32(65504))
        scale = scale.astype(np.float16)
        scaled = np.clip(row * (np.float32(1) / scale.astype(np.float32)), -most, most)
    codes = rounding.round_to_e4m3(scaled) if kind == "fp8" else np.rint(scaled).astype(np.int8)
    return codes, scale


@pytest.mark.parametrize("kind", ["fp8", "int8"])
def test_codes_are_those_of_a_second_implementation(kind):
    """KV-11 to KV-13, over the whole range of sizes a row can have."""
    generator = np.random.default_rng(1)
    for exponent in range(-149, 120, 4):
        row = np.ldexp(generator.standard_normal(33), exponent).astype(np.float32)
        codes, scales = encode_rows(kind, torch.from_numpy(row)[None])
        want, scale = numpy_row(kind, row)
        assert scales is not None
        assert codes[0].numpy().tolist() == want.tolist(), exponent
        assert scales.numpy().tobytes() == scale.tobytes(), exponent


def test_every_e4m3_word_survives_and_ties_go_to_the_even_word():
    """KV-13: under a scale of one, words come back; midpoints go to the even neighbour."""
    words = torch.tensor([w for w in range(256) if w & 0x7F != 0x7F], dtype=torch.uint8)
    values = decode_rows("fp8", words, None)
    assert values.tolist() == rounding.E4M3_VALUES[words.numpy()].tolist()
    row = torch.cat([values, torch.tensor([448.0])])
    codes, scales = encode_rows("fp8", row[None])
    assert scales is not None
    assert scales.item() == 1
    assert torch.equal(codes[0, :-1], words)
    positive = values[:127]
    middle = torch.cat([(positive[:-1] + positive[1:]) / 2, torch.tensor([448.0])])
    codes, _ = encode_rows("fp8", middle[None])
    even = [w if w % 2 == 0 else w + 1 for w in range(126)]
    assert codes[0, :-1].tolist() == even


def test_int8_halves_go_to_the_even_code():
    """KV-12; the largest value makes the scale exactly one."""
    codes, _ = encode_rows("int8", torch.tensor([[127, 0.5, 1.5, 2.5, -0.5, -1.5, -127]]))
    assert codes.tolist() == [[127, 0, 2, 2, 0, -2, -127]]


def test_zeros_stay_zeros():
    """KV-11."""
    for kind in ("fp8", "int8"):
        codes, scales = encode_rows(kind, torch.zeros(1, 4))
        assert not codes.any()
        assert scales is not None
        assert scales.tolist() == [2.0**-24]


def test_a_fault_is_read_back_as_nan():
    """KV-10, KV-14; the neighbouring row is not touched."""
    for value in (torch.nan, torch.inf, -torch.inf):
        rows = torch.ones(2, 8)
        rows[0, 3] = value
        for kind in ("fp8", "int8"):
            decoded = decode_rows(kind, *encode_rows(kind, rows))
            assert torch.isnan(decoded[0]).all()
            assert torch.isfinite(decoded[1]).all()
    for kind in ("fp32", "bf16"):
        rows = torch.tensor([[torch.nan, 1.0]])
        decoded = decode_rows(kind, *encode_rows(kind, rows))
        assert torch.isnan(decoded).tolist() == [[True, False]]


@pytest.mark.parametrize("kind", ["fp8", "int8"])
def test_decoded_values_are_close(kind):
    """KV-15, KV-16."""
    torch.manual_seed(2)
    x = torch.randn(64, 256).double() * torch.logspace(-2, 4, 64)[:, None]
    x = x.float().double()
    decoded = decode_rows(kind, *encode_rows(kind, x.float())).double()
    largest = x.abs().amax(-1, keepdim=True)
    if kind == "int8":
        bound = largest.expand_as(x) / 254 * (1 + 2**-9)
    else:
        bound = torch.maximum(x.abs() / 16, largest * 2**-10 / 448) * (1 + 2**-8)
    assert ((decoded - x).abs() <= bound).all()


def test_codes_are_exact_in_bfloat16():
    """KV-15."""
    integers = torch.arange(-127, 128, dtype=torch.int8)
    words = torch.tensor([w for w in range(256) if w & 0x7F != 0x7F], dtype=torch.uint8)
    for kind, codes in (("int8", integers), ("fp8", words)):
        values = decode_rows(kind, codes, None)
        assert torch.equal(values, values.bfloat16().float())


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_is_written_where_the_lane_owns_nothing(backend, device):
    """KV-3, KV-5: an entry of -1, and tokens past the block table."""
    cache = poisoned_pages("int8", 3, 1, 8, device)
    before = [plane.clone() for plane in cache.planes]
    table = torch.tensor([[2, -1]], dtype=torch.int32, device=device)
    new = torch.ones(1, 4, 1, 8, device=device)
    columns = torch.tensor([4], dtype=torch.int32, device=device)
    for base in (64, 126, 128, 1000):
        tokens = torch.tensor([base], dtype=torch.int32, device=device)
        append_kv(new, new, cache, table, tokens, columns, backend=backend)
    after = [torch.nan_to_num(plane) for plane in cache.planes]
    assert all(torch.equal(a, torch.nan_to_num(b)) for a, b in zip(after, before, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KV_KINDS)
def test_copied_pages_are_equal_bit_for_bit(kind, backend, device):
    """KV-4."""
    cache = allocate_pages(kind, 5, 2, 24, device)
    generator = torch.Generator(device).manual_seed(3)
    for plane in cache.planes:
        flat = plane.view(torch.uint8)
        flat.copy_(torch.randint(0, 256, flat.shape, device=device, generator=generator))
    before = [plane.view(torch.uint8).clone() for plane in cache.planes]
    sources = torch.tensor([4, -1, 0, 3], dtype=torch.int32, device=device)
    targets = torch.tensor([1, 3, -1, 2], dtype=torch.int32, device=device)
    copy_pages(cache, sources, targets, backend=backend)
    for plane, old in zip(cache.planes, before, strict=True):
        assert torch.equal(plane.view(torch.uint8), old[[0, 4, 3, 3, 4]])


def test_rows_are_read_across_pages_in_order():
    """KV-1."""
    cache = poisoned_pages("fp32", 4, 2, 4, "cpu")
    table = torch.tensor([[3, 0, 2]], dtype=torch.int32)
    new = torch.arange(150.0)[None, :, None, None].expand(1, 150, 2, 4).contiguous()
    base, columns = torch.tensor([[0], [150]], dtype=torch.int32)
    append_kv(new, -new, cache, table, base, columns)
    keys, values = read_kv(cache, table[0], 60, 131)
    assert keys[1, :, 2].tolist() == list(range(60, 131))
    assert values[0, :, 0].tolist() == [-float(t) for t in range(60, 131)]


def test_wrong_arguments_are_named():
    cache = allocate_pages("bf16", 2, 2, 8, "cpu")
    table = torch.zeros(1, 2, dtype=torch.int32)
    length = torch.zeros(1, dtype=torch.int32)
    new = torch.zeros(1, 3, 2, 8)
    with pytest.raises(ValueError, match="KV kind: got fp4"):
        allocate_pages("fp4", 1, 1, 8, "cpu")
    with pytest.raises(ValueError, match="keys: got"):
        append_kv(new[:, :, :1], new, cache, table, length, length)
    with pytest.raises(ValueError, match="values: got"):
        append_kv(new, new[:, :2], cache, table, length, length)
    with pytest.raises(ValueError, match="base: got"):
        append_kv(new, new, cache, table, length.long(), length)
    with pytest.raises(ValueError, match="block_table: got"):
        append_kv(new, new, cache, table[0], length, length)
    with pytest.raises(ValueError, match="page lists: got"):
        copy_pages(cache, length, table)
    with pytest.raises(ValueError, match="targets: got"):
        copy_pages(cache, length, length.long())
