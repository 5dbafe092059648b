#!/usr/bin/env python3
"""Score the engine on the demo checkpoint's evaluation sets, item by item beside transformers'.

Questions of the chat, vision and long sets are answered greedily; every task's line has the items
right here and those right in the recorded scores of transformers on the same items, and how many
items differ. Prints one table, writes JSON with --out.

    python scripts/score_engine.py FILE.ninfer [--items N] [--sets chat,vision,long]
        [--device cuda] [--dtype auto] [--kv-dtype auto] [--draft-tokens K] [--lanes N] [--out FILE]

Exit code 1 when a task with all its 300 items is more than one point, or one item, from the record
in an unquantised artifact, and two points in any other (`--points` says how many).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ninfer_formats.reader import open_artifact
from ninfer_runtime.config import EngineConfig
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import Request
from ninfer_runtime.frontend.frontend import Frontend, load_frontend
from ninfer_runtime.frontend.prompt import run_media
from ninfer_runtime.frontend.template import TemplateOptions
from ninfer_tools.demo.evaluation import (
    Question,
    is_right,
    read_chat,
    read_long,
    read_scores,
    read_vision,
)

READERS = {"chat": read_chat, "vision": read_vision, "long": read_long}
LONGEST = {"chat": 160, "vision": 12, "long": 24}


@dataclass
class Task:
    """Numbers of the items asked, and of those answered wrongly."""

    asked: list[int] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)


def choose_questions(name: str, items: int) -> list[Question]:
    """Return the first `items` questions of every task of a set."""
    return [question for question in READERS[name]() if number_of(question) < items]


def number_of(question: Question) -> int:
    return int(question.id.rpartition("/")[2])


def make_request(engine: Engine, frontend: Frontend, question: Question, longest: int) -> Request:
    options = TemplateOptions(enable_thinking=question.think)
    reader, media = frontend.media, []
    if question.media and reader is not None:
        video = question.task.startswith("video")
        files = list(question.media)
        media = (
            [reader.read_pictures(files, question.id)]
            if video
            else [reader.read_image(file, question.id) for file in files]
        )
    chat = frontend.chat(question.messages, media, tools=question.tools, options=options)
    tower = engine.model.vision
    rows = None if tower is None else run_media(chat.prompt, tower)
    stop = frontend.tokenizer.require("<|im_end|>")
    return Request(tuple(chat.prompt.ids), longest, stops=(stop,), media=rows)


def answer_all(
    engine: Engine, frontend: Frontend, questions: list[Question], longest: int
) -> Iterator[tuple[Question, str]]:
    """Yield every question with its reply, keeping all lanes busy."""
    waiting, asked, replies = list(reversed(questions)), {}, {}
    while waiting or engine.busy:
        while waiting and len(asked) < 2 * engine.settings.lanes:
            question = waiting.pop()
            number = engine.add(make_request(engine, frontend, question, longest))
            asked[number], replies[number] = question, []
        for step in engine.step():
            replies[step.number] += step.tokens
            if step.finish is not None:
                tokens = replies.pop(step.number)
                yield asked.pop(step.number), frontend.tokenizer.decode(tokens, skip_special=False)


def score_set(engine: Engine, frontend: Frontend, name: str, items: int) -> dict[str, Task]:
    tasks: dict[str, Task] = {}
    questions = choose_questions(name, items)
    for question, reply in answer_all(engine, frontend, questions, LONGEST[name]):
        task = tasks.setdefault(question.task, Task())
        task.asked.append(number_of(question))
        if not is_right(question, reply):
            task.wrong.append(number_of(question))
    return tasks


def print_set(name: str, tasks: dict[str, Task], points: float) -> tuple[bool, dict]:
    """Print a set's table; return whether every complete task is near enough, and the figures."""
    recorded = read_scores()["runs"]["bfloat16"][name]["tasks"]
    near, figures = True, {}
    for task, found in tasks.items():
        theirs = set(recorded[task]["wrong"]) & set(found.asked)
        ours = set(found.wrong)
        asked, gap = len(found.asked), abs(len(ours) - len(theirs))
        complete = asked == recorded[task]["n"]
        near &= not complete or gap <= max(1, points / 100 * asked)
        right = asked - len(ours)
        differing = len(ours ^ theirs)
        print(f"{task:<28}{asked:>6}{right:>8}{asked - len(theirs):>14}{differing:>11}")
        figures[task] = {"asked": asked, "right": right, "recorded": asked - len(theirs)}
    return near, figures


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--sets", default="chat,vision,long")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--kv-dtype", default="auto")
    parser.add_argument("--draft-tokens", type=int, default=0)
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--points", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> int:
    arguments = read_arguments()
    artifact = open_artifact(arguments.file)
    config = EngineConfig(
        device=arguments.device,
        dtype=arguments.dtype,
        max_context=8192,
        kv_capacity=8192 * arguments.lanes,
        lanes=arguments.lanes,
        kv_kind=arguments.kv_dtype,
        speculator="mtp" if arguments.draft_tokens else None,
        draft_tokens=arguments.draft_tokens or 1,
    )
    engine = Engine(artifact, config)
    frontend = load_frontend(artifact, engine.geometry)
    print(f"{'task':<28}{'items':>6}{'right':>8}{'transformers':>14}{'differing':>11}")
    record: dict[str, dict] = {}
    near = True
    for name in arguments.sets.split(","):
        began = time.perf_counter()
        tasks = score_set(engine, frontend, name, arguments.items)
        fine, record[name] = print_set(name, tasks, arguments.points)
        near &= fine
        print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0 if near else 1


if __name__ == "__main__":
    sys.exit(main())
