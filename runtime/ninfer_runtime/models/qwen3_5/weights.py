"""Weights of a text decoder and its MTP head, joined the way the forward pass reads them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_formats.inventories.geometry import FULL_ATTENTION, TextGeometry
from ninfer_kernels.linear import Matrix
from ninfer_kernels.moe import MoeWeights, SharedExpert, stack_experts
from ninfer_runtime.weights.source import WeightSource

Matrices = tuple[Matrix, ...]


@dataclass(frozen=True)
class AttentionWeights:
    """`projections`: rows query | gate | key | value, from the normed input."""

    projections: Matrices
    query_norm: torch.Tensor
    key_norm: torch.Tensor
    output: Matrix


@dataclass(frozen=True)
class GdnWeights:
    """`projections`: rows query | key | value | z | a | b, from the normed input; `convolution`
    [4, C], oldest tap first."""

    projections: Matrices
    convolution: torch.Tensor
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    norm: torch.Tensor
    output: Matrix


@dataclass(frozen=True)
class MlpWeights:
    """`gate_up`: rows gate | up."""

    gate_up: Matrices
    down: Matrix


@dataclass(frozen=True)
class LayerWeights:
    input_norm: torch.Tensor
    post_attention_norm: torch.Tensor
    mixer: AttentionWeights | GdnWeights
    feed_forward: MlpWeights | MoeWeights


@dataclass(frozen=True)
class TextWeights:
    embedding: Matrix
    layers: tuple[LayerWeights, ...]
    final_norm: torch.Tensor
    head: Matrix


@dataclass(frozen=True)
class MtpWeights:
    """`input_projection` reads the normed embedding, then the normed hidden state."""

    embedding_norm: torch.Tensor
    hidden_norm: torch.Tensor
    input_projection: Matrix
    layer: LayerWeights
    final_norm: torch.Tensor


@dataclass(frozen=True)
class ProposalWeights:
    """Shortlist head: row i of `head` scores token `token_ids[i]` (int32)."""

    head: Matrix
    token_ids: torch.Tensor


def load_text(source: WeightSource, geometry: TextGeometry) -> TextWeights:
    """Load the decoder; a tied head shares the embedding's tensors."""
    embedding = source.matrix("text/token_embedding")
    bindings = source.artifact.bindings
    tied = bindings["text/output_head"] == bindings["text/token_embedding"]
    return TextWeights(
        embedding,
        tuple(
            _load_layer(source, geometry, f"text/layers/{index}", kind == FULL_ATTENTION)
            for index, kind in enumerate(geometry.layer_types)
        ),
        source.vector("text/final_norm"),
        embedding if tied else source.matrix("text/output_head"),
    )


def load_mtp(source: WeightSource, geometry: TextGeometry) -> MtpWeights:
    return MtpWeights(
        source.vector("mtp/embedding_norm"),
        source.vector("mtp/hidden_norm"),
        source.matrix("mtp/input_projection"),
        _load_layer(source, geometry, "mtp/layers/0", True),
        source.vector("mtp/final_norm"),
    )


def load_proposal(source: WeightSource) -> ProposalWeights:
    ids = source.vector("proposal/token_ids", torch.int32)
    return ProposalWeights(source.matrix("proposal/head"), ids)


def _load_layer(
    source: WeightSource, geometry: TextGeometry, prefix: str, attention: bool
) -> LayerWeights:
    load_mixer = _load_attention if attention else _load_gdn
    return LayerWeights(
        source.vector(f"{prefix}/input_norm"),
        source.vector(f"{prefix}/post_attention_norm"),
        load_mixer(source, prefix),
        _load_moe(source, geometry, prefix)
        if geometry.is_moe
        else _load_mlp(source, f"{prefix}/mlp"),
    )


def _load_attention(source: WeightSource, prefix: str) -> AttentionWeights:
    names = (f"{prefix}/attention/{role}" for role in ("query", "gate", "key", "value"))
    return AttentionWeights(
        source.matrices(*names),
        source.vector(f"{prefix}/attention/query_norm"),
        source.vector(f"{prefix}/attention/key_norm"),
        source.matrix(f"{prefix}/attention/output"),
    )


def _load_gdn(source: WeightSource, prefix: str) -> GdnWeights:
    roles = ("query", "key", "value", "z", "a_projection", "b_projection")
    return GdnWeights(
        source.matrices(*(f"{prefix}/gdn/{role}" for role in roles)),
        source.vector(f"{prefix}/gdn/convolution"),
        source.vector(f"{prefix}/gdn/a_log", torch.float32),
        source.vector(f"{prefix}/gdn/dt_bias", torch.float32),
        source.vector(f"{prefix}/gdn/norm"),
        source.matrix(f"{prefix}/gdn/output"),
    )


def _load_mlp(source: WeightSource, prefix: str) -> MlpWeights:
    gate_up = source.matrices(f"{prefix}/gate", f"{prefix}/up")
    return MlpWeights(gate_up, source.matrix(f"{prefix}/down"))


def _load_moe(source: WeightSource, geometry: TextGeometry, prefix: str) -> MoeWeights:
    experts = geometry.num_experts or 0
    gate, up, down = (
        stack_experts(
            source.matrix(*(f"{prefix}/moe/experts/{e}/{role}" for e in range(experts))), experts
        )
        for role in ("gate", "up", "down")
    )
    shared = _load_mlp(source, f"{prefix}/moe/shared")
    score = source.matrix(f"{prefix}/moe/shared_score")
    return MoeWeights(
        source.matrix(f"{prefix}/moe/router"),
        gate,
        up,
        down,
        geometry.num_experts_per_tok or 0,
        SharedExpert(shared.gate_up, shared.down, score),
    )
