"""Values that no request may have, and masks that fail: one request ends, the engine goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from builders.engines import answer, make_engine, random_prompt, run_all
from ninfer_runtime.engine.request import ERROR, Media, Request, Sampling
from ninfer_runtime.errors import RequestError

NAN, INF = float("nan"), float("inf")
PLAIN = Request(random_prompt(6, seed=9), 3)
POSITIONS = torch.arange(6, dtype=torch.int32).expand(3, -1)
WRONG_SAMPLING = {
    "temperature": (-1, NAN, INF, "hot", True),
    "top_k": (-1, 2**31, 1.5),
    "top_p": (-0.1, 1.1, NAN),
    "min_p": (2, NAN),
    "seed": (-1, 2**63, 0.5),
    "repetition": (0, -1, NAN),
    "presence": (INF, 101),
    "frequency": (NAN, -101),
}
CASES = [(name, value) for name, values in WRONG_SAMPLING.items() for value in values]


@pytest.fixture(scope="module")
def engine(artifact):
    return make_engine(artifact("dense"), lanes=2)


@pytest.mark.parametrize(("name", "value"), CASES)
def test_sampling_out_of_range_is_refused_by_name(engine, name, value):
    """EN-8"""
    request = replace(PLAIN, sampling=Sampling(**{"temperature": 1.0, name: value}))
    with pytest.raises(RequestError, match=f"^{name} is out of range"):
        engine.add(request)
    assert not engine.busy


@pytest.mark.parametrize("value", [NAN, INF, "x"])
def test_bias_that_is_no_number_is_refused(engine, value):
    """EN-8: but a token may be forbidden."""
    with pytest.raises(RequestError, match="the bias of token 5 is out of range"):
        engine.add(replace(PLAIN, sampling=Sampling(bias={5: value})))
    first = answer(engine, PLAIN).tokens[0]
    forbidden = replace(PLAIN, sampling=Sampling(bias={first: -INF}))
    assert first not in answer(engine, forbidden).tokens


WRONG_FIELDS = {
    "float id": ({"prompt": (1.5,)}, "unknown token id"),
    "text id": ({"prompt": ("a",)}, "unknown token id"),
    "no tuple": ({"prompt": "abc"}, "not a tuple of token ids"),
    "half a token": ({"max_tokens": 1.5}, "no tokens are asked for"),
    "nothing": ({"max_tokens": None}, "no tokens are asked for"),
    "logprobs": ({"logprobs": 1.5}, "log probabilities"),
    "mask": ({"mask": 5}, "the mask cannot be called"),
    "rows": ({"media": Media(torch.zeros(2, 128), torch.tensor([1]), POSITIONS)}, "media do not"),
    "place": ({"media": Media(torch.zeros(1, 128), torch.tensor([6]), POSITIONS)}, "media do not"),
    "width": ({"media": Media(torch.zeros(1, 5), torch.tensor([1]), POSITIONS)}, "media do not"),
}


@pytest.mark.parametrize("name", WRONG_FIELDS)
def test_fields_of_another_kind_are_refused(engine, name):
    """EN-8"""
    changes, message = WRONG_FIELDS[name]
    with pytest.raises(RequestError, match=message) as caught:
        engine.add(replace(PLAIN, **changes))
    assert "\n" not in str(caught.value) and not engine.busy


def late(tokens: tuple[int, ...]) -> torch.Tensor:
    if len(tokens) == 2:
        raise KeyError("no such\nstate")
    return torch.full((10,), -1, dtype=torch.int32)


MASKS = {
    "raises": (late, 2, "the mask failed: KeyError: 'no such"),
    "nothing": (lambda tokens: None, 0, "the mask failed: ValueError: got NoneType"),
    "shape": (lambda tokens: torch.zeros(3, dtype=torch.int32), 0, "the mask failed: ValueError"),
    "none allowed": (lambda tokens: torch.zeros(10, dtype=torch.int32), 0, "allows no token"),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_that_fails_ends_its_own_request_only(engine, name):
    """EN-9: the other lane's tokens are those of a lone run, and the lane can be used again."""
    mask, count, message = MASKS[name]
    want = answer(engine, PLAIN).tokens
    bad, good = (
        engine.add(request) for request in (replace(PLAIN, max_tokens=5, mask=mask), PLAIN)
    )
    answers = run_all(engine)
    assert (len(answers[bad].tokens), answers[bad].finish) == (count, ERROR)
    assert message in (answers[bad].error or "") and "\n" not in (answers[bad].error or "")
    assert answers[good].tokens == want == answer(engine, PLAIN).tokens
