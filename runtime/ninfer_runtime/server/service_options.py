"""What the server does where requests do not say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ninfer_runtime.server.requests import SamplingFields, ThinkingFields
from ninfer_runtime.server.thinking_limit import CLOSE_TEXT


@dataclass(frozen=True)
class ServiceOptions:
    """`default_max_tokens` None: as much as every lane has room for. `template` are variables of
    the chat template, `template_source` replaces the artifact's. `answer_reserve` and `close_text`
    as in `thinking_limit`. A request waits `pending_seconds` for a lane, and `max_pending` wait
    besides those that have one. `media_bytes` of prepared images and videos are kept."""

    model_id: str | None = None
    default_max_tokens: int | None = None
    thinking: ThinkingFields = field(default_factory=ThinkingFields)
    template: Mapping[str, Any] = field(default_factory=dict)
    template_source: str | None = None
    answer_reserve: int = 512
    close_text: str = CLOSE_TEXT
    sampling: SamplingFields = field(default_factory=SamplingFields)
    greedy: bool = False
    max_pending: int = 16
    pending_seconds: float = 600.0
    media_bytes: int = 256 << 20
