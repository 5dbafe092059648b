"""Records of checkpoint tensors, and how they are named under a pair of prefixes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ninfer_formats import numeric_formats as nf


@dataclass(frozen=True)
class CheckpointTensor:
    """One tensor of the unquantised checkpoint.

    `parameter` is the logical parameter it holds, or the first of several; `role` and `layer`
    are those of `inventories.parameters.Parameter`. `site` names the activation a projection is
    multiplied with, empty for everything that is no projection.
    """

    name: str
    shape: tuple[int, ...]
    parameter: str
    residency: str
    role: str
    layer: int | None = None
    site: str = ""
    format: str = nf.BF16

    @property
    def module(self) -> str:
        return self.name.removesuffix(".weight")

    @property
    def expert(self) -> bool:
        """Whether the tensor stacks all routed experts, [E, N, K]."""
        return len(self.shape) == 3 and "moe/experts" in self.role


class Section:
    """Names tensors under one checkpoint prefix and one parameter prefix."""

    def __init__(self, prefix: str, parameters: str, residency: str, layer: int | None = None):
        self._prefix, self._parameters = prefix, parameters
        self._residency, self._layer = residency, layer

    def one(
        self, name: str, role: str, *shape: int, site: str = "", format: str = nf.BF16
    ) -> CheckpointTensor:
        """Return the tensor `name` that holds the parameter `role` of this section."""
        parameter = self._parameters + role.replace("{}", "0")
        inside = self._parameters.removeprefix(f"{self._residency}/")
        whole = role if self._layer is not None else inside + role
        return CheckpointTensor(
            self._prefix + name,
            shape,
            parameter,
            self._residency,
            whole,
            self._layer,
            self._parameters + site if site else "",
            format,
        )


def list_gated(
    s: Section, name: str, role: str, hidden: int, width: int
) -> Iterator[CheckpointTensor]:
    """Yield gate, up and down of a gated feed-forward block."""
    for half in ("gate", "up"):
        weight = f"{name}.{half}_proj.weight"
        yield s.one(weight, f"{role}/{half}", width, hidden, site="ffn_input")
    down = f"{name}.down_proj.weight"
    yield s.one(down, f"{role}/down", hidden, width, site=f"{role}/product")


def list_biased(
    s: Section, name: str, role: str, rows: int, columns: int, site: str
) -> Iterator[CheckpointTensor]:
    """Yield the weight and the bias of one projection."""
    yield s.one(f"{name}.weight", role, rows, columns, site=site)
    yield s.one(f"{name}.bias", f"{role}_bias", rows)
