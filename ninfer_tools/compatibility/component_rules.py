"""Version 3: the architectures an engine builds models of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ninfer_formats.directory import Component
from ninfer_formats.reader import Artifact
from ninfer_tools.compatibility.engine import Engine
from ninfer_tools.compatibility.verdict import Finding, refuse

# Component -> (config key, values the original engine builds a model for).
_ARCHITECTURES: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "text": ("architectures", ("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM")),
        "mtp": ("architectures", ("Qwen3_5MTP", "Qwen3_5MoeMTP")),
        "vision": ("model_type", ("qwen3_5_vision", "qwen3_5_moe_vision")),
        "dflash": ("architectures", ("DFlashDraftModel",)),
        "dflash2": ("architectures", ("DFlash2DraftModel",)),
    }
)


def check_components(artifact: Artifact, engine: Engine) -> Iterator[Finding]:
    """Refuse architectures the engine has no model for, and drafters of nothing."""
    for name, component in artifact.components.items():
        if name in _ARCHITECTURES:
            yield from _check_component(component, engine)


def _check_component(component: Component, engine: Engine) -> Iterator[Finding]:
    key, accepted = _ARCHITECTURES[component.name]
    found = component.config.get(key)
    first = found[0] if isinstance(found, list) and len(found) == 1 else found
    if first not in accepted:
        yield refuse(
            f"component {component.name}: {engine.name} has no model for {key} {found!r}, it "
            f"accepts {', '.join(accepted)}"
        )
    if component.name != "text" and component.target != "text":
        yield refuse(f"component {component.name} must have the target text")
