"""One fault that `--verify` found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ninfer_formats.codecs.findings import Severity
from ninfer_formats.errors import printable


@dataclass(frozen=True)
class PayloadFault:
    """One kind of trouble in one object, file or group (`where`).

    `offset` is the object's first byte in the logical payload; `row`, `column` or `group` are the
    first place inside a tensor and `count` counts places; None where they have no meaning.
    """

    severity: Severity
    where: str
    kind: str
    message: str
    offset: int | None = None
    row: int | None = None
    column: int | None = None
    group: int | None = None
    count: int = 1

    def __str__(self) -> str:
        places = (("row", self.row), ("column", self.column), ("group", self.group))
        shown = [f"{name} {at:,}" for name, at in places if at is not None]
        text = f"{self.severity}: {self.where}: {self.message}" if self.where else self.message
        if shown:
            text += f" (first at {', '.join(shown)}; {self.count:,} in all)"
        return printable(text, 2400)

    def as_record(self) -> dict[str, Any]:
        return asdict(self)
