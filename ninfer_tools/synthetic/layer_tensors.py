"""The tensors of one decoder layer of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories.geometry import FULL_ATTENTION, TextGeometry
from ninfer_tools.synthetic.checkpoint_sections import CheckpointTensor, Section, list_gated


def list_layer(s: Section, text: TextGeometry, kind: str) -> Iterator[CheckpointTensor]:
    """Yield the norms, the mixer of this kind of layer and the feed-forward part."""
    yield s.one("input_layernorm.weight", "input_norm", text.hidden_size)
    yield from (_list_attention if kind == FULL_ATTENTION else _list_gdn)(s, text)
    yield s.one("post_attention_layernorm.weight", "post_attention_norm", text.hidden_size)
    if text.is_moe:
        yield from _list_moe(s, text)
    else:
        yield from list_gated(s, "mlp", "mlp", text.hidden_size, text.intermediate_size or 0)


def _list_attention(s: Section, text: TextGeometry) -> Iterator[CheckpointTensor]:
    h, q, kv, d = text.hidden_size, text.query_size, text.key_value_size, text.head_dim
    site = "mixer_input"
    # Each head has its query rows, then its gate rows.
    yield s.one("self_attn.q_proj.weight", "attention/query", 2 * q, h, site=site)
    yield s.one("self_attn.k_proj.weight", "attention/key", kv, h, site=site)
    yield s.one("self_attn.v_proj.weight", "attention/value", kv, h, site=site)
    output = "attention/gated_output"
    yield s.one("self_attn.o_proj.weight", "attention/output", h, q, site=output)
    yield s.one("self_attn.q_norm.weight", "attention/query_norm", d)
    yield s.one("self_attn.k_norm.weight", "attention/key_norm", d)


def _list_gdn(s: Section, text: TextGeometry) -> Iterator[CheckpointTensor]:
    h, k, v = text.hidden_size, text.linear_key_size, text.linear_value_size
    heads, channels, site = text.linear_num_value_heads, 2 * k + v, "mixer_input"
    yield s.one("linear_attn.in_proj_qkv.weight", "gdn/query", channels, h, site=site)
    yield s.one("linear_attn.in_proj_z.weight", "gdn/z", v, h, site=site)
    yield s.one("linear_attn.in_proj_b.weight", "gdn/b_projection", heads, h, site=site)
    yield s.one("linear_attn.in_proj_a.weight", "gdn/a_projection", heads, h, site=site)
    taps = text.linear_conv_kernel_dim
    yield s.one("linear_attn.conv1d.weight", "gdn/convolution", channels, 1, taps)
    yield s.one("linear_attn.A_log", "gdn/a_log", heads, format=nf.FP32)
    yield s.one("linear_attn.dt_bias", "gdn/dt_bias", heads)
    norm_size = text.linear_value_head_dim
    yield s.one("linear_attn.norm.weight", "gdn/norm", norm_size, format=nf.FP32)
    yield s.one("linear_attn.out_proj.weight", "gdn/output", h, v, site="gdn/gated_output")


def _list_moe(s: Section, text: TextGeometry) -> Iterator[CheckpointTensor]:
    h, e, width = text.hidden_size, text.num_experts or 0, text.moe_intermediate_size or 0
    yield s.one("mlp.gate.weight", "moe/router", e, h, site="ffn_input")
    role, site = "moe/experts/{}", "moe/experts/{}/product"
    yield s.one("mlp.experts.gate_up_proj", f"{role}/gate", e, 2 * width, h, site="ffn_input")
    yield s.one("mlp.experts.down_proj", f"{role}/down", e, h, width, site=site)
    shared = text.shared_expert_intermediate_size or 0
    yield from list_gated(s, "mlp.shared_expert", "moe/shared", h, shared)
    yield s.one("mlp.shared_expert_gate.weight", "moe/shared_score", 1, h, site="ffn_input")
