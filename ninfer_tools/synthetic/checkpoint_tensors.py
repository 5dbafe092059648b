"""The tensors of a checkpoint of the family: names, shapes and the parameters they hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ninfer_formats import numeric_formats as nf
from ninfer_formats.inventories.geometry import FULL_ATTENTION, ModelGeometry, TextGeometry
from ninfer_formats.inventories.profiles import Profile
from ninfer_tools.synthetic.checkpoint_sections import CheckpointTensor, Section
from ninfer_tools.synthetic.layer_tensors import list_layer
from ninfer_tools.synthetic.vision_tensors import list_vision


def list_checkpoint_tensors(geometry: ModelGeometry) -> Iterator[CheckpointTensor]:
    """Yield the tensors of text, vision and mtp, unquantised, in model order."""
    text = geometry.text
    # Text-only checkpoints have the flat config and the short prefix.
    prefix = "model." if geometry.vision is None else "model.language_model."
    top = Section(prefix, "text/", "text")
    yield top.one("embed_tokens.weight", "token_embedding", text.vocab_size, text.hidden_size)
    for i, kind in enumerate(text.layer_types):
        layer = Section(f"{prefix}layers.{i}.", f"text/layers/{i}/", "text", i)
        yield from list_layer(layer, text, kind)
    yield top.one("norm.weight", "final_norm", text.hidden_size)
    if not text.tie_word_embeddings:
        head = Section("", "text/", "text")
        shape = (text.vocab_size, text.hidden_size)
        yield head.one("lm_head.weight", "output_head", *shape, site="final_hidden")
    if geometry.vision is not None:
        yield from list_vision(geometry.vision, text.hidden_size)
    if geometry.mtp:
        yield from _list_mtp(text)


def _list_mtp(text: TextGeometry) -> Iterator[CheckpointTensor]:
    s, h = Section("mtp.", "mtp/", "mtp"), text.hidden_size
    yield s.one("fc.weight", "input_projection", h, 2 * h, site="stem_input")
    layer = Section("mtp.layers.0.", "mtp/layers/0/", "mtp", 0)
    yield from list_layer(layer, text, FULL_ATTENTION)
    yield s.one("norm.weight", "final_norm", h)
    yield s.one("pre_fc_norm_embedding.weight", "embedding_norm", h)
    yield s.one("pre_fc_norm_hidden.weight", "hidden_norm", h)


def expand_experts(tensor: CheckpointTensor) -> Iterator[CheckpointTensor]:
    """Yield the per-expert tensors that quantised checkpoints store instead of a stacked one."""
    experts, rows, columns = tensor.shape
    halves = ("gate", "up") if tensor.role.endswith("gate") else ("down",)
    prefix = tensor.name.rpartition(".")[0]
    for e in range(experts):
        for half in halves:
            role = f"{tensor.role.rpartition('/')[0]}/{half}"
            parameter = f"{tensor.parameter.rpartition('/')[0].removesuffix('/0')}/{e}/{half}"
            yield replace(
                tensor,
                name=f"{prefix}.{e}.{half}_proj.weight",
                role=role,
                parameter=parameter,
                shape=(rows // len(halves), columns),
                site=tensor.site.replace("/{}/", f"/{e}/"),
            )


def stored_format(tensor: CheckpointTensor, profile: Profile) -> str:
    """Return nvfp4 or fp8 for a projection that the profile stores so, else the direct format."""
    format = profile.format_of(tensor.residency, tensor.role, tensor.layer, tensor.format)
    quantised = tensor.site and format in (nf.NVFP4, nf.FP8)
    return format if quantised else tensor.format
