"""The tensors of a drafter's own checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from ninfer_formats.inventories.geometry import DrafterGeometry, TextGeometry
from ninfer_tools.synthetic.checkpoint_sections import CheckpointTensor, Section, list_gated


def list_drafter_tensors(
    drafter: DrafterGeometry, text: TextGeometry
) -> Iterator[CheckpointTensor]:
    """Yield the tensors of a drafter's own checkpoint, which has no prefix, in model order."""
    h, taps = text.hidden_size, len(drafter.target_layer_ids)
    kind = drafter.kind
    s = Section("", f"{kind}/", kind)
    yield s.one("fc.weight", "feature_projection", h, taps * h, site="target_features")
    yield s.one("hidden_norm.weight", "context_norm", h)
    for i in range(drafter.num_hidden_layers):
        layer = Section(f"layers.{i}.", f"{kind}/layers/{i}/", kind, i)
        yield from _list_drafter_layer(layer, drafter, h)
    yield s.one("norm.weight", "final_norm", h)
    if drafter.selector_rank is not None:
        rank, rows = drafter.selector_rank, text.vocab_size
        c = Section("candidate_selector.", f"{kind}/candidate_selector/", kind)
        yield c.one("hidden_projection.weight", "hidden_projection", rank, h)
        yield c.one("predecessor_codebook", "predecessor_codebook", rows, rank)
        yield c.one("successor_codebook", "successor_codebook", rows, rank)


def _list_drafter_layer(s: Section, drafter: DrafterGeometry, h: int) -> Iterator[CheckpointTensor]:
    d = drafter.head_dim
    q, kv = drafter.num_attention_heads * d, drafter.num_key_value_heads * d
    yield s.one("input_layernorm.weight", "input_norm", h)
    yield s.one("post_attention_layernorm.weight", "post_attention_norm", h)
    for name, role, rows in (("q", "query", q), ("k", "key", kv), ("v", "value", kv)):
        yield s.one(f"self_attn.{name}_proj.weight", f"attention/{role}", rows, h)
    yield s.one("self_attn.o_proj.weight", "attention/output", h, q)
    yield s.one("self_attn.q_norm.weight", "attention/query_norm", d)
    yield s.one("self_attn.k_norm.weight", "attention/key_norm", d)
    yield from list_gated(s, "mlp", "mlp", h, drafter.intermediate_size)
    if drafter.conv_kernel_size is not None and drafter.conv_group_size is not None:
        taps, groups = drafter.conv_kernel_size, h // drafter.conv_group_size
        for name in ("attention_conv", "mlp_conv"):
            kernel = f"{name}.kernel_projection.weight"
            yield s.one(f"{name}.base_kernel", f"{name}/base_kernel", 2, taps, h)
            yield s.one(kernel, f"{name}/kernel_projection", 2 * taps * groups, h)
