# pyright: reportMissingImports=false
"""Compare the drafter's forward and its loop with the public package `dflash` 0.1.0, on the CPU.

python scripts/demo/check_drafter.py CHECKPOINT DFLASH2
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from agreement import relative_error
from drafter_evaluation import run_loop
from drafter_model import Blocks, Drafter, list_shapes
from drafter_target import Target
from gated_delta import linear

ANCHORS = (1, 2, 40, 300, 511, 512, 513, 600, 690)
LENGTH = 700
NEW_TOKENS = 24


class UncachedTarget:
    """A target for `dflash_generate` that runs the whole text each time.

    The cache of transformers 5.17 does not restore the linear-attention state exactly when
    rejected tokens are cropped, so the package's loop drifts off with a cache.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.lm_head, self.device = model, model.lm_head, model.device
        self.config, self.get_input_embeddings = model.config, model.get_input_embeddings
        self.ids = torch.zeros(1, 0, dtype=torch.long)

    def __call__(self, ids: Any, position_ids: Any, **options: Any) -> SimpleNamespace:
        start = int(position_ids[0, 0])
        self.ids = torch.cat([self.ids[:, :start], ids], 1)
        out = self.model(input_ids=self.ids, output_hidden_states=True)
        logits = out.logits[:, start:][:, -options.get("logits_to_keep", 0) :]
        states = [state[:, start:] for state in out.hidden_states]
        return SimpleNamespace(logits=logits, hidden_states=states)


def load_drafter(folder: Path, target: Target) -> Drafter:
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    if {name: tuple(value.shape) for name, value in weights.items()} != list_shapes(config):
        raise SystemExit("names or shapes differ from the config's")
    embedding = target.fast.language.embed_tokens.weight
    head = target.fast.model.lm_head.weight
    exact = {name: value.float() for name, value in weights.items()}
    return Drafter(config, exact, embedding, head, torch.float32)


@torch.no_grad()
def compare_blocks(target: Target, drafter: Drafter, public: Any, ids: torch.Tensor) -> None:
    """Hidden states, logits and tokens of blocks around the window's edge."""
    from dflash import model as package

    model = target.fast.model
    features = target.run_text(ids.tolist())[0]
    states = model(input_ids=ids[None], output_hidden_states=True).hidden_states
    reference = package.extract_context_feature(states, public.target_layer_ids)[0]
    print(f"features: relative error {relative_error(features, reference):.1e}")
    anchors = torch.tensor(ANCHORS)
    zeros = torch.zeros(1, len(ids), dtype=torch.long)
    worst, same = 0.0, 0
    for k in (3, 7):
        rows = torch.full_like(anchors[None], k + 1)
        blocks = Blocks(anchors[None], ids[anchors][None], zeros[:, : len(anchors)], rows, zeros)
        h = drafter.run_blocks(features[None], blocks, k + 1)[0, :, 1:]
        drafts = drafter.draft(features, ids, anchors, k, target.tokens)
        for j, anchor in enumerate(ANCHORS):
            block = torch.tensor([[int(ids[anchor])] + [public.mask_token_id] * k])
            embedded = F.embedding(block, model.get_input_embeddings().weight)
            own = public(
                target_hidden=reference[None, :anchor],
                noise_embedding=embedded,
                position_ids=torch.arange(anchor + k + 1)[None],
            )[:, 1:]
            logits = public.compute_logits(own, model.lm_head)[0]
            tokens = public.propose(own, block[:, 0], model.lm_head, 0.0)[0][0]
            errors = (
                relative_error(h[j], own[0]),
                relative_error(linear(h[j], drafter.head), logits),
            )
            worst, same = max(worst, *errors), same + bool((tokens == drafts[j]).all())
    print(
        f"blocks: worst relative error {worst:.1e}, {same} of {2 * len(ANCHORS)} with equal tokens"
    )
    if worst > 1e-4 or same != 2 * len(ANCHORS):
        raise SystemExit("the drafter does not agree with the package")


def compare_loops(target: Target, drafter: Drafter, public: Any, prompt: list[int]) -> None:
    """Plain greedy decoding, the loop here and the package's loop give one text."""
    from dflash import model as package

    plain = target.continue_texts([prompt], NEW_TOKENS)[0]
    reply, counts = run_loop(target, drafter, prompt, 7, NEW_TOKENS)
    crop = package._crop_to
    package._cuda_time = time.perf_counter
    # The cache of the uncached target stays empty: nothing to crop.
    package._crop_to = lambda cache, n: crop(cache, n) if cache.get_seq_length() > n else None
    wrapped = UncachedTarget(target.model)
    ends = list(target.ends)
    ids = torch.tensor([prompt])
    out = package.dflash_generate(public, wrapped, ids, NEW_TOKENS, ends, return_stats=True)
    package._crop_to = crop
    text = out.output_ids[0, len(prompt) :].tolist()
    other = [length - 1 for length in out.acceptance_lengths]
    # The end of the text cuts the last round.
    known = min(len(other), len(counts)) - 1
    print(f"accepted here {counts}, in the package {other}")
    if reply[: len(plain)] != plain[: len(reply)] or text != reply[: len(text)]:
        raise SystemExit("the texts differ")
    if other[:known] != counts[:known]:
        raise SystemExit("the accepted counts differ")


def main() -> None:
    from dflash import model as package

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("dflash2", type=Path)
    options = parser.parse_args()
    config = json.loads((options.dflash2 / "config.json").read_text())
    taps = config["dflash_config"]["target_layer_ids"]
    target = Target(options.checkpoint, torch.float32, torch.device("cpu"), taps)
    drafter = load_drafter(options.dflash2, target)
    public = package.DFlash2DraftModel.from_pretrained(options.dflash2, dtype=torch.float32).eval()
    text = Path(__file__).with_name("chat_tasks.py").read_text()
    ids = torch.tensor(target.tokenizer(text).input_ids[:LENGTH])
    compare_blocks(target, drafter, public, ids)
    question = [{"role": "user", "content": "Repeat this exactly:\nwinter rope lemon chair"}]
    chat = target.tokenizer.apply_chat_template(
        question,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
        enable_thinking=True,
    )
    for prompt in (ids[:100].tolist(), chat):
        compare_loops(target, drafter, public, prompt)
    print("check passed")


if __name__ == "__main__":
    main()
