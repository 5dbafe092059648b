"""Laws of how options reach the parts of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninfer_formats.errors import NinferError
from ninfer_runtime.server.requests import SamplingFields, ThinkingFields
from ninfer_runtime.server.sampling_defaults import SamplingDefaults
from ninfer_tools.serve_session.api_keys import gather_keys
from ninfer_tools.serve_session.options import ServeOptions
from ninfer_tools.serve_session.service_setup import make_http_options, make_service_options


def test_options_of_answers_reach_the_service(tmp_path: Path):
    template = tmp_path / "t.jinja"
    template.write_text("{{ messages[0].content }}")
    found = make_service_options(
        ServeOptions(
            model_id="m", default_max_tokens=5, thinking_budget=7, reasoning_effort="low",
            preserve_thinking=True, answer_reserve=9, chat_template=template, top_k=3, min_p=0.5,
            logit_bias=("4=-inf", "5=2"), seed=11, greedy=True, max_pending_requests=2,
            pending_timeout_ms=1500, media_cache_mib=1,
        )
    )  # fmt: skip
    assert (found.model_id, found.default_max_tokens, found.answer_reserve) == ("m", 5, 9)
    assert found.thinking == ThinkingFields(True, "low", 7)
    assert found.template == {"preserve_thinking": True}
    assert found.template_source == "{{ messages[0].content }}"
    bias = {4: float("-inf"), 5: 2.0}
    assert found.sampling == SamplingFields(top_k=3, min_p=0.5, seed=11, bias=bias)
    assert (found.greedy, found.max_pending, found.pending_seconds) == (True, 2, 1.5)
    assert found.media_bytes == 1 << 20


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, ThinkingFields()),
        ({"thinking": False}, ThinkingFields(False)),
        ({"reasoning_effort": "none"}, ThinkingFields(False)),
        ({"reasoning_effort": "high"}, ThinkingFields(True, "high")),
        ({"thinking": False, "thinking_budget": 5}, ThinkingFields(False, None, 5)),
    ],
)
def test_thinking_where_a_request_does_not_say(options: dict, want: ThinkingFields):
    assert make_service_options(ServeOptions(**options)).thinking == want


def test_a_request_s_bias_goes_before_the_option_s():
    flags = make_service_options(ServeOptions(logit_bias=("4=1", "5=1"))).sampling
    chosen = SamplingDefaults({}, flags).choose(SamplingFields(bias={5: 2.0}))
    assert chosen.bias == {4: 1.0, 5: 2.0}


def test_limits_and_records_reach_http(tmp_path: Path):
    options = ServeOptions(
        cors=True, max_request_mib=2, allow_media_urls=True, request_log_jsonl=tmp_path / "r",
        request_log_max_mib=0, request_log_keep=1,
    )  # fmt: skip
    found = make_http_options(options, ("k",))
    assert (found.keys, found.cors, found.media_urls) == (("k",), True, True)
    assert (found.request_bytes, found.log_bytes, found.log_keep) == (2 << 20, 0, 1)
    assert found.request_log == tmp_path / "r"


def test_keys_come_from_options_and_files(tmp_path: Path):
    keys = tmp_path / "keys"
    keys.write_text("# of clients\none\n\ntwo\n")
    spelled = ServeOptions(api_key=("a", f"@{keys}", "a/b", str(keys)), api_key_file=keys)
    assert gather_keys(spelled) == ("a", "one", "two", "a/b")
    assert gather_keys(ServeOptions()) == ()


def test_a_file_without_a_key_is_refused(tmp_path: Path):
    (tmp_path / "none").write_text("# nothing\n")
    with pytest.raises(NinferError, match="no API key"):
        gather_keys(ServeOptions(api_key_file=tmp_path / "none"))
