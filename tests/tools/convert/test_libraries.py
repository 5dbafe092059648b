"""Conversions of what other libraries store, against what the same libraries read (S-50 to S-56).

Decoded values are compared, never codes across libraries: two encoders may differ at a tie and
both be right. The libraries run once, in a process of their own (`builders.library_exports`).
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_tensors

from builders import library_exports
from builders.checkpoints import build_checkpoint, compose, tiny_geometry
from builders.conversions import converted, read_report
from builders.model_sources import LAYERS
from builders.stored_forms import Stored
from ninfer_formats.layouts.geometry import plan_tensor
from ninfer_formats.layouts.planes import split_planes
from ninfer_formats.reader import open_artifact

# torch dtype -> name in safetensors, and as what numpy can take the words.
TYPES = {
    torch.uint8: ("U8", torch.uint8, "|u1"),
    torch.float32: ("F32", torch.float32, "<f4"),
    torch.bfloat16: ("BF16", torch.int16, "<u2"),
    torch.float8_e4m3fn: ("F8_E4M3", torch.uint8, "|u1"),
}
LOADED = {
    "plain": {},
    "plain_experts": {"moe": True},
    "plain_tied": {"tied": True},
    "hf_block": {"form": "hf_block"},
    "hf_block_experts": {"form": "hf_block", "moe": True},
    "ct_nvfp4": {"form": "ct_nvfp4"},
    "ct_row": {"form": "ct_row"},
}
# compressed-tensors multiplies in bfloat16: once for FP8, and a scale first for NVFP4.
BFLOAT16_BOUNDS = {"ct_nvfp4": 2.0**-6, "ct_row": 2.0**-8}
PLAIN_MODULES = ("in_proj_a", "in_proj_b", "lm_head", "visual", "mtp", "mlp.gate",
                 "shared_expert_gate")  # fmt: skip
PLAIN_PATTERNS = (r"re:.*in_proj_[ab]$", "lm_head", "re:.*visual.*", "re:^mtp.*")


def whole_blocks(**sizes):
    """The tiny model, widths multiples of 128: transformers takes whole FP8 blocks only."""
    geometry = tiny_geometry(**sizes)
    text = replace(geometry.text, linear_num_value_heads=4)
    feed = {"moe_intermediate_size": 128, "shared_expert_intermediate_size": 128}
    text = replace(text, **(feed if text.is_moe else {"intermediate_size": 256}))
    return replace(geometry, text=text)


def describe_quantisation(form):
    """Return the `quantization_config` that transformers needs; conversion does not ask for it."""
    if form == "hf_block":
        return {
            "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
            "weight_block_size": [128, 128], "modules_to_not_convert": list(PLAIN_MODULES),
        }  # fmt: skip
    weights = {"type": "float", "symmetric": True, "dynamic": False}
    if form == "ct_nvfp4":
        weights |= {"num_bits": 4, "strategy": "tensor_group", "group_size": 16}
    else:
        weights |= {"num_bits": 8, "strategy": "channel"}
    format = {"ct_nvfp4": "nvfp4-pack-quantized", "ct_row": "float-quantized"}[form]
    group = {"format": format, "weights": weights, "targets": ["Linear"]}
    return {
        "quant_method": "compressed-tensors", "format": format, "ignore": list(PLAIN_PATTERNS),
        "quantization_status": "compressed", "config_groups": {"group_0": group},
    }  # fmt: skip


def build_loadable(name):
    options = dict(LOADED[name])
    form = options.pop("form", None)
    geometry = whole_blocks(**options)
    tiny = build_checkpoint(geometry, form=form)
    if form:
        tiny.config["quantization_config"] = describe_quantisation(form)
    return tiny


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> Path:
    """The folder with everything that the libraries wrote."""
    folder = tmp_path_factory.mktemp("libraries")
    tiny = build_checkpoint()
    plain = {
        name.removesuffix(".weight"): np.ascontiguousarray(stored.words.astype("<u4") << 16)
        for name, stored in tiny.tensors.items()
        if name.startswith(LAYERS) and name.endswith(("_proj.weight", "in_proj_qkv.weight"))
    }
    save_file({n: words.view("<f4") for n, words in plain.items()}, folder / "plain.safetensors")
    for name in LOADED:
        build_loadable(name).write(folder / "checkpoints" / name, 2)
    out = folder / "a.ninfer"
    artifact = converted(tiny.write(folder / "model"), out)
    tensor = artifact.parameter("text/layers/0/gdn/query").parts[0].tensor
    geometry = plan_tensor(tensor.format, tensor.layout, tensor.shape)
    planes = split_planes(artifact.payload_of(tensor.id), geometry)
    divisor = planes["divisor"].reshape(-1).view("<f4")[0]
    save_file(
        {
            "codes": planes["codes"].reshape(tensor.shape[0], -1).copy(),
            "scales": planes["scales"].reshape(-1).copy(),
            "divisor": np.array(divisor),
        },
        folder / "swizzled.safetensors",
    )
    program = str(Path(library_exports.__file__))
    done = subprocess.run([sys.executable, program, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def read_stored(path):
    """Return tensor name -> Stored, and module -> float32, of an exporter's file."""
    stored, decoded = {}, {}
    for key, tensor in load_tensors(path).items():
        kind, _, name = key.partition("/")
        if kind == "decoded":
            decoded[name] = tensor.numpy()
        else:
            dtype, view, words = TYPES[tensor.dtype]
            stored[name] = Stored(dtype, tensor.view(view).numpy().view(words))
    return stored, decoded


