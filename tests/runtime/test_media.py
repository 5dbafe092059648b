"""Images and videos: rows of the tower, rotary positions, and what is generated from them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

from builders.engines import CPU, answer, make_engine, prompt_logits, random_prompt, score_gap
from builders.tiny_models import IMAGE, VIDEO, VISION_END, VISION_START, relative_error
from ninfer_runtime.engine.request import Media, Request
from ninfer_runtime.models.qwen3_5.media_positions import media_runs, rotary_positions
from ninfer_runtime.models.qwen3_5.patch_grid import PatchGrid
from ninfer_runtime.models.qwen3_5.vision import run_vision

MERGE, BOUND = 2, 2e-4  # N-60
BF16_BOUND, CHUNK_BOUND = 2e-2, 1e-5  # N-61, N-63
TOKENS = 64
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
    """Return logits, greedy tokens, vision rows, positions and rope delta of transformers."""
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
        tokens = model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False, eos_token_id=None)
        rows = model.model.visual(pixels, grid_thw=grid).pooler_output
        positions, delta = model.model.get_rope_index(
            inputs["input_ids"], mm_token_type_ids=types, **{f"{kind}_grid_thw": grid}
        )
    return logits, tokens[0, len(ids) :].tolist(), rows, positions[:, 0], int(delta)


def make_case(case):
    """Return ids, where runs of media tokens begin, grids, pixels, and the id of media tokens."""
    grids, pad = CASES[case], VIDEO if case == "video" else IMAGE
    ids, begins = make_prompt(grids, pad)
    patches = sum(frames * rows * columns for frames, rows, columns in grids)
    pixels = torch.randn(patches, 1536, generator=torch.Generator().manual_seed(5)) * 0.5
    return ids, begins, grids, pixels, pad


def see(engine, case):
    """Return ids and what the engine makes of their media."""
    ids, begins, grids, pixels, pad = make_case(case)
    shapes = [PatchGrid(*grid) for grid in grids]
    rows = run_vision(engine.model.vision, pixels, shapes)
    positions = rotary_positions(len(ids), media_runs(begins, shapes, MERGE))
    places = torch.tensor([i for i, id in enumerate(ids) if id == pad], device=CPU)
    return tuple(ids), Media(rows, places, positions)


@pytest.mark.parametrize(
    ("name", "case"),
    [*product(("dense", "moe"), CASES), ("tied", "two images"), ("split experts", "video")],
)
def test_media_are_seen_as_transformers_sees_them(artifact, oracle, name, case):
    """N-60: rows, positions, rope delta, logits and greedy tokens; drafts change nothing."""
    engine = make_engine(artifact(name), prefill_chunk=17)
    ids, media = see(engine, case)
    _, _, grids, pixels, _ = make_case(case)
    logits, tokens, want_rows, want_positions, delta = ask_oracle(
        oracle(name), ids, grids, pixels, case == "video"
    )
    assert relative_error(media.rows, want_rows) <= BOUND
    assert torch.equal(media.positions.long(), want_positions)
    assert int(media.positions[:, -1].max()) + 1 - len(ids) == delta
    assert relative_error(prompt_logits(engine, ids, media=media), logits) <= BOUND
    request = Request(ids, TOKENS, media=media)
    assert answer(engine, request).tokens == tokens
    drafting = make_engine(artifact(name), speculator="mtp", draft_tokens=2, prefill_chunk=17)
    assert answer(drafting, request).tokens == tokens
    narrow = make_engine(artifact(name), dtype="bf16")
    _, media = see(narrow, case)
    assert relative_error(media.rows, want_rows) <= BF16_BOUND
    assert relative_error(prompt_logits(narrow, ids, media=media), logits) <= BF16_BOUND


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["dense", "moe"])
def test_chunks_that_cut_media_leave_what_one_pass_leaves(artifact, name, case):
    """N-63: logits, and what drafts and the tokens after the prompt make of its caches."""
    whole, options = make_engine(artifact(name)), {"speculator": "mtp", "draft_tokens": 3}
    ids, media = see(whole, case)
    logits = prompt_logits(whole, ids, media=media)
    request = Request(ids, 16, media=media, logprobs=8)
    want = answer(whole, request)
    for chunk in (1, 5, 23):
        got = prompt_logits(whole, ids, chunk, media=media)
        assert relative_error(got, logits) <= CHUNK_BOUND
        for more in ({}, options):
            cut = answer(make_engine(artifact(name), prefill_chunk=chunk, **more), request)
            assert cut.tokens == want.tokens
            assert score_gap(cut, want) <= CHUNK_BOUND
    later = text_after(media, len(want.tokens))
    rows = prompt_logits(whole, (*ids, *want.tokens), media=later)[len(ids) - 1 : -1]
    assert rows.argmax(1).tolist() == want.tokens


def text_after(media, count):
    """Return the media of a prompt with `count` tokens of text more."""
    first = media.positions[:, -1:].max() + 1
    more = (first + torch.arange(count, dtype=torch.int32)).expand(3, -1)
    return replace(media, positions=torch.cat((media.positions, more), 1))
