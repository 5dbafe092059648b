# pyright: reportMissingImports=false
"""The DFlash2 drafter in plain torch: config, weights, block forward, loss and greedy proposal.

A block is an anchor token and masks after it; its rows see the target's features of positions
before the anchor (within the window) and the rows of their own block. Shapes: R texts of L
positions, A blocks per text, n rows per block, H hidden size, T kernel taps, G channel groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from gated_delta import linear
from mtp_module import rotate
from torch import Tensor

BLOCK = 8
THETA = 1e7
SELECTOR = "candidate_selector."
LAYER_NAMES = (
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "attention_conv.base_kernel",
    "attention_conv.kernel_projection.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
    "mlp_conv.base_kernel",
    "mlp_conv.kernel_projection.weight",
)
Weights = dict[str, Tensor]


def make_drafter_config(
    target: Any, mask_token: int, layers: int, window: int, taps: list[int]
) -> dict[str, Any]:
    return {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "dtype": "bfloat16",
        "eos_token_id": target.eos_token_id,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": target.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": 768,
        "is_causal": False,
        "layer_types": ["sliding_attention"] * layers,
        "max_position_embeddings": 32768,
        "num_attention_heads": 4,
        "num_hidden_layers": layers,
        "num_key_value_heads": 2,
        "num_target_layers": target.num_hidden_layers,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": int(THETA), "rope_type": "default"},
        "sliding_window": window,
        "use_sliding_window": True,
        "max_window_layers": 0,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": target.vocab_size,
        "dflash_config": {
            "block_size": BLOCK,
            "mask_token_id": mask_token,
            "target_layer_ids": taps,
            "conv_kernel_size": 2,
            "conv_group_size": 16,
            "selector_rank": 64,
            "selector_top_k": 16,
        },
    }


def list_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return name -> shape of every stored tensor."""
    h, width, inner = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    q, kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    own = config["dflash_config"]
    taps, rank = own["conv_kernel_size"], own["selector_rank"]
    groups = h // own["conv_group_size"]
    layer = [(h,), (q, h), (kv, h), (kv, h), (h, q), (width,), (width,), (2, taps, h)]
    layer += [(2 * taps * groups, h), (h,), (inner, h), (inner, h), (h, inner), (2, taps, h)]
    layer += [(2 * taps * groups, h)]
    # The order is part of the initial values: each tensor draws from one stream in turn.
    order = [0, 9, 1, 2, 3, 4, 5, 6, 10, 11, 12, 7, 8, 13, 14]
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (h, h * len(own["target_layer_ids"])),
        "hidden_norm.weight": (h,),
        "norm.weight": (h,),
    }
    for number in range(config["num_hidden_layers"]):
        for i in order:
            shapes[f"layers.{number}.{LAYER_NAMES[i]}"] = layer[i]
    shapes[SELECTOR + "hidden_projection.weight"] = (rank, h)
    for name in ("predecessor_codebook", "successor_codebook"):
        shapes[SELECTOR + name] = (config["vocab_size"], rank)
    return shapes


def initialise_drafter(
    config: dict[str, Any], device: Any, seed: int, final_norm: Tensor
) -> Weights:
    """Return trainable float32 weights; convolutions start as the identity."""
    generator = torch.Generator().manual_seed(seed)

    def draw(shape: tuple[int, ...], scale: float) -> Tensor:
        return torch.randn(*shape, generator=generator) * scale

    weights = {}
    for name, shape in list_shapes(config).items():
        if name == "norm.weight":
            # The target's head expects the scale of the target's own norm.
            value = 1 + final_norm.detach().float().cpu()
        elif name.endswith("norm.weight"):
            value = torch.ones(shape)
        elif name.endswith("base_kernel"):
            value = torch.zeros(shape)
            value[:, 0] = 1
        elif name.endswith("kernel_projection.weight"):
            value = torch.zeros(shape)
        elif name.endswith("codebook"):
            value = draw(shape, 0.3 if "predecessor" in name else 0.02)
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            value = draw(shape, 0.1 / shape[1] ** 0.5)
        else:
            value = draw(shape, shape[1] ** -0.5)
        weights[name] = value.to(device).requires_grad_()
    return weights


