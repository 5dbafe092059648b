"""Requests to everything the engine is told (SV-11 to SV-13)."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from builders.live_services import GREEDY, chat
from ninfer_formats.reader import open_artifact
from ninfer_runtime.frontend.frontend import Frontend, load_frontend
from ninfer_runtime.frontend.template import ChatTemplate
from ninfer_runtime.models.qwen3_5.model import read_geometry
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.card import list_efforts, list_variables, make_card
from ninfer_runtime.server.engine_process.messages import Ready
from ninfer_runtime.server.media_shelf import MediaShelf
from ninfer_runtime.server.preparation import Preparation
from ninfer_runtime.server.prompt_boundaries import find_boundaries
from ninfer_runtime.server.requests import AnswerFields, Constraint, TextRequest, ThinkingFields
from ninfer_runtime.server.sampling_defaults import SamplingDefaults
from ninfer_runtime.server.service_options import ServiceOptions

READY = Ready(2, 32768, 32768, 1024, 0, True, "cpu", "float32", "fp32")


@pytest.fixture(scope="module")
def frontend(demo_file: Path) -> Frontend:
    artifact = open_artifact(demo_file)
    return load_frontend(artifact, read_geometry(artifact))


@pytest.fixture(scope="module")
def prepare(demo_file: Path, frontend: Frontend):
    artifact = open_artifact(demo_file)

    def call(request, options=None, ready: Ready = READY, grammars=None, **parts):
        used = replace(frontend, **parts)
        card = make_card(artifact, used, 4096, ready, None)
        defaults = SamplingDefaults()
        preparation = Preparation(used, grammars, defaults, card, options or ServiceOptions())
        text = isinstance(request, TextRequest)
        return (preparation.prepare_text if text else preparation.prepare_chat)(request)

    return call


def picture(width: int = 48, height: int = 32, seed: int = 0, kind: str = "PNG") -> str:
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, kind)
    return f"data:image/{kind.lower()};base64," + base64.b64encode(data.getvalue()).decode()


def see(*urls: str):
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return replace(chat(), messages=({"role": "user", "content": [*parts, {"text": "What?"}]},))


@pytest.mark.parametrize(
    ("asked", "default", "lanes", "capacity", "want"),
    [
        (5, None, 2, 32768, 5),
        (10**9, None, 2, 32768, 32768),
        (None, 100, 2, 32768, 100),
        (None, None, 2, 65536, 32768),
        (None, None, 2, 32768, 16384),
        (None, None, 8, 32768, 8192),
    ],
)
def test_an_answer_may_have_so_many_tokens(prepare, asked, default, lanes, capacity, want):
    """SV-11."""
    ready = replace(READY, lanes=lanes, kv_tokens=capacity)
    prepared = prepare(chat(max_tokens=asked), ServiceOptions(default_max_tokens=default), ready)
    prompt = len(prepared.ids)
    exact = {32768: 32768 - prompt, 16384: 16384 - prompt}
    assert prepared.max_tokens == exact.get(want, want)
    assert prepared.asked_tokens == asked


def test_boundaries_are_where_the_system_turn_ends_and_the_answer_begins(prepare, frontend):
    """SV-12: control tokens that a client spells are none."""
    spelled = {"role": "user", "content": "a <|im_start|> b"}
    system = {"role": "system", "content": "Be <|im_start|> terse."}
    prepared = prepare(replace(chat(), messages=(system, spelled)))
    tokenizer = frontend.tokenizer
    first, last = prepared.boundaries
    assert tokenizer.decode(prepared.ids[first:]).startswith("<|im_start|>user\na <|im_start|> b")
    assert tokenizer.decode(prepared.ids[last:]) == "<|im_start|>assistant\n<think>\n"
    (only,) = prepare(replace(chat(), messages=(spelled,))).boundaries
    assert only > 0
    assert find_boundaries(tokenizer, tokenizer.encode("plain text")) == ()


def test_pictures_are_known_by_what_the_model_sees(prepare):
    """SV-13: the same pixels in another file, other pixels, the same picture twice."""
    one, other = picture(), picture(seed=1)
    media = prepare(see(one, other, one)).media
    digests = [item.digest for item in media.items]
    assert digests[0] == digests[2] != digests[1] and len(digests[0]) == 32
    ids = prepare(see(one, other, one)).ids
    for item in media.items:
        assert set(ids[item.begin : item.end]) == {4044} and ids[item.end] != 4044
    assert prepare(see(picture(kind="BMP"))).media.items[0].digest == digests[0]


def test_a_picture_is_decoded_once(frontend, monkeypatch):
    """SV-13: kept media stay within their bytes."""
    from ninfer_runtime.frontend.messages import MediaPart

    calls = []
    reader = frontend.media
    read = reader.read_image
    monkeypatch.setattr(reader, "read_image", lambda *a: calls.append(a) or read(*a))
    parts = [MediaPart("image", picture(seed=n), f"messages[{n}]") for n in range(3)]
    size = read(base64.b64decode(parts[0].source.partition(",")[2]), "").patches.nbytes
    shelf = MediaShelf(reader, 2 * size)
    for index in (0, 1, 0, 2, 0, 1):
        shelf.read(parts[index])
    assert [a[1] for a in calls] == ["messages[0]", "messages[1]", "messages[2]", "messages[1]"]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("data:image/png;base64,####", "not base64"),
        ("data:image/png,abc", "not a data: URL"),
        ("https://a/b.png", "not a data: URL"),
        ("data:image/png;base64," + base64.b64encode(b"hello").decode(), "cannot be read"),
        (picture(8, 3000), "aspect|ratio"),
    ],
)
def test_a_file_that_is_no_picture_is_refused_by_its_place(prepare, url, reason):
    """SV-13."""
    with pytest.raises(ApiError, match=reason) as caught:
        prepare(see(picture(), url))
    assert (caught.value.code, caught.value.param) == ("invalid_media", "messages[0].content[1]")


def test_pictures_need_vision(prepare):
    """SV-13."""
    with pytest.raises(ApiError, match="--vision") as caught:
        prepare(see(picture()), ready=replace(READY, vision=False))
    assert caught.value.code == "vision_disabled"


@pytest.mark.parametrize(
    ("asked", "server", "thinks", "limited"),
    [
        (ThinkingFields(), ThinkingFields(), True, False),
        (ThinkingFields(False), ThinkingFields(), False, False),
        (ThinkingFields(), ThinkingFields(False), False, False),
        (ThinkingFields(True), ThinkingFields(False), True, False),
        (ThinkingFields(effort="low"), ThinkingFields(False), True, False),
        (ThinkingFields(budget=9), ThinkingFields(False), True, True),
        (ThinkingFields(), ThinkingFields(budget=9), True, True),
        (ThinkingFields(budget=0), ThinkingFields(budget=9), False, False),
        (ThinkingFields(effort="none"), ThinkingFields(), False, False),
    ],
)
def test_a_request_counts_more_than_the_server(prepare, asked, server, thinks, limited):
    """SV-16: with a reserve of nothing only a budget limits."""
    options = ServiceOptions(thinking=server, answer_reserve=0)
    prepared = prepare(chat(thinking=asked, max_tokens=400), options)
    assert prepared.thinking.enabled == thinks == prepared.watch.thinking
    assert prepared.thinking.budget == prepared.watch.limit == (9 if limited else None)
    assert prepared.text.endswith("<think>\n") == thinks


def test_variables_of_the_template_come_from_server_and_request(prepare):
    """SV-10: the request's count more; control tokens stay where they are."""
    template = ChatTemplate("{{ a }}{{ b }}{{ messages[0].content }}{{ reasoning_effort }}")
    request = replace(chat("hi"), template={"b": "2"}, thinking=ThinkingFields(effort="low"))
    options = ServiceOptions(template={"a": "1", "b": "0"})
    assert prepare(request, options, template=template).text == "12hilow"


