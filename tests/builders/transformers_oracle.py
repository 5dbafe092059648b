"""The transformers implementation of the family, as an independent definition for tests."""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

_PACKAGE = "transformers.models.qwen3_5"


def load_modeling() -> ModuleType:
    """Return transformers' modeling_qwen3_5."""
    _repair_torchvision()
    return importlib.import_module(f"{_PACKAGE}.modeling_qwen3_5")


def load_configuration() -> ModuleType:
    """Return transformers' configuration_qwen3_5."""
    return importlib.import_module(f"{_PACKAGE}.configuration_qwen3_5")


def _repair_torchvision() -> None:
    """Declare two operators that a torchvision built for another torch fails to bring along.

    transformers imports an installed torchvision, and that import dies on their absence.
    """
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError:
        pass
    except (RuntimeError, OSError):
        for name in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou) -> Tensor"
            )