def scale_norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm with a plain weight, in float32."""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    return y.to(x.dtype)


def convolve(y: Tensor, kernels: Tensor, base: Tensor) -> Tensor:
    """y [..., n, H], kernels [..., n, T, G], base [T, H]: causal in the block, zero before it."""
    groups = kernels.shape[-1]
    grouped = y.unflatten(-1, (groups, -1))
    out = torch.zeros((), device=y.device)
    for tap in range(base.shape[0]):
        moved = grouped if tap == 0 else F.pad(grouped[..., :-tap, :, :], (0, 0, 0, 0, tap, 0))
        kernel = base[tap].view(groups, -1) + kernels[..., tap, :, None].float()
        out = out + moved.float() * kernel
    return out.flatten(-2).to(y.dtype)


def rotary_angles(positions: Tensor, width: int = 64) -> tuple[Tensor, Tensor]:
    pairs = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32)
    angles = positions.float()[..., None] * THETA ** (-pairs / width)
    angles = torch.cat([angles, angles], -1)[..., None, :]
    return angles.cos(), angles.sin()


class Blocks(NamedTuple):
    """Blocks of R texts: anchor positions, tokens, segments and used rows [R, A]; seg [R, L]."""

    anchor: Tensor
    token: Tensor
    segment: Tensor
    rows: Tensor
    text_segments: Tensor


def make_mask(blocks: Blocks, n: int, window: int, dtype: torch.dtype) -> Tensor:
    """Additive mask [R, 1, A * n, L + A * n]: features before the anchor, rows of the block."""
    anchor = blocks.anchor
    texts, count = anchor.shape
    i = torch.arange(n, device=anchor.device)
    query = (anchor[..., None] + i)[..., None]
    key = torch.arange(blocks.text_segments.shape[1], device=anchor.device)
    same = blocks.text_segments[:, None, None] == blocks.segment[..., None, None]
    context = (key < anchor[..., None, None]) & (query - key < window) & same
    e = torch.arange(count, device=anchor.device)
    own = e[:, None, None, None] == e[None, None, :, None]
    own = own & (i < blocks.rows[:, :, None, None, None])
    own = own.expand(texts, count, n, count, n).reshape(texts, count * n, count * n)
    mask = torch.cat([context.view(texts, count * n, -1), own], -1)
    return torch.where(mask, 0.0, float("-inf")).to(dtype)[:, None]


def project_features(features: Tensor, fc: Tensor, norm: Tensor) -> Tensor:
    return scale_norm(linear(features, fc), norm)


def drafter_layer(
    x: Tensor,
    context: Tensor,
    mask: Tensor,
    angles: tuple[Tensor, Tensor, Tensor, Tensor],
    w: list[Tensor],
    sizes: tuple[int, int, int],
) -> Tensor:
    """x [R, A, n, H], context [R, L, H]; `w` in the order of LAYER_NAMES."""
    texts, count, n, h = x.shape
    heads, kv_heads, width = sizes
    length, taps, rows = context.shape[1], w[7].shape[1], count * n
    inner = scale_norm(x, w[0])
    kernels = linear(inner, w[8]).view(texts, count, n, 2, taps, -1)
    y = convolve(inner, kernels[..., 0, :, :], w[7][0]).view(texts, rows, h)
    q = rotate(scale_norm(linear(y, w[1]).view(texts, rows, heads, width), w[5]), *angles[:2])
    own = linear(y, w[2]).view(texts, rows, kv_heads, width)
    own = rotate(scale_norm(own, w[6]), *angles[:2])
    far = linear(context, w[2]).view(texts, length, kv_heads, width)
    far = rotate(scale_norm(far, w[6]), *angles[2:])
    v = torch.cat([linear(context, w[3]), linear(y, w[3])], 1)

    def repeat(t: Tensor) -> Tensor:
        wide = t[:, :, :, None].expand(-1, -1, -1, heads // kv_heads, -1)
        return wide.reshape(texts, length + rows, heads, width).transpose(1, 2)

    out = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        repeat(torch.cat([far, own], 1)),
        repeat(v.view(texts, length + rows, kv_heads, width)),
        attn_mask=mask.expand(-1, heads, -1, -1),
        scale=width**-0.5,
    )
    out = linear(out.transpose(1, 2).reshape(texts, count, n, heads * width), w[4])
    x = x + convolve(out, kernels[..., 1, :, :], w[7][1])
    inner = scale_norm(x, w[9])
    kernels = linear(inner, w[14]).view(texts, count, n, 2, taps, -1)
    y = convolve(inner, kernels[..., 0, :, :], w[13][0])
    y = linear(F.silu(linear(y, w[10])) * linear(y, w[11]), w[12])
    return x + convolve(y, kernels[..., 1, :, :], w[13][1])


def divergence(h: Tensor, target: Tensor, head: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits and KL(target || draft) of the rows h, target [N, H]."""
    logits = linear(h, head).float()
    wanted = torch.log_softmax(linear(target, head).float(), -1)
    return logits, (wanted.exp() * (wanted - torch.log_softmax(logits, -1))).sum(-1)


def selector_loss(
    h: Tensor, logits: Tensor, ids: Tensor, true: tuple[Tensor, Tensor], w: list[Tensor]
) -> Tensor:
    """Cross entropy over the candidates given the true predecessor.

    `true` is (token, token before); a true token that is no candidate replaces the last one.
    `w` is (hidden projection, predecessor codebook, successor codebook).
    """
    token, before = true
    hit = ids == token[:, None]
    last = torch.where(hit.any(1), ids[:, -1], token)[:, None]
    ids = torch.cat([ids[:, :-1], last], 1)
    link = F.embedding(before, w[1]) * linear(h, w[0]).float()
    scores = logits.gather(1, ids) + (F.embedding(ids, w[2]) * link[:, None]).sum(-1)
    return torch.logsumexp(scores, 1) - (scores * (ids == token[:, None])).sum(1)


