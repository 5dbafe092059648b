"""A file of JSON lines that is rotated at a size; older files are compressed."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zstandard

from ninfer_runtime.errors import StartupError

_log = logging.getLogger(__name__)


class JsonLines:
    """Appends lines; from `most_bytes` on, `name` becomes `name.1.zst`, that `name.2.zst` and so
    on up to `keep`. Every line is in the file when `write` returns."""

    def __init__(self, path: Path, most_bytes: int, keep: int) -> None:
        self._path, self._most, self._keep = path, most_bytes, keep
        self._lock = threading.Lock()
        self._packing: threading.Thread | None = None
        try:
            self._file = path.open("ab")
        except OSError as error:
            raise StartupError(f"request log cannot be opened: {error}", path=path) from None

    def write(self, fields: Mapping[str, Any]) -> None:
        """Append one line. A full disk is said in the server's log; requests go on."""
        line = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        try:
            with self._lock:
                self._file.write(line)
                self._file.flush()
                if self._most and self._file.tell() >= self._most:
                    self._rotate()
        except (OSError, ValueError) as error:
            _log.warning("request log %s: %s", self._path, error)

    def close(self) -> None:
        """Close the file when older ones are compressed."""
        with self._lock:
            self._file.close()
        if self._packing is not None:
            self._packing.join()

    def _rotate(self) -> None:
        if self._packing is not None:
            self._packing.join()  # still at the last one: lines come faster than files shrink
        self._file.close()
        full = self._path.with_name(f"{self._path.name}.full")
        self._path.replace(full)
        self._file = self._path.open("ab")
        self._packing = threading.Thread(target=self._pack, args=(full,), name="request-log")
        self._packing.start()

    def _pack(self, full: Path) -> None:
        try:
            self._shift()
            if self._keep > 0:
                target = self._numbered(1)
                work = target.with_name(f"{target.name}.part")
                with full.open("rb") as source, work.open("wb") as sink:
                    zstandard.ZstdCompressor(level=9).copy_stream(source, sink)
                work.replace(target)
            full.unlink()
        except OSError as error:
            _log.warning("request log %s: %s", self._path, error)

    def _shift(self) -> None:
        for number in range(self._keep, 0, -1):
            older = self._numbered(number)
            if not older.exists():
                continue
            if number == self._keep:
                older.unlink()
            else:
                older.replace(self._numbered(number + 1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}.zst")
