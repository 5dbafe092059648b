"""Laws of `ninfer run`: answers, streams, presets and errors, on the demo checkpoint."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from builders.answers import Answer
from builders.conversions import convert
from builders.pictures import encode_picture, random_pixels
from ninfer_tools.cli import app
from ninfer_tools.demo.cache import locate_demo
from ninfer_tools.demo.evaluation import Question, read_chat, read_vision

Call = Callable[..., Answer]


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors: more threads only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def artifact(folder: Path) -> Path:
    assert convert(locate_demo(home=folder), folder / "demo.ninfer", profile="bf16") == 0
    return folder / "demo.ninfer"


@pytest.fixture(scope="module")
def blind(folder: Path) -> Path:
    """The same model without its tower and MTP head."""
    out = folder / "blind.ninfer"
    assert convert(locate_demo(home=folder), out, profile="bf16", components="text") == 0
    return out


def call(file: Path, *arguments: object, lines: str | None = None) -> Answer:
    words = ["run", str(file), *map(str, arguments)]
    result = CliRunner().invoke(app, words, input=lines)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


def find(task: str, place: int = 0) -> Question:
    """Return a question of a task that the recorded model answers right."""
    questions = [*read_chat(), *read_vision()]
    return [question for question in questions if question.task == task][place]


def save_messages(question: Question, path: Path) -> Path:
    record = {"messages": question.messages, "tools": question.tools}
    path.write_text(json.dumps(record))
    return path


def test_the_answer_is_on_stdout_and_everything_else_on_stderr(artifact, tmp_path):
    """FE-31"""
    question = find("echo/think")
    messages = save_messages(question, tmp_path / "messages.json")
    done = call(artifact, "--messages", messages, "--greedy")
    assert done.code == 0
    assert done.out.strip() == question.answer
    loaded, *reasoning, closing = done.err.splitlines()
    assert loaded.startswith("loaded demo.ninfer to cpu: ")
    assert reasoning
    assert closing.startswith("prefill ")
    for word in (" tok/s", "decode ", "memory ", "finish stop"):
        assert word in closing


def test_no_thinking_leaves_the_reasoning_out(artifact, tmp_path):
    messages = save_messages(find("reverse/no_think"), tmp_path / "messages.json")
    done = call(artifact, "--messages", messages, "--greedy", "--no-thinking", "--json")
    assert done.record["reasoning"] == ""
    assert done.record["answer"] == find("reverse/no_think").answer


def test_a_tool_call_comes_out_as_the_model_writes_it(artifact, tmp_path):
    messages = save_messages(find("tool/no_think"), tmp_path / "messages.json")
    done = call(artifact, "--messages", messages, "--greedy", "--no-thinking")
    assert done.out.startswith("<tool_call>\n<function=")


@pytest.mark.parametrize("task", ["image/count", "two_images", "video/motion"])
def test_pictures_are_seen(artifact, tmp_path, task):
    """FE-17, FE-18"""
    question = find(task)
    files = []
    for i, data in enumerate(question.media):
        files.append(tmp_path / f"{i}.png")
        files[-1].write_bytes(data)
    text = question.messages[0]["content"][-1]["text"]
    video = ["--video", tmp_path]
    media = video if task.startswith("video") else [x for f in files for x in ("--image", f)]
    done = call(artifact, "--prompt", text, *media, "--greedy", "--no-thinking")
    assert (done.code, done.out.strip()) == (0, question.answer)


def test_a_message_can_hold_its_image(artifact, tmp_path):
    data = base64.b64encode(encode_picture(random_pixels(64, 64))).decode()
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    messages = tmp_path / "messages.json"
    messages.write_text(json.dumps([{"role": "user", "content": [part]}]))
    assert call(artifact, "--messages", messages, "--max-new", 2).code == 0


def test_drafts_do_not_change_a_greedy_answer(artifact):
    """FE-31"""
    asked = ("--prompt", "hello", "--greedy", "--json", "--max-new", 24)
    plain, drafted = call(artifact, *asked), call(artifact, *asked, "--spec", "mtp")
    assert len(plain.out.splitlines()) == 1
    assert drafted.record["tokens"] == plain.record["tokens"]
    assert plain.record["acceptance"] == []
    assert len(drafted.record["acceptance"]) == 3
    assert drafted.err == ""


@pytest.mark.parametrize("drafts", [(), ("--spec", "mtp", "--draft-tokens", 5)])
def test_a_stop_string_cuts_the_answer_and_its_count(artifact, drafts):
    """FE-21: however many tokens a round has, those behind the stop string count for nothing."""
    asked = ("--prompt", "hello", "--greedy", "--json", "--top-logprobs", 2, *drafts)
    whole = call(artifact, *asked).record
    text = whole["reasoning"]
    stop = text[len(text) // 2 : len(text) // 2 + 5]
    cut = call(artifact, *asked, "--stop", stop).record
    assert (cut["finish"], cut["stop"], cut["answer"]) == ("stop", stop, "")
    assert cut["reasoning"] == text[: text.index(stop)].rstrip()
    count = cut["completion_tokens"]
    assert cut["tokens"] == whole["tokens"][:count] and count < whole["completion_tokens"]
    pieces = [score["text"] for score in cut["logprobs"]]
    assert stop in "".join(pieces) and stop not in "".join(pieces[:-1])
    assert all(len(score["top"]) == 2 for score in cut["logprobs"])


def test_requantising_nothing_is_said(artifact):
    """MEM-17"""
    asked = ("--prompt", "hello", "--greedy", "--max-new", 2, "--requantize", "head=w8,mtp=nvfp4")
    assert "note: --requantize mtp: nothing of it is bf16 and in use" in call(artifact, *asked).err
    assert "note" not in call(artifact, *asked, "--spec", "mtp").err


def test_a_file_may_hold_parameters_which_go_before_flags(artifact, tmp_path):
    """FE-30, FE-33"""
    messages = [{"role": "user", "content": "hello"}]
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"messages": messages, "max_tokens": 3, "temperature": 0, "n": 1}))
    done = call(artifact, "--messages", path, "--max-new", 9, "--temperature", 50)
    assert done.err.splitlines()[0].endswith("request.json: not used: n")
    assert " decode 3 tokens" in done.err
    want = call(artifact, "--prompt", "hello", "--max-new", 3, "--greedy", "--json").record
    again = call(artifact, "--messages", path, "--temperature", 50, "--json").record
    assert again["tokens"] == want["tokens"]


def test_the_same_seed_gives_the_same_answer_and_is_reported(artifact):
    """FE-30"""
    asked = ("--prompt", "hello", "--temperature", 5, "--top-k", 0, "--json", "--max-new", 12)
    first = call(artifact, *asked).record
    again = call(artifact, *asked, "--seed", first["seed"]).record
    assert again["tokens"] == first["tokens"]
    assert call(artifact, *asked, "--seed", first["seed"] + 1).record["tokens"] != first["tokens"]


def test_token_ids_are_continued_as_they_are(artifact):
    done = call(artifact, "--prompt-ids", "1, 2,3", "--max-new", 4, "--greedy", "--json")
    assert done.record["prompt_tokens"] == 3
    assert (len(done.record["tokens"]), done.record["finish"]) == (4, "length")


def test_without_a_tokenizer_token_ids_come_out(artifact, monkeypatch):
    from ninfer_formats.reader import Artifact

    monkeypatch.setattr(Artifact, "resources", {})
    done = call(artifact, "--prompt-ids", "1,2,3", "--max-new", 4, "--greedy")
    assert len(done.out.split(",")) == 4
    failed = call(artifact, "--prompt", "hi")
    assert (failed.code, len(failed.err.splitlines())) == (1, 1)
    assert "has no tokenizer.json" in failed.err


def test_a_synthetic_model_answers(artifact):
    spec = "qwen3.5-0.8b:groupwise-int:layers=1:vocab=400:components=text"
    result = CliRunner().invoke(
        app, ["run", "--synthetic", spec, "--prompt", "hi", "--max-new", "2"]
    )
    assert (result.exit_code, "finish" in result.stderr) == (0, True)


WRONG: dict[str, tuple[list[str], int, str]] = {
    "nothing to answer": ([], 2, "nothing to answer"),
    "two things": (["--prompt", "x", "--chat"], 2, "two things to answer"),
    "empty prompt": (["--prompt", " \n"], 2, "the prompt is empty"),
    "no ids": (["--prompt-ids", ""], 1, "the prompt is empty"),
    "bad ids": (["--prompt-ids", "1,x"], 2, "not token ids"),
    "unknown id": (["--prompt-ids", "999999"], 1, "unknown token id"),
    "long prompt": (["--prompt", "a b " * 200, "--max-context", "100"], 1, "longer than the"),
    "long context": (["--prompt", "x", "--max-context", "99999999"], 2, "--max-context is out"),
    "no file": (["--prompt", "x", "--image", "/nonexistent.png"], 2, "cannot open"),
    "folder": (["--prompt", "x", "--image", "/"], 2, "not a regular file"),
    "no image": (["--prompt", "x", "--image", __file__], 1, "image cannot be read"),
    "no video": (["--prompt", "x", "--video", __file__], 1, "video cannot be read"),
    "left out": (["--prompt", "x", "--image", __file__, "--no-vision"], 2, "leave --no-vision out"),
    "drafter": (["--prompt", "x", "--spec", "dflash2"], 2, "use --spec mtp"),
    "device": (["--prompt", "x", "--device", "cuda:7"], 2, "device cannot be used"),
    "device name": (["--prompt", "x", "--device", "toaster"], 2, "device cannot be used"),
    "dtype": (["--prompt", "x", "--dtype", "fp8"], 2, "compute type is not known"),
    "kv type": (["--prompt", "x", "--kv-dtype", "fp7"], 2, "KV type is not known"),
    "temperature": (["--prompt", "x", "--temperature", "-1"], 2, "--temperature is out of range"),
    "not a number": (["--prompt", "x", "--top-p", "nan"], 2, "--top-p is out of range"),
    "no shortlist": (["--prompt", "x", "--messages", __file__], 2, "two things to answer"),
    "messages": (["--messages", __file__], 2, "file is not JSON"),
    "other device": (["--prompt", "x", "--device", "meta"], 2, "device cannot be used"),
    "drafts alone": (["--prompt", "x", "--draft-tokens", "3"], 2, "add --spec mtp"),
    "shortlist alone": (["--prompt", "x", "--lm-head-draft"], 2, "add --spec mtp"),
    "empty stop": (["--prompt", "x", "--stop", ""], 2, "--stop is not a text, or empty"),
    "bias": (["--prompt", "x", "--logit-bias", "5"], 2, "--logit-bias is not understood"),
    "bias of nothing": (["--prompt", "x", "--logit-bias", "9999999=1"], 1, "unknown token id"),
    "log probabilities": (["--prompt", "x", "--top-logprobs", "3"], 2, "needs --json"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_is_one_line_with_its_exit_code(artifact, case):
    """FE-32"""
    arguments, code, text = WRONG[case]
    done = call(artifact, *arguments)
    assert done.code == code
    assert text in done.failure
    notices = [line for line in done.err.splitlines()[:-1] if not line.startswith("loaded ")]
    assert (notices, done.out) == ([], "")


def test_a_conversation_has_no_json(artifact):
    done = call(artifact, "--chat", "--json")
    assert (done.code, done.record["error"]["what"]) == (2, "--chat has no --json")


MESSAGES: dict[str, tuple[Any, str]] = {
    "no list": ({"messages": 5}, "file holds no list of messages"),
    "tools": ({"messages": [], "tools": 5}, "tools are not a list"),
    "none": ([], "there are no messages"),
    "unknown part": (
        [{"role": "user", "content": [{"type": "audio"}]}],
        "messages[0].content[0]: content part is neither text nor",
    ),
    "no file": ([{"role": "user", "content": [{"type": "image"}]}], "give one with --image"),
    "address": (
        [{"role": "user", "content": [{"image_url": {"url": "https://example.org/x.png"}}]}],
        "addresses are not fetched",
    ),
    "data": ([{"role": "user", "content": [{"image": "data:image/png,x"}]}], "is not base64"),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_a_wrong_conversation_is_one_line(artifact, tmp_path, case):
    """FE-32"""
    record, text = MESSAGES[case]
    (tmp_path / "messages.json").write_text(json.dumps(record))
    done = call(artifact, "--messages", tmp_path / "messages.json")
    assert done.code in (1, 2)
    assert text in done.failure


def test_a_file_that_no_message_shows_is_refused(artifact, tmp_path):
    (tmp_path / "messages.json").write_text(json.dumps([{"role": "user", "content": "x"}]))
    done = call(artifact, "--messages", tmp_path / "messages.json", "--image", __file__)
    assert "no part of the messages takes this file" in done.failure


def test_a_model_without_a_tower_or_head_says_so(blind, tmp_path):
    (tmp_path / "x.png").write_bytes(encode_picture(random_pixels(64, 64)))
    done = call(blind, "--prompt", "x", "--image", tmp_path / "x.png")
    assert (done.code, "has no vision tower" in done.failure) == (2, True)
    done = call(blind, "--prompt", "x", "--spec", "mtp")
    assert (done.code, "has no MTP head" in done.failure) == (2, True)
    done = call(blind, "--prompt", "x", "--vision")
    assert (done.code, "has no vision tower" in done.failure) == (2, True)
    assert call(blind, "--prompt", "x", "--max-new", 2).code == 0


def prompt_sizes(done: Answer) -> list[int]:
    lines = [line for line in done.err.splitlines() if line.startswith("prefill ")]
    return [int(line.split()[1]) for line in lines]


def test_a_conversation_grows_and_is_forgotten_on_reset(artifact):
    lines = "hello\nhello\n/reset\nhello\n/exit\nhello\n"
    done = call(artifact, "--chat", "--greedy", "--max-new", 20, lines=lines)
    first, second, third = prompt_sizes(done)
    assert done.code == 0
    assert second > first == third


def test_what_goes_wrong_in_a_conversation_does_not_end_it(artifact, tmp_path):
    """FE-32"""
    (tmp_path / "bad.png").write_bytes(b"bad")
    (tmp_path / "good.png").write_bytes(encode_picture(random_pixels(64, 64)))
    lines = (
        f"/nonsense\n/image\n/image {tmp_path}/none.png\n/image {tmp_path}/bad.png\nlook\n"
        f"{'word ' * 300}\nhello\n/image {tmp_path}/good.png\nlook\n"
    )
    options = ("--greedy", "--max-new", 8, "--max-context", 200)
    done = call(artifact, "--chat", *options, lines=lines)
    assert done.code == 0
    for text in ("no such command", "no such file", "image cannot be read", "longer than the"):
        assert text in done.err
    plain, seen = prompt_sizes(done)
    assert plain == prompt_sizes(call(artifact, "--prompt", "hello", *options))[0]
    assert seen > plain


def test_a_conversation_without_a_tower_takes_no_images(blind):
    done = call(blind, "--chat", "--max-new", 2, lines="/image x.png\nhello\n")
    assert (done.code, "no vision tower is loaded" in done.err) == (0, True)


def test_an_image_goes_through_the_tower_once_in_a_conversation(artifact, tmp_path, monkeypatch):
    """FE-34: until the conversation is forgotten."""
    import ninfer_runtime.frontend.prompt as prompt

    runs = []
    run_vision = prompt.run_vision

    def counting(*arguments):
        runs.append(arguments)
        return run_vision(*arguments)

    monkeypatch.setattr(prompt, "run_vision", counting)
    (tmp_path / "a.png").write_bytes(encode_picture(random_pixels(64, 64)))
    (tmp_path / "b.png").write_bytes(encode_picture(random_pixels(64, 96)))
    image = f"/image {tmp_path}/"
    lines = f"{image}a.png\nlook\nand now\n{image}b.png\nlook\nagain\n/reset\n{image}a.png\nlook\n"
    done = call(artifact, "--chat", "--greedy", "--max-new", 2, lines=lines)
    assert (done.code, len(prompt_sizes(done)), len(runs)) == (0, 5, 3)
