"""Errors in the shape of each API (HT-6)."""

from __future__ import annotations

import pytest

from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.errors import error_body, error_response, error_status

OPENAI, ANTHROPIC = "/v1/chat/completions", "/v1/messages"


@pytest.mark.parametrize(
    ("status", "code", "openai", "anthropic"),
    [
        (400, None, (400, "invalid_request_error"), (400, "invalid_request_error")),
        (401, "invalid_api_key", (401, "invalid_request_error"), (401, "authentication_error")),
        (404, "model_not_found", (404, "invalid_request_error"), (404, "not_found_error")),
        (413, "request_too_large", (413, "invalid_request_error"), (413, "request_too_large")),
        (429, "server_overloaded", (429, "rate_limit_error"), (529, "overloaded_error")),
        (500, "internal_error", (500, "internal_error"), (500, "api_error")),
        (503, "request_queue_timeout", (503, "service_unavailable_error"), (504, "timeout_error")),
        (503, "model_loading", (503, "service_unavailable_error"), (503, "api_error")),
    ],
)
def test_status_and_type_are_those_of_the_api(status, code, openai, anthropic):
    error = ApiError(status, "words", code, "field")
    content = error_body(error, OPENAI, "req_1")["error"]
    assert (error_status(error, OPENAI), content["type"]) == openai
    assert content == {"message": "words", "type": openai[1], "param": "field", "code": code}
    body = error_body(error, ANTHROPIC, "req_1")
    assert (error_status(error, ANTHROPIC), body["error"]["type"]) == anthropic
    assert (body["type"], body["request_id"]) == ("error", "req_1")


@pytest.mark.parametrize(
    ("path", "anthropic"),
    [
        ("/v1/messages", True),
        ("/v1/messages/count_tokens", True),
        ("/v1/messages2", False),
        ("/v1/responses", False),
        ("/messages", False),
    ],
)
def test_the_path_decides(path, anthropic):
    assert ("request_id" in error_body(ApiError(400, ""), path, "x")) == anthropic


def test_seconds_to_wait_are_a_header():
    response = error_response(ApiError(503, "later", retry_after=7), OPENAI, "x")
    assert response.headers["retry-after"] == "7"
    assert "retry-after" not in error_response(ApiError(503, "later"), OPENAI, "x").headers
