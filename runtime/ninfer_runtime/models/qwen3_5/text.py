"""Forward pass of the text decoder: columns in, hidden states and logits out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ninfer_formats.inventories.geometry import TextGeometry
from ninfer_kernels.causal_conv import causal_conv_prefill, causal_conv_round
from ninfer_kernels.gated_delta import gated_delta_prefill, gated_delta_round
from ninfer_kernels.kv_codec import KVPages, append_kv
from ninfer_kernels.linear import linear, linear_group
from ninfer_kernels.moe import MoeWeights, moe
from ninfer_kernels.paged_attention import paged_attention
from ninfer_kernels.rmsnorm import add_rmsnorm, gated_rmsnorm, rmsnorm
from ninfer_kernels.rope import Rotation, normalise_and_rotate, text_rotation
from ninfer_kernels.sigmoid_gate import sigmoid_gate
from ninfer_kernels.swiglu import swiglu
from ninfer_runtime.models.qwen3_5.columns import Columns
from ninfer_runtime.models.qwen3_5.weights import (
    AttentionWeights,
    GdnWeights,
    LayerWeights,
    MlpWeights,
    TextWeights,
)
from ninfer_runtime.state.recurrent import RecurrentLayer, RecurrentState

Watch = Callable[[int, torch.Tensor], None]


@dataclass(frozen=True)
class Decoder:
    """What does not change from pass to pass: sizes and the rotary table."""

    geometry: TextGeometry
    rotation: Rotation


@dataclass(frozen=True)
class DecoderState:
    """`kv` has one cache for each full-attention layer, in order."""

    kv: tuple[KVPages, ...]
    recurrent: RecurrentState


def make_decoder(geometry: TextGeometry, device: torch.device) -> Decoder:
    dimensions = round(geometry.head_dim * geometry.partial_rotary_factor)
    first, second, third = geometry.mrope_section
    rotation = text_rotation(
        geometry.rope_theta, dimensions, sections=(first, second, third), device=device
    )
    return Decoder(geometry, rotation)


def run_decoder(
    decoder: Decoder,
    weights: TextWeights,
    x: torch.Tensor,
    columns: Columns,
    state: DecoderState,
    watch: Watch | None = None,
) -> torch.Tensor:
    """Return the hidden states [lanes * width, H] after the final norm.

    `x` [lanes * width, H] holds the embeddings of the columns and is overwritten. `watch` gets
    every layer's number and output.
    """
    eps = decoder.geometry.rms_norm_eps
    caches, memories = iter(state.kv), iter(state.recurrent.layers)
    normed = rmsnorm(x, weights.layers[0].input_norm, eps, offset=True)
    following = [layer.input_norm for layer in weights.layers[1:]] + [weights.final_norm]
    for index, (layer, norm) in enumerate(zip(weights.layers, following, strict=True)):
        if isinstance(layer.mixer, AttentionWeights):
            mixed = run_attention(decoder, layer.mixer, normed, columns, next(caches))
        else:
            mixed = _run_gdn(decoder, layer.mixer, normed, columns, next(memories), state.recurrent)
        normed = _run_feed_forward(decoder, layer, mixed, x, norm)
        if watch is not None:
            watch(index, x)
    return normed


def run_attention_layer(
    decoder: Decoder,
    layer: LayerWeights,
    final_norm: torch.Tensor,
    x: torch.Tensor,
    columns: Columns,
    cache: KVPages,
) -> torch.Tensor:
    """Return the output of one attention layer and a final norm: the body of the MTP head."""
    assert isinstance(layer.mixer, AttentionWeights)
    normed = rmsnorm(x, layer.input_norm, decoder.geometry.rms_norm_eps, offset=True)
    mixed = run_attention(decoder, layer.mixer, normed, columns, cache)
    return _run_feed_forward(decoder, layer, mixed, x, final_norm)


def _run_feed_forward(
    decoder: Decoder,
    layer: LayerWeights,
    mixed: torch.Tensor,
    x: torch.Tensor,
    following: torch.Tensor,
) -> torch.Tensor:
    """Add the mixer's output to the stream `x`, then the feed-forward's; return the next norm's."""
    eps = decoder.geometry.rms_norm_eps
    normed, _ = add_rmsnorm(mixed, x, layer.post_attention_norm, eps, offset=True, sum_out=x)
    if isinstance(layer.feed_forward, MoeWeights):
        added = moe(normed, layer.feed_forward)
    else:
        added = _run_mlp(layer.feed_forward, normed)
    normed, _ = add_rmsnorm(added, x, following, eps, offset=True, sum_out=x)
    return normed


