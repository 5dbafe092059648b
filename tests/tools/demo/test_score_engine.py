"""Laws of scores: the engine answers the evaluation sets as transformers did (N-69)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from builders.conversions import convert
from ninfer_tools.demo.cache import locate_demo
from ninfer_tools.demo.manifest import read_metrics

SCRIPTS = Path(__file__).parents[3] / "scripts"
Score = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors: more threads only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS / "demo"))
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import score_engine

    return score_engine


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("scores")

    @cache
    def make(profile: str) -> Path:
        out = folder / f"{profile}.ninfer"
        assert convert(locate_demo(), out, profile=profile) == 0
        return out

    return make


@pytest.fixture
def score(script: Any, artifact: Callable[[str], Path], tmp_path: Path) -> Score:
    def run(profile: str, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
        out = tmp_path / "scores.json"
        words = ["--device", "cpu", "--prefill-chunk", "1024", "--json", str(out), *options]
        status = script.main([str(artifact(profile)), *words])
        return status, {row["task"]: row for row in json.loads(out.read_text())["rows"]}

    return run


def test_an_unquantised_artifact_answers_and_drafts_as_transformers_did(score):
    """N-69: one item of every task, in float32: not one differs, nor any draft."""
    words = ("--items", "1", "--sets", "chat,vision,code", "--draft-tokens", "3")
    status, rows = score("bf16", *words)
    assert status == 0
    assert rows["chat: all"]["n"] == 20 and rows["vision: all"]["n"] == 10
    for name in ("chat: all", "vision: all"):
        assert rows[name]["differing"] == 0
    assert 5 < rows["vision: all"]["engine"] < 10, "some are known to be wrong"
    assert abs(rows["code/perplexity"]["points"]) < 0.05
    for name in ("chat", "code"):
        for draft in (1, 2, 3):
            row = rows[f"{name}: draft {draft}, %"]
            assert row["n"] > 30 and row["engine"] == row["recorded"]


@pytest.mark.parametrize("profile", ["nvfp4", "groupwise-int"])
def test_quantised_artifacts_answer_within_an_item_of_transformers(score, profile):
    """N-69: two pictures of every task, with drafts."""
    status, rows = score(profile, "--sets", "vision", "--items", "2", "--draft-tokens", "2")
    assert status == 0
    assert rows["vision: all"]["n"] == 20
    assert rows["vision: all"]["recorded"] == 18


def test_a_score_that_is_far_from_the_record_fails(script, score, monkeypatch):
    record = script.read_scores()
    for run in record["runs"].values():
        run["vision"]["tasks"]["image/number"]["wrong"] = []
    monkeypatch.setattr(script, "read_scores", lambda: record)
    status, rows = score("bf16", "--items", "4", "--sets", "vision")
    assert status == 1
    assert rows["image/number"]["near"] is False


def test_questions_of_the_end_of_training_are_the_recorded_ones(script):
    """Their prompts have the recorded mean lengths, their pictures the recorded questions."""
    import training_evaluation

    questions = training_evaluation.make_questions()
    found = read_metrics()["checkpoint"]["evaluation"]
    tasks = [question.task.removeprefix("training/") for question in questions]
    counts = {task: tasks.count(task) for task in dict.fromkeys(tasks)}
    vision = {task: counts.pop(task) for task in found["vision_n"]}
    assert vision == found["vision_n"]
    lengths = {task: counts.pop(task) for task in found["retrieval_by_length"]}
    assert set(lengths.values()) == {16}
    assert counts == dict.fromkeys(found["tasks"], 24)
    assert training_evaluation.read_shares().keys() == {question.task for question in questions}
    assert len({question.id for question in questions}) == len(questions)
