"""Rows of parameters in the forms a converter needs: S-2, S-51 to S-56."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint
from builders.stored_forms import FORMS, Stored, bf16_values
from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.importing import import_words
from ninfer_formats.errors import UsageError
from ninfer_formats.tensors import decode_tensor

TEXT = "model.language_model."
QUERY, DOWN, VALUE = (
    "text/layers/1/attention/query",
    "text/layers/1/mlp/down",
    "text/layers/0/gdn/value",
)
IMPORTS = {"ct_nvfp4": nf.NVFP4, "modelopt_nvfp4": nf.NVFP4, "ct_row": nf.FP8, "ct_tensor": nf.FP8}


def sources_of(check, **options):
    tiny = build_checkpoint(**options)
    found = check(tiny)
    assert not found.problems
    return tiny, found.sources.sources


@pytest.mark.parametrize("form", [None, *FORMS])
def test_blocks_of_rows_join_to_the_whole(check, form):
    """S-2: at any cut, through heads, runs and 128-row blocks."""
    tiny, sources = sources_of(check, form=form)
    for name in (QUERY, DOWN, VALUE, "text/layers/0/gdn/convolution", "text/final_norm"):
        source, whole = sources[name], tiny.values[name].reshape(tiny.values[name].shape[0], -1)
        cuts = sorted({0, 1, 3, source.rows // 2 + 1, source.rows} & set(range(source.rows + 1)))
        for begin, end in pairwise(cuts):
            block = source.read_values(begin, end)
            assert block.shape == (end - begin, source.columns) and block.dtype == np.float32
            assert np.array_equal(block, whole[begin:end]), (name, begin, end)


def test_direct_words_are_bit_for_bit_and_not_copied(check):
    """S-2, S-51: NaN payloads and signs of zero too."""
    tiny = build_checkpoint()
    words = tiny.tensors[f"{TEXT}norm.weight"].words
    words[:4] = [0x7FC1, 0xFF80, 0x8000, 0x0001]
    found = check(tiny)
    source = found.sources.sources["text/final_norm"]
    assert np.array_equal(source.read_words(0, 128)[:, 0], words)
    key = found.sources.sources["text/layers/1/attention/key"]
    mapped = key.checkpoint.files.map("model.safetensors")
    assert np.shares_memory(key.read_words(3, 9), mapped)


def test_words_keep_the_type_of_the_file(check):
    """S-51: A_log and the GDN norm are float32 in official files."""
    tiny, sources = sources_of(check)
    source = sources["text/layers/0/gdn/a_log"]
    assert (source.dtype, source.read_words(0, 6).dtype) == ("F32", np.uint32)
    want = tiny.values["text/layers/0/gdn/a_log"].view("<u4")
    assert np.array_equal(source.read_words(0, 6)[:, 0], want)


def test_float16_weights_are_widened_exactly(check):
    """S-51."""
    tiny = build_checkpoint()
    name = f"{TEXT}norm.weight"
    values = np.linspace(-2, 2, 128).astype("<f2")
    values[:2] = [6e-8, 65504]
    tiny.tensors[name] = Stored("F16", values)
    source = check(tiny).sources.sources["text/final_norm"]
    assert np.array_equal(source.read_values(0, 128)[:, 0], values.astype("<f4"))
    assert (source.dtype, source.read_words(0, 2).tolist()) == ("F16", [[1], [0x7BFF]])


def test_unaligned_tensors_are_read(check):
    """S-13: files need not align a tensor to its type."""
    tiny = build_checkpoint()
    odd = {"model.visual.rotary.inv_freq": Stored("U8", np.zeros(3, "u1"))}
    tiny.tensors = odd | tiny.tensors
    sources = check(tiny).sources.sources
    for name, want in tiny.values.items():
        values = sources[name].read_values(0, sources[name].rows)
        assert values.flags.aligned and np.array_equal(values.reshape(want.shape), want)


@pytest.mark.parametrize("moe", [False, True])
@pytest.mark.parametrize("form", IMPORTS)
def test_imported_codes_decode_to_the_source(check, form, moe):
    """S-52 to S-54: bit for bit, except ModelOpt's multipliers within 2^-23."""
    tiny, sources = sources_of(check, form=form, moe=moe)
    imported = [s for s in sources.values() if s.kind != "direct"]
    assert len(imported) > 8
    for source in imported:
        name, format = source.parameter.name, IMPORTS[form]
        assert source.import_format == format
        rows = source.read_encoded(0, source.rows)
        raw = import_words(format, source.shape, *rows, source.weight_divisor)
        decoded = decode_tensor(raw, format, nf.FORMATS[format].layout, source.shape)
        if source.exact:
            assert np.array_equal(decoded.view("<u4"), tiny.values[name].view("<u4")), name
        else:
            assert form == "modelopt_nvfp4"
            want = tiny.values[name].astype(np.float64)
            assert (np.abs(decoded - want) <= 2.0**-23 * np.abs(want)).all(), name


