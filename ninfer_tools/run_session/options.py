"""What `ninfer run` was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ninfer_formats.errors import UsageError

DEFAULT_CONTEXT = 8192
DEFAULT_DRAFTS = 3


@dataclass(frozen=True)
class SamplingFlags:
    """Values of the sampling flags, None where one is not given; `bias` has texts ID=VALUE."""

    greedy: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    bias: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineFlags:
    """Values of the flags that shape the engine; `max_context` None: what the model has, up to
    8192; `draft_tokens` None: 3, with `spec`; `vision` None: loaded where it is needed."""

    device: str = "auto"
    dtype: str = "auto"
    max_context: int | None = None
    kv_dtype: str = "auto"
    spec: str | None = None
    draft_tokens: int | None = None
    lm_head_draft: bool = False
    vision: bool | None = None
    no_cuda_graph: bool = False
    requantize: str = ""


@dataclass(frozen=True)
class RunOptions:
    """One of `prompt`, `prompt_ids`, `messages` and `chat` says what is answered."""

    prompt: str | None = None
    prompt_ids: str | None = None
    messages: Path | None = None
    chat: bool = False
    images: tuple[Path, ...] = ()
    videos: tuple[Path, ...] = ()
    max_new: int | None = None
    stops: tuple[str, ...] = ()
    top_logprobs: int | None = None
    thinking: bool | None = None
    reasoning_effort: str | None = None
    json_output: bool = False
    sampling: SamplingFlags = field(default_factory=SamplingFlags)
    engine: EngineFlags = field(default_factory=EngineFlags)


def check_options(options: RunOptions) -> None:
    """Raise UsageError, before anything is loaded, for options that exclude each other or are out
    of range."""
    modes = {
        "--prompt": options.prompt is not None,
        "--prompt-ids": options.prompt_ids is not None,
        "--messages": options.messages is not None,
        "--chat": options.chat,
    }
    given = [name for name, stated in modes.items() if stated]
    if len(given) != 1:
        raise UsageError(
            "nothing to answer" if not given else "two things to answer",
            got=" and ".join(given) or None, want=f"one of {', '.join(modes)}",
        )  # fmt: skip
    media = bool(options.images or options.videos)
    if options.prompt is not None and not options.prompt.strip() and not media:
        raise UsageError("the prompt is empty", want="--prompt TEXT")
    if options.chat and options.json_output:
        raise UsageError("--chat has no --json", remedy="use --messages FILE.json")
    if media and options.prompt_ids is not None:
        raise UsageError("--prompt-ids takes no images or videos", remedy="use --prompt")
    if media and options.engine.vision is False:
        raise UsageError("images need the vision tower", remedy="leave --no-vision out")
    if options.top_logprobs is not None and not options.json_output:
        raise UsageError("--top-logprobs needs --json", remedy="add --json")
    _check_drafts(options.engine)
    _check_sampling(options)


def _check_drafts(flags: EngineFlags) -> None:
    from ninfer_runtime.engine.speculators import require_speculator

    if flags.spec is not None:
        require_speculator(flags.spec)
        return
    given = {"--draft-tokens": flags.draft_tokens is not None,
             "--lm-head-draft": flags.lm_head_draft}  # fmt: skip
    for name, stated in given.items():
        if stated:
            raise UsageError(f"{name} needs a speculator", remedy="add --spec mtp")


def _check_sampling(options: RunOptions) -> None:
    from ninfer_tools.run_session.sampling import FIELDS, check_bias, check_stops, check_value

    flags = options.sampling
    for field_, (key, _) in FIELDS.items():
        check_value(field_, getattr(flags, key), f"--{key.replace('_', '-')}")
    check_value("seed", flags.seed, "--seed")
    check_bias(parse_bias(flags.bias), "--logit-bias")
    check_stops(options.stops, "--stop")


def parse_bias(items: Sequence[str]) -> dict[int, float]:
    """Return token id -> bias of texts like `1234=-5`; UsageError for others."""
    found: dict[int, float] = {}
    for item in items:
        id, sign, value = item.partition("=")
        try:
            found[int(id)] = float(value)
        except ValueError:
            sign = ""
        if not sign:
            raise UsageError("--logit-bias is not understood", got=item, want="ID=VALUE")
    return found
