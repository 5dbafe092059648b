"""Payload checks of tensors: legal words, and values that mean a broken model."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ninfer_formats import numeric_formats as nf
from ninfer_formats.codecs.holes import ALL_ZERO, ZERO_RUN
from ninfer_formats.directory import INPUT_DIVISOR, Binding, Tensor
from ninfer_formats.reader import Artifact
from ninfer_formats.tensors import Finding, find_illegal_words
from ninfer_tools.inspection.fault import PayloadFault
from ninfer_tools.inspection.zero_pages import check_zero_runs

# Norms whose weight multiplies as it is: zeros would silence the layer. The other norms of the
# family store the weight minus one, for which zeros are an ordinary start.
_PLAIN_NORM = re.compile(
    r"(text|mtp)/layers/\d+/gdn/norm"
    r"|vision/(layers/\d+/norm[12]|merger/norm)_weight"
    r"|dflash2?/(.*/)?(context|input|post_attention|query|key|final)_norm"
)


def find_plain_norms(artifact: Artifact) -> frozenset[str]:
    """Return the ids of objects that hold norm weights for which zeros are an error."""
    return frozenset(
        part.object
        for name in artifact.bindings
        if _PLAIN_NORM.fullmatch(name)
        for part in artifact.bindings[name].parts
    )


def check_tensor(
    artifact: Artifact, item: Tensor, plain_norms: frozenset[str]
) -> list[PayloadFault]:
    """Return everything suspicious in one tensor, one fault per kind."""
    payload = artifact.raw_payload(item.id)
    found = find_illegal_words(payload, item.format, item.layout, item.shape, item.divisors)
    is_plain_norm, kinds = item.id in plain_norms, {finding.kind for finding in found}
    faults = [_fault(item, f, is_plain_norm) for f in found if f.kind != ZERO_RUN.kind]
    if item.layout == nf.CONTIGUOUS and ALL_ZERO.kind not in kinds:
        faults += check_zero_runs(artifact, item, payload)
    return faults


def _fault(item: Tensor, finding: Finding, is_plain_norm: bool) -> PayloadFault:
    dead = is_plain_norm and finding.kind == ALL_ZERO.kind
    return PayloadFault(
        severity="error" if dead else finding.severity,
        where=f"object {item.id}",
        kind=finding.kind,
        message="every weight of this norm is zero" if dead else finding.message,
        offset=item.offset,
        row=finding.row,
        column=finding.column,
        group=finding.group,
        count=finding.count,
    )


def check_divisors(artifact: Artifact, usable: frozenset[str]) -> Iterator[PayloadFault]:
    """Yield the activation divisors that are not finite and above zero."""
    seen = set()
    for use in artifact.uses:
        binding = use.auxiliaries.get(INPUT_DIVISOR)
        if binding is None or binding in seen:
            continue
        seen.add(binding)
        value = _read_scalar(artifact, binding, usable)
        if value is not None and not (np.isfinite(value) and value > 0):
            item = artifact.objects[binding.parts[0].object]
            yield PayloadFault(
                "error",
                f"object {item.id}",
                "illegal_divisor",
                f"activation divisor is {value}, not finite and above zero",
                item.offset,
            )


def _read_scalar(artifact: Artifact, binding: Binding, usable: frozenset[str]) -> float | None:
    part = binding.parts[0]
    item = artifact.objects[part.object]
    if item.id not in usable or not isinstance(item, Tensor) or item.format != nf.FP32:
        return None
    return float(artifact.raw_payload(item.id).view("<f4")[part.begin])


def check_token_ids(
    artifact: Artifact, vocab_size: int | None, usable: frozenset[str]
) -> list[PayloadFault]:
    """Return whether ids of the proposal head are repeated or outside the vocabulary."""
    name = "proposal/token_ids"
    binding = artifact.bindings.get(name)
    if binding is None or any(part.object not in usable for part in binding.parts):
        return []
    ids = artifact.parameter(name).decode()
    if ids.dtype != np.int32:
        return []
    offset, faults = artifact.objects[binding.parts[0].object].offset, []
    limit = np.iinfo(np.int32).max if vocab_size is None else vocab_size
    outside = np.flatnonzero((ids < 0) | (ids >= limit))
    if outside.size:
        message = f"token id is outside the vocabulary of {limit:,}"
        faults.append(_ids_fault("token_range", message, offset, outside))
    order = np.argsort(ids, kind="stable")
    again = np.sort(order[1:][ids[order][1:] == ids[order][:-1]])
    if again.size:
        faults.append(_ids_fault("token_repeated", "token id is there twice", offset, again))
    return faults


def _ids_fault(kind: str, message: str, offset: int, rows: np.ndarray) -> PayloadFault:
    row, count = int(rows[0]), int(rows.size)
    where = "parameter proposal/token_ids"
    return PayloadFault("error", where, kind, message, offset, row, count=count)
