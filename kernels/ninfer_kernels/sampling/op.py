"""Sampling: checks, choice of implementation, launch. `specs/sampling.md` states the law."""

from __future__ import annotations

from dataclasses import fields

import torch

from ninfer_kernels.launch import TRITON, choose_backend
from ninfer_kernels.sampling import reference, reference_penalty
from ninfer_kernels.sampling.checks import (
    check_candidates,
    check_history,
    check_logits,
    check_penalties,
    check_tensor,
    check_workspace,
)
from ninfer_kernels.sampling.parameters import (
    CANDIDATES,
    Candidates,
    CandidateWorkspace,
    Penalties,
    SamplingParameters,
    allocate_candidates,
    allocate_workspace,
)


def select_candidates(
    logits: torch.Tensor,
    count: int = CANDIDATES,
    *,
    out: Candidates | None = None,
    workspace: CandidateWorkspace | None = None,
    backend: str | None = None,
) -> Candidates:
    """Return the first `count` tokens of every row, the row's log sum and its flag.

    logits [R, V], fp32 or bf16, contiguous in V. -inf means excluded; NaN, +inf or a row of -inf
    sets NOT_FINITE. `count`, 1 to 64, is what the rows need: 1 if all are greedy, else their
    largest top_k; the remaining places stay empty. Raises ValueError.
    """
    check_logits(logits)
    if not 1 <= count <= CANDIDATES:
        raise ValueError(f"count: got {count}, want 1 to {CANDIDATES}")
    rows, vocabulary = logits.shape
    if out is not None:
        check_candidates(out, rows, logits.device)
    if workspace is not None:
        check_workspace(workspace, rows, vocabulary)
    if choose_backend(logits, backend) == TRITON:
        from ninfer_kernels.sampling import kernel

        out = out or allocate_candidates(rows, logits.device)
        workspace = workspace or allocate_workspace(rows, vocabulary, logits.device)
        return kernel.launch_select(logits, count, workspace, out)
    found = reference.find_candidates(logits, count)
    if out is None:
        return found
    for field in fields(out):
        getattr(out, field.name).copy_(getattr(found, field.name))
    return out


