"""Headers of safetensors files, from writers that cannot be trusted (rules S-10 to S-15)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple, TypeGuard

from ninfer_formats.errors import NinferError
from ninfer_formats.foreign import SNIFF_BYTES, describe_foreign
from ninfer_tools.convert.sources.files import CheckpointFiles
from ninfer_tools.convert.sources.json_text import read_json_object

# The bound of the safetensors library itself.
MAX_HEADER_BYTES = 100_000_000
PREFIX_BYTES = 8
ITEM_BITS = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}
_MAX_DIMENSIONS = 16
_MAX_ELEMENTS = 2**60


class StoredTensor(NamedTuple):
    """A tensor of a safetensors file: bytes [begin, end) of `file`, little-endian, C order."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    begin: int
    end: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def read_header(files: CheckpointFiles, name: str) -> list[StoredTensor]:
    """Return the tensors of a safetensors file in the order of their bytes.

    Reads the header and nothing else. Raises NinferError when the file is something else, is
    shorter or longer than its header says, or the header contradicts itself.
    """
    path, size = files.path(name), files.size(name)
    length = _header_length(files.read(name, 0, SNIFF_BYTES), size, path)
    raw = files.read(name, PREFIX_BYTES, PREFIX_BYTES + length)
    header = read_json_object(raw, "safetensors header", path)
    header.pop("__metadata__", None)
    base = PREFIX_BYTES + length
    tensors = [_read_entry(key, entry, name, base, path) for key, entry in header.items()]
    tensors.sort(key=lambda t: (t.begin, t.end))
    _check_order(tensors, base, path)
    _check_size(tensors, base, size, path)
    return tensors


def _header_length(head: bytes, size: int, path: str) -> int:
    length = int.from_bytes(head[:PREFIX_BYTES], "little")
    opens = head[PREFIX_BYTES : PREFIX_BYTES + 1] == b"{"
    if size < PREFIX_BYTES + 2 or length > MAX_HEADER_BYTES or not opens:
        found, action = describe_foreign(head, size)
        if found == "an unknown file" and size >= PREFIX_BYTES:
            found, action = f"a header of {length:,} bytes", "download it again"
        elif found == "a safetensors file" and not opens:
            first = head[PREFIX_BYTES : PREFIX_BYTES + 1].decode("latin-1")
            found, action = (
                f"a header that begins with {first!r}",
                "save it again: it begins with {",
            )
        elif found in ("an unknown file", "a safetensors file"):
            found = f"a file of {size} bytes"
        raise NinferError("not a safetensors file", path=path, got=found, remedy=action)
    if PREFIX_BYTES + length > size:
        raise _cut_short(size, f"more than the {PREFIX_BYTES + length} bytes of its header", path)
    return length


def _cut_short(size: int, want: object, path: str) -> NinferError:
    return NinferError(
        "file is cut short", path=path, got=f"{size} bytes", want=want, remedy="download it again"
    )


def _read_entry(key: str, entry: Any, file: str, base: int, path: str) -> StoredTensor:
    if not isinstance(entry, dict):
        raise _bad_entry(key, path, type(entry).__name__, "an object")
    dtype, shape = entry.get("dtype"), entry.get("shape")
    if not isinstance(dtype, str) or dtype not in ITEM_BITS:
        raise _bad_entry(f"{key}.dtype", path, dtype, "a dtype of the safetensors format")
    if not _are_counts(shape) or len(shape) > _MAX_DIMENSIONS:
        raise _bad_entry(f"{key}.shape", path, shape, "a list of sizes")
    offsets = entry.get("data_offsets")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _bad_entry(f"{key}.data_offsets", path, offsets, "begin and end")
    bits = math.prod(shape) * ITEM_BITS[dtype]
    if bits > _MAX_ELEMENTS or bits != 8 * (offsets[1] - offsets[0]):
        got = f"{offsets[1] - offsets[0]} bytes"
        want = f"{bits / 8:.16g} for {dtype} {shape}"
        raise _bad_entry(f"{key}.data_offsets", path, got, want)
    return StoredTensor(key, dtype, tuple(shape), file, base + offsets[0], base + offsets[1])


def _bad_entry(where: str, path: str, got: object, want: str) -> NinferError:
    return NinferError(
        "safetensors header is broken", path=path, where=where, got=got, want=want,
        remedy="download it again",
    )  # fmt: skip


def _are_counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)


def _check_order(tensors: list[StoredTensor], base: int, path: str) -> None:
    """Refuse tensors that overlap or leave bytes between them, as every reader does."""
    if tensors and tensors[0].begin != base:
        got = f"{tensors[0].begin - base} unused bytes in front"
        raise _bad_entry(tensors[0].name, path, got, "the first tensor at offset 0")
    for before, after in pairwise(tensors):
        if after.begin != before.end:
            what = "overlaps" if after.begin < before.end else "leaves unused bytes after"
            got = f"{after.begin - base}, which {what} {before.name}"
            raise _bad_entry(after.name, path, got, f"begin at {before.end - base}")


def _check_size(tensors: list[StoredTensor], base: int, size: int, path: str) -> None:
    want = tensors[-1].end if tensors else base
    if size < want:
        raise _cut_short(size, f"{want} bytes, as its header says", path)
    if size > want:
        raise NinferError(
            "file is longer than its header says", path=path, got=f"{size} bytes",
            want=f"{want} bytes", remedy="download it again",
        )  # fmt: skip
