"""Reuse of prefixes as clients and operators see it, over HTTP."""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import ninfer_tools.synthetic
from builders.live_services import LiveService, chat
from builders.pictures import encode_picture, random_pixels
from builders.real_server import RealServer, wait_for
from ninfer_runtime.server.service_options import ServiceOptions
from tests.server.test_real_server import TOOL, WEATHER

WORDS = "the weather of a city and the sum of two numbers are what people ask for most often"


def ask(server: RealServer, messages, **fields):
    body = {"messages": messages, "temperature": 0, "max_tokens": 12, **fields}
    answer = server.http.post("/v1/chat/completions", json=body)
    assert answer.is_success, answer.text
    return answer.json()


def cached_of(answer) -> int:
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def say(role: str, content: str):
    return {"role": role, "content": content}


def read_counts(server: RealServer) -> dict[str, float]:
    text = server.http.get("/metrics").text
    found = re.finditer(r"^ninfer:prefix_(\w+) (\S+)$", text, re.MULTILINE)
    return defaultdict(float, {match[1]: float(match[2]) for match in found})


def count_tokens(server: RealServer, messages) -> int:
    prompt = server.http.post("/apply-template", json={"messages": messages}).json()["prompt"]
    return len(server.http.post("/tokenize", json={"content": prompt}).json()["tokens"])


def test_case_43_and_70_turns_side_requests_and_other_conversations_hit(server: RealServer):
    """PX-2, PX-10: what the usage says, and what /metrics counts."""
    before = read_counts(server)
    system = say("system", f"1. {WORDS}. " * 6)
    conversation = [system, say("user", f"What is 2+2? {WORDS}")]
    first = ask(server, conversation, enable_thinking=False)
    assert cached_of(first) == 0
    for turn in range(3):
        reply = first["choices"][0]["message"]["content"]
        conversation += [say("assistant", reply), say("user", f"And {turn}+3?")]
        side = ask(server, [say("user", f"Name this talk {turn}: {WORDS}")], enable_thinking=False)
        assert side["usage"]["prompt_tokens"] < 120
        previous, first = first, ask(server, conversation, enable_thinking=False)
        assert cached_of(first) >= 0.95 * previous["usage"]["prompt_tokens"]
    empty = say("user", "")
    shared = count_tokens(server, [system, empty]) - count_tokens(server, [empty])
    for number in range(3):
        other = [system, say("user", f"{number}0 words please")]
        assert cached_of(ask(server, other, enable_thinking=False)) >= 0.9 * shared
    after = read_counts(server)
    assert after["hits"] - before["hits"] >= 6
    assert after["cached_tokens"] - before["cached_tokens"] >= 6 * 0.9 * shared
    assert after["snapshots"] > before["snapshots"]


def test_case_43_a_tool_loop_keeps_hitting(server: RealServer):
    """PX-4: without a new user turn, the restore point moves with the prompt."""
    messages, before = list(WEATHER), 0
    for _ in range(5):
        answer = ask(server, messages, max_tokens=100, tools=[TOOL])
        assert cached_of(answer) >= 0.95 * before
        before = answer["usage"]["prompt_tokens"]
        message = answer["choices"][0]["message"]
        messages += [message]
        for call in message.get("tool_calls", ()):
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "18 C"}]


def test_case_58_a_prompt_that_repeats_the_answer_goes_on_from_its_end(server: RealServer):
    """PX-4: exactly the tokens that were shown, cut by the limit or stopped."""
    for limit in (3, 100):
        prompt = f"<|im_start|>user\nWhat is {limit}+5? {WORDS}<|im_end|>\n<|im_start|>assistant\n"
        body = {"prompt": prompt, "temperature": 0, "max_tokens": limit}
        first = server.http.post("/v1/completions", json=body).json()
        body |= {"prompt": prompt + first["choices"][0]["text"] + "\n\n", "max_tokens": 3}
        second = server.http.post("/v1/completions", json=body).json()
        stopped = first["choices"][0]["finish_reason"] == "stop"
        assert stopped == (limit == 100)
        shown = first["usage"]["total_tokens"] - stopped
        assert cached_of(second) == shown - 1


def test_case_58_a_stop_string_and_the_limit_leave_a_prefix_that_fits(server: RealServer):
    """PX-4: the next turn repeats what was shown, and gives what it gives elsewhere."""
    for fields in ({"stop": ["ity"]}, {"max_tokens": 5}):
        opening = say("user", f"Say it {json.dumps(fields)}: {WORDS}")
        first = ask(server, [opening], enable_thinking=False, **{"max_tokens": 40, **fields})
        reply = first["choices"][0]["message"]["content"]
        follow = [opening, say("assistant", reply), say("user", "Go on.")]
        second = ask(server, follow, enable_thinking=False)
        # An answer without reasoning is shown to the model later without the empty block for it.
        assert cached_of(second) >= first["usage"]["prompt_tokens"] - 12
        again = ask(server, follow, enable_thinking=False)
        assert again["choices"][0]["message"] == second["choices"][0]["message"]


