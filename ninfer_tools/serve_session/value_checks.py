"""Checks of options that need no artifact: values out of range, options that exclude each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.serve_session.byte_sizes import parse_size
from ninfer_tools.serve_session.options import ServeOptions, option_name
from ninfer_tools.serve_session.problems import ProblemList

LOG_LEVELS = ("debug", "info", "warning", "error")
_MOST = 1 << 40

# Field -> least and greatest value. Those the engine has are checked by the engine.
_RANGES: dict[str, tuple[float, float]] = {
    "port": (0, 65535),
    "max_pending_requests": (0, 1_000_000),
    "pending_timeout_ms": (1, _MOST),
    "media_cache_mib": (0, _MOST),
    "default_max_tokens": (1, _MOST),
    "thinking_budget": (1, _MOST),
    "answer_reserve": (0, _MOST),
    "max_request_mib": (1, _MOST),
    "request_log_max_mib": (0, _MOST),
    "request_log_keep": (0, 1000),
    "max_directory_mib": (1, 65536),
    "drain_seconds": (0, 86400),
}
# Option -> field of the sampling parameters.
SAMPLING = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "presence_penalty": "presence",
    "frequency_penalty": "frequency",
    "repetition_penalty": "repetition",
    "seed": "seed",
}


def check_values(options: ServeOptions, problems: ProblemList) -> None:
    """Add everything that is wrong with the options by themselves."""
    for field, (low, high) in _RANGES.items():
        value = getattr(options, field)
        if value is not None and not low <= value <= high:
            problems.add(out_of_range(field, value, low, high))
    _check_sampling(options, problems)
    _check_words(options, problems)
    _check_pairs(options, problems)
    with problems.collect():
        if options.headroom is not None:
            parse_size(options.headroom, "--headroom")
    for path in (options.api_key_file, options.chat_template):
        with problems.collect():
            _require_readable(path)


def out_of_range(field: str, value: Any, low: float, high: float) -> UsageError:
    """Return the error of an option that is not between `low` and `high`."""
    span = f"at least {low:g}" if high == _MOST else f"{low:g} to {high:g}"
    return UsageError(f"--{option_name(field)} is out of range", got=value, want=span)


def _check_sampling(options: ServeOptions, problems: ProblemList) -> None:
    from ninfer_runtime.engine.ranges import SAMPLING_RANGES, in_range
    from ninfer_tools.run_session.options import parse_bias
    from ninfer_tools.run_session.sampling import check_bias

    for field, parameter in SAMPLING.items():
        value = getattr(options, field)
        if value is not None and not in_range(parameter, value):
            problems.add(out_of_range(field, value, *SAMPLING_RANGES[parameter]))
    with problems.collect():
        check_bias(parse_bias(options.logit_bias), "--logit-bias")


def _check_words(options: ServeOptions, problems: ProblemList) -> None:
    from ninfer_runtime.server.thinking import EFFORTS

    words = {"log_level": LOG_LEVELS, "reasoning_effort": EFFORTS}
    for field, known in words.items():
        value = getattr(options, field)
        if value is not None and value not in known:
            problems.add(
                UsageError(f"--{option_name(field)} is not known", got=value, want=", ".join(known))
            )
    if not options.host.strip():
        problems.add(UsageError("--host is empty", want="an address, or 0.0.0.0 for all"))
    if any(not key.strip() for key in options.api_key):
        problems.add(UsageError("--api-key is empty", want="a key, or no --api-key"))
    if options.model_id is not None and not options.model_id.strip():
        problems.add(UsageError("--model-id is empty", want="a name"))


def _check_pairs(options: ServeOptions, problems: ProblemList) -> None:
    from ninfer_runtime.engine.speculators import require_speculator
    from ninfer_runtime.weights.requantization import parse_requantization

    if options.spec is not None:
        with problems.collect():
            require_speculator(options.spec)
    else:
        given = {"--draft-tokens": options.draft_tokens is not None,
                 "--lm-head-draft": options.lm_head_draft}  # fmt: skip
        for name in (name for name, stated in given.items() if stated):
            problems.add(UsageError(f"{name} needs a speculator", remedy="add --spec mtp"))
    if options.thinking is False and options.reasoning_effort not in (None, "none"):
        problems.add(
            UsageError("--reasoning-effort and --no-thinking exclude each other",
                       got=options.reasoning_effort, remedy="leave one out")
        )  # fmt: skip
    if options.thinking and options.reasoning_effort == "none":
        problems.add(
            UsageError("--reasoning-effort none and --thinking exclude each other",
                       remedy="leave one out")
        )  # fmt: skip
    with problems.collect():
        parse_requantization(options.requantize)


def _require_readable(path: Path | None) -> None:
    if path is None:
        return
    try:
        path.open("rb").close()
    except OSError as error:
        raise NinferError(f"cannot open: {error.strerror}", path=path) from None
