"""The text through the checkpoint, layer by layer (V-102 to V-106)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.parameters import Parameter, list_parameters
from ninfer_tools.convert.calibration.layer_weights import Weights, read_rows, read_weights
from ninfer_tools.convert.calibration.model_parts import ModelParts
from ninfer_tools.convert.calibration.need import count_steps
from ninfer_tools.convert.calibration.observation import Maxima, Product, observe_layer
from ninfer_tools.convert.calibration.record import RUN, Projection, list_measured
from ninfer_tools.convert.progress import Advance, Announce
from ninfer_tools.convert.sources.parameter_source import ParameterSource

_TEXT_SITE, _MTP_SITE = "text/final_hidden", "mtp/final_hidden"
_HEAD = "text/output_head"


def measure_inputs(
    geometry: ModelGeometry,
    sources: Mapping[str, ParameterSource],
    chunks: Sequence[NDArray[np.int32]],
    device: str,
    advance: Advance,
    announce: Announce,
) -> dict[str, Projection]:
    """Return the largest input of every projection of text and MTP layer.

    `geometry` has the components to run; `chunks` are token ids, each a sequence of its own.
    `advance` gets the float32 bytes of weights that were run, in all `need.count_run_bytes`.
    Raises NumericError for a weight or an input that is NaN or infinite, NinferError when memory
    runs out.
    """
    parameters = list_parameters(geometry, [n for n in geometry.components if n in RUN])
    run = _Forward(geometry, sources, parameters, chunks, device, advance, announce)
    try:
        with torch.inference_mode():
            run.text()
            if geometry.mtp:
                run.mtp()
    except RuntimeError as error:
        if "allocate" not in str(error):
            raise
        raise NinferError(
            f"not enough memory on {device} for calibration",
            remedy="give fewer --calibration-tokens, or another --device",
        ) from error  # fmt: skip
    return {
        p.name: Projection(p.shape, {site: run.maxima.find(p.name, site) for site in sites})
        for p, sites in list_measured(parameters)
    }


@dataclass
class _Forward:
    geometry: ModelGeometry
    sources: Mapping[str, ParameterSource]
    parameters: Sequence[Parameter]
    chunks: Sequence[NDArray[np.int32]]
    device: str
    advance: Advance
    announce: Announce

    def __post_init__(self) -> None:
        self.maxima = Maxima()
        self.states: list[torch.Tensor] = []
        self._parts = ModelParts(self.geometry.text, self.device)
        self._groups: dict[tuple[str, int | None], list[Parameter]] = defaultdict(list)
        for p in self.parameters:
            self._groups[p.residency, p.layer].append(p)

    def text(self) -> None:
        """Run the text layers; leave states [1, tokens, hidden] after the final norm."""
        self.states = [self._embed(ids) for ids in self.chunks]
        for index in range(self.geometry.text.num_hidden_layers):
            self.announce(f"calibration: text/layers/{index}")
            group = self._groups["text", index]
            self._run_layer(self._parts.build_layer(index, self._read(group)), group)
        stem = [p for p in self._groups["text", None] if p.name == "text/final_norm"]
        self._normalise(self._read(stem), (_HEAD, _TEXT_SITE))

    def mtp(self) -> None:
        """Run the first drafting step: the state at t with the token at t + 1, at position t."""
        self.announce("calibration: mtp/layers/0")
        stem, layers = self._groups["mtp", None], self._groups["mtp", 0]
        weights = self._read(stem)
        self._join(weights, [(p.name, site) for p in stem for site in p.inputs])
        self._run_layer(self._parts.build_drafting_layer(self._read(layers)), layers)
        self._normalise(weights, (_HEAD, _MTP_SITE))

    def _join(self, weights: Weights, products: Sequence[Product]) -> None:
        """Make fc(norm(embedding of the next token) ; norm(state)) of every state."""
        embedding = self._parts.build_norm(weights["pre_fc_norm_embedding.weight"])
        hidden = self._parts.build_norm(weights["pre_fc_norm_hidden.weight"])
        if len(self.chunks[-1]) == 1:  # no next token
            self.states.pop()
        for number, state in enumerate(self.states):
            following = self._embed(self.chunks[number][1:])
            joined = torch.cat([embedding(following), hidden(state[:, :-1])], -1)
            self.maxima.add(products, joined)
            self.states[number] = torch.nn.functional.linear(joined, weights["fc.weight"])

    def _run_layer(self, layer: torch.nn.Module, group: Sequence[Parameter]) -> None:
        observe_layer(layer, group, self.geometry, self.maxima)
        steps = count_steps(group, len(self.states))
        for number, state in enumerate(self.states):
            positions = self._parts.embed_positions(state)
            self.states[number] = layer(state, position_embeddings=positions)
            self.advance(next(steps))
        self.maxima.settle()

    def _normalise(self, weights: Weights, product: Product) -> None:
        """Put every state through the final norm of its component, and count it as an input."""
        norm = self._parts.build_norm(weights["norm.weight"])
        for number, state in enumerate(self.states):
            self.states[number] = norm(state)
            self.maxima.add([product], self.states[number])
        self.maxima.settle()

    def _read(self, group: Sequence[Parameter]) -> Weights:
        return read_weights(group, self.sources, self.geometry, self.device)

    def _embed(self, ids: NDArray[np.int32]) -> torch.Tensor:
        return read_rows(self.sources["text/token_embedding"], ids).to(self.device)[None]
