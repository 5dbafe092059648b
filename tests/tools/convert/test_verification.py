"""`ninfer verify FILE --against SRC`."""

from __future__ import annotations

import json

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint
from builders.conversions import converted
from builders.stored_forms import FORMS, Stored
from ninfer_formats import numeric_formats as nf
from ninfer_formats.tensors import decode_tensor, encode_tensor
from ninfer_tools import verify_against
from ninfer_tools.convert import verification


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
    from ninfer_formats.errors import ArtifactError

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

    assert error <= verification._bound(format, Source()) * size  # pyright: ignore
