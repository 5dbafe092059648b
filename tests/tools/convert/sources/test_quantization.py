"""The form of a weight follows from the tensors that are there: S-50 to S-54, S-60."""

from __future__ import annotations

import numpy as np
import pytest

from builders.checkpoints import build_checkpoint
from builders.stored_forms import FORMS, Stored
from ninfer_tools.convert.sources.quantization import SUPPORTED, decide_storage

TEXT = "model.language_model."
MODULE = f"{TEXT}layers.1.mlp.down_proj"
GATE = f"{TEXT}layers.1.mlp.gate_proj"
KINDS = dict(
    zip(
        FORMS,
        ("nvfp4", "nvfp4", "fp8_row", "fp8_tensor", "fp8_block", "fp8_block", "fp8_tensor"),
        strict=True,
    )
)


def zeros(dtype, kind, *shape):
    return Stored(dtype, np.zeros(shape, kind))


def problems_of(check, module=MODULE, drop=("weight",), **parts):
    """Replace tensors of one module and return the problems as text."""
    tiny = build_checkpoint()
    for part in drop:
        tiny.tensors.pop(f"{module}.{part}")
    tiny.tensors |= {f"{module}.{name.replace('__', '.')}": t for name, t in parts.items()}
    return [str(p) for p in check(tiny).problems]


@pytest.mark.parametrize("form", FORMS)
def test_form_is_found_without_the_config(save, form):
    """S-50: nothing but tensors says what they are."""
    tiny = build_checkpoint(form=form)
    tiny.config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    storage = decide_storage(save(tiny), f"{MODULE}.weight")
    assert storage and (storage.kind, storage.shape) == (KINDS[form], (128, 192))
    assert storage.multiplies == (form == "modelopt_nvfp4")


def test_forms_mix_within_one_checkpoint(save):
    """S-50, case 8: `weight_scale` means three things here, each found out by itself."""
    tiny = build_checkpoint(form="ct_row", quantise=lambda name: "q_proj" in name)
    others = {"k_proj": "modelopt_nvfp4", "v_proj": "hf_block", "o_proj": "ct_block"}
    for part, form in others.items():
        other = build_checkpoint(form=form, quantise=lambda name, part=part: part in name)
        tiny.tensors |= {n: t for n, t in other.tensors.items() if f"self_attn.{part}." in n}
    tiny.drop("mtp.")
    checkpoint = save(tiny)
    module = f"{TEXT}layers.1.self_attn."
    kinds = [decide_storage(checkpoint, f"{module}{n}_proj.weight").kind for n in "qkvo"]
    assert kinds == ["fp8_row", "nvfp4", "fp8_tensor", "fp8_tensor"]


def test_fp8_scale_multiplies(check):
    """S-53, case 8: the word 0x38 is 1, and a scale of a quarter makes it a quarter."""
    for name, scale in (("weight_scale", (128, 1)), ("weight_scale_inv", (1, 2))):
        tiny = build_checkpoint()
        tiny.tensors[f"{MODULE}.weight"] = Stored("F8_E4M3", np.full((128, 192), 0x38, "u1"))
        tiny.tensors[f"{MODULE}.{name}"] = Stored("BF16", np.full(scale, 0x3E80, "<u2"))
        source = check(tiny).sources.sources["text/layers/1/mlp/down"]
        assert (source.read_values(0, 128) == 0.25).all(), name


def test_nvfp4_scale_of_compressed_tensors_divides_and_of_modelopt_multiplies(check):
    """S-52, S-54, case 8: code 2 is 1, block scale 0x38 is 1, global scale 4."""
    for parts, want in (
        (("weight_packed", "weight_global_scale"), 0.25),
        (("weight", "weight_scale_2"), 4.0),
    ):
        tiny = build_checkpoint()
        del tiny.tensors[f"{MODULE}.weight"]
        tiny.tensors[f"{MODULE}.{parts[0]}"] = Stored("U8", np.full((128, 96), 0x22, "u1"))
        scales = Stored("F8_E4M3", np.full((128, 12), 0x38, "u1"))
        tiny.tensors[f"{MODULE}.weight_scale"] = scales
        tiny.tensors[f"{MODULE}.{parts[1]}"] = Stored("F32", np.full((), 4, "<f4"))
        source = check(tiny).sources.sources["text/layers/1/mlp/down"]
        assert (source.read_values(0, 128) == want).all(), parts


