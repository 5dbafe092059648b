# pyright: reportMissingImports=false
"""Texts for the drafter, mostly the target's own, packed in rows with the target's features."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from chat_tasks import TASKS, ChatTasks
from conversation import encode_pieces, render
from drafter_model import BLOCK, Batch, Blocks
from drafter_target import Target, pad_to_chunks
from torch import Tensor
from training_rows import load_tokenizer

# Share of anchors in prefixes that were not generated.
PREFIX_WEIGHT = 0.3
PREFIX_LENGTHS = (256, 128, 384, 64)
LENGTH_CLASSES = (96, 160, 256, 384, 512, 768, 1024, 4096)
BATCH_TOKENS = 400_000


class Text(NamedTuple):
    """ids; per token the weight as an anchor and whether its draft counts; the first token kept."""

    ids: np.ndarray
    anchors: np.ndarray
    counted: np.ndarray
    first: int = 0


class Prompt(NamedTuple):
    ids: list[int]
    reply: int  # tokens of the true reply


class PromptJob(NamedTuple):
    seed: int
    prompts: int
    tokenizer: Path
    lines: list[str]


def make_prompts(job: PromptJob) -> list[Prompt]:
    """Worker function: chat prompts, every task equally often."""
    tokenizer, rng = load_tokenizer(job.tokenizer), random.Random(job.seed)
    tasks, prompts = ChatTasks(rng, job.lines), []
    for _ in range(job.prompts):
        longest = 1500 if rng.random() < 0.5 else 400
        sample = tasks.sample(longest, task=rng.choice(list(TASKS)))
        pieces = render(sample.full, sample.tools)
        ids = encode_pieces(tokenizer, pieces[:-2])[0]
        prompts.append(Prompt(ids, len(tokenizer.encode(pieces[-2][0]).ids)))
    return prompts


def continue_code(target: Target, code: np.ndarray, options: Any) -> list[Text]:
    """Continue random code prefixes, greedily and at temperature 0.7 in turn."""
    texts: list[Text] = []
    begin, number = time.time(), 0
    while time.time() - begin < options.gen_seconds[0]:
        length = min(PREFIX_LENGTHS[number % 4], options.len // 2)
        starts = np.random.randint(0, len(code) - length, options.gen_batch)
        prefixes = code[starts[:, None] + np.arange(length)]
        temperature = 0.7 if number // 4 % 2 else 0.0
        replies = target.continue_texts(prefixes.tolist(), options.gen_new, temperature)
        for prefix, reply in zip(prefixes, replies, strict=True):
            anchors = np.r_[np.full(length, PREFIX_WEIGHT), np.ones(len(reply))]
            ids = np.concatenate([prefix, reply]).astype(np.int64)
            texts.append(Text(ids, anchors, np.ones(len(ids))))
        number += 1
    return texts


def answer_prompts(
    target: Target, prompts: list[Prompt], options: Any, rng: random.Random
) -> list[Text]:
    """Greedy replies to as many prompts as the time allows; of a prompt the window is kept."""
    groups = group_prompts(prompts, options.gen_batch)
    rng.shuffle(groups)
    texts: list[Text] = []
    begin = time.time()
    for group in groups:
        if time.time() - begin > options.gen_seconds[1]:
            break
        new_tokens = max(prompt.reply for prompt in group) + 12
        replies = target.continue_texts([prompt.ids for prompt in group], new_tokens)
        for prompt, reply in zip(group, replies, strict=True):
            counted = np.r_[np.zeros(len(prompt.ids)), np.ones(len(reply))]
            ids = np.array(prompt.ids + reply)
            texts.append(Text(ids, counted, counted, max(0, len(prompt.ids) - options.window)))
    return texts


def group_prompts(prompts: list[Prompt], most: int) -> list[list[Prompt]]:
    """Batches of similar prompt length and reply length."""

    def rank(prompt: Prompt) -> tuple[int, int]:
        classes = (i for i, edge in enumerate(LENGTH_CLASSES) if len(prompt.ids) <= edge)
        return next(classes), prompt.reply

    groups: list[list[Prompt]] = []
    longest = 0
    for prompt in sorted(prompts, key=rank):
        group = groups[-1] if groups else []
        longest = max(longest, len(prompt.ids))
        fits = 0 < len(group) < most and (len(group) + 1) * longest <= BATCH_TOKENS
        if fits and len(prompt.ids) <= 2 * max(96, len(group[0].ids)):
            group.append(prompt)
        else:
            groups.append([prompt])
            longest = len(prompt.ids)
    return groups


def take_chat_rows(paths: list[Path], length: int) -> list[Text]:
    """Rows of the checkpoint's own chat training data, two texts of `length` from each."""
    texts = []
    for path in paths:
        rows = np.load(path)
        for tokens, mask in zip(rows["T"], rows["M"], strict=True):
            for start in (0, length):
                ids = tokens[start : start + length].astype(np.int64)
                counted = mask[start : start + length].astype(np.float64)
                if counted.sum() > 8:
                    texts.append(Text(ids, counted, counted))
    return texts


