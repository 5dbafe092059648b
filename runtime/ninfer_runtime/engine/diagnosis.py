"""Where numbers stopped being finite: a lane's columns once more, with a look after each layer."""

from __future__ import annotations

import torch

from ninfer_runtime.engine.lanes import LaneTable
from ninfer_runtime.engine.round import arrange_columns
from ninfer_runtime.models.qwen3_5.model import Model, ModelState
from ninfer_runtime.models.qwen3_5.text import run_decoder


def find_bad_layer(model: Model, state: ModelState, table: LaneTable, lane: int) -> str:
    """Name the first place where the columns of a flagged lane are not finite.

    The lane must not have changed since its round was flagged: that round committed nothing, so
    its columns run again as they ran. Waits for the device.
    """
    own = table.lane(lane)
    own.counts.copy_(torch.minimum(own.remaining, own.widths))
    columns, count = arrange_columns(own), int(own.counts)
    own.counts.zero_()
    found: list[str] = []

    def look(name: str, rows: torch.Tensor) -> None:
        if not found and not bool(torch.isfinite(rows[:count]).all()):
            found.append(name)

    kinds = model.geometry.text.layer_types
    x = model.embed(own.tokens.flatten())
    look("the embedding", x)
    hidden = run_decoder(
        model.decoder, model.text, x, columns, state.decoder,
        watch=lambda index, rows: look(f"layer {index} ({kinds[index]})", rows),
    )  # fmt: skip
    look("the final norm", hidden)
    look("the output head", model.score(hidden))
    return found[0] if found else "none: a second run of the same columns was finite"
