# pyright: reportMissingImports=false
"""Jobs that make the training rows in worker processes, and batches drawn from the rows."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from image_patches import MERGE, MOST_PATCHES
from torch import Tensor
from training_rows import (
    ChatJob,
    CodeJob,
    VisionJob,
    make_chat,
    make_code,
    make_vision,
    patch_file,
)


@contextmanager
def start_workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool whose processes use one thread each."""
    saved = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        # The processes start at the first submissions: the variable must stand until then.
        yield pool
    if saved is None:
        del os.environ["OMP_NUM_THREADS"]


def split(total: int, parts: int) -> list[int]:
    return [total // parts + (i < total % parts) for i in range(parts)]


class Jobs(NamedTuple):
    code: list[Future[Path]]
    chat: list[Future[Path]]
    long: list[Future[Path]]
    vision: list[Future[Path]]


def start_jobs(
    pool: ProcessPoolExecutor, options: Any, files: list[Path], tokenizer: Path, lines: list[str]
) -> Jobs:
    """Submit all work, slowest kind first; `options` are those of train.py."""
    parts, work, seed = options.workers * 2, Path(options.work), options.seed
    chats, longs, visions = (list(enumerate(split(n, parts))) for n in options.pool)
    vision = [
        pool.submit(
            make_vision,
            VisionJob(
                seed * 1000 + i, n, options.len, options.slots, tokenizer, work / f"vision{i}.npz"
            ),
        )
        for i, n in visions
        if n
    ]
    chat = [
        pool.submit(
            make_chat,
            ChatJob(seed * 2000 + i, n, options.len, tokenizer, lines, work / f"chat{i}.npz"),
        )
        for i, n in chats
        if n
    ]
    long = [
        pool.submit(
            make_chat,
            ChatJob(seed * 3000 + i, n, options.long_len, tokenizer, lines, work / f"long{i}.npz"),
        )
        for i, n in longs
        if n
    ]
    code = [
        pool.submit(make_code, CodeJob(files[i::parts], tokenizer, work / f"code{i}.npy"))
        for i in range(parts)
    ]
    return Jobs(code, chat, long, vision)


class Batch(NamedTuple):
    """ids and loss mask [B, L], positions [3, B, L]; images of the last rows.

    `feature` [rows, L] indexes the merged patch features of a row, -1 for text; `patches` and
    `grids` describe the images of all rows.
    """

    ids: Tensor
    mask: Tensor
    positions: Tensor
    feature: Tensor
    patches: Tensor
    grids: Tensor


class TrainingData:
    """All rows on the device; `draw` gives batches of a fixed composition."""

    def __init__(self, jobs: Jobs, device: torch.device, seed: int, length: int) -> None:
        self.device, self.length = device, length
        code = np.concatenate([np.load(job.result()) for job in jobs.code])
        self.chat = self._load_chat(jobs.chat)
        self.long = self._load_chat(jobs.long)
        self.vision, self.pixels = self._load_vision(jobs.vision)
        self.code = torch.from_numpy(code.astype(np.int32)).to(device)
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.orders: dict[str, tuple[Tensor, int]] = {}

    def _load_chat(self, jobs: list[Future[Path]]) -> tuple[Tensor, Tensor]:
        rows = [np.load(job.result()) for job in jobs]
        tokens = np.concatenate([row["T"] for row in rows]).astype(np.int32)
        mask = np.concatenate([row["M"] for row in rows])
        return torch.from_numpy(tokens).to(self.device), torch.from_numpy(mask).to(self.device)

    def _load_vision(self, jobs: list[Future[Path]]) -> tuple[dict[str, Tensor], Tensor]:
        """Patch counts of each job start at zero: shift them by the patches before."""
        rows: list[dict[str, Any]] = []
        pixels = []
        before = 0
        for job in jobs:
            row = dict(np.load(job.result()))
            shifted = row["S"] + np.array([before, before, 0])
            row["S"] = np.where(row["S"][..., 2:] > 0, shifted, row["S"])
            rows.append(row)
            patches = np.load(patch_file(job.result()))
            pixels.append(torch.from_numpy(patches).to(self.device))
            before += len(patches)
        kinds = {**dict.fromkeys("TVP", np.int32), **dict.fromkeys("SG", np.int64), "M": np.uint8}
        joined = {
            name: torch.from_numpy(np.concatenate([row[name] for row in rows]).astype(kind))
            for name, kind in kinds.items()
        }
        return {name: value.to(self.device) for name, value in joined.items()}, torch.cat(pixels)

    def describe(self) -> str:
        images = int((self.vision["S"][..., 2] > 0).sum())
        return (
            f"{len(self.code) / 1e6:.1f} M code tokens; {len(self.chat[0])} chat rows with "
            f"{int(self.chat[1].sum())} answer tokens; {len(self.long[0])} long rows; "
            f"{len(self.vision['T'])} vision rows with {images} images or frame pairs"
        )

    def _take(self, name: str, total: int, count: int) -> Tensor:
        """Return `count` of `total` row numbers; every epoch has an order of its own."""
        order, used = self.orders.get(name, (torch.empty(0), total))
        if used + count > total:
            order, used = self._shuffle(total), 0
            if count > total:
                size = (count,)
                return torch.randint(0, total, size, generator=self.generator, device=self.device)
        self.orders[name] = (order, used + count)
        return order[used : used + count]

    def _shuffle(self, total: int) -> Tensor:
        return torch.randperm(total, generator=self.generator, device=self.device)

    def draw(self, rows: tuple[int, int, int], length: int, long: bool) -> Batch:
        """Draw a batch of code, chat and vision rows; vision rows are joined to that length."""
        code_rows, chat_rows, vision_rows = rows
        span = torch.arange(length, device=self.device)
        start = torch.randint(
            0,
            len(self.code) - length,
            (code_rows,),
            generator=self.generator,
            device=self.device,
        )
        code = self.code[start[:, None] + span].long()
        tokens, mask = self.long if long else self.chat
        chosen = self._take("long" if long else "chat", len(tokens), chat_rows)
        joined = length // self.length
        j = self._take("vision", len(self.vision["T"]), vision_rows * joined)
        images = {name: value[j] for name, value in self.vision.items()}
        shape = (vision_rows, length)
        ids = [code, tokens[chosen].long(), images["T"].long().view(shape)]
        masks = [torch.ones_like(code, dtype=torch.uint8), mask[chosen], images["M"].view(shape)]
        positions = self._positions(images["P"], rows, length, joined)
        feature = self._features(images["V"], joined).view(shape)
        return Batch(
            torch.cat(ids),
            torch.cat(masks),
            positions,
            feature,
            images["S"].view(-1, 3),
            images["G"].view(-1, 2),
        )

    def _features(self, feature: Tensor, joined: int) -> Tensor:
        """Shift the feature numbers of rows that follow others in a joined row."""
        feature = feature.long()
        slots = self.vision["S"].shape[1]
        place = torch.arange(len(feature), device=self.device) % joined
        shift = (place * (slots * MOST_PATCHES // MERGE**2))[:, None]
        return feature + torch.where(feature >= 0, shift, 0)

    def _positions(
        self, own: Tensor, rows: tuple[int, int, int], length: int, joined: int
    ) -> Tensor:
        """Return [3, B, length]: counted for text rows, continued along joined vision rows."""
        own = own.long()
        if joined > 1:
            end = own.amax((1, 2)).view(rows[2], joined) + 1
            own = own + (end.cumsum(1) - end).view(-1, 1, 1)
        own = own.view(rows[2], joined, 3, self.length).transpose(1, 2)
        own = own.reshape(rows[2], 3, length).transpose(0, 1)
        text = torch.arange(length, device=self.device).expand(3, rows[0] + rows[1], length)
        return torch.cat([text, own], 1)
