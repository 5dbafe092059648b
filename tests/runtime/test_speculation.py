"""Drafts change how fast tokens come, never which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tokenizers import Tokenizer

from builders.engines import Answer, answer, make_engine, random_prompt
from builders.tiny_models import convert_model
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import Request
from ninfer_tools.demo.cache import locate_demo
from ninfer_tools.demo.evaluation import read_code

DRAFTS = range(1, 8)
TOKENS = 256


def cut_vocabulary(engine: Engine, size: int = 8) -> Engine:
    """Leave the first `size` tokens in the output head, so that random drafts are often right."""
    text = engine.model.text
    engine.model = replace(engine.model, text=replace(text, head=text.head.cut_rows(0, size)))
    engine._rounds._model = engine.model
    return engine


@pytest.fixture(scope="module")
def plain(artifact) -> Callable[[str], Answer]:
    """Greedy answers without drafts."""
    found: dict[str, Answer] = {}

    def run(name: str) -> Answer:
        if name not in found:
            engine = cut_vocabulary(make_engine(artifact(name), max_context=512))
            found[name] = answer(engine, Request(random_prompt(30, seed=21), TOKENS))
        return found[name]

    return run


@pytest.mark.parametrize(
    ("name", "drafts"), [(name, drafts) for name in ("dense", "moe") for drafts in DRAFTS]
)
def test_greedy_tokens_do_not_depend_on_drafts(artifact, plain, name, drafts):
    """N-64: on a tiny vocabulary, where drafts stand and fall in turn."""
    engine = make_engine(artifact(name), max_context=512, speculator="mtp", draft_tokens=drafts)
    got = answer(cut_vocabulary(engine), Request(random_prompt(30, seed=21), TOKENS))
    assert len(set(got.tokens)) > 2
    assert got.tokens == plain(name).tokens
    assert got.rounds < TOKENS, "no draft was ever right"
    assert got.rounds > TOKENS // (drafts + 1), "no draft was ever wrong"


@pytest.mark.parametrize("name", ["tied"])
def test_greedy_tokens_do_not_depend_on_drafts_over_the_whole_vocabulary(artifact, name):
    """N-64: hardly any draft is right."""
    request = Request(random_prompt(30, seed=22), TOKENS)
    want = answer(make_engine(artifact(name), max_context=512), request)
    options = {"speculator": "mtp", "draft_tokens": 3}
    got = answer(make_engine(artifact(name), max_context=512, **options), request)
    assert got.tokens == want.tokens


def test_a_stop_id_among_accepted_drafts_ends_the_answer(artifact):
    request = Request(random_prompt(30, seed=21), TOKENS)
    want = answer(cut_vocabulary(make_engine(artifact("dense"), max_context=512)), request).tokens
    for stop in sorted(set(want)):
        engine = make_engine(artifact("dense"), max_context=512, speculator="mtp", draft_tokens=7)
        got = answer(cut_vocabulary(engine), replace(request, stops=(stop,)))
        assert got.tokens == want[: want.index(stop) + 1]
        assert got.finish == "stop"


@pytest.mark.parametrize("count", [1, 2, 5, 63])
def test_max_tokens_cuts_accepted_drafts(artifact, count):
    engine = make_engine(artifact("dense"), speculator="mtp", draft_tokens=7)
    request = Request(random_prompt(30, seed=21), count)
    got = answer(cut_vocabulary(engine), request)
    assert len(got.tokens) == count and got.finish == "length"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo checkpoint as an artifact, a prompt, and its answer without drafts."""
    folder = locate_demo()
    artifact = convert_model(folder, tmp_path_factory.mktemp("demo") / "demo.ninfer")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompt = tuple(tokenizer.encode(read_code()[20].text).ids[:60])
    plain = answer(make_engine(artifact, max_context=512), Request(prompt, TOKENS))
    return artifact, prompt, plain


@pytest.mark.parametrize("drafts", DRAFTS)
def test_trained_drafts_stand_often_and_change_nothing(demo, drafts):
    """N-64: on the demo checkpoint, 256 tokens."""
    artifact, prompt, plain = demo
    engine = make_engine(artifact, max_context=512, speculator="mtp", draft_tokens=drafts)
    got = answer(engine, Request(prompt, TOKENS))
    assert len(got.tokens) == TOKENS and len(set(got.tokens)) > 20
    assert got.tokens == plain.tokens
    accepted = (TOKENS - got.rounds) / (got.rounds * drafts)
    assert 0.1 < accepted < 1
