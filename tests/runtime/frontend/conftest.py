"""The demo checkpoint's frontend files, ours and transformers'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ninfer_runtime.frontend.tokenizer import Tokenizer
from ninfer_tools.demo.cache import locate_demo


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the demo checkpoint."""
    return locate_demo(home=tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="session")
def tokenizer(demo: Path) -> Tokenizer:
    import json

    text = (demo / "tokenizer.json").read_text()
    config = json.loads((demo / "tokenizer_config.json").read_text())
    generation = json.loads((demo / "generation_config.json").read_text())
    return Tokenizer(text, config, generation)


@pytest.fixture(scope="session")
def oracle_tokenizer(demo: Path) -> Any:
    """transformers' tokenizer of the demo checkpoint."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(demo)
