#!/usr/bin/env python3
"""Score the engine on the demo checkpoint's evaluation sets, item by item beside transformers'.

Questions of the chat, vision and long sets and those asked at the end of training (retrieval by
length among them) are answered greedily; every task's line has the items right here and those right
in the recorded scores of transformers on the same items, and how many items differ. The code set is
predicted. With --draft-tokens, the drafts that stand in each round of the first replies are counted
beside those that stand in transformers' on the same items. Prints one table, writes JSON.

    python scripts/score_engine.py FILE.ninfer [--items N] [--sets chat,vision,code,training,long]
        [--device cuda] [--dtype auto] [--kv-dtype auto] [--draft-tokens K] [--lanes N]
        [--prefill-chunk N] [--points P] [--json FILE]

Exit code 1 when a set, text or vision, is further from the record than the bound: one point, or
one item where that is more, and two points for a quantised artifact. For another one every task,
the perplexity and the drafts are held to the bound as well; a quantised model counts its words
differently and drafts with another head, which is shown and not judged. The record is that of the
dtype that the engine computes in; drafts and the end of training have one only. In bfloat16 a task
may lie between or beside the two recorded scores: where replies hang on rounding, transformers' own
differ by two points.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from engine_answers import Answerer, Prediction
from score_table import (
    HEADER,
    Row,
    add_up,
    compare_counts,
    compare_items,
    compare_share,
    print_line,
)

from ninfer_formats.reader import Artifact, open_artifact
from ninfer_runtime.config import EngineConfig
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.frontend.frontend import load_frontend
from ninfer_tools.demo.acceptance import Acceptance, replay
from ninfer_tools.demo.evaluation import (
    Question,
    is_right,
    read_acceptance,
    read_chat,
    read_code,
    read_long,
    read_scores,
    read_vision,
)

SETS = ("chat", "vision", "code", "training", "long")
LONGEST = {"chat": 160, "vision": 12, "long": 24, "training": 160}
# The longest prompt has 8,473 tokens.
CONTEXT = 9216
UNQUANTISED = ("bf16", "fp32")


def number_of(id: str) -> int:
    return int(id.rpartition("/")[2])


@dataclass
class Scorer:
    """An engine that is scored, the record beside it, and the bound in points."""

    answerer: Answerer
    quantised: bool
    items: int
    points: float
    dtype: str
    drafts: int
    reach: dict[str, dict[str, str]]

    def score(self, name: str) -> list[Row]:
        """Return the rows of one set."""
        return self._predict() if name == "code" else self._answer(name)

    def _answer(self, name: str) -> list[Row]:
        questions = [q for q in read_questions(name) if number_of(q.id) < self.items]
        known = {question.id: question for question in questions}
        reach = self.reach.get(name, {}) if self.drafts else {}
        tasks = [self.answerer.ask(q, LONGEST[name], q.id in reach) for q in questions]
        wrong: dict[str, list[int]] = {question.task: [] for question in questions}
        acceptances = make_pair(self.drafts)
        for id, reply in self.answerer.run(tasks):
            if not is_right(known[id], self.answerer.decode(reply)):
                wrong[known[id].task].append(number_of(id))
            if id in reach:
                count_both(acceptances, reply.accepted, reach[id])
        asked = {task: sum(q.task == task for q in questions) for task in wrong}
        rows = self._judge(name, asked, wrong)
        whole = add_up(name, rows, self.points)
        for row in rows if self.quantised else ():
            row.near = None
        return [*rows, whole, *self._compare_drafts(name, acceptances)]

    def _judge(self, name: str, asked: dict[str, int], wrong: dict[str, list[int]]) -> list[Row]:
        if name == "training":
            return self._judge_training(asked, wrong)
        runs = {dtype: run[name]["tasks"] for dtype, run in read_scores()["runs"].items()}

        def wrong_in(dtype: str, task: str) -> list[int]:
            return [number for number in runs[dtype][task]["wrong"] if number < self.items]

        return [
            compare_items(
                task, count, wrong[task], wrong_in(self.dtype, task), self.points,
                wrong_in("float32", task) if self.dtype == "bfloat16" else None,
            )
            for task, count in asked.items()
        ]  # fmt: skip

    def _judge_training(self, asked: dict[str, int], wrong: dict[str, list[int]]) -> list[Row]:
        """The record has each task's share over all its items, rounded to three digits."""
        from training_evaluation import make_questions, read_shares

        whole, shares = Counter(question.task for question in make_questions()), read_shares()
        rows = []
        for task, count in asked.items():
            recorded = round(shares[task] * count) if count == whole[task] else None
            row = compare_counts(task, count, count - len(wrong[task]), recorded, self.points)
            row.wrong = sorted(wrong[task])
            rows.append(row)
        return rows

    def _predict(self) -> list[Row]:
        passages = read_code()[: self.items]
        predictions = [self.answerer.predict(passage) for passage in passages]
        recorded = read_scores()["runs"][self.dtype]["code"]
        rows = [self._compare_loss(predictions, recorded)]
        tokens = sum(p.tokens for p in predictions)
        if tokens == recorded["tokens"]:
            top = 100 * sum(p.top for p in predictions) / tokens
            rows.append(
                compare_share("code/top-1, %", tokens, top, 100 * recorded["top1"], self.points)
            )
        return [*rows, *self._continue(passages)]

    def _compare_loss(self, predictions: list[Prediction], recorded: dict[str, Any]) -> Row:
        """Perplexity; its points are hundredths of the recorded one."""
        pairs = list(zip(recorded["loss_per_item"], recorded["tokens_per_item"], strict=True))
        pairs = pairs[: len(predictions)]
        if [p.tokens for p in predictions] != [count for _, count in pairs]:
            raise SystemExit("code: passages have other numbers of tokens than recorded")
        tokens = sum(p.tokens for p in predictions)
        theirs = math.exp(sum(loss for loss, _ in pairs) / tokens)
        ours = math.exp(sum(p.loss for p in predictions) / tokens)
        gap = 100 * (ours / theirs - 1)
        near = None if self.quantised else abs(gap) <= self.points
        return Row("code/perplexity", tokens, ours, theirs, gap, None, near)

    def _continue(self, passages: list[Any]) -> list[Row]:
        """Let the first tokens of passages be continued, for the drafts that stand."""
        reach = self.reach.get("code", {}) if self.drafts else {}
        record = read_acceptance()["settings"] if reach else {}
        tasks = []
        for passage in passages:
            if passage.id in reach:
                ids = self.answerer.frontend.tokenizer.encode(passage.text)
                prompt = tuple(ids[: record["code_prompt_tokens"]])
                tasks.append(
                    self.answerer.complete(passage.id, prompt, record["new_tokens"]["code"])
                )
        acceptances = make_pair(self.drafts)
        for id, reply in self.answerer.run(tasks):
            count_both(acceptances, reply.accepted, reach[id])
        return self._compare_drafts("code", acceptances)

    def _compare_drafts(self, name: str, pair: tuple[Acceptance, Acceptance]) -> list[Row]:
        """A line for each draft of a round: how many rounds let it stand."""
        ours, theirs = pair
        if not ours.rounds or not theirs.rounds:
            return []
        bound = None if self.quantised else self.points
        pairs = enumerate(zip(ours.shares, theirs.shares, strict=True), 1)
        return [
            compare_share(f"{name}: draft {i}, %", ours.rounds, 100 * mine, 100 * other, bound)
            for i, (mine, other) in pairs
        ]


