"""Images and videos of conversations, read once: every turn brings all of them again."""

from __future__ import annotations

import base64
import binascii
import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass

from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.media import MediaReader, Medium
from ninfer_runtime.frontend.messages import IMAGE, MediaPart


@dataclass(frozen=True)
class ShelvedMedium:
    """`digest` is the SHA-256 of grid and patches: what the model sees, not the file."""

    medium: Medium
    digest: bytes


class MediaShelf:
    """Keeps prepared media by their file, the least lately used go beyond `limit` bytes. Any
    thread may read."""

    def __init__(self, reader: MediaReader, limit: int) -> None:
        self._reader, self._limit = reader, limit
        self._kept: OrderedDict[bytes, ShelvedMedium] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def read(self, part: MediaPart) -> ShelvedMedium:
        """Return the medium of a part whose source is a data: URL; RequestError naming the part."""
        data = decode_data_url(part)
        key = hashlib.sha256(part.kind.encode() + b"\0" + data).digest()
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        read = self._reader.read_image if part.kind == IMAGE else self._reader.read_video
        medium = read(data, part.where)
        found = ShelvedMedium(medium, _digest(medium))
        self._keep(key, found)
        return found

    def _keep(self, key: bytes, shelved: ShelvedMedium) -> None:
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = shelved
            self._bytes += shelved.medium.patches.nbytes
            while self._bytes > self._limit and self._kept:
                self._bytes -= self._kept.popitem(last=False)[1].medium.patches.nbytes


def decode_data_url(part: MediaPart) -> bytes:
    """Return the bytes of a base64 data: URL; RequestError naming the part."""
    head, comma, body = (part.source or "").partition(",")
    if not comma or not head.lower().startswith("data:") or not head.lower().endswith(";base64"):
        raise RequestError(
            f"{part.kind} is not a data: URL", where=part.where, got=head[:80] or None,
            want="data:TYPE;base64,...",
        )  # fmt: skip
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"{part.kind} is not base64: {error}", where=part.where) from None


def _digest(medium: Medium) -> bytes:
    """Return the digest of a medium; times of video layers are text of the prompt."""
    state = hashlib.sha256(repr(tuple(medium.grid)).encode())
    state.update(medium.patches.contiguous().numpy().data.cast("B"))
    return state.digest()
