"""The OpenAPI document is true (HT-19)."""

from __future__ import annotations

import httpx
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from builders.fake_service import FakeService
from ninfer_runtime.server.app import create_app

APP = create_app(FakeService())
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP)
POSTS = [
    "/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template",
    "/v1/responses", "/v1/responses/input_tokens", "/v1/messages", "/v1/messages/count_tokens",
]  # fmt: skip


@SCHEMA.parametrize()
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_a_documented_one(case):
    # Some fields exclude each other, which their schemas do not say: those are documented 400s.
    case.call_and_validate(excluded_checks=[positive_data_acceptance])


def test_every_route_of_the_application_is_described(http: httpx.Client):
    document = http.get("/openapi.json").json()
    for path in POSTS:
        operation = document["paths"][path]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        assert schema["properties"], path
        assert schema["additionalProperties"] is False
        assert {"200", "400", "401", "413", "415", "429", "500", "503"} <= set(
            operation["responses"]
        )
    assert {"/health", "/v1/models", "/metrics", "/slots", "/props"} <= set(document["paths"])


def test_the_page_of_the_document_needs_nothing_from_outside(http: httpx.Client):
    page = http.get("/docs").text
    for field in ("messages", "max_completion_tokens", "No effect"):
        assert field in page
    assert "src=" not in page
    assert "http://" not in page.replace("http://127.0.0.1", "")
    assert "https://" not in page
