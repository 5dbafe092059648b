"""Download one file so that it can be taken up again, and check every byte of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ninfer_formats.errors import NinferError
from ninfer_tools.console import format_bytes
from ninfer_tools.hub.digests import Digest
from ninfer_tools.hub.failures import DISK_FULL, explain_hub_errors, is_transient, short_reason
from ninfer_tools.hub.listing import HubFile
from ninfer_tools.hub.partial import Partial, remove_stale
from ninfer_tools.hub.stream import RangeRefusedError, open_stream

# Attempts that bring nothing, in a row; any byte received starts the count again.
_FRUITLESS_ATTEMPTS = 5
_LONGEST_PAUSE = 8


class EmptyAnswerError(NinferError):
    """An answer ended without an error and without a byte."""


@dataclass(frozen=True)
class Download:
    """One file to bring: where from, where to, and the digests it must have."""

    repository: str
    commit: str
    file: HubFile
    final: Path
    digests: tuple[Digest, ...]

    @property
    def where(self) -> str:
        return f"{self.repository}@{self.commit}/{self.file.path}"


@dataclass(frozen=True)
class Watcher:
    """Who is told about bytes (negative after a fresh start) and about noteworthy events."""

    advance: Callable[[int], None]
    notice: Callable[[str], None]


def fetch(download: Download, watcher: Watcher) -> Partial:
    """Return the complete, verified partial file of a download; the caller publishes it.

    Takes up what an earlier call left, survives cut and stalled connections by asking for the
    rest, and starts over when the server does not do ranges. Raises NinferError with the partial
    file kept; the next call goes on from there.
    """
    for path in remove_stale(download.final, download.file.identity):
        watcher.notice(f"removed {path.name}: left over from another revision")
    partial = Partial(download.final, download.file)
    try:
        with explain_disk_errors(partial), explain_hub_errors(download.where):
            _take_up(partial, download, watcher)
            _fill(partial, download, watcher)
        _verify(partial, download)
    except BaseException:
        partial.close()
        raise
    return partial


def _take_up(partial: Partial, download: Download, watcher: Watcher) -> None:
    before = partial.path.stat().st_size
    kept = partial.take_up(watcher.advance)
    if before > download.file.bytes:
        watcher.notice(f"{download.final.name}: the partial file is too long, starting over")
    elif kept == download.file.bytes and kept and not _is_right(partial, download):
        # An earlier run ended with a mismatch: going on would end there again.
        _start_over(partial, watcher)
        watcher.notice(f"{download.final.name}: the partial file is damaged, starting over")
    elif kept:
        watcher.notice(f"{download.final.name}: {format_bytes(kept)} are there, going on")


def _start_over(partial: Partial, watcher: Watcher) -> None:
    watcher.advance(-partial.bytes)
    partial.restart()


def _fill(partial: Partial, download: Download, watcher: Watcher) -> None:
    fruitless, refused = 0, False
    while partial.bytes < download.file.bytes:
        before = partial.bytes
        try:
            _receive(partial, download, watcher)
        except RangeRefusedError:
            if refused:
                raise
            refused = True
            _start_over(partial, watcher)
            watcher.notice(f"{download.final.name}: the server refuses to go on, starting over")
        except Exception as error:
            fruitless = 0 if partial.bytes > before else fruitless + 1
            again = is_transient(error) or isinstance(error, EmptyAnswerError)
            if not again or fruitless >= _FRUITLESS_ATTEMPTS:
                raise
            pause = min(_LONGEST_PAUSE, 2 ** max(0, fruitless - 1))
            watcher.notice(f"{download.final.name}: {short_reason(error)}; again in {pause} s")
            time.sleep(pause)


def _receive(partial: Partial, download: Download, watcher: Watcher) -> None:
    size = download.file.bytes
    with open_stream(
        download.repository, download.commit, download.file.path, size, partial.bytes, size
    ) as stream:
        if stream.begin != partial.bytes:
            _start_over(partial, watcher)
            watcher.notice(f"{download.final.name}: the server cannot go on, starting over")
        before = partial.bytes
        for chunk in stream.chunks:
            if len(chunk) > size - partial.bytes:
                raise NinferError(
                    "the server sent more bytes than the file has",
                    where=download.where,
                    want=f"{size} bytes",
                )
            partial.append(chunk)
            watcher.advance(len(chunk))
        if partial.bytes == before:
            raise EmptyAnswerError("the server sent no bytes", where=download.where)


def _is_right(partial: Partial, download: Download) -> bool:
    return all(partial.hash.value(digest) == digest.hex for digest in download.digests)


def _verify(partial: Partial, download: Download) -> None:
    for digest in download.digests:
        if partial.hash.value(digest) != digest.hex:
            raise NinferError(
                f"the bytes received do not have the {digest.kind} of {digest.origin}",
                where=download.where,
                got=partial.hash.value(digest),
                want=digest.hex,
                remedy=f"{partial.path.name} is kept; the same command starts over",
            )


@contextmanager
def explain_disk_errors(partial: Partial) -> Iterator[None]:
    """Turn an error of the target's disk into a NinferError; FileExistsError passes."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        action = "free disk space" if error.errno in DISK_FULL else "choose another folder"
        raise NinferError(
            f"writing stopped: {error.strerror or error}",
            path=partial.final,
            got=f"{partial.bytes} bytes written",
            want=f"{partial.file.bytes} bytes",
            remedy=f"{action}, then run the same command again: {partial.path.name} is kept",
        ) from error