def run_attention(
    decoder: Decoder,
    weights: AttentionWeights,
    normed: torch.Tensor,
    columns: Columns,
    cache: KVPages,
) -> torch.Tensor:
    """Gated attention: append the columns' keys and values, attend, gate, project."""
    sizes = decoder.geometry
    tokens, d = normed.shape[0], sizes.head_dim
    heads, kv_heads = sizes.num_attention_heads, sizes.num_key_value_heads
    rows = linear_group(normed, weights.projections)
    parts = rows.split((heads * d, heads * d, kv_heads * d, kv_heads * d), dim=-1)
    q, gate = (part.view(tokens, heads, d) for part in parts[:2])
    k, v = (part.view(tokens, kv_heads, d) for part in parts[2:])
    q, k = normalise_and_rotate(
        q,
        k,
        weights.query_norm,
        weights.key_norm,
        columns.positions,
        decoder.rotation,
        eps=sizes.rms_norm_eps,
    )
    block = (columns.lanes, columns.width)
    round_of = (columns.pages, columns.base, columns.counts)
    append_kv(k.view(*block, kv_heads, d), v.view(*block, kv_heads, d), cache, *round_of)
    attended = paged_attention(q.view(*block, heads, d), cache, *round_of, d**-0.5)
    gated = sigmoid_gate(attended.view(tokens, heads, d), gate)
    return linear(gated.view(tokens, heads * d), weights.output)


def _run_gdn(
    decoder: Decoder,
    weights: GdnWeights,
    normed: torch.Tensor,
    columns: Columns,
    memory: RecurrentLayer,
    recurrent: RecurrentState,
) -> torch.Tensor:
    sizes = decoder.geometry
    tokens, heads = normed.shape[0], sizes.linear_num_value_heads
    channels, values = 2 * sizes.linear_key_size + sizes.linear_value_size, sizes.linear_value_size
    rows = linear_group(normed, weights.projections)
    block = rows.view(columns.lanes, columns.width, -1)
    mixed, z, a, b = block.split((channels, values, heads, heads), dim=-1)
    gates = (a, b, weights.a_log, weights.dt_bias)
    if columns.prefill:
        mixed = causal_conv_prefill(
            mixed, weights.convolution, memory.window, columns.slots, columns.base
        )
        mixed = gated_delta_prefill(
            mixed, *gates, memory.state, memory.records,
            columns.slots, columns.base, recurrent.accepted,
        )  # fmt: skip
    else:
        mixed = causal_conv_round(
            mixed, weights.convolution, memory.window, columns.slots, columns.counts, columns.base
        )
        mixed = gated_delta_round(
            mixed, *gates, memory.state, memory.records,
            columns.slots, columns.counts, columns.base, recurrent.accepted, recurrent.settled,
        )  # fmt: skip
    head_dim = sizes.linear_value_head_dim
    normal = gated_rmsnorm(
        mixed.view(tokens, heads, head_dim),
        z.reshape(tokens, heads, head_dim),
        weights.norm,
        sizes.rms_norm_eps,
    )
    return linear(normal.view(tokens, values), weights.output)


def _run_mlp(weights: MlpWeights, normed: torch.Tensor) -> torch.Tensor:
    return linear(swiglu(linear_group(normed, weights.gate_up)), weights.down)
