"""Scales that no weight can have, and weights that are no numbers: S-57 to S-59, case 6."""

from __future__ import annotations

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint
from builders.stored_forms import Stored
from ninfer_formats.errors import NumericError
from ninfer_tools.convert.sources.finite_checks import check_encoded, check_values, check_words

MODULE = "model.language_model.layers.1.mlp.down_proj"
DOWN = "text/layers/1/mlp/down"
BAD = {"zero": 0.0, "negative": -0.5, "infinite": np.inf, "NaN": np.nan}


def edited(form, part, change):
    tiny = build_checkpoint(form=form)
    dtype, words = tiny.tensors[f"{MODULE}.{part}"]
    words = words.copy()
    change(words)
    tiny.tensors[f"{MODULE}.{part}"] = Stored(dtype, words)
    return tiny


def assert_refused(found, part):
    (problem,) = found.problems
    assert problem.what == "scale cannot be used" and problem.where == f"{MODULE}.{part}"
    assert str(problem.path).endswith("model.safetensors")
    return str(problem)


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize(
    ("form", "part"),
    [
        ("modelopt_nvfp4", "weight_scale_2"),
        ("modelopt_nvfp4", "input_scale"),
        ("ct_nvfp4", "weight_global_scale"),
        ("ct_nvfp4", "input_global_scale"),
        ("modelopt_fp8", "weight_scale"),
        ("ct_block", "weight_scale"),
    ],
)
def test_scales_are_finite_and_above_zero(check, form, part, kind):
    """S-57, case 6."""
    tiny = edited(form, part, lambda words: words.fill(BAD[kind]))
    assert str(np.float32(BAD[kind])) in assert_refused(check(tiny), part)


@pytest.mark.parametrize("word", [0x0000, 0x8000, 0xBF80, 0x7F80, 0x7FC0])
def test_one_bad_row_scale_among_good_ones_is_found(check, word):
    """S-57: zero, minus zero, minus one, infinity, NaN over codes that are not zero."""

    def change(words):
        words[77] = word

    assert "at 77" in assert_refused(
        check(edited("ct_row", "weight_scale", change)), "weight_scale"
    )


@pytest.mark.parametrize("word", [0x7F, 0x80, 0xB8, 0xFF])
def test_block_scale_words_have_no_sign_and_are_no_nan(check, word):
    """S-57."""

    def change(words):
        words[5, 7] = word

    text = assert_refused(check(edited("ct_nvfp4", "weight_scale", change)), "weight_scale")
    assert f"0x{word:02X} in row 5, block 7" in text


def test_zero_block_scale_is_legal(check):
    """S-58: its block is zeros, whatever the codes."""
    tiny = edited("ct_nvfp4", "weight_scale", lambda words: words[3].fill(0))
    found = check(tiny)
    assert not found.problems
    assert not found.sources.sources[DOWN].read_values(3, 4).any()


@pytest.mark.parametrize(
    ("form", "part", "rows", "columns"),
    [
        ("ct_row", "weight_scale", slice(9, 10), slice(None)),
        ("ct_block", "weight_scale", slice(0, 128), slice(128, 192)),
    ],
)
def test_zero_fp8_scale_over_zero_codes_is_legal(check, form, part, rows, columns):
    """S-58: exporters write it for rows of zeros."""

    def clear(words):
        if form == "ct_row":
            words[9] = 0
        else:
            words[0, 1] = 0

    tiny = edited(form, part, clear)
    assert_refused(check(tiny), part)
    tiny.tensors[f"{MODULE}.weight"].words[rows, columns] = 0x80
    found = check(tiny)
    assert not found.problems
    assert not found.sources.sources[DOWN].read_values(0, 128)[rows, columns].any()


def test_multiplier_without_a_reciprocal_is_refused(check):
    """S-57."""
    tiny = edited("modelopt_nvfp4", "weight_scale_2", lambda words: words.fill(1e-45))
    assert_refused(check(tiny), "weight_scale_2")


def test_multiplier_of_any_usual_size_has_one(check):
    """S-57."""
    for value in (1e-30, 1e30):
        tiny = edited("modelopt_nvfp4", "weight_scale_2", lambda words, v=value: words.fill(v))
        assert not check(tiny).problems


@pytest.mark.parametrize("word", [0x7FC0, 0x7F80, 0xFF80, 0x7F81])
def test_nan_and_infinity_are_named_while_they_stream(check, word):
    """S-59: parameter, row, column, tensor and file."""
    tiny = build_checkpoint()
    tiny.tensors[f"{MODULE}.weight"].words[100, 5] = word
    source = check(tiny).sources.sources[DOWN]
    for look, read in ((check_values, source.read_values), (check_words, source.read_words)):
        look(source, 0, read(0, 100))
        with pytest.raises(NumericError) as caught:
            look(source, 90, read(90, 128))
        text = str(caught.value)
        assert f"{DOWN} row 100, column 5" in text and "model.safetensors" in text


def test_large_finite_values_are_no_infinities(check):
    """S-59: the quick look at their squares overflows."""
    tiny = build_checkpoint()
    tiny.tensors[f"{MODULE}.weight"].words[:] = 0x7F7F
    source = check(tiny).sources.sources[DOWN]
    check_values(source, 0, source.read_values(0, 128))
    check_words(source, 0, source.read_words(0, 128))


@pytest.mark.parametrize(("dtype", "word"), [("F16", 0x7C00), ("F32", 0x7F800000)])
def test_infinities_of_every_direct_type_are_found(check, dtype, word):
    """S-59."""
    tiny = build_checkpoint()
    kind = {"F16": "<f2", "F32": "<f4"}[dtype]
    words = np.zeros((128, 192), kind)
    words.view(f"<u{words.itemsize}")[0, 1] = word
    tiny.tensors[f"{MODULE}.weight"] = Stored(dtype, words)
    source = check(tiny).sources.sources[DOWN]
    with pytest.raises(NumericError, match="column 1"):
        check_words(source, 0, source.read_words(0, 128))


def test_nan_codes_of_fp8_are_found_in_values_and_in_codes(check):
    """S-59."""
    tiny = build_checkpoint(form="ct_row")
    tiny.tensors[f"{MODULE}.weight"].words[4, 6] = 0xFF
    source = check(tiny).sources.sources[DOWN]
    with pytest.raises(NumericError, match="row 4, column 6"):
        check_values(source, 0, source.read_values(0, 128))
    with pytest.raises(NumericError, match="row 4, column 6"):
        check_encoded(source, 0, source.read_encoded(0, 128))


def test_every_nvfp4_code_is_a_number(check):
    """S-59: 0xFF is two codes of -6."""
    tiny = build_checkpoint(form="ct_nvfp4")
    tiny.tensors[f"{MODULE}.weight_packed"].words[:] = 0xFF
    source = check(tiny).sources.sources[DOWN]
    check_encoded(source, 0, source.read_encoded(0, 128))
