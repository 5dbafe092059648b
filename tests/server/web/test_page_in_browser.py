"""The page in a real browser (HT-20). Where none is installed these tests are left out, with the
reason in the run's summary; `test_page.py` and `test_page_logic.py` need none."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.browser import Tab
from builders.fake_service import end, say
from builders.pictures import encode_picture, random_pixels
from ninfer_runtime.frontend.tool_calls.call_delta import CallDelta
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.events import TOOL_CALLS, Delta
from ninfer_runtime.server.http_options import HttpOptions

HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    "<a href=\"javascript:document.title='owned'\">x</a></div></article>"
)


def ask(tab: Tab, text: str = "Hello?") -> None:
    tab.value("document.getElementById('question').focus()")
    tab.type(text)
    tab.press("Enter")


def answered(tab: Tab, count: int = 1) -> str:
    """Wait for the end of answer number `count`; return all its text."""
    tab.wait(
        f"document.querySelectorAll('article.assistant[aria-busy=false]').length >= {count}"
        " && !document.getElementById('send').disabled"
    )
    return tab.value("[...document.querySelectorAll('article.assistant')].at(-1).innerText")


def test_an_answer_streams_with_its_thought_folded_and_its_figures(fake, open_page):
    fake.script = [(0, Delta(reasoning="Secret thought.")), *say("Hel", "lo")]
    tab = open_page()
    ask(tab)
    text = answered(tab)
    assert "Hello" in text and "Secret" not in text and "Thought for" in text
    assert "drafts accepted 75% of 4" in text and "tok/s" in text
    tab.value("document.querySelector('.thinking summary').focus()")
    tab.press("Enter")
    tab.wait("document.querySelector('.thinking').open")
    assert "Secret thought." in tab.text("article.assistant")
    assert tab.complaints() == []


def test_a_long_answer_in_many_pieces_does_not_hold_the_page_up(fake, open_page):
    """Drawing every piece by itself took the square of the length: minutes."""
    fake.script = say(*(f"word{n} " for n in range(15_000)))
    tab = open_page()
    began = time.monotonic()
    ask(tab)
    answered(tab)
    assert time.monotonic() - began < 15
    length = tab.value("document.querySelector('article.assistant .text').textContent.length")
    assert length == sum(len(f"word{n} ") for n in range(15_000))


def test_while_an_answer_is_under_way_the_page_says_what_is_done_for_it(fake, open_page):
    fake.admission = [1.0]
    fake.script = [1.0, (0, Delta(content="Hm")), 1.5, (0, end())]
    tab = open_page()
    ask(tab)
    figures = "document.querySelector('.figures').textContent"
    tab.wait(f"{figures} === 'waiting for a lane'")
    tab.wait(f"{figures} === 'reading the prompt'")
    tab.wait("document.querySelector('article.assistant .text').textContent === 'Hm'")
    assert tab.value("document.getElementById('stop').hidden") is False
    tab.wait(f"{figures}.includes('3 tokens')")


def test_what_a_model_says_is_never_markup(fake, open_page):
    call = CallDelta(0, "c", HOSTILE, json.dumps({"a": HOSTILE}))
    fake.script = [
        (0, Delta(reasoning=HOSTILE)), (0, Delta(content=HOSTILE)), (0, Delta(calls=(call,))),
        (0, end(TOOL_CALLS, warnings=(HOSTILE,))),
    ]  # fmt: skip
    tab = open_page()
    ask(tab, HOSTILE)
    answered(tab)
    tab.value("document.querySelector('.thinking').open = true")
    assert tab.text("#transcript").count("<script>document.title") == 7
    assert tab.value("document.querySelectorAll('#transcript :is(img, script, a)').length") == 0
    assert tab.value("document.title") == "demo - NInfer"
    assert tab.complaints() == []


def test_the_policy_keeps_a_script_from_running_even_as_markup(open_page):
    tab = open_page()
    tab.value(
        "document.body.insertAdjacentHTML('beforeend', "
        '\'<img src="data:," onerror="document.title=1">\') || 1'
    )
    tab.value("new Promise((resolve) => setTimeout(resolve, 100))")
    assert tab.value("document.title") == "demo - NInfer"
    assert any("Content Security Policy" in text for text in tab.complaints())


def test_a_stop_keeps_what_was_said_and_frees_the_lane(fake, open_page):
    fake.script = [(0, Delta(content="Once upon")), 60.0, (0, end())]
    tab = open_page()
    ask(tab, "A story.")
    tab.wait("document.querySelector('article.assistant .text').textContent === 'Once upon'")
    assert fake.open == 1
    tab.click("#stop")
    assert "stopped" in answered(tab)
    tab.wait("document.getElementById('queue').textContent.startsWith('0 running')")
    fake.script = say("Yes.")
    ask(tab, "Go on?")
    answered(tab, 2)
    assert [(m["role"], m["content"]) for m in fake.seen[-1].messages] == [
        ("user", "A story."), ("assistant", "Once upon"), ("user", "Go on?"),
    ]  # fmt: skip


def test_escape_before_the_first_word_gives_the_question_back(fake, open_page):
    fake.admission = [60.0]
    tab = open_page()
    ask(tab, "A story.")
    tab.wait("document.querySelector('article.assistant')")
    tab.press("Escape")
    answered(tab)
    assert tab.value("document.getElementById('question').value") == "A story."


def test_calls_are_shown_and_their_results_sent(fake, open_page):
    call = CallDelta(0, "c7", "look_up", '{"word":"sun"}')
    fake.script = [(0, Delta(calls=(call,))), (0, end(TOOL_CALLS))]
    tab = open_page()
    tools = [{"type": "function", "function": {"name": "look_up"}}]
    tab.value(f"document.getElementById('tools').value = {json.dumps(json.dumps(tools))}")
    ask(tab)
    assert '{\n  "word": "sun"\n}' in answered(tab)
    assert fake.seen[-1].tools[0]["function"]["name"] == "look_up"
    fake.script = say("A star.")
    tab.type("it shines")  # the focus is on the result by itself
    tab.press("Tab")
    tab.press("Enter")
    assert "A star." in answered(tab, 2)
    assistant, result = fake.seen[-1].messages[-2:]
    assert assistant["tool_calls"][0]["id"] == result["tool_call_id"] == "c7"
    assert result["content"] == "it shines"
    assert tab.complaints() == []


def test_tools_that_are_no_json_are_said_before_anything_is_sent(fake, open_page):
    tab = open_page()
    tab.value("document.getElementById('tools').value = '[{'")
    ask(tab)
    assert "not JSON" in answered(tab)
    assert fake.seen == []


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "shape.png"
    path.write_bytes(encode_picture(random_pixels(20, 30)))
    return path


def test_images_are_chosen_dropped_and_pasted(fake, open_page, picture):
    tab = open_page()
    tab.choose_files("#files", picture)
    tab.value(
        "[['drop', 'dataTransfer', DragEvent], ['paste', 'clipboardData', ClipboardEvent]]"
        ".forEach(([name, place, kind]) => { const given = new DataTransfer();"
        "given.items.add(new File([new Uint8Array([1, 2])], name, {type: 'image/png'}));"
        "document.dispatchEvent(new kind(name, {[place]: given})); })"
    )
    tab.wait("document.querySelectorAll('#pictures img').length === 3")
    ask(tab, "What is this?")
    answered(tab)
    *images, text = fake.seen[-1].messages[0]["content"]
    found = [image["image_url"]["url"] for image in images]
    assert sorted(found)[:2] == ["data:image/png;base64,AQI="] * 2
    assert text == {"type": "text", "text": "What is this?"}
    assert tab.value("document.querySelectorAll('article.user img').length") == 3
    assert tab.value("document.querySelectorAll('#pictures img').length") == 0


def test_a_file_that_is_no_image_is_refused_and_an_image_can_be_removed(
    open_page, picture, tmp_path
):
    tab = open_page()
    tab.choose_files("#files", picture, Path(__file__))
    tab.wait("document.querySelector('#pictures img')")
    assert "test_page_in_browser.py is not an image" in tab.text("#notice")
    tab.click("#pictures button")
    assert tab.value("document.querySelectorAll('#pictures img').length") == 0


def test_a_server_with_keys_asks_for_one(open_page):
    tab = open_page(HttpOptions(keys=("one",)), ready=False)
    tab.wait("!document.getElementById('key-form').hidden")
    for key in ("wrong", "one"):
        tab.wait("document.activeElement.id === 'key'")
        tab.value("document.getElementById('key').value = ''")
        tab.type(key)
        tab.press("Enter")
        if key == "wrong":
            tab.wait("document.getElementById('key-refused').textContent.includes('know')")
    tab.wait("document.getElementById('state').textContent === 'ready'")
    ask(tab)
    assert "Hello" in answered(tab)


def test_a_server_that_loads_says_how_far_it_is_and_then_that_it_is_ready(fake, open_page):
    fake.status = ("loading", 42.0)
    tab = open_page(ready=False)
    tab.wait("document.getElementById('state').textContent === 'loading the model: 42%'")
    assert tab.value("document.getElementById('loading').value") == 42
    fake.status = ("ready", 0)
    tab.wait("document.getElementById('state').textContent === 'ready'")
    assert tab.value("document.getElementById('loading').hidden")
    fake.status = ("failed", "out of memory")
    tab.wait("document.getElementById('state').textContent === 'failed: out of memory'")


def test_a_refusal_is_shown_and_the_question_given_back(fake, open_page):
    fake.refusal = ApiError(429, "16 requests wait already", "server_overloaded")
    tab = open_page()
    ask(tab, "Hello?")
    assert "16 requests wait already (429)" in answered(tab)
    assert tab.value("document.getElementById('question').value") == "Hello?"
    fake.refusal = None
    tab.press("Enter")
    assert "Hello" in answered(tab, 2)
    assert [m["content"] for m in fake.seen[-1].messages] == ["Hello?"]


def test_a_failure_in_the_middle_is_shown_beside_what_came(fake, open_page):
    fake.script = [(0, Delta(content="Half of")), ApiError(500, "the engine broke")]
    tab = open_page()
    ask(tab)
    text = answered(tab)
    assert "Half of" in text and "the engine broke" in text


def test_a_new_chat_forgets_the_old_one_and_cancels_it(fake, open_page):
    fake.script = [(0, Delta(content="Once")), 60.0, (0, end())]
    tab = open_page()
    ask(tab, "A story.")
    tab.wait("document.querySelector('article.assistant .text').textContent === 'Once'")
    tab.click("#new-chat")
    tab.wait("document.getElementById('queue').textContent.startsWith('0 running')")
    assert tab.value("document.querySelectorAll('article').length") == 0
    fake.script = say("Yes.")
    ask(tab, "Hello?")
    answered(tab)
    assert [m["content"] for m in fake.seen[-1].messages] == ["Hello?"]


def test_settings_go_into_the_request(fake, open_page):
    tab = open_page()
    efforts = tab.value("[...document.getElementById('effort').options].map((o) => o.value)")
    assert efforts == ["", *fake.card.efforts]
    settings = {"thinking": "on", "effort": "low", "temperature": "0", "max-tokens": "5"}
    for id, value in settings.items():
        tab.value(f"document.getElementById('{id}').value = '{value}'")
    tab.value("document.getElementById('system').value = 'Be short.'")
    ask(tab)
    answered(tab)
    request = fake.seen[-1]
    assert [m["role"] for m in request.messages] == ["system", "user"]
    assert (request.thinking.enabled, request.thinking.effort) == (True, "low")
    assert request.answer.max_tokens == 5
    assert request.answer.sampling.temperature == 0


def test_everything_can_be_reached_by_keyboard(open_page):
    tab = open_page()
    assert tab.value("document.activeElement.id") == "question"
    reached = []
    for _ in range(16):
        tab.press("Tab")
        reached.append(tab.value("document.activeElement.id || document.activeElement.innerText"))
    # Stop is there only while there is something to stop.
    assert {"choose", "send", "new-chat", "transcript", "Status", "Settings"} <= set(reached)
    assert "files" not in reached


def test_shift_and_enter_break_the_line(fake, open_page):
    tab = open_page()
    tab.type("one")
    tab.press("Enter", modifiers=8)
    tab.type("two")
    assert tab.value("document.getElementById('question').value") == "one\ntwo"
    assert fake.seen == []


@pytest.mark.parametrize("width", [320, 700, 1400])
def test_the_page_fits_its_window(fake, open_page, width):
    fake.script = say("x" * 500 + " " + "word " * 300)
    tab = open_page()
    tab.resize(width, 640)
    ask(tab, "y" * 300)
    answered(tab)
    assert tab.value("document.documentElement.scrollWidth") <= width
    bottom = "document.getElementById('composer').getBoundingClientRect().bottom"
    assert tab.value(bottom) <= 640
    # The end of the answer is in sight.
    assert tab.value(
        "((e) => e.scrollHeight - e.scrollTop - e.clientHeight < 80)"
        "(document.getElementById('transcript'))"
    )


def test_the_page_is_light_or_dark_as_the_system_is(open_page):
    tab = open_page()
    grounds = []
    for scheme in ("light", "dark"):
        tab.emulate(prefers_color_scheme=scheme)
        grounds.append(tab.value("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(251, 251, 250)", "rgb(20, 21, 23)"]


def test_lanes_and_queue_are_shown(open_page):
    tab = open_page()
    tab.wait("document.querySelectorAll('#lanes li').length === 4")
    assert tab.text("#lanes").startswith("Lane 0")
    assert tab.text("#queue") == "0 running, 1 waiting"
    assert tab.text("#memory-text") == "192 of 4,096"


def test_speed_is_shown_live_beside_the_answer_and_in_the_status(fake, open_page):
    began = time.monotonic()

    def slots():
        made = int((time.monotonic() - began) * 50)
        return [{"id": 0, "is_processing": True, "predicted_tokens": made, "max_tokens": 9000}]

    fake.slots = slots
    fake.script = [(0, Delta(content="Once")), 4.0, (0, end())]
    tab = open_page()
    ask(tab)
    tab.wait("document.querySelector('.figures')?.textContent.endsWith('tok/s')")
    for place in (".figures", "#rate"):
        assert 35 < float(tab.text(place).split()[0]) < 65
    assert tab.text("#lanes").endswith("of at most 9,000")
    answered(tab)
    tab.wait("document.getElementById('acceptance').textContent === '75% of 4'")


@pytest.fixture
def real_page(browser, server) -> Iterator[Tab]:
    tab = browser.open(server.url)
    tab.wait("document.getElementById('state').textContent === 'ready'")
    tab.value("document.getElementById('temperature').value = '0'")
    yield tab


def test_the_demo_model_thinks_and_answers_on_the_page(real_page):
    ask(real_page, "The code for path is 718758.\nThe code for seed is 120133.\n\n"
        "What is the code for path?")  # fmt: skip
    text = answered(real_page)
    assert "718758" in text and "Thought for" in text and "drafts accepted" in text
    real_page.wait("document.getElementById('acceptance').textContent.includes('%')")
    assert "tok/s" in real_page.text("#mean-rate")
    assert "MiB" in real_page.text("#weights")
    assert real_page.complaints() == []
