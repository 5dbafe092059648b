# pyright: reportMissingImports=false
"""Accepted drafts of the DFlash2 drafter and of MTP on the same texts, as an engine counts them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from chat_tasks import TASKS, ChatTasks
from conversation import END_OF_TEXT
from drafter_model import Drafter
from drafter_target import Target
from mtp_module import MtpDrafter, load_mtp
from source_code import HELD_OUT, find_held_out, read_source
from torch import Tensor

DRAFTS = (3, 7)
SEED = 12345
BATCH = 96


class Sizes(NamedTuple):
    """Held-out code rows and their length, new tokens of code and chat, prompts per task."""

    rows: int
    length: int
    code_tokens: int
    chat_tokens: int
    per_task: int
    longest: int


FULL = Sizes(24, 2048, 128, 160, 24, 1500)
TINY = Sizes(2, 256, 24, 24, 1, 100)


class Example(NamedTuple):
    prompt: list[int]
    reply: list[int]
    task: str


class Outcome(NamedTuple):
    """Which drafts were right, bool [anchors, k], and which rows have k known successors."""

    hits: Tensor
    known: Tensor


def collect_code(target: Target, sizes: Sizes) -> list[list[int]]:
    """Rows of held-out code; where no such package is installed, there are none."""
    ids: list[int] = []
    end = target.tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    for path in find_held_out(0):
        text = read_source(path)
        if text:
            ids += [*target.tokenizer(text).input_ids, end]
        if len(ids) > sizes.rows * sizes.length:
            break
    starts = range(0, len(ids) - sizes.length, sizes.length)
    return [ids[i : i + sizes.length] for i in starts][: sizes.rows]


def collect_chat(target: Target, sizes: Sizes) -> list[tuple[list[int], str]]:
    """The same number of prompts of every task and mode, drawn one after the other."""
    tasks = ChatTasks(random.Random(SEED))
    prompts = []
    for task in TASKS:
        for think in (False, True):
            for _ in range(sizes.per_task):
                sample = tasks.sample(sizes.longest, task, think)
                ids = target.tokenizer.apply_chat_template(
                    sample.messages,
                    tools=sample.tools,
                    add_generation_prompt=True,
                    tokenize=True,
                    return_dict=False,
                    enable_thinking=think,
                )
                prompts.append((ids, f"{task}/{'think' if think else 'no_think'}"))
    return prompts


def reply_all(target: Target, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    replies: list[list[int]] = [[] for _ in prompts]
    for first in range(0, len(order), BATCH):
        chosen = order[first : first + BATCH]
        made = target.continue_texts([prompts[i] for i in chosen], new_tokens)
        for i, reply in zip(chosen, made, strict=True):
            replies[i] = reply
    return replies


def collect_sets(target: Target, sizes: Sizes) -> dict[str, list[Example]]:
    rows = collect_code(target, sizes)
    prefix = min(256, sizes.length // 2)
    code = [row[:prefix] for row in rows]
    chat = collect_chat(target, sizes)
    replies = reply_all(target, code, sizes.code_tokens)
    answers = reply_all(target, [ids for ids, _ in chat], sizes.chat_tokens)
    return {
        "code": [Example(*pair, "code") for pair in zip(code, replies, strict=True)],
        "chat": [
            Example(ids, answer, task) for (ids, task), answer in zip(chat, answers, strict=True)
        ],
        "code_teacher_forced": [Example(row[:64], row[64:1024], "code") for row in rows[:16]],
    }


def evaluate_drafter(
    target: Target, drafter: Drafter, sizes: Sizes, update: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Return the figures per set; `update` receives them as they grow."""
    device, dtype = target.device, target.model.dtype
    mtp = MtpDrafter(target.model, load_mtp(target.folder, target.model.config, device, dtype))
    metrics: dict[str, Any] = {"held_out": sorted(HELD_OUT)}
    sets = collect_sets(target, sizes)
    hits: dict[tuple[str, int, int], Tensor] = {}
    for name, examples in sets.items():
        if not examples:
            continue
        block: dict[int, list[Outcome]] = {k: [] for k in DRAFTS}
        chain: dict[int, list[Outcome]] = {k: [] for k in DRAFTS}
        for number, example in enumerate(examples):
            if len(example.reply) < 2:
                continue
            for k, own, other in draft_text(target, drafter, mtp, example):
                block[k].append(own)
                chain[k].append(other)
                hits[name, number, k] = own.hits
        metrics[name] = {
            "texts": len(examples),
            "dflash2": {
                f"K={k}": {**summarise(block[k], k), **count_runs(block[k])} for k in DRAFTS
            },
            "mtp_same_texts": {f"K={k}": summarise(chain[k], k) for k in DRAFTS},
        }
        update(metrics)
    metrics["real_loop"] = compare_loop(target, drafter, sets, hits)
    update(metrics)
    return metrics


