# pyright: reportMissingImports=false
"""The multi-token-prediction module of the demo checkpoint, and exact greedy drafting with it.

Step 0 at position i: x = fc(cat(norm(embed(t[i+1])), norm(h[i]))), h = the target's output AFTER
its final norm, rotary position i, keys of all earlier positions from true tokens; then the layer,
`mtp.norm` and the target's head give the draft of t[i+2]. Step k >= 1 feeds its own draft and the
previous step's `mtp.norm` output at position i + k, and sees besides the true tokens' keys only
its own earlier draft steps'.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class MtpModule(nn.Module):
    """The official mtp.* parameters; names in the state dict are those after the prefix."""

    def __init__(self, config: Any) -> None:
        from transformers.models.qwen3_5.modeling_qwen3_5 import (
            Qwen3_5DecoderLayer,
            Qwen3_5RMSNorm,
        )

        super().__init__()
        size, epsilon = config.hidden_size, config.rms_norm_eps
        full = config.layer_types.index("full_attention")
        self.fc = nn.Linear(2 * size, size, bias=False)
        self.layers = nn.ModuleList([Qwen3_5DecoderLayer(config, full)])
        self.norm = Qwen3_5RMSNorm(size, epsilon)
        self.pre_fc_norm_embedding = Qwen3_5RMSNorm(size, epsilon)
        self.pre_fc_norm_hidden = Qwen3_5RMSNorm(size, epsilon)


def load_mtp(folder: Path, config: Any, device: Any, dtype: torch.dtype) -> MtpModule:
    from safetensors import safe_open

    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    state = {}
    for name, file in index.items():
        if name.startswith("mtp."):
            with safe_open(str(folder / file), "pt") as tensors:
                state[name.removeprefix("mtp.")] = tensors.get_tensor(name)
    module = MtpModule(config.text_config)
    module.load_state_dict(state, strict=True)
    return module.to(device, dtype).eval()


def normalise(x: Tensor, weight: Tensor, epsilon: float = 1e-6) -> Tensor:
    """RMS norm with the weight stored as an offset from one, computed in float32."""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + epsilon)
    return (y * (1.0 + weight)).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first cos.shape[-1] dimensions, halves paired, in float32."""
    width = cos.shape[-1]
    turned, rest = x[..., :width].float(), x[..., width:]
    half = width // 2
    swapped = torch.cat((-turned[..., half:], turned[..., :half]), -1)
    return torch.cat(((turned * cos + swapped * sin).to(x.dtype), rest), -1)


class MtpDrafter:
    """Drafts for all positions of one sequence at once."""

    def __init__(self, model: Any, mtp: MtpModule) -> None:
        self.model, self.mtp, self.config = model, mtp, model.config.text_config
        self.layer: Any = mtp.layers[0]

    def _project(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return query, key, value [L, heads, head_dim] and the output gate."""
        config, attention = self.config, self.layer.self_attn
        length, width = x.shape[0], config.head_dim
        x = normalise(x, self.layer.input_layernorm.weight.float())
        heads = config.num_attention_heads
        query, gate = attention.q_proj(x).view(length, heads, 2 * width).chunk(2, -1)
        key = attention.k_proj(x).view(length, -1, width)
        value = attention.v_proj(x).view(length, -1, width)
        rotary = self.model.model.language_model.rotary_emb
        cos, sin = rotary(x.float(), positions[None, None].expand(3, 1, -1))
        cos, sin = cos[0][:, None], sin[0][:, None]
        query = rotate(normalise(query, attention.q_norm.weight.float()), cos, sin)
        key = rotate(normalise(key, attention.k_norm.weight.float()), cos, sin)
        repeats = heads // config.num_key_value_heads
        return query, key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1), gate

    def _attend(self, query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
        """Attend to the true tokens' keys up to the own position and to own earlier drafts'."""
        length, scale = query.shape[0], self.config.head_dim**-0.5
        query = query.float()
        future = torch.full((length, length), float("-inf"), device=query.device).triu(1)
        scores = [torch.einsum("qhd,khd->hqk", query, keys[0].float()) * scale + future]
        for key in keys[1:]:
            scores.append(torch.einsum("qhd,qhd->hq", query, key.float())[..., None] * scale)
        shares = torch.cat(scores, -1).softmax(-1)
        out = torch.einsum("hqk,khd->qhd", shares[..., :length], values[0].float())
        for step, value in enumerate(values[1:]):
            out = out + shares[..., length + step].T[..., None] * value.float()
        return out

    @torch.no_grad()
    def draft(self, ids: Tensor, hidden: Tensor, steps: int) -> Tensor:
        """ids [L], hidden [L, d] -> drafts [steps, L-1]; row k at i guesses token i + 2 + k."""
        mtp, layer, length = self.mtp, self.layer, len(ids) - 1
        embed = self.model.get_input_embeddings()
        tokens, state = ids[1:], hidden[:length]
        positions = torch.arange(length, device=ids.device)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        drafts = []
        for step in range(steps):
            embedded = normalise(embed(tokens), mtp.pre_fc_norm_embedding.weight.float())
            state = normalise(state, mtp.pre_fc_norm_hidden.weight.float())
            x = mtp.fc(torch.cat([embedded, state], -1))
            query, key, value, gate = self._project(x, positions + step)
            keys.append(key)
            values.append(value)
            out = self._attend(query, keys, values).to(x.dtype) * torch.sigmoid(gate)
            x = x + layer.self_attn.o_proj(out.reshape(length, -1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            state = mtp.norm(x)
            tokens = self.model.lm_head(state).argmax(-1)
            drafts.append(tokens)
        return torch.stack(drafts)

    @torch.no_grad()
    def matches(self, ids: Tensor, start: int, steps: int) -> Tensor:
        """bool [positions, steps]: which drafts of the part from `start` on equal `ids`.

        Row r drafts at position start - 1 + r the tokens from start + 1 + r on; what would lie
        past the end counts as a miss. There are as many rows as tokens from `start` on.
        """
        hidden = self.model.model(input_ids=ids[None]).last_hidden_state[0]
        drafts = self.draft(ids, hidden, steps)
        positions = torch.arange(start - 1, len(ids) - 1, device=ids.device)
        wanted = positions[:, None] + 2 + torch.arange(steps, device=ids.device)
        true = torch.where(wanted < len(ids), ids[wanted.clamp(max=len(ids) - 1)], -1)
        return torch.eq(drafts[:, positions].T, true).cpu()


def count_rounds(matches: Tensor) -> tuple[int, int]:
    """Return (rounds, accepted drafts) of a speculative run over the rows of `matches`."""
    accepted = matches.long().cumprod(1).sum(1).tolist()
    rounds = position = total = 0
    while position < len(accepted) - 1:
        rounds += 1
        total += accepted[position]
        position += accepted[position] + 1
    return rounds, total
