"""Every kind of checkpoint that `ninfer convert` takes, tiny: model shapes and stored forms.

Each entry of SOURCES builds a checkpoint and what goes with it; which form a released checkpoint
gives to which of its matrices is said beside the ones that are mixed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from builders.checkpoints import (
    TinyCheckpoint,
    build_checkpoint,
    build_drafter,
    describe_config,
    describe_drafter,
    tiny_geometry,
)
from builders.stored_forms import FORMS, Stored, store_plain
from ninfer_formats.inventories.geometry import DrafterGeometry

LAYERS = "model.language_model.layers."


@dataclass
class ModelSource:
    """A base checkpoint, companions by source name, and options of the conversion.

    `shards` files hold the base's tensors. `notice` is part of what has to be said. `plain_head` is
    an output head that the proposal head comes from instead of the one in `values`.
    """

    base: TinyCheckpoint
    companions: Mapping[str, TinyCheckpoint] = field(default_factory=dict)
    shards: int = 1
    notice: str | None = None
    plain_head: np.ndarray | None = None

    @property
    def values(self) -> dict[str, np.ndarray]:
        """The float32 values that every parameter of the artifact comes from."""
        found = dict(self.base.values)
        for name, companion in self.companions.items():
            chosen = {
                parameter: values
                for parameter, values in companion.values.items()
                if name.startswith("dflash") or parameter.startswith(f"{name}/")
            }
            found |= chosen
        return found

    def write(self, folder: Path) -> tuple[Path, list[str]]:
        """Write all folders; return that of the base and the `--source` options."""
        options = []
        for name, companion in self.companions.items():
            options.append(f"{name}={companion.write(folder / name)}")
        return self.base.write(folder / "base", self.shards), options


def _of_ratio(ratio: int) -> ModelSource:
    """The family has GDN value heads 1, 2, 3, 4 and 8 times the key heads; the default is 3."""
    geometry = tiny_geometry(vision=False)
    text = replace(geometry.text, linear_num_value_heads=ratio * geometry.text.linear_num_key_heads)
    return ModelSource(build_checkpoint(replace(geometry, text=text)))


def _text_only() -> ModelSource:
    """As transformers exports a language model alone: config flat, prefix `model.`."""
    base = build_checkpoint(vision=False, mtp=False)
    base.config = describe_config(base.geometry, flat=True)
    base.rename("model.language_model.", "model.")
    for role in ("preprocessor_config.json", "video_preprocessor_config.json"):
        del base.resources[role]
    return ModelSource(base)


def _without_mtp() -> ModelSource:
    base = build_checkpoint()
    base.drop("mtp.")
    base.values = {n: v for n, v in base.values.items() if not n.startswith("mtp/")}
    return ModelSource(base, notice="announces mtp")


def _undeclared_mtp() -> ModelSource:
    base = build_checkpoint()
    del base.config["text_config"]["mtp_num_hidden_layers"]
    return ModelSource(base, notice="announces no MTP")


def _mtp_elsewhere() -> ModelSource:
    base = _without_mtp().base
    return ModelSource(base, {"mtp": build_checkpoint(seed=5)})


def _tied_with_another_head() -> ModelSource:
    base = build_checkpoint(tied=True)
    shape = base.values["text/token_embedding"].shape
    head, values = store_plain(np.random.default_rng(8), "lm_head.weight", shape)
    base.tensors["lm_head.weight"], base.values["text/output_head"] = head, values
    return ModelSource(base, notice="the stored tensor is used")


def _mixed_compressed_tensors(name: str) -> str | None:
    """NVFP4 feed-forward of all layers but the last, FP8 rows for mixers, last layer and head."""
    if name == "lm_head.weight":
        return "ct_row"
    if not name.startswith(LAYERS) or not _is_big(name):
        return None
    return "ct_nvfp4" if ".mlp." in name and not name.startswith(f"{LAYERS}1.") else "ct_row"


def _mixed_modelopt(name: str) -> str | None:
    """FP8 tensors for mixers, NVFP4 for the rest, head included; MTP stays BF16."""
    if name == "lm_head.weight":
        return "modelopt_nvfp4"
    if not name.startswith(LAYERS) or not _is_big(name):
        return None
    return "modelopt_nvfp4" if ".mlp." in name else "modelopt_fp8"


def _every_linear(name: str) -> str | None:
    """NVFP4 on every linear layer of the text, the narrow a and b projections included."""
    narrow = name.endswith(("in_proj_a.weight", "in_proj_b.weight"))
    return "ct_nvfp4" if name.startswith(LAYERS) and (narrow or _is_big(name)) else None


def _block_fp8_with_mtp(name: str) -> str | None:
    """The FP8 releases quantise the MTP layer too."""
    return "hf_block" if name.startswith((LAYERS, "mtp.layers.")) and _is_big(name) else None


def _is_big(name: str) -> bool:
    return name.endswith(("_proj.weight", "in_proj_qkv.weight", "in_proj_z.weight"))


def _mixed(form: Callable[[str], str | None], stray: bool = False, **sizes: bool) -> ModelSource:
    base = build_checkpoint(form=form, **sizes)
    if stray:
        # Scales of a quantised cache lie beside the projections and belong to no weight.
        for name in ("k_scale", "v_scale"):
            base.tensors[f"{LAYERS}1.self_attn.{name}"] = Stored("F32", np.ones(1, "<f4"))
    return ModelSource(base, shards=3)


def _experts_of_two_layouts() -> ModelSource:
    """Quantised exports split the experts of the text and leave the MTP layer as it was."""
    base = build_checkpoint(form="ct_nvfp4", moe=True)
    experts = "mtp.layers.0.mlp.experts."
    count = base.geometry.text.num_experts or 0
    parts = {
        part: [base.tensors[f"{experts}{e}.{part}_proj.weight"].words for e in range(count)]
        for part in ("gate", "up", "down")
    }
    base.drop(experts)
    pairs = [np.concatenate(pair) for pair in zip(parts["gate"], parts["up"], strict=True)]
    base.tensors[f"{experts}gate_up_proj"] = Stored("BF16", np.stack(pairs))
    base.tensors[f"{experts}down_proj"] = Stored("BF16", np.stack(parts["down"]))
    return ModelSource(base)


def _quantised_beside_base() -> ModelSource:
    """A base with everything, and a mixed text-only export of the same model, head in FP8.

    The proposal head is made of the base's head, which was never quantised (S-49).
    """
    base = build_checkpoint()
    quantised = build_checkpoint(form=_mixed_compressed_tensors, seed=3)
    embedding, head = (base.values[f"text/{name}"] for name in ("token_embedding", "output_head"))
    taken = {n: v for n, v in quantised.values.items() if n.startswith("text/")}
    base.values = base.values | taken | {"text/token_embedding": embedding}
    quantised.drop("mtp.", "model.visual.", "model.language_model.embed_tokens.")
    return ModelSource(base, {"quantized": quantised}, plain_head=head)


def _dflash() -> ModelSource:
    """The older drafter: full attention as well, no convolutions, no selector."""
    drafter = DrafterGeometry(
        "dflash", 96, ("sliding_attention", "full_attention"), 64, (0, 1), 300, 2, 1, 32,
        max_position_embeddings=4096,
    )  # fmt: skip
    geometry = replace(tiny_geometry(), drafter=drafter)
    full = build_drafter()
    full.drop("candidate_selector.")
    full.tensors = {n: t for n, t in full.tensors.items() if "_conv." not in n}
    config = describe_drafter(tiny_geometry(drafter=True))
    config |= {
        "architectures": ["DFlashDraftModel"], "layer_types": list(drafter.layer_types),
        "block_size": 8, "dflash_config": {"target_layer_ids": [0, 1], "mask_token_id": 300},
    }  # fmt: skip
    del config["is_causal"]
    values = {
        name.replace("dflash2/", "dflash/"): array
        for name, array in full.values.items()
        if "candidate_selector" not in name and "_conv/" not in name
    }
    tiny = TinyCheckpoint(geometry, config, full.tensors, values)
    return ModelSource(build_checkpoint(), {"dflash": tiny})


SOURCES: Mapping[str, Callable[[], ModelSource]] = {
    "bf16": lambda: ModelSource(build_checkpoint(), shards=3),
    "fp16": lambda: ModelSource(build_checkpoint(dtype="F16")),
    "fp32": lambda: ModelSource(build_checkpoint(dtype="F32"), shards=2),
    "experts stacked": lambda: ModelSource(build_checkpoint(moe=True)),
    "experts one by one": lambda: ModelSource(build_checkpoint(moe=True, split_experts=True)),
    "experts in fp32": lambda: ModelSource(build_checkpoint(moe=True, dtype="F32")),
    "tied": lambda: ModelSource(build_checkpoint(tied=True)),
    "tied beside another head": _tied_with_another_head,
    "text only": _text_only,
    "without mtp": _without_mtp,
    "undeclared mtp": _undeclared_mtp,
    "mtp of another checkpoint": _mtp_elsewhere,
    **{f"GDN ratio {ratio}": (lambda r=ratio: _of_ratio(r)) for ratio in (1, 2, 4, 8)},
    **{form: (lambda f=form: ModelSource(build_checkpoint(form=f), shards=2)) for form in FORMS},
    **{
        f"{form} experts": (lambda f=form: ModelSource(build_checkpoint(form=f, moe=True)))
        for form in FORMS
    },
    "ct_nvfp4 tied": lambda: ModelSource(build_checkpoint(form="ct_nvfp4", tied=True)),
    "ct_nvfp4 weight only": lambda: ModelSource(build_checkpoint(form="ct_nvfp4_weight_only")),
    "ct_nvfp4 every linear": lambda: ModelSource(build_checkpoint(form=_every_linear)),
    "ct mixed": lambda: _mixed(_mixed_compressed_tensors, stray=True),
    "ct mixed experts": lambda: _mixed(_mixed_compressed_tensors, moe=True),
    "modelopt mixed": lambda: _mixed(_mixed_modelopt),
    "modelopt mixed experts": lambda: _mixed(_mixed_modelopt, moe=True),
    "block fp8 with mtp": lambda: _mixed(_block_fp8_with_mtp),
    "block fp8 with mtp experts": lambda: _mixed(_block_fp8_with_mtp, moe=True),
    "experts of two layouts": _experts_of_two_layouts,
    "quantised beside base": _quantised_beside_base,
    "dflash2": lambda: ModelSource(build_checkpoint(), {"dflash2": build_drafter()}),
    "dflash2 experts": lambda: ModelSource(
        build_checkpoint(moe=True), {"dflash2": build_drafter()}
    ),
    "dflash": _dflash,
}


def add_generation(tiny: TinyCheckpoint, place: str, template: str) -> None:
    """Put a chat template where releases put it: a file of its own, or inside another."""
    if place == "chat_template.jinja":
        tiny.resources[place] = template.encode()
        return
    del tiny.resources["chat_template.jinja"]
    content = json.loads(tiny.resources.get(place, b"{}"))
    content["chat_template"] = template
    tiny.resources[place] = json.dumps(content).encode()
