"""From a body of the Messages API to the request that is prepared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from ninfer_runtime.server.anthropic.body import AnthropicBody
from ninfer_runtime.server.anthropic.conversation import AnthropicTalk
from ninfer_runtime.server.anthropic.tools import choose_anthropic
from ninfer_runtime.server.api_error import invalid
from ninfer_runtime.server.requests import AnswerFields, ChatRequest, ThinkingFields

EFFORT = "output_config.effort"
_FIELDS = {
    "stop": "stop_sequences", "thinking_budget": "thinking.budget_tokens",
    "reasoning_effort": EFFORT,
}  # fmt: skip
_PREFILL = "assistant_prefill_not_supported"


@dataclass(frozen=True)
class AnthropicPlan:
    """`places` are the client's names of what is in `wanted`."""

    wanted: ChatRequest
    places: Mapping[str, str]


def plan_message(body: AnthropicBody) -> AnthropicPlan:
    """Return what a body asks for; ApiError 400 for fields that do not go together."""
    talk = AnthropicTalk()
    talk.add_system(body.system)
    for i, message in enumerate(body.messages):
        talk.add(message, f"messages[{i}]")
    tools = [(i, tool) for i, tool in enumerate(body.tools or ()) if tool.offered]
    places = {**_FIELDS, **talk.places}
    places |= {f"tools[{place}]": f"tools[{i}]" for place, (i, _) in enumerate(tools)}
    prefill, thinking = talk.take_prefill(), body.choose_thinking()
    if prefill is not None:
        thinking = _allow_prefill(body, thinking)
    parallel = body.tool_choice is None or not body.tool_choice.disable_parallel_tool_use
    wanted = ChatRequest(
        messages=tuple(talk.messages),
        answer=AnswerFields(
            max_tokens=body.max_tokens,
            sampling=body.choose_sampling(),
            stop=tuple(body.stop_sequences or ()),
            constraint=body.choose_constraint(),
        ),
        tools=tuple(tool.define() for _, tool in tools),
        tool_choice=choose_anthropic(body.tools or (), body.tool_choice),
        parallel_calls=parallel,
        thinking=thinking,
        prefill=prefill or "",
    )
    return AnthropicPlan(wanted, places)


def _allow_prefill(body: AnthropicBody, thinking: ThinkingFields) -> ThinkingFields:
    """Return the thinking of an answer whose begin is given: none."""
    where = f"messages[{len(body.messages) - 1}]"
    choice = body.tool_choice
    if body.thinking is not None and thinking.enabled:
        other = "thinking"
    elif body.choose_constraint() is not None:
        other = "an output format"
    elif choice is not None and choice.type in ("any", "tool"):
        other = f"tool_choice {choice.type!r}"
    else:
        return dataclasses.replace(thinking, enabled=False, effort=None, budget=None)
    message = f"{where}: the begin of an answer does not go together with {other}"
    raise invalid(message, where, _PREFILL)
