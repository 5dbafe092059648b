"""Preset, flags, request, --greedy (SV-10)."""

from __future__ import annotations

import pytest

from ninfer_formats.errors import ArtifactError
from ninfer_runtime.server.api_error import ApiError
from ninfer_runtime.server.requests import SamplingFields
from ninfer_runtime.server.sampling_defaults import SamplingDefaults, next_seed

PRESET = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.95}


def test_each_value_is_that_of_the_last_who_states_it():
    """SV-10: a stated 0 is a statement."""
    defaults = SamplingDefaults(PRESET, SamplingFields(top_k=5, presence=1.5, bias={3: 1, 4: 2}))
    got = defaults.choose(SamplingFields(presence=0.0, min_p=0.1, bias={3: -1.0}, seed=4))
    assert (got.temperature, got.top_k, got.top_p) == (0.7, 5, 0.95)
    assert (got.presence, got.min_p, got.frequency, got.repetition) == (0.0, 0.1, 0.0, 1.0)
    assert got.bias == {3: -1.0, 4: 2} and got.seed == 4


def test_greedy_counts_more_than_everything():
    """SV-10."""
    defaults = SamplingDefaults(PRESET, SamplingFields(temperature=1.0), greedy=True)
    assert defaults.choose(SamplingFields(temperature=0.9)).temperature == 0


@pytest.mark.parametrize(("asked", "flag", "want"), [(None, None, 0), (0.5, None, 0.5), (None, 1.0, 1.0)])  # noqa: E501  # fmt: skip
def test_a_preset_that_does_not_sample_is_greedy_until_a_temperature_is_stated(asked, flag, want):
    """SV-10."""
    defaults = SamplingDefaults(
        {"do_sample": False, "temperature": 0.7}, SamplingFields(temperature=flag)
    )
    assert defaults.choose(SamplingFields(temperature=asked)).temperature == want


def test_seeds_differ_unless_stated_and_stay_in_their_range():
    """SV-10: signed seeds too, and those of choices at the end of the range."""
    defaults = SamplingDefaults(PRESET)
    assert defaults.choose(SamplingFields()).seed != defaults.choose(SamplingFields()).seed
    last = defaults.choose(SamplingFields(seed=-1))
    assert last.seed == 2**63 - 1 and next_seed(last, 1) == 0
    assert SamplingDefaults(PRESET, SamplingFields(seed=9)).choose(SamplingFields()).seed == 9


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [("temperature", -1, "temperature"), ("top_k", -1, "top_k"), ("repetition", 0, "repetition_penalty")],  # noqa: E501
)  # fmt: skip
def test_a_value_out_of_range_is_refused_by_its_name(field, value, param):
    """SV-10."""
    with pytest.raises(ApiError, match=param) as caught:
        SamplingDefaults(PRESET).choose(SamplingFields(**{field: value}))
    assert (caught.value.status, caught.value.param) == (400, param)


def test_a_preset_that_is_no_number_is_the_artifact_s_fault():
    """SV-10."""
    with pytest.raises(ArtifactError, match="top_k is not a number"):
        SamplingDefaults({"top_k": "many"}).choose(SamplingFields())
