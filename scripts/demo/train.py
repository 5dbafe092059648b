# pyright: reportMissingImports=false
"""Train the demo checkpoint: a small Qwen3.5 dense model with text, vision and MTP.

    python scripts/demo/train.py --out FOLDER --minutes 9.2 --bpe-vocab 4032     # one large GPU
    python scripts/demo/train.py --out FOLDER --tiny --steps 6                   # smoke test, CPU

FOLDER/checkpoint receives the files in the official layout, FOLDER/metrics.json the figures.
Needs torch, transformers 5.17 or later, tokenizers, safetensors and Pillow.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from agreement import compare_with_transformers
from chat_tasks import ChatTasks
from conversation import ADDED_TOKENS, render
from fast_forward import FastForward, token_losses
from model_files import build_model, make_config, save_configs, save_weights
from progress_log import ProgressLog
from source_code import find_sources, pick_lines
from tokenizer_files import save_tokenizer, train_tokenizer
from training_data import Batch, TrainingData, start_jobs, start_workers
from training_step import Losses, Optimiser, compute_losses

TINY = {
    "code_mb": 3,
    "bpe_mb": 2,
    "bpe_vocab": 1024,
    "len": 512,
    "long_len": 1024,
    "rows": (3, 2, 1),
    "long_rows": (1, 1, 1),
    "pool": (16, 4, 8),
    "slots": 8,
    "workers": 2,
}


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, required=True)
    add("--work", type=Path, help="Folder of intermediate files; default OUT/work.")
    add("--minutes", type=float, default=9.0, help="Whole budget, data included.")
    add("--save-minutes", type=float, default=1.3, help="Kept back for saving and checking.")
    add("--steps", type=int, default=0, help="Instead of the time: this many steps.")
    add("--seed", type=int, default=1)
    add("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    add("--code-mb", type=float, default=300)
    add("--bpe-mb", type=float, default=30)
    add("--bpe-vocab", type=int, default=8064)
    add("--len", type=int, default=2048)
    add("--long-len", type=int, default=8192)
    add("--long-frac", type=float, default=0.15, help="Last part of the time, on long rows.")
    add("--rows", type=int, nargs=3, default=(19, 8, 5), help="Code, chat, vision rows a step.")
    add("--long-rows", type=int, nargs=3, default=(4, 3, 1))
    add("--pool", type=int, nargs=3, default=(14000, 1200, 6000), help="Chat, long, vision.")
    add("--slots", type=int, default=24, help="Most images of a row.")
    add("--muon-lr", type=float, default=0.02)
    add("--adam-lr", type=float, default=3e-3)
    add("--mtp-weight", type=float, default=0.3)
    add("--mtp-steps", type=int, default=3)
    add("--mtp-full-at", type=float, default=0.35, help="One MTP step before this part.")
    add("--fla", action="store_true", help="Use flash-linear-attention for GDN.")
    add("--no-compile", action="store_true")
    add("--tiny", action="store_true", help="A tiny model on little data; 20 steps.")
    options = parser.parse_args()
    if options.tiny:
        vars(options).update(TINY)
        options.steps = options.steps or 20
    options.work = options.work or options.out / "work"
    return options


def make_tokenizer(options: Any, files: list[Path], out: Path) -> Any:
    """Train on sources and, where they leave room, on chat examples."""
    tasks = ChatTasks(random.Random(options.seed + 7))
    examples = []
    for _ in range(300 if options.tiny else 3000):
        sample = tasks.sample(60)
        examples.append("".join(text for text, _ in render(sample.full, sample.tools)))
    tokenizer = train_tokenizer(files, options.bpe_vocab, options.bpe_mb, examples)
    save_tokenizer(tokenizer, out)
    return tokenizer


class Training:
    """Model, optimiser and data of one run."""

    def __init__(self, options: Any, log: ProgressLog, tokenizer: Any) -> None:
        self.options, self.log = options, log
        self.cuda = torch.cuda.is_available()
        self.device = torch.device("cuda" if self.cuda else "cpu")
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        self.ids = {token: tokenizer.token_to_id(token) for token in ADDED_TOKENS}
        self.tokens = tokenizer.get_vocab_size()
        # At least one row of padding: DFlash2 uses the first as its mask token.
        vocabulary = (self.tokens + 128) // 128 * 128
        torch.manual_seed(options.seed)
        self.config = make_config(self.ids, vocabulary, options.tiny)
        self.model, self.mtp = build_model(self.config, options.seed)
        self.model.to(self.device)
        self.mtp.to(self.device)
        count = sum(p.numel() for m in (self.model, self.mtp) for p in m.parameters())
        self.parameters = count
        log(f"{self.tokens} tokens of {vocabulary}; {count / 1e6:.2f} M parameters")
        self._check_forward()
        compiled = self.cuda and not options.no_compile
        self.fast = FastForward(self.model, self.mtp, self.dtype, compiled, options.fla)
        self.optimiser = Optimiser(self.model, self.mtp, options.muon_lr, options.adam_lr)

    def _check_forward(self) -> None:
        plain = FastForward(self.model, self.mtp, self.dtype, False, self.options.fla)
        agreement = compare_with_transformers(plain, self.tokens)
        self.log(f"against transformers: {agreement}")
        if not agreement.holds(exact=not self.cuda):
            raise SystemExit("the training forward does not agree with transformers")

    def losses(self, batch: Batch, rows: tuple[int, ...], pixels: Any, steps: int) -> Losses:
        features = self.fast.vision(pixels, batch.patches, batch.grids)
        mtp = (steps, self.options.mtp_weight)
        return compute_losses(self.fast, batch, features, rows, mtp)

    def compile_shapes(self) -> None:
        """Run both row lengths once on made-up rows, while the workers make the real ones."""
        options = self.options
        for rows, length in ((options.rows, options.len), (options.long_rows, options.long_len)):
            begin = time.time()
            batch, pixels = self._made_up_batch(rows, length)
            loss = self.losses(batch, rows, pixels, options.mtp_steps).total
            loss.backward()
            if any(p.grad is None for p in self.optimiser.parameters):
                raise SystemExit("a parameter got no gradient")
            self.optimiser.clear()
            seconds = time.time() - begin
            self.log(f"first step {sum(rows)}x{length}: {seconds:.1f} s, loss {loss.item():.3f}")

    def _made_up_batch(self, rows: tuple[int, ...], length: int) -> tuple[Batch, Any]:
        device, total = self.device, sum(rows)
        images = rows[2] * length // self.options.len * self.options.slots
        ids = torch.randint(0, self.tokens, (total, length), device=device)
        patches = torch.tensor([0, 0, 16], device=device).repeat(images, 1)
        batch = Batch(
            ids,
            torch.ones_like(ids),
            torch.arange(length, device=device).expand(3, total, length),
            torch.full((rows[2], length), -1, dtype=torch.long, device=device),
            patches,
            torch.full((images, 2), 4, device=device),
        )
        return batch, torch.zeros(16, 768, dtype=torch.uint8, device=device)

    def run(self, data: TrainingData) -> dict[str, Any]:
        """Train until the time or the steps are used up; return the figures."""
        options, begin = self.options, time.time()
        budget = (options.minutes - options.save_minutes) * 60 - self.log.seconds()
        if not options.steps and budget < 30:
            raise SystemExit("no time left to train")
        step = tokens = 0
        curve: list[dict[str, Any]] = []
        said = time.time()
        while True:
            seconds = time.time() - begin
            part = step / options.steps if options.steps else seconds / budget
            if part >= 1:
                break
            long = part >= 1 - options.long_frac
            rows = options.long_rows if long else options.rows
            length = options.long_len if long else options.len
            batch = data.draw(rows, length, long)
            steps = options.mtp_steps if part >= options.mtp_full_at else 1
            losses = self.losses(batch, rows, data.pixels, steps)
            losses.total.backward()
            self.optimiser.step(self._rate(step, part), self.dtype)
            step += 1
            tokens += batch.ids.numel()
            if step % 10 == 0 or options.tiny:
                curve.append(self._record(step, seconds, losses))
            if time.time() - said >= 10:
                said = time.time()
                self.log(f"{100 * part:.0f}% {tokens / 1e6:.1f} M tokens {curve[-1]}")
        if curve[-1]["code"] >= curve[0]["code"]:
            raise SystemExit("the loss did not go down")
        return {
            "steps": step,
            "tokens": tokens,
            "train_seconds": round(time.time() - begin, 1),
            "parameters": self.parameters,
            "seed": options.seed,
            "torch": torch.__version__,
            "tokenizer_size": self.tokens,
            "vocab_size": self.config.text_config.vocab_size,
            "curve": curve[:: max(1, len(curve) // 60)],
        }

    def _rate(self, step: int, part: float) -> float:
        """Linear start, then a cosine down to 2%."""
        warm = min(1, (step + 1) / (5 if self.options.tiny else 80))
        return warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1, part))))

    def _record(self, step: int, seconds: float, losses: Losses) -> dict[str, Any]:
        shown = [round(value.item(), 4) for value in losses.shown]
        if not all(map(math.isfinite, shown)):
            raise SystemExit(f"loss not finite at step {step}: {shown}")
        names = ("code", "chat", "vision")
        record: dict[str, Any] = {"step": step, "s": round(seconds, 1)}
        return record | dict(zip(names, shown, strict=False)) | {"mtp": shown[3:]}


def check_saved(training: Training, data: TrainingData, folder: Path) -> None:
    """The stored checkpoint, loaded by transformers, has the trained names and the same loss."""
    from transformers import AutoModelForImageTextToText

    result: Any = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    model, found = result
    foreign = [name for name in found["unexpected_keys"] if not name.startswith("mtp.")]
    if found["missing_keys"] or foreign:
        raise SystemExit(f"names do not fit: {found}")
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    wanted = set(training.model.state_dict())
    wanted |= {f"mtp.{name}" for name in training.mtp.state_dict()}
    if set(index) != wanted:
        raise SystemExit(f"wrong names: {sorted(set(index) ^ wanted)[:5]}")
    model.to(training.device).eval()
    fast, length = training.fast, training.options.len
    with torch.no_grad():
        ids = data.draw((2, 1, 1), length, False).ids[:3]
        positions = torch.arange(length, device=ids.device).expand(3, 3, length)
        h = fast.run_layers(fast.embed(ids), positions)[0]
        losses = token_losses(h, fast.model.lm_head.weight, torch.roll(ids, -1, 1))
        own = losses[:, :-1].mean().item()
        logits = model(input_ids=ids).logits.float()[:, :-1]
        stored = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item()
    training.log(f"loss of the stored checkpoint {stored:.4f}, of the trained model {own:.4f}")
    if abs(own - stored) > 0.05:
        raise SystemExit("the stored checkpoint does not agree with the trained model")


def main() -> None:
    options = read_options()
    checkpoint = options.out / "checkpoint"
    for folder in (checkpoint, options.work):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    log = ProgressLog(options.out / "train.log")
    if not torch.cuda.is_available() and not options.tiny:
        raise SystemExit("no GPU; --tiny runs on the CPU")
    random.seed(options.seed)
    np.random.seed(options.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch._dynamo.config.recompile_limit = 64
    files = find_sources(options.seed, options.code_mb)
    if not files:
        raise SystemExit("no Python sources found")
    tokenizer = make_tokenizer(options, files, checkpoint)
    lines = pick_lines(files[: 40 if options.tiny else 600])
    with start_workers(options.workers) as pool:
        jobs = start_jobs(pool, options, files, checkpoint / "tokenizer.json", lines)
        training = Training(options, log, tokenizer)
        training.compile_shapes()
        data = TrainingData(jobs, training.device, options.seed, options.len)
    shutil.rmtree(options.work)
    log(data.describe())
    metrics = training.run(data)
    (options.out / "metrics.json").write_text(json.dumps(metrics, indent=1))
    save_weights(training.model, training.mtp, checkpoint)
    save_configs(training.config, training.ids, checkpoint)
    check_saved(training, data, checkpoint)
    log(f"done: {checkpoint}")


if __name__ == "__main__":
    main()
