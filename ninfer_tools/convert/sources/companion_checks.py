"""Companion checkpoints that have nothing of what they were named for (rule S-79)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ninfer_formats.errors import NinferError
from ninfer_tools.convert.sources import prefixes
from ninfer_tools.convert.sources.checkpoint import Checkpoint
from ninfer_tools.convert.sources.mapping import MTP, QUANTIZED, SourceMap
from ninfer_tools.convert.sources.quantization import DIRECT


def find_useless_companions(
    checkpoints: Mapping[str, Checkpoint], found: SourceMap
) -> Iterator[NinferError]:
    """Yield a problem for `mtp` without an MTP layer and `quantized` without a quantised weight.

    One that could not be read has its own problems.
    """
    mtp, quantized = checkpoints.get(MTP), checkpoints.get(QUANTIZED)
    if mtp is not None and not mtp.problems and mtp.prefixes.mtp is None:
        yield _refuse("the source given as mtp has no MTP layer", mtp, prefixes.MTP[0])
    if quantized is None or quantized.problems or found.problems:
        return
    sources = found.sources.values()
    if all(s.checkpoint is not quantized or s.kind == DIRECT for s in sources):
        what = "the source given as quantized has no quantised weight of this model"
        yield _refuse(what, quantized, "NVFP4 or FP8 weights")


def _refuse(what: str, checkpoint: Checkpoint, want: str) -> NinferError:
    got = ", ".join(checkpoint.prefixes.seen) or "no tensor"
    return NinferError(what, path=checkpoint.label, got=got, want=want)
