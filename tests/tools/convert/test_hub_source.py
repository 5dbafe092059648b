"""Checkpoints of the hub, through the command line, against a server that speaks its API."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import converted
from builders.hub_server import HubServer
from ninfer_formats.reader import open_artifact

REPOSITORY = "someone/Tiny-1B"


@pytest.fixture
def server():
    with HubServer() as found:
        yield found


@pytest.fixture
def commit(server, tmp_path):
    folder = build_checkpoint().write(tmp_path / "Tiny-1B", 2)
    return server.commit(REPOSITORY, {p.name: p.read_bytes() for p in folder.iterdir()})


@pytest.fixture
def call(server, tmp_path):
    def run(*arguments):
        home = str(tmp_path / "hf")
        environment = {**os.environ, "HF_ENDPOINT": server.url, "HF_HOME": home}
        line = [sys.executable, "-m", "ninfer_tools", *map(str, arguments)]
        return subprocess.run(line, capture_output=True, text=True, env=environment, timeout=120)

    return run


def test_branch_is_resolved_and_gives_the_bytes_of_its_commit(tmp_path, commit, call):
    """V-1 and V-40."""
    outs = [tmp_path / name for name in ("a.ninfer", "b.ninfer")]
    for revision, out in zip(("main", commit), outs, strict=True):
        done = call("convert", f"{REPOSITORY}@{revision}", "--out", out, "--profile", "bf16")
        assert done.returncode == 0, done.stderr
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert open_artifact(outs[0]).provenance["sources"] == {"base": f"{REPOSITORY}@{commit}"}
    local = converted(tmp_path / "Tiny-1B", tmp_path / "c.ninfer", profile="bf16")
    assert [t.bytes for t in local.tensors()] == [t.bytes for t in open_artifact(outs[0]).tensors()]
    report = json.loads((tmp_path / "a.ninfer.conversion.json").read_text())
    assert report["sources"]["base"]["commit"] == commit
    assert any("sha256" in file for file in report["sources"]["base"]["files"].values())


def test_branch_is_refused_where_a_commit_is_required(tmp_path, commit, call):
    """V-1."""
    out = tmp_path / "a.ninfer"
    done = call("convert", f"{REPOSITORY}@main", "--out", out, "--require-pinned")
    assert done.returncode == 2 and commit in done.stderr and not out.exists()


def test_dry_run_downloads_no_weight(tmp_path, server, commit, call):
    """V-3."""
    out = tmp_path / "a.ninfer"
    done = call("convert", f"{REPOSITORY}@{commit}", "--out", out, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    shard = (tmp_path / "Tiny-1B" / "model-00001-of-00002.safetensors").stat().st_size
    assert server.sent("model-00001-of-00002.safetensors") < shard
    assert json.loads(done.stdout)["bytes"] > 0 and not out.exists()
