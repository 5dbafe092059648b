# pyright: reportMissingImports=false
"""Layers of the model as transformers builds them, one at a time and without weights (V-102)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.geometry import FULL_ATTENTION, TextGeometry
from ninfer_tools.convert.calibration.experts import ObservedExperts
from ninfer_tools.convert.calibration.layer_weights import Weights

_REMEDY = "pip install 'ninfer[calibrate]'"


class ModelParts:
    """Builds decoder layers, norms and rotary embeddings of one text geometry, in float32."""

    def __init__(self, text: TextGeometry, device: str) -> None:
        name, family = ("qwen3_5_moe", "Qwen3_5Moe") if text.is_moe else ("qwen3_5", "Qwen3_5")
        self._device, self._text = device, text
        self._classes, configs = _import_model(name)
        self._config_class = getattr(configs, f"{family}TextConfig")
        self._family = family
        config = self._make_config(text.layer_types)
        rotary = getattr(self._classes, f"{family}TextRotaryEmbedding")
        self._rotary = rotary(config).to(device)
        self._config = config

    def build_layer(self, index: int, weights: Weights) -> Any:
        """Return text layer `index` with its weights."""
        return self._build_layer(self._config, index, weights)

    def build_drafting_layer(self, weights: Weights) -> Any:
        """Return the decoder layer of the MTP module: full attention, whatever the text has."""
        return self._build_layer(self._make_config((FULL_ATTENTION,)), 0, weights)

    def build_norm(self, weight: torch.Tensor) -> Any:
        """Return the family's zero-centred norm."""
        norm = getattr(self._classes, f"{self._family}RMSNorm")
        with torch.device("meta"):
            module = norm(self._text.hidden_size, eps=self._text.rms_norm_eps)
        module.load_state_dict({"weight": weight}, strict=True, assign=True)
        return module.eval()

    def embed_positions(self, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines for positions from 0, for states [1, tokens, hidden]."""
        positions = torch.arange(like.shape[1], device=like.device)
        return self._rotary(like, positions.view(1, 1, -1).expand(3, 1, -1))

    def _build_layer(self, config: Any, index: int, weights: Weights) -> Any:
        with torch.device("meta"):
            layer = getattr(self._classes, f"{self._family}DecoderLayer")(config, index)
        if self._text.is_moe:
            own = layer.mlp.experts
            layer.mlp.experts = ObservedExperts(own.gate_up_proj.shape, own.down_proj.shape)
        layer.load_state_dict(weights, strict=True, assign=True)
        return layer.eval()

    def _make_config(self, layer_types: tuple[str, ...]) -> Any:
        t = self._text
        sizes = (
            "num_experts", "num_experts_per_tok", "moe_intermediate_size",
            "shared_expert_intermediate_size",
        ) if t.is_moe else ("intermediate_size",)  # fmt: skip
        config = self._config_class(
            **{size: getattr(t, size) for size in sizes},
            hidden_size=t.hidden_size, vocab_size=t.vocab_size, layer_types=list(layer_types),
            num_hidden_layers=len(layer_types), num_attention_heads=t.num_attention_heads,
            num_key_value_heads=t.num_key_value_heads, head_dim=t.head_dim,
            linear_num_key_heads=t.linear_num_key_heads,
            linear_num_value_heads=t.linear_num_value_heads,
            linear_key_head_dim=t.linear_key_head_dim,
            linear_value_head_dim=t.linear_value_head_dim,
            linear_conv_kernel_dim=t.linear_conv_kernel_dim,
            max_position_embeddings=t.max_position_embeddings, rms_norm_eps=t.rms_norm_eps,
            rope_parameters={
                "rope_type": "default", "rope_theta": t.rope_theta,
                "partial_rotary_factor": t.partial_rotary_factor,
                "mrope_section": list(t.mrope_section), "mrope_interleaved": True,
            },
        )  # fmt: skip
        # Without a mask this one is causal by itself.
        config._attn_implementation = "sdpa"
        return config


def _import_model(name: str) -> tuple[Any, Any]:
    """Return the modules with the classes and with the configs of a model."""
    try:
        from transformers.utils import logging

        # It would recommend packages for speed.
        logging.set_verbosity_error()
        models = f"transformers.models.{name}"
        return (
            import_module(f"{models}.modeling_{name}"),
            import_module(f"{models}.configuration_{name}"),
        )
    except Exception as error:  # a torchvision of another torch is a RuntimeError, say
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(
            "calibration needs transformers with this model", got=reason, remedy=_REMEDY
        ) from error
