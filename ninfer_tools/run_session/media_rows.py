"""Rows of the images and videos of a session: each goes through the tower once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from ninfer_runtime.frontend.media import Medium
    from ninfer_runtime.models.qwen3_5.vision import VisionTower


class MediaRows:
    """Keeps what the tower made of every medium, on the host, until it is told what stays."""

    def __init__(self) -> None:
        # The medium stays too, so that no other one gets its id.
        self._kept: dict[int, tuple[Medium, torch.Tensor]] = {}

    def encode(self, tower: VisionTower, medium: Medium) -> torch.Tensor:
        """Return the rows [n, H] of a medium."""
        from ninfer_runtime.frontend.prompt import encode_medium

        if id(medium) not in self._kept:
            self._kept[id(medium)] = medium, encode_medium(tower, medium)
        return self._kept[id(medium)][1]

    def keep_only(self, media: list[Medium]) -> None:
        """Forget every medium but these."""
        wanted = {id(medium) for medium in media}
        self._kept = {key: value for key, value in self._kept.items() if key in wanted}
