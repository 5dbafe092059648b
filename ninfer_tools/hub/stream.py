"""One HTTP answer that carries bytes of one file of a repository."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ninfer_formats.errors import NinferError

_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


@dataclass(frozen=True)
class ByteStream:
    """Bytes of a file from `begin` on, as the server chose to send them."""

    begin: int
    chunks: Iterator[bytes]


class RangeRefusedError(NinferError):
    """The server has no bytes from the asked position on (status 416)."""


@contextmanager
def open_stream(
    repository: str, commit: str, name: str, size: int, begin: int, end: int
) -> Iterator[ByteStream]:
    """Ask for bytes `begin` to `end` (exclusive) of a file of `size` bytes, by its commit.

    The stream begins at `begin`, or at 0 when the server ignores ranges. The token goes to the
    hub alone: the HTTP client drops it when a redirect leaves that host. Raises RangeRefusedError
    for status 416, NinferError for an answer that is not this file, and the hub client's errors
    (see `explain_hub_errors`).
    """
    from huggingface_hub import constants, get_session, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    # Positions count bytes of the file itself, so nothing may compress them on the way.
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if (begin, end) != (0, size):
        headers["Range"] = f"bytes={begin}-{end - 1}"
    with get_session().stream(
        "GET",
        hf_hub_url(repository, name, revision=commit),
        headers=headers,
        timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
        follow_redirects=True,
    ) as answer:
        if answer.status_code == 416:
            raise RangeRefusedError(
                "the server has no such byte range", where=name, got=headers.get("Range")
            )
        hf_raise_for_status(answer)
        start = _check_answer(answer.status_code, answer.headers, name, size, begin)
        # As they arrive: what a cut connection brought before the cut is kept.
        yield ByteStream(start, answer.iter_raw())


def _check_answer(status: int, headers: Mapping[str, str], name: str, size: int, begin: int) -> int:
    """Return the position of the first byte sent, after checking that it is this file."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "text/html" and not name.endswith((".html", ".htm")):
        raise _not_the_file(name, "an HTML page (a login page or a proxy in between?)", size)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise _not_the_file(name, "a compressed answer", size)
    if status == 206:
        match = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
        if match is None or int(match[1]) != begin or int(match[2]) != size:
            raise _not_the_file(name, f"range {headers.get('content-range')!r}", size)
        return begin
    length = headers.get("content-length")
    if status != 200 or (length is not None and length != str(size)):
        raise _not_the_file(name, f"status {status} with {length} bytes", size)
    return 0


def _not_the_file(name: str, got: str, size: int) -> NinferError:
    return NinferError(
        "the server sent something else than the file",
        where=name,
        got=got,
        want=f"{size} bytes of the file",
        remedy="check HF_ENDPOINT, HF_TOKEN and the network, then run the same command again",
    )
