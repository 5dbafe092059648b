# pyright: reportMissingImports=false
"""Worker functions that make training rows; each call depends on its arguments only.

A row is token ids T, loss mask M and, for images, per token: V (index of its merged patch feature,
-1 for text) and P (three rotary positions); per image slot: S (first patch of both frames, patch
count) and G (grid).
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from chat_tasks import ChatTasks
from conversation import (
    ADDED_TOKENS,
    END_OF_TEXT,
    IMAGE,
    VIDEO,
    VISION_END,
    VISION_START,
    encode_pieces,
    render,
)
from image_patches import MERGE, MOST_PATCHES, prepare_image
from source_code import read_source
from vision_tasks import Sample, VisionTasks

LONG_ROW = 4096
LONG_TASKS = ["needle", "codes20", "twohop"]
SECONDS_PER_FRAME = 0.5


def load_tokenizer(path: Path) -> Any:
    # The rows are made in many processes: threads of their own would only get in the way.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


class CodeJob(NamedTuple):
    files: list[Path]
    tokenizer: Path
    out: Path


def make_code(job: CodeJob) -> Path:
    """Write the tokens of all files, each ended by the end of text."""
    tokenizer = load_tokenizer(job.tokenizer)
    end = tokenizer.token_to_id(END_OF_TEXT)
    parts = []
    for text in dict.fromkeys(filter(None, map(read_source, job.files))):
        parts.append(np.array([*tokenizer.encode(text).ids, end], dtype=np.uint16))
    np.save(job.out, np.concatenate(parts) if parts else np.zeros(0, np.uint16))
    return job.out


class ChatJob(NamedTuple):
    seed: int
    rows: int
    length: int
    tokenizer: Path
    lines: list[str]
    out: Path


def make_chat(job: ChatJob) -> Path:
    """Write rows packed with chat examples; long rows begin with one that spans most of them."""
    tokenizer, rng = load_tokenizer(job.tokenizer), random.Random(job.seed)
    tasks = ChatTasks(rng, job.lines)
    end = tokenizer.token_to_id(END_OF_TEXT)
    tokens = np.full((job.rows, job.length), end, np.uint16)
    mask = np.zeros((job.rows, job.length), np.uint8)
    for row in range(job.rows):
        used = 0
        for _ in range(200):
            left = job.length - used
            if left < 80:
                break
            if job.length > LONG_ROW and used == 0:
                task = rng.choice(LONG_TASKS)
                fill = rng.uniform(0.3, 0.9) * job.length
                sample = tasks.sample(job.length, task=task, fill=fill)
            else:
                sample = tasks.sample(max(110, int(left * 0.9)))
            ids, targets = encode_pieces(tokenizer, render(sample.full, sample.tools))
            if len(ids) + 1 <= left:
                tokens[row, used : used + len(ids)] = ids
                mask[row, used : used + len(ids)] = targets
                used += len(ids) + 1
    np.savez(job.out, T=tokens, M=mask)
    return job.out


class VisionJob(NamedTuple):
    seed: int
    rows: int
    length: int
    slots: int
    tokenizer: Path
    out: Path


class Grid(NamedTuple):
    """One image, or one pair of video frames: `first`, `second` count patches from the start."""

    token: int
    first: int
    second: int
    rows: int
    columns: int
    time: str | None


def make_vision(job: VisionJob) -> Path:
    """Write rows packed with conversations about pictures, and their patches beside them."""
    rng, rows = random.Random(job.seed), VisionRows(job)
    tasks = VisionTasks(rng)
    for row in range(job.rows):
        rows.begin(row)
        for _ in range(100):
            if not rows.add(tasks.sample(rng.randint(1, 4))):
                break
        rows.finish()
    arrays = {"T": rows.tokens, "M": rows.mask, "V": rows.feature, "P": rows.positions}
    np.savez(job.out, **arrays, S=rows.patches, G=rows.grids)
    np.save(patch_file(job.out), np.concatenate(rows.pixels))
    return job.out


def patch_file(out: Path) -> Path:
    return out.with_suffix(".pixels.npy")


class VisionRows:
    """The arrays of a job, filled row by row."""

    def __init__(self, job: VisionJob) -> None:
        n, length = job.rows, job.length
        self.job, self.tokenizer = job, load_tokenizer(job.tokenizer)
        self.ids = {token: self.tokenizer.token_to_id(token) for token in ADDED_TOKENS}
        self.tokens = np.full((n, length), self.ids[END_OF_TEXT], np.uint16)
        self.mask = np.zeros((n, length), np.uint8)
        self.feature = np.full((n, length), -1, np.int32)
        self.positions = np.zeros((n, 3, length), np.int16)
        self.patches = np.zeros((n, job.slots, 3), np.int64)
        self.grids = np.zeros((n, job.slots, 2), np.int16)
        self.pixels: list[np.ndarray] = []
        self.pixel_count = 0

    def begin(self, row: int) -> None:
        self.row, self.used, self.position, self.slot = row, 0, 0, 0

    def finish(self) -> None:
        rest = np.arange(self.job.length - self.used)
        self.positions[self.row, :, self.used :] = self.position + rest

    def add(self, sample: Sample) -> bool:
        """Append one conversation; False when it does not fit any more."""
        media, pixels = self._prepare(sample)
        parts = self._encode(sample, media)
        needed = 1 + sum(self._length(part) for part in parts)
        images = sum(len(grids) for grids in media)
        if needed > self.job.length - self.used or self.slot + images > self.job.slots:
            return False
        for part in parts:
            if isinstance(part, Grid):
                self._put_grid(part)
            else:
                self._put(*part)
        self._put([self.ids[END_OF_TEXT]], [0])
        self.pixels += pixels
        self.pixel_count += sum(len(array) for array in pixels)
        return True

    def _prepare(self, sample: Sample) -> tuple[list[list[Grid]], list[np.ndarray]]:
        base, media, pixels = self.pixel_count, [], []
        for kind, content in sample.media:
            grids = []
            frames = [content] if kind == "image" else content
            step = 1 if kind == "image" else 2
            for start in range(0, len(frames), step):
                cut = [prepare_image(frame) for frame in frames[start : start + step]]
                count, (_, rows, columns) = len(cut[0][0]), cut[0]
                second = base + (count if step == 2 else 0)
                token = self.ids[IMAGE if kind == "image" else VIDEO]
                time = None
                if kind == "video":
                    time = f"<{(start + 0.5) * SECONDS_PER_FRAME:.1f} seconds>"
                grids.append(Grid(token, base, second, rows, columns, time))
                pixels += [patches for patches, _, _ in cut]
                base += count * step
            media.append(grids)
        return media, pixels

    def _encode(self, sample: Sample, media: list[list[Grid]]) -> list[Any]:
        """Split the rendered text at its placeholders: (ids, targets) pairs and grids."""
        parts: list[Any] = []
        following = iter(media)
        for text, target in render(sample.messages):
            for piece in re.split(r"(<\|image_pad\|>|<\|video_pad\|>)", text):
                if piece in (IMAGE, VIDEO):
                    parts += next(following)
                elif piece:
                    ids = self.tokenizer.encode(piece).ids
                    parts.append((ids, [target] * len(ids)))
        return parts

    def _length(self, part: Any) -> int:
        if not isinstance(part, Grid):
            return len(part[0])
        length = part.rows * part.columns // MERGE**2
        if part.time:
            length += len(self.tokenizer.encode(part.time).ids) + 2
        return length

    def _put(self, ids: list[int], targets: list[int]) -> None:
        end = self.used + len(ids)
        self.tokens[self.row, self.used : end] = ids
        self.mask[self.row, self.used : end] = targets
        steps = np.arange(self.position, self.position + len(ids))
        self.positions[self.row, :, self.used : end] = steps
        self.used, self.position = end, self.position + len(ids)

    def _put_grid(self, grid: Grid) -> None:
        """Placeholders with row and column as second and third rotary position."""
        if grid.time:
            ids = [*self.tokenizer.encode(grid.time).ids, self.ids[VISION_START]]
            self._put(ids, [0] * len(ids))
        rows, columns = grid.rows // MERGE, grid.columns // MERGE
        count = rows * columns
        row, part = self.row, slice(self.used, self.used + count)
        self.tokens[row, part] = grid.token
        self.feature[row, part] = self.slot * (MOST_PATCHES // MERGE**2) + np.arange(count)
        self.positions[row, 0, part] = self.position
        self.positions[row, 1, part] = self.position + np.repeat(np.arange(rows), columns)
        self.positions[row, 2, part] = self.position + np.tile(np.arange(columns), rows)
        self.patches[row, self.slot] = (grid.first, grid.second, grid.rows * grid.columns)
        self.grids[row, self.slot] = (grid.rows, grid.columns)
        self.used, self.slot = self.used + count, self.slot + 1
        self.position += max(rows, columns)
        if grid.time:
            self._put([self.ids[VISION_END]], [0])