COMPILED = (make_mask, project_features, drafter_layer, divergence, selector_loss, scale_norm)


class Batch(NamedTuple):
    """Features [R, L, taps * H], their blocks, and per draft row: target state, truth, weight."""

    features: Tensor
    blocks: Blocks
    target: Tensor
    token: Tensor
    before: Tensor
    weight: Tensor


class Losses(NamedTuple):
    total: Tensor
    divergence: Tensor
    selector: Tensor
    hit: Tensor


class Drafter:
    """The block forward over given weights; embedding and head are the target's."""

    def __init__(
        self,
        config: dict[str, Any],
        weights: Weights,
        embedding: Tensor,
        head: Tensor,
        dtype: torch.dtype,
        compiled: bool = False,
    ) -> None:
        self.config, self.weights, self.own = config, weights, config["dflash_config"]
        self.embedding, self.head, self.dtype = embedding, head, dtype
        self.call: dict[str, Callable[..., Any]] = {
            function.__name__: torch.compile(function, dynamic=False) if compiled else function
            for function in COMPILED
        }
        names = ("hidden_projection.weight", "predecessor_codebook", "successor_codebook")
        self.selector = [weights[SELECTOR + name] for name in names]

    def run_blocks(self, features: Tensor, blocks: Blocks, n: int) -> Tensor:
        """Return the final-norm output [R, A, n, H] of blocks of n rows."""
        config, weights, anchor = self.config, self.weights, blocks.anchor
        texts, count = anchor.shape
        mask = self.call["make_mask"](blocks, n, config["sliding_window"], self.dtype)
        masks = torch.full((texts, count, n - 1), self.own["mask_token_id"], device=anchor.device)
        ids = torch.cat([blocks.token[..., None], masks], -1)
        x = F.embedding(ids, self.embedding).to(self.dtype)
        context = self.call["project_features"](
            features, weights["fc.weight"], weights["hidden_norm.weight"]
        )
        places = anchor[..., None] + torch.arange(n, device=anchor.device)
        own = rotary_angles(places.view(texts, count * n))
        far = rotary_angles(torch.arange(features.shape[1], device=anchor.device))
        sizes = (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"])
        for number in range(config["num_hidden_layers"]):
            layer = [weights[f"layers.{number}.{name}"] for name in LAYER_NAMES]
            x = self.call["drafter_layer"](x, context, mask, (*own, *far), layer, sizes)
        return self.call["scale_norm"](x, weights["norm.weight"])

    def loss(self, batch: Batch, alpha: float) -> Losses:
        """Weighted KL to the target plus `alpha` times the selector's cross entropy."""
        h = self.run_blocks(batch.features, batch.blocks, self.own["block_size"])
        h = h[:, :, 1:].flatten(0, 2)
        logits, kl = self.call["divergence"](h, batch.target, self.head)
        ids = logits.detach().topk(self.own["selector_top_k"], -1).indices
        true = (batch.token, batch.before)
        selector = self.call["selector_loss"](h, logits, ids, true, self.selector)
        total = (batch.weight * (kl + alpha * selector)).sum()
        hit = (ids[:, 0] == batch.token).float()
        return Losses(total, kl.detach(), selector.detach(), hit)

    @torch.no_grad()
    def propose(self, h: Tensor, anchor_tokens: Tensor, tokens: int) -> Tensor:
        """Walk greedily: h [N, K, H] (rows after the anchor) -> drafts [N, K] below `tokens`."""
        projection, before, after = self.selector
        scores, ids = (
            linear(h, self.head).float()[..., :tokens].topk(self.own["selector_top_k"], -1)
        )
        links = linear(h, projection).float()
        previous, drafts = anchor_tokens, []
        for j in range(h.shape[1]):
            link = before[previous].float() * links[:, j]
            total = scores[:, j] + (link[:, None] * after[ids[:, j]].float()).sum(-1)
            previous = ids[:, j].gather(1, total.argmax(-1, keepdim=True))[:, 0]
            drafts.append(previous)
        return torch.stack(drafts, 1)

    @torch.no_grad()
    def draft(self, features: Tensor, ids: Tensor, anchors: Tensor, k: int, tokens: int) -> Tensor:
        """Drafts [N, k] at the anchors [N] of one text, from features [L, taps * H] before them."""
        length = min(len(ids), int(anchors.max()))
        # The masked kernels want multiples of 8; the extra keys lie behind every anchor.
        padding = -(length + len(anchors) * (k + 1)) % 8
        zeros = torch.zeros(1, len(ids), dtype=torch.long, device=ids.device)
        blocks = Blocks(
            anchors[None],
            ids[anchors][None],
            zeros[:, : len(anchors)],
            torch.full_like(anchors[None], k + 1),
            F.pad(zeros[:, :length], (0, padding), value=-1),
        )
        padded = F.pad(features[:length], (0, 0, 0, padding))
        h = self.run_blocks(padded[None], blocks, k + 1)[0, :, 1:]
        return self.propose(h, ids[anchors], tokens)
