"""The geometry of the model that checkpoints hold, weights against config (S-61 to S-66)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ninfer_formats.errors import NinferError, UsageError
from ninfer_formats.inventories.checkpoint_config import drafter_from_config, geometry_from_config
from ninfer_formats.inventories.geometry import (
    DRAFTERS,
    DrafterGeometry,
    ModelGeometry,
    TextGeometry,
)
from ninfer_tools.convert.sources.checkpoint import CONFIG, UNREADABLE, Checkpoint
from ninfer_tools.convert.sources.places import EMBEDDING, HEAD
from ninfer_tools.convert.sources.safetensors_file import StoredTensor

OTHER_MODELS = {
    "qwen3_next": "Qwen3-Next interleaves its GDN projections per key head and has no MTP or "
    "vision part of this family; it is another architecture",
    "qwen4_exp": "Qwen3.8-Flash-Next has four residual streams, a sparse-attention indexer and "
    "n-gram embeddings; it is another architecture",
}
_OTHER_CLASSES = {"Qwen3Next": "qwen3_next", "Qwen4Exp": "qwen4_exp"}
_COMPARED_BYTES = 1 << 24


@dataclass
class GeometryReading:
    """The geometry (None when config.json cannot be used), faults, and sentences to report.

    `tie_word_embeddings` is true only where the head is the embedding; `mtp` where config or
    weights have an MTP layer.
    """

    geometry: ModelGeometry | None = None
    problems: list[NinferError] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def read_geometry(checkpoints: Mapping[str, Checkpoint]) -> GeometryReading:
    """Return the geometry of the base checkpoint and the drafter given beside it."""
    base, reading = checkpoints["base"], GeometryReading()
    if base.config is UNREADABLE:
        return reading
    try:
        geometry = _read_base(base)
    except NinferError as error:
        error.path = error.path or base.files.path(CONFIG)
        reading.problems.append(error)
        return reading
    if geometry.text.tie_word_embeddings and not _is_tied(checkpoints, reading):
        text = replace(geometry.text, tie_word_embeddings=False)
        geometry = replace(geometry, text=text)
    if has_mtp(checkpoints) and not geometry.mtp:
        reading.notices.append("config.json announces no MTP layer, but there is one: it is used")
        geometry = replace(geometry, mtp=True)
    drafter = _read_drafter(checkpoints, geometry.text, reading)
    reading.geometry = replace(geometry, drafter=drafter)
    return reading


def has_mtp(checkpoints: Mapping[str, Checkpoint]) -> bool:
    """Return whether the checkpoint that owns the MTP layer has any tensor of it."""
    return (checkpoints.get("mtp") or checkpoints["base"]).prefixes.mtp is not None


def _read_base(base: Checkpoint) -> ModelGeometry:
    other = _other_model(base.config)
    if other is not None:
        raise NinferError(f"{other} checkpoints are not supported: {OTHER_MODELS[other]}")
    return geometry_from_config(base.config)


def _other_model(config: Mapping[str, Any]) -> str | None:
    text = config.get("text_config")
    inner = text.get("model_type") if isinstance(text, Mapping) else None
    for kind in (config.get("model_type"), inner):
        name = str(kind).removesuffix("_text")
        if name in OTHER_MODELS:
            return name
    classes = str(config.get("architectures"))
    return next((name for part, name in _OTHER_CLASSES.items() if part in classes), None)


def _is_tied(checkpoints: Mapping[str, Checkpoint], reading: GeometryReading) -> bool:
    """Tell whether the head is the embedding although config.json says so: storage decides."""
    base = checkpoints["base"]
    embedding = base.tensors.get((base.prefixes.text or "") + EMBEDDING)
    for key in ("base", "quantized"):
        checkpoint = checkpoints.get(key)
        if checkpoint is None:
            continue
        head = checkpoint.prefixes.head + "lm_head."
        stored = [name for name in checkpoint.tensors if name.startswith(head)]
        if not stored:
            continue
        plain = checkpoint.tensors.get(checkpoint.prefixes.head + HEAD)
        reason = "is not the embedding"
        if plain is not None and embedding is not None:
            equal = _are_equal(checkpoint, plain, base, embedding)
            if equal:
                continue
            if equal is None:
                reason = "cannot be compared with the embedding by its header"
        reading.notices.append(
            f"config.json says tie_word_embeddings true, but {checkpoint.label} has a {stored[0]} "
            f"that {reason}: the stored tensor is used"
        )
        return False
    return True


def _are_equal(
    a: Checkpoint, first: StoredTensor, b: Checkpoint, second: StoredTensor
) -> bool | None:
    """Compare two tensors byte by byte; None where only headers are at hand."""
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    try:
        left = a.files.map(first.file)[first.begin : first.end]
        right = b.files.map(second.file)[second.begin : second.end]
    except UsageError:
        return None
    starts = range(0, len(left), _COMPARED_BYTES)
    return all(
        np.array_equal(left[at : at + _COMPARED_BYTES], right[at : at + _COMPARED_BYTES])
        for at in starts
    )


def _read_drafter(
    checkpoints: Mapping[str, Checkpoint], text: TextGeometry, reading: GeometryReading
) -> DrafterGeometry | None:
    given = [name for name in DRAFTERS if name in checkpoints]
    if len(given) > 1:
        reading.problems.append(
            UsageError("an artifact holds one drafter", got=" and ".join(given))
        )
    for name in given[:1]:
        checkpoint = checkpoints[name]
        if checkpoint.config is UNREADABLE:
            continue
        try:
            drafter = drafter_from_config(checkpoint.config, text)
            if drafter.kind != name:
                raise NinferError(
                    f"this is a {drafter.kind} drafter", remedy=f"call it --source {drafter.kind}="
                )
        except NinferError as error:
            error.path = error.path or checkpoint.files.path(CONFIG)
            reading.problems.append(error)
            continue
        return drafter
    return None
