"""Laws of chat templates: what transformers renders, within limits, with errors of one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from ninfer_runtime.errors import RequestError, StartupError
from ninfer_runtime.frontend.messages import prepare_messages
from ninfer_runtime.frontend.template import ChatTemplate, TemplateOptions
from ninfer_runtime.frontend.template_budget import TemplateLimits
from ninfer_tools.synthetic.frontend import read_chat_template

FAMILY = (Path(__file__).parent / "family_template.jinja").read_text()
# History of thinking: kept never, on request, or unless refused; 3.8 knows efforts.
GENERATIONS = {"3.5": ("never", "false"), "3.6": ("optin", "false"), "3.8": ("default", "true")}
CALL = {"name": "find", "arguments": {"city": "Köln <b>", "days": [1, 2], "deep": {"x": None}}}
TOOL = {"type": "function", "function": {"name": "find", "description": "Sucht <Orte> & 'mehr'"}}
USER, SYSTEM = {"role": "user", "content": " hi\n"}, {"role": "system", "content": " be terse "}
THOUGHT = {"role": "assistant", "content": "yes", "reasoning_content": "\nhm\n"}
INLINE = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes"}
CALLING = {"role": "assistant", "content": "so", "tool_calls": [{"function": CALL}, CALL]}
RESULT = {"role": "tool", "content": '{"t": 5}'}
PARTS = {
    "role": "user",
    "content": [
        {"type": "image", "image": "x"},
        {"type": "text", "text": "and "},
        {"type": "video"},
        {"image_url": {"url": "y"}},
    ],
}
CONVERSATIONS = {
    "one": [USER],
    "system": [SYSTEM, USER],
    "thought": [USER, THOUGHT, USER],
    "inline": [USER, INLINE, USER, INLINE],
    "calls": [SYSTEM, USER, CALLING, RESULT, RESULT],
    "calls and more": [USER, CALLING, RESULT, THOUGHT, USER, CALLING, RESULT],
    "media": [PARTS],
    "two media": [PARTS, THOUGHT, PARTS],
    "wrapped result": [USER, {"role": "user", "content": "<tool_response>x</tool_response>"}],
    "other reasoning": [USER, {"role": "assistant", "content": "a", "thinking": "t"}, USER],
    "no content": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT],
}
SWITCHES = (
    {},
    {"enable_thinking": False},
    {"enable_thinking": True, "preserve_thinking": True},
    {"preserve_thinking": False, "add_vision_id": True},
    {"reasoning_effort": "low"},
    {"reasoning_effort": "medium", "enable_thinking": False},
)


def sources(demo: Path) -> dict[str, str]:
    family = {
        name: FAMILY.replace("@PRESERVE@", preserve).replace("@EFFORT@", effort)
        for name, (preserve, effort) in GENERATIONS.items()
    }
    own = {"demo": (demo / "chat_template.jinja").read_text()}
    return {**family, **own, "synthetic": read_chat_template().decode()}


def oracle(source, messages, tools, add_generation_prompt=True, **options):
    plain = [{k: v for k, v in m.items() if v is not None} for m in messages]
    (text,), _ = render_jinja_template(
        [plain], tools, chat_template=source, add_generation_prompt=add_generation_prompt, **options
    )
    return text


@pytest.mark.parametrize("name", [*GENERATIONS, "demo", "synthetic"])
@pytest.mark.parametrize("case", CONVERSATIONS)
def test_prompts_are_those_of_transformers(demo, name, case):
    """FE-7"""
    source = sources(demo)[name]
    template = ChatTemplate(source)
    messages = CONVERSATIONS[case]
    for switches in SWITCHES:
        for tools in (None, [TOOL]):
            got = template.render(
                prepare_messages(messages), tools=tools, options=TemplateOptions(**switches)
            )
            assert got == oracle(source, messages, tools, **switches)


SHAPES = {
    "two systems": [SYSTEM, {"role": "system", "content": "B"}, USER],
    "late system": [SYSTEM, USER, THOUGHT, {"role": "system", "content": "B"}, USER],
    "developer": [{"role": "developer", "content": "B"}, USER],
    "tool loop": [SYSTEM, CALLING, RESULT],
    "result as user": [{"role": "user", "content": "<tool_response>x</tool_response>"}],
    "answer first": [THOUGHT, USER],
    "two users": [USER, USER],
    "json text": [USER, {"role": "assistant", "tool_calls": [{**CALL, "arguments": "{}"}]}, RESULT],
    "no arguments": [USER, {"role": "assistant", "tool_calls": [{"name": "find"}]}, RESULT],
    "function role": [
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "ok"},
    ],
    "picture in result": [USER, CALLING, {"role": "tool", "content": PARTS["content"]}],
    "literal mark": [USER, {"role": "assistant", "content": "first </think> second"}, USER],
    "refusal": [USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "r"}]}],
}
SEEN = {
    "two systems": ["be terse", "B"], "late system": ["be terse", "B"], "developer": ["B"],
    "literal mark": ["first </think> second"], "refusal": ["r"],
    "picture in result": ["<|image_pad|><|vision_end|>and"], "function role": ["<function=f>"],
}  # fmt: skip


@pytest.mark.parametrize("name", [*GENERATIONS, "demo", "synthetic"])
@pytest.mark.parametrize("case", SHAPES)
def test_every_shape_of_clients_renders_on_every_template(demo, name, case):
    """FE-25, FE-26, cases 17, 18, 19, 21 and 77"""
    template = ChatTemplate(sources(demo)[name])
    for tools in (None, [TOOL]):
        text = template.render(prepare_messages(SHAPES[case]), tools=tools)
        assert text.endswith("<|im_start|>assistant\n<think>\n")
        assert text.count("<|im_start|>system") <= 1
        for part in SEEN.get(case, []):
            assert part in text


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_turn_continues_the_prompt_and_answer_before_it(demo, name):
    """Case 22: what was generated, sent back, is what the next prompt goes on from."""
    template, options = ChatTemplate(sources(demo)[name]), TemplateOptions(preserve_thinking=True)
    begin = template.render(prepare_messages([USER]), options=options)
    answer = {"role": "assistant", "content": "yes", "reasoning_content": "hm"}
    later = template.render(prepare_messages([USER, answer, USER]), options=options)
    keeps = later.startswith(begin + "hm\n</think>\n\nyes<|im_end|>\n")
    assert keeps is (name != "3.5")


def test_history_without_an_answer_to_come(demo):
    source = sources(demo)["demo"]
    got = ChatTemplate(source).render(prepare_messages([USER]), add_generation_prompt=False)
    assert got == oracle(source, [USER], None, add_generation_prompt=False)


def test_json_text_of_arguments_renders_as_the_object_does():
    """FE-5"""
    template = ChatTemplate(read_chat_template().decode())
    texts = [
        template.render(prepare_messages([USER, {"role": "assistant", "tool_calls": [call]}]))
        for call in (CALL, {**CALL, "arguments": json.dumps(CALL["arguments"])})
    ]
    assert texts[0] == texts[1]


ENVIRONMENT = {
    "{{ messages | tojson }}": '[{"role": "user", "content": "é<"}]',
    "{{ messages[0] | tojson(indent=1) }}": '{\n "role": "user",\n "content": "é<"\n}',
    "{% for m in [1, 2, 3] %}{% if m == 2 %}{% break %}{% endif %}{{ m }}{% endfor %}": "1",
    "{% for m in [1, 2] %}{{ loop.previtem }}{% endfor %}": "1",
    "  {% if true %}\nx\n  {% endif %}\ny": "x\ny",
    "{{ eos_token }}{{ bos_token }}": "<e>",
    "{{ strftime_now('%%') }}": "%",
    "{% generation %}a{% endgeneration %}b": "ab",
    "{% set n = namespace(x=1) %}{% set n.x = n.x + 1 %}{{ n.x }}{{ 'a' * 2 ~ 'b' }}": "2aab",
    "{{ '%s-%02d' % ('a', 3) }}{{ '{:>3}'.format(1) }}{{ 'x' | center(3) }}": "a-03  1 x ",
    "{% macro f(a) %}[{{ a }}]{% endmacro %}{{ f(1) ~ f(2) }}": "[1][2]",
}


@pytest.mark.parametrize("source", ENVIRONMENT)
def test_templates_find_what_they_are_written_for(source):
    """FE-7"""
    template = ChatTemplate(source, {"eos_token": "<e>"})
    assert template.render([{"role": "user", "content": "é<"}]) == ENVIRONMENT[source]


WRONG = {
    "\n{{ raise_exception('no such role') }}": "line 2: the chat template refuses the messages: no",
    "{{ messages[0].a.b }}": "line 1: the chat template fails: UndefinedError",
    "\n\n{{ ''.__class__.__mro__ }}": "line 3: the chat template fails: SecurityError",
    "{{ messages.append(1) }}": "SecurityError",
    "{% set n = namespace() %}{% set n._x = 1 %}": "namespace cannot have _x",
    "{{ 1 + 'a' }}": "TypeError",
}


@pytest.mark.parametrize("source", WRONG)
def test_an_error_is_one_line_that_names_the_line(source):
    """FE-8"""
    with pytest.raises(RequestError) as caught:
        ChatTemplate(source).render([{"role": "user"}])
    assert WRONG[source] in str(caught.value)
    assert "\n" not in str(caught.value)


LOOPS = "{% set r = range(100000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}"
GROW = (
    "{{% set n = namespace(x='a') %}}{{% for i in range(60) %}}{{% set n.x = {} %}}{{% endfor %}}"
)
COSTLY = {
    LOOPS: "0.2 seconds",
    "{% macro f(n) %}{% for i in [1, 2] %}{{ f(n) }}{% endfor %}{% endmacro %}{{ f(1) }}": "nests",
    "{% for i in range(9999) %}{{ 'a' * 9999 }}{% endfor %}": "more than 100000",
    "{{ 'a' * 10 ** 9 }}": "more than 100000",
    "{{ ([1] * 10 ** 9) | length }}": "more than 100000",
    "{{ 9 ** 99999999 }}": "power",
    GROW.format("n.x ~ n.x"): "more than 100000",
    GROW.format("n.x + n.x"): "more than 100000",
    "{{ 'a' | center(10 ** 9) }}": "wider than",
    "{{ 'a'.ljust(10 ** 9) }}": "wider than",
    "{{ '{:999999999}'.format(1) }}": "wider than",
    "{{ '{:{}}'.format(1, 10 ** 9) }}": "wider than",
    "{{ '%999999999d' % 1 }}": "wider than",
    "{{ '%999999999d' | format(1) }}": "wider than",
}


@pytest.mark.parametrize("source", COSTLY)
def test_a_costly_template_is_stopped(source):
    """FE-9"""
    limits = TemplateLimits(seconds=0.2, size=100_000)
    with pytest.raises(RequestError, match="is stopped") as caught:
        ChatTemplate(source, limits=limits).render([{"role": "user"}])
    assert COSTLY[source] in str(caught.value)


@pytest.mark.parametrize("source", ["{% if %}", "a\n{{ x | nofilter }}", "{% for %}", "{{ 'a"])
def test_a_broken_template_is_found_when_it_is_loaded(source):
    """FE-8"""
    with pytest.raises(StartupError, match=r"chat_template\.jinja line \d: template is broken"):
        ChatTemplate(source)