def draft_text(
    target: Target, drafter: Drafter, mtp: MtpDrafter, example: Example
) -> list[tuple[int, Outcome, Outcome]]:
    """Drafts of both kinds at every position of the reply: (k, DFlash2, MTP)."""
    ids = torch.tensor(example.prompt + example.reply, device=target.device)
    length = len(ids)
    features, hidden = target.run_text(ids.tolist())
    anchors = torch.arange(len(example.prompt), length - 1, device=target.device)
    chain = mtp.draft(ids, hidden.to(target.model.dtype), max(DRAFTS))
    found = []
    for k in DRAFTS:
        drafts = drafter.draft(features, ids, anchors, k, target.tokens)
        place = anchors[:, None] + 1 + torch.arange(k, device=target.device)
        true = torch.where(place < length, ids[place.clamp(max=length - 1)], -1)
        known = (anchors + k < length).cpu()
        own = Outcome(torch.eq(drafts, true).cpu(), known)
        other = Outcome(torch.eq(chain[:k, anchors - 1].T, true).cpu(), known)
        found.append((k, own, other))
    return found


def summarise(outcomes: list[Outcome], k: int) -> dict[str, Any]:
    """Acceptance at every position that has k known successors."""
    rows = torch.cat([item.hits[item.known] for item in outcomes]).float()
    if not len(rows):
        return {"positions": 0}
    shares = rows.cumprod(1).mean(0)
    return {
        "positions": len(rows),
        "accept": [round(share, 4) for share in shares.tolist()],
        f"mean_accepted_of_{k}": round(shares.sum().item(), 4),
    }


def walk(hits: Tensor) -> list[int]:
    """Accepted drafts of each round of a run over the rows of `hits`."""
    accepted = hits.long().cumprod(1).sum(1).tolist()
    rounds, row = [], 0
    while row < len(accepted):
        rounds.append(accepted[row])
        row += accepted[row] + 1
    return rounds


def count_runs(outcomes: list[Outcome]) -> dict[str, Any]:
    rounds = [accepted for item in outcomes for accepted in walk(item.hits)]
    mean = sum(rounds) / max(1, len(rounds))
    return {"rounds": len(rounds), "mean_accepted_per_round": round(mean, 4)}


@torch.no_grad()
def run_loop(
    target: Target, drafter: Drafter, prompt: list[int], k: int, new_tokens: int
) -> tuple[list[int], list[int]]:
    """A plain speculative loop: draft, verify greedily; return the reply and accepted counts."""
    device = target.device
    ids = torch.tensor(prompt, device=device)
    first = target.model(input_ids=ids[None]).logits[0, -1:].float().argmax(-1)
    ids = torch.cat([ids, first])
    counts = []
    while len(ids) - len(prompt) < new_tokens and int(ids[-1]) not in target.ends:
        anchor = len(ids) - 1
        features, _ = target.run_text(ids[:anchor].tolist())
        anchors = torch.tensor([anchor], device=device)
        drafts = drafter.draft(features, ids, anchors, k, target.tokens)[0]
        logits = target.model(input_ids=torch.cat([ids, drafts])[None]).logits[0, anchor:]
        chosen = logits.float().argmax(-1)
        accepted = int((drafts == chosen[:-1]).long().cumprod(0).sum())
        new = target.cut(chosen[: accepted + 1].tolist())
        counts.append(accepted)
        ids = torch.cat([ids, torch.tensor(new, device=device)])
    return ids[len(prompt) :].tolist(), counts


def compare_loop(
    target: Target,
    drafter: Drafter,
    sets: dict[str, list[Example]],
    hits: dict[tuple[str, int, int], Tensor],
) -> dict[str, int]:
    """A few real loops: the text of plain greedy decoding, the counts of the tables."""
    step = max(1, len(sets["chat"]) // 8)
    chosen = [("code", i) for i in range(min(4, len(sets["code"])))]
    chosen += [("chat", i) for i in range(0, len(sets["chat"]), step)][:8]
    result = {"runs": 0, "same_text": 0, "rounds": 0, "accepted": 0, "same_counts": 0}
    for name, i in chosen:
        example = sets[name][i]
        for k in DRAFTS:
            if len(example.reply) < 2:
                continue
            most = min(len(example.reply), 64)
            reply, counts = run_loop(target, drafter, example.prompt, k, most)
            # The last round may run over the end of the known text.
            known = min(len(counts), len(walk(hits[name, i, k]))) - 1
            result["runs"] += 1
            result["same_text"] += reply[:most] == example.reply[:most]
            result["same_counts"] += counts[:known] == walk(hits[name, i, k])[:known]
            result["rounds"] += len(counts)
            result["accepted"] += sum(counts)
    return result


def describe(metrics: dict[str, Any]) -> str:
    shown = {
        name: {kind: part[kind] for kind in ("dflash2", "mtp_same_texts")}
        for name, part in metrics.items()
        if isinstance(part, dict) and "dflash2" in part
    }
    return json.dumps(shown)
