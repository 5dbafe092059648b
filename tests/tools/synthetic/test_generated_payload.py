"""Laws of a payload that is drawn when it is read."""

from __future__ import annotations

import numpy as np
import pytest

from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import UsageError
from ninfer_tools.synthetic import payloads, tensor_blocks
from ninfer_tools.synthetic.artifact import open_synthetic
from ninfer_tools.synthetic.payloads import fill_tensor
from ninfer_tools.synthetic.tensor_blocks import list_blocks

TEXT = "qwen3.5-0.8b:nvfp4-official:layers=1:vocab=600:components=text"


@pytest.mark.parametrize("format", [f for f in nf.FORMATS if f != nf.INT32])
@pytest.mark.parametrize("shape", [(128, 256), (130, 1152), (3, 17)])
def test_blocks_hold_what_the_stream_holds(format, shape, monkeypatch):
    monkeypatch.setattr(payloads, "BLOCK_BYTES", 1 << 13)
    layout, options = nf.FORMATS[format].layout, {"parameter": "text/layers/0/mlp/down"}
    position = 0
    stream = b"".join(
        data.tobytes() for _, data in fill_tensor(format, layout, shape, (3, 4), **options)
    )
    # Drawn backwards: no block depends on another.
    for block in reversed(list(list_blocks(format, layout, shape, (3, 4), **options))):
        assert block.draw().tobytes() == stream[block.offset : block.end]
        position = max(position, block.end)
    assert position == len(stream)


@pytest.fixture(scope="module")
def whole() -> np.ndarray:
    payload = open_synthetic(TEXT).payload
    return payload.read(0, payload.bytes)


def test_every_span_is_a_cut_of_the_whole(whole):
    kept = open_synthetic(TEXT).payload
    generator = np.random.Generator(np.random.PCG64(1))
    for _ in range(40):
        begin = int(generator.integers(0, whole.size))
        count = min(int(2 ** generator.uniform(0, 20)), whole.size - begin)
        payload = open_synthetic(TEXT).payload if begin % 2 else kept
        assert (payload.read(begin, count) == whole[begin : begin + count]).all()


def test_bytes_between_objects_are_zero(whole):
    cursor = 0
    for item in open_synthetic(TEXT).objects.values():
        assert not whole[cursor : item.offset].any()
        cursor = item.end
    assert cursor == whole.size


def test_small_read_draws_only_the_blocks_it_touches(monkeypatch):
    artifact, drawn = open_synthetic(TEXT), []
    real = tensor_blocks.draw_block
    monkeypatch.setattr(tensor_blocks, "draw_block", lambda *a: drawn.append(a) or real(*a))
    largest = max(artifact.tensors(), key=lambda item: item.bytes)
    assert largest.bytes > payloads.BLOCK_BYTES
    artifact.payload.read(largest.offset, 16)
    assert len(drawn) == 1


def test_parameters_of_one_tensor_draw_it_once(monkeypatch):
    artifact, reads = open_synthetic(TEXT), []
    draw = type(artifact.payload)._draw
    monkeypatch.setattr(
        type(artifact.payload), "_draw", lambda self, *span: reads.append(span) or draw(self, *span)
    )
    for name in ("gate", "up"):
        artifact.parameter(f"text/layers/0/mlp/{name}").views()
    assert len(reads) == 1


def test_generated_bytes_are_read_only():
    data = open_synthetic(TEXT).payload.read(0, 100)
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1


def test_whole_file_is_refused_with_the_way_to_one():
    with pytest.raises(UsageError, match=r"make_synthetic\.py"):
        open_synthetic(TEXT).payload.file(0)