def test_choices_share_the_prompt(server: RealServer):
    """PX-9: the second choice finds what the first left."""
    before = read_counts(server)
    answer = ask(server, [say("user", f"Two of them: {WORDS}")], n=2, enable_thinking=False)
    assert len(answer["choices"]) == 2
    after = read_counts(server)
    prompt = answer["usage"]["prompt_tokens"]
    assert after["cached_tokens"] - before["cached_tokens"] >= prompt - 10


def test_case_72_the_log_says_where_a_prompt_differs(server: RealServer):
    """PX-7: the key order of a tool's schema, then a time in the system prompt."""
    tool = {"type": "function", "function": {**TOOL["function"], "description": f"New: {WORDS}"}}
    turned = {"type": "function", "function": dict(reversed(tool["function"].items()))}
    system = [say("system", f"It is 10:41. {WORDS}"), say("user", "What is 2+2?")]
    later = [say("system", f"It is 10:42. {WORDS}"), say("user", "What is 2+2?")]
    for first, second, fields in (
        (WEATHER, WEATHER, ({"tools": [tool]}, {"tools": [turned]})),
        (system, later, ({}, {})),
    ):
        ask(server, first, **fields[0])
        size = server.log.stat().st_size
        answer = ask(server, second, **fields[1])
        ids = [
            server.http.post("/tokenize", json={"content": render(server, m, f)}).json()["tokens"]
            for m, f in ((first, fields[0]), (second, fields[1]))
        ]
        place = next(i for i, (a, b) in enumerate(zip(*ids, strict=False)) if a != b)
        line = f"cached {cached_of(answer)} (none), differs at {place}"
        assert wait_for(lambda size=size, line=line: line in server.log.read_text()[size:])
        assert cached_of(answer) == 0


def render(server: RealServer, messages, fields) -> str:
    body = {"messages": messages, **fields}
    return server.http.post("/apply-template", json=body).json()["prompt"]


def test_a_talk_about_a_picture_goes_on_and_another_picture_is_another_prompt(server: RealServer):
    """PX-1, PX-3: same tokens, same size, other pixels."""

    def show(seed: int, text: str):
        url = base64.b64encode(encode_picture(random_pixels(64, 96, seed))).decode()
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{url}"}}
        return {"role": "user", "content": [picture, {"type": "text", "text": text}]}

    fields = {"enable_thinking": False}
    first = ask(server, [show(1, f"What is this? {WORDS}")], **fields)
    reply = say("assistant", first["choices"][0]["message"]["content"])
    talk = [show(1, f"What is this? {WORDS}"), reply, say("user", "And its colour?")]
    second = ask(server, talk, **fields)
    assert cached_of(second) >= 0.8 * first["usage"]["prompt_tokens"]
    other = ask(server, [show(2, f"What is this? {WORDS}")], **fields)
    assert other["usage"]["prompt_tokens"] == first["usage"]["prompt_tokens"]
    # <|im_start|>user, a line break and <|vision_start|> stand before the picture.
    assert cached_of(other) <= 4


def test_case_22_preserved_reasoning_makes_the_next_prompt_begin_with_the_answer(demo_file):
    """PX-4: turn 2 begins with exactly the prompt of turn 1 and what was generated."""
    folder = Path(ninfer_tools.synthetic.__file__).parent
    options = ServiceOptions(
        template_source=(folder / "chat_template.jinja").read_text(),
        template={"preserve_thinking": True},
    )
    live = LiveService(demo_file, options, prefix_reuse=True, host_cache_mib=64)
    live.wait_until("ready")
    first = chat(f"What is 7+5? {WORDS}")
    (told,) = live.run(live.ask(first))
    assert told.reasoning and told.content and told.finished.reason == "stop"
    reply = {
        "role": "assistant", "content": told.content, "reasoning_content": told.reasoning,
    }  # fmt: skip
    follow = chat()
    messages = (*first.messages, reply, {"role": "user", "content": "Thanks. And 1+1?"})
    (next_,) = live.run(live.ask(replace(follow, messages=messages)))
    usage = told.finished.usage
    # The stop token is the one that the snapshot leaves to the next prompt, and one to compute.
    assert next_.finished.usage.cached == usage.prompt + usage.completion - 2
    live.close()
