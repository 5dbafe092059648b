"""Laws of whole tensors: `specs/numeric-formats.md`, rules NF-6 and NF-7."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs import encoding
from ninfer_formats.errors import ArtifactError, NumericError, UsageError
from ninfer_formats.tensors import decode_tensor, encode_tensor, find_illegal_words

MATRICES = [nf.Q4, nf.Q5, nf.Q6, nf.Q8, nf.NVFP4, nf.FP8]


def gaussian(n: int, k: int) -> np.ndarray:
    return np.random.default_rng(10).standard_normal((n, k)).astype(np.float32)


@pytest.mark.parametrize("format", MATRICES)
@pytest.mark.parametrize("k", [130, 4304])
def test_chunks_do_not_show_in_the_bytes(format, k, monkeypatch):
    """NF-7: 300 rows in one chunk and in many."""
    values = gaussian(300, k)
    many = encode_tensor(values, format)
    monkeypatch.setattr(encoding, "CHUNK_VALUES", values.size)
    assert (encode_tensor(values, format) == many).all()


@pytest.mark.parametrize(
    "format, share",
    [(nf.Q4, 2e-2), (nf.Q5, 5e-3), (nf.Q6, 1e-3), (nf.Q8, 1e-4), (nf.NVFP4, 1e-2), (nf.FP8, 1e-3)],
)
def test_decoded_values_are_near_the_source(format, share):
    """NF-20, NF-30, NF-40: mean squared error of unit Gaussian values, K = 4304 and N = 96."""
    values = gaussian(96, 4304)
    decoded = decode_tensor(
        encode_tensor(values, format), format, nf.FORMATS[format].layout, values.shape
    )
    assert np.square(values - decoded).mean() < share


@pytest.mark.parametrize("format", [nf.BF16, nf.FP32, *MATRICES])
def test_narrow_sources_encode_as_their_widened_values(format):
    """NF-6."""
    half = gaussian(7, 130).astype(np.float16)
    words = np.array([[0x3F80, 0xBF81, 0x0001, 0x8000]], np.uint16)
    wide = (words.astype(np.uint32) << 16).view(np.float32)
    assert (encode_tensor(half, format) == encode_tensor(half.astype(np.float32), format)).all()
    assert (encode_tensor(words, format) == encode_tensor(wide, format)).all()


@pytest.mark.parametrize(
    "format, method", [(nf.BF16, None), (nf.Q6, None), (nf.NVFP4, "search"), (nf.FP8, None)]
)
def test_temporaries_stay_small(format, method):
    """NF-7: 64 MiB of source, less than 64 MiB beyond source and result on every path."""
    values = gaussian(1024, 16384)
    tracemalloc.start()
    encoded = encode_tensor(values, format, method)
    encode_peak = tracemalloc.get_traced_memory()[1] - encoded.nbytes
    tracemalloc.reset_peak()
    layout = nf.FORMATS[format].layout
    decoded = decode_tensor(encoded, format, layout, values.shape)
    decode_peak = tracemalloc.get_traced_memory()[1] - encoded.nbytes - decoded.nbytes
    tracemalloc.reset_peak()
    found = find_illegal_words(encoded, format, layout, values.shape)
    check_peak = tracemalloc.get_traced_memory()[1] - encoded.nbytes - decoded.nbytes
    tracemalloc.stop()
    assert found == []
    assert max(encode_peak, decode_peak, check_peak) < 64 * 2**20


def test_error_names_the_row_of_the_whole_tensor():
    """NF-24, NF-32, NF-43: chunks do not shift the row."""
    values = gaussian(1000, 1024)
    values[777, 5] = np.nan
    for format in MATRICES:
        with pytest.raises(NumericError, match="row 777, column 5"):
            encode_tensor(values, format)


def test_wrong_calls_are_refused():
    """NF-6, LY-2."""
    with pytest.raises(UsageError, match="float64"):
        encode_tensor(np.zeros((2, 2)), nf.Q4)
    with pytest.raises(UsageError, match="got guess, want absmax, search"):
        encode_tensor(gaussian(2, 2), nf.NVFP4, "guess")
    with pytest.raises(UsageError, match="unknown numeric format"):
        encode_tensor(gaussian(2, 2), "q3")
    with pytest.raises(ArtifactError, match="matrices only"):
        encode_tensor(np.zeros(2, np.float32), nf.Q4)
    with pytest.raises(ArtifactError, match="wrong size"):
        decode_tensor(b"123", nf.FP32, nf.CONTIGUOUS, (1,))