def make_pair(drafts: int) -> tuple[Acceptance, Acceptance]:
    return Acceptance(drafts), Acceptance(drafts)


def count_both(pair: tuple[Acceptance, Acceptance], accepted: list[int], reach: str) -> None:
    for count in accepted:
        pair[0].add(count)
    for count in replay(reach, pair[1].drafts):
        pair[1].add(count)


def read_questions(name: str) -> list[Question]:
    if name == "training":
        from training_evaluation import make_questions

        return make_questions()
    readers: dict[str, Callable[[], list[Question]]] = {
        "chat": read_chat, "vision": read_vision, "long": read_long,
    }  # fmt: skip
    return readers[name]()


def is_quantised(artifact: Artifact) -> bool:
    return any(tensor.format not in UNQUANTISED for tensor in artifact.tensors())


def start_engine(artifact: Artifact, options: argparse.Namespace) -> Engine:
    config = EngineConfig(
        device=options.device,
        dtype=options.dtype,
        max_context=CONTEXT,
        kv_capacity=CONTEXT * options.lanes,
        lanes=options.lanes,
        prefill_chunk=options.prefill_chunk,
        kv_kind=options.kv_dtype,
        speculator="mtp" if options.draft_tokens else None,
        draft_tokens=options.draft_tokens or 1,
    )
    return Engine(artifact, config)


def read_arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--items", type=int, default=300, help="the first ones of every task")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--kv-dtype", default="auto")
    parser.add_argument("--draft-tokens", type=int, default=0, help="7 at most")
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--prefill-chunk", type=int, default=CONTEXT)
    parser.add_argument("--points", type=float, help="the bound; 1, and 2 for quantised artifacts")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    options = read_arguments(words)
    sys.path.append(str(Path(__file__).parent / "demo"))
    began = time.perf_counter()
    artifact = open_artifact(options.file)
    engine = start_engine(artifact, options)
    answerer = Answerer(engine, load_frontend(artifact, engine.geometry))
    quantised = is_quantised(artifact)
    points = options.points or (2.0 if quantised else 1.0)
    dtype = "float32" if engine.settings.dtype == torch.float32 else "bfloat16"
    reach = read_acceptance() if options.draft_tokens else {}
    scorer = Scorer(answerer, quantised, options.items, points, dtype, options.draft_tokens, reach)
    record: dict[str, Any] = {
        "file": str(options.file), "record": dtype, "points": points,
        "device": str(engine.settings.device), "kv": engine.settings.kv_kind,
        "drafts": options.draft_tokens, "lanes": options.lanes,
        "seconds": {"start": round(time.perf_counter() - began, 1)}, "rows": [],
    }  # fmt: skip
    print(f"{options.file}: {dtype}, bound {points} points, {options.draft_tokens} drafts")
    print_line(*HEADER)
    near = True
    for name in options.sets.split(","):
        began = time.perf_counter()
        rows = scorer.score(name)
        for row in rows:
            row.print()
        near &= all(row.near is not False for row in rows)
        record["rows"] += [asdict(row) for row in rows]
        record["seconds"][name] = round(time.perf_counter() - began, 1)
        print(f"{name}: {record['seconds'][name]} s", flush=True)
        if options.json:
            options.json.write_text(json.dumps(record) + "\n", encoding="utf-8")
    return 0 if near else 1


if __name__ == "__main__":
    sys.exit(main())
