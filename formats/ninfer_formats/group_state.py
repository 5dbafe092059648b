"""What a file holds of one group of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from ninfer_formats.errors import ArtifactError

State = Literal["complete", "partial", "absent", "unknown", "unreadable"]

# A message shows at most 2,000 characters: longer lists of names become several messages.
_NAME_CHARACTERS = 1600


@dataclass(frozen=True)
class GroupState:
    """One group: text, proposal, mtp, vision, dflash, dflash2, or one this release does not know.

    `state` is `complete`; `partial`: something is `missing`, or is there but wrong (`faults`);
    `absent`; `unknown`: not a group of this release or of this model, to be skipped with a
    notice; `unreadable`: what it should hold cannot be told, for the given `reason`. `missing`
    has object names in versions 1 and 2, and in version 3 parameter names and, for resources,
    `component:role`. `objects` and `bytes` count what is stored.
    """

    group: str
    state: State
    missing: tuple[str, ...] = ()
    faults: tuple[ArtifactError, ...] = ()
    reason: str | None = None
    objects: int = 0
    bytes: int = 0

    def problems(self) -> list[ArtifactError]:
        """Return what keeps the group from being used, naming every missing object."""
        if self.group == "text" and self.state == "absent":
            return [ArtifactError("artifact has no text group")]
        if self.state == "unreadable":
            return [ArtifactError(self.reason or "cannot be read", where=f"group {self.group}")]
        return [*name_all("missing", self.missing, f"group {self.group} is partial"), *self.faults]


def name_all(title: str, names: Iterable[str], where: str) -> Iterator[ArtifactError]:
    """Yield messages that together name every one of `names`, each short enough to be shown."""
    found = list(names)
    lines: list[list[str]] = [[]]
    room = _NAME_CHARACTERS
    for name in found:
        if lines[-1] and len(name) > room:
            lines.append([])
            room = _NAME_CHARACTERS
        lines[-1].append(name)
        room -= len(name) + 2
    for line in filter(None, lines):
        count = f"{len(line)} of {len(found)} " if len(lines) > 1 else f"{len(found)} "
        yield ArtifactError(f"{count}{title}: {', '.join(line)}", where=where)
