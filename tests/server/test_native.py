"""Health, models, tokens and prompts (HT-1, HT-2, HT-14)."""

from __future__ import annotations

import httpx
import pytest

from builders.fake_service import FakeService

ROUTES = [
    ("POST", "/v1/chat/completions"), ("POST", "/v1/completions"), ("POST", "/tokenize"),
    ("POST", "/detokenize"), ("POST", "/apply-template"), ("GET", "/v1/models"),
    ("GET", "/v1/models/demo"), ("GET", "/metrics"), ("GET", "/slots"), ("GET", "/props"),
    ("GET", "/docs"), ("GET", "/openapi.json"), ("GET", "/nowhere"), ("POST", "/v1/messages"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (("loading", 42.5), "model_loading"),
        (("failed", "a kernel broke"), "service_unavailable"),
        (("stopping", None), "service_unavailable"),
    ],
)
def test_case_86_without_an_engine_every_route_says_when_to_come_back(serve, fake, status, code):
    """Case 86: never healthy while it cannot serve."""
    http = serve().http
    fake.status = status
    for method, path in ROUTES:
        answer = http.request(method, path)
        assert answer.status_code == 503, path
        assert int(answer.headers["retry-after"]) >= 1
        error = answer.json()["error"]
        assert error.get("code", code) == code
    health = http.get("/health")
    assert health.status_code == 503
    assert health.json()["status"] in ("loading", "unavailable", "stopping")


def test_health_says_how_far_loading_is(http: httpx.Client, fake: FakeService):
    fake.status = ("loading", 42.53)
    assert http.get("/health").json() == {"status": "loading", "percent": 42.5}
    fake.status = ("failed", "a kernel broke")
    assert http.get("/health").json() == {"status": "unavailable", "reason": "a kernel broke"}
    fake.status = ("ready", 0)
    assert http.get("/health").json() == {"status": "ok"}


def test_the_model_says_what_it_can(http: httpx.Client):
    (model,) = http.get("/v1/models").json()["data"]
    assert model["id"] == "demo"
    assert model["max_model_len"] == 4096
    assert model["modalities"] == {"vision": True}
    assert http.get("/v1/models/demo").json() == model
    assert http.get("/v1/models/org/other").json()["error"]["code"] == "model_not_found"


def test_tokens_and_text_are_inverse(http: httpx.Client):
    assert http.post("/tokenize", json={"content": "ab"}).json() == {"tokens": [97, 98]}
    pieces = http.post("/tokenize", json={"content": "a", "with_pieces": True}).json()
    assert pieces == {"tokens": [{"id": 97, "piece": "a"}]}
    half = http.post("/tokenize", json={"content": "\uffff", "with_pieces": True}).json()
    assert half == {"tokens": [{"id": 999, "piece": [0xF0, 0x9F]}]}
    assert http.post("/detokenize", json={"tokens": [97, 98]}).json() == {"content": "ab"}
    answer = http.post("/detokenize", json={"tokens": [1, 1000]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tokens[1]")


def test_the_prompt_of_a_conversation_can_be_seen(http: httpx.Client):
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0.5}
    assert http.post("/apply-template", json=body).json() == {"prompt": "<user>hi"}


def test_lanes_and_properties(http: httpx.Client):
    assert len(http.get("/slots").json()) == 4
    assert http.get("/props").json()["total_slots"] == 4


def test_what_is_not_there_is_said_in_the_apis_shape(http: httpx.Client):
    answer = http.get("/nowhere")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    answer = http.get("/v1/chat/completions")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"
    # Several routes of one path.
    assert http.post("/v1/responses/resp_1", json={}).headers["allow"] == "DELETE, GET"
    assert http.head("/health").status_code == 200
