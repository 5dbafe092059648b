"""Laws of the parts of `ninfer run` that need no model."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from ninfer_formats.errors import ArtifactError, UsageError
from ninfer_runtime.engine.request import Sampling, Step
from ninfer_tools.run_session.answer_settings import choose_settings
from ninfer_tools.run_session.answering import Answer, run_request
from ninfer_tools.run_session.conversation import _local_name
from ninfer_tools.run_session.options import RunOptions, SamplingFlags
from ninfer_tools.run_session.report import acceptance, decode_rate, prefill_rate
from ninfer_tools.run_session.request_file import read_request
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


def test_the_request_goes_before_the_flags_and_greedy_before_all():
    """FE-30: preset < flag < request < --greedy."""
    flags = SamplingFlags(temperature=2.0, top_p=0.5, min_p=0.1, seed=1, bias=("3=1", "4=1"))
    asked = {"temperature": 1.5, "top_p": 0.25, "seed": 7, "logit_bias": {4: -2.0}}
    assert choose_sampling(PRESET, flags, asked) == Sampling(
        temperature=1.5, top_k=20, top_p=0.25, min_p=0.1, seed=7, bias={3: 1.0, 4: -2.0}
    )
    assert choose_sampling(PRESET, SamplingFlags(greedy=True), asked).temperature == 0.0
    asleep = {**PRESET, "do_sample": False}
    assert choose_sampling(asleep, SamplingFlags(), asked).temperature == 1.5


MESSAGES = [{"role": "user", "content": "hi"}]


def save(record: Any, folder: Path) -> Path:
    (folder / "request.json").write_text(json.dumps(record))
    return folder / "request.json"


def test_a_file_may_state_what_a_request_states(tmp_path):
    """FE-33: null counts as absent, and what means nothing here is named."""
    record = {
        "messages": MESSAGES, "model": "m", "temperature": 0, "top_p": None, "stop": "end",
        "max_tokens": 5, "max_completion_tokens": 3, "logit_bias": {"17": -1}, "seed": 4,
        "logprobs": True, "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    request = read_request(save(record, tmp_path))
    assert (request.messages, request.ignored) == (MESSAGES, ("model",))
    assert request.parameters == {
        "temperature": 0, "stop": ("end",), "max_tokens": 3, "logit_bias": {17: -1}, "seed": 4,
        "top_logprobs": 0, "enable_thinking": False,
    }  # fmt: skip
    settings = choose_settings(PRESET, RunOptions(max_new=9, stops=("x",)), request.parameters)
    assert (settings.max_new, settings.stops, settings.thinking) == (3, ("end",), False)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"temperature": -1}, "temperature is out of range"),
        ({"temperature": "0"}, "temperature is out of range"),
        ({"top_k": 1.5}, "top_k is out of range"),
        ({"seed": True}, "seed is out of range"),
        ({"max_tokens": 0}, "max_tokens is out of range"),
        ({"stop": [""]}, "stop is not a text, or empty"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "too many of stop"),
        ({"stop": 5}, "stop is not a text, or empty"),
        ({"logit_bias": {"x": 1}}, "logit_bias is not an object"),
        ({"logit_bias": {"1": "x"}}, "logit_bias is out of range"),
        ({"top_logprobs": 65}, "top_logprobs is out of range"),
        ({"logprobs": 3}, "logprobs is neither true nor false"),
        ({"tools": ["x"]}, r"tools\[0\]: tool is not an object"),
        ({"enable_thinking": 1}, "enable_thinking is neither true nor false"),
    ],
)
def test_a_request_that_cannot_be_used_names_its_file(tmp_path, changes, text):
    """FE-33"""
    path = save({"messages": MESSAGES, **changes}, tmp_path)
    with pytest.raises(UsageError, match=text) as caught:
        read_request(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["file:///d/a%20b.png", "FILE://localhost/d/a%20b.png"])
def test_a_file_address_names_a_path(name):
    assert _local_name(name, "here") == "/d/a b.png"


@pytest.mark.parametrize("name", ["file://host/a.png", "https://example.org/a.png"])
def test_addresses_of_other_machines_are_not_fetched(name):
    with pytest.raises(UsageError, match="addresses are not fetched"):
        _local_name(name, "here")


def test_a_preset_without_sampling_is_greedy_until_a_temperature_is_given():
    """FE-30"""
    asleep = {**PRESET, "do_sample": False}
    assert choose(asleep).temperature == 0.0
    assert choose(asleep, temperature=0.5).temperature == 0.5


def test_an_empty_preset_is_neutral_and_a_broken_one_an_error():
    assert choose({}) == Sampling(temperature=1.0, seed=1)
    with pytest.raises(ArtifactError, match=r"generation_config\.json: top_p is out of range"):
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
