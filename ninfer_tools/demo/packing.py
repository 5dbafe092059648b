"""Packed files: one zstandard frame each, with the hashes of both forms checked."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ninfer_formats.errors import ArtifactError

LEVEL = 19
REINSTALL = "reinstall ninfer: its bundled data is damaged"


def pack(content: bytes) -> bytes:
    """Return one frame with its content's size and checksum; the same bytes for the same input."""
    import zstandard

    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(content)


def unpack(path: Path, packed_sha256: str, sha256: str) -> bytes:
    """Return the content of a packed file; ArtifactError unless both hashes hold."""
    import zstandard

    try:
        packed = path.read_bytes()
    except OSError as error:
        raise ArtifactError(
            "bundled file cannot be read", path=path, got=error.strerror, remedy=REINSTALL
        ) from error
    _check(path, packed, packed_sha256, "packed content")
    try:
        content = zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError as error:
        raise ArtifactError(
            "bundled file cannot be unpacked", path=path, got=error, remedy=REINSTALL
        ) from error
    _check(path, content, sha256, "unpacked content")
    return content


def _check(path: Path, content: bytes, want: str, where: str) -> None:
    got = hashlib.sha256(content).hexdigest()
    if got != want:
        raise ArtifactError(
            "SHA-256 differs", path=path, where=where, got=got, want=want, remedy=REINSTALL
        )
