"""Accept and reject drafts: checks, choice of implementation, launch."""

from __future__ import annotations

import torch

from ninfer_kernels.launch import TRITON, choose_backend
from ninfer_kernels.sampling.checks import check_candidates, check_logits, check_tensor
from ninfer_kernels.sampling.op import select_candidates
from ninfer_kernels.sampling.parameters import Candidates, SamplingParameters
from ninfer_kernels.speculation import reference
from ninfer_kernels.speculation.verdict import Drafts, Verdict, allocate_verdict


def accept_drafts(
    logits: torch.Tensor,
    drafts: Drafts | None,
    parameters: SamplingParameters,
    position: torch.Tensor,
    columns: torch.Tensor,
    *,
    candidates: Candidates | None = None,
    wide: bool = True,
    out: Verdict | None = None,
    slots: torch.Tensor | None = None,
    committed: torch.Tensor | None = None,
    backend: str | None = None,
) -> Verdict:
    """Decide which drafts stand and draw the token after them; see `Verdict`.

    logits [L, W, V]: column i predicts the token at position[l] + i, so that column 0 belongs to
    the last token that is certain and column i > 0 to draft i - 1. drafts: None when W is 1.
    parameters: one entry per lane. position, columns int32 [L]; columns counts the real columns,
    0 for an idle lane. candidates: `select_candidates` of the [L W, V] rows. wide: as in
    `choose_tokens`. With slots int32 [L] and committed int32 [S], committed[slots[l]] becomes
    emitted[l] for lanes that are not idle: the `accepted` of the state kernels.

    The emitted tokens are distributed as if drawn one by one without drafts; greedy lanes give
    exactly the greedy tokens. Nothing is read back to the host, except by the torch
    implementation. Raises ValueError.
    """
    if logits.dim() != 3 or not logits.is_contiguous() or logits.shape[1] < 1:
        raise ValueError(f"logits: got {tuple(logits.shape)}, want contiguous [L, W >= 1, V]")
    (lanes, width, vocabulary), device = logits.shape, logits.device
    check_logits(logits.view(-1, vocabulary))
    parameters.check(lanes)
    chosen = choose_backend(logits, backend)
    drafts = _prepare_drafts(drafts, lanes, width, device, gaps=chosen != TRITON)
    for name, tensor in (("position", position), ("columns", columns)):
        check_tensor(name, tensor, torch.int32, (lanes,), device)
    _check_commit(slots, committed, lanes, device)
    if candidates is None:
        candidates = select_candidates(logits.view(-1, vocabulary), backend=chosen)
    check_candidates(candidates, lanes * width, device, whole=chosen == TRITON)
    out = out or allocate_verdict(lanes, width, device)
    for name, tensor in vars(out).items():
        shape = (lanes, width) if name == "tokens" else (lanes,)
        check_tensor(f"out.{name}", tensor, torch.int32, shape, device)
    arguments = (drafts, parameters, position, columns)
    if chosen == TRITON:
        from ninfer_kernels.speculation import kernel

        kernel.launch_accept(candidates, *arguments, wide, out)
        if wide:
            _replace_wide(logits, *arguments, out)
        if slots is not None and committed is not None:
            kernel.launch_commit(slots, columns, out.emitted, committed)
        return out
    reference.judge(logits, candidates, *arguments, wide, out)
    if slots is not None and committed is not None:
        active = torch.nonzero(columns > 0).flatten()
        committed[slots[active].long()] = out.emitted[active]
    return out


def _replace_wide(
    logits: torch.Tensor,
    drafts: Drafts,
    parameters: SamplingParameters,
    position: torch.Tensor,
    columns: torch.Tensor,
    out: Verdict,
) -> None:
    """Overwrite the lanes that candidates cannot decide; works on all, without synchronising."""
    accepted, token = reference.judge_wide(logits, drafts, parameters, position, columns)
    narrow = parameters.narrow()
    last = out.tokens.gather(1, out.accepted.long()[:, None]).squeeze(1)
    accepted = torch.where(narrow, out.accepted.long(), accepted)
    token = torch.where(narrow, last, token)
    reference.assemble(accepted, token, drafts, columns, out.flags, out)


def _prepare_drafts(
    drafts: Drafts | None, lanes: int, width: int, device: torch.device, *, gaps: bool
) -> Drafts:
    if drafts is None and width == 1:
        tokens = torch.zeros(lanes, 0, dtype=torch.int32, device=device)
        empty = torch.zeros(lanes, 0, 1, dtype=torch.int32, device=device)
        return Drafts(tokens, empty, empty.float())
    if drafts is None or drafts.ids.dim() != 3:
        got = None if drafts is None else f"ids {tuple(drafts.ids.shape)}"
        raise ValueError(f"drafts: got {got}, want tokens int32 {(lanes, width - 1)}")
    sparse = (lanes, width - 1, drafts.ids.shape[2])
    check_tensor("drafts.tokens", drafts.tokens, torch.int32, sparse[:2], device, gaps=gaps)
    check_tensor("drafts.ids", drafts.ids, torch.int32, sparse, device, gaps=gaps)
    check_tensor(
        "drafts.probabilities", drafts.probabilities, torch.float32, sparse, device, gaps=gaps
    )
    return drafts


def _check_commit(
    slots: torch.Tensor | None, committed: torch.Tensor | None, lanes: int, device: torch.device
) -> None:
    if (slots is None) != (committed is None):
        raise ValueError("commit: got one of slots and committed, want both or none")
    if slots is not None and committed is not None:
        check_tensor("slots", slots, torch.int32, (lanes,), device)
        check_tensor("committed", committed, torch.int32, tuple(committed.shape[:1]), device)
