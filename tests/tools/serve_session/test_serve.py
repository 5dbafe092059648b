"""Laws of `ninfer serve`: what it refuses, how it starts, and how it ends."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from builders.command_server import CommandServer
from builders.tiny_models import convert_model
from ninfer_tools.cli import app
from ninfer_tools.demo.cache import locate_demo

# Of a guide to another engine with these options.
QUOTED = (
    "--host 0.0.0.0 --port 8080 --max-context 262144 --kv-capacity 262144 --max-concurrency 1 "
    "--max-pending-requests 16 --pending-timeout-ms 600000 --prefill-chunk 1024 "
    "--kv-dtype rk2v4-e8 --spec mtp --draft-tokens 3 --lm-head-draft --vision --preserve-thinking"
)
FITTING = {"--kv-dtype rk2v4-e8": "--kv-dtype int8", "262144": "32768", "--port 8080": ""}
KEY = "a-key-nobody-may-read"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def shortlist(folder: Path) -> Path:
    """The demo artifact with a shortlist head."""
    options = {"no_proposal": False, "proposal_rows": 1024}
    return convert_model(locate_demo(home=folder), folder / "shortlist.ninfer", **options).path


@pytest.fixture(scope="module")
def plain(folder: Path) -> Path:
    return convert_model(locate_demo(home=folder), folder / "plain.ninfer").path


def refuse(*arguments: object) -> list[str]:
    """Return the lines with which `ninfer serve` does not start."""
    found = CliRunner().invoke(app, ["serve", *map(str, arguments)])
    assert found.exit_code == 1, found.output
    assert not found.stdout
    return found.stderr.splitlines()


def test_everything_that_does_not_fit_is_said_at_once(plain: Path):
    options = QUOTED.replace("--port 8080", "--port 0")
    lines = refuse(plain, *shlex.split(options))
    assert lines == [
        "--max-context is out of range (got 262144, want 1 to 32768)",
        "--kv-dtype: KV type is not available yet (got rk2v4-e8, want auto, fp32, bf16, fp8, int8)",
        "the artifact has no proposal head; convert it again with --proposal-rows N",
        "--kv-capacity is out of range (got 262144, want 32768 (--max-context) to 32768 (times "
        "--max-concurrency))",
    ]


def test_components_that_are_missing_are_all_said(folder: Path):
    bare = convert_model(locate_demo(home=folder), folder / "bare.ninfer", components="text")
    lines = refuse(bare.path, "--port", 0, "--vision", "--spec", "mtp", "--lm-head-draft")
    assert lines == [
        "the artifact has no proposal head; convert it again with --proposal-rows N",
        "the artifact has no vision tower; leave --vision out",
        "the artifact has no MTP head; leave --spec mtp out",
    ]


def test_values_out_of_range_are_all_said(plain: Path):
    wrong = {
        "--max-concurrency": 9, "--max-pending-requests": -1, "--pending-timeout-ms": 0,
        "--prefill-chunk": 0, "--top-p": 1.5, "--temperature": -1, "--thinking-budget": 0,
        "--default-max-tokens": 0, "--log-level": "loud", "--reasoning-effort": "hard",
        "--headroom": "much", "--kv-capacity": "all", "--requantize": "head=w3",
        "--draft-tokens": 3, "--logit-bias": "x", "--device": "tpu", "--dtype": "fp64",
        "--max-request-mib": 0, "--drain-seconds": -1, "--request-log-keep": -1,
        "--answer-reserve": -1, "--host-cache-mib": -1, "--device-snapshots": 0,
    }  # fmt: skip
    given = [str(item) for pair in wrong.items() for item in pair]
    lines = refuse(plain, "--port", 0, *given)
    named = {"--dtype": "compute type", "--device": "--device"}
    for option in wrong:
        wanted = named.get(option, option)
        assert sum(line.startswith(f"{wanted} ") for line in lines) == 1, (option, lines)
    assert len(lines) == len(wrong)


def test_files_that_cannot_be_used_are_all_said(plain: Path, folder: Path):
    broken = folder / "broken.jinja"
    broken.write_text("{% if %}")
    empty = folder / "empty.keys"
    empty.write_text("# none\n")
    before = plain.read_bytes()
    lines = refuse(
        plain, "--port", 0, "--chat-template", broken, "--api-key", f"@{empty}",
        "--request-log-jsonl", plain,
    )  # fmt: skip
    assert len(lines) == 3
    for part in (str(broken), str(empty), "--request-log-jsonl is a file of the artifact"):
        assert any(part in line for line in lines), part
    assert plain.read_bytes() == before


def test_exclusive_options_are_refused(plain: Path):
    (line,) = refuse(plain, "--port", 0, "--no-thinking", "--reasoning-effort", "high")
    assert "exclude each other" in line


def test_a_port_in_use_is_one_line(plain: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        lines = refuse(plain, "--port", port)
    assert lines == [
        f"127.0.0.1 port {port}: cannot listen: Address already in use; use another --port or "
        "--host, or stop what has it"
    ]


def test_too_little_memory_is_said_with_both_numbers_before_loading(
    plain: Path, monkeypatch: pytest.MonkeyPatch
):
    """MEM-9."""
    monkeypatch.setattr("ninfer_runtime.engine.devices.free_host_memory", lambda: 200_000_000)
    (line,) = refuse(plain, "--port", 0, "--max-context", 32768)
    assert "needs " in line and "200000000 are available; at most --max-context " in line


@pytest.fixture(scope="module")
def running(shortlist: Path, folder: Path) -> Iterator[CommandServer]:
    """The quoted command with what fits the demo, and a key."""
    options = QUOTED
    for part, fitting in FITTING.items():
        options = options.replace(part, fitting)
    keys = folder / "keys"
    keys.write_text(f"# of clients\n{KEY}\n")
    arguments = [*shlex.split(options), "--api-key-file", keys, "--drain-seconds", "60"]
    with CommandServer(folder / "log", shortlist, *arguments) as server:
        yield server.ready()


def test_the_quoted_command_serves_the_demo(running: CommandServer):
    """The block at its start has the settings that hold, without the key."""
    running.http.headers["authorization"] = f"Bearer {KEY}"
    (model,) = running.http.get("/v1/models").json()["data"]
    assert model["id"]
    log = running.log
    block = log.partition("settings:\n")[2].partition("memory on")[0]
    settings = dict(line.split(None, 1) for line in block.splitlines())
    for name, value in {
        "max-context": "32768", "kv-capacity": "32768", "kv-dtype": "int8", "draft-tokens": "3",
        "lm-head-draft": "on", "vision": "on", "api-key": "1 (not shown)", "device": "cpu",
        "model-id": model["id"], "dtype": "fp32", "top-k": "20",
    }.items():  # fmt: skip
        assert settings[name] == value, name
    assert KEY not in log and "needed " in log and "available " in log


def test_a_signal_lets_answers_finish_and_takes_no_more(running: CommandServer):
    """Case 94 and the like: who restarts the server breaks nobody's answer."""
    body = {
        "messages": [{"role": "user", "content": "hi"}], "ignore_eos": True, "max_tokens": 200,
        "enable_thinking": False, "stream": True,
    }  # fmt: skip
    running.http.headers["authorization"] = f"Bearer {KEY}"
    with running.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        running.process.send_signal(signal.SIGTERM)
        refused = wait_for_refusal(running)
        assert refused == "service_unavailable"
        rest = list(lines)
    assert "data: [DONE]" in rest
    assert running.process.wait(30) == 0
    assert "Traceback" not in running.log


