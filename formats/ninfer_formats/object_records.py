"""Object records of a directory: member checks and the walk that every version obeys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import Resource, StoredObject, Tensor
from ninfer_formats.errors import ArtifactError
from ninfer_formats.layouts.geometry import (
    MAX_OFFSET,
    MAX_RANK,
    TENSOR_ALIGNMENT,
    encoded_size,
)


def read_integer(value: Any, *where: object, least: int = 0) -> int:
    """Return an integer of the directory, refusing booleans, floats and values out of bounds.

    `where` is put together only for the message: this runs thousands of times per file.
    """
    if type(value) is not int or not least <= value <= MAX_OFFSET:
        raise ArtifactError(
            "not a legal integer", where=_join(where), got=value, want=f"{least}..{MAX_OFFSET}"
        )
    return value


def read_id(value: Any, *where: object) -> str:
    """Return a nonempty string without U+0000."""
    if type(value) is not str or not value or "\0" in value:
        raise ArtifactError(
            "not a legal name",
            where=_join(where),
            got=repr(value),
            want="nonempty string without U+0000",
        )
    return value


def check_members(
    value: Any, *where: object, required: frozenset[str], optional: frozenset[str] = frozenset()
) -> Mapping[str, Any]:
    """Return a closed object after checking its member names."""
    if type(value) is not dict:
        raise ArtifactError("not an object", where=_join(where), got=type(value).__name__)
    keys = value.keys()
    if keys == required:
        return value
    if missing := required - keys:
        raise ArtifactError("required member is missing", where=_join(where), want=sorted(missing))
    if unknown := keys - required - optional:
        raise ArtifactError("unknown member", where=_join(where), got=sorted(unknown))
    return value


def read_shape(value: Any, *where: object) -> tuple[int, ...]:
    """Return a shape of rank 0..16 whose element count stays below 2**63."""
    if type(value) is not list or len(value) > MAX_RANK:
        raise ArtifactError(
            "not a legal shape", where=_join(where), got=value, want="0 to 16 sizes"
        )
    count = 1
    for size in value:
        count *= read_integer(size, *where, least=1)
    if count > MAX_OFFSET:
        raise ArtifactError(
            "shape is too large", where=_join(where), got=value, want="< 2**63 elements"
        )
    return tuple(value)


def _join(where: tuple[object, ...]) -> str:
    return " ".join(map(str, where))


def find_object_problem(item: StoredObject) -> ArtifactError | None:
    """Return why an object cannot be used: unknown format, layout or encoding, wrong size, rank
    or alignment; None when it can."""
    where = f"object {item.id}"
    if isinstance(item, Resource):
        if item.encoding != nf.RAW_ENCODING:
            return ArtifactError(
                "unknown resource encoding", where=where, got=item.encoding, want=nf.RAW_ENCODING
            )
        return None
    try:
        size = encoded_size(item.format, item.layout, item.shape, item.divisors)
    except ArtifactError as error:
        hint = nf.explain_fork_name(item.format) or nf.explain_fork_name(item.layout)
        return ArtifactError(error.what, where=where, got=error.got, want=error.want, remedy=hint)
    if size != item.bytes:
        return ArtifactError(
            f"tensor stores {item.bytes} bytes; its layout requires {size}",
            where=where,
            got=f"{item.format} {list(item.shape)}",
        )
    if item.offset % TENSOR_ALIGNMENT:
        return ArtifactError(
            "tensor is not aligned", where=where, got=item.offset, want="multiple of 256"
        )
    return None


def check_order(objects: Sequence[StoredObject], payload_bytes: int | None) -> int:
    """Check that objects lie in order without overlap and inside the payload; return the end."""
    cursor = 0
    for item in objects:
        if item.offset < cursor:
            raise ArtifactError(
                "overlaps the object before it or is out of order",
                where=f"object {item.id}",
                got=f"offset {item.offset}",
                want=f">= {cursor}",
            )
        cursor = item.offset + item.bytes
        if cursor > MAX_OFFSET or (payload_bytes is not None and cursor > payload_bytes):
            raise ArtifactError(
                "ends beyond the payload",
                where=f"object {item.id}",
                got=cursor,
                want=f"<= {MAX_OFFSET if payload_bytes is None else payload_bytes}",
            )
    return cursor


def index_objects(objects: Sequence[StoredObject]) -> dict[str, StoredObject]:
    """Return the objects by id, refusing duplicates."""
    index: dict[str, StoredObject] = {}
    for item in objects:
        if item.id in index:
            raise ArtifactError("duplicate object name", where=f"object {item.id}")
        index[item.id] = item
    return index


def read_plain_tensor(record: Any, name_member: str) -> Tensor | None:
    """Return a tensor record in which everything is as usual, None for any other.

    The usual record takes this one pass; all others go through the checks above, which say what
    is wrong with them. Nothing may pass here that they would refuse.
    """
    if type(record) is not dict or len(record) != 7 or record.get("kind") != "tensor":
        return None
    try:
        name, shape, format, layout = (
            record[name_member],
            record["shape"],
            record["format"],
            record["layout"],
        )
        offset, size = record["offset"], record["bytes"]
    except KeyError:
        return None
    count = 1
    if type(shape) is not list or len(shape) > MAX_RANK:
        return None
    for axis in shape:
        if type(axis) is not int or axis < 1:
            return None
        count *= axis
    if not (type(name) is str and type(format) is str and type(layout) is str):
        return None
    if not (name and format and layout) or "\0" in name or "\0" in format or "\0" in layout:
        return None
    if not (type(offset) is int and type(size) is int and count <= MAX_OFFSET):
        return None
    if not (0 <= offset <= MAX_OFFSET and 1 <= size <= MAX_OFFSET):
        return None
    return Tensor(name, tuple(shape), format, layout, offset, size)


def read_span(record: Mapping[str, Any], item_id: str) -> tuple[int, int]:
    """Return (offset, bytes) of an object record."""
    return (
        read_integer(record["offset"], "object", item_id, "offset"),
        read_integer(record["bytes"], "object", item_id, "bytes", least=1),
    )


def read_divisors(record: Mapping[str, Any], item_id: str, shape: tuple[int, ...]) -> int:
    """Return the optional member `divisors` (NVFP4 row stacks), 1 when absent."""
    if "divisors" not in record:
        return 1
    where = f"object {item_id} divisors"
    if record["format"] != nf.NVFP4 or len(shape) != 2:
        raise ArtifactError("only an NVFP4 matrix has divisors", where=where)
    count = read_integer(record["divisors"], where, least=1)
    if shape[0] % count:
        raise ArtifactError("divisors must split the rows evenly", where=where, got=count)
    return count
