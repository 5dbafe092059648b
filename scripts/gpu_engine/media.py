"""Pictures and videos: rows of the tower and what is generated from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from builders.tiny_models import IMAGE, VIDEO, VISION_END, VISION_START
from gpu_engine.bench import SPECULATIONS, Bench, greedy, prompt_logits
from gpu_engine.models import RANDOM
from gpu_engine.noise import Truth, compare_to_noise, find_truth, measure_noise
from gpu_engine.rows import Row, compare, compare_tokens, compare_tops
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import Media
from ninfer_runtime.models.qwen3_5.media_positions import media_runs, rotary_positions
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid
from ninfer_runtime.models.qwen3_5.vision import run_vision

GRIDS = {
    "image": (PatchGrid(1, 12, 20),),
    "images": (PatchGrid(1, 8, 8), PatchGrid(1, 18, 6)),
    "video": (PatchGrid(3, 8, 12),),
}


@dataclass(frozen=True)
class Picture:
    """A prompt's ids, where its runs of media tokens begin, its grids and random patches."""

    ids: tuple[int, ...]
    begins: tuple[int, ...]
    grids: tuple[PatchGrid, ...]
    patches: torch.Tensor

    def show(self, engine: Engine) -> Media:
        """Return the media as an engine's tower sees them."""
        tower = engine.model.vision
        assert tower is not None
        merge = tower.geometry.spatial_merge_size
        positions = rotary_positions(len(self.ids), media_runs(self.begins, self.grids, merge))
        places = torch.tensor([i for i, id in enumerate(self.ids) if id in (IMAGE, VIDEO)])
        rows = run_vision(tower, self.patches, self.grids).cpu()
        return Media(rows, places, positions)


def make_picture(bench: Bench, kind: str) -> Picture:
    """Return a prompt with media of a kind of GRIDS. Only places matter: any ids will do."""
    grids, pad = GRIDS[kind], VIDEO if kind == "video" else IMAGE
    ids, begins = list(bench.prompt(9, 50)), []
    for grid in grids:
        for frame in range(grid.frames):
            ids += [*bench.prompt(3, 51 + frame), VISION_START]
            begins.append(len(ids))
            ids += [pad] * (grid.rows * grid.columns // 4) + [VISION_END]
    ids += bench.prompt(11, 59)
    generator = torch.Generator().manual_seed(bench.seed + 5)
    patches = torch.randn(sum(grid.patches for grid in grids), 1536, generator=generator) * 0.5
    return Picture(tuple(ids), tuple(begins), grids, patches)


def check_media(bench: Bench) -> Iterator[Row]:
    """N-60, N-61, N-70: rows, logits and greedy tokens against float32 on the processor; the logits
    are those of the device's own rows."""
    for model in ("demo", "dense-256", "dense-128"):
        artifact = bench.shelf.take(model)
        exact = bench.start_exact(artifact)
        for kind in GRIDS:
            picture = make_picture(bench, kind)
            media = picture.show(exact)
            truth = find_truth(exact, picture.ids, media)
            noise = None
            if model in RANDOM:
                noise = measure_noise(bench, artifact, picture.ids, truth, picture.show)
            answer = greedy(exact, picture.ids, 32, media=media)
            for name, options in SPECULATIONS.items():
                engine = bench.start(artifact, prefill_chunk=37, **options)
                case = f"{model} {name}, {kind}"
                seen = picture.show(engine)
                yield compare(f"{case}, rows of the tower", seen.rows, media.rows)
                yield from compare_picture(case, engine, picture, seen, truth, noise)
                tokens = greedy(engine, picture.ids, 32, media=seen).tokens
                scale = float(truth.logits.abs().max())
                yield compare_tokens(f"{case}, tokens", tokens, answer, scale)


def compare_picture(
    case: str,
    engine: Engine,
    picture: Picture,
    media: Media,
    truth: Truth,
    noise: torch.Tensor | None,
) -> Iterator[Row]:
    """Hold logits against exact ones: within a bound, or the noise of a random model."""
    got = prompt_logits(engine, picture.ids, 37, media)
    if noise is None:
        yield compare(f"{case}, logits", got, truth.logits)
    else:
        yield from compare_to_noise(case, got, truth.logits, noise)
    yield compare_tops(f"{case}, clear tops", got, truth.logits)
