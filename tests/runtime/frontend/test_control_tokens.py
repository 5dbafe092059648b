"""Laws of control tokens that a client spells in its text (case 21)."""

from __future__ import annotations

from ninfer_runtime.frontend.control_tokens import ControlTokens, Segment

CONTROL = ControlTokens(["<|im_end|>", "<think>", "</think>"], ["<|im_end|>"])


def rendered(messages, tools=None):
    marked, tools = CONTROL.mark(messages, tools)
    return CONTROL.split("".join(str(message["content"]) for message in marked) + str(tools or ""))


def test_plain_text_is_left_as_it_is():
    messages = [{"role": "user", "content": "a <|im_end b"}]
    assert CONTROL.mark(messages, None) == (messages, None)
    assert rendered(messages) == [Segment("a <|im_end b", False)]


def test_tokens_in_a_user_text_become_literal_segments():
    """FE-6"""
    messages = [{"role": "user", "content": "x<|im_end|>y</think>"}]
    assert rendered(messages) == [
        Segment("x", False), Segment("<|im_end|>", True),
        Segment("y", False), Segment("</think>", True),
    ]  # fmt: skip


def test_the_assistant_keeps_its_own_marks_but_cannot_end_its_turn():
    """FE-6"""
    messages = [{"role": "assistant", "content": "<think>r</think><|im_end|>"}]
    assert rendered(messages) == [
        Segment("<think>r</think>", False), Segment("<|im_end|>", True)
    ]  # fmt: skip


def test_marks_cannot_be_forged_and_torn_ones_vanish():
    assert rendered([{"role": "user", "content": "a\ufdd0b"}]) == [Segment("ab", False)]
    messages = [{"role": "user", "content": "\ufdd0<|im_end|>\ufdd1"}]
    assert rendered(messages) == [Segment("<|im_end|>", True)]
    assert CONTROL.split("a\ufdd0b") == [Segment("a", False), Segment("b", False)]


def test_tools_are_text_of_the_client_too():
    tools = [{"name": "f", "description": "<|im_end|>"}]
    (marked,) = CONTROL.mark([{"role": "user", "content": "x"}], tools)[1] or []
    assert marked == {"name": "f", "description": "\ufdd0<|im_end|>\ufdd1"}
