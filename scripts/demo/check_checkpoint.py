# pyright: reportMissingImports=false
"""Check that training saw what transformers makes of the same conversations, on the CPU.

    python scripts/demo/check_checkpoint.py CHECKPOINT

Chat template and tokenizer against the training text; processor (ids, rotary positions, pixels)
against the vision rows; MTP drafting against the training path.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from chat_tasks import ChatTasks
from conversation import encode_pieces, render
from fast_forward import FastForward
from mtp_module import MtpDrafter, load_mtp, normalise
from training_rows import VisionJob, load_tokenizer, make_vision, patch_file
from vision_tasks import Sample, VisionTasks

SEED, SLOTS, LENGTH = 5, 16, 2048
CONVERSATIONS = 6


def require(holds: Any, what: str) -> None:
    if not holds:
        raise SystemExit(f"{what}: differs")


def check_text(folder: Path, processor: Any) -> None:
    """The template's text equals the training text, and so do the ids."""
    own, public = load_tokenizer(folder / "tokenizer.json"), processor.tokenizer
    tasks = ChatTasks(random.Random(3), ["x = 1", "    return a"])
    for _ in range(300):
        sample = tasks.sample(200)
        pieces = render(sample.full, sample.tools)
        whole = "".join(text for text, _ in pieces)
        options = {"tools": sample.tools, "tokenize": False}
        require(public.apply_chat_template(sample.full, **options) == whole, "template")
        prompt = public.apply_chat_template(
            sample.messages, add_generation_prompt=True, enable_thinking=sample.think, **options
        )
        require(whole.startswith(prompt), "generation prompt")
        require(encode_pieces(own, pieces)[0] == public(whole).input_ids, "token ids")
    print("template and tokenizer agree with the training text")


def process(processor: Any, sample: Sample) -> Any:
    text = processor.apply_chat_template(sample.messages, tokenize=False)
    media: dict[str, Any] = {"images": [content for _, content in sample.media]}
    if sample.media[0][0] == "video":
        frames = sample.media[0][1]
        count = len(frames)
        metadata = {"fps": 2.0, "total_num_frames": count, "duration": count / 2}
        media = {
            "videos": [np.stack([np.asarray(frame) for frame in frames])],
            "video_metadata": [{**metadata, "frames_indices": list(range(count))}],
            "do_sample_frames": False,
        }
    return processor(text=[text], return_tensors="pt", **media)


def check_vision(folder: Path, processor: Any, model: Any) -> None:
    """A made row holds, one after the other, what the processor makes of each conversation."""
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "row.npz"
        make_vision(VisionJob(SEED, 1, LENGTH, SLOTS, folder / "tokenizer.json", out))
        row = {name: value[0] for name, value in np.load(out).items()}
        pixels = np.load(patch_file(out))
    tasks = VisionTasks(random.Random(SEED))
    used = slot = 0
    for _ in range(CONVERSATIONS):
        sample = tasks.sample(tasks.rng.randint(1, 4))
        inputs = process(processor, sample)
        count = inputs.input_ids.shape[1]
        part = slice(used, used + count)
        require(row["T"][part].tolist() == inputs.input_ids[0].tolist(), "vision ids")
        kind = "video" if sample.media[0][0] == "video" else "image"
        grids = inputs[f"{kind}_grid_thw"]
        positions, _ = model.model.get_rope_index(
            inputs.input_ids,
            mm_token_type_ids=inputs.mm_token_type_ids,
            **{f"{kind}_grid_thw": grids},
        )
        own = row["P"][:, part]
        require((positions[:, 0].numpy() == own - own[0, 0]).all(), "rotary positions")
        slots = int(grids[:, 0].sum())
        values = join_frames(pixels, row["S"][slot : slot + slots])
        name = "pixel_values_videos" if kind == "video" else "pixel_values"
        difference = np.abs(inputs[name].numpy() - values).mean()
        require(difference < 0.02, f"pixels by {difference:.3f}")
        used, slot = used + count + 1, slot + slots
    print(f"{CONVERSATIONS} conversations about pictures agree with the processor")


def join_frames(pixels: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Patches of both frames side by side, as the processor orders and scales them."""
    frames = [
        np.concatenate([pixels[slot[k] : slot[k] + slot[2]] for slot in slots]) for k in (0, 1)
    ]
    both = np.stack([frame.reshape(-1, 3, 256) for frame in frames], 2)
    return both.reshape(len(frames[0]), -1) / 127.5 - 1


@torch.no_grad()
def check_drafting(folder: Path, processor: Any, model: Any) -> None:
    """The first draft of an engine equals what the training path predicts."""
    mtp: Any = load_mtp(folder, model.config, "cpu", torch.float32)
    fast = FastForward(model, mtp, torch.float32)
    text = Path(__file__).read_text()
    ids = torch.tensor(processor.tokenizer(text).input_ids[:192])[None]
    embedded = fast.embed(ids)
    hidden, _, rope = fast.run_layers(embedded, torch.arange(192).expand(3, 1, 192))
    norms = (mtp.pre_fc_norm_embedding.weight, mtp.pre_fc_norm_hidden.weight)
    x = fast.call["mtp_in"](torch.roll(embedded, -1, 1), hidden, norms, mtp.fc.weight)
    x = normalise(fast.attention(x, mtp.layers[0], rope), mtp.norm.weight)
    trained = model.lm_head(x)[0].argmax(-1)[:-1]
    states = model.model(input_ids=ids).last_hidden_state[0]
    drafts = MtpDrafter(model, mtp).draft(ids[0], states, 1)[0]
    share = (drafts == trained).float().mean().item()
    require(share > 0.98, f"drafts agree on {share:.3f} only")
    print(f"drafts agree with the training path on {100 * share:.1f}% of the positions")


def main() -> None:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    folder = parser.parse_args().checkpoint
    processor = AutoProcessor.from_pretrained(folder)
    model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    check_text(folder, processor)
    check_vision(folder, processor, model)
    check_drafting(folder, processor, model)


if __name__ == "__main__":
    main()
