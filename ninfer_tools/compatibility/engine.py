"""What one engine accepts, as data."""

from __future__ import annotations

from dataclasses import dataclass

from ninfer_formats.directory import Identity


@dataclass(frozen=True)
class Engine:
    """One engine: the container version it reads and what it has contracts for.

    `identities` is empty where the engine builds a model from the
    component configs. `says` is its own text about a file of another container version.
    `padded_nvfp4` tells whether NVFP4 matrices may end inside a block of 128 rows x 64 columns.
    """

    name: str
    container: int
    formats: frozenset[str]
    drafters: frozenset[str]
    says: str = ""
    identities: frozenset[Identity] = frozenset()
    padded_nvfp4: bool = False

    @property
    def is_legacy(self) -> bool:
        return self.container < 3
