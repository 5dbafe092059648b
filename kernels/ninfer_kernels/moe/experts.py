"""Weights of a mixture-of-experts layer, and the buffers one layer's computation needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_kernels.linear.matrix import Matrix
from ninfer_kernels.linear.op import scratch_bytes


@dataclass(frozen=True)
class ExpertStack:
    """One matrix of every expert, stacked by rows in one Matrix.

    Expert e has the `rows` rows from e * stride + offset on. Raises ValueError when the last
    expert would reach past the matrix.
    """

    matrix: Matrix
    experts: int
    rows: int
    stride: int
    offset: int = 0

    def __post_init__(self) -> None:
        end = (self.experts - 1) * self.stride + self.offset + self.rows
        if end > self.matrix.rows or self.rows > self.stride:
            raise ValueError(f"rows of stacked experts: got {self.matrix.rows}, want >= {end}")

    def expert(self, index: int) -> Matrix:
        """Return the matrix of one expert, a view."""
        begin = index * self.stride + self.offset
        return self.matrix.cut_rows(begin, begin + self.rows)


def stack_experts(matrix: Matrix, experts: int) -> ExpertStack:
    """Return the stack of a matrix that holds `experts` equal matrices one after the other."""
    if matrix.rows % experts:
        raise ValueError(f"rows of {experts} experts: got {matrix.rows}, want a multiple")
    rows = matrix.rows // experts
    return ExpertStack(matrix, experts, rows, rows)


def split_gate_up(matrix: Matrix, experts: int) -> tuple[ExpertStack, ExpertStack]:
    """Return gate and up of a matrix that holds, expert by expert, gate's rows and then up's."""
    if matrix.rows % (2 * experts):
        raise ValueError(f"rows of {experts} gates and ups: got {matrix.rows}, want a multiple")
    rows = matrix.rows // (2 * experts)
    gate = ExpertStack(matrix, experts, rows, 2 * rows)
    return gate, ExpertStack(matrix, experts, rows, 2 * rows, rows)


@dataclass(frozen=True)
class SharedExpert:
    """The expert every token visits: gate_up is one joined matrix or (gate, up) [Is, H] each,
    down [H, Is], score [1, H]."""

    gate_up: tuple[Matrix, ...]
    down: Matrix
    score: Matrix


@dataclass(frozen=True)
class MoeWeights:
    """Router [E, H], experts' gate and up [I, H] and down [H, I], and the shared expert if any."""

    router: Matrix
    gate: ExpertStack
    up: ExpertStack
    down: ExpertStack
    top_k: int
    shared: SharedExpert | None = None

    def __post_init__(self) -> None:
        experts = {self.router.rows, self.gate.experts, self.up.experts, self.down.experts}
        if len(experts) > 1:
            raise ValueError(f"experts of router, gate, up and down: got {sorted(experts)}")
        widths = {self.gate.rows, self.up.rows, self.down.matrix.columns}
        if len(widths) > 1:
            raise ValueError(f"width of gate, up and down of an expert: got {sorted(widths)}")
        if not 1 <= self.top_k <= self.router.rows:
            raise ValueError(f"top_k: got {self.top_k}, want 1..{self.router.rows}")

    @property
    def hidden(self) -> int:
        return self.router.columns


@dataclass(frozen=True)
class MoeWorkspace:
    """Buffers for up to a number of tokens T, A = T * top_k pairs of token and expert.

    logits float32 [T, E]; ids int32 and weights [T, top_k]; hidden [A, I] and pairs [A, H] in the
    compute dtype; shared_gate_up [T, 2 * Is], shared_hidden [T, Is], shared_out [T, H] and score
    float32 [T, 1]; scratch uint8 for the products.
    """

    logits: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor
    hidden: torch.Tensor
    pairs: torch.Tensor
    shared_gate_up: torch.Tensor
    shared_hidden: torch.Tensor
    shared_out: torch.Tensor
    score: torch.Tensor
    scratch: torch.Tensor

    def of(self, tokens: int) -> MoeWorkspace:
        """Return the first part of every buffer, for `tokens` <= T tokens."""
        capacity, top_k = self.ids.shape
        if tokens > capacity:
            raise ValueError(f"tokens of a workspace: got {tokens}, want at most {capacity}")
        return MoeWorkspace(
            self.logits[:tokens],
            self.ids[:tokens],
            self.weights[:tokens],
            self.hidden[: tokens * top_k],
            self.pairs[: tokens * top_k],
            self.shared_gate_up[:tokens],
            self.shared_hidden[:tokens],
            self.shared_out[:tokens],
            self.score[:tokens],
            self.scratch,
        )


def make_workspace(
    tokens: int, weights: MoeWeights, dtype: torch.dtype, device: torch.device | str
) -> MoeWorkspace:
    """Return buffers for up to `tokens` tokens."""

    def blank(rows: int, columns: int, kind: torch.dtype = dtype) -> torch.Tensor:
        return torch.empty(rows, columns, dtype=kind, device=device)

    shared = weights.shared
    width = shared.down.columns if shared else 0
    pairs = tokens * weights.top_k
    products = [weights.router]
    if shared:
        products += [*shared.gate_up, shared.down, shared.score]
    scratch = max(scratch_bytes(tokens, matrix, dtype) for matrix in products)
    return MoeWorkspace(
        logits=blank(tokens, weights.router.rows, torch.float32),
        ids=blank(tokens, weights.top_k, torch.int32),
        weights=blank(tokens, weights.top_k),
        hidden=blank(pairs, weights.gate.rows),
        pairs=blank(pairs, weights.hidden),
        shared_gate_up=blank(tokens, 2 * width),
        shared_hidden=blank(tokens, width),
        shared_out=blank(tokens, weights.hidden if shared else 0),
        score=blank(tokens, 1, torch.float32),
        scratch=torch.empty(scratch, dtype=torch.uint8, device=device),
    )
