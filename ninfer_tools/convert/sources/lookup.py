"""Finding parameters in one checkpoint."""

from __future__ import annotations

from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.geometry import ModelGeometry
from ninfer_formats.inventories.parameters import Parameter
from ninfer_tools.convert.sources import prefixes
from ninfer_tools.convert.sources.checkpoint import Checkpoint
from ninfer_tools.convert.sources.parameter_source import ParameterSource
from ninfer_tools.convert.sources.places import HEAD, Place, find_places
from ninfer_tools.convert.sources.quantization import Storage, decide_storage, parts_of


class SourceLookup:
    """Looks parameters up in a checkpoint and remembers which tensors belong to one."""

    def __init__(self, checkpoint: Checkpoint, geometry: ModelGeometry) -> None:
        self.checkpoint, self._geometry = checkpoint, geometry
        self._storages: dict[str, Storage | NinferError | None] = {}
        self._splits_experts = any(".mlp.experts.0." in name for name in checkpoint.tensors)
        self.known: set[str] = set()

    def find(self, parameter: Parameter) -> ParameterSource | NinferError | None:
        """Return where the parameter is, None if nowhere, or why what is there cannot be used."""
        present = []
        for place in find_places(parameter, self._geometry):
            name = self._full_name(parameter.residency, place)
            storage = self._storage(name)
            if storage is not None:
                present.append((name, place, storage))
        if not present:
            return None
        if len(present) > 1:
            return NinferError(
                "weight is stored twice", path=self.checkpoint.label,
                got=" and ".join(name for name, _, _ in present), want="one of them",
            )  # fmt: skip
        return self._accept(parameter, *present[0])

    def name_of(self, parameter: Parameter) -> str:
        """Return the tensor in which the parameter should lie, whether it is there or not."""
        places = find_places(parameter, self._geometry)
        place = places[0 if self._splits_experts else -1]
        name = self._full_name(parameter.residency, place)
        module = name.removesuffix(".weight")
        # Beside the scales of compressed-tensors NVFP4 the codes have another name.
        packed = f"{module}.weight_global_scale" in self.checkpoint.tensors
        return f"{module}.weight_packed" if packed and module != name else name

    def know_head(self) -> None:
        """Count a stored output head as known: it is the embedding once more."""
        self._storage(self.checkpoint.prefixes.head + HEAD)

    def _accept(
        self, parameter: Parameter, name: str, place: Place, storage: Storage | NinferError
    ) -> ParameterSource | NinferError:
        if isinstance(storage, NinferError):
            return storage
        if storage.shape != place.shape:
            path = self.checkpoint.path_of(storage.values)
            return NinferError(
                "tensor has another shape than config.json asks for", path=path, where=name,
                got=list(storage.shape), want=list(place.shape),
            )  # fmt: skip
        return ParameterSource(
            parameter, self.checkpoint, storage, place.selection, place.transposed
        )

    def _storage(self, name: str) -> Storage | NinferError | None:
        if name not in self._storages:
            self._storages[name] = self._decide(name)
        return self._storages[name]

    def _decide(self, name: str) -> Storage | NinferError | None:
        try:
            storage = decide_storage(self.checkpoint, name)
        except NinferError as error:
            # Its parts are no strangers: the error names the weight already.
            self.known.update(parts_of(name))
            return error
        if storage is not None:
            self.known.update(tensor.name for tensor in storage.tensors)
        return storage

    def _full_name(self, residency: str, place: Place) -> str:
        found = self.checkpoint.prefixes
        if residency == "text" and place.tensor == HEAD:
            return found.head + place.tensor
        usual = {
            "text": found.text or prefixes.TEXT[0],
            "vision": found.vision or prefixes.VISION[0],
            "mtp": found.mtp or prefixes.MTP[0],
        }
        return usual.get(residency, "") + place.tensor