@pytest.mark.parametrize(("shape", "kind"), [
    ((), "fp8_tensor"), ((1,), "fp8_tensor"), ((1, 1), "fp8_tensor"), ((192,), "fp8_row"),
    ((192, 1), "fp8_row"), ((2, 1), "fp8_block"),
])  # fmt: skip
def test_fp8_kind_follows_the_shape_of_the_scale(save, shape, kind):
    """S-53: with or without the last 1, ceiled blocks."""
    tiny = build_checkpoint()
    tiny.tensors[f"{GATE}.weight"] = zeros("F8_E4M3", "u1", 192, 128)
    tiny.tensors[f"{GATE}.weight_scale"] = Stored("F32", np.ones(shape, "<f4"))
    storage = decide_storage(save(tiny), f"{GATE}.weight")
    assert storage and storage.kind == kind


@pytest.mark.parametrize("shape", [(128,), (1, 128), (2, 2), (192, 2), (6, 4)])
def test_scale_of_another_shape_is_refused_with_both(check, shape):
    """S-53: blocks of another size are not guessed."""
    (text,) = problems_of(
        check, GATE, ["weight"], weight=zeros("F8_E4M3", "u1", 192, 128),
        weight_scale=zeros("F32", "<f4", *shape),
    )  # fmt: skip
    assert f"{GATE}.weight_scale" in text and f"F32 {list(shape)}" in text and "[192, 1]" in text


@pytest.mark.parametrize(
    ("form", "part"),
    [
        ("modelopt_nvfp4", "weight_scale_2"),
        ("modelopt_nvfp4", "weight_scale"),
        ("ct_nvfp4", "weight_global_scale"),
        ("ct_nvfp4", "weight_scale"),
        ("ct_row", "weight_scale"),
    ],
)
def test_missing_scale_is_named_with_its_file(check, form, part):
    """S-57, case 6: nothing is assumed to be 1."""
    tiny = build_checkpoint(form=form)
    del tiny.tensors[f"{MODULE}.{part}"]
    (problem,) = check(tiny).problems
    assert problem.what == "scale is missing" and problem.where == f"{MODULE}.{part}"
    assert str(problem.path).endswith("model.safetensors")


def test_missing_scale_of_fp8_is_named_under_both_its_names(check):
    """S-57: nobody knows which one it would have been."""
    tiny = build_checkpoint(form="hf_block")
    del tiny.tensors[f"{MODULE}.weight_scale_inv"]
    (problem,) = check(tiny).problems
    assert problem.what == "scale is missing" and problem.where == f"{MODULE}.weight_scale"
    assert problem.want == "weight_scale or weight_scale_inv"


def test_missing_activation_scale_is_no_fault(check):
    """S-52, case 6: the weight is whole without it."""
    tiny = build_checkpoint(form="modelopt_nvfp4")
    tiny.tensors = {n: t for n, t in tiny.tensors.items() if not n.endswith("input_scale")}
    assert not check(tiny).problems


REFUSED = {
    "GPTQ int4": {
        "qweight": zeros("I32", "<i4", 24, 128),
        "qzeros": zeros("I32", "<i4", 2, 16),
        "scales": zeros("F16", "<f2", 2, 128),
        "g_idx": zeros("I32", "<i4", 192),
    },
    "AWQ int4": {
        "qweight": zeros("I32", "<i4", 192, 16),
        "qzeros": zeros("I32", "<i4", 2, 16),
        "scales": zeros("F16", "<f2", 2, 128),
    },
    "pack-quantized int4": {
        "weight_packed": zeros("I32", "<i4", 128, 24),
        "weight_scale": zeros("BF16", "<u2", 128, 2),
        "weight_shape": zeros("I32", "<i4", 2),
    },
    "MXFP4": {
        "weight_packed": zeros("U8", "u1", 128, 96),
        "weight_scale": zeros("U8", "u1", 128, 6),
    },
    "bitsandbytes": {
        "weight": zeros("U8", "u1", 12288, 1),
        "weight__absmax": zeros("F32", "<f4", 384),
        "weight__quant_map": zeros("F32", "<f4", 16),
    },
    "int8": {
        "weight": zeros("I8", "u1", 128, 192),
        "weight_scale": zeros("F32", "<f4", 128, 1),
    },
    "FP8 E5M2": {
        "weight": zeros("F8_E5M2", "u1", 128, 192),
        "weight_scale": zeros("F32", "<f4", 128, 1),
    },
    "F64": {"weight": zeros("F64", "<f8", 128, 192)},
    "zero points": {
        "weight": zeros("F8_E4M3", "u1", 128, 192),
        "weight_scale": Stored("F32", np.ones((128, 1), "<f4")),
        "weight_zero_point": zeros("F8_E4M3", "u1", 128, 1),
    },
    "without scales": {"weight": zeros("U8", "u1", 128, 96)},
}


