"""Laws of the torch encoders: the bytes of `encode_tensor`, however the rows arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from ninfer_formats.codecs import nvfp4_search, rounding
from ninfer_formats.errors import NumericError, UsageError
from ninfer_formats.tensors import encode_tensor
from ninfer_tools.convert.encoders import RowEncoder, TileWorkers

MATRIX_CASES = [
    ("q4_g64_fp16", "absmax"),
    ("q5_g64_fp16", "absmax"),
    ("q6_g64_fp16", "absmax"),
    ("q8_g32_fp16", "absmax"),
    ("fp8_e4m3fn_row_bf16", "absmax"),
    ("nvfp4", "absmax"),
    ("nvfp4", "search"),
]
CASES = [*MATRIX_CASES, ("bf16", "cast"), ("fp32", "cast")]

Narrow = Callable[[np.ndarray], np.ndarray]


def cut(values, rows: int) -> Iterator:
    return (values[begin : begin + rows] for begin in range(0, len(values), rows))


def encode(values, case: tuple[str, str], rows: int = 128, device="cpu") -> np.ndarray:
    """Return the joined pieces, after checking that they cover every byte once."""
    encoder = RowEncoder(case[0], tuple(values.shape), case[1], device)
    encoder.prepare(lambda: cut(values, rows))
    pieces = []
    for index, block in enumerate(cut(values, rows)):
        pieces += encoder.encode(block, index * rows)
    pieces = sorted([*pieces, *encoder.finish()], key=lambda piece: piece.offset)
    ends = [piece.offset + piece.data.size for piece in pieces]
    assert [piece.offset for piece in pieces] == [0, *ends[:-1]]
    assert ends[-1] == encoder.geometry.bytes
    return np.concatenate([piece.data for piece in pieces])


def draw(shape: tuple[int, int], seed: int = 7) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.02).astype(np.float32)


def draw_hard_values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    words = rng.integers(0, 2**32, (130, 200), dtype=np.uint64).astype(np.uint32)
    sparse = np.where(rng.random((129, 144)) < 0.02, rng.standard_normal((129, 144)), -0.0)
    sparse[5] = 0
    drawn = {
        "ties": rng.integers(-14, 15, (40, 320)) / 2,
        "any bits below 2^16": (words & np.uint32(0xC7FFFFFF)).view(np.float32),
        "wide blocks": rng.standard_normal((64, 272))
        * 10.0 ** rng.integers(-30, 4, (64, 17)).repeat(16, 1),
        "wide rows": rng.standard_normal((131, 96)) * 10.0 ** rng.integers(-44, 4, (131, 1)),
        "zeros of both signs": sparse,
        "subnormal": rng.standard_normal((8, 100)) * 1e-41,
        "huge rows": np.concatenate([np.full((1, 64), 6e4), np.full((1, 64), -4e-4)]),
        "bounded": rng.uniform(-1, 1, (384, 128)),
        "zeros": np.zeros((5, 40)),
        "one value": np.array([[-3.7]]),
    }
    return {name: np.asarray(values, np.float32) for name, values in drawn.items()}


@pytest.mark.parametrize("case", CASES, ids="-".join)
@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (128, 64), (257, 200), (300, 1000)])
def test_bytes_equal_those_of_the_numpy_codecs(case, shape):
    values = draw(shape)
    np.testing.assert_array_equal(encode(values, case), encode_tensor(values, *case))


@pytest.mark.parametrize("case", CASES, ids="-".join)
@pytest.mark.parametrize("narrow", [rounding.round_to_bf16, np.float16], ids=["bf16", "f16"])
def test_narrow_sources_give_the_bytes_of_numpy(case, narrow: Narrow):
    values = narrow(draw((200, 144)))
    np.testing.assert_array_equal(encode(values, case), encode_tensor(values, *case))


@pytest.mark.parametrize("case", MATRIX_CASES, ids="-".join)
@pytest.mark.parametrize("name", list(draw_hard_values()))
def test_hard_values_give_the_bytes_of_numpy(case, name):
    values = draw_hard_values()[name]
    np.testing.assert_array_equal(encode(values, case), encode_tensor(values, *case))


@pytest.mark.parametrize("case", [MATRIX_CASES[3], *MATRIX_CASES[4:]], ids="-".join)
def test_every_bfloat16_of_a_row_of_scale_one_gives_the_bytes_of_numpy(case):
    words = np.arange(0x7F80, dtype=np.uint16)
    words = words[rounding.widen_bf16(words) <= 127]
    words = np.concatenate([words, words | np.uint16(0x8000)])
    rows = np.zeros((len(words) // 15 + 1, 16), np.uint16)
    rows[:, 1:].reshape(-1)[: len(words)] = words[: rows[:, 1:].size]
    rows[:, 0] = {"q8_g32_fp16": 0x42FE, "fp8_e4m3fn_row_bf16": 0x43E0, "nvfp4": 0x42FE}[case[0]]
    np.testing.assert_array_equal(encode(rows, case), encode_tensor(rows, *case))


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_bytes_do_not_depend_on_blocks_tiles_or_threads(case):
    values = rounding.round_to_bf16(draw((700, 272)))
    whole = encode(values, case, rows=768)
    workers = TileWorkers(threads=3)
    workers.tile = 5000
    for rows in (128, 384):
        np.testing.assert_array_equal(encode(values, case, rows), whole)
        np.testing.assert_array_equal(encode(values, case, rows, workers), whole)


def test_torch_blocks_equal_numpy_blocks():
    values = draw((130, 64))
    words = rounding.round_to_bf16(values)
    tensor = torch.from_numpy(values).bfloat16()
    for case in CASES:
        want = encode(words, case)
        np.testing.assert_array_equal(encode(tensor, case), want)
        np.testing.assert_array_equal(encode(tensor.view(torch.uint16), case), want)


def test_blocks_may_come_in_any_order_and_again():
    values = draw((300, 64))
    encoder = RowEncoder("nvfp4", values.shape, "search")
    encoder.prepare(lambda: cut(values, 128))
    last, first = encoder.encode(values[256:], 256), encoder.encode(values[:256], 0)
    again = encoder.encode(values[256:], 256)
    assert [piece.offset for piece in last] == [piece.offset for piece in again]
    assert all((a.data == b.data).all() for a, b in zip(last, again, strict=True))
    whole = encode_tensor(values, "nvfp4", "search")
    for piece in [*first, *last]:
        part = whole[piece.offset : piece.offset + piece.data.size]
        np.testing.assert_array_equal(piece.data, part)


def test_inputs_are_left_alone():
    values = draw((128, 128))
    kept = values.copy()
    values.flags.writeable = False
    for case in CASES:
        encode(values, case)
    np.testing.assert_array_equal(values, kept)


@pytest.mark.parametrize("format", ["bf16", "fp32"])
@pytest.mark.parametrize("shape", [(), (7,), (4, 3, 2)])
def test_direct_formats_take_any_rank_and_keep_nan_payloads(format, shape):
    words = np.random.default_rng(3).integers(0, 2**32, shape, dtype=np.uint64)
    values = np.asarray(words, np.uint32).view(np.float32)
    if shape:
        values.reshape(-1)[0] = np.uint32(0xFFC12345).view(np.float32)
    encoder = RowEncoder(format, shape)
    (piece,) = encoder.encode(values, 0)
    assert piece.offset == 0 and encoder.finish() == []
    np.testing.assert_array_equal(piece.data, encode_tensor(values, format))


def test_int32_takes_integers_and_checks_their_range():
    encoder = RowEncoder("int32", (3,))
    for kind in (np.int64, np.int32, np.uint16):
        (piece,) = encoder.encode(np.array([1, 2, 65535]).astype(kind), 0)
        assert piece.data.view("<i4").tolist()[:2] == [1, 2]
    with pytest.raises(NumericError, match="outside int32"):
        encoder.encode(np.array([1, 2**31, 0]), 0)


@pytest.mark.parametrize("case", MATRIX_CASES, ids="-".join)
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_nan_and_infinity_are_refused_by_row_and_column(case, bad):
    values = draw((384, 128))
    values[300, 77] = bad
    encoder = RowEncoder(case[0], values.shape, case[1], divisor=1 if case[0] == "nvfp4" else None)
    encoder.encode(values[:256], 0)
    with pytest.raises(NumericError, match=r"row 300, column 77: .*NaN or infinity"):
        encoder.encode(values[256:], 256)


@pytest.mark.parametrize("method", ["absmax", "search"])
def test_nan_is_refused_while_the_divisor_is_chosen(method):
    values = draw((384, 128))
    values[300, 77] = np.nan
    with pytest.raises(NumericError, match="row 300, column 77"):
        RowEncoder("nvfp4", values.shape, method).prepare(lambda: cut(values, 128))


def test_a_scale_that_overflows_is_refused_by_row_and_group():
    values = draw((200, 128))
    values[150, 70] = 1e6
    with pytest.raises(NumericError, match=r"row 150, group 1: .*scale is not finite"):
        encode(values, ("q4_g64_fp16", "absmax"))


def test_divisor_is_chosen_once_and_can_be_given_back():
    values = draw((300, 64))
    encoder = RowEncoder("nvfp4", values.shape, "search")
    assert encoder.needs_preparation
    with pytest.raises(UsageError, match="divisor"):
        encoder.encode(values[:128], 0)
    encoder.prepare(lambda: cut(values, 128))
    resumed = RowEncoder("nvfp4", values.shape, "search", divisor=encoder.divisor)
    resumed.prepare(lambda: pytest.fail("read again"))
    for mine, other in zip(encoder.encode(values, 0), resumed.encode(values, 0), strict=True):
        np.testing.assert_array_equal(mine.data, other.data)


@pytest.mark.parametrize("name, passes", [("bounded", 2), ("zeros", 1)])
def test_search_reads_twice_only_where_another_divisor_promises_less(name, passes):
    values, started = draw_hard_values()[name], []

    def start():
        started.append(None)
        return cut(values, 128)

    encoder = RowEncoder("nvfp4", values.shape, "search")
    encoder.prepare(start)
    assert len(started) == passes
    assert encoder.divisor == encode_tensor(values, "nvfp4", "search")[-4:].view("<f4")[0]


def test_a_divisor_that_only_suits_the_sample_is_dropped(monkeypatch):
    """NF-49: a divisor far too large, proposed by force, loses against absmax."""
    values = draw((256, 64))
    monkeypatch.setattr(
        nvfp4_search, "select_divisor", lambda candidates, errors: candidates[0] * np.float32(64)
    )
    encoder = RowEncoder("nvfp4", values.shape, "search")
    encoder.prepare(lambda: cut(values, 128))
    assert encoder.divisor == np.float32(2688 / float(np.abs(values).max()))


@pytest.mark.parametrize(
    "begin, rows, columns", [(0, 100, 64), (64, 128, 64), (256, 128, 64), (0, 128, 65)]
)
def test_blocks_that_do_not_fit_are_refused(begin, rows, columns):
    encoder = RowEncoder("q4_g64_fp16", (300, 64))
    with pytest.raises(UsageError, match="block does not fit"):
        encoder.encode(np.zeros((rows, columns), np.float32), begin)


def test_a_stream_that_ends_early_is_refused():
    values = draw((300, 64))
    with pytest.raises(UsageError, match="do not cover"):
        RowEncoder("nvfp4", (300, 64)).prepare(lambda: cut(values[:256], 128))


def test_types_formats_and_methods_are_checked():
    with pytest.raises(UsageError, match="type"):
        RowEncoder("fp32", (1, 1)).encode(np.zeros((1, 1)), 0)
    with pytest.raises(UsageError, match="unknown numeric format"):
        RowEncoder("q3", (1, 1))
    with pytest.raises(UsageError, match="unknown method"):
        RowEncoder("bf16", (1, 1), "search")
    with pytest.raises(UsageError, match="only nvfp4"):
        RowEncoder("bf16", (1, 1), divisor=1)
