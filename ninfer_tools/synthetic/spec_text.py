"""The canonical text of a specification: what differs from the defaults, keys in one order."""

from __future__ import annotations

from ninfer_formats.inventories.geometry import DRAFTERS
from ninfer_tools.synthetic.specification import SyntheticSpec, parse_spec


def describe_spec(spec: SyntheticSpec) -> str:
    """Return the shortest text that `parse_spec` reads as `spec`.

    Two specifications have the same text exactly when they mean the same model, so that it can
    stand in provenance and decide the artifact id.
    """
    usual = parse_spec(f"{spec.model}:{spec.profile}")
    words = [spec.model, spec.profile]
    words += [
        f"{key}={getattr(spec, key)}"
        for key in ("layers", "seed", "vocab")
        if getattr(spec, key) != getattr(usual, key)
    ]
    base = tuple(name for name in spec.components if name not in DRAFTERS)
    if base != usual.components:
        words.append(f"components={'+'.join(base)}")
    # The default number of rows follows from the vocabulary.
    if spec.proposal != parse_spec(f"{spec.model}:{spec.profile}:vocab={spec.vocab}").proposal:
        words.append(f"proposal={spec.proposal or 0}")
    words += [f"{name}=1" for name in spec.components if name in DRAFTERS]
    return ":".join(words)
