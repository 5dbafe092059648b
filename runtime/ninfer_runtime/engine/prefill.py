"""Prefill: the prompt, chunk by chunk, into the state of one lane."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ninfer_runtime.engine.request import Request
from ninfer_runtime.models.qwen3_5.columns import Columns
from ninfer_runtime.models.qwen3_5.model import Model, ModelState
from ninfer_runtime.models.qwen3_5.mtp import run_mtp
from ninfer_runtime.models.qwen3_5.text import run_decoder


@dataclass(frozen=True)
class Place:
    """Where a sequence lives: its recurrent slot, and its pages int32 [1, P] on the device."""

    slot: int
    pages: torch.Tensor


def text_positions(tokens: int) -> torch.Tensor:
    """Return int32 [3, tokens], on the host: positions of plain text."""
    return torch.arange(tokens, dtype=torch.int32).expand(3, -1)


def embed_prompt(model: Model, request: Request, ids: torch.Tensor, begin: int) -> torch.Tensor:
    """Return the embeddings [n, H] of prompt tokens begin .. begin + n, media included."""
    embedded = model.embed(ids)
    if request.media is not None:
        places = request.media.places
        inside = (places >= begin) & (places < begin + ids.shape[0])
        if bool(inside.any()):
            rows = request.media.rows[inside].to(embedded)
            embedded[(places[inside] - begin).to(ids.device)] = rows
    return embedded


def run_chunk(
    model: Model,
    state: ModelState,
    request: Request,
    positions: torch.Tensor,
    place: Place,
    begin: int,
    end: int,
) -> torch.Tensor:
    """Run prompt tokens begin .. end, of which `end` is not the last, and return their hidden
    states [end - begin, H]. The MTP head reads each with the token after it.

    `positions` int32 [3, prompt] lie on the host, so that the length of a prompt takes no memory
    of the device.
    """
    device = place.pages.device
    ids = torch.tensor(request.prompt[begin : end + 1], dtype=torch.int32, device=device)
    embedded = embed_prompt(model, request, ids, begin)
    columns = Columns(
        1, end - begin, positions[:, begin:end].contiguous().to(device),
        torch.tensor([begin], dtype=torch.int32, device=device),
        torch.tensor([end - begin], dtype=torch.int32, device=device),
        place.pages, torch.tensor([place.slot], dtype=torch.int32, device=device), True,
    )  # fmt: skip
    hidden = run_decoder(model.decoder, model.text, embedded[:-1].clone(), columns, state.decoder)
    state.decoder.recurrent.accepted[place.slot] = 0
    state.decoder.recurrent.settled[place.slot] = 0
    if model.mtp is not None and state.mtp is not None:
        run_mtp(model.decoder, model.mtp, embedded[1:], hidden, columns, state.mtp)
    return hidden
