"""Ctrl-C: it ends answers, and the program only when nothing else would."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from builders.conversions import convert
from ninfer_formats.reader import open_artifact
from ninfer_runtime.frontend.tokenizer import load_tokenizer
from ninfer_tools.cli import app
from ninfer_tools.demo.cache import locate_demo
from ninfer_tools.run_session.interruption import Interruption

ENDLESS = ("--max-new", "100000", "--max-context", "8192", "--greedy", "--device", "cpu")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Tiny tensors: more threads only get in each other's way."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interrupts")
    assert convert(locate_demo(home=folder), folder / "demo.ninfer", profile="bf16") == 0
    return folder / "demo.ninfer"


@pytest.fixture(scope="module")
def endless(artifact) -> tuple[str, ...]:
    """Options that forbid every token that ends an answer."""
    stops = load_tokenizer(open_artifact(artifact)).stops
    return (*ENDLESS, *(word for id in stops for word in ("--logit-bias", f"{id}=-inf")))


def test_the_first_interrupt_asks_and_the_second_interrupts():
    """FE-32"""
    before = signal.getsignal(signal.SIGINT)
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_patient_one_ends_only_when_nothing_came_of_it(monkeypatch):
    """FE-32"""
    import ninfer_tools.run_session.interruption as interruption

    now = [100.0]
    monkeypatch.setattr(interruption.time, "monotonic", lambda: now[0])
    with Interruption(patient=True) as stop:
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        assert stop.asked
        now[0] += 5
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_interrupted_answer_keeps_what_it_has(artifact, monkeypatch):
    """FE-32"""
    import ninfer_tools.run_session.session as session

    class Impatient(Interruption):
        calls = 0

        @property
        def asked(self) -> bool:
            self.calls += 1
            return self.calls > 3

        @asked.setter
        def asked(self, value: bool) -> None: ...

    monkeypatch.setattr(session, "Interruption", Impatient)
    words = ["run", str(artifact), "--prompt", "hello", "--greedy", "--json"]
    done = CliRunner().invoke(app, words)
    record = json.loads(done.stdout)
    assert (done.exit_code, record["finish"]) == (130, "cancelled")
    assert 0 < len(record["tokens"]) <= 3


@pytest.fixture
def start(artifact, endless) -> Iterator:
    """Start `ninfer run` as a process of its own, ended after the test."""
    processes = []

    def run(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ninfer_tools", "run", str(artifact), *words, *endless]
        pipe = subprocess.PIPE
        processes.append(
            subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1)
        )
        return processes[-1]

    alarm = threading.Timer(90, lambda: [process.kill() for process in processes])
    alarm.start()  # a test that waits for a line ends all the same
    yield run
    alarm.cancel()
    for process in processes:
        process.kill()
        process.communicate()


def read_until(stream, *beginnings: str) -> str:
    while not (line := stream.readline()).startswith(beginnings):
        assert line, f"no line {beginnings}"
    return line


def test_interrupts_stop_answers_and_not_a_conversation(start):
    """FE-32: two at once in each of two answers, one between them, and one more ends it."""
    process = start("--chat")
    read_until(process.stderr, "/reset forgets")
    for _ in range(2):
        process.stdin.write("hello\n")
        assert process.stderr.read(1)  # the answer has begun
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert read_until(process.stderr, "prefill ").endswith("finish cancelled\n")
        process.send_signal(signal.SIGINT)  # the line's last work may still be under way
        read_until(process.stderr, "/exit or Ctrl-D ends", "interrupted; this message")
    process.stdin.write("/help\n")
    read_until(process.stderr, "/reset forgets")
    time.sleep(0.2)  # until it reads the next line
    process.send_signal(signal.SIGINT)
    read_until(process.stderr, "/exit or Ctrl-D ends")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stderr.read().strip() == "interrupted"


def test_an_interrupt_stops_a_single_answer(start):
    """FE-32: what came until then is there, and exit code 130 says that more would have come."""
    process = start("--prompt", "hello", "--no-thinking")
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stderr.read().endswith("finish cancelled\n")
