"""Rows of images and videos that went through the tower, kept while they are in use."""

from __future__ import annotations

from collections import OrderedDict

import torch


class TowerRows:
    """Rows [n, H] on the host by the digest of their picture; of those asked for least lately, as
    many are dropped as keep the rest within `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: OrderedDict[bytes, torch.Tensor] = OrderedDict()
        self.bytes = 0

    def get(self, digest: bytes) -> torch.Tensor | None:
        rows = self._rows.get(digest)
        if rows is not None:
            self._rows.move_to_end(digest)
        return rows

    def put(self, digest: bytes, rows: torch.Tensor) -> None:
        if digest in self._rows:
            return
        self._rows[digest] = rows
        self.bytes += rows.nbytes
        while self.bytes > self._limit and self._rows:
            self.bytes -= self._rows.popitem(last=False)[1].nbytes
