"""Accept and reject drafts: checks, choice of implementation, launch."""

from __future__ import annotations

import torch

from ninfer_kernels.launch import TRITON, choose_backend
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
    if logits.dim() != 3 or not logits.is_contiguous():
        raise ValueError(f"logits: got {tuple(logits.shape)}, want contiguous [L, W, V]")
    lanes, width, vocabulary = logits.shape
    parameters.check(lanes)
    drafts = _prepare_drafts(drafts, lanes, width, logits.device)
    for name, tensor in (("position", position), ("columns", columns)):
        if tensor.dtype != torch.int32 or tuple(tensor.shape) != (lanes,):
            raise ValueError(f"{name}: got {tuple(tensor.shape)}, want int32 [{lanes}]")
    if (slots is None) != (committed is None):
        raise ValueError("commit: got one of slots and committed, want both or none")
    chosen = choose_backend(logits, backend)
    if candidates is None:
        candidates = select_candidates(logits.view(-1, vocabulary), backend=chosen)
    out = out or allocate_verdict(lanes, width, logits.device)
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


def _prepare_drafts(drafts: Drafts | None, lanes: int, width: int, device: torch.device) -> Drafts:
    if drafts is None and width == 1:
        tokens = torch.zeros(lanes, 0, dtype=torch.int32, device=device)
        empty = torch.zeros(lanes, 0, 1, dtype=torch.int32, device=device)
        return Drafts(tokens, empty, empty.float())
    if drafts is None or tuple(drafts.tokens.shape) != (lanes, width - 1):
        got = None if drafts is None else tuple(drafts.tokens.shape)
        raise ValueError(f"drafts: got {got}, want tokens int32 {(lanes, width - 1)}")
    sparse = (lanes, width - 1, drafts.ids.shape[-1])
    if tuple(drafts.ids.shape) != sparse or tuple(drafts.probabilities.shape) != sparse:
        raise ValueError(
            f"drafts: got ids {tuple(drafts.ids.shape)} and probabilities "
            f"{tuple(drafts.probabilities.shape)}, want {sparse[:2]} and equal counts"
        )
    return drafts
