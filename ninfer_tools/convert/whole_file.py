"""Files that appear whole or not at all, and the SHA-256 of files that are there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

_BLOCK_BYTES = 4 << 20


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a half-written one never has its name, not after a crash either.

    Replaces a file of that name. Raises OSError, with no draft left beside it.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def hash_file(path: Path, advance: Callable[[int], object]) -> str:
    """Return the SHA-256 of a file in hexadecimal; `advance` is told of the bytes as they come.

    Raises OSError, and whatever `advance` raises to end it.
    """
    digest, block = hashlib.sha256(), memoryview(bytearray(_BLOCK_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(block[:count])
            advance(count)
    return digest.hexdigest()
