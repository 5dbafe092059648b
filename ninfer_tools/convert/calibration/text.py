"""The text of a calibration as token ids (V-100 and V-101)."""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.convert.regular_file import open_regular
from ninfer_tools.convert.tokenizer import load_tokenizer

CHUNK_TOKENS = 512
DEFAULT_TOKENS = 16384
# States of 1M tokens of the largest model take 16 GiB.
MAX_TOKENS = 1 << 20
_PIECE_BYTES = 1 << 16


@dataclass(frozen=True)
class CalibrationText:
    """Token ids int32 of the text's beginning, and the bytes that they were made of."""

    ids: NDArray[np.int32]
    bytes: int
    sha256: str

    @property
    def chunks(self) -> list[NDArray[np.int32]]:
        """Return sequences of 512 tokens, each run on its own; the last may be shorter."""
        return [self.ids[at : at + CHUNK_TOKENS] for at in range(0, len(self.ids), CHUNK_TOKENS)]

    def as_record(self) -> dict[str, Any]:
        return {
            "sha256": self.sha256, "bytes": self.bytes, "tokens": len(self.ids),
            "chunk_tokens": CHUNK_TOKENS,
        }  # fmt: skip


def read_text(path: Path, tokenizer: bytes, limit: int, rows: int) -> CalibrationText:
    """Tokenise a text file up to `limit` tokens; no more of it is read than that takes.

    `tokenizer` is a tokenizer.json, `rows` the rows of the embedding. Pieces of about 64 KiB that
    end at a line end (or, in a longer line, before white space) are tokenised on their own.
    Raises UsageError for a file that cannot be read, is no UTF-8 text or is blank.
    """
    encoder = load_tokenizer(tokenizer, "calibration", "calibrate")
    digest, size, is_blank = hashlib.sha256(), 0, True
    ids: list[int] = []
    for piece in _read_pieces(path):
        raw = piece.encode()
        digest.update(raw)
        size += len(raw)
        is_blank = is_blank and not piece.strip()
        ids += encoder.encode(piece, add_special_tokens=False).ids
        if len(ids) >= limit:
            break
    if is_blank or not ids:
        raise _is_empty(path)
    found = np.array(ids[:limit], np.int32)
    if found.max() >= rows:
        raise NinferError(
            "the tokenizer gives ids beyond the embedding", got=int(found.max()), want=f"< {rows}"
        )
    return CalibrationText(found, size, digest.hexdigest())


def check_text(path: Path) -> None:
    """Raise UsageError when a text file cannot be used, as far as its first 64 KiB tell."""
    if next(_read_pieces(path), None) is None:
        raise _is_empty(path)


def _is_empty(path: Path) -> UsageError:
    return UsageError("calibration text is empty", path=path)


def _read_pieces(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    kept, at = "", 0
    try:
        with open_regular(path) as file:
            while raw := file.read(_PIECE_BYTES):
                kept += decoder.decode(raw)
                at += len(raw)
                cut = _find_cut(kept)
                if cut:
                    yield _check_piece(kept[:cut], path)
                    kept = kept[cut:]
            kept += decoder.decode(b"", final=True)
    except OSError as error:
        raise UsageError(f"cannot read: {error.strerror}", path=path) from None
    except UnicodeDecodeError as error:
        first = at - len(decoder.getstate()[0]) + error.start
        what = f"calibration text is not UTF-8: {error.reason}"
        raise UsageError(what, path=path, where=f"byte {first}") from None
    if kept:
        yield _check_piece(kept, path)


def _check_piece(piece: str, path: Path) -> str:
    if "\0" in piece:
        raise UsageError("calibration text holds NUL: it is no text", path=path)
    return piece


def _find_cut(text: str) -> int:
    """Return where to end a piece: after the last line end, else before the last white space."""
    line = text.rfind("\n") + 1
    if line or len(text) < _PIECE_BYTES:
        return line
    spaces = [match.start() for match in re.finditer(r"\s\S", text)]
    return spaces[-1] if spaces else len(text)
