"""`ninfer verify FILE --against SRC`."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from builders.checkpoints import VOCAB_ROWS, build_checkpoint, tiny_geometry
from builders.conversions import convert, converted
from builders.stored_forms import FORMS, Stored
from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import ArtifactError, NumericError
from ninfer_formats.layouts.rows import view_tensor
from ninfer_formats.reader import open_artifact
from ninfer_formats.tensors import decode_tensor, decode_view, encode_tensor, import_words
from ninfer_tools import verify_against
from ninfer_tools.convert import error_figures, verification
from ninfer_tools.convert.error_bounds import bound_relative_error
from ninfer_tools.convert.error_figures import ErrorSums
from ninfer_tools.convert.nvfp4_rows import decode_nvfp4_rows
from ninfer_tools.convert.request import Request, open_sources


def verify(out, folder, capsys, **options):
    capsys.readouterr()
    code = verify_against.run(
        file=out, against=str(folder), sources=[], max_directory_bytes=1 << 28,
        json_output=True, **options,
    )  # fmt: skip
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("profile", ["nvfp4", "groupwise-int", "fp8", "bf16"])
def test_fresh_conversions_are_within_their_bounds(tmp_path, capsys, profile):
    """V-70 and V-71."""
    tiny, out = build_checkpoint(), tmp_path / "a.ninfer"
    folder = tiny.write(tmp_path / "m")
    converted(folder, out, profile=profile, proposal_rows=64)
    code, record = verify(out, folder, capsys)
    assert code == 0 and record["parameters"] == len(tiny.values) + 1
    assert record["outside"] == []


@pytest.mark.parametrize("form", FORMS)
def test_imported_codes_are_equal_bit_for_bit(tmp_path, capsys, form):
    """V-71 and V-72."""
    folder, out = build_checkpoint(form=form).write(tmp_path / "m"), tmp_path / "a.ninfer"
    converted(folder, out)
    code, record = verify(out, folder, capsys)
    assert code == 0 and record["outside"] == []
    if form in ("ct_nvfp4", "ct_row", "ct_tensor"):
        rounded = {item["parameter"] for item in record["worst"]}
        assert not any("mlp" in name and name.startswith("text") for name in rounded)


@pytest.mark.parametrize("samples", [None, 4])
def test_exchanged_weights_are_found(tmp_path, capsys, samples):
    """V-73 and V-75: another tensor under the same name is outside every bound."""
    tiny, out = build_checkpoint(), tmp_path / "a.ninfer"
    converted(tiny.write(tmp_path / "m"), out)
    other = build_checkpoint()
    name = "model.language_model.layers.0.mlp.down_proj.weight"
    words = other.tensors[name].words[:, ::-1]
    other.tensors[name] = Stored("BF16", np.ascontiguousarray(words))
    code, record = verify(out, other.write(tmp_path / "n"), capsys, samples=samples)
    assert code == 1
    assert [item["parameter"] for item in record["outside"]] == ["text/layers/0/mlp/down"]
    assert record["worst"][0]["parameter"] == "text/layers/0/mlp/down"


def test_one_wrong_bit_of_a_direct_parameter_is_found(tmp_path, capsys):
    """V-71."""
    tiny, out = build_checkpoint(), tmp_path / "a.ninfer"
    converted(tiny.write(tmp_path / "m"), out)
    name = "model.language_model.layers.1.input_layernorm.weight"
    tiny.tensors[name].words[3] ^= 1
    code, record = verify(out, tiny.write(tmp_path / "n"), capsys)
    assert code == 1
    assert record["outside"][0]["unequal_values"] == 1


def test_another_model_is_refused(tmp_path, capsys):
    """V-76."""
    out = tmp_path / "a.ninfer"
    converted(build_checkpoint().write(tmp_path / "m"), out)
    folder = build_checkpoint(moe=True).write(tmp_path / "n")
    with pytest.raises(ArtifactError, match="does not have"):
        verify(out, folder, capsys)


@pytest.mark.parametrize("format", [nf.Q4, nf.Q5, nf.Q6, nf.Q8, nf.FP8, nf.NVFP4])
@pytest.mark.parametrize("kind", ["normal", "outlier", "half steps", "tiny"])
def test_bounds_hold_for_hostile_values(format, kind):
    """V-73 and V-74: the bounds are worst cases of the encoders, not typical errors."""
    random = np.random.default_rng(3)
    values = random.normal(0, 1, (64, 256)).astype(np.float32)
    if kind == "outlier":
        values[:, ::64] *= 1000
    elif kind == "half steps":
        values = np.full((64, 256), 0.5, np.float32)
        values[:, ::32] = 7.0
    elif kind == "tiny":
        values[1:] *= 1e-7
    data = encode_tensor(values, format)
    found = decode_tensor(data, format, nf.FORMATS[format].layout, values.shape)
    error, size = np.linalg.norm(found - values), np.linalg.norm(values)

    class Source:
        kind = "direct"
        dtype = "F32"

    assert error <= bound_relative_error(format, Source()) * size  # pyright: ignore


def recorded(out, folder, threads):
    """Return the record of every comparison, figures as Python prints them."""
    artifact = open_artifact(out)
    opened = open_sources(Request({"base": str(folder)}, out), weights=True)
    found = verify_against._find_sources(artifact, opened)
    assert found.sources is not None
    compared = verification.compare_parameters(artifact, found.sources.sources, threads=threads)
    return [item.as_record() for item in compared]


def test_figures_do_not_depend_on_the_number_of_threads(tmp_path, monkeypatch):
    """V-134: down to the last digit, with many blocks for every parameter."""
    monkeypatch.setattr(verification, "BLOCK_VALUES", 1 << 14)
    folder, out = build_checkpoint(tied=True).write(tmp_path / "m"), tmp_path / "a.ninfer"
    converted(folder, out, profile="groupwise-int")
    assert recorded(out, folder, 1) == recorded(out, folder, 5)


def test_tied_head_has_the_figures_of_the_embedding(tmp_path):
    """V-133: one weight in one object is read once and reported twice."""
    folder, out = build_checkpoint(tied=True).write(tmp_path / "m"), tmp_path / "a.ninfer"
    converted(folder, out, profile="groupwise-int")
    found = {item.pop("parameter"): item for item in recorded(out, folder, 2)}
    assert found["text/output_head"] == found["text/token_embedding"]
    assert found["text/output_head"]["values"] == VOCAB_ROWS * 128


def test_unequal_direct_parameter_has_figures_of_all_its_values(tmp_path, monkeypatch):
    """V-75: one wrong word in the last block, and the equal blocks before it count as well."""
    monkeypatch.setattr(verification, "BLOCK_VALUES", 128 * 128)
    tiny, out = build_checkpoint(), tmp_path / "a.ninfer"
    converted(tiny.write(tmp_path / "m"), out, profile="bf16")
    words = tiny.tensors["lm_head.weight"].words
    words[-1, -1] ^= 0x40
    (item,) = [
        x for x in recorded(out, tiny.write(tmp_path / "n"), 2) if x["parameter"].endswith("_head")
    ]
    source = (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    gap = item["max_error"]
    assert item["unequal_values"] == 1 and item["values"] == words.size
    assert item["relative_error"] == pytest.approx(gap / np.linalg.norm(source), rel=1e-12)


@pytest.mark.parametrize("count", [1, 8191, 8192, 8193, 200_001])
def test_sums_are_those_of_exact_arithmetic(count):
    """V-134: against Python's exact summation."""
    random = np.random.default_rng(count)
    a = random.normal(0, 1, count).astype(np.float32)
    b = (a + random.normal(0, 0.1, count)).astype(np.float32)
    sums = ErrorSums()
    sums.add(a, b)
    wide = [(float(x), float(y)) for x, y in zip(a, b, strict=True)]
    assert sums.errors == pytest.approx(math.fsum((x - y) ** 2 for x, y in wide), rel=1e-13)
    assert sums.products == pytest.approx(math.fsum(x * y for x, y in wide), rel=1e-12)
    assert sums.largest == max(abs(x - y) for x, y in wide) and sums.count == count


