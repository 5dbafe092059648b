"""A loaded model: weights of every component that is in use."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.component_configs import geometry_from_components
from ninfer_formats.inventories.geometry import FULL_ATTENTION, ModelGeometry
from ninfer_formats.reader import Artifact
from ninfer_kernels.embedding import embedding
from ninfer_kernels.kv_codec import KVPages, allocate_pages
from ninfer_kernels.linear import linear
from ninfer_runtime.config import Settings
from ninfer_runtime.models.qwen3_5.text import Decoder, DecoderState, make_decoder
from ninfer_runtime.models.qwen3_5.vision import VisionTower, load_vision
from ninfer_runtime.models.qwen3_5.weights import (
    MtpWeights,
    ProposalWeights,
    TextWeights,
    load_mtp,
    load_proposal,
    load_text,
)
from ninfer_runtime.state.recurrent import allocate_recurrent
from ninfer_runtime.weights.load_record import LoadRecord
from ninfer_runtime.weights.requantization import Requantization
from ninfer_runtime.weights.source import WeightSource
from ninfer_runtime.weights.staging import Progress


@dataclass(frozen=True)
class Model:
    """`mtp`, `proposal` and `vision` are None where they are absent or not in use."""

    geometry: ModelGeometry
    decoder: Decoder
    text: TextWeights
    mtp: MtpWeights | None
    proposal: ProposalWeights | None
    vision: VisionTower | None

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings [T, H] of ids int32 [T]."""
        return embedding(ids, self.text.embedding, out_dtype=self.text.final_norm.dtype)

    def score(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return fp32 logits [T, V] of hidden states after the final norm."""
        return linear(hidden, self.text.head, out_dtype=torch.float32)

    def propose(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the most likely token ids int32 [T] as the draft head sees it."""
        if self.proposal is None:
            return self.score(hidden).argmax(-1).int()
        scores = linear(hidden, self.proposal.head, out_dtype=torch.float32)
        return self.proposal.token_ids[scores.argmax(-1)]


@dataclass(frozen=True)
class ModelState:
    """State of every sequence: the decoder's, and the MTP head's cache. `snapshots` have a row
    for each kept prefix, planes as `RecurrentState.stored_planes`; each has a page behind those of
    the pool."""

    decoder: DecoderState
    mtp: KVPages | None
    snapshots: tuple[torch.Tensor, ...] = ()

    @property
    def caches(self) -> tuple[KVPages, ...]:
        """Every cache; a page of a sequence is the same one in all of them."""
        return self.decoder.kv if self.mtp is None else (*self.decoder.kv, self.mtp)


def read_geometry(artifact: Artifact) -> ModelGeometry:
    """Return the geometry that the artifact's components describe; ArtifactError, naming the
    file, when they do not."""
    try:
        return geometry_from_components({c.name: c.config for c in artifact.components.values()})
    except NinferError as error:
        error.path = error.path or artifact.path
        raise


def load_model(
    artifact: Artifact, geometry: ModelGeometry, settings: Settings, progress: Progress
) -> tuple[Model, LoadRecord]:
    """Load the components that `settings` use; `progress` takes counts of bytes read."""
    source = _open_source(artifact, geometry, settings)
    return _request(source, geometry, settings), source.load(progress)


def list_weights(artifact: Artifact, geometry: ModelGeometry, settings: Settings) -> list[int]:
    """Return the bytes of every tensor that `load_model` will allocate for weights."""
    empty = replace(settings, device=torch.device("meta"))
    source = _open_source(artifact, geometry, empty)
    _request(source, geometry, empty)
    return source.allocated


def _open_source(artifact: Artifact, geometry: ModelGeometry, settings: Settings) -> WeightSource:
    return WeightSource(
        artifact, settings.device, settings.activations, settings.dtype, settings.decoded,
        Requantization(settings.requantize, geometry.text.tie_word_embeddings),
    )  # fmt: skip


def _request(source: WeightSource, geometry: ModelGeometry, settings: Settings) -> Model:
    """Return the model with empty weights, which the source knows."""
    return Model(
        geometry,
        make_decoder(geometry.text, settings.device),
        load_text(source, geometry.text),
        load_mtp(source, geometry.text) if settings.drafts else None,
        load_proposal(source) if settings.proposal_head else None,
        load_vision(source, geometry.vision) if settings.vision and geometry.vision else None,
    )


def allocate_state(geometry: ModelGeometry, settings: Settings, slots: int) -> ModelState:
    """Return empty state of `slots` sequences and all pages."""
    text = geometry.text
    full = sum(kind == FULL_ATTENTION for kind in text.layer_types)

    def allocate_cache() -> KVPages:
        heads, width = text.num_key_value_heads, text.head_dim
        pages = settings.pages + settings.snapshots
        return allocate_pages(settings.kv_kind, pages, heads, width, settings.device)

    recurrent = allocate_recurrent(
        text, len(text.layer_types) - full, slots, settings.width, settings.activations,
        settings.device,
    )  # fmt: skip
    return ModelState(
        DecoderState(tuple(allocate_cache() for _ in range(full)), recurrent),
        allocate_cache() if settings.drafts else None,
        tuple(plane.new_zeros(settings.snapshots, *plane.shape[1:])
              for plane in recurrent.stored_planes),
    )  # fmt: skip