@pytest.mark.parametrize("form", REFUSED)
def test_other_forms_are_refused_by_name_with_what_is_supported(check, form):
    """S-60."""
    (text,) = problems_of(check, **REFUSED[form])
    assert form in text and SUPPORTED in text and MODULE in text


def test_refusals_of_many_tensors_are_ten_and_a_count(check):
    """S-75: one sentence, not thirty thousand."""
    tiny = build_checkpoint(moe=True, split_experts=True)
    for name in [n for n in tiny.tensors if ".experts." in n]:
        tiny.tensors[name.replace(".weight", ".qweight")] = REFUSED["AWQ int4"]["qweight"]
        del tiny.tensors[name]
    texts = [str(p) for p in check(tiny).problems]
    assert len(texts) == 11 and "36 in all" in texts[-1]


@pytest.mark.parametrize("dtype", ["F8_E4M3", "U8"])
def test_stacked_experts_are_not_quantised(check, dtype):
    """S-60: no exporter states how scales of a stack are laid out."""
    tiny = build_checkpoint(moe=True)
    name = f"{TEXT}layers.0.mlp.experts.down_proj"
    tiny.tensors[name] = zeros(dtype, "u1", 4, 128, 32)
    (problem,) = check(tiny).problems
    assert "not supported" in str(problem) and problem.where == name


def test_weight_in_two_forms_is_refused(check):
    """S-60."""
    (text,) = problems_of(check, drop=(), weight_packed=zeros("U8", "u1", 128, 96))
    assert "stored twice" in text and "weight and weight_packed" in text


def test_weight_with_two_scales_is_refused(check):
    """S-60."""
    scale = Stored("F32", np.ones((128, 1), "<f4"))
    weight = zeros("F8_E4M3", "u1", 128, 192)
    (text,) = problems_of(check, weight=weight, weight_scale=scale, weight_scale_inv=scale)
    assert "two scales" in text


@pytest.mark.parametrize(
    ("form", "stray"),
    [
        ("ct_nvfp4", "weight_scale_2"),
        ("modelopt_nvfp4", "weight_global_scale"),
        ("ct_nvfp4", "input_scale"),
        ("modelopt_nvfp4", "input_global_scale"),
        ("ct_nvfp4", "weight_scale_inv"),
        ("ct_row", "weight_scale_2"),
    ],
)
def test_weight_with_two_global_scales_is_refused(check, form, stray):
    """S-84: which one counts nobody can tell."""
    tiny = build_checkpoint(form=form)
    tiny.tensors[f"{MODULE}.{stray}"] = Stored("F32", np.full((), 17, "<f4"))
    (problem,) = check(tiny).problems
    assert "weight has two scales" in str(problem) and stray in str(problem)


def test_missing_codes_have_the_name_of_their_form(check):
    """S-86."""
    tiny = build_checkpoint(form="ct_nvfp4")
    tiny.tensors.pop(f"{MODULE}.weight_packed")
    (problem,) = check(tiny).problems
    assert f"without {MODULE}.weight_packed" in str(problem)


@pytest.mark.parametrize(
    ("part", "tensor"),
    [
        ("weight_scale", zeros("F8_E4M3", "u1", 128, 6)),
        ("weight_scale", zeros("F8_E4M3", "u1", 12, 128)),
        ("weight_scale", zeros("F32", "<f4", 128, 12)),
        ("weight_scale_2", Stored("F32", np.ones((2,), "<f4"))),
        ("weight_scale_2", zeros("I32", "<i4")),
        ("input_scale", Stored("F32", np.ones((128,), "<f4"))),
    ],
)
def test_nvfp4_scales_fit_their_weight(check, part, tensor):
    """S-54, case 7: name, expected and found shape."""
    tiny = build_checkpoint(form="modelopt_nvfp4")
    tiny.tensors[f"{MODULE}.{part}"] = tensor
    (problem,) = check(tiny).problems
    assert problem.where == f"{MODULE}.{part}" and str(list(tensor.words.shape)) in str(problem.got)
