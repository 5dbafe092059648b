"""Profiles: which numeric format and activation policy every parameter of a model gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ninfer_formats import numeric_formats as nf
from ninfer_formats.directory import A16_ONLY, ALLOW_A4, ALLOW_A8
from ninfer_formats.errors import UsageError
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.parameters import Parameter

PROFILE_NAMES = ("nvfp4", "nvfp4-official", "groupwise-int", "fp8", "bf16")

RoleFormats = Mapping[str, str]
LayerRule = Callable[[str, int], str | None]

_A_B_PROJECTIONS = frozenset({"gdn/a_projection", "gdn/b_projection"})
_ATTENTION = ("query", "key", "gate", "value", "output")
_GDN = ("query", "key", "value", "z", "output")
_MIXERS = (*(f"attention/{n}" for n in _ATTENTION), *(f"gdn/{n}" for n in _GDN))
_GATED = ("gate", "up", "down")
_FEED_FORWARD = tuple(f"{p}/{n}" for p in ("mlp", "moe/experts/{}", "moe/shared") for n in _GATED)
_ENDS = ("token_embedding", "output_head")


class Assignment(NamedTuple):
    """What a profile decides for one parameter; the policy is None where there is no product."""

    format: str
    activation_policy: str | None


@dataclass(frozen=True)
class Profile:
    """A rule from parameters to formats.

    `formats` maps residency -> role -> format; what it does not name keeps its direct format.
    `layer_rule(role, layer)` overrides it for text layers. `policies` maps a format to the policy
    of its uses (A16Only otherwise). Roles in `separate` are never packed with others.
    """

    name: str
    formats: Mapping[str, RoleFormats]
    layer_rule: LayerRule | None = None
    policies: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    separate: frozenset[str] = frozenset()

    def format_of(self, residency: str, role: str, layer: int | None, direct_format: str) -> str:
        """Return the format of a role."""
        if self.layer_rule is not None and residency == "text" and layer is not None:
            found = self.layer_rule(role, layer)
            if found is not None:
                return found
        return self.formats.get(residency, {}).get(role, direct_format)

    def policy_of(self, format: str) -> str:
        """Return the activation policy of a product with a weight of this format."""
        return self.policies.get(format, A16_ONLY)

    def needs_divisor(self, format: str) -> bool:
        """Return whether products with this format need an activation divisor."""
        return format == nf.NVFP4 and self.policy_of(format) == ALLOW_A4

    def assign(self, parameter: Parameter) -> Assignment:
        """Return the format and activation policy of a parameter."""
        format = self.format_of(
            parameter.residency, parameter.role, parameter.layer, parameter.direct_format
        )
        return Assignment(format, self.policy_of(format) if parameter.inputs else None)


def build_profile(name: str, geometry: ModelGeometry, model_id: str | None = None) -> Profile:
    """Return the named profile for a model.

    `model_id` matters to groupwise-int only: qwen3.6-27b keeps its published Q6 embedding and
    head. Raises UsageError for a name that is not in `PROFILE_NAMES`.
    """
    if name not in _BUILDERS:
        raise UsageError("unknown profile", got=name, want=", ".join(PROFILE_NAMES))
    return _BUILDERS[name](geometry, model_id)


def build_mixed_nvfp4() -> Profile:
    """Return the profile of qwen3.6-27b/nvfp4: NVFP4 except for a few sensitive projections."""
    text = _uniform(nf.NVFP4) | dict.fromkeys(_ENDS, nf.Q8)
    policies = MappingProxyType({nf.NVFP4: ALLOW_A4})
    formats = _with_grouped_rest(text)
    return Profile("nvfp4-mixed", formats, _keep_sensitive, policies, _A_B_PROJECTIONS)


def _uniform(format: str) -> dict[str, str]:
    return dict.fromkeys((*_MIXERS, *_FEED_FORWARD), format)


_MTP_Q8 = _uniform(nf.Q8) | {"input_projection": nf.Q8}
_VISION_GROUPED = {
    "patch_embedding": nf.Q6,
    "attention/query": nf.Q4,
    "attention/key": nf.Q4,
    "attention/value": nf.Q4,
    "attention/output": nf.Q5,
    "mlp/fc1": nf.Q4,
    "mlp/fc2": nf.Q5,
    "merger/fc1": nf.Q8,
    "merger/fc2": nf.Q8,
}
_DRAFTER_Q8 = {
    "feature_projection": nf.Q8,
    **{f"attention/{n}": nf.Q8 for n in ("query", "key", "value", "output")},
    **{f"attention/context_{n}": nf.Q8 for n in ("key", "value")},
    **{f"mlp/{n}": nf.Q8 for n in _GATED},
}
_DENSE_GROUPED = {
    **{f"attention/{n}": nf.Q4 for n in ("query", "key")},
    **{f"attention/{n}": nf.Q5 for n in ("gate", "value", "output")},
    **{f"gdn/{n}": nf.Q4 for n in ("query", "key")},
    **{f"gdn/{n}": nf.Q5 for n in ("value", "z", "output")},
    "mlp/gate": nf.Q4,
    "mlp/up": nf.Q4,
    "mlp/down": nf.Q5,
}
_MOE_GROUPED = {
    **dict.fromkeys(_MIXERS, nf.Q8),
    **{f"moe/shared/{n}": nf.Q8 for n in _GATED},
    "moe/experts/{}/gate": nf.Q4,
    "moe/experts/{}/up": nf.Q4,
    "moe/experts/{}/down": nf.Q5,
    "token_embedding": nf.Q8,
    "output_head": nf.Q6,
}


def _with_grouped_rest(text: RoleFormats, mtp: RoleFormats = _MTP_Q8) -> dict[str, RoleFormats]:
    return {
        "text": text,
        "mtp": mtp,
        "vision": _VISION_GROUPED,
        "dflash": _DRAFTER_Q8,
        "dflash2": _DRAFTER_Q8,
        "proposal": {"head": nf.Q4},
    }


def _build_nvfp4(geometry: ModelGeometry, model_id: str | None) -> Profile:
    text = _uniform(nf.NVFP4) | dict.fromkeys(_ENDS, nf.Q6)
    return Profile("nvfp4", _with_grouped_rest(text))


def _build_nvfp4_official(geometry: ModelGeometry, model_id: str | None) -> Profile:
    layers = geometry.text.num_hidden_layers
    first_fp8 = layers - layers // 8

    def mlp_rule(role: str, layer: int) -> str | None:
        return nf.FP8 if layer >= first_fp8 and role in _FEED_FORWARD else None

    text = {**dict.fromkeys((*_MIXERS, *_ENDS), nf.FP8), **dict.fromkeys(_FEED_FORWARD, nf.NVFP4)}
    policies = MappingProxyType({nf.NVFP4: ALLOW_A4, nf.FP8: ALLOW_A8})
    return Profile("nvfp4-official", _with_grouped_rest(text), mlp_rule, policies)


def _build_groupwise_int(geometry: ModelGeometry, model_id: str | None) -> Profile:
    if geometry.text.is_moe:
        rule = _sharpen_downs if geometry.text.num_hidden_layers == 40 else None
        return Profile("groupwise-int", _with_grouped_rest(_MOE_GROUPED), rule)
    ends = nf.Q6 if model_id == "qwen3.6-27b" else nf.Q8
    text = _DENSE_GROUPED | dict.fromkeys(_ENDS, ends)
    return Profile("groupwise-int", _with_grouped_rest(text), separate=_A_B_PROJECTIONS)


def _build_fp8(geometry: ModelGeometry, model_id: str | None) -> Profile:
    text = _uniform(nf.FP8) | dict.fromkeys(_ENDS, nf.FP8)
    mtp = _uniform(nf.FP8) | {"input_projection": nf.FP8}
    formats = _with_grouped_rest(text, mtp) | {"vision": {}}
    return Profile("fp8", formats, policies=MappingProxyType({nf.FP8: ALLOW_A8}))


def _build_bf16(geometry: ModelGeometry, model_id: str | None) -> Profile:
    return Profile("bf16", {})


def _sharpen_downs(role: str, layer: int) -> str | None:
    # The published choice for the 40-layer model; nothing is known for other depths.
    return nf.Q6 if layer in (34, 38, 39) and role == "moe/experts/{}/down" else None


def _keep_sensitive(role: str, layer: int) -> str | None:
    # The published source checkpoint leaves exactly these projections unquantised.
    if role == "attention/output":
        return nf.BF16 if layer in (3, 7) else None
    if role == "gdn/output":
        return nf.BF16 if layer == 4 else None
    return nf.BF16 if role.startswith("attention/") and layer in (3, 7, 11, 15, 19, 23) else None


_BUILDERS: Mapping[str, Callable[[ModelGeometry, str | None], Profile]] = MappingProxyType(
    {
        "nvfp4": _build_nvfp4,
        "nvfp4-official": _build_nvfp4_official,
        "groupwise-int": _build_groupwise_int,
        "fp8": _build_fp8,
        "bf16": _build_bf16,
    }
)
