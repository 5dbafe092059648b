# pyright: reportMissingImports=false
"""Train the DFlash2 drafter of a demo checkpoint and measure it as an engine would use it.

    python scripts/demo/train_drafter.py --checkpoint DIR --out FOLDER --minutes 9     # one GPU
    python scripts/demo/train_drafter.py --checkpoint DIR --out FOLDER --tiny          # CPU

FOLDER/dflash2 receives config and weights, FOLDER/metrics_dflash2.json the figures. Texts: the
target's continuations of code prefixes, its replies to the chat tasks, and training rows as they
are. The target's features are computed once and kept in memory. Loss: KL to the target's
distribution, weighted exp(-(row - 1) / gamma), plus the selector's cross entropy over the 16 best
candidates with the true predecessor.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from drafter_data import (
    Pool,
    Prompt,
    PromptJob,
    Text,
    answer_prompts,
    continue_code,
    make_prompts,
    take_chat_rows,
    take_code_rows,
)
from drafter_evaluation import FULL, TINY, describe, evaluate_drafter
from drafter_model import (
    BLOCK,
    Batch,
    Blocks,
    Drafter,
    Losses,
    initialise_drafter,
    make_drafter_config,
)
from drafter_target import Target
from muon import Muon
from progress_log import ProgressLog
from source_code import find_sources, pick_lines
from torch import Tensor
from training_data import split, start_workers
from training_rows import ChatJob, CodeJob, make_chat, make_code

TINY_OPTIONS = {
    "len": 512,
    "rows": (2, 2, 1),
    "anchors": 32,
    "gen_batch": 8,
    "gen_new": 32,
    "prompts": 48,
    "data_rows": (12, 4),
    "code_mb": 1,
    "workers": 2,
    "gen_seconds": (8, 8),
}
GROUPS = ("own code", "chat", "code as it is")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--checkpoint", type=Path, required=True)
    add("--out", type=Path, required=True)
    add("--minutes", type=float, default=9.0, help="Whole budget, data and evaluation included.")
    add("--eval-minutes", type=float, default=1.6, help="Kept back for saving and evaluating.")
    add("--gen-seconds", type=float, nargs=2, default=(60, 45), help="For code and chat texts.")
    add("--seed", type=int, default=1)
    add("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    add("--layers", type=int, default=3)
    add("--window", type=int, default=512)
    add("--taps", type=int, nargs="+", default=[1, 3, 5, 6])
    add("--len", type=int, default=1024, help="Row length.")
    add("--rows", type=int, nargs=3, default=(26, 24, 14), help="Rows a step of each group.")
    add("--share", type=float, nargs=3, default=(0.45, 0.4, 0.15), help="Weights of the groups.")
    add("--anchors", type=int, default=128, help="Anchors a row.")
    add("--gen-batch", type=int, default=1536)
    add("--gen-new", type=int, default=256)
    add("--prompts", type=int, default=20000, help="Chat prompts made.")
    add("--data-rows", type=int, nargs=2, default=(5000, 1500), help="Rows as they are.")
    add("--code-mb", type=float, default=60)
    add("--muon-lr", type=float, default=0.02)
    add("--adam-lr", type=float, default=2e-3)
    add("--gamma", type=float, default=4.0)
    add("--alpha", type=float, default=1.0)
    add("--steps", type=int, default=0)
    add("--no-compile", action="store_true")
    add("--tiny", action="store_true", help="Little data, 30 steps.")
    options = parser.parse_args()
    options.work = options.out / "work"
    if options.tiny:
        vars(options).update(TINY_OPTIONS)
        options.steps = options.steps or 30
    return options


def collect_texts(
    options: Any, target: Target, pool: ProcessPoolExecutor, log: ProgressLog
) -> list[list[Text]]:
    """Return the texts of the three groups; workers make prompts while the target generates."""
    tokenizer = options.checkpoint / "tokenizer.json"
    files = find_sources(options.seed, options.code_mb)
    lines = pick_lines(files[: 40 if options.tiny else 600])
    parts, seed, work = 2 * options.workers, options.seed, options.work
    code_jobs = [
        pool.submit(make_code, CodeJob(files[i::parts], tokenizer, work / f"code{i}.npy"))
        for i in range(parts)
    ]
    prompt_jobs = [
        pool.submit(make_prompts, PromptJob(seed * 7000 + i, n, tokenizer, lines))
        for i, n in enumerate(split(options.prompts, parts))
        if n
    ]
    length = 2 * options.len
    chat_jobs = [
        pool.submit(
            make_chat,
            ChatJob(seed * 9000 + i, n, length, tokenizer, lines, work / f"chat{i}.npz"),
        )
        for i, n in enumerate(split(options.data_rows[1], parts))
        if n
    ]
    code = np.concatenate([np.load(job.result()) for job in code_jobs]).astype(np.int64)
    own = continue_code(target, code, options)
    prompts: list[Prompt] = [prompt for job in prompt_jobs for prompt in job.result()]
    chat = answer_prompts(target, prompts, options, random.Random(seed))
    log(f"{len(own)} continuations of code, {len(chat)} replies to {len(prompts)} prompts")
    chat += take_chat_rows([job.result() for job in chat_jobs], options.len)
    return [own, chat, take_code_rows(code, options.data_rows[0], options.len)]


class Training:
    """The drafter's weights, their optimisers and the pools they learn from."""

    def __init__(self, options: Any, target: Target, pools: list[Pool], log: ProgressLog) -> None:
        self.options, self.target, self.pools, self.log = options, target, pools, log
        device, fast = target.device, target.fast
        mask_token, taps = target.tokens, list(options.taps)
        if mask_token >= fast.config.vocab_size:
            raise SystemExit("no padded row for the mask token")
        self.config = make_drafter_config(
            fast.config, mask_token, options.layers, options.window, taps
        )
        norm = fast.language.norm.weight
        self.weights = initialise_drafter(self.config, device, options.seed, norm)
        matrices = [p for name, p in self.weights.items() if is_matrix(name, p)]
        others = [p for name, p in self.weights.items() if not is_matrix(name, p)]
        self.muon = Muon(matrices, options.muon_lr)
        self.adam = torch.optim.AdamW(
            others,
            lr=options.adam_lr,
            betas=(0.9, 0.95),
            eps=1e-9,
            weight_decay=0.0,
            fused=others[0].is_cuda,
        )
        compiled = others[0].is_cuda and not options.no_compile
        self.drafter = self.make_drafter(self.weights, compiled)
        self.generator = torch.Generator(device=device).manual_seed(options.seed)

    def make_drafter(self, weights: dict[str, Tensor], compiled: bool = False) -> Drafter:
        fast = self.target.fast
        # The engine's embedding is stored in bfloat16.
        embedding = fast.language.embed_tokens.weight.detach().to(torch.bfloat16).float()
        head = fast.model.lm_head.weight.detach()
        return Drafter(self.config, weights, embedding, head, fast.dtype, compiled)

    def draw(self) -> Batch:
        """One batch of all groups; within each, the weights add up to its share."""
        options = self.options
        parts = []
        for pool, rows, share in zip(self.pools, options.rows, options.share, strict=True):
            part = pool.draw(rows, options.anchors, options.gamma, self.generator)
            weight = part.weight * (share / part.weight.sum().clamp(min=1e-6))
            parts.append(part._replace(weight=weight))
        blocks = Blocks(*map(torch.cat, zip(*(part.blocks for part in parts), strict=True)))
        rest = [torch.cat([part[i] for part in parts]) for i in (0, 2, 3, 4, 5)]
        return Batch(rest[0], blocks, *rest[1:])

    def run(self) -> dict[str, Any]:
        options, begin = self.options, time.time()
        budget = (options.minutes - options.eval_minutes) * 60 - self.log.seconds()
        if not options.steps and budget < 20:
            raise SystemExit("no time left to train")
        step, said = 0, time.time()
        curve: list[dict[str, Any]] = []
        while True:
            part = step / options.steps if options.steps else (time.time() - begin) / budget
            if part >= 1:
                break
            batch = self.draw()
            losses = self.drafter.loss(batch, options.alpha)
            losses.total.backward()
            self._update(step, part)
            step += 1
            if step % 20 == 0 or (options.tiny and step % 5 == 0):
                curve.append(self._record(step, batch, losses))
            if curve and time.time() - said >= 10:
                said = time.time()
                self.log(f"{100 * part:.0f}% {curve[-1]}")
        return {
            "steps": step,
            "anchors": step * sum(options.rows) * options.anchors,
            "train_seconds": round(time.time() - begin, 1),
            "parameters": sum(p.numel() for p in self.weights.values()),
            "seed": options.seed,
            "torch": torch.__version__,
            "mask_token_id": self.target.tokens,
            "window": options.window,
            "taps": list(options.taps),
            "pool_rows": [pool.rows for pool in self.pools],
            "curve": curve[:: max(1, len(curve) // 60)],
        }

    def _update(self, step: int, part: float) -> None:
        """Linear start, then a cosine down to 1%."""
        warm = min(1, (step + 1) / (10 if self.options.tiny else 150))
        scale = warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1, part))))
        self.adam.param_groups[0]["lr"] = self.options.adam_lr * scale
        self.muon.step(scale, self.target.fast.dtype)
        self.adam.step()
        for parameter in self.weights.values():
            parameter.grad = None

    def _record(self, step: int, batch: Batch, losses: Losses) -> dict[str, Any]:
        """Per group: KL and selector loss of the rows, and how often the best is right."""
        total = losses.total.item()
        if not math.isfinite(total):
            raise SystemExit(f"loss not finite at step {step}")
        record: dict[str, Any] = {"step": step, "loss": round(total, 4)}
        sizes = [rows * self.options.anchors * (BLOCK - 1) for rows in self.options.rows]
        columns = (batch.weight, losses.divergence, losses.selector, losses.hit)
        for name, part in zip(
            GROUPS, zip(*(c.split(sizes) for c in columns), strict=True), strict=True
        ):
            weight, divergence, selector, hit = part
            means = [(weight * value).sum() / weight.sum() for value in (divergence, selector)]
            means.append(hit[weight > 0].mean())
            record[name] = [round(mean.item(), 4) for mean in means]
        return record


