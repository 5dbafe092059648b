"""The whole way over HTTP: a server process with the demo model."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Literal

import openai
import pytest
from pydantic import BaseModel

from builders.real_server import RealServer, wait_for
from tests.server.test_chat import read_events

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
SUM = [{"role": "user", "content": "What is 2+2?"}]
LONG = {"ignore_eos": True, "max_tokens": 1500, "enable_thinking": False}


class Report(BaseModel):
    sky: Literal["clear", "grey"]
    rain: bool


@pytest.fixture(scope="module")
def client(server: RealServer):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as found:
        yield found


def test_case_86_while_loading_it_says_so(server: RealServer):
    """HT-1, case 86. The first answers came before the model was there."""
    assert server.while_loading
    for health, models in zip(server.while_loading[::2], server.while_loading[1::2], strict=True):
        assert health.json()["status"] == "loading"
        assert 0 <= health.json()["percent"] <= 100
        assert health.status_code == models.status_code == 503
        assert "retry-after" in models.headers


def test_streamed_equals_whole(server: RealServer):
    for fields in ({}, {"enable_thinking": False}, {"max_tokens": 9}, {"stop": ["4"]}):
        whole = server.chat(**fields).json()
        chunks = read_events(
            server.chat(**fields, stream=True, stream_options={"include_usage": True}).text
        )
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        message = whole["choices"][0]["message"]
        for field in ("content", "reasoning_content"):
            joined = "".join(delta.get(field) or "" for delta in deltas)
            assert joined == (message.get(field) or ""), fields
        assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
        assert chunks[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]


def test_usage_counts_the_prompt_the_template_makes(server: RealServer):
    messages = [{"role": "user", "content": "What is 2+2?"}]
    prompt = server.http.post("/apply-template", json={"messages": messages}).json()["prompt"]
    tokens = server.http.post("/tokenize", json={"content": prompt}).json()["tokens"]
    assert server.http.post("/detokenize", json={"tokens": tokens}).json()["content"] == prompt
    usage = server.chat(max_tokens=3).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(tokens), 3)


def test_case_37_an_answer_cut_inside_its_reasoning_says_so(server: RealServer):
    """Case 37."""
    answer = server.chat(max_tokens=5).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["message"]["reasoning_content"]
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 5
    assert "reasoning" in answer["warnings"][0]


def test_tools_of_the_openai_package(client: openai.OpenAI):
    stream = client.chat.completions.create(
        model="demo", messages=WEATHER, tools=[TOOL], tool_choice="required", temperature=0,
        stream=True,
    )  # fmt: skip
    names, arguments, reason = [], "", None
    for chunk in stream:
        for choice in chunk.choices:
            reason = choice.finish_reason or reason
            for call in choice.delta.tool_calls or ():
                names += [call.function.name] if call.function.name else []
                arguments += call.function.arguments or ""
    assert (names, reason) == (["get_weather"], "tool_calls")
    assert isinstance(json.loads(arguments), dict)


def test_case_33_structured_output_of_the_openai_package(client: openai.OpenAI):
    """Case 33: truly constrained, with and without thinking, with speculation."""
    for budget in (0, 20):
        answer = client.chat.completions.parse(
            model="demo", messages=SUM, response_format=Report, temperature=0, max_tokens=300,
            extra_body={"thinking_budget": budget},
        )  # fmt: skip
        assert isinstance(answer.choices[0].message.parsed, Report)
        assert bool(answer.usage.completion_tokens_details.reasoning_tokens) == bool(budget)


def test_case_80_refusals_name_the_field(server: RealServer):
    """Case 80 and grammars that are none."""
    answer = server.chat("x " * 3000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "2048" in answer.json()["error"]["message"]
    for field, value in (("guided_regex", "["), ("grammar", "root"), ("guided_json", {"type": 5})):
        answer = server.chat(**{field: value})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field), answer.text
    part = {"type": "image_url", "image_url": {"url": "data:x"}}
    messages = [{"role": "user", "content": [part]}]
    answer = server.http.post("/v1/chat/completions", json={"messages": messages})
    assert (answer.status_code, "messages[0].content[0]" in answer.text) == (400, True)


def test_logprobs_belong_to_the_tokens_of_the_content(server: RealServer):
    answer = server.chat(enable_thinking=False, logprobs=True, top_logprobs=2, max_tokens=8).json()
    (choice,) = answer["choices"]
    scores = choice["logprobs"]["content"]
    joined = b"".join(bytes(score["bytes"]) for score in scores)
    assert joined.decode() == choice["message"]["content"]
    for score in scores:
        # Greedily drawn: the first of the most likely is the token itself.
        assert score["top_logprobs"][0]["token"] == score["token"]
        assert score["logprob"] <= 0


def test_choices_have_seeds_of_their_own(server: RealServer):
    fields = {"max_tokens": 12, "temperature": 1.5, "seed": 5, "enable_thinking": False}
    both = server.chat(n=2, **fields).json()
    texts = [choice["message"]["content"] for choice in both["choices"]]
    assert len(texts) == 2
    alone = server.chat(**{**fields, "seed": 6}).json()["choices"][0]["message"]["content"]
    assert texts[1] == alone
    assert server.chat(n=3).json()["error"]["param"] == "n"


def test_case_38_and_68_a_client_that_goes_frees_its_lane(server: RealServer):
    """Case 38, case 68: whether it reads a stream or waits for a whole answer."""
    for _ in range(3):
        socks = [server.send(**LONG, stream=stream) for stream in (True, False, True)]
        assert wait_for(lambda: server.busy() == 2)
        for sock in socks:
            sock.close()
        assert wait_for(lambda: server.busy() == 0)
    gauges = server.http.get("/metrics").text
    assert "ninfer:kv_pages_used 0.0" in gauges
    assert "ninfer:waiting 0.0" in gauges
    assert server.chat(max_tokens=2).is_success


def test_case_86_health_answers_at_once_while_lanes_work(server: RealServer):
    """Case 86: 200 under load, within 100 ms (three times that here, for busy machines)."""
    socks = [server.send(**LONG, stream=True) for _ in range(2)]
    assert wait_for(lambda: server.busy() == 2)
    begun = time.monotonic()
    assert server.http.get("/health").is_success
    assert time.monotonic() - begun < 0.3
    for sock in socks:
        sock.close()
    assert wait_for(lambda: server.busy() == 0)


def test_a_queue_that_is_full_is_a_429(server: RealServer):
    socks = [server.send(**LONG, stream=True) for _ in range(4)]
    metrics = "ninfer:waiting 2.0"
    assert wait_for(lambda: metrics in server.http.get("/metrics").text)
    answer = server.chat()
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "server_overloaded")
    assert "retry-after" in answer.headers
    for sock in socks:
        sock.close()
    assert wait_for(lambda: server.busy() == 0)


def test_case_40_an_engine_that_dies_ends_the_server_and_tells_its_clients(demo_file, tmp_path):
    """Case 40: error events, unhealthy, exit status not zero."""
    with RealServer(demo_file, tmp_path / "log", engine={"max_context": 2048}) as server:
        events: list[str] = []
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, **LONG}

        def read() -> None:
            with server.http.stream("POST", "/v1/chat/completions", json=body) as answer:
                events.extend(line for line in answer.iter_lines() if line)

        reader = threading.Thread(target=read)
        reader.start()
        assert wait_for(lambda: len(events) > 2)
        kill_engine(server)
        reader.join(10)
        assert not reader.is_alive()
        assert "error" in json.loads(events[-1].removeprefix("data: "))
        assert server.process.wait(10) != 0


def test_case_87_a_server_that_is_told_to_end_says_so_in_its_streams(demo_file, tmp_path):
    """Case 87: an error event, not an end that looks like the model's own."""
    with RealServer(demo_file, tmp_path / "log", engine={"max_context": 2048}) as server:
        sock = server.send(**LONG, stream=True)
        assert wait_for(lambda: server.busy() == 1)
        server.process.terminate()
        text = b""
        while piece := sock.recv(65536):
            text += piece
        assert b"[DONE]" not in text
        assert b"shutting down" in text[-400:]
        assert server.process.wait(10) == 0


def kill_engine(server: RealServer) -> None:
    """Kill the engine process, and no other child of the server."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    killed = [
        os.kill(int(number), signal.SIGKILL)
        for number in children.read_text().split()
        if b"spawn_main" in Path(f"/proc/{number}/cmdline").read_bytes()
    ]
    assert len(killed) == 1
