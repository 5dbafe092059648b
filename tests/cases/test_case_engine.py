"""Public reports about text, sampling and drafts: cases 55, 58, 60, 61, 63, 64 and 66."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from builders.engines import Answer, answer, collect, make_engine, run_all
from builders.tiny_models import convert_model
from ninfer_formats.errors import UsageError
from ninfer_formats.reader import Artifact
from ninfer_runtime.engine.engine import Engine
from ninfer_runtime.engine.request import LENGTH, STOP, Request, Sampling
from ninfer_runtime.frontend.frontend import Frontend, load_frontend
from ninfer_runtime.frontend.output_parser import OutputParser, Pieces
from ninfer_runtime.frontend.template import TemplateOptions
from ninfer_runtime.frontend.text_stream import TextStream
from ninfer_runtime.models.qwen3_5.model import read_geometry
from ninfer_tools.demo.cache import locate_demo
from ninfer_tools.demo.evaluation import Question, read_chat, read_code

BALL = "\U0001f9ff"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the demo checkpoint, whose drafts are trained."""
    return locate_demo(home=tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def artifact(demo, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The demo checkpoint with a proposal head."""
    out = tmp_path_factory.mktemp("artifact") / "demo.ninfer"
    return convert_model(demo, out, no_proposal=False, proposal_rows=512)


@pytest.fixture(scope="module")
def frontend(artifact) -> Frontend:
    return load_frontend(artifact, read_geometry(artifact))


@pytest.fixture(scope="module")
def engine_of(artifact) -> Callable[..., Engine]:
    """An engine with some drafts a round, 0 for none."""

    def make(drafts: int, context: int = 320, **options) -> Engine:
        if drafts:
            options |= {"speculator": "mtp", "draft_tokens": drafts}
        return make_engine(artifact, max_context=context, vision=False, **options)

    return make


@pytest.fixture(scope="module")
def code(frontend) -> Callable[[int], tuple[int, ...]]:
    """The beginning of a source file that no training has seen."""
    passages = read_code()
    return lambda number: tuple(frontend.tokenizer.encode(passages[number].text)[:40])


@pytest.fixture(scope="module")
def plain(engine_of) -> Callable[..., Answer]:
    """Greedy answers without drafts."""
    engine = engine_of(0, 512)

    @cache
    def run(prompt: tuple[int, ...], count: int, stops: tuple[int, ...] = ()) -> Answer:
        return answer(engine, Request(prompt, count, stops=stops))

    return run


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("portion", [1, 2, 3])
def test_case_55_split_characters_are_sent_whole(frontend, thinking, portion):
    text = f"so {BALL}{BALL}\u65e5\u672c</think>\n\n<tool_call>{BALL}\u8a9e"
    ids = frontend.tokenizer.encode(text)
    assert len(frontend.tokenizer.encode(BALL)) > 1
    stream, parser = TextStream(frontend.tokenizer), OutputParser(thinking)
    texts = [stream.push(ids[i : i + portion]) for i in range(0, len(ids), portion)]
    texts.append(stream.finish())
    assert not any("\ufffd" in part for part in texts)
    assert "".join(texts) == frontend.tokenizer.decode(ids) == text
    pieces = [*map(parser.push, texts), parser.finish()]
    whole = OutputParser(thinking)
    want = [whole.push(text), whole.finish()]
    assert "".join(p.reasoning for p in pieces) == "".join(p.reasoning for p in want)
    assert "".join(p.answer for p in pieces) == "".join(p.answer for p in want)


def forced(ids: list[int], vocabulary: int) -> Callable[[tuple[int, ...]], torch.Tensor]:
    """A mask that allows these ids, one after the other."""

    def mask(emitted: tuple[int, ...]) -> torch.Tensor:
        allowed = torch.zeros(-(-vocabulary // 32) * 32, dtype=torch.int64)
        allowed[ids[len(emitted)]] = 1
        return (allowed.view(-1, 32) << torch.arange(32)).sum(1).to(torch.int32)

    return mask


def test_case_55_only_an_answer_that_ends_inside_a_character_shows_it(frontend, engine_of):
    """The engine is made to say all but the last piece of a character, then the whole."""
    ids, engine = frontend.tokenizer.encode(BALL), engine_of(2)
    mask = forced(ids, engine.geometry.text.vocab_size)
    for count, want in ((len(ids) - 1, "\ufffd"), (len(ids), BALL)):
        stream, texts = TextStream(frontend.tokenizer), []
        engine.add(Request((5, 6), count, mask=mask))
        while engine.busy:
            texts += [stream.push(step.tokens) for step in engine.step()]
        assert texts[: len(ids) - 1] == [""] * (len(ids) - 1)
        assert "".join(texts) + stream.finish() == want


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, seed=7)])
def test_case_58_tokens_behind_the_limit_do_not_count(engine_of, code, sampling):
    engine = engine_of(5)
    got = answer(engine, Request(code(20), 10, sampling, logprobs=2))
    assert (len(got.tokens), len(got.scores), got.finish) == (10, 10, LENGTH)
    assert got.rounds < 10, "no draft was ever right"


def test_case_58_tokens_behind_a_stop_id_do_not_count(engine_of, plain, code):
    want = plain(code(20), 40).tokens
    engine, bursts = engine_of(5), 0
    for stop in sorted(set(want))[::6]:
        got = answer(engine, Request(code(20), 40, stops=(stop,), logprobs=1))
        assert (got.tokens, got.finish) == (want[: want.index(stop) + 1], STOP)
        assert len(got.scores) == len(got.tokens)
        bursts += got.rounds < len(got.tokens)
    assert bursts > 1


@pytest.mark.parametrize("look_ahead", [False, True])
def test_case_58_a_stop_text_in_the_middle_of_a_burst_leaves_no_trace(
    engine_of, plain, code, look_ahead
):
    """Cut where a text would have stopped, the next turn and other requests see only what was
    kept; going on instead gives the same tokens again."""
    want = plain(code(20), 40).tokens
    engine = engine_of(5, look_ahead=look_ahead)
    free, cuts = engine.pages.free, 0
    for at in (8, 20):
        number, got = engine.add(Request(code(20), 40)), Answer()
        while len(got.tokens) < at:
            collect({number: got}, engine.step())
        size = len(engine._sequences[number].emitted)
        keep = max(engine._sequences[number].reach, size - 2)
        cuts += keep < size
        engine.rewind(number, keep)
        while len(engine._sequences[number].emitted) < keep + 4:
            engine.step()
        sequence = engine._sequences[number]
        assert sequence.emitted == want[: len(sequence.emitted)]
        keep = max(sequence.reach, len(sequence.emitted) - 1)
        end = engine.truncate(number, keep)
        assert end is not None and (end.tokens, end.finish) == ((), STOP)
        turn = Request((*code(20), *want[:keep]), 40 - keep)
        assert answer(engine, turn).tokens == want[keep:]
        assert engine.pages.free == free
    assert cuts == 2


@pytest.mark.parametrize("drafts", [0, 5])
def test_case_58_random_numbers_go_on_as_if_nothing_had_been_cut(engine_of, code, drafts):
    """The next turn draws what the longer answer would have drawn; drafts draw in another order,
    so with them it is compared with the same turn on a new engine."""
    prompt, sampling = code(21), Sampling(temperature=0.9, seed=3)
    engine = engine_of(drafts, look_ahead=True)
    number = engine.add(Request(prompt, 20, sampling))
    while len(engine._sequences[number].emitted) < 6:
        engine.step()
    sequence = engine._sequences[number]
    keep = sequence.reach
    assert len(sequence.emitted) > keep
    engine.truncate(number, keep)
    turn = Request((*prompt, *sequence.emitted[:keep]), 20 - keep, sampling)
    if drafts:
        want = answer(engine_of(drafts), turn).tokens
    else:
        want = answer(engine_of(0), Request(prompt, 20, sampling)).tokens[keep:]
    assert answer(engine, turn).tokens == want


@pytest.mark.parametrize("drafts", [1, 3, 5])
def test_case_60_greedy_answers_are_those_without_drafts(engine_of, plain, code, drafts):
    """128 tokens; an engine that starts again says them again."""
    request = Request(code(20), 128)
    want = plain(request.prompt, 128).tokens
    for _ in range(2 if drafts == 3 else 1):
        got = answer(engine_of(drafts, 512), request)
        assert got.tokens == want
        assert 128 // (drafts + 1) < got.rounds < 128


def acceptance(engine: Engine, prompts: list[tuple[int, ...]], temperature: float) -> float:
    for seed, prompt in enumerate(prompts):
        engine.add(Request(prompt, 24, Sampling(temperature=temperature, top_k=64, seed=seed)))
    answers = run_all(engine).values()
    rounds = sum(a.rounds for a in answers)
    return (sum(len(a.tokens) for a in answers) - rounds) / rounds


def test_case_61_acceptance_falls_smoothly_with_the_temperature(engine_of, code):
    engine, prompts = engine_of(1, 128, lanes=6), [code(number) for number in range(20, 26)]
    got = [acceptance(engine, prompts, t) for t in (0.0, 0.3, 0.7, 1.0)]
    assert got == sorted(got, reverse=True)
    assert got[0] > got[-1] > 0.1 * got[0]
    assert got[1] > 0.8 * got[0]


@pytest.mark.parametrize(
    "penalties",
    [{"presence": 2.0}, {"frequency": 0.7}, {"repetition": 1.3}],
    ids=["presence", "frequency", "repetition"],
)
def test_case_63_penalties_hold_within_a_burst(engine_of, plain, frontend, penalties):
    text = "cat cat cat cat cat cat cat cat cat cat cat"
    prompt = tuple(frontend.tokenizer.encode(text))
    request = Request(prompt, 30, Sampling(**penalties))
    want = answer(engine_of(0), request).tokens
    got = answer(engine_of(5), request)
    assert got.tokens == want != plain(prompt, 30).tokens
    assert got.rounds < 30, "no draft was ever right"


@pytest.fixture(scope="module")
def ask(frontend) -> Callable[[Question], Request]:
    """The request of a question; its answer ends itself."""

    def make(question: Question) -> Request:
        options = TemplateOptions(enable_thinking=question.think)
        chat = frontend.chat(question.messages, tools=question.tools, options=options)
        return Request(tuple(chat.prompt.ids), 100, stops=frontend.tokenizer.stops)

    return make


@pytest.fixture(scope="module")
def read_answer(frontend) -> Callable[[Answer], Pieces]:
    """What was thought, and what was said then."""

    def read(got: Answer) -> Pieces:
        parser = OutputParser(thinking=True)
        pieces = parser.push(frontend.tokenizer.decode(got.tokens, skip_special=True))
        rest = parser.finish()
        return Pieces(pieces.reasoning + rest.reasoning, pieces.answer + rest.answer)

    return read


@pytest.mark.parametrize(("task", "proposal_head"), [("echo/think", False), ("count/think", True)])
def test_case_64_every_number_of_drafts_gives_the_same_answer(
    engine_of, plain, ask, read_answer, task, proposal_head
):
    """Thinking ends, and the one right answer follows."""
    question = next(q for q in read_chat() if q.task == task)
    request = ask(question)
    want = plain(request.prompt, request.max_tokens, request.stops)
    pieces = read_answer(want)
    assert want.finish == STOP and pieces.reasoning and pieces.answer == question.answer
    rounds = []
    for drafts in range(1, 16):
        got = answer(engine_of(drafts, proposal_head=proposal_head), request)
        assert (got.tokens, got.finish) == (want.tokens, STOP), drafts
        rounds.append(got.rounds)
    assert max(rounds) < len(want.tokens), "no draft was ever right"


@pytest.mark.parametrize("drafts", [-1, 16])
def test_case_64_other_numbers_of_drafts_are_refused_at_the_start(engine_of, drafts):
    with pytest.raises(UsageError, match="--draft-tokens is out of range"):
        engine_of(drafts)


def test_case_66_parallel_chats_know_only_their_own_secret(engine_of, ask, read_answer):
    """Eight chats, each with a secret in its prompt that its answer must give."""
    needles = [q for q in read_chat() if q.task == "needle/think"]
    questions = [q for q in needles if len(ask(q).prompt) < 150][:8]
    assert len({str(q.answer) for q in questions}) == 8
    engine = engine_of(2, 256, lanes=8)
    numbers = [engine.add(ask(question)) for question in questions]
    answers = run_all(engine)
    assert [read_answer(answers[n]).answer for n in numbers] == [q.answer for q in questions]