def is_matrix(name: str, parameter: Tensor) -> bool:
    other = ("codebook", "kernel_projection", "hidden_projection")
    return parameter.ndim == 2 and not any(part in name for part in other)


def save_drafter(training: Training, out: Path) -> dict[str, Tensor]:
    """Write config.json and model.safetensors in bfloat16; return what was written."""
    from safetensors.torch import save_file

    stored = {
        name: value.detach().to("cpu", torch.bfloat16).contiguous()
        for name, value in training.weights.items()
    }
    broken = [name for name, value in stored.items() if not torch.isfinite(value.float()).all()]
    if broken:
        raise SystemExit(f"not finite: {broken}")
    out.mkdir(parents=True, exist_ok=True)
    save_file(stored, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(training.config, indent=2))
    return stored


def main() -> None:
    options = read_options()
    cuda = torch.cuda.is_available()
    if not cuda and not options.tiny:
        raise SystemExit("no GPU; --tiny runs on the CPU")
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    log = ProgressLog(options.out / "train_dflash2.log")
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    np.random.seed(options.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch._dynamo.config.recompile_limit = 64
    dtype = torch.bfloat16 if cuda else torch.float32
    target = Target(
        options.checkpoint, dtype, torch.device("cuda" if cuda else "cpu"), options.taps
    )
    errors = target.check()
    log(f"target against transformers: features {errors[0]:.1e}, hidden {errors[1]:.1e}")
    if max(errors) > (0.05 if cuda else 1e-4):
        raise SystemExit("the target forward does not agree with transformers")
    with start_workers(options.workers) as pool:
        groups = collect_texts(options, target, pool, log)
    shutil.rmtree(options.work)
    rng, most = random.Random(options.seed), 131072 if cuda else 2048
    pools = [Pool(texts, options.len, target, rng, most) for texts in groups]
    training = Training(options, target, pools, log)
    metrics = training.run()
    stored = save_drafter(training, options.out / "dflash2")
    drafter = training.make_drafter({k: v.to(target.device).float() for k, v in stored.items()})
    path = options.out / "metrics_dflash2.json"

    def update(evaluation: dict[str, Any]) -> None:
        path.write_text(json.dumps({**metrics, "evaluation": evaluation}, indent=1))

    sizes = TINY if options.tiny else FULL
    log(f"done: {describe(evaluate_drafter(target, drafter, sizes, update))}")


if __name__ == "__main__":
    main()
