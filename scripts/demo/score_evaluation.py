# pyright: reportMissingImports=false
"""Score the fixed evaluation sets with transformers, in float32 and bfloat16.

    PYTHONPATH=.:formats python scripts/demo/score_evaluation.py --out scores.json [--limit 4]

Greedy decoding in left-padded batches. The result is written after every part, so a run that is
cut short leaves what it had; a part that was not run is absent, never estimated.
"""

from __future__ import annotations

import argparse
import io
import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mtp_module import MtpDrafter, count_rounds, load_mtp
from record_text import to_text

from ninfer_tools.demo.cache import locate_demo
from ninfer_tools.demo.evaluation import (
    Question,
    describe_sets,
    is_right,
    read_chat,
    read_code,
    read_long,
    read_vision,
)
from ninfer_tools.demo.manifest import read_manifest

NEW_TOKENS = {"chat": 160, "long": 24, "vision": 12}
BATCH, BATCH_TOKENS = 512, 250_000
VISION_BATCH = 100
CODE_PROMPT, CODE_REPLY = 256, 128
# Items of each task whose replies are drafted again: the first ones.
ACCEPTANCE_ITEMS = {"chat": 40, "code": 100}
DRAFTS = (3, 7)
END_OF_TEXT = "<|endoftext|>"


