"""The registered version 2 contracts with tiny sizes, so that real conversions can fill them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from builders.checkpoints import TinyCheckpoint, build_checkpoint, tiny_geometry
from ninfer_formats.inventories import registered
from ninfer_formats.inventories.legacy import build_legacy

ROWS = 64


def shrink_contracts(patch: Callable[[Any, str, Any], object] = setattr) -> None:
    """Replace the models behind the registered identities; `patch` sets an attribute."""
    geometries = {
        "qwen3.6-27b": tiny_geometry(),
        "qwen3.8-27b": tiny_geometry(drafter=True),
        "qwen3.6-35b-a3b": tiny_geometry(moe=True),
    }
    patch(registered, "family_geometry", geometries.__getitem__)
    patch(registered, "build_legacy", partial(build_legacy, proposal_rows=ROWS))


def build_official_source() -> TinyCheckpoint:
    """Return a checkpoint whose feed-forwards are NVFP4 as the registered nvfp4 needs them: gate
    and up have one weight divisor and one activation divisor."""
    tiny = build_checkpoint(
        form="ct_nvfp4",
        quantise=lambda name: ".mlp." in name and "layers" in name and not name.startswith("mtp."),
    )
    for name in [n for n in tiny.tensors if "up_proj" in n and n.endswith("global_scale")]:
        tiny.tensors[name] = tiny.tensors[name.replace("up_proj", "gate_proj")]
    return tiny
