"""From an artifact to an engine that is ready, with progress."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ninfer_formats.directory import Binding, Tensor
from ninfer_formats.errors import UsageError
from ninfer_formats.numeric_formats import BF16
from ninfer_formats.reader import Artifact
from ninfer_tools.console import show_progress
from ninfer_tools.run_session.options import DEFAULT_CONTEXT, DEFAULT_DRAFTS, EngineFlags

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
            remedy="leave --vision, images and videos out, or convert with the tower",
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
        draft_tokens=flags.draft_tokens or DEFAULT_DRAFTS,
        proposal_head=flags.lm_head_draft,
        vision=vision,
        cuda_graph=not flags.no_cuda_graph,
        requantize=parse_requantization(flags.requantize),
    )
    unused = [name for name in _DRAFTERS if name in artifact.components]
    if unused and not quiet:
        print(f"note: the {unused[0]} drafter of the artifact is not used", file=sys.stderr)
    used = {"text", "mtp" * bool(flags.spec), "proposal" * flags.lm_head_draft, "vision" * vision}
    if not quiet:
        for group in _find_idle_groups(artifact, config.requantize, used):
            print(f"note: --requantize {group}: nothing of it is bf16 and in use", file=sys.stderr)
    # Speeds here and in the line below are powers of ten.
    with show_progress(0 if quiet else _count_bytes(artifact, used), "loading", 1000) as advance:
        engine = Engine(artifact, config, advance)
    if not quiet:
        where = f"{engine.settings.device}: {engine.load_record}"
        print(f"loaded {artifact.path.name} to {where}", file=sys.stderr)
    return engine


def _find_idle_groups(
    artifact: Artifact, formats: Mapping[str, str], components: set[str]
) -> list[str]:
    """Return the groups of --requantize that change no matrix of the components in use."""
    from ninfer_runtime.weights.requantization import Requantization

    bindings = artifact.bindings
    tied = bindings.get("text/output_head") == bindings.get("text/token_embedding")
    direct = [
        name for name, binding in bindings.items()
        if name.partition("/")[0] in components and _is_direct_matrix(artifact, binding)
    ]  # fmt: skip
    return [
        group for group, format in formats.items()
        if not any(Requantization({group: format}, tied).target(name) for name in direct)
    ]  # fmt: skip


def _is_direct_matrix(artifact: Artifact, binding: Binding) -> bool:
    tensors = [artifact.objects[part.object] for part in binding.parts]
    return any(
        isinstance(tensor, Tensor) and tensor.format == BF16 and len(tensor.shape) > 1
        for tensor in tensors
    )


def _count_bytes(artifact: Artifact, components: set[str]) -> int:
    """Return the stored bytes of the parameters of some components."""
    objects = {
        part.object
        for name in artifact.bindings
        if name.partition("/")[0] in components
        for part in artifact.bindings[name].parts
    }
    return sum(artifact.objects[name].bytes for name in objects)
