"""Laws of `Matrix`: planes as in the artifact, values as its codecs say (rule N-9)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import fp8_row, grouped_int, nvfp4
from ninfer_formats.layouts import block_scale, row_split
from ninfer_kernels.launch import TRITON
from ninfer_kernels.linear import (
    Matrix,
    blank_matrix,
    decode_matrix,
    join_rows,
    linear,
    plane_forms,
)
from ninfer_kernels.linear.cases import random_matrix
from ninfer_kernels.linear.matrix import BF16, FORMATS, FP8, FP32, GROUPS, NVFP4, Q4, Q5, Q6, Q8


def bits(values: torch.Tensor | np.ndarray) -> list[int]:
    return torch.as_tensor(np.asarray(values)).contiguous().view(torch.int32).flatten().tolist()


def as_tensor(plane: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(plane))


def integer_matrix(format: str, codes: np.ndarray, scales: np.ndarray) -> Matrix:
    planes = row_split.pack(codes, scales, format)
    tensors = {name: as_tensor(plane) for name, plane in planes.items()}
    tensors["scale"] = tensors["scale"].view(torch.float16)
    return Matrix(format, *codes.shape, tensors)


@pytest.mark.parametrize("format", [Q4, Q5, Q6, Q8])
@pytest.mark.parametrize("columns", [1, 64, 130, 384])
def test_integer_values_equal_the_codec_bit_for_bit(format, columns):
    """N-9."""
    random = np.random.default_rng(columns)
    span = grouped_int.CODES[format]
    codes = random.integers(span.low, span.high + 1, (3, columns)).astype(np.int8)
    groups = -(-columns // GROUPS[format])
    scales = random.uniform(1e-7, 2, (3, groups)).astype(np.float16).view(np.uint16)
    matrix = integer_matrix(format, codes, scales)
    assert bits(decode_matrix(matrix)) == bits(grouped_int.decode(codes, scales, format))


@pytest.mark.parametrize("columns", [1, 16, 40, 130])
def test_nvfp4_values_equal_the_codec_bit_for_bit(columns):
    """N-9: every scale word, signed zeros, one divisor per row."""
    random = np.random.default_rng(columns)
    codes = random.integers(0, 16, (127, columns)).astype(np.uint8)
    blocks = -(-columns // 16)
    scales = np.repeat(np.arange(127, dtype=np.uint8)[:, None], blocks, axis=1)
    divisors = random.uniform(1e-3, 1e4, 127).astype(np.float32)
    planes = {
        "codes": as_tensor(block_scale.pack_codes(codes)),
        "scales": as_tensor(scales),
        "divisor": as_tensor(divisors),
    }
    matrix = Matrix(NVFP4, 127, columns, planes)
    assert bits(decode_matrix(matrix)) == bits(nvfp4.decode(codes, scales, divisors))


def test_fp8_values_equal_the_codec_bit_for_bit():
    """N-9: every legal word."""
    words = np.array([w for w in range(256) if w & 0x7F != 0x7F], np.uint8)[None].repeat(2, 0)
    scales = torch.tensor([0.013, 2.5]).bfloat16()
    matrix = Matrix(FP8, 2, 254, {"codes": as_tensor(words), "scale": scales})
    want = fp8_row.decode(words, scales.view(torch.uint16).numpy())
    assert bits(decode_matrix(matrix)) == bits(want)


def test_direct_values_are_the_words():
    """N-9."""
    values = torch.tensor([[1.5, -0.0, 3e38], [1e-40, float("inf"), -2.0]])
    assert bits(decode_matrix(Matrix(FP32, 2, 3, {"values": values}))) == bits(values)
    narrow = values.bfloat16()
    assert bits(decode_matrix(Matrix(BF16, 2, 3, {"values": narrow}))) == bits(narrow.float())


@pytest.mark.parametrize("format", FORMATS)
def test_kernel_decodes_bit_for_bit(format, device):
    """N-9: one-hot rows of x bring out single values, rounded nowhere in float32."""
    matrix = random_matrix(format, 33, 130, torch.Generator(device).manual_seed(1))
    eye = torch.eye(130, device=device)[17:40]
    wide = linear(eye, matrix, backend=TRITON)
    assert torch.equal(wide, decode_matrix(matrix).T[17:40])


@pytest.mark.parametrize("format", FORMATS)
def test_cut_rows_are_views_of_the_same_values(format):
    matrix = random_matrix(format, 9, 70, torch.Generator().manual_seed(2))
    part = matrix.cut_rows(2, 5)
    assert torch.equal(decode_matrix(part), decode_matrix(matrix)[2:5])
    assert torch.equal(decode_matrix(matrix, 2, 5), decode_matrix(matrix)[2:5])
    for name, plane in part.planes.items():
        row_bytes = plane[0].numel() * plane.element_size()
        assert plane.data_ptr() == matrix.planes[name].data_ptr() + 2 * row_bytes


@pytest.mark.parametrize("format", FORMATS)
def test_joined_rows_keep_their_values(format):
    """Matrices with different divisors or row scales stay exact."""
    generator = torch.Generator().manual_seed(3)
    parts = [random_matrix(format, rows, 70, generator) for rows in (1, 4, 2)]
    want = torch.cat([decode_matrix(part) for part in parts])
    assert torch.equal(decode_matrix(join_rows(parts)), want)


def test_gathered_rows_follow_the_ids():
    matrix = random_matrix(Q6, 9, 70, torch.Generator().manual_seed(4))
    ids = torch.tensor([8, 0, 0, 3])
    assert torch.equal(decode_matrix(matrix.gather_rows(ids)), decode_matrix(matrix)[ids])


def test_formats_have_the_names_of_the_container():
    assert set(FORMATS) == set(nf.FORMATS) - {nf.INT32}
    assert {nf.Q4: 64, nf.Q5: 64, nf.Q6: 64, nf.Q8: 32} == GROUPS


def test_bytes_of_a_plane_set_are_those_of_the_artifact():
    """[7168, 5120] in q5: 24,084,480 bytes, as the container's layout has without padding."""
    forms = plane_forms(Q5, 7168, 5120)
    total = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in forms.values())
    assert total == 24_084_480
    assert blank_matrix(Q5, 2, 130).bytes == 256 + 64 + 16


def test_wrong_planes_are_refused():
    good = dict(blank_matrix(Q5, 2, 130).planes)
    for planes, text in (
        ({"base": good["base"]}, r"planes of q5_g64_fp16: got \['base'\], want \['base', 'high'"),
        ({**good, "scale": good["scale"].float()}, "plane scale .* want .* torch.float16"),
        ({**good, "high": good["high"][:, :8]}, r"plane high .*got \[2, 8\]"),
        ({**good, "base": good["base"].T.contiguous().T}, "plane base .* is not contiguous"),
    ):
        with pytest.raises(ValueError, match=text):
            Matrix(Q5, 2, 130, planes)
    with pytest.raises(ValueError, match="unknown matrix format: got int32, want one of bf16"):
        plane_forms("int32", 1, 1)
    with pytest.raises(ValueError, match=r"rows of a matrix: got 1\.\.3, want within 0\.\.2"):
        blank_matrix(Q5, 2, 130).cut_rows(1, 3)
    with pytest.raises(ValueError, match="want one format and column count"):
        join_rows([blank_matrix(Q5, 2, 130), blank_matrix(Q4, 2, 130)])
