"""The questions that the checkpoint was asked when its training ended: `metrics.json`.

Seeded, so they are the same ones; the record has shares of right answers, not which.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from typing import Any

from chat_tasks import TASKS, ChatTasks
from question_sets import question_row
from vision_tasks import VisionTasks

from ninfer_tools.demo.evaluation import Question
from ninfer_tools.demo.manifest import read_metrics

SEED = 12345
MAX_TOKENS = 1500
ITEMS = 24
RETRIEVAL_TASKS, RETRIEVAL_ITEMS = ("needle", "codes20"), 16
FILLERS = tuple(0.93 * length for length in (1024, 2048, 4096, 8192))
VISION_ITEMS = {"one": 3 * ITEMS, "two": ITEMS, "video": ITEMS}


def make_questions() -> list[Question]:
    """Return text questions, those of retrieval by length, and vision."""
    return [*_text_questions(), *_vision_questions()]


def read_shares() -> dict[str, float]:
    """Return the recorded share of right answers (bfloat16) of every task here."""
    found = read_metrics()["checkpoint"]["evaluation"]
    return {
        f"training/{task}": share
        for part in ("tasks", "retrieval_by_length", "vision")
        for task, share in found[part].items()
    }


def _text_questions() -> Iterator[Question]:
    tasks = ChatTasks(random.Random(SEED))
    for task in TASKS:
        for think in (False, True):
            name = f"training/{task}/{'think' if think else 'no_think'}"
            for number in range(ITEMS):
                sample = tasks.sample(MAX_TOKENS, task, think)
                yield Question(**question_row(name, number, sample))
    # The recorded names end with the mean length of the prompts.
    names = iter(read_metrics()["checkpoint"]["evaluation"]["retrieval_by_length"])
    for filler in FILLERS:
        for task in RETRIEVAL_TASKS:
            name = f"training/{next(names)}"
            for number in range(RETRIEVAL_ITEMS):
                sample = tasks.sample(0, task, False, filler)
                yield Question(**question_row(name, number, sample))


def _vision_questions() -> Iterator[Question]:
    tasks, counts = VisionTasks(random.Random(SEED + 1)), dict[str, int]()
    for kind, items in VISION_ITEMS.items():
        for _ in range(items):
            sample = tasks.sample(1, kind)
            task = "two_images" if kind == "two" else f"{kind}/{sample.tasks[0]}"
            name = f"training/{task}"
            number = counts.get(name, 0)
            counts[name] = number + 1
            asked, answer = sample.messages
            media = tuple(file for _, found in sample.media for file in _encode(found))
            yield Question(
                f"{name}/{number:03d}", name, False, [asked], None, answer["content"], media
            )


def _encode(found: Any) -> list[bytes]:
    """Return the PNG files of a picture, or of the frames of a video."""
    files = []
    for picture in found if isinstance(found, list) else [found]:
        stream = io.BytesIO()
        picture.save(stream, "PNG")
        files.append(stream.getvalue())
    return files