def test_encoded_blocks_join_to_the_whole(check):
    """S-2, S-43: code rows and scale rows move together."""
    for form in ("ct_nvfp4", "ct_row"):
        _, sources = sources_of(check, form=form)
        source = sources[QUERY]
        whole = source.read_encoded(0, 128)
        parts = [source.read_encoded(*cut) for cut in ((0, 50), (50, 70), (70, 128))]
        for i in range(2):
            assert np.array_equal(np.concatenate([part[i] for part in parts]), whole[i])


def test_block_scales_have_no_format_to_import(check):
    """S-53."""
    _, sources = sources_of(check, form="hf_block")
    source = sources["text/layers/1/mlp/down"]
    assert source.kind == "fp8_block" and source.import_format is None and not source.exact
    with pytest.raises(UsageError, match="cannot be taken over"):
        source.read_encoded(0, 1)


def test_float32_row_scales_import_when_they_are_bf16_numbers(check):
    """S-53."""
    tiny = build_checkpoint(form="ct_row")
    names = [n for n in tiny.tensors if n.endswith("weight_scale")]
    for name in names:
        tiny.tensors[name] = Stored("F32", bf16_values(tiny.tensors[name].words))
    source = check(tiny).sources.sources[DOWN]
    assert source.import_format == nf.FP8 and source.exact
    for name in names:
        tiny.tensors[name] = Stored("F32", tiny.tensors[name].words * np.float32(1.001))
    source = check(tiny).sources.sources[DOWN]
    assert source.import_format is None and not source.exact


def test_float32_tensor_scale_of_modelopt_decodes_but_may_not_import(check):
    """S-53."""
    _, sources = sources_of(check, form="modelopt_fp8")
    assert sources[DOWN].kind == "fp8_tensor" and sources[DOWN].import_format is None


def test_quantised_parameter_has_no_words(check):
    """S-51."""
    _, sources = sources_of(check, form="ct_nvfp4")
    with pytest.raises(UsageError, match="not stored directly"):
        sources[DOWN].read_words(0, 1)


def test_divisors_are_those_of_the_file_or_reciprocals(check):
    """S-52, S-55."""
    tiny, sources = sources_of(check, form="ct_nvfp4")
    prefix = f"{TEXT}layers.1.mlp.down_proj."
    assert sources[DOWN].weight_divisor == tiny.tensors[f"{prefix}weight_global_scale"].words[0]
    assert sources[DOWN].input_divisor == tiny.tensors[f"{prefix}input_global_scale"].words[0]
    tiny, sources = sources_of(check, form="modelopt_nvfp4")
    stored = float(tiny.tensors[f"{prefix}input_scale"].words)
    assert sources[DOWN].input_divisor == pytest.approx(1 / stored, rel=1.2e-7)
    _, sources = sources_of(check)
    assert sources[DOWN].weight_divisor is None and sources[DOWN].input_divisor is None


def test_weight_only_nvfp4_has_no_input_divisor(check):
    """S-52."""
    tiny = build_checkpoint(form="ct_nvfp4")
    tiny.tensors = {n: t for n, t in tiny.tensors.items() if "input_global" not in n}
    source = check(tiny).sources.sources[DOWN]
    assert source.input_divisor is None and source.weight_divisor is not None


def test_tensors_are_named_with_their_files(check):
    """S-50."""
    _, sources = sources_of(check, form="ct_nvfp4")
    names = [t.name.rpartition(".")[2] for t in sources[DOWN].tensors]
    suffixes = ["weight_packed", "weight_scale", "weight_global_scale", "input_global_scale"]
    assert names == suffixes
    assert all(t.path.endswith("base/model.safetensors") for t in sources[DOWN].tensors)


@pytest.mark.parametrize("form", [None, "ct_nvfp4", "hf_block"])
def test_a_block_costs_the_memory_of_a_block(check, form):
    """S-2: never that of the tensor, and one tensor only."""
    _, sources = sources_of(check, form=form)
    source = sources[QUERY]
    source.read_values(0, 1)
    tracemalloc.start()
    block = source.read_values(0, 16)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * block.nbytes + 8192
