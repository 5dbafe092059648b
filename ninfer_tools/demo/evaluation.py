"""The fixed evaluation sets of the demo checkpoint, and when a reply counts as right.

`chat`, `long` (prompts of about 7,000 tokens) and `vision` hold questions with one right answer,
`code` held-out source text to predict.
`scores.json` beside them holds what transformers reaches on exactly these items.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ninfer_tools.demo.manifest import PACKED, read_record
from ninfer_tools.demo.packing import unpack

FOLDER = PACKED / "evaluation"
END_OF_TURN = "<|im_end|>"
THINK_END = "</think>\n\n"
_CALL = re.compile(r"<tool_call>\n<function=([^>\n]+)>\n(.*?)</function>\n</tool_call>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>", re.DOTALL)


@dataclass(frozen=True)
class Question:
    """A prompt with one right answer.

    `messages` and `tools` go into the chat template with `enable_thinking=think`; their
    {"type": "image"} and {"type": "video"} entries stand for `media`: PNG files, one per image,
    or the frames of the one video (two a second). `answer` is the text of the reply, a call
    {"name", "arguments"}, or {"words": n} for any n words.
    """

    id: str
    task: str
    think: bool
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    answer: str | dict[str, Any]
    media: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Passage:
    """Consecutive lines of a source file that no part of the training has seen."""

    id: str
    task: str
    source: str
    text: str


def describe_sets() -> dict[str, Any]:
    """Return how the sets were made: seeds, settings, counts, hashes, packages and licences."""
    return read_record(FOLDER / "sets.json")


def read_scores() -> dict[str, Any]:
    """Return the recorded scores of transformers, per dtype and task."""
    return read_record(FOLDER / "scores.json")


def read_acceptance() -> dict[str, Any]:
    """Return how far drafts reach in transformers' replies, per set and item (`acceptance.py`)."""
    return read_record(FOLDER / "acceptance.json")


def read_chat() -> list[Question]:
    return [Question(**row) for row in _rows("chat")]


def read_long() -> list[Question]:
    return [Question(**row) for row in _rows("long")]


def read_vision() -> list[Question]:
    return [question for scene in _rows("vision") for question in _questions(scene)]


def read_code() -> list[Passage]:
    return [Passage(**row) for row in _rows("code")]


def _rows(name: str) -> Iterator[dict[str, Any]]:
    record = describe_sets()["sets"][name]
    content = unpack(FOLDER / record["file"], record["packed_sha256"], record["sha256"])
    return map(json.loads, content.decode().splitlines())


def _questions(scene: dict[str, Any]) -> Iterator[Question]:
    """Questions about the same scene share its media; `kind` says what the files are."""
    media = tuple(base64.b64decode(file) for file in scene["files"])
    kinds = ["video"] if scene["kind"] == "video" else ["image"] * len(media)
    for item in scene["questions"]:
        content = [{"type": kind} for kind in kinds]
        messages = [{"role": "user", "content": [*content, {"type": "text", "text": item["text"]}]}]
        yield Question(item["id"], item["task"], False, messages, None, item["answer"], media)


def is_right(question: Question, reply: str) -> bool:
    """Judge a reply as generated: special tokens kept, ending with the end of the turn."""
    if not reply.endswith(END_OF_TURN):
        return False
    body = reply.removesuffix(END_OF_TURN)
    if question.think:
        _, end, body = body.partition(THINK_END)
        if not end:
            return False
    answer = question.answer
    if isinstance(answer, str):
        return body.strip() == answer.strip()
    if "words" in answer:
        return len(body.split()) == answer["words"]
    return parse_call(body) == answer


def parse_call(text: str) -> dict[str, Any] | None:
    """Return the first call in the checkpoint's tool syntax; every argument is text."""
    call = _CALL.search(text)
    if call is None:
        return None
    return {"name": call[1], "arguments": dict(_PARAMETER.findall(call[2]))}
