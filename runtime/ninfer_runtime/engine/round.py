"""One round: verify the drafts of every lane, commit what stands, draft again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ninfer_kernels.sampling import apply_penalties, record_tokens, select_candidates
from ninfer_kernels.sampling.parameters import Candidates
from ninfer_kernels.speculation import Drafts, Verdict, accept_drafts
from ninfer_runtime.engine.lanes import LaneTable
from ninfer_runtime.models.qwen3_5.columns import Columns
from ninfer_runtime.models.qwen3_5.model import Model, ModelState
from ninfer_runtime.models.qwen3_5.mtp import run_mtp
from ninfer_runtime.models.qwen3_5.text import run_decoder
from ninfer_runtime.state.recurrent import RecurrentState


@dataclass(frozen=True)
class RoundKind:
    """What a captured round can do: `wide` samples from more than 64 candidates, `penalised`
    reads the history of the lanes, `masked` their masks."""

    wide: bool = False
    penalised: bool = False
    masked: bool = False


@dataclass(frozen=True)
class Emission:
    """What a round gave: `tokens` int32 [L, W], the first `emitted` int32 [L] of them real; flags
    int32 [L] as in `sampling`. Row l * W + i of `candidates` scored tokens[l, i]; `logits` are
    those of the tokens themselves, fp32 [L, W]."""

    tokens: torch.Tensor
    emitted: torch.Tensor
    flags: torch.Tensor
    candidates: Candidates
    logits: torch.Tensor


def run_round(model: Model, state: ModelState, table: LaneTable, kind: RoundKind) -> Emission:
    """Run one round and advance the lanes; nothing is read back to the host."""
    columns = arrange_columns(table)
    x = model.embed(table.tokens.flatten())
    hidden = run_decoder(model.decoder, model.text, x, columns, state.decoder)
    logits = model.score(hidden)
    if kind.penalised or kind.masked:
        logits = _penalise(logits, table, kind)
    candidates = select_candidates(logits)
    scores = logits.view(table.lanes, table.width, -1)
    verdict = accept_drafts(
        scores, _drafts(table), table.sampling, table.base + 1, table.counts,
        candidates=candidates, wide=kind.wide,
    )  # fmt: skip
    emitted = _cut(verdict, table)
    chosen = scores.gather(2, verdict.tokens.long()[..., None]).squeeze(2)
    _commit(state.decoder.recurrent, table, emitted)
    if kind.penalised:
        record_tokens(table.history, _numbers(table), verdict.tokens, emitted)
    _advance(table, verdict, emitted)
    if model.mtp is not None and state.mtp is not None:
        _draft(model, state, table, columns, verdict, emitted, hidden)
    return Emission(verdict.tokens, emitted, verdict.flags, candidates, chosen)


def arrange_columns(table: LaneTable) -> Columns:
    """Return the columns of the next round."""
    offsets = torch.arange(table.width, dtype=torch.int32, device=table.base.device)
    positions = (table.base + table.shift)[:, None] + offsets
    return Columns(
        table.lanes, table.width, positions.flatten().expand(3, -1).contiguous(),
        table.base.clone(), table.counts.clone(), table.pages, table.slots, False,
    )  # fmt: skip


def _numbers(table: LaneTable) -> torch.Tensor:
    return torch.arange(table.lanes, dtype=torch.int32, device=table.base.device)


def _penalise(logits: torch.Tensor, table: LaneTable, kind: RoundKind) -> torch.Tensor:
    """Penalise every column by the lane's history and the drafts before it, and mask it."""
    rows = _numbers(table).repeat_interleave(table.width)
    before = torch.ones(table.width, table.width - 1, device=logits.device).tril(-1).bool()
    drafts = torch.where(before, table.tokens[:, None, 1:], -1).flatten(0, 1)
    masks = table.mask.repeat_interleave(table.width, 0) if kind.masked else None
    return apply_penalties(
        logits, rows, table.penalties, table.history, prompt=table.prompt, drafts=drafts.int(),
        bias_ids=table.bias_ids, bias_values=table.bias_values, mask=masks,
    )  # fmt: skip


