"""The GPU check itself: what it lets pass, and what it says; on the processor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from builders.engines import Answer
from ninfer_runtime.engine.request import TokenScore
from scripts.gpu_engine.rows import compare, compare_tokens, compare_tops, expect

SCRIPTS = Path(__file__).parents[2] / "scripts"
NAN = float("nan")


def test_what_is_not_a_number_never_passes():
    want = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert compare("", want * 1.01, want).share <= 1
    for bad in (NAN, float("inf")):
        got = want.clone()
        got[0, 0] = bad
        assert compare("", got, want).share == float("inf")
        assert compare("", want, got).share > 1
    assert expect("", False).share == float("inf")


def test_tops_count_where_the_lead_exceeds_twice_the_error():
    want = torch.tensor([[0.0, 1.0], [0.0, 0.02]])
    assert compare_tops("", torch.tensor([[0.0, 1.01], [0.02, 0.0]]), want).share == 0
    assert compare_tops("", torch.tensor([[1.0, 0.99], [0.0, 0.02]]), want).share == 0
    assert compare_tops("", want + torch.tensor([[0.0, -1.2], [0.0, 0.0]]), want).share == 0
    swapped = torch.tensor([[0.3, 0.29], [0.0, 0.02]])
    assert compare_tops("", swapped, torch.tensor([[0.0, 0.9], [0.0, 0.02]])).share == 0
    # Where nothing is clear, nothing was shown.
    assert compare_tops("", torch.zeros(1, 2), torch.tensor([[0.0, 0.01]])).share > 1


@pytest.mark.parametrize(("lead", "passes"), [(0.3, True), (0.5, False)])
def test_tokens_may_part_only_where_the_lead_is_small(lead, passes):
    """A scale of 10 allows an error of 0.2 and so a lead of 0.4."""
    scores = [TokenScore(0.0, ((i, 0.0), (9, -5.0))) for i in range(4)]
    scores[2] = TokenScore(0.0, ((2, 0.0), (9, -lead)))
    want = Answer([0, 1, 2, 3], scores)
    assert compare_tokens("", [0, 1, 2, 3], want, 10.0).share == 0
    assert (compare_tokens("", [0, 1, 7, 3], want, 10.0).share <= 1) == passes
    assert compare_tokens("", [0, 7, 2, 3], want, 10.0).share > 1
    assert compare_tokens("", [0, 1, 2], want, 10.0).share > 1


def test_parts_run_and_are_recorded(tmp_path):
    out = tmp_path / "a.json"
    words = ["--device", "cpu", "--only", "engine:shortage,gelu", "--small", "--json", str(out)]
    words = [sys.executable, str(SCRIPTS / "gpu_check.py"), "--backends", "reference", *words]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(out.read_text())
    names = {result["operation"] for result in record["results"]}
    assert names == {"engine:shortage", "gelu"}
    assert all(result["passed"] for result in record["results"])


def test_what_goes_wrong_and_time_that_runs_out_are_findings(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from gpu_engine import parts
    from gpu_engine.bench import Bench
    from gpu_engine.models import Shelf

    def fail(bench):
        yield expect("first", True)
        raise RuntimeError("broken")

    monkeypatch.setitem(parts.PARTS, "failing", fail)
    bench = Bench(Shelf(tmp_path), "cpu", 0)
    first, second = parts.run_parts(bench, ["failing"], 60.0)
    assert first.row.share == 0 and not first.trouble
    assert second.row.share == float("inf") and "broken" in second.trouble
    (late,) = parts.run_parts(bench, ["failing"], -1.0)
    assert late.row.share == float("inf") and "out of time" in late.trouble


def test_names_choose_operations_and_parts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from scripts.gpu_check import choose

    modules, parts = choose("engine:mask,gelu")
    assert list(modules) == ["gelu"] and parts == ["mask"]
    modules, parts = choose(None)
    assert "linear" in modules and {"memory", "profiles", "allocation"} <= set(parts)
    with pytest.raises(SystemExit, match="unknown name: got engine:nothing"):
        choose("engine:nothing")
