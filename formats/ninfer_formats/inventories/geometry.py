"""Geometry of a model: every size from which its inventory follows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ninfer_formats.errors import UsageError

FULL_ATTENTION = "full_attention"
LINEAR_ATTENTION = "linear_attention"
SLIDING_ATTENTION = "sliding_attention"
DFLASH = "dflash"
DFLASH2 = "dflash2"
DRAFTERS = (DFLASH, DFLASH2)
IMAGE_CHANNELS = 3
MAX_LAYERS = 4096


@dataclass(frozen=True)
class TextGeometry:
    """Sizes of the text decoder; the field names are the keys of its component config.

    `intermediate_size` is None in a mixture-of-experts model, the four expert sizes are None in a
    dense one. `layer_types` has one entry per layer.
    """

    hidden_size: int
    vocab_size: int
    tie_word_embeddings: bool
    layer_types: tuple[str, ...]
    num_attention_heads: int
    num_key_value_heads: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    intermediate_size: int | None = None
    num_experts: int | None = None
    num_experts_per_tok: int | None = None
    moe_intermediate_size: int | None = None
    shared_expert_intermediate_size: int | None = None
    head_dim: int = 256
    linear_key_head_dim: int = 128
    linear_value_head_dim: int = 128
    linear_conv_kernel_dim: int = 4
    max_position_embeddings: int = 262144
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e7
    partial_rotary_factor: float = 0.25
    mrope_section: tuple[int, ...] = (11, 11, 10)

    @property
    def num_hidden_layers(self) -> int:
        return len(self.layer_types)

    @property
    def is_moe(self) -> bool:
        return self.num_experts is not None

    @property
    def query_size(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def key_value_size(self) -> int:
        return self.num_key_value_heads * self.head_dim

    @property
    def linear_key_size(self) -> int:
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def linear_value_size(self) -> int:
        return self.linear_num_value_heads * self.linear_value_head_dim


@dataclass(frozen=True)
class VisionGeometry:
    """Sizes of the vision tower; `num_position_embeddings` counts the rows of its table."""

    depth: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    patch_size: int = 16
    temporal_patch_size: int = 2
    spatial_merge_size: int = 2
    num_position_embeddings: int = 2304

    @property
    def patch_values(self) -> int:
        """Values of one input row: channels x frames x rows x columns of a patch."""
        return IMAGE_CHANNELS * self.temporal_patch_size * self.patch_size**2

    @property
    def merged_size(self) -> int:
        return self.hidden_size * self.spatial_merge_size**2


@dataclass(frozen=True)
class DrafterGeometry:
    """Sizes of a block drafter; its hidden size and vocabulary are those of the text decoder.

    `kind` is `dflash` or `dflash2`; the convolution and selector sizes exist only in `dflash2`.
    """

    kind: str
    intermediate_size: int
    layer_types: tuple[str, ...]
    sliding_window: int | None
    target_layer_ids: tuple[int, ...]
    mask_token_id: int
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    head_dim: int = 128
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e7
    max_position_embeddings: int = 262144
    conv_kernel_size: int | None = None
    conv_group_size: int | None = None
    selector_rank: int | None = None
    selector_top_k: int | None = None

    @property
    def num_hidden_layers(self) -> int:
        return len(self.layer_types)


@dataclass(frozen=True)
class ModelGeometry:
    """A model: the text decoder and what else it has."""

    text: TextGeometry
    vision: VisionGeometry | None = None
    mtp: bool = False
    drafter: DrafterGeometry | None = None

    @property
    def components(self) -> tuple[str, ...]:
        """The components the model has, in file order."""
        names = ["text"]
        names += ["mtp"] * self.mtp
        names += ["vision"] * (self.vision is not None)
        names += [self.drafter.kind] if self.drafter else []
        return tuple(names)


def layer_types_from_interval(layers: int, interval: int = 4) -> tuple[str, ...]:
    """Return the layer types in which layer i has full attention iff (i+1) % interval == 0."""
    return tuple(LINEAR_ATTENTION if (i + 1) % interval else FULL_ATTENTION for i in range(layers))


def with_layers(geometry: ModelGeometry, layers: int) -> ModelGeometry:
    """Return the model cut or extended to `layers` text layers.

    The pattern of layer types is kept (repeated when extended). Drafter taps past the last layer
    are dropped; if none is left, the last layer is tapped. Raises UsageError for a count that is
    not from 1 to 4096.
    """
    if not 1 <= layers <= MAX_LAYERS:
        raise UsageError("impossible number of layers", got=layers, want=f"1 to {MAX_LAYERS}")
    types = geometry.text.layer_types
    text = replace(geometry.text, layer_types=tuple(types[i % len(types)] for i in range(layers)))
    drafter = geometry.drafter
    if drafter is not None:
        taps = tuple(tap for tap in drafter.target_layer_ids if tap < layers)
        drafter = replace(drafter, target_layer_ids=taps or (layers - 1,))
    return replace(geometry, text=text, drafter=drafter)
