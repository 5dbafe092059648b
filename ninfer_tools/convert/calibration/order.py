"""What `--calibrate` and `--calibration` ask for, and doing it (V-100, V-107, V-108, V-112)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_formats.errors import NinferError, UsageError
from ninfer_tools.console import format_bytes
from ninfer_tools.convert.calibration.identity import identify_sources
from ninfer_tools.convert.calibration.need import count_run_bytes, estimate_bytes
from ninfer_tools.convert.calibration.record import (
    ASSUMED,
    SUFFIX,
    Calibration,
    check_fit,
    encode_calibration,
    parse_calibration,
    read_calibration,
)
from ninfer_tools.convert.calibration.text import (
    DEFAULT_TOKENS,
    MAX_TOKENS,
    CalibrationText,
    check_text,
    read_text,
)
from ninfer_tools.convert.progress import show_conversion
from ninfer_tools.convert.sources.token_table import TOKENIZER
from ninfer_tools.convert.versions import find_versions
from ninfer_tools.convert.whole_file import write_whole

if TYPE_CHECKING:
    from ninfer_tools.convert.plan import ConversionPlan
    from ninfer_tools.convert.request import OpenedSource, Request


@dataclass(frozen=True)
class CalibrationOrder:
    """`calibration` is what the plan works with: None, a saved one, or ASSUMED while `text` is
    still to be run."""

    calibration: Calibration | None = None
    text: Path | None = None
    tokens: int = DEFAULT_TOKENS


def calibration_path(output: Path) -> Path:
    return output.with_name(output.name + SUFFIX)


def read_order(text: Path | None, saved: Path | None, tokens: int | None) -> CalibrationOrder:
    """Return the order of the options; UsageError for contradictions and unusable files."""
    if text is not None and saved is not None:
        raise UsageError("--calibrate contradicts --calibration", remedy="give one of them")
    if tokens is not None and text is None:
        raise UsageError("--calibration-tokens belongs to --calibrate")
    if saved is not None:
        return CalibrationOrder(read_calibration(saved))
    if text is None:
        return CalibrationOrder()
    tokens = DEFAULT_TOKENS if tokens is None else tokens
    if not 1 <= tokens <= MAX_TOKENS:
        raise UsageError("impossible --calibration-tokens", got=tokens, want=f"1 to {MAX_TOKENS}")
    check_text(text)
    return CalibrationOrder(ASSUMED, text, tokens)


def refuse_taken_calibration(order: CalibrationOrder, output: Path, *, free: bool) -> None:
    """Raise UsageError when the calibration of an earlier run would be lost; `free` allows it."""
    path = calibration_path(output)
    if order.text is not None and not free and os.path.lexists(path):
        raise UsageError(
            "calibration exists", path=path,
            remedy=f"use it with --calibration {path}, or replace it with --force",
        )  # fmt: skip


def carry_out(
    order: CalibrationOrder,
    request: Request,
    plan: ConversionPlan,
    opened: Mapping[str, OpenedSource],
    resume: bool,
) -> Calibration:
    """Run the text and save what it gives beside the output; return it.

    With `resume` a calibration that the interrupted run saved is taken, if it is of the same text
    and tokens. Raises UsageError when it is of another one, or a library is missing.
    """
    if order.text is None:
        raise UsageError("there is no calibration to carry out")
    resources = {**opened["base"].checkpoint.resources, **request.resources}
    rows = plan.geometry.text.vocab_size
    text = read_text(order.text, resources[TOKENIZER], order.tokens, rows)
    path = calibration_path(request.output)
    checkpoints = {name: item.checkpoint for name, item in opened.items()}
    sources = identify_sources(checkpoints, weights=True)
    if resume and path.exists():
        return _take_saved(path, text, sources)
    raw = _measure(text, request, plan, sources)
    _save(path, raw)
    print(f"calibration saved to {path}", file=sys.stderr)
    return parse_calibration(raw, path)


def _take_saved(
    path: Path, text: CalibrationText, sources: Mapping[str, Mapping[str, str]]
) -> Calibration:
    saved = read_calibration(path)
    check_fit(saved, (), sources)
    if saved.text != text.as_record():
        raise UsageError(
            "the interrupted run calibrated with another text", path=path,
            remedy="leave --resume out and add --force to start over",
        )  # fmt: skip
    print(f"calibration taken from {path}", file=sys.stderr)
    return saved


def _measure(
    text: CalibrationText,
    request: Request,
    plan: ConversionPlan,
    sources: Mapping[str, Mapping[str, str]],
) -> bytes:
    """Return the bytes of the calibration file."""
    from ninfer_tools.convert.calibration.forward import measure_inputs

    chunks = text.chunks
    # Not those of the plan: a recipe may compute what the artifact holds.
    found_sources = plan.preflight.sources
    mapped = plan.sources if found_sources is None else found_sources.sources
    need = format_bytes(estimate_bytes(plan.geometry, len(text.ids)))
    print(
        f"calibration runs {len(text.ids):,} tokens in {len(chunks)} sequences on "
        f"{request.device}; it needs about {need} of memory",
        file=sys.stderr,
    )
    try:
        with show_conversion(count_run_bytes(plan.geometry)) as (advance, announce):
            found = measure_inputs(plan.geometry, mapped, chunks, request.device, advance, announce)
    except KeyboardInterrupt:
        print("interrupted while the calibration ran; nothing was saved", file=sys.stderr)
        raise
    versions = find_versions("ninfer", "torch", "transformers")
    return encode_calibration(sources, text.as_record(), versions, found)


def _save(path: Path, raw: bytes) -> None:
    try:
        write_whole(path, raw)
    except OSError as error:
        raise NinferError(f"calibration was not saved: {error.strerror}", path=path) from error
