"""What a plan from headers alone cannot know about FP8 weights (rule V-148)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ninfer_formats import numeric_formats as nf
from ninfer_tools.convert.request import SnapshotFiles
from ninfer_tools.convert.rules import Assignment
from ninfer_tools.convert.sources.parameter_source import ParameterSource
from ninfer_tools.convert.sources.quantization import FP8_ROW, FP8_TENSOR


def list_unread_scales(
    sources: Mapping[str, ParameterSource], assigned: Mapping[str, Assignment]
) -> Iterable[str]:
    """Yield a notice when stored FP8 codes may turn out to be importable after all."""
    unread = [
        name
        for name, source in sources.items()
        if source.kind in (FP8_ROW, FP8_TENSOR)
        and isinstance(source.checkpoint.files, SnapshotFiles)
        and source.storage.scale_tensor().dtype != "BF16"
    ]
    if unread:
        formats = ", ".join(sorted({assigned[name].format for name in unread} - {nf.FP8}))
        yield (
            f"{len(unread):,} FP8 parameters have float32 or float16 scales, which were not read: "
            "where each is a bfloat16 number the conversion keeps the stored codes, and their "
            f"format is {nf.FP8} instead of {formats or 'an encoding of its own'}"
        )
