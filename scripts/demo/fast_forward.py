# pyright: reportMissingImports=false
"""The training forward over the transformers model's own parameters.

Equal to transformers' forward, but free of Python-side branching, so that it compiles; GDN in
chunks; all images of a step in one padded batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from gated_delta import gdn_chunk, gdn_in, gdn_mid, gdn_read, linear, scan_chunks
from image_patches import MERGE, MOST_PATCHES
from mtp_module import MtpModule, normalise, rotate
from torch import Tensor

MERGED = MERGE * MERGE


def mlp(h: Tensor, norm: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    x = normalise(h, norm)
    return h + linear(F.silu(linear(x, gate)) * linear(x, up), down)


def gdn_out(
    h: Tensor, out: Tensor, z: Tensor, norm: Tensor, weight: Tensor, rest: list[Tensor]
) -> Tensor:
    """Norm, output gate, projection and MLP; out [B, L, nv, dv]."""
    batch, length, nv, dv = out.shape
    out = out.float()
    out = out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + 1e-6) * norm
    out = out * F.silu(z.view(batch, length, nv, dv).float())
    out = out.to(h.dtype).reshape(batch, length, nv * dv)
    return mlp(h + linear(out, weight), *rest)


def attention_block(
    h: Tensor,
    norm: Tensor,
    projections: list[Tensor],
    norms: tuple[Tensor, Tensor],
    rest: list[Tensor],
    rope: tuple[Tensor, Tensor],
    sizes: tuple[int, int, int],
) -> Tensor:
    """Gated full attention and MLP; `projections` are those of q, k, v and the output."""
    batch, length, _ = h.shape
    heads, kv_heads, width = sizes
    x = normalise(h, norm)
    q, gate = linear(x, projections[0]).view(batch, length, heads, 2 * width).chunk(2, -1)
    k = linear(x, projections[1]).view(batch, length, kv_heads, width)
    v = linear(x, projections[2]).view(batch, length, kv_heads, width)
    cos, sin = rope[0][:, :, None], rope[1][:, :, None]
    q = rotate(normalise(q, norms[0]), cos, sin)
    k = rotate(normalise(k, norms[1]), cos, sin)

    def repeat(t: Tensor) -> Tensor:
        wide = t[:, :, :, None].expand(batch, length, kv_heads, heads // kv_heads, width)
        return wide.reshape(batch, length, heads, width).transpose(1, 2)

    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), repeat(k), repeat(v), is_causal=True, scale=width**-0.5
    )
    out = out.transpose(1, 2) * torch.sigmoid(gate)
    return mlp(h + linear(out.reshape(batch, length, heads * width), projections[3]), *rest)


def mtp_in(embedded: Tensor, state: Tensor, norms: tuple[Tensor, Tensor], fc: Tensor) -> Tensor:
    return linear(torch.cat([normalise(embedded, norms[0]), normalise(state, norms[1])], -1), fc)


def token_losses(h: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy of every token, in float32."""
    logits = linear(h, head).float()
    chosen = logits.gather(-1, targets[..., None]).squeeze(-1)
    return torch.logsumexp(logits, -1) - chosen


def vision_forward(
    frames: tuple[Tensor, Tensor],
    grid: tuple[Tensor, Tensor, Tensor, Tensor],
    counts: Tensor,
    embedding: tuple[Tensor, Tensor, Tensor],
    blocks: list[list[Tensor]],
    merger: list[Tensor],
    heads: int,
    dtype: torch.dtype,
) -> Tensor:
    """uint8 frames [n, P, 768] -> merged features [n, P / 4, out].

    `grid` holds, per patch, position taps and weights, and rotary cosine and sine.
    """
    n, patches, _ = frames[0].shape
    table, weight, bias = embedding
    first, second = ((frame.float() / 255 - 0.5) / 0.5 for frame in frames)
    width = weight.shape[0]
    kernel = weight.view(width, 3, 2, 256)
    x = linear(first.to(dtype), kernel[:, :, 0].reshape(width, 768))
    x = x + linear(second.to(dtype), kernel[:, :, 1].reshape(width, 768)) + bias.to(dtype)
    x = x + (F.embedding(grid[0], table) * grid[1][..., None]).sum(-2).to(dtype)
    valid = torch.arange(patches, device=x.device)[None, :] < counts[:, None].clamp(min=1)
    rope = (grid[2][:, :, None], grid[3][:, :, None])
    for block in blocks:
        x = vision_block(x, block, valid[:, None, None, :], rope, heads)
    x = layer_norm(x, *merger[:2]).reshape(n, patches // MERGED, MERGED * width)
    return affine(F.gelu(affine(x, *merger[2:4])), *merger[4:])


def vision_block(
    x: Tensor, block: list[Tensor], valid: Tensor, rope: tuple[Tensor, Tensor], heads: int
) -> Tensor:
    n, patches, width = x.shape
    qkv = affine(layer_norm(x, *block[:2]), *block[2:4])
    q, k, v = qkv.view(n, patches, 3, heads, width // heads).unbind(2)
    q, k = rotate(q, *rope), rotate(k, *rope)
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=valid
    )
    x = x + affine(out.transpose(1, 2).reshape(n, patches, width), *block[4:6])
    inner = F.gelu(affine(layer_norm(x, *block[6:8]), *block[8:10]), approximate="tanh")
    return x + affine(inner, *block[10:])


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x.float(), (x.shape[-1],), weight, bias, 1e-6).to(x.dtype)


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(x, weight.to(x.dtype), bias.to(x.dtype))


