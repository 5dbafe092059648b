"""The canonical text says everything and nothing twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_formats.inventories.family import FAMILY_NAMES
from ninfer_formats.inventories.profiles import PROFILE_NAMES
from ninfer_tools.synthetic.spec_text import describe_spec
from ninfer_tools.synthetic.specification import parse_spec

OPTIONS = {
    "layers": st.integers(1, 4096),
    "seed": st.integers(0, 2**63 - 1),
    "vocab": st.integers(289, 300000),
    "components": st.sampled_from(["text", "text+mtp", "vision+text", "text+mtp+vision"]),
    "proposal": st.sampled_from([0, 100, 289]),
}


@given(
    st.sampled_from(FAMILY_NAMES),
    st.sampled_from(PROFILE_NAMES),
    st.fixed_dictionaries({}, optional=OPTIONS),
)
def test_canonical_text_reads_back_as_the_same_specification(model, profile, options):
    words = [f"{key}={value}" for key, value in options.items()]
    spec = parse_spec(":".join([model, profile, *words]))
    text = describe_spec(spec)
    assert parse_spec(text) == spec and describe_spec(parse_spec(text)) == text


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("qwen3.8-27b:nvfp4:seed=0", "qwen3.8-27b:nvfp4"),
        ("qwen3.8-27b:nvfp4:proposal=131072:vocab=248077", "qwen3.8-27b:nvfp4"),
        ("qwen3.8-27b:nvfp4:vocab=600:proposal=300", "qwen3.8-27b:nvfp4:vocab=600"),
        ("qwen3.8-27b:fp8:components=text+dflash2", "qwen3.8-27b:fp8:components=text:dflash2=1"),
        ("qwen3.8-27b:fp8:seed=3:layers=2", "qwen3.8-27b:fp8:layers=2:seed=3"),
        ("qwen3.8-27b:fp8:proposal=0", "qwen3.8-27b:fp8:proposal=0"),
    ],
)
def test_defaults_are_left_out(written, canonical):
    assert describe_spec(parse_spec(written)) == canonical
