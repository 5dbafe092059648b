"""Images and videos: rows of the tower, rotary positions, and what is generated from them."""

from __future__ import annotations

import pytest
import torch

from builders.engines import CPU, answer, make_engine, prompt_logits, random_prompt
from builders.tiny_models import IMAGE, VIDEO, VISION_END, VISION_START, relative_error
from ninfer_runtime.engine.request import Media, Request
from ninfer_runtime.models.qwen3_5.media_positions import media_runs, rotary_positions
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid
from ninfer_runtime.models.qwen3_5.vision import run_vision

MERGE, BOUND = 2, 2e-4  # N-60
IMAGES = {"one image": [(1, 6, 10)], "two images": [(1, 4, 4), (1, 8, 2)]}
CASES = {**IMAGES, "video": [(3, 4, 6)]}


def make_prompt(grids, pad):
    """Return ids, and where every run of media tokens begins."""
    ids, begins = list(random_prompt(9, seed=71)), []
    for frames, rows, columns in grids:
        for frame in range(frames):
            ids += [*random_prompt(3, seed=72 + frame), VISION_START]
            begins.append(len(ids))
            ids += [pad] * (rows * columns // MERGE**2) + [VISION_END]
    return [*ids, *random_prompt(11, seed=79)], begins


def ask_oracle(model, ids, grids, pixels, video):
    """Return logits, 24 greedy tokens, vision rows, positions and rope delta of transformers."""
    kind = "video" if video else "image"
    grid = torch.tensor(grids)
    types = torch.tensor([[{IMAGE: 1, VIDEO: 2}.get(id, 0) for id in ids]])
    inputs = {
        "input_ids": torch.tensor([ids]),
        "pixel_values_videos" if video else "pixel_values": pixels,
        f"{kind}_grid_thw": grid,
        "mm_token_type_ids": types,
    }
    with torch.no_grad():
        logits = model(**inputs).logits[0]
        tokens = model.generate(**inputs, max_new_tokens=24, do_sample=False, eos_token_id=None)
        rows = model.model.visual(pixels, grid_thw=grid).pooler_output
        positions, delta = model.model.get_rope_index(
            inputs["input_ids"], mm_token_type_ids=types, **{f"{kind}_grid_thw": grid}
        )
    return logits, tokens[0, len(ids) :].tolist(), rows, positions[:, 0], int(delta)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["dense", "moe"])
def test_media_are_seen_as_transformers_sees_them(artifact, oracle, name, case):
    """N-60: rows, positions, rope delta, logits and greedy tokens; drafts change nothing."""
    grids, video = CASES[case], case == "video"
    pad = VIDEO if video else IMAGE
    ids, begins = make_prompt(grids, pad)
    patches = sum(frames * rows * columns for frames, rows, columns in grids)
    pixels = torch.randn(patches, 1536, generator=torch.Generator().manual_seed(5)) * 0.5
    logits, tokens, want_rows, want_positions, delta = ask_oracle(
        oracle(name), ids, grids, pixels, video
    )
    engine = make_engine(artifact(name), prefill_chunk=17)
    assert engine.model.vision is not None
    shapes = [PatchGrid(*grid) for grid in grids]
    rows = run_vision(engine.model.vision, pixels, shapes)
    assert relative_error(rows, want_rows) <= BOUND
    positions = rotary_positions(len(ids), media_runs(begins, shapes, MERGE))
    assert torch.equal(positions.long(), want_positions)
    assert int(positions[:, -1].max()) + 1 - len(ids) == delta
    places = torch.tensor([i for i, id in enumerate(ids) if id == pad], device=CPU)
    media = Media(rows, places, positions)
    assert relative_error(prompt_logits(engine, ids, media=media), logits) <= BOUND
    request = Request(tuple(ids), 24, media=media)
    assert answer(engine, request).tokens == tokens
    drafting = make_engine(artifact(name), speculator="mtp", draft_tokens=2, prefill_chunk=17)
    assert answer(drafting, request).tokens == tokens
