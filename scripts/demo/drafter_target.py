# pyright: reportMissingImports=false
"""The trained checkpoint as the drafter sees it: features, hidden states, continuations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from agreement import relative_error
from fast_forward import FastForward
from torch import Tensor


def load_model(folder: Path, dtype: torch.dtype, device: Any) -> Any:
    from transformers import AutoModelForImageTextToText

    model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype)
    return model.to(device).eval()


class Target:
    """`fast` gives features in the compute dtype, `model` generates and verifies."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: Any, taps: list[int]) -> None:
        from transformers import AutoTokenizer

        self.folder, self.device, self.taps = folder, device, taps
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.tokens = len(self.tokenizer)
        exact = load_model(folder, torch.float32, device).requires_grad_(False)
        self.fast = FastForward(exact, None, dtype)
        self.model = load_model(folder, dtype, device)
        self.ends = set(self.model.generation_config.eos_token_id)

    @torch.no_grad()
    def run(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, L, taps * H] and final-norm hidden states; L a multiple of 64."""
        positions = torch.arange(ids.shape[1], device=ids.device).expand(3, *ids.shape)
        embedded = self.fast.embed(ids)
        hidden, tapped, _ = self.fast.run_layers(embedded, positions, tuple(self.taps))
        return torch.cat(tapped, -1), hidden

    def run_text(self, ids: list[int]) -> tuple[Tensor, Tensor]:
        features, hidden = self.run(pad_to_chunks([ids], self.device))
        return features[0, : len(ids)], hidden[0, : len(ids)]

    @torch.no_grad()
    def check(self) -> tuple[float, float]:
        """Relative errors of features and hidden states against transformers."""
        generator = torch.Generator(device=self.device).manual_seed(0)
        size = (2, 256)
        ids = torch.randint(0, self.tokens, size, device=self.device, generator=generator)
        features, hidden = self.run(ids)
        states = self.fast.model(input_ids=ids, output_hidden_states=True).hidden_states
        wanted = torch.cat([states[tap + 1] for tap in self.taps], -1)
        last = self.fast.model.model(input_ids=ids).last_hidden_state
        return relative_error(features, wanted), relative_error(hidden, last)

    @torch.no_grad()
    def continue_texts(
        self, prompts: list[list[int]], new_tokens: int, temperature: float = 0.0
    ) -> list[list[int]]:
        """Continue one left-padded batch up to and with the end token."""
        longest = max(map(len, prompts))
        ids = torch.full((len(prompts), longest), self.model.generation_config.pad_token_id)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        sampling: dict[str, Any] = {"do_sample": False, "temperature": None}
        sampling |= {"top_k": None, "top_p": None}
        if temperature:
            sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        out = self.model.generate(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            max_new_tokens=new_tokens,
            **sampling,
        )
        return [self.cut(row) for row in out[:, longest:].cpu().tolist()]

    def cut(self, ids: list[int]) -> list[int]:
        found = [i for i, token in enumerate(ids) if token in self.ends]
        return ids[: found[0] + 1] if found else ids


def pad_to_chunks(texts: list[list[int]], device: Any) -> Tensor:
    """Right-pad to a multiple of the 64 tokens of a GDN chunk."""
    length = (max(map(len, texts)) + 63) // 64 * 64
    ids = torch.zeros(len(texts), length, dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.as_tensor(text)
    return ids.to(device)
