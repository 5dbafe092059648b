"""The specification of a synthetic model: `MODEL:PROFILE[:key=value]...`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.family import (
    FAMILY_NAMES,
    PROPOSAL_ROWS,
    family_geometry,
)
from ninfer_formats.inventories.geometry import DRAFTERS, MAX_LAYERS, ModelGeometry, with_layers
from ninfer_formats.inventories.profiles import PROFILE_NAMES
from ninfer_formats.layouts.geometry import align_up
from ninfer_tools.synthetic.vocabulary import SMALLEST, Vocabulary

_FAMILY_TOKENS = Vocabulary().tokens
KEYS = ("layers", "seed", "vocab", "components", "proposal", *DRAFTERS)


@dataclass(frozen=True)
class SyntheticSpec:
    """What to make: see `parse_spec` for the meaning and the defaults of each field."""

    model: str
    profile: str
    layers: int | None = None
    seed: int = 0
    vocab: int = _FAMILY_TOKENS
    components: tuple[str, ...] = ("text",)
    proposal: int | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.vocab)

    def geometry(self) -> ModelGeometry:
        """Return the model's geometry with the layers, vocabulary and components asked for."""
        full = family_geometry(self.model)
        if self.layers is not None:
            full = with_layers(full, self.layers)
        # A row for each id, one more for drafters that mask with the first unused id, in steps
        # of 256: 248077 ids give the family's 248320 rows.
        rows = align_up(self.vocab + 1, 256)
        drafter = full.drafter
        if drafter is not None:
            mask = drafter.mask_token_id - _FAMILY_TOKENS + self.vocab
            drafter = replace(drafter, mask_token_id=mask)
        return ModelGeometry(
            replace(full.text, vocab_size=rows),
            full.vision if "vision" in self.components else None,
            full.mtp and "mtp" in self.components,
            drafter if drafter is not None and drafter.kind in self.components else None,
        )


def parse_spec(text: str) -> SyntheticSpec:
    """Return the specification written in `text`, e.g. `qwen3.8-27b:nvfp4:layers=4:seed=1`.

    Keys: `layers` text layers (default: the model's own); `seed` (default 0); `vocab` token ids
    (default 248077); `components` joined by + (default: text, mtp and vision as the model has
    them); `proposal` rows of the draft head, 0 for none (default 131072, or half of another
    `vocab`); `dflash2=1` or `dflash=1` adds the model's drafter. Raises UsageError that lists
    the accepted models, profiles or keys.
    """
    model, _, rest = text.partition(":")
    profile, *options = rest.split(":")
    _require_one_of("model", model, FAMILY_NAMES)
    _require_one_of("profile", profile, PROFILE_NAMES)
    values: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        _require_one_of("key", key, KEYS)
        if not equals or key in values:
            raise UsageError(
                "each key is given once as key=value", where=f"specification {text}", got=option
            )
        values[key] = value
    return _build_spec(model, profile, values)


def _build_spec(model: str, profile: str, values: dict[str, str]) -> SyntheticSpec:
    read = _integer_reader(values)
    vocab = read("vocab", SMALLEST, 2**24) or _FAMILY_TOKENS
    default_rows = PROPOSAL_ROWS if vocab == _FAMILY_TOKENS else vocab // 2
    proposal = read("proposal", 0, vocab)
    if proposal is not None and 0 < proposal < (least := len(Vocabulary(vocab).special_ids())):
        raise UsageError(
            "too few rows for the special ids",
            where="key proposal",
            got=proposal,
            want=f"0 or {least} to {vocab}",
        )
    return SyntheticSpec(
        model,
        profile,
        layers=read("layers", 1, MAX_LAYERS),
        seed=read("seed", 0, 2**63 - 1) or 0,
        vocab=vocab,
        components=_choose_components(model, values),
        proposal=(default_rows if proposal is None else proposal) or None,
    )


def _choose_components(model: str, values: dict[str, str]) -> tuple[str, ...]:
    available = family_geometry(model).components
    chosen = set(available) - set(DRAFTERS)
    if "components" in values:
        chosen = set(values["components"].split("+"))
    for drafter in DRAFTERS:
        if values.get(drafter, "0") not in ("0", "1"):
            raise UsageError(
                "not a switch", where=f"key {drafter}", got=values[drafter], want="0 or 1"
            )
        if values.get(drafter) == "1":
            chosen.add(drafter)
    for name in sorted(chosen):
        _require_one_of(f"component of {model}", name, available)
    if "text" not in chosen:
        raise UsageError("component text is required", got="+".join(sorted(chosen)))
    return tuple(name for name in available if name in chosen)


def _integer_reader(values: dict[str, str]) -> Callable[[str, int, int], int | None]:
    def read(key: str, low: int, high: int) -> int | None:
        if key not in values:
            return None
        value = values[key]
        # isascii: other scripts have digits too, and int() takes them.
        if not (value.isascii() and value.isdigit() and low <= int(value[:20]) <= high):
            raise UsageError(
                "value cannot be used",
                where=f"key {key}",
                got=value,
                want=f"an integer from {low} to {high}",
            )
        return int(value)

    return read


def _require_one_of(kind: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise UsageError(f"unknown {kind}", got=name or "nothing", want=", ".join(names))
