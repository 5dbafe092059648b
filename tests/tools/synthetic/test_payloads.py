"""Every synthetic tensor decodes, has exactly its encoded size, and depends on its key only."""

from __future__ import annotations

import numpy as np
import pytest

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import rounding
from ninfer_formats.errors import ArtifactError, UsageError
from ninfer_formats.layouts.geometry import encoded_size, plan_tensor
from ninfer_tools.synthetic import payloads
from ninfer_tools.synthetic.payloads import fill_tensor
from ninfer_tools.synthetic.vocabulary import Vocabulary

MATRIX_FORMATS = (nf.Q4, nf.Q5, nf.Q6, nf.Q8, nf.NVFP4, nf.FP8)
# Whole blocks; K not a multiple of 128; a small N; the widest K of the vision tower; odd K.
SHAPES = ((128, 256), (130, 1152), (96, 320), (128, 4304), (3, 17))
PROJECTION = "text/layers/0/mlp/down"


def draw(format: str, shape: tuple[int, ...], parameter: str = PROJECTION, **options) -> bytes:
    key = options.pop("seed_key", (7, 1))
    position, parts = 0, []
    layout = nf.FORMATS[format].layout
    for offset, chunk in fill_tensor(format, layout, shape, key, parameter=parameter, **options):
        assert offset == position and chunk.dtype == np.uint8
        position += chunk.size
        parts.append(chunk.tobytes())
    return b"".join(parts)


def planes_of(format: str, shape: tuple[int, ...], data: bytes) -> dict[str, np.ndarray]:
    words = np.frombuffer(data, np.uint8)
    planes = plan_tensor(format, nf.FORMATS[format].layout, shape).planes
    return {p.name: words[p.offset : p.end].reshape(p.rows, p.row_bytes) for p in planes}


def bits_of(plane: np.ndarray) -> np.ndarray:
    return np.unpackbits(plane, axis=1, bitorder="little")


