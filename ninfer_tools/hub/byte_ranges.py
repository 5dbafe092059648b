"""Small parts of remote files, so that a plan can be made without downloading weights."""

from __future__ import annotations

import time
from collections.abc import Callable

from ninfer_formats.errors import NinferError
from ninfer_formats.foreign import SNIFF_BYTES, describe_foreign
from ninfer_tools.hub.failures import explain_hub_errors, is_transient
from ninfer_tools.hub.stream import open_stream

_ATTEMPTS = 3
# The safetensors library's own limit; a longer one is damage, not a header.
MAX_HEADER_BYTES = 100_000_000


def read_remote_range(
    repository: str, commit: str, name: str, size: int, begin: int, end: int
) -> bytes:
    """Return bytes `begin` to `end` (exclusive) of a file of `size` bytes.

    No more than these bytes are read, except from a server without ranges: there also those
    before them. Trouble on the way is met by up to three attempts. Raises NinferError.
    """
    if begin >= end:
        return b""
    with explain_hub_errors(f"{repository}@{commit}/{name}"):
        return _retry(lambda: _read_once(repository, commit, name, size, begin, end))


def _read_once(repository: str, commit: str, name: str, size: int, begin: int, end: int) -> bytes:
    found = bytearray()
    with open_stream(repository, commit, name, size, begin, end) as stream:
        skip = begin - stream.begin
        for chunk in stream.chunks:
            found += chunk[skip:]
            skip = max(0, skip - len(chunk))
            if len(found) >= end - begin:
                break
    if len(found) < end - begin:
        raise NinferError(
            "the server sent too few bytes",
            where=name,
            got=f"{len(found)} bytes",
            want=f"{end - begin} bytes",
        )
    return bytes(found[: end - begin])


def _retry(attempt: Callable[[], bytes]) -> bytes:
    for pause in range(1, _ATTEMPTS):
        try:
            return attempt()
        except Exception as error:
            if not is_transient(error):
                raise
            time.sleep(pause)
    return attempt()


def read_safetensors_header(read: Callable[[int, int], bytes], size: int, where: str) -> bytes:
    """Return the JSON header of a safetensors file of `size` bytes: its text, nothing parsed.

    `read(begin, end)` gives bytes of the file; only the 8-byte length and the header are asked
    for. Raises NinferError when the file is something else (a git-lfs pointer, an HTML page, an
    empty file) or declares a header that does not fit into it.
    """
    head = read(0, min(8, size))
    length = int.from_bytes(head, "little")
    if len(head) < 8 or not 2 <= length <= min(size - 8, MAX_HEADER_BYTES):
        looks, action = describe_foreign(read(0, min(SNIFF_BYTES, size)), size)
        if "safetensors" in looks:
            raise NinferError(
                "a safetensors file cut short, or with a damaged header",
                where=where,
                got=f"a header of {length} bytes in {size} bytes",
                remedy="its publisher must upload it again",
            )
        raise NinferError(f"not a safetensors file: it is {looks}", where=where, remedy=action)
    return read(8, 8 + length)
