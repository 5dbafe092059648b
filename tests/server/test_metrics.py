"""GET /metrics (HT-18)."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from builders.fake_service import FakeService
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.http_options import HttpOptions

PATH = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "hi"}]}


def read_metrics(http: httpx.Client) -> dict[str, float]:
    text = http.get("/metrics").text
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_totals_add_up_over_requests(http: httpx.Client, fake: FakeService):
    before = read_metrics(http)
    assert before["ninfer:requests_total"] == 0
    http.post(PATH, json=HI)
    http.post(PATH, json={**HI, "stream": True})
    http.post(PATH, json={**HI, "foo": 1})
    fake.script = [ApiError(500, "broken", "generation_failed")]
    http.post(PATH, json={**HI, "stream": True})
    fake.refusal = ApiError(503, "gone", "service_unavailable")
    http.post(PATH, json=HI)
    found = read_metrics(http)
    assert found["ninfer:requests_total"] == 5
    assert found["ninfer:requests_rejected_total"] == 1
    assert found["ninfer:requests_failed_total"] == 2
    assert found["ninfer:requests_admitted_total"] == 3
    assert found["llamacpp:prompt_tokens_total"] == 10
    assert found["llamacpp:prompt_seconds_total"] == 1.0
    assert found["llamacpp:tokens_predicted_total"] == 6
    assert found["llamacpp:prompt_tokens_seconds"] == 10
    assert found["llamacpp:predicted_tokens_seconds"] == 6 / 0.2
    assert found["ninfer:draft_tokens_total"] == 8
    assert found["ninfer:draft_accepted_tokens_total"] == 6
    assert found["ninfer:uptime_seconds"] > 0


def test_gauges_come_from_the_service(http: httpx.Client):
    found = read_metrics(http)
    assert (found["ninfer:kv_pages"], found["ninfer:kv_pages_used"]) == (64, 3)
    assert found["ninfer:waiting"] == found["llamacpp:requests_deferred"] == 1


def test_metrics_need_a_key(serve):
    http = serve(HttpOptions(keys=("one",))).http
    assert http.get("/metrics").status_code == 401
