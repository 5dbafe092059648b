"""Numbers of the forward pass against transformers on the same checkpoint."""

from __future__ import annotations

import math

import pytest
import torch

import ninfer_kernels.moe.op as moe_op
from builders.engines import answer, greedy, make_engine, prompt_logits, random_prompt
from builders.tiny_models import relative_error
from ninfer_runtime.config import Settings
from ninfer_runtime.engine.request import Request

NAMES = ("dense", "moe", "tied", "split experts")
FP32_BOUND, BF16_BOUND = 2e-4, 2e-2  # N-60, N-61


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


@pytest.mark.parametrize("name", NAMES)
def test_matrices_and_caches_in_bfloat16_leave_every_row_near_float32(artifact, oracle, name):
    """N-61: on a processor, of every row; prefilled, and decoded from caches."""
    ids, engine = random_prompt(70, seed=2), make_engine(artifact(name), dtype="bf16")
    got, want = prompt_logits(engine, ids), oracle_logits(oracle(name), ids)
    assert relative_error(got, want) <= BF16_BOUND
    error = (got - want).abs().amax(1)
    first, second = want.topk(2).values.unbind(1)
    clear = first - second > 2 * error
    assert clear.float().mean() > 0.9
    assert torch.equal(got.argmax(1)[clear], want.argmax(1)[clear])
    answered = answer(engine, Request(ids, 24, logprobs=1))
    rows = oracle_logits(oracle(name), (*ids, *answered.tokens))[len(ids) - 1 : -1].log_softmax(-1)
    for row, token, score in zip(rows, answered.tokens, answered.scores, strict=True):
        assert abs(row[token] - score.logprob) <= BF16_BOUND * rows.abs().max()


@pytest.fixture
def rounded_activations(monkeypatch):
    """Activations as on a GPU."""
    monkeypatch.setattr(Settings, "activations", property(lambda settings: settings.dtype))


@pytest.mark.parametrize("name", ["dense", "moe"])
def test_bfloat16_stays_near_float32_and_keeps_every_clear_top_token(
    artifact, oracle, rounded_activations, name
):
    """N-61"""
    ids = random_prompt(70, seed=2)
    want = oracle_logits(oracle(name), ids)
    decided = torch.ones(len(ids), dtype=torch.bool)
    for scores, bound, top_k in routers(oracle(name), ids):
        decided &= is_decided(scores, bound, top_k)
    got = prompt_logits(make_engine(artifact(name), dtype="bf16"), ids)
    assert decided.float().mean() > 0.5
    error = (got - want).abs().amax(1)
    assert error[decided].max() <= BF16_BOUND * want.abs().max()
    first, second = want.topk(2).values.unbind(1)
    clear = first - second > 2 * error
    assert clear.float().mean() > 0.8
    assert torch.equal(got.argmax(1)[clear], want.argmax(1)[clear])


def test_router_logits_in_bfloat16_are_within_the_bound_that_exempts_rows(
    artifact, oracle, rounded_activations, monkeypatch
):
    """N-61: as long as every layer before chose the same experts."""
    ids, records, route = random_prompt(70, seed=3), [], moe_op.route

    def record(logits, *arguments, **options):
        records.append(logits.clone())
        return route(logits, *arguments, **options)

    monkeypatch.setattr(moe_op, "route", record)
    prompt_logits(make_engine(artifact("moe"), dtype="bf16"), ids)
    exact = routers(oracle("moe"), ids)
    assert len(records) == len(exact)
    same = torch.ones(len(ids), dtype=torch.bool)
    for got, (scores, bound, top_k) in zip(records, exact, strict=True):
        error = differences(got) - differences(scores)
        assert (error.abs() <= bound)[same].all()
        same &= (choose(got, top_k) == choose(scores, top_k)).all(1)
    assert same.float().mean() > 0.9


def routers(model, ids):
    """Return router logits [T, E], the bound [T, E, E] on the error of their differences, and
    the number of chosen experts, for every layer; nothing for a dense model. N-61."""
    gates = [module for path, module in model.named_modules() if path.endswith("mlp.gate")]
    inputs = []
    hooks = [
        gate.register_forward_pre_hook(lambda _, x: inputs.append(x[0].flatten(0, -2).float()))
        for gate in gates
    ]
    oracle_logits(model, ids)
    for hook in hooks:
        hook.remove()
    found = []
    for layer, (gate, x) in enumerate(zip(gates, inputs, strict=True)):
        weight = gate.weight.detach().float()
        deviation = 2.0**-8 * math.sqrt((15 * layer + 10) / 3) * x.square().mean(1).sqrt()
        bound = 4 * deviation[:, None, None] * torch.cdist(weight, weight)
        found.append((x @ weight.T, bound, gate.top_k))
    return found


def differences(scores):
    return scores[:, :, None] - scores[:, None, :]


def choose(scores, top_k):
    """Return which experts are chosen, bool [T, E]."""
    best = scores.topk(top_k, dim=1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(1, best, True)


def is_decided(scores, bound, top_k):
    """Return the rows whose chosen experts all lead all others by more than the bound."""
    chosen = choose(scores, top_k)
    pairs = chosen[:, :, None] & ~chosen[:, None, :]
    return ((differences(scores) > bound) | ~pairs).all(2).all(1)
