"""Sparse full-size outputs need no disk, but they announce twenty gigabytes."""

from __future__ import annotations

import pytest

from ninfer_formats.output_target import OutputTarget


@pytest.fixture(autouse=True)
def room_for_sparse_files(monkeypatch):
    monkeypatch.setattr(OutputTarget, "free_bytes", lambda self: 2**50)
