# pyright: reportMissingImports=false
"""Does the training forward equal transformers' own, forward and backward?"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from fast_forward import FastForward
from image_patches import prepare_image
from torch import Tensor

LENGTH = 256


class Agreement(NamedTuple):
    hidden: float  # relative error
    cosine: float  # the worst gradient's
    worst: str
    vision: float  # relative error

    def holds(self, exact: bool) -> bool:
        error, cosine = (1e-4, 0.9999) if exact else (0.05, 0.97)
        return self.hidden < error and self.cosine > cosine and self.vision < error


def relative_error(got: Tensor, want: Tensor) -> float:
    return ((got.float() - want.float()).norm() / want.float().norm()).item()


def compare_with_transformers(fast: FastForward, tokens: int) -> Agreement:
    """Random ids and a random picture through both; `fast` is not compiled."""
    model = fast.model
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, tokens, (2, LENGTH), generator=generator).to(device)
    positions = torch.arange(LENGTH, device=device).expand(3, 2, LENGTH)
    named = [item for item in model.named_parameters() if "language_model.layers" in item[0]]
    got = fast.run_layers(fast.embed(ids), positions)[0].float()
    want = model.model(input_ids=ids).last_hidden_state.float()
    direction = torch.randn(got.shape, generator=generator).to(device)
    both = [torch.autograd.grad((h * direction).sum(), [p for _, p in named]) for h in (got, want)]
    cosines = {
        name: F.cosine_similarity(a.flatten(), b.flatten(), 0).item() if b.norm() > 0 else 1.0
        for (name, _), a, b in zip(named, *both, strict=True)
    }
    worst = min(cosines, key=lambda name: cosines[name])
    hidden = relative_error(got, want)
    return Agreement(hidden, cosines[worst], worst, compare_vision(fast, device))


def compare_vision(fast: FastForward, device: Any) -> float:
    from PIL import Image

    noise = np.random.RandomState(0).randint(0, 255, (96, 128, 3), dtype=np.uint8)
    patches, rows, columns = prepare_image(Image.fromarray(noise))
    pixels = torch.from_numpy(patches).to(device)
    count = rows * columns
    where = torch.tensor([[0, 0, count]], device=device)
    grid = torch.tensor([[rows, columns]], device=device)
    got = fast.vision(pixels, where, grid)[0, : count // 4]
    values = (pixels.float() / 255 - 0.5) / 0.5
    values = values.view(-1, 3, 1, 16, 16).expand(-1, -1, 2, -1, -1).reshape(count, -1)
    shape = torch.tensor([[1, rows, columns]], device=device)
    want = fast.model.model.get_image_features(values, shape).pooler_output[0]
    return relative_error(got, want)