COMPILED = (
    gdn_in,
    gdn_chunk,
    gdn_mid,
    gdn_read,
    gdn_out,
    attention_block,
    mtp_in,
    token_losses,
    vision_forward,
    normalise,
)


class FastForward:
    """Forward passes of a model and, for training, its MTP module."""

    def __init__(
        self,
        model: Any,
        mtp: MtpModule | None,
        dtype: torch.dtype,
        compiled: bool = False,
        fla: bool = False,
    ) -> None:
        self.model, self.mtp, self.dtype = model, mtp, dtype
        self.config = model.config.text_config
        self.language, self.visual = model.model.language_model, model.model.visual
        self.call: dict[str, Callable[..., Any]] = {
            function.__name__: torch.compile(function, dynamic=False) if compiled else function
            for function in COMPILED
        }
        self.fla: Any = None
        if fla:
            from fla.ops.gated_delta_rule import chunk_gated_delta_rule

            self.fla = chunk_gated_delta_rule
        self._tabulate_grids()

    def _tabulate_grids(self) -> None:
        """Interpolation taps and rotary angles of every image grid that may occur."""
        from transformers.vision_utils import (
            get_vision_interpolation_indices_and_weights,
            get_vision_position_ids,
        )

        device = next(self.model.parameters()).device
        tables: list[list[Tensor]] = [[], [], [], []]
        numbers = torch.zeros(64, 64, dtype=torch.long)
        sides = range(MERGE, 34, MERGE)
        grids = [(r, c) for r in sides for c in sides if 16 <= r * c <= MOST_PATCHES]
        for number, (rows, columns) in enumerate(grids):
            grid = torch.tensor([[1, rows, columns]])
            index, weight = get_vision_interpolation_indices_and_weights(
                grid,
                num_grid_per_side=self.visual.num_grid_per_side,
                mode="bilinear",
                align_corners=True,
                spatial_merge_size=MERGE,
            )
            places = get_vision_position_ids(grid, MERGE).to(device)
            cos, sin = self.visual.rotary_pos_emb(torch.zeros(1, device=device), places)
            padding = (0, 0, 0, MOST_PATCHES - rows * columns)
            for table, value in zip(tables, (index, weight, cos.cpu(), sin.cpu()), strict=True):
                table.append(F.pad(value, padding))
            numbers[rows, columns] = number
        self.grid_tables = [torch.stack(table).to(device) for table in tables]
        self.grid_numbers = numbers.to(device)

    def vision(self, pixels: Tensor, patches: Tensor, grids: Tensor) -> Tensor:
        """pixels uint8 [patches, 768]; patches [n, 3] first, second, count; grids [n, 2]."""
        visual = self.visual
        place = torch.arange(MOST_PATCHES, device=patches.device)[None]
        place = torch.minimum(place, (patches[:, 2:] - 1).clamp(min=0))
        frames = (pixels[patches[:, :1] + place], pixels[patches[:, 1:2] + place])
        number = self.grid_numbers[grids[:, 0].long(), grids[:, 1].long()]
        modules = [
            [b.norm1, b.attn.qkv, b.attn.proj, b.norm2, b.mlp.linear_fc1, b.mlp.linear_fc2]
            for b in visual.blocks
        ]
        merger = [visual.merger.norm, visual.merger.linear_fc1, visual.merger.linear_fc2]
        projection = visual.patch_embed.proj
        return self.call["vision_forward"](
            frames,
            tuple(table[number] for table in self.grid_tables),
            patches[:, 2],
            (visual.pos_embed.weight, projection.weight, projection.bias),
            [parameters(block) for block in modules],
            parameters(merger),
            visual.config.num_heads,
            self.dtype,
        )

    def gdn(self, h: Tensor, layer: Any) -> Tensor:
        a = layer.linear_attn
        projections = [a.in_proj_qkv, a.in_proj_z, a.in_proj_b, a.in_proj_a]
        q, k, v, g, beta, z = self.call["gdn_in"](
            h,
            layer.input_layernorm.weight,
            [module.weight for module in projections],
            a.conv1d.weight,
            (a.A_log, a.dt_bias),
            (a.num_k_heads, a.num_v_heads, a.head_k_dim, a.head_v_dim),
        )
        if self.fla is None:
            out = scan_chunks(self.call, q, k, v, g, beta)
        else:
            repeats = a.num_v_heads // a.num_k_heads
            q, k = (t.to(self.dtype).repeat_interleave(repeats, 2) for t in (q, k))
            v, beta = v.to(self.dtype), beta.to(self.dtype)
            out = self.fla(q, k, v, g=g, beta=beta, scale=1.0, use_qk_l2norm_in_kernel=False)[0]
        rest = mlp_parameters(layer)
        return self.call["gdn_out"](h, out, z, a.norm.weight, a.out_proj.weight, rest)

    def attention(self, h: Tensor, layer: Any, rope: tuple[Tensor, Tensor]) -> Tensor:
        a, config = layer.self_attn, self.config
        projections = [a.q_proj.weight, a.k_proj.weight, a.v_proj.weight, a.o_proj.weight]
        return self.call["attention_block"](
            h,
            layer.input_layernorm.weight,
            projections,
            (a.q_norm.weight, a.k_norm.weight),
            mlp_parameters(layer),
            rope,
            (config.num_attention_heads, config.num_key_value_heads, config.head_dim),
        )

    def rope(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        like = torch.zeros(1, device=positions.device, dtype=torch.float32)
        return self.language.rotary_emb(like, positions)

    def run_layers(
        self, embedded: Tensor, positions: Tensor, taps: tuple[int, ...] = ()
    ) -> tuple[Tensor, list[Tensor], tuple[Tensor, Tensor]]:
        """Return the final-norm hidden states, the outputs of the `taps` layers and the angles."""
        rope = self.rope(positions)
        h, tapped = embedded, []
        for number, layer in enumerate(self.language.layers):
            if layer.block_type == "linear_attention":
                h = self.gdn(h, layer)
            else:
                h = self.attention(h, layer, rope)
            if number in taps:
                tapped.append(h)
        return self.call["normalise"](h, self.language.norm.weight), tapped, rope

    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.language.embed_tokens.weight).to(self.dtype)

    def losses(
        self, embedded: Tensor, positions: Tensor, ids: Tensor, mtp_steps: int
    ) -> list[Tensor]:
        """Losses per token: [0] at i for token i+1, [k] of MTP step k at i for token i+1+k."""
        mtp: Any = self.mtp
        h, _, rope = self.run_layers(embedded, positions)
        head = self.model.lm_head.weight
        found = [self.call["token_losses"](h, head, torch.roll(ids, -1, 1))]
        norms = (mtp.pre_fc_norm_embedding.weight, mtp.pre_fc_norm_hidden.weight)
        for step in range(1, mtp_steps + 1):
            # Keys of the same step only: cheaper than an engine's drafting, and close to it.
            x = self.call["mtp_in"](torch.roll(embedded, -step, 1), h, norms, mtp.fc.weight)
            x = self.attention(x, mtp.layers[0], rope)
            h = self.call["normalise"](x, mtp.norm.weight)
            found.append(self.call["token_losses"](h, head, torch.roll(ids, -1 - step, 1)))
        return found


def parameters(modules: list[Any]) -> list[Tensor]:
    return [tensor for module in modules for tensor in (module.weight, module.bias)]


def mlp_parameters(layer: Any) -> list[Tensor]:
    m = layer.mlp
    norm = layer.post_attention_layernorm.weight
    return [norm, m.gate_proj.weight, m.up_proj.weight, m.down_proj.weight]
