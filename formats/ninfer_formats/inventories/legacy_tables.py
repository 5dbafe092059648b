"""Names and order of version 1/2 tensors, and which parameters each one holds.

An entry is the tensor's name followed by the roles stacked in it; an entry of one string holds the
role of the same name.
"""

from __future__ import annotations

Entry = tuple[str, ...]
Table = tuple[Entry, ...]

_NORM_BEFORE: Table = (("input_norm",),)
_NORM_AFTER: Table = (("post_attention_norm",),)
_QUERY, _KEY, _GATE, _VALUE = (f"attention/{n}" for n in ("query", "key", "gate", "value"))
_HEAD_NORMS_AND_OUTPUT: Table = (
    ("attention/query_norm",),
    ("attention/key_norm",),
    ("attention/output",),
)

ATTENTION_FUSED: Table = (
    *_NORM_BEFORE,
    ("attention/query_key_gate_value", _QUERY, _KEY, _GATE, _VALUE),
    *_HEAD_NORMS_AND_OUTPUT,
    *_NORM_AFTER,
)
ATTENTION_SPLIT: Table = (
    *_NORM_BEFORE,
    ("attention/query_key", _QUERY, _KEY),
    ("attention/gate_value", _GATE, _VALUE),
    *_HEAD_NORMS_AND_OUTPUT,
    *_NORM_AFTER,
)

_GDN_STATE: Table = (*_NORM_BEFORE, ("gdn/a_log",), ("gdn/dt_bias",), ("gdn/convolution",))
_GDN_OUTPUT: Table = (("gdn/norm",), ("gdn/output",), *_NORM_AFTER)
_A_B_SEPARATE: Table = (("gdn/a_projection",), ("gdn/b_projection",))
_A_B_FUSED: Table = (("gdn/a_b_projection", "gdn/a_projection", "gdn/b_projection"),)
_GDN_INPUT_FUSED: Table = (("gdn/query_key_value_z", "gdn/query", "gdn/key", "gdn/value", "gdn/z"),)
_GDN_INPUT_SPLIT: Table = (
    ("gdn/query_key", "gdn/query", "gdn/key"),
    ("gdn/value_z", "gdn/value", "gdn/z"),
)

GDN_SPLIT: Table = (*_GDN_STATE, *_A_B_SEPARATE, *_GDN_INPUT_SPLIT, *_GDN_OUTPUT)
GDN_FUSED: Table = (*_GDN_STATE, *_A_B_FUSED, *_GDN_INPUT_FUSED, *_GDN_OUTPUT)
GDN_FUSED_A_B_SEPARATE: Table = (
    *_GDN_STATE,
    *_A_B_SEPARATE,
    *_GDN_INPUT_FUSED,
    *_GDN_OUTPUT,
)

MLP: Table = (("mlp/gate_up", "mlp/gate", "mlp/up"), ("mlp/down",))
MOE: Table = (
    ("moe/router_shared_gate", "moe/router", "moe/shared_score"),
    ("moe/routed_gate_up", "moe/experts/{}/gate", "moe/experts/{}/up"),
    ("moe/routed_down", "moe/experts/{}/down"),
    ("moe/shared_gate_up", "moe/shared/gate", "moe/shared/up"),
    ("moe/shared_down", "moe/shared/down"),
)

MTP_STEM: Table = (("input_projection",), ("embedding_norm",), ("hidden_norm",))
FINAL_NORM: Table = (("final_norm",),)

VISION_STEM: Table = (("patch_embedding",), ("patch_embedding_bias",), ("position_embedding",))
VISION_LAYER: Table = (
    ("attention/qkv", _QUERY, _KEY, _VALUE),
    ("attention/qkv_bias", f"{_QUERY}_bias", f"{_KEY}_bias", f"{_VALUE}_bias"),
    ("attention/output",),
    ("attention/output_bias",),
    ("mlp/fc1",),
    ("mlp/fc1_bias",),
    ("mlp/fc2",),
    ("mlp/fc2_bias",),
    ("norm1/weight", "norm1_weight"),
    ("norm1/bias", "norm1_bias"),
    ("norm2/weight", "norm2_weight"),
    ("norm2/bias", "norm2_bias"),
)
VISION_MERGER: Table = (
    ("fc1",),
    ("fc1_bias",),
    ("fc2",),
    ("fc2_bias",),
    ("norm/weight", "norm_weight"),
    ("norm/bias", "norm_bias"),
)

DRAFTER_STEM: Table = (("feature_projection",), ("context_norm",))
_DRAFTER_ATTENTION: Table = (
    ("attention/query_key_value", _QUERY, _KEY, _VALUE),
    *_HEAD_NORMS_AND_OUTPUT,
    *_NORM_AFTER,
)
DFLASH_LAYER: Table = (*_NORM_BEFORE, *_DRAFTER_ATTENTION, *MLP)
DFLASH2_LAYER: Table = (
    *_NORM_BEFORE,
    ("attention_conv/base_kernel",),
    ("attention_conv/kernel_projection",),
    *_DRAFTER_ATTENTION,
    ("mlp_conv/base_kernel",),
    ("mlp_conv/kernel_projection",),
    *MLP,
)
SELECTOR: Table = (("hidden_projection",), ("predecessor_codebook",), ("successor_codebook",))

# Matrix -> the projection name under which its activation divisor is stored.
DIVISOR_OWNERS = {
    "attention/query_key_gate_value": "attention/input_projection",
    "attention/output": "attention/output_projection",
    "gdn/query_key_value_z": "gdn/input_projection",
    "gdn/output": "gdn/output_projection",
    "mlp/gate_up": "mlp/gate_up_projection",
    "mlp/down": "mlp/down_projection",
}

# (object name, role, component that owns it), in file order.
FRONTEND_RESOURCES: tuple[tuple[str, str, str], ...] = (
    ("frontend/tokenizer.json", "tokenizer.json", "text"),
    ("frontend/tokenizer_config.json", "tokenizer_config.json", "text"),
    ("frontend/chat_template.jinja", "chat_template.jinja", "text"),
    ("frontend/generation_config.json", "generation_config.json", "text"),
    ("frontend/preprocessor_config.json", "preprocessor_config.json", "vision"),
    ("frontend/video_preprocessor_config.json", "video_preprocessor_config.json", "vision"),
)
