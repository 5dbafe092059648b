"""Findings of single rules and the verdict they add up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

REASON = "reason"
NOTICE = "notice"
REMEDY = "remedy"
_SHOWN_NAMES = 8


class Finding(NamedTuple):
    """One sentence of a rule: a reason against loading, a notice, or a command that helps."""

    kind: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """Whether an engine loads an artifact.

    `reasons` is empty exactly when it does; `remedies` are commands that can be pasted.
    """

    engine: str
    compatible: bool
    reasons: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    def as_record(self) -> dict[str, Any]:
        """Return the verdict as a JSON object."""
        return {name: _listed(value) for name, value in asdict(self).items()}


def refuse(text: str) -> Finding:
    return Finding(REASON, text)


def notice(text: str) -> Finding:
    return Finding(NOTICE, text)


def way_out(command: str) -> Finding:
    return Finding(REMEDY, command)


def sum_up(engine: str, findings: Iterable[Finding], with_remedies: bool = True) -> Verdict:
    """Return the verdict of one engine; equal findings count once, order is kept."""
    distinct = tuple(dict.fromkeys(findings))
    reasons, notices, remedies = (
        tuple(item.text for item in distinct if item.kind == kind)
        for kind in (REASON, NOTICE, REMEDY)
    )
    # A command beside a compatible verdict would look like a fault.
    shown = remedies if reasons and with_remedies else ()
    return Verdict(engine, not reasons, reasons, notices, shown)


def list_names(names: Iterable[str], most: int = _SHOWN_NAMES) -> str:
    """Return the first names and how many follow."""
    known = list(names)
    shown = ", ".join(known[:most])
    return shown if len(known) <= most else f"{shown} and {len(known) - most} more"


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