def wait_for_refusal(server: CommandServer) -> str:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        answer = server.http.get("/v1/models")
        if answer.status_code == 503:
            assert "retry-after" in answer.headers
            return answer.json()["error"]["code"]
        time.sleep(0.01)
    raise AssertionError("requests are still answered")


def test_the_end_of_the_engine_is_one_line_and_no_success(plain: Path, folder: Path):
    """SV-2."""
    with CommandServer(folder / "dying", plain, "--max-context", 512).ready() as server:
        for pid in server.children():
            name = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"spawn_main" in name:
                os.kill(pid, signal.SIGKILL)
        assert server.process.wait(20) == 1
        (line,) = [line for line in server.log.splitlines() if " ERROR " in line]
        assert "the engine process ended" in line and "Traceback" not in server.log


def test_a_second_signal_ends_at_once(plain: Path, folder: Path):
    options = ["--max-context", 8192, "--drain-seconds", 600]
    with CommandServer(folder / "twice", plain, *options).ready() as server:
        body = {
            "messages": [{"role": "user", "content": "hi"}], "ignore_eos": True,
            "enable_thinking": False, "stream": True, "max_tokens": 8000,
        }  # fmt: skip
        with server.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert next(answer.iter_lines())
            server.process.send_signal(signal.SIGINT)
            wait_for_refusal(server)
            closer = threading.Timer(0.2, answer.close)
            server.process.send_signal(signal.SIGINT)
            began = time.monotonic()
            closer.start()
            server.process.wait(15)
        assert time.monotonic() - began < 10
        assert "Traceback" not in server.log


def test_a_signal_while_loading_ends_at_once(plain: Path, folder: Path):
    with CommandServer(folder / "early", plain, "--max-context", 512) as server:
        while server.health() is None:
            assert server.process.poll() is None, server.log
            time.sleep(0.02)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
        assert "Traceback" not in server.log


def test_settings_and_plan_are_json_when_asked_for(plain: Path, folder: Path):
    with CommandServer(folder / "json", plain, "--json", "--api-key", KEY) as server:
        while not server.log.endswith("}\n"):
            assert server.process.poll() is None, server.log
            time.sleep(0.02)
        record = json.loads(server.log)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
    assert record["settings"]["api-key"] == "1 (not shown)" and KEY not in server.log
    assert record["settings"]["port"] == server.port
    assert record["memory"]["fits"] is True


def test_the_console_script_is_the_same_command():
    code = "from ninfer_tools.entry_point import serve; serve()"
    command = [sys.executable, "-c", code, "--synthetic", "no-such-model"]
    root = Path(__file__).parents[3]
    found = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert found.returncode == 1 and "no-such-model" in found.stderr
    assert len(found.stderr.splitlines()) == 1
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["ninfer-serve"] == "ninfer_tools.entry_point:serve"