def test_ids_are_taken_as_they_are(prepare):
    """SV-14: within the vocabulary; there must be one."""
    answer = AnswerFields(sampling=GREEDY)
    assert prepare(TextRequest((4033, 5), answer)).ids == (4033, 5)
    for prompt, reason in (((4096,), "no token has id 4096"), ((-1,), "-1"), ("", "empty")):
        with pytest.raises(ApiError, match=reason) as caught:
            prepare(TextRequest(prompt, answer))
        assert caught.value.param == "prompt"


def test_a_constraint_without_its_library_is_refused(prepare):
    """SV-18."""
    with pytest.raises(ApiError, match="llguidance"):
        prepare(chat(constraint=Constraint("json_object")))


def test_a_grammar_that_compiles_for_too_long_is_refused(prepare, monkeypatch):
    """SV-18: in seconds of a processor, whatever else the machine does."""

    class Slow:
        def compile(self, constraint: Constraint) -> None:
            clock["now"] += seconds

    clock = {"now": 0.0}
    monkeypatch.setattr("ninfer_runtime.server.preparation.time.thread_time", lambda: clock["now"])
    request = chat(constraint=Constraint("regex", "a", param="guided_regex"))
    seconds = 2.9
    prepare(request, grammars=Slow())
    seconds = 3.1
    with pytest.raises(ApiError, match="3 s to compile") as caught:
        prepare(request, grammars=Slow())
    assert caught.value.param == "guided_regex"


@pytest.mark.parametrize(
    ("source", "efforts"),
    [
        ("{{ messages[0].content }}", ()),
        ("{{ reasoning_effort }}", ("minimal", "low", "medium", "high", "xhigh", "max")),
        (
            "{% if reasoning_effort not in ('low', 'medium', 'xhigh') %}"
            "{{ raise_exception('no') }}{% endif %}{{ reasoning_effort }}",
            ("low", "medium", "xhigh"),
        ),
        ("{# reasoning_effort #}", ()),
    ],
)
def test_efforts_are_those_a_template_tells_apart(source, efforts):
    """SV-1: found by rendering."""
    assert list_efforts(ChatTemplate(source)) == efforts


def test_variables_are_those_a_template_takes():
    """SV-1: not its own, not the parameters of its macros, not what every template has."""
    source = (
        "{%- set x = x if x is defined else 1 %}{% set y = 2 %}{{ y }}{{ z }}"
        "{% for m in messages %}{{ m }}{{ strftime_now('%Y') }}{% endfor %}"
        "{% macro f(p) %}{{ p is undefined }}{% endmacro %}{{ q | default(3) }}"
    )
    assert list_variables(source) == {"x", "z", "q"}
