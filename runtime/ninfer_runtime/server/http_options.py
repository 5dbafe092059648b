"""What the HTTP side of the server may be told at start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class HttpOptions:
    """`keys` are accepted API keys, none for an open server. `keep_alive` are seconds of silence
    after which a stream carries a comment. The request log has lines up to `log_bytes`, then a
    new file; `log_keep` older ones stay. The Responses API keeps up to `response_records` answers
    of together `response_bytes`."""

    keys: tuple[str, ...] = ()
    cors: bool = False
    request_bytes: int = 384 * MEBIBYTE
    media_urls: bool = False
    keep_alive: float = 5.0
    request_log: Path | None = None
    log_bytes: int = 64 * MEBIBYTE
    log_keep: int = 4
    response_records: int = 1024
    response_bytes: int = 256 * MEBIBYTE
