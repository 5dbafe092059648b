"""Tensors that no parameter is made of: ignored calibration, or strangers (rules S-70 to S-72)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.geometry import DRAFTERS, ModelGeometry
from ninfer_tools.convert.sources.lookup import SourceLookup
from ninfer_tools.convert.sources.name_lists import name_some
from ninfer_tools.convert.sources.prefixes import Prefixes
from ninfer_tools.convert.sources.quantization import CALIBRATION

EXPERTS, _FEED_FORWARD = ".mlp.experts.", ".mlp."
# Parts of adapters as PEFT names them: without them the weights are those before fine-tuning.
_ADAPTER = re.compile(
    r"(?:^|[._])(?:lora_(?:[ABEab]|embedding_[AB]|magnitude_vector|up|down)|ia3_l|oft_[rR]"
    r"|boft_[RrsS]|hada_[wt][12](?:_[ab])?|lokr_[wt][12](?:_[ab])?|vera_lambda_[bd]"
    r"|modules_to_save|base_layer|prompt_embeddings)(?:[._]|$)"
)
_NUMBERED = re.compile(r"\b(layers|blocks|experts)\.(\d+)\.")


@dataclass
class Leftovers:
    """Names of tensors that are not used.

    `ignored` are known to change no weight, `unplaced` are of no known component, and `unconverted`
    of one of the base checkpoint that is not converted; `extra` stand where a converted component
    has its weights and have no place in the model. `odd_experts` are labels of checkpoints whose
    experts are there, but stored in a layout that is not known.
    """

    ignored: list[str] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)
    unconverted: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    odd_experts: set[str] = field(default_factory=set)
    problems: list[NinferError] = field(default_factory=list)


def sort_leftovers(
    lookups: Mapping[str, SourceLookup], components: Collection[str], geometry: ModelGeometry
) -> Leftovers:
    """Sort the tensors that no lookup found a parameter for."""
    found = Leftovers()
    for key, lookup in lookups.items():
        owned = _owned_components(key, lookups, components)
        extra: list[str] = []
        adapters: list[str] = []
        for name in lookup.checkpoint.tensors.keys() - lookup.known:
            component = key if key in DRAFTERS else _component(name, lookup.checkpoint.prefixes)
            is_ours = component is None or component in owned
            if is_ours and _ADAPTER.search(name):
                adapters.append(name)
            elif component is None:
                found.unplaced.append(name)
            elif component in owned:
                calibration = name.rpartition(".")[2] in CALIBRATION
                (found.ignored if calibration else extra).append(name)
            elif key == "base" and component not in lookups:
                found.unconverted.append(name)
        label = lookup.checkpoint.label
        if adapters:
            found.problems.append(_explain_adapters(sorted(adapters), label))
        odd = _odd_experts(lookup, extra, geometry)
        if odd:
            found.odd_experts.add(label)
            found.problems.append(_explain_experts(odd, label))
        found.problems += _explain(sorted(set(extra) - set(odd)), label, geometry)
        found.extra += extra
    for names in (found.ignored, found.unplaced, found.unconverted, found.extra):
        names.sort()
    return found


def _explain_adapters(names: list[str], label: str) -> NinferError:
    return NinferError(
        f"the checkpoint holds an adapter that is not merged: {name_some(names)}", path=label,
        remedy="merge it into the weights first (merge_and_unload in PEFT), and convert the result",
    )  # fmt: skip


def _owned_components(
    key: str, others: Collection[str], components: Collection[str]
) -> frozenset[str]:
    """Return the components for which a checkpoint is the source, or one of them."""
    if key == "base":
        given = {"mtp"} if "mtp" in others else set()
        return frozenset(components) - given - set(DRAFTERS)
    return frozenset(components) & {"text" if key == "quantized" else key}


def _component(name: str, prefixes: Prefixes) -> str | None:
    if prefixes.mtp and name.startswith(prefixes.mtp):
        return "mtp"
    if prefixes.vision and name.startswith(prefixes.vision):
        return "vision"
    if prefixes.text and name.startswith((prefixes.text, f"{prefixes.head}lm_head.")):
        return "text"
    return None


def _odd_experts(lookup: SourceLookup, names: Iterable[str], geometry: ModelGeometry) -> list[str]:
    """Return the strangers where experts should be, if not one expert was found."""
    found = lookup.known & lookup.checkpoint.tensors.keys()
    if not geometry.text.is_moe or any(EXPERTS in name for name in found):
        return []
    return sorted(name for name in names if _FEED_FORWARD in name)


def _explain_experts(names: list[str], label: str) -> NinferError:
    return NinferError(
        f"the routed experts are stored in a layout that is not known: {name_some(names)}",
        path=label, want="mlp.experts.gate_up_proj and mlp.experts.down_proj, or "
        "mlp.experts.N.{gate,up,down}_proj.weight",
    )  # fmt: skip


def _explain(names: Iterable[str], label: str, geometry: ModelGeometry) -> list[NinferError]:
    text, vision = geometry.text, geometry.vision
    limits = {
        "layers": text.num_hidden_layers,
        "blocks": vision.depth if vision else 0,
        "experts": text.num_experts or 0,
    }
    beyond: dict[str, int] = {}
    strangers = []
    for name in names:
        counted = [(kind, int(number)) for kind, number in _NUMBERED.findall(name)]
        over = [(kind, n) for kind, n in counted if limits[kind] <= n]
        if not over:
            strangers.append(name)
        for kind, number in over:
            beyond[kind] = max(beyond.get(kind, 0), number + 1)
    problems = [
        NinferError(
            f"config.json and weights disagree on the number of {kind}", path=label,
            got=f"{count} in the weights", want=f"{limits[kind]}, as config.json says",
        )
        for kind, count in beyond.items()
    ]  # fmt: skip
    if strangers:
        what = f"tensors for which the model has no place: {name_some(strangers)}"
        problems.append(NinferError(what, path=label))
    return problems