def decode_tensors(artifact, geometry, split_experts=False):
    """Decode all parameters and put them together as official tensors."""
    decoded = {name: artifact.parameter(name).decode() for name in artifact.bindings}
    return compose(geometry, decoded.__getitem__, split_experts)


@pytest.mark.parametrize("name", library_exports.EXPORTERS)
def test_stored_matrices_decode_as_their_own_library_decodes_them(tmp_path, libraries, name):
    """S-52 to S-56: one rounding here; two in float32 there, or bfloat16 where it says so."""
    tiny, out = build_checkpoint(), tmp_path / "a.ninfer"
    stored, decoded = read_stored(libraries / f"{name}.safetensors")
    for module in decoded:
        del tiny.tensors[f"{module}.weight"]
    tiny.tensors |= stored
    imported = name not in ("compressed_tensors_block", "modelopt_fp8")
    rules = [] if imported else ["text/layers/*=fp32"]
    artifact = converted(tiny.write(tmp_path / "m"), out, rules=rules)
    methods = {item["method"] for item in read_report(out)["objects"]}
    assert ("import" in methods) == imported
    found = decode_tensors(artifact, tiny.geometry)
    four_bits = BFLOAT16_BOUNDS["ct_nvfp4"] if name.startswith("compressed") else 2.0**-22
    bound = four_bits if name.endswith("nvfp4") else 0
    for module, want in decoded.items():
        value = found[f"{module}.weight"]
        assert np.count_nonzero(value) > 0.8 * value.size
        np.testing.assert_allclose(value, want, rtol=bound, atol=0, err_msg=module)


@pytest.mark.parametrize("name", LOADED)
def test_every_weight_equals_the_one_that_transformers_loads(tmp_path, libraries, name):
    """S-42 to S-46: names, row orders and experts, by the reference implementation."""
    tiny, out = build_loadable(name), tmp_path / "a.ninfer"
    bound = BFLOAT16_BOUNDS.get(name, 0)
    rules = [] if bound else ["*=fp32"]
    folder = libraries / "checkpoints" / name
    artifact = converted(folder, out, profile="bf16", rules=rules)
    found = decode_tensors(artifact, tiny.geometry)
    found = {key: value for key, value in found.items() if not key.startswith("mtp.")}
    loaded = load_file(libraries / f"{name}.safetensors")
    assert set(loaded) - {"lm_head.weight"} == set(found) - {"lm_head.weight"}
    for key, value in found.items():
        quantised = key.removesuffix("weight") + "weight_scale" in tiny.tensors
        # The gated norm of GDN, float32 in the file, is stored as bfloat16 (INV-7).
        rounded = 2.0**-8 if key.endswith("linear_attn.norm.weight") else 0
        limit = bound if quantised else rounded
        np.testing.assert_allclose(value, loaded[key], rtol=limit, atol=0, err_msg=key)


def test_another_library_reads_the_bytes_of_an_artifact(libraries):
    """NF-40: torchao takes an NVFP4 object's planes as they are, scales in tensor core order."""
    want = load_file(libraries / "unswizzled.safetensors")["values"]
    artifact = open_artifact(libraries / "a.ninfer")
    members = [f"text/layers/0/gdn/{name}" for name in ("query", "key", "value", "z")]
    found = np.concatenate([artifact.parameter(name).decode() for name in members])
    np.testing.assert_allclose(found, want, rtol=2.0**-22, atol=0)
