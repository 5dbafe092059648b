"""Texts of a corpus: plain or JSON lines, packed or not, cut into pieces (V-121, V-122)."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.convert.regular_file import open_regular

# A piece ends with the first line that reaches the first size, or is cut at the second.
PIECE_BYTES = 1 << 16
MAX_PIECE_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 26
_PACKED = (".zst", ".gz")
_READ_BYTES = 1 << 20
# One byte of Zstandard can stand for 32 KiB, and comes out in one go.
_ZSTD_READ_BYTES = 1 << 12
_ZSTD_WINDOW = 1 << 27
_BOM = b"\xef\xbb\xbf"

Advance = Callable[[int], None]


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


@dataclass
class CorpusFile:
    """A file of a corpus; `sha256` and `read_bytes` are those of what has been read so far."""

    path: Path
    read_bytes: int = 0
    digest: _Digest = field(default_factory=hashlib.sha256)

    @property
    def is_json_lines(self) -> bool:
        name = self.path.name.lower()
        for suffix in _PACKED:
            name = name.removesuffix(suffix)
        return name.endswith((".jsonl", ".ndjson"))

    def as_record(self) -> dict[str, str | int]:
        return {
            "file": self.path.name, "bytes": self.read_bytes, "sha256": self.digest.hexdigest()
        }  # fmt: skip

    def check(self) -> int:
        """Return the size in bytes; UsageError unless it is a file that can be opened."""
        with open_regular(self.path) as file:
            return os.fstat(file.fileno()).st_size

    def pieces(self, advance: Advance) -> Iterator[str]:
        """Yield the text piece by piece; NinferError naming file and place where it is none."""
        try:
            blocks = self._unpack(advance)
            if self.is_json_lines:
                for number, line in enumerate(self._lines(blocks), 1):
                    yield from self._cut_document(line, f"line {number}")
                return
            for piece in _cut_blocks(blocks):
                yield self._decode(piece.data, piece.begin)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise NinferError("packed text is damaged", path=self.path, got=error) from None
        except OSError as error:
            raise UsageError(f"cannot read: {error.strerror}", path=self.path) from None

    def _unpack(self, advance: Advance) -> Iterator[bytes]:
        with open_regular(self.path) as raw:
            counted = _CountedFile(raw, self, advance)
            if self.path.suffix.lower() == ".zst":
                yield from _unpack_zstd(counted, self.path)
            elif self.path.suffix.lower() == ".gz":
                with gzip.GzipFile(fileobj=counted) as packed:  # pyright: ignore[reportArgumentType]
                    while block := packed.read(_READ_BYTES):
                        yield block
            else:
                while block := counted.read(_READ_BYTES):
                    yield block

    def _lines(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        number, kept = 1, bytearray()
        for block in blocks:
            kept += block
            *lines, rest = kept.split(b"\n")
            yield from map(bytes, lines)
            number, kept = number + len(lines), bytearray(rest)
            if len(kept) > MAX_LINE_BYTES:
                raise NinferError(
                    "line is too long", path=self.path, where=f"line {number}",
                    want=f"<= {MAX_LINE_BYTES} bytes",
                )  # fmt: skip
        yield bytes(kept)

    def _cut_document(self, line: bytes, where: str) -> Iterator[str]:
        line = line.removeprefix(_BOM) if where == "line 1" else line
        if not line.strip():
            return
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            text = "too deep" if isinstance(error, RecursionError) else error
            raise NinferError("is no JSON", path=self.path, where=where, got=text) from None
        text = found.get("text") if isinstance(found, dict) else found
        if not isinstance(text, str):
            raise NinferError(
                "line has no text", path=self.path, where=where, want='"…" or {"text": "…"}'
            )
        # A lone surrogate is no text; JSON can spell one all the same.
        data = text.encode("utf-8", "replace")
        for piece in _cut_blocks(iter([data]), starts_file=False):
            yield piece.data.decode()

    def _decode(self, data: bytes, begin: int) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise NinferError(
                "text is not UTF-8", path=self.path, where=f"byte {begin + error.start}",
                got=f"0x{data[error.start]:02x}",
            ) from None  # fmt: skip


@dataclass(frozen=True)
class _Piece:
    begin: int
    data: bytes


class _CountedFile:
    """Hashes and counts what is read."""

    def __init__(self, raw: BinaryIO, owner: CorpusFile, advance: Advance) -> None:
        self._raw, self._owner, self._advance = raw, owner, advance

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read(size)
        self._owner.digest.update(data)
        self._owner.read_bytes += len(data)
        self._advance(len(data))
        return data


def _unpack_zstd(raw: _CountedFile, path: Path) -> Iterator[bytes]:
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    frame, rest = None, b""
    try:
        while data := rest or raw.read(_ZSTD_READ_BYTES):
            frame = frame or unpacker.decompressobj()
            yield frame.decompress(data)
            rest = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise NinferError("packed text is damaged", path=path, got=error) from None
    if frame is not None:
        raise NinferError("packed text is cut short", path=path)


def _cut_blocks(blocks: Iterator[bytes], starts_file: bool = True) -> Iterator[_Piece]:
    kept, at, first = bytearray(), 0, starts_file
    for block in blocks:
        kept += block
        if first and len(kept) >= len(_BOM):
            first = False
            if kept.startswith(_BOM):
                del kept[: len(_BOM)]
                at = len(_BOM)
        begin = 0
        while end := _find_end(kept, begin):
            yield _Piece(at + begin, bytes(kept[begin:end]))
            begin = end
        del kept[:begin]
        at += begin
    if kept:
        yield _Piece(at, bytes(kept))


def _find_end(text: bytearray, begin: int) -> int:
    """Return where the piece that starts at `begin` ends; 0 when more text is needed."""
    found = text.find(b"\n", begin + PIECE_BYTES - 1, begin + MAX_PIECE_BYTES)
    if found >= 0:
        return found + 1
    end = begin + MAX_PIECE_BYTES
    if len(text) < end + 4:
        return 0
    # Never inside a character: its later bytes are 10xxxxxx. More than three of them are no UTF-8.
    return next((at for at in range(end, end - 4, -1) if text[at] & 0xC0 != 0x80), end)
