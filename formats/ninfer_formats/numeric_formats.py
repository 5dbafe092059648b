"""The registry of numeric formats and layouts under both name families.

Canonical names are those of container version 3; versions 1 and 2 call the same bytes by other
names. Source of the tables: `specs/numeric-formats.md` and `specs/layouts.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BF16 = "bf16"
FP32 = "fp32"
INT32 = "int32"
Q4 = "q4_g64_fp16"
Q5 = "q5_g64_fp16"
Q6 = "q6_g64_fp16"
Q8 = "q8_g32_fp16"
NVFP4 = "nvfp4"
FP8 = "fp8_e4m3fn_row_bf16"

CONTIGUOUS = "contiguous_le_v1"
ROW_SPLIT = "row_split_k128_v1"
BLOCK_SCALE = "block_scale_k16_m128x4_v1"
ROW_SCALE = "row_scale_v1"


@dataclass(frozen=True)
class NumericFormat:
    """One numeric format.

    `bits` counts the code bits of one value; `group` is the run of values along K that shares a
    scale (0 for direct formats, -1 for a whole row); `oldest` is the first container version
    whose engines knew the format.
    """

    name: str
    legacy_name: str
    bits: int
    group: int
    layout: str
    oldest: int


@dataclass(frozen=True)
class Layout:
    """One layout: how the planes of a tensor lie in its bytes."""

    name: str
    legacy_name: str


FORMATS: dict[str, NumericFormat] = {
    f.name: f
    for f in (
        NumericFormat(BF16, "BF16", 16, 0, CONTIGUOUS, 1),
        NumericFormat(FP32, "FP32", 32, 0, CONTIGUOUS, 1),
        NumericFormat(INT32, "I32", 32, 0, CONTIGUOUS, 1),
        NumericFormat(Q4, "Q4G64_F16S", 4, 64, ROW_SPLIT, 1),
        NumericFormat(Q5, "Q5G64_F16S", 5, 64, ROW_SPLIT, 1),
        NumericFormat(Q6, "Q6G64_F16S", 6, 64, ROW_SPLIT, 1),
        NumericFormat(Q8, "W8G32_F16S", 8, 32, ROW_SPLIT, 1),
        NumericFormat(NVFP4, "NVFP4", 4, 16, BLOCK_SCALE, 2),
        NumericFormat(FP8, "FP8_E4M3FN_ROW_BF16S", 8, -1, ROW_SCALE, 2),
    )
}

LAYOUTS: dict[str, Layout] = {
    item.name: item
    for item in (
        Layout(CONTIGUOUS, "contiguous-le-v1"),
        Layout(ROW_SPLIT, "row-split-k128-v1"),
        Layout(BLOCK_SCALE, "blockscale-k16-m128x4-v1"),
        Layout(ROW_SCALE, "row-scale-v1"),
    )
}

RAW_ENCODING = "raw_bytes_v1"
LEGACY_RAW_ENCODING = "raw-bytes-v1"

# Format and layout names that only forks of the original project write. They are never decoded
# here; knowing them turns "unknown format" into an explanation.
FORK_NAMES: dict[str, str] = {
    "t2_g128_fp16": "ternary groups of 128 of a fork",
    "q2_g64_fp16": "2-bit integer groups of a fork",
    "fp8_e4m3fn_row_fp16": "FP8 rows with fp16 scales of a fork",
    "row_interleaved_v1": "a fork's interleaved rows",
    "gguf_blocks_v1": "GGUF blocks kept as they were by a fork",
}


def explain_fork_name(name: str) -> str | None:
    """Return who writes an unknown format or layout name, None when nobody known does."""
    words = FORK_NAMES.get(name)
    return "a GGUF block format of a fork" if words is None and name.startswith("gguf_") else words


_FROM_LEGACY_FORMAT = {f.legacy_name: f.name for f in FORMATS.values()}
_FROM_LEGACY_LAYOUT = {item.legacy_name: item.name for item in LAYOUTS.values()}


def canonical_format(legacy_name: str) -> str:
    """Return the canonical name of a version 1/2 format name; an unknown one comes back marked."""
    return _FROM_LEGACY_FORMAT.get(legacy_name) or _mark_unknown(legacy_name, FORMATS)


def canonical_layout(legacy_name: str) -> str:
    """Return the canonical name of a version 1/2 layout name; an unknown one comes back marked."""
    return _FROM_LEGACY_LAYOUT.get(legacy_name) or _mark_unknown(legacy_name, LAYOUTS)


def _mark_unknown(name: str, canonical: Mapping[str, object]) -> str:
    # A version 3 name has no meaning in a version 1/2 file and must not pass for a known one.
    return f"{name} (a version 3 name)" if name in canonical else name


def legacy_format(name: str) -> str:
    """Return the version 1/2 name of a canonical format name."""
    return FORMATS[name].legacy_name


def legacy_layout(name: str) -> str:
    """Return the version 1/2 name of a canonical layout name."""
    return LAYOUTS[name].legacy_name