class Scorer:
    """One model in one dtype, with its processor and its drafter."""

    def __init__(
        self, folder: Path, dtype: str, device: str, batch_tokens: int = BATCH_TOKENS
    ) -> None:
        from transformers import AutoModelForImageTextToText, AutoTokenizer

        kind = getattr(torch, dtype)
        model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=kind)
        self.model = model.to(device).eval()
        self.folder, self.batch_tokens = folder, batch_tokens
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        mtp = load_mtp(folder, model.config, device, kind)
        self.drafter = MtpDrafter(self.model, mtp)
        self.device = device

    @cached_property
    def processor(self) -> Any:
        """Text, images and videos to inputs; it needs torchvision, which text alone does not."""
        from transformers import AutoProcessor

        return AutoProcessor.from_pretrained(self.folder)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def encode_question(self, question: Question) -> list[int]:
        return self.tokenizer.apply_chat_template(
            question.messages,
            tools=question.tools,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            enable_thinking=question.think,
        )

    def cut(self, ids: list[int]) -> list[int]:
        """Return the reply up to and with its first end token."""
        ends = self.model.generation_config.eos_token_id
        found = [i for i, token in enumerate(ids) if token in ends]
        return ids[: found[0] + 1] if found else ids

    def generate(self, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        """Return the greedy continuation of every prompt, cut after its end token."""
        replies: list[list[int]] = [[] for _ in prompts]
        for chosen in batches([len(prompt) for prompt in prompts], self.batch_tokens):
            longest = max(len(prompts[i]) for i in chosen)
            pad = self.model.generation_config.pad_token_id
            ids = torch.full((len(chosen), longest), pad)
            mask = torch.zeros_like(ids)
            for row, i in enumerate(chosen):
                ids[row, longest - len(prompts[i]) :] = torch.tensor(prompts[i])
                mask[row, longest - len(prompts[i]) :] = 1
            inputs = {"input_ids": ids.to(self.device), "attention_mask": mask.to(self.device)}
            for i, reply in zip(chosen, self._continue(inputs, new_tokens), strict=True):
                replies[i] = reply
        return replies

    @torch.no_grad()
    def _continue(self, inputs: Any, new_tokens: int) -> list[list[int]]:
        out = self.model.generate(
            **inputs,
            max_new_tokens=new_tokens,
            do_sample=False,
            temperature=None,
            top_k=None,
            top_p=None,
        )
        return [self.cut(row) for row in out[:, inputs["input_ids"].shape[1] :].cpu().tolist()]

    def answer_vision(self, questions: list[Question]) -> list[str]:
        """Answer questions whose media are all images, or all videos."""
        texts = [
            self.processor.apply_chat_template(
                item.messages, add_generation_prompt=True, tokenize=False, enable_thinking=False
            )
            for item in questions
        ]
        pictures = [[open_picture(file) for file in item.media] for item in questions]
        media: dict[str, Any] = {"images": pictures}
        if questions[0].task.startswith("video/"):
            media = describe_videos(pictures)
        inputs = self.processor(
            text=texts, padding=True, padding_side="left", return_tensors="pt", **media
        )
        replies = self._continue(inputs.to(self.device), NEW_TOKENS["vision"])
        return [self.decode(reply) for reply in replies]

    @torch.no_grad()
    def predict(self, ids: list[int]) -> tuple[float, int, int]:
        """Return (summed negative log likelihood, tokens predicted, times most likely)."""
        x = torch.tensor([ids], device=self.device)
        logits = self.model(input_ids=x).logits[0, :-1].float()
        loss = F.cross_entropy(logits, x[0, 1:], reduction="none").double().sum().item()
        return loss, len(ids) - 1, int((logits.argmax(-1) == x[0, 1:]).sum())

    def matches(self, prompt: list[int], reply: list[int]) -> torch.Tensor:
        ids = torch.tensor(prompt + reply, device=self.device)
        return self.drafter.matches(ids, len(prompt), max(DRAFTS))


def batches(lengths: list[int], tokens: int) -> Iterator[list[int]]:
    """Indices in groups of similar length, of at most BATCH rows and `tokens` padded tokens."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    group: list[int] = []
    for i in order:
        if group and (len(group) == BATCH or (len(group) + 1) * lengths[i] > tokens):
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def open_picture(file: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(file)).convert("RGB")


def describe_videos(pictures: list[list[Any]]) -> dict[str, Any]:
    """All frames of each video are used, two a second."""
    videos = [np.stack([np.asarray(frame) for frame in frames]) for frames in pictures]
    metadata = [
        {
            "fps": 2.0,
            "total_num_frames": len(frames),
            "frames_indices": list(range(len(frames))),
            "duration": len(frames) / 2,
        }
        for frames in pictures
    ]
    return {"videos": videos, "video_metadata": metadata, "do_sample_frames": False}


def judge(questions: list[Question], replies: list[str]) -> dict[str, Any]:
    """Return, per task, the items, how many are right, and which are not."""
    tasks: dict[str, dict[str, Any]] = {}
    for question, reply in zip(questions, replies, strict=True):
        entry = tasks.setdefault(question.task, {"n": 0, "right": 0, "wrong": []})
        entry["n"] += 1
        if is_right(question, reply):
            entry["right"] += 1
        else:
            entry["wrong"].append(int(question.id.rpartition("/")[2]))
    for entry in tasks.values():
        entry["score"] = round(entry["right"] / entry["n"], 4)
    return tasks


def summarise(matches: list[torch.Tensor]) -> dict[str, Any]:
    """Acceptance at every position with K known successors, and of a real speculative run."""
    record: dict[str, Any] = {"replies": len(matches)}
    for k in DRAFTS:
        rows = [m[: max(0, len(m) - k), :k] for m in matches]
        shares = torch.cat(rows).float().cumprod(1).mean(0)
        runs = [count_rounds(m[:, :k]) for m in matches]
        rounds, accepted = (sum(run[i] for run in runs) for i in (0, 1))
        record[f"k={k}"] = {
            "positions": sum(len(row) for row in rows),
            "accepted_to_step": [round(share, 4) for share in shares.tolist()],
            "mean_accepted": round(shares.sum().item(), 4),
            "rounds": rounds,
            "accepted_per_round": round(accepted / max(1, rounds), 4),
        }
    return record


def limit_items(items: list[Any], limit: int | None) -> list[Any]:
    """Keep the first `limit` items of every task."""
    if limit is None:
        return items
    counts: dict[str, int] = {}
    kept = []
    for item in items:
        counts[item.task] = counts.get(item.task, 0) + 1
        if counts[item.task] <= limit:
            kept.append(item)
    return kept


def score_questions(scorer: Scorer, name: str, limit: int | None) -> dict[str, Any]:
    questions = limit_items({"chat": read_chat, "long": read_long}[name](), limit)
    prompts = [scorer.encode_question(item) for item in questions]
    replies = scorer.generate(prompts, NEW_TOKENS[name])
    record: dict[str, Any] = {
        "tasks": judge(questions, [scorer.decode(reply) for reply in replies]),
        "prompt_tokens": {
            "least": min(map(len, prompts)),
            "mean": round(sum(map(len, prompts)) / len(prompts), 1),
            "most": max(map(len, prompts)),
        },
    }
    if name == "chat":
        triples = list(zip(questions, prompts, replies, strict=True))
        record["_replies"] = [
            (prompt, reply)
            for item, prompt, reply in triples
            if int(item.id.rpartition("/")[2]) < ACCEPTANCE_ITEMS["chat"]
        ]
    return record


def score_vision(scorer: Scorer, limit: int | None) -> dict[str, Any]:
    questions = limit_items(read_vision(), limit)
    videos = [item for item in questions if item.task.startswith("video/")]
    images = [item for item in questions if not item.task.startswith("video/")]
    tasks: dict[str, Any] = {}
    for group in (images, videos):
        replies: list[str] = []
        for first in range(0, len(group), VISION_BATCH):
            replies += scorer.answer_vision(group[first : first + VISION_BATCH])
        tasks.update(judge(group, replies))
    return {"tasks": tasks}


def score_code(scorer: Scorer, limit: int | None) -> dict[str, Any]:
    passages = limit_items(read_code(), limit)
    ids = [scorer.tokenizer(item.text).input_ids for item in passages]
    rows = [scorer.predict(row) for row in ids]
    loss, tokens, top = (sum(row[i] for row in rows) for i in range(3))
    prompts = [row[:CODE_PROMPT] for row in ids if len(row) > CODE_PROMPT]
    prompts = prompts[: ACCEPTANCE_ITEMS["code"]]
    replies = scorer.generate(prompts, CODE_REPLY)
    return {
        "n": len(passages),
        "tokens": tokens,
        "loss": round(loss / tokens, 6),
        "perplexity": round(math.exp(loss / tokens), 5),
        "top1": round(top / tokens, 5),
        "loss_per_item": [round(row[0], 3) for row in rows],
        "tokens_per_item": [row[1] for row in rows],
        "_replies": list(zip(prompts, replies, strict=True)),
    }


def settings() -> dict[str, Any]:
    return {
        "decoding": "greedy",
        "new_tokens": {**NEW_TOKENS, "code": CODE_REPLY},
        "code_prompt_tokens": CODE_PROMPT,
        "batching": f"sorted by length, left-padded, at most {BATCH} rows and {BATCH_TOKENS} "
        f"padded tokens; {VISION_BATCH} rows for vision; single passages for code",
        "acceptance": "first items of each task, replies of this run; k drafts greedy",
        "acceptance_items": ACCEPTANCE_ITEMS,
        "tf32": False,
    }


def versions() -> dict[str, str]:
    import transformers

    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def score(
    scorer: Scorer, run: dict[str, Any], parts: list[str], limit: int | None
) -> Iterator[str]:
    """Fill `run` part by part; yield the name of each finished part."""
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "chat": lambda: score_questions(scorer, "chat", limit),
        "code": lambda: score_code(scorer, limit),
        "vision": lambda: score_vision(scorer, limit),
        "long": lambda: score_questions(scorer, "long", limit),
    }
    for name in parts:
        begin = time.time()
        record = makers[name]()
        replies = record.pop("_replies", [])
        run[name] = record
        yield f"{name} {time.time() - begin:.0f} s"
        if replies:
            record["mtp_acceptance"] = summarise(
                [scorer.matches(*pair) for pair in replies if len(pair[1]) > 1]
            )
            yield f"{name} acceptance {time.time() - begin:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, help="Another one than the bundled.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--parts", nargs="+", default=["chat", "code", "vision", "long"])
    parser.add_argument("--limit", type=int, help="Only the first items of every task.")
    options = parser.parse_args()
    # TF32 would make "float32" a third precision.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    gpu = torch.cuda.get_device_name() if options.device.startswith("cuda") else None
    record: dict[str, Any] = {
        "checkpoint": str(options.checkpoint) if options.checkpoint else read_manifest().digest,
        "sets": {name: entry["sha256"] for name, entry in describe_sets()["sets"].items()},
        "versions": versions(),
        "gpu": gpu,
        "settings": settings(),
        "runs": {},
    }
    for dtype in options.dtypes:
        run = record["runs"][dtype] = {}
        folder = options.checkpoint or locate_demo("checkpoint")
        scorer = Scorer(folder, dtype, options.device)
        for done in score(scorer, run, options.parts, options.limit):
            print(dtype, done, flush=True)
            options.out.write_text(to_text(record), encoding="utf-8")


if __name__ == "__main__":
    main()
