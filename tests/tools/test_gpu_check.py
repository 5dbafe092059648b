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
    assert late.row.share != late.row.share and late.trouble == "not run: out of time"


def test_a_part_that_time_ends_is_not_said_to_be_wrong(monkeypatch, tmp_path, capsys):
    """Its rows stand; what it did not come to has no error, is no pass, and is said."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from gpu_engine import parts
    from gpu_engine.bench import Bench
    from gpu_engine.models import Shelf

    from scripts.gpu_check import Result, describe_result, print_table

    def go_on(bench):
        for number in range(9):
            yield expect(f"row {number}", True)
            monkeypatch.setattr(parts.time, "monotonic", lambda: float("inf"))

    monkeypatch.setitem(parts.PARTS, "long", go_on)
    found = list(parts.run_parts(Bench(Shelf(tmp_path), "cpu", 0), ["long"], 60.0))
    assert [f.row.case for f in found] == ["row 0", "row 1", "long"]
    assert found[2].trouble == "not finished: out of time after 2 rows"
    rows = [Result(f.part, f.row.case, "engine", f.row.share, 0.0, f.trouble) for f in found]
    assert [row.passed for row in rows] == [True, True, False]
    assert describe_result(rows[2])["share"] is None
    print_table(rows)
    _, line, failure = capsys.readouterr().out.splitlines()
    assert line.split()[2:5] == ["3", "1", "0"]
    assert failure.endswith("long: not finished: out of time after 2 rows")


@pytest.mark.parametrize(
    ("planned", "taken", "share"),
    [(100, 101, float("inf")), (100 << 20, 68 << 20, 0.5), (1020 << 30, 1000 << 30, 1.0)],
)
def test_a_plan_may_be_a_little_above_what_is_taken_and_never_below(
    monkeypatch, planned, taken, share
):
    """MEM-1: by 2 % or 64 MiB."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from gpu_engine.memory import above

    assert above(planned, taken) == pytest.approx(share)


def test_names_choose_operations_and_parts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from scripts.gpu_check import choose

    modules, parts = choose("engine:mask,gelu")
    assert list(modules) == ["gelu"] and parts == ["mask"]
    modules, parts = choose(None)
    assert "linear" in modules and {"memory", "profiles", "allocation"} <= set(parts)
    with pytest.raises(SystemExit, match="unknown name: got engine:nothing"):
        choose("engine:nothing")
