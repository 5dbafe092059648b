"""Tiny models, converted once a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from builders.tiny_models import build_model, convert_model, load_oracle
from ninfer_formats.reader import Artifact

MODELS: dict[str, dict[str, Any]] = {
    "dense": {},
    "moe": {"moe": True},
    "shallow": {"layers": ("linear_attention", "full_attention"), "vision": False},
    "tied": {"tied": True},
    "split experts": {"moe": True, "split_experts": True, "seed": 1},
}


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors: more threads only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a model of MODELS."""

    @cache
    def write(name: str) -> Path:
        folder = tmp_path_factory.mktemp("checkpoints") / name.replace(" ", "-")
        return build_model(**MODELS[name]).write(folder)

    return write


@pytest.fixture(scope="session")
def artifact(checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Artifact]:
    """Artifact of a model of MODELS, in BF16."""

    @cache
    def make(name: str) -> Artifact:
        out = tmp_path_factory.mktemp("artifacts") / f"{name.replace(' ', '-')}.ninfer"
        return convert_model(checkpoint(name), out)

    return make


@pytest.fixture(scope="session")
def oracle(checkpoint) -> Callable[[str], Any]:
    """transformers' model of a model of MODELS, in float32."""
    return cache(lambda name: load_oracle(checkpoint(name)))
