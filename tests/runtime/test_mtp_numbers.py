"""Numbers of the MTP head against one made of transformers' layers on the same checkpoint."""

from __future__ import annotations

import pytest
import torch

from builders.engines import make_engine, random_prompt
from builders.mtp_oracle import MtpOracle
from builders.tiny_models import relative_error
from ninfer_runtime.engine.request import Request
from ninfer_runtime.models.qwen3_5 import mtp

NAMES = ("dense", "moe", "tied", "split experts")
BOUND, DRAFTS = 2e-4, 3  # N-60


@pytest.mark.parametrize("chunk", [1024, 7])
@pytest.mark.parametrize("name", NAMES)
def test_hidden_states_and_drafts_are_those_of_transformers_layers(
    artifact, checkpoint, oracle, monkeypatch, name, chunk
):
    """N-60: every prompt token's hidden state, then the drafts, each from the head's own state."""
    prompt = random_prompt(31, seed=11)
    engine = make_engine(artifact(name), speculator="mtp", draft_tokens=DRAFTS, prefill_chunk=chunk)
    seen = record_states(engine, monkeypatch)
    number = engine.add(Request(prompt, 20))
    steps = []
    while not steps:
        steps = engine.step()
    assert [step.number for step in steps] == [number] and len(steps[0].tokens) == 1
    states, drafts = expect(MtpOracle(checkpoint(name), oracle(name)), prompt)
    first = steps[0].tokens[0]
    assert [first, *drafts] == engine.table.tokens[0].tolist()
    assert relative_error(torch.cat(seen), states) <= BOUND


def record_states(engine, monkeypatch):
    """Return the list that takes the real rows of every pass of the head."""
    seen, run = [], mtp.run_attention_layer

    def record(decoder, layer, norm, x, columns, cache):
        out = run(decoder, layer, norm, x, columns, cache)
        seen.append(out[: int(columns.counts[0])].clone())
        return out

    monkeypatch.setattr(mtp, "run_attention_layer", record)
    return seen


def expect(head, prompt):
    """Return hidden states [T + DRAFTS - 1, H] and the drafts after the first greedy token."""
    with torch.no_grad():
        out = head.model(torch.tensor([prompt]), output_hidden_states=True)
    hidden = out.hidden_states[-1]
    ids, drafts, states = [*prompt, int(out.logits[0, -1].argmax())], [], hidden[:, :0]
    for _ in range(DRAFTS):
        count = hidden.shape[1]
        states = head.run(ids, hidden, torch.arange(count).expand(3, 1, -1))
        with torch.no_grad():
            drafts.append(int(head.model.lm_head(states[0, -1]).argmax()))
        ids, hidden = [*ids, drafts[-1]], torch.cat((hidden, states[:, -1:]), 1)
    return states[0], drafts
