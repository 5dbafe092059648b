"""What the tensors inside records take."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import torch


def tensors_of(item: Any) -> list[torch.Tensor]:
    """Return every tensor inside records, tuples and maps."""
    if isinstance(item, torch.Tensor):
        return [item]
    if isinstance(item, dict):
        return [t for value in item.values() for t in tensors_of(value)]
    if isinstance(item, tuple | list):
        return [t for value in item for t in tensors_of(value)]
    if is_dataclass(item):
        return [t for f in fields(item) for t in tensors_of(getattr(item, f.name))]
    return []


def bytes_of(item: Any) -> int:
    """Return the bytes of the distinct storages inside."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors_of(item)}
    return sum(storage.nbytes() for storage in storages.values())