def choose_tokens(
    logits: torch.Tensor,
    parameters: SamplingParameters,
    position: torch.Tensor,
    purpose: int,
    *,
    candidates: Candidates | None = None,
    wide: bool = True,
    out: torch.Tensor | None = None,
    flags: torch.Tensor | None = None,
    backend: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (tokens int32 [R], flags int32 [R]); a row with a flag gets token 0, unsampled.

    logits [R, V] as for `select_candidates`, whose result may be handed in. position int32 [R]:
    position of the token to be chosen; with the seed and `purpose` it names the random numbers.
    `wide` False promises that every row is greedy or has top_k in 1..64, so that one kernel over
    the candidates decides; a row that breaks the promise is flagged NOT_NARROW. A row's token is
    the same with either value and whatever rows stand beside it. Raises ValueError.
    """
    check_logits(logits)
    rows = logits.shape[0]
    parameters.check(rows)
    check_tensor("position", position, torch.int32, (rows,), logits.device)
    chosen = choose_backend(logits, backend)
    if candidates is None:
        candidates = select_candidates(logits, backend=chosen)
    check_candidates(candidates, rows, logits.device, whole=chosen == TRITON)
    out = _prepare("out", out, rows, logits.device)
    flags = _prepare("flags", flags, rows, logits.device)
    if chosen == TRITON:
        from ninfer_kernels.sampling import kernel

        kernel.launch_choose(candidates, parameters, position, purpose, wide, out, flags)
        if wide:
            picked = reference.choose_wide(logits, parameters, position, purpose)
            replace = ~parameters.narrow() & (flags == 0)
            torch.where(replace, picked, out, out=out)
        return out, flags
    tokens, found = reference.choose(logits, candidates, parameters, position, purpose, wide)
    return out.copy_(tokens), flags.copy_(found)


def candidate_probabilities(
    candidates: Candidates,
    parameters: SamplingParameters,
    *,
    out: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return the probabilities fp32 [R, 64] of the candidates after every filter.

    They are exact for rows that are greedy or have top_k in 1..64, as `parameters.limit` makes
    them; with it they are the q a draft was drawn from. Other rows are cut at 64 candidates.
    """
    shape, device = tuple(candidates.ids.shape), candidates.ids.device
    chosen = choose_backend(candidates.ids, backend)
    check_candidates(candidates, shape[0], device, whole=chosen == TRITON)
    parameters.check(shape[0])
    if out is None:
        out = torch.empty(shape, dtype=torch.float32, device=device)
    check_tensor("out", out, torch.float32, shape, device)
    if chosen == TRITON:
        from ninfer_kernels.sampling import kernel

        return kernel.launch_probabilities(candidates, parameters, out)
    weights = reference.kept_weights(candidates.logits, parameters)
    return out.copy_(reference.normalise_weights(weights))


def apply_penalties(
    logits: torch.Tensor,
    lanes: torch.Tensor,
    penalties: Penalties,
    counts: torch.Tensor,
    *,
    prompt: torch.Tensor | None = None,
    drafts: torch.Tensor | None = None,
    bias_ids: torch.Tensor | None = None,
    bias_values: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    backend: str | None = None,
) -> torch.Tensor:
    """Return adjusted logits fp32 [R, V]; `out` may be `logits` itself when that is fp32.

    logits [R, V]; lanes int32 [R]: whose history a row has. Per lane: penalties [n], counts
    int32 [n, V] of generated tokens, prompt uint8 [n, V] (not 0: occurs in the prompt), bias_ids
    int32 [n, B] (no id twice) with bias_values fp32 [n, B]. Per row: drafts int32 [R, E], drafted
    tokens before the row's column, counted as generated; mask int32 [R, ceil(V / 32)], bit t mod
    32 of word t div 32 allows token t. Ids outside 0..V-1 are none.
    Order: repetition, frequency, presence, bias, mask; -inf stays -inf. Raises ValueError.
    """
    check_logits(logits)
    rows, vocabulary = logits.shape
    check_tensor("lanes", lanes, torch.int32, (rows,), logits.device)
    known = counts.shape[0] if counts.dim() else 0
    check_tensor("counts", counts, torch.int32, (known, vocabulary), logits.device)
    check_penalties(penalties, known, logits.device)
    optional = (prompt, drafts, bias_ids, bias_values, mask)
    check_history(logits, known, *optional)
    if out is None:
        out = torch.empty(rows, vocabulary, dtype=torch.float32, device=logits.device)
    if out.dtype != torch.float32 or out.shape != logits.shape or out.stride(1) != 1:
        raise ValueError(f"out: got {out.dtype} {tuple(out.shape)}, want fp32 {(rows, vocabulary)}")
    if choose_backend(logits, backend) == TRITON:
        from ninfer_kernels.sampling import kernel_penalty

        return kernel_penalty.launch_penalties(logits, lanes, penalties, counts, *optional, out)
    return reference_penalty.penalise(logits, lanes, penalties, counts, *optional, out)


def record_tokens(
    counts: torch.Tensor,
    lanes: torch.Tensor,
    tokens: torch.Tensor,
    emitted: torch.Tensor,
    *,
    backend: str | None = None,
) -> None:
    """Add the first emitted[l] tokens of row l to counts[lanes[l]], in place.

    counts int32 [n, V]; lanes int32 [L]; tokens int32 [L, W], those outside 0..V-1 are skipped;
    emitted int32 [L], at most W. Raises ValueError.
    """
    if counts.dim() != 2 or tokens.dim() != 2:
        got = f"{tuple(counts.shape)} and {tuple(tokens.shape)}"
        raise ValueError(f"counts and tokens: got {got}, want [lanes, V] and [L, W]")
    device = counts.device
    check_tensor("counts", counts, torch.int32, tuple(counts.shape), device)
    check_tensor("tokens", tokens, torch.int32, tuple(tokens.shape), device)
    check_tensor("lanes", lanes, torch.int32, (tokens.shape[0],), device)
    check_tensor("emitted", emitted, torch.int32, (tokens.shape[0],), device)
    if choose_backend(counts, backend) == TRITON:
        from ninfer_kernels.sampling import kernel_penalty

        kernel_penalty.launch_counts(counts, lanes, tokens, emitted)
        return
    reference_penalty.add_counts(counts, lanes, tokens, emitted)


def _prepare(
    name: str, tensor: torch.Tensor | None, rows: int, device: torch.device
) -> torch.Tensor:
    if tensor is None:
        return torch.empty(rows, dtype=torch.int32, device=device)
    check_tensor(name, tensor, torch.int32, (rows,), device)
    return tensor
