"""What an engine takes of the memory of a place: one plan for `ninfer plan` and `ninfer serve`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ninfer_formats.reader import Artifact
from ninfer_runtime.config import KV_KINDS, PAGE_TOKENS, EngineConfig, Settings
from ninfer_runtime.errors import StartupError
from ninfer_runtime.weights.budget import Fit, fit, make_budget
from ninfer_runtime.weights.capacity import fill_pages, longest_contexts, vision_workspace
from ninfer_runtime.weights.preflight import plan_memory
from ninfer_tools.serve_session.byte_sizes import parse_size
from ninfer_tools.serve_session.engine_checks import AUTO, EngineChoice
from ninfer_tools.serve_session.options import ServeOptions
from ninfer_tools.serve_session.place import Place

# Left free unless --headroom says otherwise, where the rest is filled.
AUTO_HEADROOM = 1 << 30


@dataclass(frozen=True)
class MemoryReport:
    """`parts` are bytes by use; `available` None: not known, and so are `contexts` (KV type ->
    longest context) and `found` then. `config` has the capacity that was chosen."""

    artifact: str
    config: EngineConfig
    settings: Settings
    parts: Mapping[str, int]
    headroom: int
    available: int | None
    contexts: Mapping[str, int] | None
    found: Fit | None

    @property
    def needed(self) -> int:
        return sum(self.parts.values())

    @property
    def fits(self) -> bool | None:
        return None if self.found is None else self.found.fits

    @property
    def capacity(self) -> int:
        return self.settings.pages * PAGE_TOKENS

    def error(self) -> StartupError | None:
        """Return the error of an engine that does not fit: both numbers, and what would fit."""
        if self.found is None or self.found.fits:
            return None
        kept = f" and {self.headroom} of headroom" if self.headroom else ""
        return StartupError(
            f"not enough memory: needs {self.needed} bytes{kept}, {self.available} are available",
            path=self.artifact, where=str(self.settings.device), remedy=self._find_remedy(),
        )  # fmt: skip

    def _find_remedy(self) -> str:
        assert self.found is not None and self.contexts is not None
        if self.needed <= (self.available or 0):
            return f"{self.found.remedy}, or --headroom {(self.available or 0) - self.needed}"
        context, now = self.settings.max_context, self.settings.kv_kind
        kinds = [kind for kind, most in self.contexts.items() if most >= context and kind != now]
        # Unless another number of lanes is needed for that: types are compared with all lanes.
        if kinds and self.found.max_context < context:
            return f"{self.found.remedy}, and so does --kv-dtype {kinds[0]}"
        return self.found.remedy


def make_report(
    artifact: Artifact, choice: EngineChoice, options: ServeOptions, place: Place
) -> MemoryReport:
    """Return the plan; no payload byte is read and no device is asked."""
    headroom = read_headroom(options)
    room = None if place.free is None else max(0, place.free - headroom)
    plan = plan_memory(artifact, choice.geometry, choice.settings)
    shape, weights, settings, config = (
        plan.shape, plan.budget.weights, choice.settings, choice.config
    )  # fmt: skip
    if choice.filled and room is not None:
        pages = fill_pages(choice.geometry, shape, weights, room)
        shape, settings = replace(shape, pages=pages), replace(settings, pages=pages)
        config = replace(config, kv_capacity=pages * PAGE_TOKENS)
    budget = make_budget(choice.geometry, shape, weights)
    kinds = [kind for kind in KV_KINDS if kind != AUTO]
    vision = vision_workspace(choice.geometry, shape, weights)
    parts = {**budget.parts, "workspace": budget.workspace - vision}
    if shape.vision:
        parts["images in the workspace"] = vision
    return MemoryReport(
        str(artifact.path), config, settings, parts, headroom, place.free,
        None if room is None
        else longest_contexts(choice.geometry, shape, weights, room, kinds),
        None if room is None else fit(choice.geometry, shape, weights, room),
    )  # fmt: skip


def read_headroom(options: ServeOptions) -> int:
    """Return the bytes to leave free."""
    if options.headroom is not None:
        return parse_size(options.headroom, "--headroom")
    return AUTO_HEADROOM if options.kv_capacity == AUTO else 0


def describe_engine(report: MemoryReport) -> dict[str, Any]:
    """Return what the engine runs with, by option."""
    settings = report.settings
    return {
        "device": str(settings.device),
        "dtype": "fp32" if settings.dtype.itemsize == 4 else "bf16",
        "max_context": settings.max_context,
        "kv_capacity": report.capacity,
        "max_concurrency": settings.lanes,
        "prefill_chunk": settings.prefill_chunk,
        "kv_dtype": settings.kv_kind,
        "draft_tokens": settings.drafts,
        "lm_head_draft": settings.proposal_head,
        "vision": settings.vision,
        "cuda_graph": settings.cuda_graph,
        "device_snapshots": settings.snapshots,
    }
