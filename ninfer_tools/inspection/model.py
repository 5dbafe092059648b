"""The model behind an artifact in a few numbers, and the name of its weights profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ninfer_formats.completeness import Examination
from ninfer_formats.directory import Binding, Tensor
from ninfer_formats.errors import ArtifactError
from ninfer_formats.inventories.config_reading import ConfigReader
from ninfer_formats.inventories.geometry import FULL_ATTENTION, ModelGeometry
from ninfer_formats.inventories.parameters import Parameter
from ninfer_formats.inventories.profiles import (
    PROFILE_NAMES,
    Profile,
    build_mixed_nvfp4,
    build_profile,
)
from ninfer_formats.reader import Artifact


def describe_model(geometry: ModelGeometry | None) -> dict[str, Any] | None:
    """Return the sizes of the model, None where its config cannot be read."""
    if geometry is None:
        return None
    text = geometry.text
    full = sum(kind == FULL_ATTENTION for kind in text.layer_types)
    return {
        "layers": text.num_hidden_layers,
        "full_attention_layers": full,
        "gdn_layers": text.num_hidden_layers - full,
        "hidden_size": text.hidden_size,
        "intermediate_size": text.intermediate_size,
        "num_experts": text.num_experts,
        "num_experts_per_tok": text.num_experts_per_tok,
        "moe_intermediate_size": text.moe_intermediate_size,
        "vocab_size": text.vocab_size,
        "max_position_embeddings": text.max_position_embeddings,
        "vision_layers": geometry.vision.depth if geometry.vision else None,
        "mtp": geometry.mtp,
        "drafter": geometry.drafter.kind if geometry.drafter else None,
    }


def model_line(model: Mapping[str, Any] | None) -> str:
    """Return the sizes as one line of text."""
    if model is None:
        return "not known"
    if model["num_experts"]:
        width = (
            f"{model['num_experts']} experts ({model['num_experts_per_tok']} active)"
            f" of {model['moe_intermediate_size']:,}"
        )
    else:
        width = f"feed-forward {model['intermediate_size']:,}"
    return (
        f"{model['layers']} layers ({model['full_attention_layers']} full attention, "
        f"{model['gdn_layers']} GDN), hidden {model['hidden_size']:,}, {width}, "
        f"vocabulary {model['vocab_size']:,}"
    )


def architecture_of(artifact: Artifact) -> str | None:
    """Return the first architecture of the text config, None where there is none."""
    text = artifact.components.get("text")
    if text is None:
        return None
    return ConfigReader("text", text.config, ArtifactError).first_string("architectures")


def name_profile(artifact: Artifact, examination: Examination) -> str | None:
    """Return the name of the profile that gives every stored parameter its format, or None."""
    if artifact.legacy is not None:
        match = artifact.legacy.match
        wrong = any(state.faults for state in examination.groups)
        return None if match is None or wrong else match.inventory.profile.name
    geometry = examination.geometry
    if geometry is None:
        return None
    # Experts of one layer share role and format: a profile decides for all of them at once.
    stored = {
        (p.residency, p.role, p.layer, found): p
        for p, found in _stored_formats(artifact, examination)
    }
    for profile in _profiles(geometry) if stored else ():
        if all(profile.assign(p).format == found for (*_, found), p in stored.items()):
            return profile.name
    return None


def _profiles(geometry: ModelGeometry) -> Iterator[Profile]:
    for name in PROFILE_NAMES:
        yield build_profile(name, geometry)
    # The one model whose embedding and head differ from what the name means elsewhere.
    yield build_profile("groupwise-int", geometry, "qwen3.6-27b")
    yield build_mixed_nvfp4()


def _stored_formats(
    artifact: Artifact, examination: Examination
) -> Iterator[tuple[Parameter, str | None]]:
    """Yield the bound parameters of the model with their format, None for a mixture."""
    for parameters in examination.parameters.values():
        for p in () if isinstance(parameters, str) else parameters:
            binding = examination.bindings.get(p.name)
            if binding is not None:
                yield p, _format_of(artifact, binding)


def _format_of(artifact: Artifact, binding: Binding) -> str | None:
    items = [artifact.objects[part.object] for part in binding.parts]
    formats = {item.format for item in items if isinstance(item, Tensor)}
    return next(iter(formats)) if len(formats) == 1 else None
