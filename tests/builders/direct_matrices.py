"""Artifacts of a few direct tensors whose bytes a test spoils."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from builders.artifact_bytes import entry_bytes, legacy_bytes, part_bytes, save, small_root

LEGACY_NAMES = {"bf16": "BF16", "fp32": "FP32", "int32": "I32"}
WORD_BYTES = {"bf16": 2, "fp32": 4, "int32": 4}


def place(*tensors: tuple[str, tuple[int, ...]], first: int = 0) -> list[dict[str, Any]]:
    """Return version 3 records of tensors (format, shape): text/0, text/1, ... from `first` on."""
    records, cursor = [], first
    for index, (format, shape) in enumerate(tensors):
        offset = -(-cursor // 256) * 256
        size = int(np.prod(shape)) * WORD_BYTES[format]
        records.append(
            {"id": f"text/{index}", "shape": list(shape), "format": format, "offset": offset,
             "layout": "contiguous_le_v1", "bytes": size, "kind": "tensor"}
        )  # fmt: skip
        cursor = offset + size
    return records


def fill(records: list[dict[str, Any]]) -> bytearray:
    """Return the payload of records with no zero byte in any tensor: words 0x3F3F."""
    payload = bytearray(records[-1]["offset"] + records[-1]["bytes"])
    for item in records:
        payload[item["offset"] : item["offset"] + item["bytes"]] = b"\x3f" * item["bytes"]
    return payload


def save_legacy(path: Path, records: list[dict[str, Any]], payload: bytes) -> Path:
    """Write a version 2 file of an unregistered model; its payload begins at byte 4096."""
    objects = [
        {"name": item["id"], "kind": "tensor", "shape": item["shape"],
         "format": LEGACY_NAMES[item["format"]], "layout": "contiguous-le-v1",
         "offset": item["offset"], "bytes": item["bytes"]}
        for item in records
    ]  # fmt: skip
    root = {"identity": {"model_id": "x", "weights_id": "y"}, "objects": objects}
    return save(path, legacy_bytes(2, root, bytes(payload)))


def save_in_parts(
    path: Path, records: list[dict[str, Any]], payload: bytes, sizes: list[int]
) -> Path:
    """Write a version 3 artifact whose files hold `sizes` payload bytes each."""
    root = small_root() | {"objects": records, "bindings": {}, "uses": []}
    del root["components"]["text"]["resources"]
    names = [None, *(f"{path.name}.part-{index:04d}" for index in range(1, len(sizes)))]
    root["files"] = [
        {"path": name, "payload_bytes": size} for name, size in zip(names, sizes, strict=True)
    ]
    ends = np.cumsum(sizes)
    for index, name in enumerate(names[1:], 1):
        data = part_bytes(index, bytes(payload[ends[index - 1] : ends[index]]))
        save(path.parent / str(name), data)
    return save(path, entry_bytes(root, bytes(payload[: ends[0]])))
