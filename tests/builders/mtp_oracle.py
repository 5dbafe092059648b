"""The MTP head made of transformers' own layer and norms: an independent definition for tests."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file


class MtpOracle:
    """Drafts of a checkpoint folder's MTP head; `model` is transformers' model of that folder."""

    def __init__(self, folder: Path, model: Any) -> None:
        self.model, self.text = model, model.model.language_model
        config = copy.deepcopy(self.text.config)
        config.num_hidden_layers, config.layer_types = 1, ["full_attention"]
        config._attn_implementation = "eager"
        self.layer = type(self.text.layers[0])(config, 0).float().eval()
        tensors = load_file(folder / "model.safetensors")
        self.weights = {
            name.removeprefix("mtp."): value.float()
            for name, value in tensors.items()
            if name.startswith("mtp.")
        }
        prefix = "layers.0."
        own = {k.removeprefix(prefix): v for k, v in self.weights.items() if k.startswith(prefix)}
        self.layer.load_state_dict(fuse_experts(own))

    def _normalise(self, x: torch.Tensor, name: str) -> torch.Tensor:
        norm = type(self.text.norm)(x.shape[-1], eps=self.text.config.rms_norm_eps)
        norm.load_state_dict({"weight": self.weights[name]})
        return norm(x)

    @torch.no_grad()
    def run(self, ids: list[int], hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Return the head's hidden states [1, T, H] after its final norm: row t reads token t + 1
        of ids [T + 1] and the final-normed hidden state of token t, [1, T, H], at the position of
        token t, [3, 1, T]."""
        embedded = self.text.embed_tokens(torch.tensor([ids[1:]]))
        parts = (
            self._normalise(embedded, "pre_fc_norm_embedding.weight"),
            self._normalise(hidden, "pre_fc_norm_hidden.weight"),
        )
        x = torch.cat(parts, -1) @ self.weights["fc.weight"].T
        mask = torch.full((1, 1, len(ids) - 1, len(ids) - 1), -torch.inf).triu(1)
        rotary = self.text.rotary_emb(x, positions)
        x = self.layer(x, position_embeddings=rotary, attention_mask=mask)
        return self._normalise(x[0] if isinstance(x, tuple) else x, "norm.weight")


def fuse_experts(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors of a layer with experts that lie one by one as transformers keeps them."""
    split = "mlp.experts.{}.{}_proj.weight"
    count = sum(name.startswith("mlp.experts.") and "gate_proj" in name for name in tensors)
    if count == 0:
        return tensors
    rest = {n: t for n, t in tensors.items() if not n.startswith("mlp.experts.")}
    gate, up, down = (
        torch.stack([tensors[split.format(e, role)] for e in range(count)])
        for role in ("gate", "up", "down")
    )
    joined = torch.cat((gate, up), 1)
    return rest | {"mlp.experts.gate_up_proj": joined, "mlp.experts.down_proj": down}
