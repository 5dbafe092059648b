"""Where the files of a checkpoint lie: in a folder, or somewhere that is read by ranges."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ninfer_formats.errors import NinferError, UsageError


class CheckpointFiles(Protocol):
    """The files of one checkpoint, by name without any folder.

    `label` says which checkpoint it is. `map` is for reading weights; a source of headers only
    raises UsageError there and is good for planning alone.
    """

    @property
    def label(self) -> str: ...

    def names(self) -> frozenset[str]: ...

    def size(self, name: str) -> int: ...

    def path(self, name: str) -> str:
        """Return what messages call the file."""
        ...

    def read(self, name: str, begin: int, end: int) -> bytes:
        """Return the bytes [begin, end) of a file, fewer past its end."""
        ...

    def map(self, name: str) -> NDArray[np.uint8]:
        """Return all bytes of a file as a read-only array that is not in memory yet."""
        ...


class LocalFolder:
    """A checkpoint in a folder of this machine; links are followed, subfolders are not."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._maps: dict[str, NDArray[np.uint8]] = {}
        if self._folder.is_file():
            raise UsageError(
                "the source is a file", path=folder, want="the folder that holds config.json"
            )
        if not self._folder.is_dir():
            raise UsageError("no such folder", path=folder)
        try:
            with os.scandir(self._folder) as entries:
                self._sizes = {e.name: e.stat().st_size for e in entries if e.is_file()}
        except OSError as error:
            raise UsageError(f"cannot read: {error.strerror}", path=folder) from None

    @property
    def label(self) -> str:
        return str(self._folder)

    def names(self) -> frozenset[str]:
        return frozenset(self._sizes)

    def size(self, name: str) -> int:
        return self._sizes[name]

    def path(self, name: str) -> str:
        return str(self._folder / name)

    def read(self, name: str, begin: int, end: int) -> bytes:
        try:
            with (self._folder / name).open("rb") as file:
                file.seek(begin)
                return file.read(end - begin)
        except OSError as error:
            raise NinferError(f"cannot read: {error.strerror}", path=self.path(name)) from None

    def map(self, name: str) -> NDArray[np.uint8]:
        if name not in self._maps:
            self._maps[name] = self._map(name)
        return self._maps[name]

    def _map(self, name: str) -> NDArray[np.uint8]:
        try:
            with (self._folder / name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                # Pages past the end of a file that shrank would kill the process.
                if size != self._sizes[name]:
                    raise NinferError(
                        "file changed its size while it was in use", path=self.path(name),
                        got=size, want=self._sizes[name],
                    )  # fmt: skip
                pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise NinferError(f"cannot map: {error.strerror}", path=self.path(name)) from None
        return np.frombuffer(pages, np.uint8)
