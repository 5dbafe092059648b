"""Laws of the evaluation sets: fixed, answerable, and scored item by item."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections import Counter
from pathlib import Path

import pytest

from ninfer_tools.demo.evaluation import (
    FOLDER,
    Question,
    describe_sets,
    is_right,
    parse_call,
    read_chat,
    read_code,
    read_long,
    read_scores,
    read_vision,
)
from ninfer_tools.demo.manifest import read_manifest

SCRIPTS = Path(__file__).parents[3] / "scripts/demo"
READERS = {"chat": read_chat, "long": read_long, "vision": read_vision, "code": read_code}
LOOKING_UP = ["needle", "codes20", "twohop", "tool", "toolresult"]
WORKING_OUT = ["arith", "count", "reverse", "nwords", "echo"]
IMAGE_TASKS = ["count", "shape", "describe", "colour", "position", "number"]
TASKS = {
    "chat": [
        f"{task}/{mode}" for task in LOOKING_UP + WORKING_OUT for mode in ("no_think", "think")
    ],
    "long": ["long/needle/no_think", "long/codes20/no_think"],
    "vision": [
        *(f"image/{task}" for task in IMAGE_TASKS),
        "two_images",
        *(f"video/{task}" for task in ("colour", "motion", "shape")),
    ],
    "code": ["code"],
}


@pytest.fixture(scope="module")
def items():
    return {name: read() for name, read in READERS.items()}


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_300_items_with_ids_of_their_own(items, name):
    counts = Counter(item.task for item in items[name])
    assert counts == dict.fromkeys(TASKS[name], 300)
    assert counts == describe_sets()["sets"][name]["tasks"]
    assert len({item.id for item in items[name]}) == len(items[name])


@pytest.mark.parametrize("name", ["chat", "long"])
def test_prompts_of_a_task_are_distinct_and_end_with_a_turn_to_answer(items, name):
    prompts = Counter((q.task, json.dumps([q.messages, q.tools])) for q in items[name])
    assert max(prompts.values()) == 1
    for question in items[name]:
        assert question.messages[-1]["role"] == (
            "tool" if question.task.startswith("toolresult") else "user"
        )
        assert (question.tools is not None) == question.task.startswith("tool")
        assert question.think is question.task.endswith("/think")


def test_long_prompts_are_long(items):
    lengths = [len(question.messages[0]["content"]) for question in items["long"]]
    assert min(lengths) > 17_000


def test_needles_and_codes_stand_in_their_prompts(items):
    for question in [*items["chat"], *items["long"]]:
        if "needle" in question.task or "codes20" in question.task:
            assert f" is {question.answer}." in question.messages[-1]["content"]


def test_recorded_seed_gives_the_stored_prompts(items, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import question_sets

    assert describe_sets()["seed"] == question_sets.SEED
    for name, make in (("chat", question_sets.make_chat), ("long", question_sets.make_long)):
        assert [Question(**row) for row in make()] == items[name]


def make_reply(question: Question, right: bool) -> str:
    """A reply with the right answer, or with one that differs by a word."""
    answer, extra = question.answer, "" if right else "x"
    if isinstance(answer, str):
        body = answer + extra
    elif "words" in answer:
        body = " ".join(["word"] * (answer["words"] + len(extra)))
    else:
        values = "".join(
            f"<parameter={name}>\n{value}{extra}\n</parameter>\n"
            for name, value in answer["arguments"].items()
        )
        body = f"<tool_call>\n<function={answer['name']}>\n{values}</function>\n</tool_call>"
    return ("I think.\n</think>\n\n" if question.think else "") + body + "<|im_end|>"


@pytest.mark.parametrize("name", ["chat", "long", "vision"])
def test_right_finished_reply_counts_and_nothing_else(items, name):
    for question in items[name]:
        reply = make_reply(question, True)
        assert is_right(question, reply), question.id
        assert not is_right(question, make_reply(question, False)), question.id
        unfinished = reply.removesuffix("<|im_end|>")
        assert not is_right(question, unfinished)
        assert not is_right(question, unfinished + "<|endoftext|>")
        if question.think:
            assert not is_right(question, reply.partition("</think>\n\n")[2])


def test_call_is_read_from_the_checkpoints_syntax():
    text = (
        "<tool_call>\n<function=get_file>\n<parameter=path>\n/a b.txt\n</parameter>\n"
        "<parameter=limit>\n12\n</parameter>\n</function>\n</tool_call>"
    )
    assert parse_call(text) == {
        "name": "get_file",
        "arguments": {"path": "/a b.txt", "limit": "12"},
    }
    assert parse_call(text.replace("</tool_call>", "")) is None


def read_png(data: bytes) -> tuple[int, int]:
    """Return (width, height) after checking signature and every chunk's checksum."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    stream = io.BytesIO(data[8:])
    kinds = []
    while not kinds or kinds[-1] != b"IEND":
        (length,) = struct.unpack(">I", stream.read(4))
        kind = stream.read(4)
        body = stream.read(length)
        assert struct.unpack(">I", stream.read(4))[0] == zlib.crc32(kind + body)
        kinds.append(kind)
    assert kinds[0] == b"IHDR" and not stream.read()
    return struct.unpack(">II", data[16:24])


