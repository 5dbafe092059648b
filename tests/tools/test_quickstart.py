"""scripts/quickstart and scripts/make_environment, as a newcomer runs them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
ENDED = 60.0


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NINFER_VENV", "PYTHONPATH")}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_quickstart_asks_three_questions_and_all_answers_are_right(tmp_path):
    """From another folder, and with a proxy that no request may meet."""
    done = subprocess.run(
        [SCRIPTS / "quickstart", "--here"], cwd=tmp_path, capture_output=True, text=True,
        timeout=ENDED * 2, env=environment(PYTHON=sys.executable, http_proxy="http://127.0.0.1:9"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 of 3 answers right" in done.stdout and "server stopped" in done.stdout
    assert len(re.findall(r"\[right; [\d.]+ tok/s, \d+ of \d+ drafts accepted\]", done.stdout)) == 3
    for sign in (
        "$ ninfer convert",
        "$ ninfer inspect",
        "$ ninfer serve",
        "(thinks:",
        "calls set_",
    ):
        assert sign in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert not is_open(find_port(done.stdout))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_no_server_and_no_files(tmp_path, number, status):
    with subprocess.Popen(
        [SCRIPTS / "quickstart", "--here"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=environment(PYTHON=sys.executable, TMPDIR=str(tmp_path)),
    ) as tour:  # fmt: skip
        assert tour.stdout is not None
        seen = ""
        while "$ ninfer serve" not in seen:
            line = tour.stdout.readline()
            assert line, seen
            seen += line
        time.sleep(1.0)  # the server is on its way
        tour.send_signal(number)
        seen += tour.stdout.read()
        assert tour.wait(ENDED) == status, seen
    assert "Traceback" not in seen
    assert list(tmp_path.iterdir()) == []
    assert not is_open(find_port(seen))


def test_a_python_that_is_too_old_is_one_clear_error(tmp_path):
    old = program(tmp_path / "old", 'case "$2" in *exit*) exit 1;; *) echo "Python 3.9.2";; esac')
    for script in ([SCRIPTS / "quickstart"], [SCRIPTS / "make_environment", tmp_path / "v", "dev"]):
        settings = environment(PYTHON=str(old), NINFER_VENV=str(tmp_path / "v"))
        done = subprocess.run(script, capture_output=True, text=True, env=settings)
        assert done.returncode == 1
        wanted = f"error: NInfer needs Python 3.11 or newer; PYTHON={old} is Python 3.9.2\n"
        assert done.stderr == wanted
    assert not (tmp_path / "v").exists()


def test_an_environment_of_an_older_python_is_named(tmp_path):
    python = tmp_path / "v/bin/python"
    python.parent.mkdir(parents=True)
    program(
        python,
        'case "$*" in *exit*) exit 1;; "-m pip --version") exit 0;; *) echo "Python 3.10.1";; esac',
    )
    command = [SCRIPTS / "make_environment", tmp_path / "v", "dev"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 1
    assert f"3.11 or newer; {tmp_path / 'v'} has Python 3.10.1" in done.stderr
    assert f"remove {tmp_path / 'v'}" in done.stderr


def test_without_any_python_that_is_new_enough_the_error_names_the_way_out(tmp_path):
    # A PATH with the programs that the script needs, and nothing else.
    for name in ("bash", "dirname", "readlink", "env"):
        found = next(p for d in ("/usr/bin", "/bin") if (p := Path(d, name)).exists())
        (tmp_path / name).symlink_to(found)
    program(tmp_path / "python3", 'case "$2" in *exit*) exit 1;; *) echo "Python 3.8.1";; esac')
    done = subprocess.run(
        [SCRIPTS / "quickstart"], capture_output=True, text=True,
        env={"PATH": str(tmp_path), "NINFER_VENV": str(tmp_path / "v"), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert "needs Python 3.11 or newer; python3 here is Python 3.8.1" in done.stderr
    assert "PYTHON=/path/to/python" in done.stderr


def test_an_environment_that_is_there_needs_no_network_the_second_time(tmp_path):
    """`pip` is one that counts its calls."""
    calls = tmp_path / "calls"
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    program(
        python,
        f'if [ "$1 $2 $3" = "-m pip install" ]; then echo "$@" >>{calls}; exit 0; fi\n'
        f'if [ "$1" = - ]; then exit 1; fi\nexec {sys.executable} "$@"',
    )
    for extras in ("convert,serve", "convert,serve", "dev"):
        subprocess.run(
            [SCRIPTS / "make_environment", tmp_path / "venv", extras],
            check=True, capture_output=True, env=environment(),
        )  # fmt: skip
    found = calls.read_text().splitlines()
    assert [line.rpartition("-e ")[2] for line in found] == [".[convert,serve]", ".[dev]"]


def test_without_a_gpu_the_build_of_torch_without_cuda_is_asked_for(tmp_path):
    calls = tmp_path / "calls"
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    program(
        python,
        f'if [ "$1 $2 $3" = "-m pip install" ]; then echo "$@" >>{calls}; exit 0; fi\n'
        f'if [ "$1" = - ]; then exit 0; fi\nexec {sys.executable} "$@"',
    )
    command = [SCRIPTS / "make_environment", tmp_path / "venv", "serve"]
    subprocess.run(command, check=True, capture_output=True, env=environment())
    has_gpu = Path("/dev/nvidiactl").exists()
    assert (
        "--extra-index-url https://download.pytorch.org/whl/cpu" in calls.read_text()
    ) != has_gpu
    assert ("torch==" in calls.read_text()) != has_gpu


def test_a_failed_installation_says_so_and_is_tried_again(tmp_path):
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    program(
        python,
        'if [ "$1 $2 $3" = "-m pip install" ]; then echo "no index" >&2; exit 1; fi\n'
        f'if [ "$1" = - ]; then exit 1; fi\nexec {sys.executable} "$@"',
    )
    command = [SCRIPTS / "make_environment", tmp_path / "venv", "dev"]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, env=environment())
        assert done.returncode == 1
        assert "no index" in done.stderr and "error: the installation failed" in done.stderr


def find_port(output: str) -> int:
    found = re.search(r"--port (\d+)", output)
    assert found is not None
    return int(found[1])


def is_open(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
