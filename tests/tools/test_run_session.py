"""Laws of the parts of `ninfer run` that need no model."""

from __future__ import annotations

import io

import pytest

from ninfer_formats.errors import ArtifactError
from ninfer_runtime.engine.request import Sampling, Step
from ninfer_tools.run_session.answering import Answer, run_request
from ninfer_tools.run_session.options import SamplingFlags
from ninfer_tools.run_session.report import acceptance, decode_rate, prefill_rate
from ninfer_tools.run_session.sampling import choose_sampling
from ninfer_tools.run_session.screen import Screen

PRESET = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.95}


def choose(preset=PRESET, **flags) -> Sampling:
    return choose_sampling(preset, SamplingFlags(seed=1, **flags))


def test_flags_go_before_the_preset_and_greedy_before_both():
    """FE-30"""
    assert choose() == Sampling(temperature=0.7, top_k=20, top_p=0.95, seed=1)
    assert choose(top_k=0, presence_penalty=1.5) == Sampling(
        temperature=0.7, top_k=0, top_p=0.95, presence=1.5, seed=1
    )
    assert choose(greedy=True, temperature=2.0).temperature == 0.0


def test_a_preset_without_sampling_is_greedy_until_a_temperature_is_given():
    """FE-30"""
    asleep = {**PRESET, "do_sample": False}
    assert choose(asleep).temperature == 0.0
    assert choose(asleep, temperature=0.5).temperature == 0.5


def test_an_empty_preset_is_neutral_and_a_broken_one_an_error():
    assert choose({}) == Sampling(temperature=1.0, seed=1)
    with pytest.raises(ArtifactError, match=r"generation_config\.json: top_p is not a number"):
        choose({"top_p": "high"})


def test_every_call_without_a_seed_draws_another_one():
    """FE-30"""
    seeds = {choose_sampling({}, SamplingFlags()).seed for _ in range(4)}
    assert len(seeds) == 4


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_reasoning_is_dim_on_a_terminal_and_control_characters_are_spelled(monkeypatch):
    """FE-31"""
    out, err = Terminal(), Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    screen = Screen()
    screen.show("so", "")
    screen.show(" on\x1b[2J", "")
    screen.show("", "yes\x07\n\tno")
    screen.finish()
    assert err.getvalue() == "\x1b[2mso on\\x1b[2J\n\n\x1b[0m"
    assert out.getvalue() == "yes\\x07\n\tno\n"


def test_files_get_the_text_as_it_is(capsys):
    screen = Screen()
    screen.show("r", "")
    screen.show("", "a\x1b\n")
    screen.finish()
    assert capsys.readouterr() == ("a\x1b\n", "r\n")


class Rounds:
    """An engine that gives these steps."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)

    def add(self, request) -> int:
        return 0

    def step(self) -> list[Step]:
        return [self.steps.pop(0)]


class Prompt:
    prompt = (1, 2, 3)


def test_acceptance_counts_whole_rounds_by_position():
    rounds = Rounds(
        Step(0, (5,), 2), Step(0, (5, 6, 7), 2), Step(0, (5, 6), 2), Step(0, (5,), 2, "length")
    )
    answer = run_request(
        rounds, Prompt(), None, thinking=False, screen=Screen(quiet=True), stopped=lambda: False
    )  # type: ignore[arg-type]
    assert answer.tokens == [5, 5, 6, 7, 5, 6, 5]
    assert acceptance(answer) == [2 / 3, 1 / 3]


def test_rates_leave_out_what_was_not_timed():
    answer = Answer(10, tokens=[1, 2, 3], first_tokens=1, prefill_seconds=2.0, decode_seconds=4.0)
    assert (prefill_rate(answer), decode_rate(answer)) == (5.0, 0.5)
    assert (prefill_rate(Answer(10)), decode_rate(Answer(10))) == (None, None)
