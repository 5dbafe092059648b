"""What is told of calibration and activation divisors, as a record and as lines (V-107, V-115)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ninfer_tools.console import format_bytes
from ninfer_tools.convert.calibration.divisors import NONE
from ninfer_tools.convert.calibration.need import estimate_bytes
from ninfer_tools.convert.calibration.order import CalibrationOrder

if TYPE_CHECKING:
    from ninfer_tools.convert.plan import ConversionPlan
    from ninfer_tools.convert.request import Request


def describe_calibration(
    order: CalibrationOrder, request: Request, plan: ConversionPlan | None
) -> dict[str, Any]:
    """Return the report's member `calibration`: what is to be run, or what was taken."""
    given = request.calibration
    if given is None or plan is None:
        return {}
    if not given.assumed:
        return {"calibration": given.as_record()}
    need = {
        "text": str(order.text),
        "tokens": order.tokens,
        "device": request.device,
        "memory_bytes": estimate_bytes(plan.geometry, order.tokens),
    }
    return {"calibration": {"to_run": need}}


def list_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines for people about the members `calibration` and `divisors` of a record."""
    run = record.get("calibration", {}).get("to_run")
    if run is not None:
        yield (
            f"calibration would run up to {run['tokens']:,} tokens of {run['text']} on "
            f"{run['device']}; memory needed: about {format_bytes(run['memory_bytes'])}"
        )
    counts: Mapping[str, int] = record["divisors"]
    if sum(counts.values()):
        parts = [f"{counts[key]:,} {key}" for key in counts if counts[key] or key == NONE]
        yield f"activation divisors of nvfp4 products: {', '.join(parts)}"
