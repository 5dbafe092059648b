"""What `ninfer run` was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ninfer_formats.errors import UsageError

DEFAULT_CONTEXT = 8192


@dataclass(frozen=True)
class SamplingFlags:
    """Values of the sampling flags, None where one is not given."""

    greedy: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None


@dataclass(frozen=True)
class EngineFlags:
    """Values of the flags that shape the engine; `max_context` None: what the model has, up to
    8192."""

    device: str = "auto"
    dtype: str = "auto"
    max_context: int | None = None
    kv_dtype: str = "auto"
    spec: str | None = None
    draft_tokens: int = 3
    lm_head_draft: bool = False
    no_vision: bool = False
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
    thinking: bool | None = None
    reasoning_effort: str | None = None
    json_output: bool = False
    sampling: SamplingFlags = field(default_factory=SamplingFlags)
    engine: EngineFlags = field(default_factory=EngineFlags)


def check_options(options: RunOptions) -> None:
    """Raise UsageError, before anything is loaded, for options that exclude each other."""
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
    if media and options.engine.no_vision:
        raise UsageError("images need the vision tower", remedy="leave --no-vision out")
    _check_sampling(options.sampling)


def _check_sampling(flags: SamplingFlags) -> None:
    ranges = (
        ("--temperature", flags.temperature, 0.0, 100.0),
        ("--top-k", flags.top_k, 0, 2**31 - 1),
        ("--top-p", flags.top_p, 0.0, 1.0),
        ("--min-p", flags.min_p, 0.0, 1.0),
        ("--presence-penalty", flags.presence_penalty, -100.0, 100.0),
        ("--frequency-penalty", flags.frequency_penalty, -100.0, 100.0),
        ("--repetition-penalty", flags.repetition_penalty, 0.01, 100.0),
        ("--seed", flags.seed, 0, 2**63 - 1),
    )
    for name, value, low, high in ranges:
        if value is not None and not low <= value <= high:  # also NaN
            raise UsageError(f"{name} is out of range", got=value, want=f"{low} to {high}")
