"""What `ninfer serve` and `ninfer plan` can be told: one table for the command line, files of
options, the settings that are printed, and the documentation."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

DEFAULT_CONTEXT = 8192
DEFAULT_DRAFTS = 3


def _say(
    default: Any,
    help: str,
    metavar: str | None = None,
    *,
    also: tuple[str, ...] = (),
    negative: str | None = None,
    secret: bool = False,
    numeric: bool = False,
    unset: str | None = None,
) -> Any:
    """Return a field; `also` are other names, `negative` is the flag that switches off, `numeric`
    says that a file may give a text as a number, `unset` what the default None means."""
    return field(
        default=default,
        metadata={
            "help": help, "metavar": metavar, "also": also, "negative": negative,
            "secret": secret, "numeric": numeric, "unset": unset,
        },
    )  # fmt: skip


@dataclass(frozen=True)
class ServeOptions:
    """Every option with its default; the name of a field, with dashes, is that of its option."""

    host: str = _say("127.0.0.1", "Address to listen on; 0.0.0.0 for all.", "ADDRESS")
    port: int = _say(8080, "Port to listen on; 0: a free one.", "N")
    api_key: tuple[str, ...] = _say(
        (), "A key that clients send; repeatable. @FILE, or a path: keys from a file.",
        "KEY", secret=True, unset="open to everyone",
    )  # fmt: skip
    api_key_file: Path | None = _say(  # noqa: RUF009 - a field, as dataclasses.field is
        None, "Keys from a file, one a line.", "FILE", unset="none"
    )
    cors: bool = _say(False, "Let web pages of other origins use the server.", negative="no-cors")
    model_id: str | None = _say(
        None, "Name of the model for clients.", "ID", unset="that of the artifact"
    )

    device: str = _say("auto", "auto, cpu, cuda or cuda:N.", "DEVICE")
    dtype: str = _say("auto", "auto, bf16 or fp32.", "TYPE")
    max_context: int | None = _say(
        None, "Tokens of prompt and answer of a request.", "N",
        unset=f"{DEFAULT_CONTEXT}, or what the model has",
    )  # fmt: skip
    kv_capacity: str | None = _say(
        None, "Tokens that all requests have together; auto: what memory is left for.", "N|auto",
        numeric=True, unset="as much as --max-context",
    )  # fmt: skip
    headroom: str | None = _say(
        None, "Memory to leave free, such as 1GiB; a plain number is bytes.", "SIZE",
        numeric=True, unset="1GiB with --kv-capacity auto, else 0",
    )  # fmt: skip
    max_concurrency: int = _say(1, "Requests that are answered at the same time, 1 to 8.", "N")
    max_pending_requests: int = _say(16, "Requests that wait beside those.", "N")
    pending_timeout_ms: int = _say(600_000, "How long a request may wait.", "N")
    prefill_chunk: int = _say(1024, "Tokens of a prompt that are read at once.", "N")
    kv_dtype: str = _say("auto", "Type of keys and values: auto, bf16, fp8, int8, fp32.", "TYPE")
    spec: str | None = _say(None, "Draft tokens ahead: mtp.", "NAME", unset="no drafts")
    draft_tokens: int | None = _say(
        None, "Drafts of a round, 1 to 15.", "N", unset=f"{DEFAULT_DRAFTS}, with --spec"
    )
    lm_head_draft: bool = _say(False, "Draft with the shortlist head.", negative="no-lm-head-draft")
    vision: bool = _say(
        False, "Load the vision tower; accept images and videos.", negative="no-vision"
    )
    cuda_graph: bool = _say(
        True, "Replay rounds as CUDA graphs; on unless switched off.", negative="no-cuda-graph"
    )
    requantize: str = _say(
        "", "Re-quantise bf16 matrices at load, e.g. head=w8,mtp=nvfp4.", "GROUP=FORMAT,..."
    )
    host_cache_mib: int = _say(
        8192, "Host memory for prompts seen before, beside the device's.", "N"
    )
    device_snapshots: int | None = _say(
        None, "States of prompts that stay on the device, 1 to 64.", "N",
        also=("device-state-slots",), unset="one for each lane, at least 4",
    )  # fmt: skip
    prefix_reuse: bool = _say(
        True, "Go on from prompts seen before; on unless switched off.", negative="no-prefix-reuse"
    )
    media_cache_mib: int = _say(256, "Host memory for prepared images and videos.", "N")

    default_max_tokens: int | None = _say(
        None, "Tokens of an answer that does not say.", "N", unset="the room there is"
    )
    thinking: bool | None = _say(
        None, "Think before an answer, unless a request says otherwise.", negative="no-thinking",
        unset="the chat template decides",
    )  # fmt: skip
    thinking_budget: int | None = _say(
        None, "Tokens of reasoning of a request that does not say.", "N",
        also=("default-thinking-budget",), unset="no limit",
    )  # fmt: skip
    reasoning_effort: str | None = _say(
        None, "Effort of a request that does not say, such as low or high.", "EFFORT",
        also=("default-reasoning-effort",), unset="the chat template decides",
    )  # fmt: skip
    preserve_thinking: bool = _say(
        False, "Keep the reasoning of earlier answers in prompts.", negative="no-preserve-thinking"
    )
    answer_reserve: int = _say(512, "Tokens that reasoning leaves to the answer.", "N")
    chat_template: Path | None = _say(  # noqa: RUF009
        None, "Instead of the artifact's own.", "FILE", unset="that of the artifact"
    )

    temperature: float | None = _say(None, "Instead of the model's own.", "F", unset="the model's")
    top_k: int | None = _say(None, "Draw from so many tokens; 0: all.", "N", unset="the model's")
    top_p: float | None = _say(None, "Draw from this much probability.", "F", unset="the model's")
    min_p: float | None = _say(
        None, "Least share of the likeliest token's.", "F", unset="the model's"
    )
    presence_penalty: float | None = _say(
        None, "Off tokens that were used.", "F", unset="the model's"
    )
    frequency_penalty: float | None = _say(
        None, "Off tokens, for each use.", "F", unset="the model's"
    )
    repetition_penalty: float | None = _say(None, "Divides used tokens.", "F", unset="the model's")
    logit_bias: tuple[str, ...] = _say(
        (), "Add to the logit of a token; -inf forbids it; repeatable.", "ID=VALUE", unset="none"
    )
    seed: int | None = _say(None, "Same seed, same answer.", "N", unset="another for every request")
    greedy: bool = _say(
        False, "Take the most likely token, whatever requests say.", negative="no-greedy"
    )

    max_request_mib: int = _say(384, "Largest body of a request.", "N")
    allow_media_urls: bool = _say(
        False, "Fetch images and videos from http(s) addresses.", negative="no-allow-media-urls"
    )
    request_log_jsonl: Path | None = _say(  # noqa: RUF009
        None, "Write a line for every request to this file.", "FILE", unset="none"
    )
    request_log_max_mib: int = _say(
        64, "Then that file is compressed and begun anew; 0: never.", "N"
    )
    request_log_keep: int = _say(4, "Compressed files that are kept.", "N")
    max_directory_mib: int = _say(256, "Refuse artifacts with larger directories.", "N")
    log_level: str = _say("info", "debug, info, warning or error.", "LEVEL")
    drain_seconds: float = _say(
        5.0, "How long requests may go on when the server is told to end.", "S"
    )


def option_name(field_name: str) -> str:
    """Return the long name of an option, without its dashes in front."""
    return field_name.replace("_", "-")


def name_fields() -> dict[str, tuple[str, bool | None]]:
    """Return the name of every option -> its field, and what a flag switches to (None: a value)."""
    names: dict[str, tuple[str, bool | None]] = {}
    for item in fields(ServeOptions):
        flag = is_flag(item.type)
        for name in (option_name(item.name), *item.metadata["also"]):
            names[name] = (item.name, True if flag else None)
        if flag and item.metadata["negative"]:
            names[item.metadata["negative"]] = (item.name, False)
    return names


def is_flag(annotation: Any) -> bool:
    return str(annotation).startswith("bool")
