"""Small random models for tests of the engine: checkpoints, artifacts, and their oracle."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from builders.checkpoints import TinyCheckpoint, build_checkpoint, compose, tiny_geometry
from builders.conversions import converted
from builders.stored_forms import Stored, bf16_values
from builders.transformers_oracle import load_modeling
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.reader import Artifact

IMAGE, VIDEO, VISION_START, VISION_END = 300, 301, 302, 303
IDS = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": VISION_START,
    "vision_end_token_id": VISION_END,
}
# Two of each kind, so that mixing up the states of two layers shows.
LAYERS = ("linear_attention", "full_attention") * 2
_SHRINK = np.float32(0.125)
_KEPT = ("lm_head", "embed_tokens", "pos_embed", "conv1d")


def build_model(
    geometry: ModelGeometry | None = None,
    *,
    split_experts: bool = False,
    seed: int = 0,
    layers: tuple[str, ...] = LAYERS,
    **sizes: bool,
) -> TinyCheckpoint:
    """Return a checkpoint of `geometry`, or `tiny_geometry(**sizes)`, whose activations keep their
    size from layer to layer: matrices have a deviation of 1/16, norms, gates and biases of 1/2."""
    geometry = geometry or tiny_geometry(**sizes)
    geometry = replace(geometry, text=replace(geometry.text, layer_types=layers))
    tiny = build_checkpoint(geometry, split_experts=split_experts, seed=seed)
    for name, stored in tiny.tensors.items():
        if name.endswith("linear_attn.norm.weight"):
            # Artifacts keep this norm in BF16: values that would be rounded prove nothing here.
            tiny.tensors[name] = Stored("F32", bf16_values(_truncate(stored.words)))
        elif stored.words.ndim > 1 and not any(part in name for part in _KEPT):
            tiny.tensors[name] = _shrink(stored)
    tiny.config |= IDS
    return tiny


def _shrink(stored: Stored) -> Stored:
    return Stored(stored.dtype, _truncate(bf16_values(stored.words) * _SHRINK))


def _truncate(values: np.ndarray) -> np.ndarray:
    return (np.ascontiguousarray(values).view("<u4") >> 16).astype("<u2")


def convert_model(folder: Path, out: Path, **options: Any) -> Artifact:
    """Return the checkpoint as an artifact, unchanged unless `options` say otherwise."""
    return converted(folder, out, **({"profile": "bf16", "no_proposal": True} | options))


def load_oracle(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """Return transformers' model of a checkpoint folder."""
    load_modeling()
    auto = importlib.import_module("transformers").AutoModelForImageTextToText
    return auto.from_pretrained(folder, dtype=dtype).eval()


def decode_into(model: Any, geometry: ModelGeometry, artifact: Artifact) -> None:
    """Give transformers' model the values that the artifact's words stand for."""
    tensors = compose(geometry, lambda name: artifact.parameter(name).decode())
    state: Mapping[str, torch.Tensor] = {
        name: torch.from_numpy(np.ascontiguousarray(values))
        for name, values in tensors.items()
        if not name.startswith("mtp.")
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    tied = {"lm_head.weight"} if geometry.text.tie_word_embeddings else set()
    assert set(missing) <= tied and not unexpected


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Return the largest difference by the largest magnitude; not a number never passes."""
    assert got.shape == want.shape
    error = (got.float() - want.float()).abs().max() / want.float().abs().max()
    return float(error)
