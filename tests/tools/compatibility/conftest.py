"""Verdicts on artifacts that tests write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.edited_artifacts import save_legacy, save_v3, v3_root
from ninfer_formats.reader import open_artifact
from ninfer_tools.compatibility.engines import judge
from ninfer_tools.compatibility.verdict import Verdict

JudgeLegacy = Callable[..., Verdict]
JudgeV3 = Callable[..., Verdict]


@pytest.fixture
def judge_legacy(tmp_path: Path) -> JudgeLegacy:
    """Write a version 1 or 2 file (see `save_legacy`) and return an engine's verdict."""

    def make(engine: str, model_id: str = "qwen3.8-27b", *rest: str, **options: Any) -> Verdict:
        path = save_legacy(tmp_path / "old.ninfer", model_id, *rest, **options)
        return judge(open_artifact(path), engine)

    return make


@pytest.fixture
def judge_v3(tmp_path: Path) -> JudgeV3:
    """Write a version 3 file (see `v3_root`), edited, and return an engine's verdict."""

    def make(engine: str, edit: Callable[[dict[str, Any]], None] | None = None, **options: Any):
        root = v3_root(**options)
        if edit is not None:
            edit(root)
        return judge(open_artifact(save_v3(tmp_path / "new.ninfer", root)), engine)

    return make
