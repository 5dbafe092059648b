"""What a service keeps to when its model or its clients go astray (SV-5, SV-17)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builders.live_services import GREEDY, LiveService, chat
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.requests import Constraint, ThinkingFields
from ninfer_runtime.server.service_options import ServiceOptions


@pytest.fixture(scope="module")
def live(demo_file: Path) -> Iterator[LiveService]:
    """A service with two lanes, drafts, and room for two requests that wait."""
    live = LiveService(demo_file, ServiceOptions(max_pending=2), speculator="mtp")
    live.wait_until("ready")
    yield live
    live.close()


def test_a_schema_is_kept_where_the_model_ends_in_its_reasoning(live):
    """SV-17, SV-20: a stop id drawn as the first token, with and without a budget."""
    constraint = Constraint("json_schema", '{"enum": [{"a": 1}, {"a": 2}]}')
    sampling = replace(GREEDY, bias={live.service.tokenizer.stops[0]: 100.0})
    for thinking in (ThinkingFields(), ThinkingFields(True, budget=20)):
        fields = {"constraint": constraint, "sampling": sampling, "thinking": thinking}
        (whole,) = live.run(live.ask(chat("What is the weather in Paris?", **fields)))
        assert json.loads(whole.content) in ({"a": 1}, {"a": 2})
        assert whole.finished.reason == "stop" and whole.finished.usage.reasoning > 0
        assert ["was closed after 0 tokens" in w for w in whole.finished.warnings] == [True]


def test_requests_that_are_prepared_take_room_too(live, monkeypatch):
    """SV-5: and the count of one that failed, or was given up, is given back."""
    go = threading.Event()
    preparation = live.service._preparation
    kept = preparation.prepare_chat
    monkeypatch.setattr(preparation, "prepare_chat", lambda request: go.wait(30) and kept(request))

    async def crowd() -> None:
        tasks = [asyncio.create_task(live.service.prepare_chat(chat())) for _ in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as caught:
            await live.service.prepare_chat(chat())
        assert (caught.value.status, caught.value.code) == (429, "server_overloaded")
        tasks[0].cancel()
        go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        while live.service._admission.preparing:
            await asyncio.sleep(0.01)
        await live.service.prepare_chat(chat())

    live.run(crowd())
