"""Whether an engine with these options can be made of an artifact; every option on its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ninfer_formats.errors import UsageError
from ninfer_formats.reader import Artifact
from ninfer_tools.serve_session.options import DEFAULT_CONTEXT, DEFAULT_DRAFTS, ServeOptions
from ninfer_tools.serve_session.place import Place
from ninfer_tools.serve_session.problems import ProblemList
from ninfer_tools.serve_session.value_checks import out_of_range

if TYPE_CHECKING:
    from ninfer_formats.inventories.geometry import ModelGeometry
    from ninfer_runtime.config import EngineConfig, Settings

# Known to users of other engines.
OTHER_KV_KINDS = (
    "nvfp4", "k8v4", "rk8v4", "rk4v4", "rk4v4-e8", "rk6v4-e8", "rk2v4-e8",
)  # fmt: skip
AUTO = "auto"


@dataclass(frozen=True)
class EngineChoice:
    """What was asked of the engine, and what that is with this model in this place. `filled` says
    that pages are to be added until the memory is full."""

    config: EngineConfig
    settings: Settings
    geometry: ModelGeometry
    filled: bool


def choose_engine(
    artifact: Artifact, options: ServeOptions, place: Place, problems: ProblemList
) -> EngineChoice | None:
    """Return the engine of the options, or None with every option that does not fit in
    `problems`. StartupError for an artifact that no engine can be made of."""
    from ninfer_runtime.models.qwen3_5.model import read_geometry
    from ninfer_runtime.weights.preflight import check_artifact

    check_artifact(artifact)
    geometry = read_geometry(artifact)
    before = len(problems)
    _Checks(artifact, geometry, options, place, problems).run()
    if len(problems) > before:
        return None
    config = make_config(options, geometry, place)
    settings = settle(config, geometry, _has_proposal(artifact), place)
    return EngineChoice(config, settings, geometry, options.kv_capacity == AUTO)


def make_config(options: ServeOptions, geometry: ModelGeometry, place: Place) -> EngineConfig:
    """Return what the engine is asked for; a capacity of `auto` is left at one sequence."""
    from ninfer_runtime.config import EngineConfig
    from ninfer_runtime.weights.requantization import parse_requantization

    capacity = options.kv_capacity
    return EngineConfig(
        device=place.device,
        dtype=options.dtype,
        max_context=_context(options, geometry),
        kv_capacity=None if capacity in (None, AUTO) else int(capacity),
        lanes=options.max_concurrency,
        prefill_chunk=options.prefill_chunk,
        kv_kind=options.kv_dtype,
        speculator=options.spec,
        draft_tokens=options.draft_tokens or DEFAULT_DRAFTS,
        proposal_head=options.lm_head_draft,
        vision=options.vision,
        cuda_graph=options.cuda_graph,
        requantize=parse_requantization(options.requantize),
        prefix_reuse=options.prefix_reuse,
        snapshots=options.device_snapshots,
        host_cache_mib=options.host_cache_mib,
    )


def settle(
    config: EngineConfig, geometry: ModelGeometry, has_proposal: bool, place: Place
) -> Settings:
    """Return the settings in a place, without touching it: a GPU that is asked for anything
    keeps memory for this process. UsageError for what does not fit the model."""
    import torch

    from ninfer_runtime.config import resolve

    dtype = config.dtype
    if dtype == AUTO:
        dtype = "bf16" if place.is_gpu else "fp32"
    settings = resolve(replace(config, device="cpu", dtype=dtype), geometry, has_proposal)
    device = torch.device(place.device)
    return replace(settings, device=device, cuda_graph=config.cuda_graph and place.is_gpu)


def _context(options: ServeOptions, geometry: ModelGeometry) -> int:
    longest = geometry.text.max_position_embeddings
    return min(DEFAULT_CONTEXT, longest) if options.max_context is None else options.max_context


def _has_proposal(artifact: Artifact) -> bool:
    return "proposal/head" in artifact.bindings


class _Checks:
    """Asks for every option alone, beside options that any model has."""

    def __init__(
        self,
        artifact: Artifact,
        geometry: ModelGeometry,
        options: ServeOptions,
        place: Place,
        problems: ProblemList,
    ) -> None:
        self._artifact, self._geometry, self._options = artifact, geometry, options
        self._place, self._problems = place, problems

    def run(self) -> None:
        from ninfer_runtime.config import MAX_DRAFTS, MAX_SNAPSHOTS

        options = self._options
        self._try(dtype=options.dtype)
        self._try(max_context=_context(options, self._geometry))
        self._try(lanes=options.max_concurrency)
        self._try(prefill_chunk=options.prefill_chunk)
        self._check_kv_kind()
        self._try(proposal_head=options.lm_head_draft)
        self._try(vision=options.vision)
        if options.spec is not None:
            self._try(speculator=options.spec)
        self._try(host_cache_mib=options.host_cache_mib)
        self._check_count("draft_tokens", options.draft_tokens, 1, MAX_DRAFTS)
        self._check_count("device_snapshots", options.device_snapshots, 1, MAX_SNAPSHOTS)
        self._check_capacity()

    def _try(self, **asked: Any) -> None:
        from ninfer_runtime.config import EngineConfig

        config = EngineConfig(**({"max_context": 1, "vision": False} | asked))
        with self._problems.collect():
            settle(config, self._geometry, _has_proposal(self._artifact), self._place)

    def _check_kv_kind(self) -> None:
        from ninfer_runtime.config import KV_KINDS

        kind = self._options.kv_dtype
        if kind in OTHER_KV_KINDS and kind not in KV_KINDS:
            self._problems.add(
                UsageError("KV type is not available yet", where="--kv-dtype", got=kind,
                           want=", ".join(KV_KINDS))
            )  # fmt: skip
        else:
            self._try(kv_kind=kind)

    def _check_count(self, field: str, count: int | None, low: int, high: int) -> None:
        if count is not None and not low <= count <= high:
            self._problems.add(out_of_range(field, count, low, high))

    def _check_capacity(self) -> None:
        """Beside the context and the lanes that are nearest to those asked for."""
        from ninfer_runtime.config import MAX_LANES

        capacity = self._options.kv_capacity
        if capacity in (None, AUTO):
            return
        if not capacity.isascii() or not capacity.isdigit() or len(capacity) > 15:
            self._problems.add(
                UsageError("--kv-capacity is not understood", got=capacity, want="tokens, or auto")
            )
            return
        longest = self._geometry.text.max_position_embeddings
        context = max(1, min(_context(self._options, self._geometry), longest))
        lanes = max(1, min(self._options.max_concurrency, MAX_LANES))
        self._try(max_context=context, lanes=lanes, kv_capacity=int(capacity))
