"""Switch, effort and budget in every spelling (HT-12, case 36)."""

from __future__ import annotations

import pytest

from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.requests import ThinkingFields
from ninfer_runtime.server.thinking import fit_effort, join_thinking

LEVELS = ("low", "medium", "xhigh")


@pytest.mark.parametrize(
    ("given", "supported", "effective"),
    [
        ("minimal", LEVELS, "low"),
        ("low", LEVELS, "low"),
        ("medium", LEVELS, "medium"),
        ("high", LEVELS, "xhigh"),
        ("xhigh", LEVELS, "xhigh"),
        ("max", LEVELS, "xhigh"),
        ("max", ("low", "max"), "max"),
        ("deep", ("deep",), "deep"),
        ("high", (), None),
        (None, LEVELS, None),
    ],
)
def test_case_36_effort_becomes_the_nearest_of_the_template(given, supported, effective):
    assert fit_effort(given, supported, "reasoning_effort") == effective


@pytest.mark.parametrize("supported", [LEVELS, ()])
def test_case_36_unknown_effort_is_refused_with_the_accepted_words(supported):
    with pytest.raises(ApiError) as caught:
        fit_effort("banana", supported, "reasoning_effort")
    error = caught.value
    assert (error.status, error.code) == (400, "reasoning_effort_not_supported")
    assert error.param == "reasoning_effort"
    for word in ("none", "minimal", "low", "medium", "high", "xhigh", "max"):
        assert word in error.message


@pytest.mark.parametrize(
    ("effort", "enabled", "budget", "kwargs", "fields"),
    [
        (None, None, None, {}, ThinkingFields()),
        ("none", None, None, {}, ThinkingFields(False)),
        ("none", False, None, {}, ThinkingFields(False)),
        ("high", None, None, {}, ThinkingFields(True, "high")),
        (None, None, 50, {}, ThinkingFields(True, None, 50)),
        (None, None, 0, {}, ThinkingFields(False)),
        (None, None, None, {"enable_thinking": False}, ThinkingFields(False)),
        ("low", None, None, {"reasoning_effort": "low"}, ThinkingFields(True, "low")),
        (None, True, None, {"thinking_budget": 9}, ThinkingFields(True, None, 9)),
    ],
)
def test_spellings_that_agree_are_one(effort, enabled, budget, kwargs, fields):
    assert join_thinking(effort, enabled, budget, kwargs) == fields


@pytest.mark.parametrize(
    ("effort", "enabled", "budget", "kwargs"),
    [
        ("none", True, None, {}),
        ("low", False, None, {}),
        ("low", None, None, {"reasoning_effort": "xhigh"}),
        (None, True, None, {"enable_thinking": False}),
        (None, False, 10, {}),
        (None, True, 0, {}),
        ("none", None, 10, {}),
    ],
)
def test_case_36_spellings_that_disagree_are_refused(effort, enabled, budget, kwargs):
    with pytest.raises(ApiError) as caught:
        join_thinking(effort, enabled, budget, kwargs)
    assert (caught.value.status, caught.value.code) == (400, "conflicting_template_option")
