"""The memory plan for people and for programs."""

from __future__ import annotations

from typing import Any

from ninfer_tools.console import format_bytes, format_table
from ninfer_tools.serve_session.memory_report import MemoryReport, describe_engine

_NAMES = {
    "key/value pages": "KV cache",
    "recurrent state": "GDN slots",
    "replay records": "GDN replay records",
    "images in the workspace": "vision workspace",
}


def format_report(report: MemoryReport) -> str:
    """Return the plan as a table; bytes in full."""
    settings = report.settings
    title = (
        f"memory on {settings.device}: {settings.max_context} tokens of context, "
        f"{report.capacity} in the KV cache ({settings.kv_kind}), {settings.lanes} at once"
    )
    rows = [(_NAMES.get(name, name), count) for name, count in report.parts.items()]
    rows += [("needed", report.needed), ("headroom", report.headroom)]
    if report.available is not None:
        rows += [("available", report.available)]
    table = format_table([(name, count, format_bytes(count)) for name, count in rows])
    return "\n".join([title, table, *_describe_contexts(report)])


def _describe_contexts(report: MemoryReport) -> list[str]:
    if report.contexts is None:
        return ["  available: not known; --memory SIZE says it"]
    longest = ", ".join(f"{kind} {most or 'none'}" for kind, most in report.contexts.items())
    return [f"  largest --max-context that fits: {longest}"]


def make_record(report: MemoryReport) -> dict[str, Any]:
    """Return the plan as JSON."""
    error = report.error()
    return {
        "artifact": report.artifact,
        "settings": describe_engine(report),
        "parts": dict(report.parts),
        "needed": report.needed,
        "headroom": report.headroom,
        "available": report.available,
        "fits": report.fits,
        "largest_context": None if report.contexts is None else dict(report.contexts),
        "remedy": None if error is None else error.remedy,
    }
