"""Safetensors files are laid out as every reader expects."""

from __future__ import annotations

import numpy as np

from ninfer_tools.synthetic.safetensors_file import (
    Entry,
    file_bytes,
    plan_shards,
    write_safetensors,
)


def entry(name: str, dtype: str, *shape: int) -> Entry:
    value = Entry(name, dtype, shape, list)
    data = np.arange(value.bytes, dtype=np.uint8)
    return Entry(name, dtype, shape, lambda: [data[:3], data[3:]])


def test_file_is_length_header_and_data(tmp_path):
    path = tmp_path / "x.safetensors"
    entries = [entry("a", "F32", 1), entry("b", "U8", 2, 3)]
    assert sum(write_safetensors(path, entries)) == file_bytes(entries) == path.stat().st_size
    header = (
        b'{"__metadata__":{"format":"pt"},'
        b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        b'"b":{"dtype":"U8","shape":[2,3],"data_offsets":[4,10]}}'
    )
    padded = header + b" " * (-len(header) % 8)
    data = bytes([0, 1, 2, 3]) + bytes([0, 1, 2, 3, 4, 5])
    assert path.read_bytes() == len(padded).to_bytes(8, "little") + padded + data


def test_shards_fill_in_order_and_a_large_tensor_stands_alone():
    entries = [entry(n, "U8", size) for n, size in zip("abcd", (6, 4, 30, 1), strict=True)]
    names = [[e.name for e in shard] for shard in plan_shards(entries, 10)]
    assert names == [["a", "b"], ["c"], ["d"]]


def test_wide_types_come_first_so_that_tensors_are_aligned():
    entries = [entry("a", "U8", 3), entry("b", "BF16", 3), entry("c", "F32", 1)]
    (shard,) = plan_shards(entries, 100)
    assert [e.name for e in shard] == ["c", "b", "a"]