def test_nan_is_never_the_smaller_error():
    """V-134."""
    first, second = ErrorSums(), ErrorSums()
    first.add(np.array([1, np.nan], np.float32), np.zeros(2, np.float32))
    second.add(np.ones(2, np.float32), np.zeros(2, np.float32))
    second.merge(first)
    assert math.isnan(second.largest) and math.isnan(second.relative)


@pytest.mark.parametrize(("shape", "divisors"), [((256, 64), 2), ((130, 40), 1), ((3, 16), 1)])
def test_pairs_of_nvfp4_codes_decode_to_the_bits_of_single_ones(shape, divisors):
    """V-134: ragged rows and columns, every code, several divisors, any row range."""
    random = np.random.default_rng(7)
    n, k = shape
    codes = random.integers(0, 256, (n, -(-k // 2)), dtype=np.uint8)
    scales = random.integers(1, 0x7F, (n, -(-k // 16)), dtype=np.uint8)
    found = np.array([3.7, 1e-3], np.float32)[:divisors]
    data = import_words(nf.NVFP4, shape, codes, scales, found)
    view = view_tensor(data, nf.NVFP4, nf.BLOCK_SCALE, shape, divisors)
    for begin, end in ((0, n), (1, n - 1), (n - 1, n)):
        pairs, single = decode_nvfp4_rows(view, begin, end), decode_view(view, begin, end)
        assert pairs.dtype == np.float32 and pairs.shape == single.shape
        assert np.array_equal(pairs.view(np.uint32), single.view(np.uint32))


def test_illegal_nvfp4_words_are_refused_while_comparing():
    """V-134: as by every other way of decoding."""
    data = encode_tensor(np.ones((128, 64), np.float32), nf.NVFP4)
    data[-4:] = 0
    with pytest.raises(NumericError, match="divisor"):
        decode_nvfp4_rows(view_tensor(data, nf.NVFP4, nf.BLOCK_SCALE, (128, 64)), 0, 1)


def test_products_are_summed_in_runs_that_no_library_splits():
    """V-134: the linear algebra library spreads longer products over threads of its own."""
    assert error_figures._RUN_VALUES < 10_000


@pytest.mark.parametrize("word", [0x0001, 0x0240])
def test_weights_too_small_for_their_format_are_within(tmp_path, capsys, word):
    """V-74: FP8 stores rows of such values as zeros."""
    tiny, out = build_checkpoint(), tmp_path / "a.ninfer"
    tiny.tensors["model.language_model.layers.0.mlp.down_proj.weight"].words[:] = word
    folder = tiny.write(tmp_path / "m")
    converted(folder, out, profile="fp8")
    code, record = verify(out, folder, capsys)
    assert code == 0 and record["outside"] == []


def test_damaged_parameters_are_named_and_hide_no_other(tmp_path, capsys):
    """V-188: illegal words in two parameters, each with its name and the file that holds it."""
    folder, out = build_checkpoint().write(tmp_path / "m"), tmp_path / "a.ninfer"
    artifact = converted(folder, out, profile="groupwise-int")
    broken = ["text/layers/0/mlp/down", "text/token_embedding"]
    places = []
    for name in broken:
        tensor = artifact.parameter(name).parts[0].tensor
        places += artifact.payload.extents(tensor.offset + tensor.bytes - 2, 2)
    del artifact
    with out.open("r+b") as file:
        for place in places:
            file.seek(place.offset)
            file.write(b"\xff\xff")  # the last scale of a grouped integer tensor: a NaN
    arguments = {"file": out, "against": str(folder), "sources": [], "max_directory_bytes": 1 << 28}
    capsys.readouterr()
    assert verify_against.run(json_output=True, **arguments) == 1
    shown = capsys.readouterr()
    record = json.loads(shown.out)
    assert {item["parameter"] for item in record["damaged"]} == set(broken)
    assert record["outside"] == [] and record["parameters"] == len(build_checkpoint().values)
    for name in broken:
        assert any(line.startswith(f"{out}: {name}: illegal ") for line in shown.err.splitlines())
    assert verify_against.run(json_output=False, **arguments) == 1
    assert "verdict: the others within, 2 damaged" in capsys.readouterr().out


def test_artifact_of_another_vocabulary_is_of_another_model(tmp_path, capsys):
    """V-190: its token ids are not blamed on the checkpoint."""
    out = tmp_path / "a.ninfer"
    converted(build_checkpoint().write(tmp_path / "m"), out)
    small = replace(tiny_geometry(), text=replace(tiny_geometry().text, vocab_size=256))
    folder = build_checkpoint(small).write(tmp_path / "n")
    with pytest.raises(ArtifactError, match="of another model than the source") as refused:
        verify(out, folder, capsys)
    assert str(refused.value).startswith(f"{out}: text.vocab_size") and "320" in str(refused.value)


def test_bad_file_of_an_option_is_called_by_its_own_name(tmp_path, capsys):
    """V-190."""
    path = tmp_path / "mine.json"
    path.write_text("[]")
    folder = build_checkpoint().write(tmp_path / "m")
    options = {"resources": [f"generation_config.json={path}"]}
    assert convert(folder, tmp_path / "a.ninfer", **options) == 1
    assert capsys.readouterr().err.startswith(f"{path}: ")
