"""A checkpoint to convert, and where the artifact goes."""

from __future__ import annotations

import pytest

from builders.checkpoints import build_checkpoint


@pytest.fixture
def folder(tmp_path):
    """The folder of a tiny checkpoint."""
    return build_checkpoint().write(tmp_path / "m")


@pytest.fixture
def out(tmp_path):
    """A name in an empty folder."""
    (tmp_path / "o").mkdir()
    return tmp_path / "o" / "a.ninfer"