def test_media_are_sound_pictures_of_the_trained_sizes(items):
    for question in items["vision"]:
        kinds = [part["type"] for part in question.messages[0]["content"]]
        frames = {"image": 1, "two_images": 2, "video": 4}[question.task.partition("/")[0]]
        assert len(question.media) == frames
        expected = ["video"] if frames == 4 else ["image"] * frames
        assert kinds == [*expected, "text"]
        assert all(56 <= side <= 260 for file in question.media for side in read_png(file))


def test_passages_come_from_packages_whose_licences_are_shipped(items):
    packages = describe_sets()["code"]["packages"]
    assert {entry["license"] for entry in packages.values()} == {"MIT", "BSD-3-Clause"}
    counts = Counter(passage.source.partition("/")[0] for passage in items["code"])
    assert counts == dict.fromkeys(packages, 75)
    licences = (FOLDER / "LICENSES.txt").read_text()
    for name, entry in packages.items():
        assert f"{name} {entry['version']}\n" in licences
    assert licences.count("Copyright") >= 4
    for passage in items["code"]:
        assert 1600 <= len(passage.text) < 3200 and passage.text.endswith("\n")
        assert "<|" not in passage.text and "<tool_call>" not in passage.text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_item_has_a_recorded_outcome(items, dtype):
    scores = read_scores()
    assert scores["checkpoint"] == read_manifest().digest
    assert scores["sets"] == {n: e["sha256"] for n, e in describe_sets()["sets"].items()}
    run = scores["runs"][dtype]
    for name in ("chat", "long", "vision"):
        assert list(run[name]["tasks"]) and set(run[name]["tasks"]) == set(TASKS[name])
        for entry in run[name]["tasks"].values():
            assert entry["n"] == 300 == entry["right"] + len(entry["wrong"])
            assert sorted(set(entry["wrong"])) == entry["wrong"]
            assert entry["score"] == round(entry["right"] / 300, 4)
    code = run["code"]
    assert code["n"] == 300 == len(code["loss_per_item"]) == len(code["tokens_per_item"])
    assert sum(code["tokens_per_item"]) == code["tokens"]
    assert sum(code["loss_per_item"]) / code["tokens"] == pytest.approx(code["loss"], abs=1e-5)


def test_dtypes_score_alike():
    runs = read_scores()["runs"]
    for name in ("chat", "long", "vision"):
        for task, entry in runs["float32"][name]["tasks"].items():
            assert abs(entry["score"] - runs["bfloat16"][name]["tasks"][task]["score"]) <= 0.03
    losses = [runs[dtype]["code"]["loss"] for dtype in runs]
    assert abs(losses[0] - losses[1]) < 0.001
