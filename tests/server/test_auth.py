"""Keys, and pages of other origins (HT-3)."""

from __future__ import annotations

import httpx
import pytest

from ninfer_runtime.errors import StartupError
from ninfer_runtime.server.auth import read_keys
from ninfer_runtime.server.http_options import HttpOptions

KEYED = HttpOptions(keys=("one", "zwei-ß"))


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ({}, False),
        ({"authorization": "Bearer one"}, True),
        ({"authorization": "bearer one"}, True),
        ({"x-api-key": "one"}, True),
        ({"authorization": "Bearer zwei-ß".encode()}, True),
        ({"authorization": "Bearer wrong", "x-api-key": "one"}, True),
        ({"authorization": "Bearer one1"}, False),
        ({"authorization": "Bearer"}, False),
        ({"authorization": "Basic one"}, False),
        ({"authorization": "one"}, False),
        ({"x-api-key": ""}, False),
    ],
)
def test_a_request_needs_one_of_the_keys(serve, headers, passes):
    answer = serve(KEYED).http.get("/v1/models", headers=headers)
    assert answer.status_code == (200 if passes else 401)
    if not passes:
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_anthropics_clients_hear_of_keys_in_their_own_shape(serve):
    answer = serve(KEYED).http.post("/v1/messages", json={})
    body = answer.json()
    assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")
    assert body["request_id"] == answer.headers["x-request-id"]


def test_health_and_preflight_need_no_key(serve):
    http = serve(HttpOptions(keys=("one",), cors=True)).http
    assert http.get("/health").status_code == 200
    headers = {
        "origin": "http://page", "access-control-request-method": "POST",
        "access-control-request-headers": "x-custom",
    }  # fmt: skip
    answer = http.options("/v1/chat/completions", headers=headers)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-headers"] == "x-custom"
    assert "POST" in answer.headers["access-control-allow-methods"]


def test_pages_of_other_origins_may_read_only_with_cors(serve, http: httpx.Client):
    open_one = serve(HttpOptions(cors=True)).http
    for path in ("/v1/models", "/nowhere"):
        assert open_one.get(path).headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-origin" not in http.get(path).headers


def test_every_response_has_an_id(http: httpx.Client):
    """HT-7"""
    first, second = (http.get("/nowhere").headers["x-request-id"] for _ in range(2))
    assert first.startswith("req_")
    assert first != second
    named = http.get("/health", headers={"x-request-id": "mine-1"})
    assert named.headers["x-request-id"] == "mine-1"
    named = http.get("/health", headers={"x-request-id": "no spaces please"})
    assert named.headers["x-request-id"].startswith("req_")


def test_keys_of_a_file_stand_one_a_line(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# team\none\n\n  two \n")
    assert read_keys(path) == ("one", "two")
    path.write_text("# nothing\n")
    with pytest.raises(StartupError, match="no API key"):
        read_keys(path)
    with pytest.raises(StartupError, match="cannot be read"):
        read_keys(tmp_path / "missing")
