"""Forward pass of the MTP head: the token after next, from a hidden state and the next token."""

from __future__ import annotations

import torch

from ninfer_kernels.kv_codec import KVPages
from ninfer_kernels.linear import linear
from ninfer_kernels.rmsnorm import rmsnorm
from ninfer_runtime.models.qwen3_5.columns import Columns
from ninfer_runtime.models.qwen3_5.text import Decoder, run_attention_layer
from ninfer_runtime.models.qwen3_5.weights import MtpWeights


def run_mtp(
    decoder: Decoder,
    weights: MtpWeights,
    embedded: torch.Tensor,
    hidden: torch.Tensor,
    columns: Columns,
    cache: KVPages,
) -> torch.Tensor:
    """Return the head's hidden states [T, H] after its final norm; the output head reads them.

    Row i joins the embedding of token t + 1 (`embedded` [T, H]) and the decoder's hidden state of
    token t after the final norm (`hidden` [T, H]); it has the position of token t.
    """
    eps = decoder.geometry.rms_norm_eps
    joined = torch.cat(
        (
            rmsnorm(embedded, weights.embedding_norm, eps, offset=True),
            rmsnorm(hidden, weights.hidden_norm, eps, offset=True),
        ),
        dim=-1,
    )
    x = linear(joined, weights.input_projection)
    return run_attention_layer(decoder, weights.layer, weights.final_norm, x, columns, cache)
