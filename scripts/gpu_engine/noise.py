"""What rounding to bfloat16 does to a model, measured with the operations that define them all.

Specification: `specs/numerics.md`, N-70.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gpu_engine.bench import Bench, prompt_logits, replaced
from gpu_engine.rows import Row
from ninfer_formats.reader import Artifact
from ninfer_kernels.moe import op as moe_op
from ninfer_runtime.config import EngineConfig, Settings
from ninfer_runtime.engine import prefill
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import Media

PASSES = 8
# Unit roundoff of bfloat16.
_UNIT = 2.0**-8
# How far the error of all rows, and of one row, may be above the noise.
ALL_ROWS, ONE_ROW = 1.5, 5.0


@dataclass(frozen=True)
class Truth:
    """Exact logits [T, V] of a prompt, and the chosen experts [T, top_k] of every layer that has
    some."""

    logits: torch.Tensor
    choices: tuple[torch.Tensor, ...]


def find_truth(engine: Engine, ids: tuple[int, ...], media: Media | None = None) -> Truth:
    """Run a prompt through an exact engine."""
    with watched_routers() as choices:
        logits = prompt_logits(engine, ids, media=media)
    return Truth(logits, tuple(choices))


def measure_noise(
    bench: Bench,
    artifact: Artifact,
    ids: tuple[int, ...],
    truth: Truth,
    show: Callable[[Engine], Media] | None = None,
    **options: Any,
) -> torch.Tensor:
    """Return the root mean square error fp32 [T] of rows of logits in bfloat16: of several passes
    on the processor, each with embeddings that are rounded once more, at random.

    `show` makes media of the engine that sees them.
    """
    engine = start_rounded(artifact, **options)
    media = None if show is None else show(engine)
    errors = []
    generator = torch.Generator().manual_seed(bench.seed + 70)
    with replaced(prefill, "embed_prompt", shaking(generator)):
        for _ in range(PASSES):
            with forced_routers(truth):
                logits = prompt_logits(engine, ids, media=media)
            errors.append((logits - truth.logits).square().mean(1))
    return torch.stack(errors).mean(0).sqrt()


def compare_to_noise(
    case: str, got: torch.Tensor, want: torch.Tensor, noise: torch.Tensor
) -> Iterator[Row]:
    """Hold the error of all rows of logits, and of each, against the noise of each."""
    error, scale = (got.float().cpu() - want).square().mean(1).sqrt(), want.square().mean().sqrt()
    shares = (
        (f"{case}, logits", mean(error) / (ALL_ROWS * mean(noise))),
        (f"{case}, rows", (error / (ONE_ROW * noise)).max()),
    )
    detail = f"error {mean(error) / scale:.2e}, noise {mean(noise) / scale:.2e}"
    for name, share in shares:
        yield Row(name, float(share) if share == share else float("inf"), detail)


def mean(rows: torch.Tensor) -> torch.Tensor:
    """Return the root of the mean square."""
    return rows.square().mean().sqrt()


def start_rounded(artifact: Artifact, **options: Any) -> Engine:
    """Return an engine on the processor whose activations are bfloat16, as on a GPU."""
    options.setdefault("max_context", 512)
    with replaced(Settings, "activations", property(lambda settings: settings.dtype)):
        return Engine(artifact, EngineConfig(device="cpu", dtype="bf16", **options))


def shaking(generator: torch.Generator) -> Callable[..., torch.Tensor]:
    """Return `embed_prompt` with one more rounding: off by up to half a unit, uniformly."""
    embed = prefill.embed_prompt

    def shake(*arguments: Any) -> torch.Tensor:
        x = embed(*arguments)
        parts = torch.rand(x.shape, generator=generator) * 2 - 1
        return (x.float() * (1 + _UNIT * parts)).to(x.dtype)

    return shake


@contextmanager
def watched_routers() -> Iterator[list[torch.Tensor]]:
    """Yield a list that gets the experts chosen in every layer."""
    choices: list[torch.Tensor] = []
    route = moe_op.route

    def watch(*arguments: Any, **options: Any) -> Any:
        ids, weights = route(*arguments, **options)
        choices.append(ids.clone())
        return ids, weights

    with replaced(moe_op, "route", watch):
        yield choices


@contextmanager
def forced_routers(truth: Truth) -> Iterator[None]:
    """Have a prompt, in chunks of any size, go through the experts of an exact pass: a choice that
    rounding turns is not an error of rounding. Their weights are the engine's own."""
    calls, done = 0, [0] * len(truth.choices)

    def force(logits: torch.Tensor, top_k: int, **out: Any) -> Any:
        nonlocal calls
        layer = calls % len(done)
        begin = done[layer]
        done[layer] = begin + logits.shape[0]
        calls += 1
        chosen = truth.choices[layer][begin : done[layer]].to(logits.device)
        share = logits.softmax(1).gather(1, chosen.long())
        return out["ids"].copy_(chosen), out["weights"].copy_(share / share.sum(1, keepdim=True))

    with replaced(moe_op, "route", force if done else moe_op.route):
        yield
