"""What happens when one of the two processes goes (SV-1 to SV-4)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builders import faulty_engines
from builders.live_services import LiveService, chat, collect
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.requests import ThinkingFields


@pytest.fixture
def start(demo_file: Path) -> Iterator[Callable[..., LiveService]]:
    started: list[LiveService] = []

    def call(*arguments: Any, **options: Any) -> LiveService:
        started.append(LiveService(demo_file, *arguments, **options))
        return started[-1]

    yield call
    for live in started:
        live.close()


def endless(**more: Any) -> Any:
    return chat(max_tokens=400, ignore_eos=True, thinking=ThinkingFields(False), **more)


def test_a_failed_step_ends_everything_and_says_so(start):
    """SV-1, SV-2: requests under way and waiting, the state, the process and its status."""
    live = start(build=faulty_engines.fail_in_step, lanes=1, kv_capacity=512)
    assert live.service.status[0] == "loading"
    live.wait_until("ready")
    percents = [detail for state, detail in live.states if state == "loading"]
    assert percents == sorted(percents) and percents[-1] > 50

    async def fail() -> None:
        answer = await live.start(endless())
        waiting = await live.start(endless())
        await answer.admitted()
        end = (await collect(answer))[0].finished
        assert (end.reason, end.error) == (
            "error", "RuntimeError: an illegal memory access was encountered",
        )  # fmt: skip
        with pytest.raises(ApiError, match="illegal memory access") as caught:
            await waiting.admitted()
        assert caught.value.status == 500
        await live.service.gone.wait()
        with pytest.raises(ApiError, match="failed") as caught:
            await live.start(endless())
        assert caught.value.status == 503

    live.run(fail())
    assert live.service.status[0] == "failed" and "illegal" in live.service.status[1]
    assert live.service.exit_status == 1
    assert live.service.failure.trace.strip().endswith("more lines")


def test_an_engine_process_that_is_killed_is_missed(start):
    """SV-2: the requests and the state, though it could say nothing."""
    live = start()
    live.wait_until("ready")

    async def fail() -> None:
        answer = await live.start(endless())
        await answer.admitted()
        os.kill(live.service.engine_pid, signal.SIGKILL)
        end = (await collect(answer))[0].finished
        assert end.reason == "error" and "status -9" in str(end.error)

    live.run(fail())
    assert live.wait_until("failed") == "the engine process ended with status -9"


def test_an_engine_that_does_not_start_says_why(start):
    """SV-1: in one line, with whose fault it is."""
    live = start(build=faulty_engines.fail_at_start)
    assert live.wait_until("failed") == "--max-context is out of range (got 7, want less)"
    assert live.service.failure.usage and not live.service.failure.trace


def test_a_hanging_engine_is_ended(start):
    """SV-4: when the limit is long over."""
    live = start(build=faulty_engines.hang_in_step)
    live.wait_until("ready")
    live.service._process._margin = 0.5

    async def hang() -> None:
        answer = await live.start(endless())
        await asyncio.sleep(0.1)
        await live.service.close(0.1)
        with pytest.raises(ApiError):
            await answer.admitted()

    began = time.monotonic()
    live.run(hang())
    assert time.monotonic() - began < 10


def test_a_stop_lets_answers_finish(start):
    """SV-4: within its limit, and takes nothing new."""
    live = start()
    live.wait_until("ready")

    async def stop() -> None:
        answer = await live.start(chat(max_tokens=8, ignore_eos=True))
        await answer.admitted()
        closing = asyncio.create_task(live.service.close(30))
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as caught:
            await live.start(endless())
        assert caught.value.status == 503
        assert (await collect(answer))[0].finished.reason == "length"
        await closing

    live.run(stop())
    assert live.service.status[0] == "stopping" and live.service.exit_status == 0


def test_the_engine_process_does_not_outlive_its_parent(demo_file, tmp_path):
    """SV-3: killed without a word, while the engine works."""
    program = tmp_path / "parent.py"
    program.write_text(
        textwrap.dedent(f"""
        import sys
        sys.path[:0] = {sys.path!r}
        from pathlib import Path
        from builders.live_services import LiveService, chat

        def main():
            live = LiveService(Path({str(demo_file)!r}))
            live.wait_until("ready")
            live.run(live.start(chat(max_tokens=400, ignore_eos=True)))
            print(live.service.engine_pid, flush=True)
            live.run(live.service.gone.wait())

        if __name__ == "__main__":
            main()
        """)
    )
    parent = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGTERM)
    time.sleep(0.2)
    assert _runs(pid), "it left before its parent did"
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 4
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
