"""Which checkpoints a calibration was made with (V-110)."""

from __future__ import annotations

from collections.abc import Mapping

from ninfer_tools.convert.fingerprint import read_fingerprint
from ninfer_tools.convert.sources.checkpoint import Checkpoint
from ninfer_tools.convert.sources.mapping import BASE, MTP, QUANTIZED

HEADERS, CONTENT = "headers_sha256", "content_sha256"


def identify_sources(
    checkpoints: Mapping[str, Checkpoint], weights: bool
) -> dict[str, dict[str, str]]:
    """Return digests by source name, for the sources that a forward pass reads.

    `headers_sha256` is over config and headers, `content_sha256` over samples of the weights too;
    the latter only with `weights`.
    """
    found = {}
    for name in (BASE, MTP, QUANTIZED):
        if name in checkpoints:
            found[name] = {HEADERS: read_fingerprint(checkpoints[name], weights=False)}
            if weights:
                found[name][CONTENT] = read_fingerprint(checkpoints[name], weights=True)
    return found