def take_code_rows(code: np.ndarray, count: int, length: int) -> list[Text]:
    starts = np.random.randint(0, len(code) - length, count)
    return [Text(code[i : i + length], np.ones(length), np.ones(length)) for i in starts]


class Place(NamedTuple):
    row: int
    offset: int
    first: int
    tokens: int


class Pool:
    """Texts packed into rows, with the target's features and hidden states beside them."""

    def __init__(
        self, texts: list[Text], length: int, target: Target, rng: random.Random, most: int
    ) -> None:
        rng.shuffle(texts)
        places = pack_rows(texts, length)
        self.rows = rows = places[-1].row + 1
        device, dtype = target.device, target.fast.dtype
        width = target.fast.config.hidden_size
        shape = (rows, length)
        self.features = torch.zeros(*shape, len(target.taps) * width, dtype=dtype, device=device)
        self.hidden = torch.zeros(*shape, width, dtype=dtype, device=device)
        tokens, segments = np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
        anchors, counted = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        for group in batch_texts(texts, most):
            ids = pad_to_chunks([texts[i].ids.tolist() for i in group], device)
            features, hidden = target.run(ids)
            for j, i in enumerate(group):
                row, offset, first, size = places[i]
                there, here = slice(offset, offset + size), slice(first, first + size)
                self.features[row, there] = features[j, here]
                self.hidden[row, there] = hidden[j, here]
                tokens[row, there], segments[row, there] = texts[i].ids[here], i
                anchors[row, there] = texts[i].anchors[here]
                counted[row, there] = texts[i].counted[here]
        arrays = (tokens, segments, anchors, counted)
        moved = [torch.from_numpy(array).to(device) for array in arrays]
        self.tokens, self.segments, self.anchors, self.counted = moved

    def draw(self, rows: int, count: int, gamma: float, generator: torch.Generator) -> Batch:
        """Draw `rows` rows with `count` weighted anchors each, without repeats."""
        device = self.tokens.device
        chosen = torch.randint(0, self.rows, (rows,), generator=generator, device=device)
        tokens, segments = self.tokens[chosen], self.segments[chosen]
        weights, counted = self.anchors[chosen], self.counted[chosen]
        followed = (segments[:, 1:] == segments[:, :-1]) & (counted[:, 1:] > 0)
        weights = weights * F.pad(followed, (0, 1))
        keys = torch.empty_like(weights).exponential_(generator=generator) / weights
        anchor = keys.topk(count, 1, largest=False).indices.sort(1).values
        live = weights.gather(1, anchor) > 0
        used = draw_block_rows(rows, count, generator, device)
        i = torch.arange(1, BLOCK, device=device)
        place = anchor[..., None] + i
        inside = place.clamp(max=tokens.shape[1] - 1)

        def pick(values: Tensor, where: Tensor) -> Tensor:
            return values.gather(1, where.flatten(1)).view(where.shape)

        segment = segments.gather(1, anchor)
        valid = live[..., None] & (place < tokens.shape[1]) & (i < used[..., None])
        valid = valid & (pick(segments, inside) == segment[..., None])
        valid = valid & (pick(counted, inside) > 0)
        before = (inside - 1).flatten(1)
        target = self.hidden[chosen[:, None].expand_as(before), before]
        return Batch(
            self.features[chosen],
            Blocks(anchor, tokens.gather(1, anchor), segment, used, segments),
            target.flatten(0, 1),
            pick(tokens, inside).flatten(),
            pick(tokens, inside - 1).flatten(),
            (valid.float() * torch.exp(-(i - 1) / gamma)).flatten(),
        )


def draw_block_rows(rows: int, count: int, generator: torch.Generator, device: Any) -> Tensor:
    """Rows in use per block: mostly all, else four, else any, so that short drafts work too."""
    size = (rows, count)
    u, v = (torch.rand(*size, generator=generator, device=device) for _ in range(2))
    some = 2 + (v * (BLOCK - 1)).long()
    return torch.where(u < 0.65, BLOCK, torch.where(u < 0.85, 4, some))


def pack_rows(texts: list[Text], length: int) -> list[Place]:
    """Place the end of every text, at most `length` tokens, row after row."""
    places, row, offset = [], 0, 0
    for text in texts:
        count = min(len(text.ids) - text.first, length)
        if offset + count > length:
            row, offset = row + 1, 0
        places.append(Place(row, offset, len(text.ids) - count, count))
        offset += count
    return places


def batch_texts(texts: list[Text], most: int) -> list[list[int]]:
    """Indices in groups of similar length with at most `most` padded tokens."""
    groups: list[list[int]] = []
    for i in sorted(range(len(texts)), key=lambda i: len(texts[i].ids)):
        size = len(texts[i].ids) + 63
        if groups and (len(groups[-1]) + 1) * size <= most:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
