"""The chat and long-context evaluation sets: distinct prompts from seeded streams."""

from __future__ import annotations

import json
import random
from typing import Any

from chat_tasks import TASKS, ChatTasks, Sample

SEED = 20260801
ITEMS = 300
MAX_TOKENS = 1500
# Long prompts end a little below the 8,192 tokens of the longest training rows.
LONG_TASKS = ("needle", "codes20")
LONG_FILLER = 6600
Record = dict[str, Any]


def stream(name: str) -> random.Random:
    """Every task draws from a stream of its own, so that none depends on the others."""
    return random.Random(f"{SEED}/{name}")


def make_chat() -> list[Record]:
    names = [(task, think) for task in TASKS for think in (False, True)]
    return [row for task, think in names for row in make_questions("chat", task, think)]


def make_long() -> list[Record]:
    return [row for task in LONG_TASKS for row in make_questions("long", task, False)]


def make_questions(part: str, task: str, think: bool) -> list[Record]:
    """Draw distinct prompts of one task and mode."""
    prefix = "long/" if part == "long" else ""
    name = f"{prefix}{task}/{'think' if think else 'no_think'}"
    tasks = ChatTasks(stream(f"{part}/{name}"))
    fill = LONG_FILLER if part == "long" else None
    samples: dict[str, Sample] = {}
    while len(samples) < ITEMS:
        sample = tasks.sample(0 if fill else MAX_TOKENS, task, think, fill)
        samples.setdefault(json.dumps([sample.messages, sample.tools]), sample)
    return [question_row(name, i, sample) for i, sample in enumerate(samples.values())]


def question_row(name: str, number: int, sample: Sample) -> Record:
    answer = sample.answer
    return {
        "id": f"{name}/{number:03d}",
        "task": name,
        "think": sample.think,
        "messages": sample.messages,
        "tools": sample.tools,
        "answer": {"words": answer["words"]} if sample.task == "nwords" else answer,
    }
