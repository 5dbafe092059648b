"""Writing safetensors files as a stream: header first, then one tensor after the other."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ITEM_BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "U8": 1}
_HEADER_ALIGNMENT = 8


@dataclass(frozen=True)
class Entry:
    """One tensor to write; `chunks` yields its bytes (uint8 arrays) in order."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    chunks: Callable[[], Iterable[np.ndarray]]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def plan_shards(entries: Iterable[Entry], max_bytes: int) -> list[list[Entry]]:
    """Return the entries in files of at most `max_bytes` of data (a larger tensor stands alone).

    Within a file the widest types come first, so that every tensor is aligned to its own.
    """
    shards: list[list[Entry]] = [[]]
    filled = 0
    for entry in entries:
        if shards[-1] and filled + entry.bytes > max_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(entry)
        filled += entry.bytes
    return [sorted(shard, key=lambda e: -ITEM_BYTES[e.dtype]) for shard in shards]


def build_header(entries: list[Entry]) -> bytes:
    """Return the length prefix and the JSON header, padded with spaces to 8 bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for entry in entries:
        header[entry.name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [position, position + entry.bytes],
        }
        position += entry.bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _HEADER_ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def file_bytes(entries: list[Entry]) -> int:
    """Return the size of the file that holds the entries."""
    return len(build_header(entries)) + sum(entry.bytes for entry in entries)


def write_safetensors(path: Path, entries: list[Entry]) -> Iterator[int]:
    """Write the file durably and yield the byte count of each piece after it was written."""
    with path.open("wb") as file:
        yield file.write(build_header(entries))
        for entry in entries:
            for chunk in entry.chunks():
                yield file.write(chunk.data)
        file.flush()
        os.fsync(file.fileno())
