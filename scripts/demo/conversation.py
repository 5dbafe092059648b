"""The chat template's Python twin: conversations as pieces of text, marked as target or not."""

from __future__ import annotations

import json
from typing import Any

END_OF_TEXT, TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
SPECIAL = [
    *(END_OF_TEXT, TURN, END_OF_TURN),
    *("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>"),
    *("<|quad_start|>", "<|quad_end|>", VISION_START, VISION_END, "<|vision_pad|>", IMAGE, VIDEO),
]
MARKUP = [
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>"),
]
ADDED_TOKENS = SPECIAL + MARKUP
TOOLS_HEAD = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
TOOLS_TAIL = (
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO "
    "suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\n"
    "value_1\n</parameter>\n</function>\n</tool_call>"
)
Piece = tuple[str, int]
Message = dict[str, Any]


def render(messages: list[Message], tools: list[Any] | None = None) -> list[Piece]:
    """Return (text, is target) pieces; replies are targets, joined they are the template's text."""
    pieces = _render_system(messages, tools)
    last = max(i for i, message in enumerate(messages) if message["role"] == "user")
    for i, message in enumerate(messages):
        content = render_content(message.get("content")).strip()
        if message["role"] == "user":
            pieces.append((f"{TURN}user\n{content}{END_OF_TURN}\n", 0))
        elif message["role"] == "tool":
            first = messages[i - 1]["role"] != "tool"
            final = i + 1 == len(messages) or messages[i + 1]["role"] != "tool"
            text = f"{TURN}user" if first else ""
            text += f"\n<tool_response>\n{content}\n</tool_response>"
            pieces.append((text + (f"{END_OF_TURN}\n" if final else ""), 0))
        elif message["role"] == "assistant":
            pieces += _render_reply(message, content, i > last)
    return pieces


def _render_system(messages: list[Message], tools: list[Any] | None) -> list[Piece]:
    system = messages[0]["content"].strip() if messages[0]["role"] == "system" else None
    if tools:
        text = TOOLS_HEAD + "".join("\n" + _to_json(tool) for tool in tools) + TOOLS_TAIL
        text += f"\n\n{system}" if system else ""
    elif system is not None:
        text = system
    else:
        return []
    return [(f"{TURN}system\n{text}{END_OF_TURN}\n", 0)]


def _render_reply(message: Message, content: str, after_question: bool) -> list[Piece]:
    body = content
    for number, call in enumerate(message.get("tool_calls") or []):
        body += ("\n\n" if content else "") if number == 0 else "\n"
        body += _render_call(call["function"])
    head = f"{TURN}assistant\n"
    target = body + END_OF_TURN
    if after_question:
        reasoning = (message.get("reasoning_content") or "").strip()
        head += "<think>\n" if reasoning else "<think>\n\n</think>\n\n"
        if reasoning:
            target = f"{reasoning}\n</think>\n\n{target}"
    return [(head, 0), (target, 1), ("\n", 0)]


def _render_call(function: dict[str, Any]) -> str:
    text = f"<tool_call>\n<function={function['name']}>\n"
    for name, value in function["arguments"].items():
        shown = value if isinstance(value, str) else _to_json(value)
        text += f"<parameter={name}>\n{shown}\n</parameter>\n"
    return text + "</function>\n</tool_call>"


def render_content(content: Any) -> str:
    if isinstance(content, str):
        return content
    marks = {
        "image": f"{VISION_START}{IMAGE}{VISION_END}",
        "video": f"{VISION_START}{VIDEO}{VISION_END}",
    }
    return "".join(marks.get(item["type"]) or item["text"] for item in content or [])


def _to_json(value: Any) -> str:
    # As `tojson` in the environment that renders chat templates.
    return json.dumps(value, ensure_ascii=False)


def encode_pieces(tokenizer: Any, pieces: list[Piece]) -> tuple[list[int], list[int]]:
    """Return token ids and, for each, whether it is a target."""
    ids: list[int] = []
    targets: list[int] = []
    for text, target in pieces:
        encoded = tokenizer.encode(text).ids
        ids += encoded
        targets += [target] * len(encoded)
    return ids, targets
