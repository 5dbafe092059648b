"""Settings of an engine: every default once, and what they become on a given model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_runtime.engine.speculators import require_speculator
from ninfer_runtime.weights.budget import MAX_LANES, PAGE_TOKENS

MAX_DRAFTS = 15
LEAST_SNAPSHOTS, MAX_SNAPSHOTS = 4, 64
MAX_HOST_CACHE = 1 << 20
KV_KINDS = ("auto", "fp32", "bf16", "fp8", "int8")


@dataclass(frozen=True)
class EngineConfig:
    """What was asked for.

    `max_context` bounds one sequence and `kv_capacity` all of them, in tokens (None: as much as
    `max_context`). `prefill_chunk` is the width of a prefill pass. `draft_tokens` are drafts per
    round, with `speculator`. `vision` None loads the tower if the artifact has one. `requantize`
    gives bf16 matrices of a group another format at load (`weights/requantization.py`).
    `look_ahead` launches a round before the last one's tokens are read; None: on a GPU.
    `prefix_reuse` keeps snapshots of prompts and answers for prompts that begin alike: `snapshots`
    of them on the device (None: one a lane, at least 4), more in `host_cache_mib` of the host.
    """

    device: str = "auto"
    dtype: str = "auto"
    max_context: int = 8192
    kv_capacity: int | None = None
    lanes: int = 1
    prefill_chunk: int = 1024
    kv_kind: str = "auto"
    speculator: str | None = None
    draft_tokens: int = 3
    proposal_head: bool = False
    vision: bool | None = None
    cuda_graph: bool = True
    requantize: Mapping[str, str] = field(default_factory=dict)
    look_ahead: bool | None = None
    prefix_reuse: bool = False
    snapshots: int | None = None
    host_cache_mib: int = 8192


@dataclass(frozen=True)
class Settings:
    """What an engine runs with. `dtype` is the type of direct matrices and, unless `kv_kind` says
    otherwise, of caches; `width` counts the columns of a round: drafts and one. `snapshots` are
    those of prefixes on the device, 0 without reuse."""

    device: torch.device
    dtype: torch.dtype
    max_context: int
    pages: int
    lanes: int
    prefill_chunk: int
    kv_kind: str
    drafts: int
    proposal_head: bool
    vision: bool
    cuda_graph: bool
    requantize: Mapping[str, str] = field(default_factory=dict)
    look_ahead: bool = False
    snapshots: int = 0
    host_cache_mib: int = 0

    @property
    def width(self) -> int:
        return self.drafts + 1

    @property
    def activations(self) -> torch.dtype:
        """The compute type: a processor computes in float32 anyway, and rounding less is free."""
        return torch.float32 if self.device.type == "cpu" else self.dtype

    @property
    def decoded(self) -> bool:
        """Whether every matrix is kept in `dtype`: a processor reads those fastest."""
        return self.device.type == "cpu"


def resolve(config: EngineConfig, geometry: ModelGeometry, has_proposal: bool) -> Settings:
    """Return the settings for a model; UsageError naming the option for what does not fit."""
    device = _choose_device(config.device)
    dtype = _choose_dtype(config.dtype, device)
    kind = config.kv_kind if config.kv_kind != "auto" else _DTYPE_NAMES[dtype]
    if kind not in KV_KINDS:
        raise UsageError("KV type is not known", got=kind, want=", ".join(KV_KINDS))
    context = _check_range(
        "--max-context", config.max_context, 1, geometry.text.max_position_embeddings
    )
    drafts = _count_drafts(config, geometry)
    lanes = _check_range("--max-concurrency", config.lanes, 1, MAX_LANES)
    if config.proposal_head and not has_proposal:
        raise UsageError(
            "the artifact has no proposal head",
            remedy="convert it again with --proposal-rows N",
        )
    if config.vision and geometry.vision is None:
        raise UsageError("the artifact has no vision tower", remedy="leave --vision out")
    return Settings(
        device,
        dtype,
        context,
        _count_pages(config, context, lanes),
        lanes,
        _check_range("--prefill-chunk", config.prefill_chunk, 1, 65536),
        kind,
        drafts,
        config.proposal_head,
        geometry.vision is not None if config.vision is None else config.vision,
        config.cuda_graph and device.type == "cuda",
        config.requantize,
        device.type == "cuda" if config.look_ahead is None else config.look_ahead,
        _count_snapshots(config, lanes),
        _check_range("--host-cache-mib", config.host_cache_mib, 0, MAX_HOST_CACHE),
    )


_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def _choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise UsageError("device cannot be used", got=name, want="auto, cpu, cuda or cuda:N")
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"device cannot be used: {str(error).splitlines()[0]}", got=name,
            remedy="use --device cpu",
        ) from None  # fmt: skip
    return device


def _choose_dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in _DTYPES:
        raise UsageError("compute type is not known", got=name, want=", ".join(_DTYPES))
    return _DTYPES[name]


def _check_range(option: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise UsageError(f"{option} is out of range", got=value, want=f"{low} to {high}")
    return value


def _count_drafts(config: EngineConfig, geometry: ModelGeometry) -> int:
    if config.speculator is None:
        return 0
    require_speculator(config.speculator)
    if not geometry.mtp:
        raise UsageError("the artifact has no MTP head", remedy="leave --spec mtp out")
    return _check_range("--draft-tokens", config.draft_tokens, 1, MAX_DRAFTS)


def _count_snapshots(config: EngineConfig, lanes: int) -> int:
    if not config.prefix_reuse:
        return 0
    if config.snapshots is None:
        return max(lanes, LEAST_SNAPSHOTS)
    return _check_range("snapshots", config.snapshots, 1, MAX_SNAPSHOTS)


def _count_pages(config: EngineConfig, context: int, lanes: int) -> int:
    least = -(-context // PAGE_TOKENS)
    if config.kv_capacity is None:
        return least
    pages = -(-config.kv_capacity // PAGE_TOKENS)
    if not least <= pages <= least * lanes:
        raise UsageError(
            "--kv-capacity is out of range", got=config.kv_capacity,
            want=f"{context} (--max-context) to {context * lanes} (times --max-concurrency)",
        )  # fmt: skip
    return pages