def _drafts(table: LaneTable) -> Drafts | None:
    if table.width == 1:
        return None
    tokens = table.tokens[:, 1:].contiguous()
    ones = torch.ones(*tokens.shape, 1, dtype=torch.float32, device=tokens.device)
    return Drafts(tokens, tokens[..., None], ones)


def _cut(verdict: Verdict, table: LaneTable) -> torch.Tensor:
    """Return how many tokens of a lane count: up to a stop id, and no more than remain."""
    width = table.width
    stops = (verdict.tokens[:, :, None] == table.stops[:, None, :]).any(-1)
    places = torch.arange(1, width + 1, dtype=torch.int32, device=stops.device)
    until = torch.where(stops, places, width).amin(1)
    return torch.minimum(torch.minimum(verdict.emitted, until), table.remaining).int()


def _commit(recurrent: RecurrentState, table: LaneTable, emitted: torch.Tensor) -> None:
    """Note how many columns of every lane's slot stay; slots of idle lanes keep what they have.

    What this round folded into the state is no longer pending, and what the last round left is
    settled.
    """
    slots, ran = table.slots.long(), table.counts > 0
    accepted, settled = recurrent.accepted[slots], recurrent.settled[slots]
    pending = accepted - settled
    recurrent.accepted.index_copy_(0, slots, torch.where(ran, pending + emitted, accepted))
    recurrent.settled.index_copy_(0, slots, torch.where(ran, pending, settled))


def _advance(table: LaneTable, verdict: Verdict, emitted: torch.Tensor) -> None:
    """Move the lanes on; a lane that met a stop id, its limit or a flag becomes idle."""
    last = (emitted - 1).clamp(min=0).long()[:, None]
    newest = torch.where(emitted[:, None] > 0, verdict.tokens.gather(1, last), table.tokens[:, :1])
    table.base.add_(emitted)
    table.remaining.sub_(emitted)
    stopped = (newest == table.stops).any(1)
    live = (emitted > 0) & ~stopped & (table.remaining > 0)
    table.tokens[:, :1] = newest
    # A column past the last token that may come is of no use, and its page may not be owned.
    table.counts.copy_(torch.where(live, torch.minimum(table.remaining, table.widths), 0))


def _draft(
    model: Model,
    state: ModelState,
    table: LaneTable,
    columns: Columns,
    verdict: Verdict,
    emitted: torch.Tensor,
    hidden: torch.Tensor,
) -> None:
    """Bring the MTP cache up to the committed tokens, then draft one token after the other."""
    assert model.mtp is not None and state.mtp is not None
    caught = replace(columns, counts=emitted)
    embedded = model.embed(verdict.tokens.flatten())
    states = run_mtp(model.decoder, model.mtp, embedded, hidden, caught, state.mtp)
    last = (emitted - 1).clamp(min=0).long()[:, None, None]
    states = states.view(table.lanes, table.width, -1)
    newest = states.gather(1, last.expand(-1, -1, states.shape[-1])).squeeze(1)
    for step in range(1, table.width):
        # A lane that emitted nothing keeps its drafts: a flagged one is looked at again.
        drafts = torch.where(emitted > 0, model.propose(newest), table.tokens[:, step])
        table.tokens[:, step] = drafts
        if step + 1 == table.width:
            break
        base = table.base + (step - 1)
        positions = (base + table.shift).expand(3, -1).contiguous()
        following = replace(
            columns,
            width=1,
            positions=positions,
            base=base.contiguous(),
            counts=(table.counts > step + 1).int(),
        )
        embedded = model.embed(table.tokens[:, step].contiguous())
        newest = run_mtp(model.decoder, model.mtp, embedded, newest, following, state.mtp)
