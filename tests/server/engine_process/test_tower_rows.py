"""Rows of pictures (SV-13)."""

from __future__ import annotations

import torch

from ninfer_runtime.server.engine_process.tower_rows import TowerRows


def test_the_least_lately_asked_for_go_first():
    """SV-13: and the sum of bytes is what is there."""
    rows = TowerRows(40)
    for name in (b"a", b"b"):
        rows.put(name, torch.zeros(4))
    assert rows.get(b"a") is not None
    rows.put(b"c", torch.zeros(4))
    assert rows.get(b"b") is None and rows.get(b"a") is not None and rows.bytes == 32
    rows.put(b"a", torch.zeros(4))
    assert rows.bytes == 32
    rows.put(b"d", torch.zeros(100))
    assert rows.bytes == 0 and rows.get(b"d") is None
