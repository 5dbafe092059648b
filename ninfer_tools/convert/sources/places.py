"""Where a parameter lies in an unquantised checkpoint: tensor, shape, rows (S-42 to S-47).

Names are relative to the prefix of the parameter's component.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.geometry import IMAGE_CHANNELS, ModelGeometry
from ninfer_formats.inventories.parameters import Parameter
from ninfer_tools.convert.sources.row_selection import RowSelection, whole


class Place(NamedTuple):
    """Rows of one tensor; `shape` is that of the tensor in an unquantised checkpoint."""

    tensor: str
    shape: tuple[int, ...]
    selection: RowSelection
    transposed: bool = False


Rule = Callable[[Parameter, ModelGeometry], Place]
EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"

_GATED = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
_NORMS = {
    "input_norm": "input_layernorm.weight",
    "post_attention_norm": "post_attention_layernorm.weight",
}
_ATTENTION = {
    "attention/query": "self_attn.q_proj.weight",
    "attention/key": "self_attn.k_proj.weight",
    "attention/value": "self_attn.v_proj.weight",
    "attention/output": "self_attn.o_proj.weight",
    "attention/query_norm": "self_attn.q_norm.weight",
    "attention/key_norm": "self_attn.k_norm.weight",
}
_MLP = {f"mlp/{role}": f"mlp.{name}.weight" for role, name in _GATED.items()}
_DECODER_LAYER = {
    **_NORMS,
    **_ATTENTION,
    **_MLP,
    "gdn/a_log": "linear_attn.A_log",
    "gdn/dt_bias": "linear_attn.dt_bias",
    "gdn/a_projection": "linear_attn.in_proj_a.weight",
    "gdn/b_projection": "linear_attn.in_proj_b.weight",
    "gdn/z": "linear_attn.in_proj_z.weight",
    "gdn/norm": "linear_attn.norm.weight",
    "gdn/output": "linear_attn.out_proj.weight",
    "moe/router": "mlp.gate.weight",
    "moe/shared_score": "mlp.shared_expert_gate.weight",
    **{f"moe/shared/{role}": f"mlp.shared_expert.{name}.weight" for role, name in _GATED.items()},
}
_VISION_LAYER = {
    **{f"norm{i}_{part}": f"norm{i}.{part}" for i in (1, 2) for part in ("weight", "bias")},
    "attention/output": "attn.proj.weight",
    "attention/output_bias": "attn.proj.bias",
    **{f"mlp/fc{i}": f"mlp.linear_fc{i}.weight" for i in (1, 2)},
    **{f"mlp/fc{i}_bias": f"mlp.linear_fc{i}.bias" for i in (1, 2)},
}
_DRAFTER_LAYER = {
    **_NORMS,
    **_ATTENTION,
    **_MLP,
    **{f"{c}/base_kernel": f"{c}.base_kernel" for c in ("attention_conv", "mlp_conv")},
    **{
        f"{c}/kernel_projection": f"{c}.kernel_projection.weight"
        for c in ("attention_conv", "mlp_conv")
    },
}
_TEXT = {"token_embedding": EMBEDDING, "output_head": HEAD, "final_norm": "norm.weight"}
_MTP = {
    "input_projection": "fc.weight",
    "embedding_norm": "pre_fc_norm_embedding.weight",
    "hidden_norm": "pre_fc_norm_hidden.weight",
    "final_norm": "norm.weight",
}
_VISION = {
    "patch_embedding_bias": "patch_embed.proj.bias",
    "position_embedding": "pos_embed.weight",
    "merger/norm_weight": "merger.norm.weight",
    "merger/norm_bias": "merger.norm.bias",
    **{f"merger/fc{i}": f"merger.linear_fc{i}.weight" for i in (1, 2)},
    **{f"merger/fc{i}_bias": f"merger.linear_fc{i}.bias" for i in (1, 2)},
}
_DRAFTER = {
    "feature_projection": "fc.weight",
    "context_norm": "hidden_norm.weight",
    "final_norm": "norm.weight",
    "candidate_selector/hidden_projection": "candidate_selector.hidden_projection.weight",
    # The two codebooks are bare tensors.
    "candidate_selector/predecessor_codebook": "candidate_selector.predecessor_codebook",
    "candidate_selector/successor_codebook": "candidate_selector.successor_codebook",
}
# Residency -> names outside of layers, names inside, and what stands before the layer number.
_NAMES: Mapping[str, tuple[Mapping[str, str], Mapping[str, str], str]] = {
    "text": (_TEXT, _DECODER_LAYER, "layers"),
    "mtp": (_MTP, _DECODER_LAYER, "layers"),
    "vision": (_VISION, _VISION_LAYER, "blocks"),
    "dflash": (_DRAFTER, _DRAFTER_LAYER, "layers"),
    "dflash2": (_DRAFTER, _DRAFTER_LAYER, "layers"),
}


def find_places(parameter: Parameter, geometry: ModelGeometry) -> tuple[Place, ...]:
    """Return where a parameter may lie: one place, two for a routed expert (alone, stacked)."""
    if "/experts/" in parameter.name:
        return _expert_places(parameter, geometry)
    rule = _RULES.get((parameter.residency, parameter.role))
    if rule is not None:
        return (rule(parameter, geometry),)
    outside, inside, _ = _NAMES[parameter.residency]
    names = outside if parameter.layer is None else inside
    if parameter.role not in names:
        raise UsageError("parameter has no place in a checkpoint", got=parameter.name)
    tensor = _in_layer(parameter, names[parameter.role])
    return (Place(tensor, parameter.shape, whole(parameter.shape[0])),)


def _in_layer(parameter: Parameter, tensor: str) -> str:
    if parameter.layer is None:
        return tensor
    return f"{_NAMES[parameter.residency][2]}.{parameter.layer}.{tensor}"


def _gated_query(parameter: Parameter, geometry: ModelGeometry) -> Place:
    """q_proj holds, head by head, the query rows of a head and then its gate rows."""
    heads, d = geometry.text.num_attention_heads, geometry.text.head_dim
    first = d if parameter.role == "attention/gate" else 0
    runs = tuple((2 * d * head + first, d) for head in range(heads))
    tensor = _in_layer(parameter, _ATTENTION["attention/query"])
    return Place(tensor, (2 * heads * d, parameter.shape[1]), RowSelection(runs))


def _gdn_part(parameter: Parameter, geometry: ModelGeometry) -> Place:
    """in_proj_qkv holds the query rows, the key rows and the value rows."""
    k, v = geometry.text.linear_key_size, geometry.text.linear_value_size
    first, rows = {"query": (0, k), "key": (k, k), "value": (2 * k, v)}[
        parameter.role.rpartition("/")[2]
    ]
    tensor = _in_layer(parameter, "linear_attn.in_proj_qkv.weight")
    return Place(tensor, (2 * k + v, parameter.shape[1]), RowSelection(((first, rows),)))


def _convolution(parameter: Parameter, geometry: ModelGeometry) -> Place:
    """conv1d is [channels, 1, taps]; the parameter is [taps, channels]."""
    taps, channels = parameter.shape
    tensor = _in_layer(parameter, "linear_attn.conv1d.weight")
    return Place(tensor, (channels, 1, taps), whole(taps), transposed=True)


def _vision_part(parameter: Parameter, geometry: ModelGeometry) -> Place:
    """attn.qkv, weight and bias, holds query, key and value one after the other."""
    role, _, bias = parameter.role.rpartition("/")[2].partition("_")
    rows = parameter.shape[0]
    first = rows * ("query", "key", "value").index(role)
    tensor = _in_layer(parameter, f"attn.qkv.{bias or 'weight'}")
    return Place(tensor, (3 * rows, *parameter.shape[1:]), RowSelection(((first, rows),)))


def _patch_embedding(parameter: Parameter, geometry: ModelGeometry) -> Place:
    vision = geometry.vision
    rows = parameter.shape[0]
    if vision is None:
        raise UsageError("the model has no vision tower", got=parameter.name)
    patch = (IMAGE_CHANNELS, vision.temporal_patch_size, vision.patch_size, vision.patch_size)
    return Place("patch_embed.proj.weight", (rows, *patch), whole(rows))


def _expert_places(parameter: Parameter, geometry: ModelGeometry) -> tuple[Place, Place]:
    """One tensor per expert, or all experts stacked, gate rows before up rows."""
    expert, role = parameter.name.rsplit("/", 2)[1:]
    rows, columns = parameter.shape
    alone = _in_layer(parameter, f"mlp.experts.{expert}.{_GATED[role]}.weight")
    experts = geometry.text.num_experts or 0
    halves = 1 if role == "down" else 2
    first = (halves * int(expert) + (role == "up")) * rows
    name = "down_proj" if role == "down" else "gate_up_proj"
    stacked = Place(
        _in_layer(parameter, f"mlp.experts.{name}"),
        (experts, halves * rows, columns),
        RowSelection(((first, rows),)),
    )
    return Place(alone, parameter.shape, whole(rows)), stacked


_RULES: Mapping[tuple[str, str], Rule] = {
    **{
        (residency, f"attention/{role}"): _gated_query
        for residency in ("text", "mtp")
        for role in ("query", "gate")
    },
    **{("text", f"gdn/{role}"): _gdn_part for role in ("query", "key", "value")},
    ("text", "gdn/convolution"): _convolution,
    ("vision", "patch_embedding"): _patch_embedding,
    **{
        ("vision", f"attention/{role}{bias}"): _vision_part
        for role in ("query", "key", "value")
        for bias in ("", "_bias")
    },
}
