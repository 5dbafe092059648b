"""A version 1 or 2 directory seen through the names of version 3."""

from __future__ import annotations

from collections.abc import Mapping

from ninfer_formats.directory import Binding, Component, Use
from ninfer_formats.directory_legacy import LegacyDirectory


class LegacyView:
    def __init__(self, version: int, directory: LegacyDirectory) -> None:
        self.components: Mapping[str, Component] = {}
        self.bindings: Mapping[str, Binding] = {}
        self.uses: tuple[Use, ...] = ()
