"""Laws of the environment, in processes of their own: the hub client's variables work here too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

REPOSITORY = "someone/Model-NInfer"
DOWNLOAD = """
import sys
from ninfer_formats.errors import NinferError
from ninfer_tools.hub.reference import parse_reference
from ninfer_tools.hub.snapshot import open_snapshot
try:
    print(open_snapshot(parse_reference(sys.argv[1])).download(["*.json", "*.safetensors"]))
except NinferError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def run(server, tmp_path):
    """Run Python with the hub and a home of its own; extra variables by keyword."""

    def call(*arguments, **variables):
        environment = {key: value for key, value in os.environ.items() if "HF_" not in key}
        environment |= {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home"), **variables}
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    return call


def test_endpoint_token_and_home_are_those_of_the_client(server, run, tmp_path, artifact):
    """P-16 and P-18."""
    server.commit(REPOSITORY, {"m.ninfer": artifact})
    server.repositories[REPOSITORY].token = "hf_secret"
    command = ("-m", "ninfer_tools", "pull", f"{REPOSITORY}@main", "--to", tmp_path)
    refused = run(*command)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1 and "set HF_TOKEN" in refused.stderr
    done = run(*command, HF_TOKEN="hf_secret")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.ninfer").read_bytes() == artifact


def test_shared_cache_serves_offline(server, run, tmp_path):
    """P-4: also for the client's own commands."""
    commit = server.commit("a/b", {"config.json": b"{}", "model.safetensors": bytes(9000)})
    online = run("-c", DOWNLOAD, "a/b@main")
    folder = tmp_path / f"home/hub/models--a--b/snapshots/{commit}"
    assert online.stdout.strip() == str(folder), online.stderr
    before = len(server.requests)
    offline = run("-c", DOWNLOAD, "a/b@main", HF_HUB_OFFLINE="1")
    assert (offline.stdout, len(server.requests)) == (online.stdout, before)
    client = "import huggingface_hub as h; print(h.snapshot_download('a/b'))"
    assert run("-c", client, HF_HUB_OFFLINE="1").stdout == online.stdout


def test_offline_without_a_cache_asks_nothing(server, run):
    """P-4."""
    server.commit("a/b", {"config.json": b"{}"})
    done = run("-c", DOWNLOAD, "a/b@main", HF_HUB_OFFLINE="1")
    assert (done.returncode, server.requests) == (1, [])
    assert done.stderr == (
        "a/b@main: offline mode is on, so the hub is not asked; unset HF_HUB_OFFLINE\n"
    )


def test_missing_client_library_is_one_line(run, tmp_path):
    """P-18."""
    program = (
        "import sys; sys.modules['huggingface_hub'] = None;"
        "import runpy; runpy.run_module('ninfer_tools', run_name='__main__')"
    )
    done = run("-c", program, "pull", "a/b@main")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "pip install 'ninfer[hub]'" in done.stderr
