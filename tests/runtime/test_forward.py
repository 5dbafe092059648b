"""Numbers of the forward pass against transformers on the same checkpoint."""

from __future__ import annotations

import pytest
import torch

from builders.engines import greedy, make_engine, prompt_logits, random_prompt
from builders.tiny_models import relative_error

NAMES = ("dense", "moe", "tied", "split experts")
FP32_BOUND, BF16_BOUND = 2e-4, 2e-2  # N-60, N-61
ROUTER_MARGIN = 0.05  # N-61


def oracle_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers(artifact, oracle, name):
    """N-60"""
    ids = random_prompt(70)
    got = prompt_logits(make_engine(artifact(name)), ids)
    assert relative_error(got, oracle_logits(oracle(name), ids)) <= FP32_BOUND


@pytest.mark.parametrize("name", NAMES)
def test_sixty_four_greedy_tokens_are_those_of_transformers(artifact, oracle, name):
    """N-60"""
    ids = random_prompt(20, seed=1)
    with torch.no_grad():
        generated = oracle(name).generate(
            torch.tensor([ids]), max_new_tokens=64, do_sample=False, eos_token_id=None
        )
    assert greedy(make_engine(artifact(name)), ids, 64) == generated[0, len(ids) :].tolist()


@pytest.mark.parametrize("name", ["dense", "moe"])
def test_bfloat16_stays_near_float32_and_keeps_every_clear_top_token(artifact, oracle, name):
    """N-61"""
    ids = random_prompt(70, seed=2)
    margins, want = routed_logits(oracle(name), ids)
    got = prompt_logits(make_engine(artifact(name), dtype="bf16"), ids)
    decided = margins > ROUTER_MARGIN
    assert decided.float().mean() > 0.5
    error = (got - want).abs().amax(1)
    assert error[decided].max() <= BF16_BOUND * want.abs().max()
    first, second = want.topk(2).values.unbind(1)
    clear = first - second > 2 * error
    assert clear.float().mean() > 0.8
    assert torch.equal(got.argmax(1)[clear], want.argmax(1)[clear])


def routed_logits(model, ids):
    """Return how far apart the last chosen expert and the next are for every token, in the layer
    where they are nearest (infinite in a dense model), and the logits."""
    margins = [torch.full((len(ids),), float("inf"))]
    hooks = [
        module.register_forward_pre_hook(lambda m, inputs: margins.append(expert_margin(m, inputs)))
        for path, module in model.named_modules()
        if path.endswith("mlp.gate")
    ]
    logits = oracle_logits(model, ids)
    for hook in hooks:
        hook.remove()
    assert bool(hooks) == (len(margins) > 1)
    return torch.stack(margins).amin(0), logits


def expert_margin(gate, inputs):
    scores = inputs[0].flatten(0, -2).float() @ gate.weight.float().T
    ranked = scores.sort(-1, descending=True).values
    return ranked[:, gate.top_k - 1] - ranked[:, gate.top_k]
