"""From an artifact to an engine that is ready, with progress."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ninfer_formats.errors import UsageError
from ninfer_formats.reader import Artifact
from ninfer_tools.console import show_progress
from ninfer_tools.run_session.options import DEFAULT_CONTEXT, EngineFlags

if TYPE_CHECKING:
    from ninfer_runtime.engine.engine import Engine

_DRAFTERS = ("dflash", "dflash2")


def load_engine(artifact: Artifact, flags: EngineFlags, *, vision: bool, quiet: bool) -> Engine:
    """Return the engine of an artifact; what it loads, and how fast, is said on stderr.

    `vision` says whether the tower is needed. UsageError and StartupError for what does not fit.
    """
    from ninfer_runtime.config import EngineConfig
    from ninfer_runtime.engine.engine import Engine
    from ninfer_runtime.models.qwen3_5.model import read_geometry
    from ninfer_runtime.weights.requantization import parse_requantization

    geometry = read_geometry(artifact)
    if vision and geometry.vision is None:
        raise UsageError(
            "the artifact has no vision tower", path=artifact.path,
            remedy="leave images and videos out, or convert the checkpoint with its tower",
        )  # fmt: skip
    context = flags.max_context
    if context is None:
        context = min(DEFAULT_CONTEXT, geometry.text.max_position_embeddings)
    config = EngineConfig(
        device=flags.device,
        dtype=flags.dtype,
        max_context=context,
        kv_kind=flags.kv_dtype,
        speculator=flags.spec,
        draft_tokens=flags.draft_tokens,
        proposal_head=flags.lm_head_draft,
        vision=vision,
        cuda_graph=not flags.no_cuda_graph,
        requantize=parse_requantization(flags.requantize),
    )
    unused = [name for name in _DRAFTERS if name in artifact.components]
    if unused and not quiet:
        print(f"note: the {unused[0]} drafter of the artifact is not used", file=sys.stderr)
    total = _count_bytes(artifact, {"text", "mtp" if flags.spec else "", "vision" * vision})
    with show_progress(0 if quiet else total, "loading") as advance:
        engine = Engine(artifact, config, advance)
    if not quiet:
        where = f"{engine.settings.device}: {engine.load_record}"
        print(f"loaded {artifact.path.name} to {where}", file=sys.stderr)
    return engine


def _count_bytes(artifact: Artifact, components: set[str]) -> int:
    """Return the stored bytes of the parameters of some components."""
    objects = {
        part.object
        for name in artifact.bindings
        if name.partition("/")[0] in components
        for part in artifact.bindings[name].parts
    }
    return sum(artifact.objects[name].bytes for name in objects)
