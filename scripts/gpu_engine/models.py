"""Artifacts the engine is checked with: the demo checkpoint and small random models.

Heads of the random models have sizes that kernels take: 128 for the recurrence, 128 and 256 for
attention.
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

from builders.checkpoints import tiny_geometry
from builders.tiny_models import build_model
from ninfer_formats.inventories.geometry import ModelGeometry, VisionGeometry
from ninfer_formats.reader import Artifact, open_artifact

PROFILES = {
    "bf16": {"profile": "bf16"},
    "nvfp4": {"profile": "nvfp4"},
    "groupwise-int": {"profile": "groupwise-int"},
    "fp8": {"profile": "bf16", "rules": ["text/*=fp8"]},
}
RANDOM = ("dense-256", "dense-128", "moe-256")
_SECTIONS = {256: (11, 11, 10), 128: (6, 5, 5)}


def random_geometry(name: str) -> ModelGeometry:
    """Return the geometry of a model of RANDOM."""
    kind, _, size = name.partition("-")
    geometry = tiny_geometry(moe=kind == "moe")
    text = replace(
        geometry.text,
        hidden_size=256,
        num_attention_heads=4,
        num_key_value_heads=2,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        head_dim=int(size),
        mrope_section=_SECTIONS[int(size)],
    )
    tower = VisionGeometry(2, 144, 192, 2, num_position_embeddings=16)
    return replace(geometry, text=text, vision=tower)


@dataclass(frozen=True)
class Shelf:
    """Artifacts in a folder, made when they are first asked for."""

    folder: Path

    def take(self, name: str, profile: str = "bf16") -> Artifact:
        """Return "demo" or a model of RANDOM, converted with a profile of PROFILES."""
        path = self.folder / f"{name}-{profile}.ninfer"
        if not path.exists():
            self._make(name, profile, path)
        return open_artifact(path)

    def _make(self, name: str, profile: str, path: Path) -> None:
        from builders.conversions import convert

        self.folder.mkdir(parents=True, exist_ok=True)
        options = {**PROFILES[profile], "rules": list(PROFILES[profile].get("rules", []))}
        if name == "demo":
            from ninfer_tools.demo.cache import locate_demo

            source = locate_demo()
        else:
            layers = ("linear_attention", "full_attention") * (1 if name.startswith("moe") else 2)
            source = self.folder / f"{name}.source"
            build_model(random_geometry(name), layers=layers).write(source)
        with redirect_stdout(io.StringIO()):
            failed = convert(source, path, no_proposal=True, **options)
        if failed:
            raise RuntimeError(f"conversion of {name} to {profile} failed")
