"""A CUDA device that cannot be used is refused with the way out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ninfer_formats.errors import UsageError
from ninfer_tools.synthetic import block_workers
from ninfer_tools.synthetic.payloads import open_worker


def test_missing_torch_is_explained(monkeypatch):
    def fail(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(block_workers.importlib, "import_module", fail)
    with pytest.raises(UsageError, match=r"torch is not installed.*ninfer\[convert\]"):
        open_worker("cuda:0")


def test_missing_device_is_explained(monkeypatch):
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setattr(block_workers.importlib, "import_module", lambda name: torch)
    with pytest.raises(UsageError, match="no CUDA device is usable"):
        open_worker("cuda")
