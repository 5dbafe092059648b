"""The vision tensors of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from ninfer_formats.inventories.geometry import IMAGE_CHANNELS, VisionGeometry
from ninfer_tools.synthetic.checkpoint_sections import CheckpointTensor, Section, list_biased


def list_vision(vision: VisionGeometry, text_hidden: int) -> Iterator[CheckpointTensor]:
    """Yield patch embedding, position table, blocks and merger, in model order."""
    h, merged, patch = vision.hidden_size, vision.merged_size, vision.patch_size
    s = Section("model.visual.", "vision/", "vision")
    shape = (h, IMAGE_CHANNELS, vision.temporal_patch_size, patch, patch)
    yield s.one("patch_embed.proj.weight", "patch_embedding", *shape, site="patch_input")
    yield s.one("patch_embed.proj.bias", "patch_embedding_bias", h)
    positions = vision.num_position_embeddings
    yield s.one("pos_embed.weight", "position_embedding", positions, h)
    for b in range(vision.depth):
        block = Section(f"model.visual.blocks.{b}.", f"vision/layers/{b}/", "vision", b)
        yield from _list_vision_block(block, h, vision.intermediate_size)
    m = Section("model.visual.merger.", "vision/merger/", "vision")
    yield m.one("norm.weight", "norm_weight", h)
    yield m.one("norm.bias", "norm_bias", h)
    yield from list_biased(m, "linear_fc1", "fc1", merged, merged, "input")
    yield from list_biased(m, "linear_fc2", "fc2", text_hidden, merged, "activation")


def _list_vision_block(s: Section, h: int, width: int) -> Iterator[CheckpointTensor]:
    for norm in ("norm1", "norm2"):
        yield s.one(f"{norm}.weight", f"{norm}_weight", h)
        yield s.one(f"{norm}.bias", f"{norm}_bias", h)
    yield s.one("attn.qkv.weight", "attention/query", 3 * h, h, site="attention_input")
    yield s.one("attn.qkv.bias", "attention/query_bias", 3 * h)
    yield from list_biased(s, "attn.proj", "attention/output", h, h, "attention_output")
    yield from list_biased(s, "mlp.linear_fc1", "mlp/fc1", width, h, "mlp_input")
    yield from list_biased(s, "mlp.linear_fc2", "mlp/fc2", h, width, "mlp_activation")
