"""Switch, effort and budget of the reasoning, from the spellings clients use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ninfer_runtime.server.api_error import ApiError, invalid
from ninfer_runtime.server.requests import ThinkingFields

NONE = "none"
EFFORTS = (NONE, "minimal", "low", "medium", "high", "xhigh", "max")
_KWARGS = "chat_template_kwargs"
_CONFLICT = "conflicting_template_option"


def join_thinking(
    effort: str | None,
    enabled: bool | None,
    budget: int | None,
    kwargs: Mapping[str, Any],
) -> ThinkingFields:
    """Return what top-level fields and `chat_template_kwargs` say together.

    Effort `none` and budget 0 switch thinking off, another effort or budget on. ApiError 400
    `conflicting_template_option` where two of them disagree.
    """
    effort = _agree("reasoning_effort", effort, kwargs)
    enabled = _agree("enable_thinking", enabled, kwargs)
    budget = _agree("thinking_budget", budget, kwargs)
    for name, value, off in (
        ("reasoning_effort", effort, NONE),
        ("thinking_budget", budget, 0),
    ):
        if value is None:
            continue
        if enabled is None:
            enabled = value != off
        elif enabled != (value != off):
            state = "on" if enabled else "off"
            message = f"{name} {value!r} contradicts a field that switches thinking {state}"
            raise invalid(message, name, _CONFLICT)
    return ThinkingFields(enabled, None if effort == NONE else effort, budget or None)


def fit_effort(effort: str | None, supported: Sequence[str], param: str) -> str | None:
    """Return the effort of the model's template next to the one asked for, the higher of two.

    None for a template without efforts: thinking is on, at its only level. ApiError 400 listing
    the accepted values for another word.
    """
    if effort is None:
        return None
    if effort not in EFFORTS and effort not in supported:
        accepted = ", ".join(EFFORTS)
        message = f"{param} {effort[:80]!r} is not supported, accepted are: {accepted}"
        raise ApiError(400, message, "reasoning_effort_not_supported", param)
    if effort in supported or not supported:
        return effort if supported else None
    known = [EFFORTS.index(level) for level in supported if level in EFFORTS]
    wanted = EFFORTS.index(effort)
    nearest = min(known, key=lambda level: (abs(level - wanted), -level), default=None)
    return None if nearest is None else EFFORTS[nearest]


def _agree(name: str, top: Any, kwargs: Mapping[str, Any]) -> Any:
    below = kwargs.get(name)
    if top is not None and below is not None and top != below:
        message = f"{name} is {top!r} but {_KWARGS}.{name} is {below!r}"
        raise invalid(message, f"{_KWARGS}.{name}", _CONFLICT)
    return below if top is None else top