@pytest.mark.parametrize("format", MATRIX_FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_chunks_cover_exactly_the_encoded_size(format, shape):
    data = draw(format, shape)
    assert len(data) == encoded_size(format, nf.FORMATS[format].layout, shape)


@pytest.mark.parametrize("format", MATRIX_FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_gaps_between_planes_are_zero(format, shape):
    data = np.frombuffer(draw(format, shape), np.uint8).copy()
    for plane in plan_tensor(format, nf.FORMATS[format].layout, shape).planes:
        data[plane.offset : plane.end] = 0
    assert not data.any()


@pytest.mark.parametrize("format", (nf.Q4, nf.Q5, nf.Q6, nf.Q8))
@pytest.mark.parametrize("shape", SHAPES)
def test_grouped_padding_is_zero_and_scales_are_positive(format, shape):
    _, k = shape
    planes = planes_of(format, shape, draw(format, shape))
    group = nf.FORMATS[format].group
    scales = planes["scale"].copy().view("<f2").astype(float)
    assert np.isfinite(scales).all() and (scales[:, : -(-k // group)] > 0).all()
    assert not scales[:, -(-k // group) :].any()
    base_bits = 8 if format == nf.Q8 else 4
    assert not bits_of(planes["base"])[:, k * base_bits :].any()
    if "high" in planes:
        high_bits = nf.FORMATS[format].bits - 4
        assert not bits_of(planes["high"])[:, k * high_bits :].any()


def test_eight_bit_codes_never_hold_minus_128():
    base = planes_of(nf.Q8, (128, 4096), draw(nf.Q8, (128, 4096)))["base"]
    assert set(np.unique(base)) == set(range(256)) - {0x80}


def test_fp8_codes_hold_every_word_but_the_two_nans():
    codes = planes_of(nf.FP8, (128, 4096), draw(nf.FP8, (128, 4096)))["codes"]
    assert set(np.unique(codes)) == set(range(256)) - {0x7F, 0xFF}


@pytest.mark.parametrize("shape", ((128, 64), (96, 320), (130, 1152), (3, 16)))
def test_nvfp4_scales_are_legal_inside_and_zero_in_the_tile_padding(shape):
    n, k = shape
    scales = planes_of(nf.NVFP4, shape, draw(nf.NVFP4, shape))["scales"].ravel()
    blocks, wide = -(-k // 16), -(-k // 64)
    rows, columns = np.meshgrid(np.arange(n), np.arange(blocks), indexing="ij")
    offsets = ((rows // 128) * wide + columns // 4) * 512
    offsets += (rows % 32) * 16 + (rows % 128) // 32 * 4 + columns % 4
    used = np.zeros(scales.size, bool)
    used[offsets] = True
    assert ((scales[used] >= 0x01) & (scales[used] <= 0x7E)).all()
    assert not scales[~used].any()


def test_nvfp4_scales_include_subnormal_words_and_the_largest():
    scales = planes_of(nf.NVFP4, (128, 4096), draw(nf.NVFP4, (128, 4096)))["scales"]
    assert scales.min() < 0x08 and scales.max() == 0x7E


def decode_rows(format: str, shape: tuple[int, int], data: bytes) -> np.ndarray:
    """Decode with arithmetic of this test's own; whole groups only."""
    n, k = shape
    planes = planes_of(format, shape, data)
    if format == nf.FP8:
        scales = rounding.widen_bf16(planes["scale"].copy().view("<u2"))
        return rounding.E4M3_VALUES[planes["codes"]] * scales
    if format == nf.NVFP4:
        codes = np.stack([planes["codes"] & 15, planes["codes"] >> 4], -1).reshape(n, k)
        tiles = planes["scales"].reshape(n // 128, k // 64, 32, 4, 4)
        linear = tiles.transpose(0, 3, 2, 1, 4).reshape(n, k // 16)
        scales = rounding.E4M3_VALUES[linear].repeat(16, 1)
        return rounding.E2M1_VALUES[codes] * scales / planes["divisor"].copy().view("<f4")
    scales = planes["scale"].copy().view("<f2").astype(np.float32)
    scales = scales.repeat(nf.FORMATS[format].group, 1)
    if format == nf.Q8:
        return planes["base"].view(np.int8) * scales
    codes = np.stack([planes["base"] & 15, planes["base"] >> 4], -1).reshape(n, k).astype(int)
    width = nf.FORMATS[format].bits
    if "high" in planes:
        lanes = bits_of(planes["high"]).reshape(n, k, width - 4).astype(int)
        codes += 16 * (lanes << np.arange(width - 4)).sum(-1)
    return np.where(codes >= 1 << (width - 1), codes - (1 << width), codes) * scales


@pytest.mark.parametrize("format", MATRIX_FORMATS)
def test_decoded_projections_have_zero_mean_and_deviation_one_over_root_k(format):
    shape = (1024, 512)
    values = decode_rows(format, shape, draw(format, shape)).astype(np.float64)
    assert np.isfinite(values).all()
    # With one scale per row the sample of 1024 scales leaves about 1 % of error.
    assert values.std() * np.sqrt(512) == pytest.approx(1.0, rel=0.04)
    # A mean far below std / sqrt(K): no common offset grows along the layers.
    assert abs(values.mean()) < 0.01 * values.std()


@pytest.mark.parametrize("format", (nf.BF16, nf.FP32, *MATRIX_FORMATS))
@pytest.mark.parametrize("threads", (2, 5))
def test_bytes_do_not_depend_on_the_number_of_threads(format, threads, monkeypatch):
    monkeypatch.setattr(payloads, "BLOCK_BYTES", 1 << 14)
    shape = (384, 1152)
    assert draw(format, shape, threads=threads) == draw(format, shape, threads=1)


def test_bytes_are_fixed_by_the_key():
    first = draw(nf.Q4, (8, 128), seed_key=(0, 5))
    assert first == draw(nf.Q4, (8, 128), seed_key=(0, 5))
    assert first != draw(nf.Q4, (8, 128), seed_key=(1, 5))
    assert first != draw(nf.Q4, (8, 128), seed_key=(0, 6))
    # A changed generator would silently change every synthetic model ever named.
    assert first[:8].hex() == GOLDEN_PREFIX


GOLDEN_PREFIX = "549e3a4aedab224b"


def test_chunks_stay_bounded():
    sizes = [c.size for _, c in fill_tensor(nf.BF16, nf.CONTIGUOUS, (4096, 4096), (1,))]
    assert len(sizes) == 8 and max(sizes) == 4 << 20


@pytest.mark.parametrize(
    ("parameter", "shape", "mean", "std"),
    [
        ("text/layers/0/input_norm", (4096,), 0.0, 0.05),
        ("text/layers/3/attention/query_norm", (4096,), 0.0, 0.05),
        ("mtp/embedding_norm", (4096,), 0.0, 0.05),
        ("text/layers/0/gdn/norm", (4096,), 1.0, 0.05),
        ("dflash2/layers/0/attention/key_norm", (4096,), 1.0, 0.05),
        ("dflash/context_norm", (4096,), 1.0, 0.05),
        ("vision/layers/2/norm1_weight", (4096,), 1.0, 0.05),
        ("vision/layers/2/norm1/weight", (4096,), 1.0, 0.05),
        ("vision/merger/norm_bias", (4096,), 0.0, 0.02),
        ("vision/layers/2/attention/qkv_bias", (4096,), 0.0, 0.02),
        ("text/layers/0/gdn/convolution", (4, 4096), 0.0, 0.5),
        ("text/token_embedding", (64, 1024), 0.0, 0.02),
        ("vision/position_embedding", (64, 1024), 0.0, 0.02),
        ("text/output_head", (64, 1024), 0.0, 1 / 32),
        ("text/layers/0/gdn/a_projection", (48, 1024), 0.0, 1 / 32),
        ("vision/patch_embedding", (64, 4, 4, 8, 8), 0.0, 1 / 32),
    ],
)
def test_values_follow_the_role_of_the_parameter(parameter, shape, mean, std):
    values = rounding.widen_bf16(np.frombuffer(draw(nf.BF16, shape, parameter), "<u2"))
    assert values.mean() == pytest.approx(mean, abs=4 * std / np.sqrt(values.size) + 1e-4)
    assert values.std() == pytest.approx(std, rel=0.08)


def test_quantised_embedding_has_the_deviation_of_an_embedding():
    shape = (256, 1024)
    data = draw(nf.Q8, shape, "text/token_embedding")
    assert decode_rows(nf.Q8, shape, data).std() == pytest.approx(0.02, rel=0.02)


def test_a_log_is_the_logarithm_of_one_to_sixteen():
    values = np.frombuffer(draw(nf.FP32, (4096,), "text/layers/0/gdn/a_log"), "<f4")
    assert 0 < values.min() < 0.1 and np.log(15.8) < values.max() < np.log(16)


def test_dt_bias_gives_steps_between_a_thousandth_and_a_tenth():
    values = np.frombuffer(draw(nf.FP32, (4096,), "text/layers/0/gdn/dt_bias"), "<f4")
    steps = np.log1p(np.exp(values.astype(np.float64)))
    assert 0.000999 < steps.min() < 0.0012 and 0.09 < steps.max() < 0.1001


def test_activation_divisor_is_a_positive_scalar_near_336():
    name = "text/layers/0/mlp/gate_up_projection/input_scale_divisor"
    (value,) = np.frombuffer(draw(nf.FP32, (), name), "<f4")
    assert 252 <= value <= 420


def test_proposal_ids_ascend_and_hold_every_special_id():
    vocabulary = Vocabulary(1000)
    name = "proposal/token_ids"
    ids = np.frombuffer(draw(nf.INT32, (500,), name, vocabulary=vocabulary), "<i4")
    assert (np.diff(ids) > 0).all() and ids[0] >= 0 and ids[-1] == 999
    assert set(vocabulary.special_ids()) <= set(ids.tolist())


def test_more_proposal_ids_than_tokens_are_refused():
    with pytest.raises(UsageError, match="do not fit the vocabulary"):
        draw(nf.INT32, (1001,), "proposal/token_ids", vocabulary=Vocabulary(1000))


def test_layout_of_another_format_is_refused():
    with pytest.raises(ArtifactError, match="layout does not hold"):
        fill_tensor(nf.Q4, nf.BLOCK_SCALE, (128, 128), (0,))
