"""Re-quantising bf16 matrices at load: which ones, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ninfer_formats import numeric_formats as nf
from ninfer_formats.errors import UsageError

GROUPS = ("head", "embedding", "text", "mtp", "vision", "proposal")
FORMATS = {
    "w4": nf.Q4,
    "w5": nf.Q5,
    "w6": nf.Q6,
    "w8": nf.Q8,
    "nvfp4": nf.NVFP4,
    "fp8": nf.FP8,
}

# Small matrices whose error moves every later value: they stay as they are.
_KEPT = ("router", "shared_score", "a_projection", "b_projection")


@dataclass(frozen=True)
class Requantization:
    """The format that the bf16 matrices of a group get; `tied`: the head is the embedding."""

    formats: Mapping[str, str]
    tied: bool = False

    def target(self, name: str) -> str | None:
        """Return the format that parameter `name` gets, None when it stays."""
        if name.rpartition("/")[2] in _KEPT:
            return None
        component = name.partition("/")[0]
        groups = {
            "text/output_head": ("head",),
            "text/token_embedding": ("head", "embedding") if self.tied else ("embedding",),
        }.get(name, (component,))
        return next((self.formats[g] for g in groups if g in self.formats), None)


def parse_requantization(text: str) -> dict[str, str]:
    """Return group -> format of `head=w8,mtp=nvfp4`; UsageError for what is unknown or twice."""
    found: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        group, _, name = item.partition("=")
        if group not in GROUPS or name not in FORMATS or group in found:
            raise UsageError(
                "--requantize is not understood",
                got=item,
                want=f"GROUP=FORMAT, each group once: {', '.join(GROUPS)}; {', '.join(FORMATS)}",
            )
        found[group] = FORMATS[name]
    return found
