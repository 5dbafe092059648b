"""Framing of the container: magic, prefix, payload start, part headers."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from ninfer_formats.errors import ArtifactError, ForeignFileError
from ninfer_formats.foreign import SNIFF_BYTES, describe_foreign
from ninfer_formats.layouts.geometry import MAX_OFFSET, align_up

MAGIC = b"NINFER\0"
PART_MAGIC = b"NINPRT\0"
PAYLOAD_ALIGNMENT = 4096
PART_HEADER_BYTES = 4096
# The largest known directory, that of a 397B mixture of experts, is 22 MB.
MAX_DIRECTORY_BYTES = 256 * 2**20
VERSIONS = (1, 2, 3)
ENTRY_HEADER = struct.Struct("<8sQ16s")
LEGACY_HEADER = struct.Struct("<8sQ")


@dataclass(frozen=True)
class Prefix:
    """The fixed start of an entry file; all values in bytes from the start of the file."""

    version: int
    json_bytes: int
    json_offset: int
    payload_start: int
    artifact_id: bytes | None


def magic_version(head: bytes) -> int | None:
    """Return the container version of the first bytes of a file, None when it is not ours."""
    return head[7] if len(head) >= 8 and head.startswith(MAGIC) else None


def part_index(head: bytes) -> int | None:
    """Return the index of a continuation part, None when the bytes are not a part header."""
    if len(head) < 16 or not head.startswith(PART_MAGIC):
        return None
    return int.from_bytes(head[8:16], "little")


def header_bytes(version: int) -> int:
    """Return the byte count of the fixed header of a version."""
    return ENTRY_HEADER.size if version == 3 else LEGACY_HEADER.size


def check_magic(head: bytes, size: int, path: Path) -> int:
    """Return the version, or raise what the file looks like (ForeignFileError, exit 2) or that a
    newer release is needed (ArtifactError)."""
    version = magic_version(head)
    if version in VERSIONS:
        return version
    if version:
        raise ArtifactError(
            f"container version {version} needs a newer release of ninfer",
            path=path,
            got=f"version {version}",
            want="version 1, 2 or 3",
            remedy="install a newer release",
        )
    if head.startswith(PART_MAGIC):
        raise ForeignFileError(_describe_part(head), path=path, remedy=_part_remedy(path))
    looks, action = describe_foreign(head[:SNIFF_BYTES], size)
    raise ForeignFileError(f"not a .ninfer artifact, looks like {looks}", path=path, remedy=action)


def read_prefix(
    head: bytes, size: int, path: Path, max_directory_bytes: int = MAX_DIRECTORY_BYTES
) -> Prefix:
    """Read the prefix of an entry file of `size` bytes from its first 32 bytes or more."""
    version = check_magic(head, size, path)
    json_offset = header_bytes(version)
    if len(head) < json_offset:
        raise ArtifactError(
            f"truncated: file is {size} bytes, its header alone is {json_offset}",
            path=path,
            remedy="download it again",
        )
    json_bytes = int.from_bytes(head[8:16], "little")
    _check_json_bytes(json_bytes, json_offset, size, path, max_directory_bytes)
    return Prefix(
        version=version,
        json_bytes=json_bytes,
        json_offset=json_offset,
        payload_start=align_up(json_offset + json_bytes, PAYLOAD_ALIGNMENT),
        artifact_id=head[16:32] if version == 3 else None,
    )


def _check_json_bytes(
    json_bytes: int, json_offset: int, size: int, path: Path, max_directory_bytes: int
) -> None:
    if json_bytes == 0:
        raise ArtifactError("json_bytes must be positive", path=path, where="offset 8")
    if json_bytes > MAX_OFFSET:
        raise ArtifactError("json_bytes is out of bounds", path=path, where="@8", got=json_bytes)
    if json_bytes > max_directory_bytes:
        raise ArtifactError(
            "directory is larger than the cap",
            path=path,
            where="offset 8",
            got=f"{json_bytes} bytes",
            want=f"<= {max_directory_bytes}",
            remedy="raise it with --max-directory-mib if you trust the file",
        )
    if json_offset + json_bytes > size:
        raise ArtifactError(
            f"truncated: file is {size} bytes, directory alone ends at {json_offset + json_bytes}",
            path=path,
            remedy="download it again",
        )


def _describe_part(head: bytes) -> str:
    index = part_index(head)
    which = "a continuation part" if index is None else f"continuation part {index}"
    return f"this is {which} of a .ninfer artifact, not its entry"


def _part_remedy(path: Path) -> str:
    entry = path.name.rsplit(".part-", 1)[0]
    name = entry if entry != path.name else "the entry file"
    return f"open the entry instead: {name}"
