"""From a body of the Responses API to the request that is prepared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.places import naming
from ninfer_runtime.server.requests import AnswerFields, ChatRequest
from ninfer_runtime.server.responses.body import ResponseBody
from ninfer_runtime.server.responses.conversation import Conversation
from ninfer_runtime.server.responses.input_items import MESSAGE, REFERENCE, RESULT
from ninfer_runtime.server.responses.output_items import COMPLETED, make_id
from ninfer_runtime.server.responses.store import Item, ResponseStore
from ninfer_runtime.server.responses.tools import OfferedTools, offer_functions
from ninfer_runtime.server.thinking import join_thinking

EFFORT = "reasoning.effort"
_THINKING = ("enable_thinking", "reasoning_effort", "thinking_budget")
_FIELDS = {
    "messages": "input", "max_tokens": "max_output_tokens", "reasoning_effort": EFFORT,
    "response_format": "text.format",
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """`input` are all items the model sees; `places` the client's names of what is in `wanted`."""

    wanted: ChatRequest
    input: tuple[Item, ...]
    tools: OfferedTools
    places: Mapping[str, str]


def plan_response(body: ResponseBody, store: ResponseStore) -> Plan:
    """Return what a body asks for; ApiError 400 for fields that disagree, 404 for an earlier
    response that is not here."""
    earlier: tuple[Item, ...] = ()
    if body.previous_response_id is not None:
        earlier = store.find(body.previous_response_id, "previous_response_id").items
    own = _list_items(body, store)
    talk = Conversation()
    if body.instructions:
        talk.add_text("system", body.instructions, "instructions")
    for item in earlier:
        talk.add(item, "previous_response_id")
    for item, place in own:
        talk.add(item, place)
    tools = offer_functions(body.tools or ())
    places = {**_FIELDS, **talk.places}
    places |= {f"tools[{i}]": place for i, place in enumerate(tools.places)}
    with naming(places):
        wanted = _write_request(body, talk, tools)
    return Plan(wanted, (*earlier, *(item for item, _ in own)), tools, places)


def _write_request(body: ResponseBody, talk: Conversation, tools: OfferedTools) -> ChatRequest:
    kwargs = body.chat_template_kwargs
    variables = kwargs.model_dump(exclude_none=True) if kwargs else {}
    effort = body.reasoning.effort if body.reasoning else None
    answer = AnswerFields(
        max_tokens=body.max_output_tokens,
        sampling=body.choose_sampling(),
        logprobs=body.scores,
        constraint=body.text.choose() if body.text else None,
    )
    return ChatRequest(
        messages=tuple(talk.messages),
        answer=answer,
        tools=tools.definitions,
        tool_choice=tools.choose(body.tool_choice),
        parallel_calls=body.parallel_tool_calls is not False,
        thinking=join_thinking(effort, body.enable_thinking, body.thinking_budget, variables),
        template={name: value for name, value in variables.items() if name not in _THINKING},
    )


def _list_items(body: ResponseBody, store: ResponseStore) -> list[tuple[Item, str]]:
    """Return the items of the input and their places; references are resolved."""
    if isinstance(body.input, str):
        item = {"type": MESSAGE, "role": "user", "content": body.input}
        return [(_complete(item), "input")] if body.input else []
    found = []
    for i, given in enumerate(body.input or ()):
        place = f"input[{i}]"
        item: Item | None = given.plain()
        if given.kind == REFERENCE:
            item = store.find_item(given.id or "")
            if item is None:
                message = f"{place}.id: no item {(given.id or '')[:100]!r} is kept here"
                raise ApiError(404, message, "item_not_found", f"{place}.id")
        else:
            item = _complete(given.plain())
        found.append((item, place))
    return found


def _complete(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as it is kept: with an id and a status, its content in parts."""
    kind = item["type"]
    item = {"id": make_id(kind), "status": COMPLETED, **item}
    if kind == MESSAGE:
        own = "output_text" if item["role"] == "assistant" else "input_text"
        content = item["content"]
        if isinstance(content, str):
            content = [{"type": own, "text": content}]
        item["content"] = [_complete_part(part) for part in content]
    elif kind == RESULT and not isinstance(item["output"], str):
        item["output"] = [_complete_part(part) for part in item["output"]]
    return item


def _complete_part(part: Mapping[str, Any]) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if part["type"] == "input_image":
        more = {"detail": "auto"}
    elif part["type"] == "output_text":
        more = {"annotations": []}
    return {**more, **part}
