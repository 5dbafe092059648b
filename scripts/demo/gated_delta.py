# pyright: reportMissingImports=false
"""The gated delta rule in chunks of 64 tokens, in plain torch, with its backward pass.

Shapes: B rows, L tokens, N chunks of C tokens, nk key heads, nv value heads, X = B * nv.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from mtp_module import normalise
from torch import Tensor

CHUNK = 64


class TriangularInverse(torch.autograd.Function):
    """(I + L)^-1 of strictly lower triangular L [..., C, C], merging diagonal blocks."""

    @staticmethod
    def forward(ctx: Any, lower: Tensor) -> Tensor:
        size = lower.shape[-1]
        i = torch.arange(size, device=lower.device)
        eye = torch.eye(size, device=lower.device, dtype=lower.dtype)
        inverse, width = None, 1
        while width < size:
            same = i[:, None] // (2 * width) == i[None, :] // (2 * width)
            below = (i[:, None] // width % 2 == 1) & (i[None, :] // width % 2 == 0)
            block = lower * (same & below)
            inverse = eye - block if inverse is None else inverse - inverse @ (block @ inverse)
            width *= 2
        ctx.save_for_backward(inverse)
        return inverse if inverse is not None else eye

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        turned = inverse.transpose(-1, -2)
        return -(turned @ (gradients[0] @ turned)).tril(-1)


class ChunkScan(torch.autograd.Function):
    """V_i = U_i - W_i S_i and S_(i+1) = gamma_i S_i + K_i^T V_i over the leading chunk axis.

    W, K [N, X, C, dk]; U [N, X, C, dv]; gamma [N, X, 1, 1]. Returns all S_i and V_i.
    """

    @staticmethod
    def forward(ctx: Any, w: Tensor, k: Tensor, u: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        count, rows, _, width = w.shape
        state = w.new_empty(count + 1, rows, width, u.shape[-1])
        state[0].zero_()
        values = torch.empty_like(u)
        keys = k.transpose(-1, -2)
        for i in range(count):
            torch.baddbmm(u[i], w[i], state[i], alpha=-1, out=values[i])
            torch.mul(state[i], gamma[i], out=state[i + 1])
            state[i + 1].baddbmm_(keys[i], values[i])
        ctx.save_for_backward(w, k, gamma, state, values)
        return state[:count], values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        w, k, gamma, state, values = ctx.saved_tensors
        d_state, d_values = gradients
        last = w.shape[0] - 1
        # following[i] is the gradient with respect to S_(i+1).
        following = torch.empty_like(state[: last + 1])
        d_u = torch.empty_like(values)
        following[last].zero_()
        turned = w.transpose(-1, -2)
        for i in range(last, -1, -1):
            torch.baddbmm(d_values[i], k[i], following[i], out=d_u[i])
            if i:
                torch.addcmul(d_state[i], following[i], gamma[i], out=following[i - 1])
                following[i - 1].baddbmm_(turned[i], d_u[i], alpha=-1)
        before = state[: last + 1]
        d_w = -(d_u @ before.transpose(-1, -2))
        d_k = values @ following.transpose(-1, -2)
        d_gamma = (following * before).sum((-1, -2), keepdim=True)
        return d_w, d_k, d_u, d_gamma


def linear(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x, weight.to(x.dtype))


def gdn_in(
    h: Tensor,
    norm: Tensor,
    projections: list[Tensor],
    conv: Tensor,
    decay: tuple[Tensor, Tensor],
    sizes: tuple[int, int, int, int],
) -> tuple[Tensor, ...]:
    """Project, convolve and gate: q, k [B, L, nk, dk] of unit length (q scaled), v, g, beta, z.

    `projections` are those of qkv, z, b and a; `decay` is (A_log, dt_bias); g, beta in float32.
    """
    batch, length, _ = h.shape
    nk, nv, dk, dv = sizes
    x = normalise(h, norm)
    qkv, z, b, a = (linear(x, weight) for weight in projections)
    padded = F.pad(qkv, (0, 0, 3, 0))
    y = sum(padded[:, j : j + length].float() * conv[:, 0, j] for j in range(4))
    q, k, v = F.silu(torch.as_tensor(y)).split([nk * dk, nk * dk, nv * dv], -1)
    q, k = q.view(batch, length, nk, dk), k.view(batch, length, nk, dk)
    q = q * torch.rsqrt(q.pow(2).sum(-1, keepdim=True) + 1e-6) * dk**-0.5
    k = k * torch.rsqrt(k.pow(2).sum(-1, keepdim=True) + 1e-6)
    g = -decay[0].float().exp() * F.softplus(a.float() + decay[1])
    return q, k, v.view(batch, length, nv, dv), g, b.float().sigmoid(), z


def _expand(t: Tensor, heads: int) -> Tensor:
    """Repeat key heads (axis 2) so that every value head has one."""
    n, batch, own = t.shape[:3]
    repeats = heads // own
    wide = t[:, :, :, None].expand(n, batch, own, repeats, *t.shape[3:])
    return wide.reshape(n, batch, heads, *t.shape[3:])


def gdn_chunk(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    """Return [N, B, heads, C, d] chunks, summed decays, the triangular system and attention."""
    batch, length, nk, dk = q.shape
    nv, dv = v.shape[2:]
    n = length // CHUNK

    def cut(t: Tensor, heads: int, *width: int) -> Tensor:
        order = (1, 0, 3, 2, 4) if width else (1, 0, 3, 2)
        return t.view(batch, n, CHUNK, heads, *width).permute(order)

    q, k = cut(q, nk, dk).contiguous(), cut(k, nk, dk).contiguous()
    v, beta = cut(v, nv, dv), cut(beta, nv)
    summed = cut(g, nv).cumsum(-1)
    i = torch.arange(CHUNK, device=q.device)
    distance = summed[..., :, None] - summed[..., None, :]
    decay = torch.where(i[:, None] >= i[None, :], distance, float("-inf")).exp()
    system = _expand(k @ k.transpose(-1, -2), nv) * decay * beta[..., None]
    system = torch.where(i[:, None] > i[None, :], system, 0.0)
    attention = _expand(q @ k.transpose(-1, -2), nv) * decay
    return q, k, v, beta, summed, system, attention


def gdn_mid(
    inverse: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, summed: Tensor
) -> tuple[Tensor, ...]:
    """Return W, K, U, gamma of the scan and the decayed queries, heads folded into rows."""
    n, batch, nv, _, dv = v.shape
    dk = q.shape[-1]
    wide_k, wide_q = _expand(k, nv), _expand(q, nv)
    u = inverse @ (v * beta[..., None])
    w = inverse @ (wide_k * (beta * summed.exp())[..., None])
    keys = wide_k * (summed[..., -1:] - summed).exp()[..., None]
    queries = wide_q * summed.exp()[..., None]
    gamma = summed[..., -1].exp()[..., None, None]
    rows = (n, batch * nv, CHUNK)
    return (
        w.reshape(*rows, dk),
        keys.reshape(*rows, dk),
        u.reshape(*rows, dv),
        gamma.reshape(n, batch * nv, 1, 1),
        queries.reshape(*rows, dk),
    )


def gdn_read(
    queries: Tensor, state: Tensor, attention: Tensor, values: Tensor, shape: tuple[int, int, int]
) -> Tensor:
    """Return the outputs [B, L, nv, dv]; `shape` is (B, L, nv)."""
    batch, length, nv = shape
    n, rows, size, _ = queries.shape
    out = queries @ state + attention.reshape(n, rows, size, size) @ values
    out = out.view(n, batch, nv, size, -1).permute(1, 0, 3, 2, 4)
    return out.reshape(batch, length, nv, -1)


def scan_chunks(call: Any, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Run the whole rule; `call` maps the names of this module's functions to compiled ones."""
    batch, length = q.shape[:2]
    nv = v.shape[2]
    q, k, v, beta, summed, system, attention = call["gdn_chunk"](q, k, v, g, beta)
    inverse: Any = TriangularInverse.apply(system)
    w, keys, u, gamma, queries = call["gdn_mid"](inverse, q, k, v, beta, summed)
    scanned: Any = ChunkScan.apply(w, keys, u, gamma)
    state, values = scanned
    return call["gdn_read"](queries, state, attention, values, (batch, length, nv))
