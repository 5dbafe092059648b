"""A conversation to token ids, with a place for every row of its images and videos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from ninfer_runtime.engine.request import Media
from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.control_tokens import Segment
from ninfer_runtime.frontend.media import Medium
from ninfer_runtime.frontend.messages import IMAGE, VIDEO
from ninfer_runtime.frontend.tokenizer import Tokenizer
from ninfer_runtime.models.qwen3_5.media_positions import media_runs, rotary_positions
from ninfer_runtime.models.qwen3_5.vision import VisionTower, run_vision

PADS = {IMAGE: "<|image_pad|>", VIDEO: "<|video_pad|>"}
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"


@dataclass(frozen=True)
class Prompt:
    """Token ids, and the media in the order of their places. `places` are the indices of media
    tokens, `positions` int32 [3, tokens] rotary positions; both None without media."""

    ids: tuple[int, ...]
    media: tuple[Medium, ...] = ()
    places: torch.Tensor | None = None
    positions: torch.Tensor | None = None


def build_prompt(
    tokenizer: Tokenizer, segments: Sequence[Segment], media: Sequence[Medium], merge: int
) -> Prompt:
    """Return the prompt of rendered segments; the n-th image stands at the n-th image pad.

    RequestError when pads and media do not match one to one.
    """
    if not media and not any(_has_pad(segment) for segment in segments):
        return Prompt(tuple(_encode(tokenizer, segments)))
    videos = [medium for medium in media if medium.kind == VIDEO]
    ids = _encode(tokenizer, _spell_times(segments, videos))
    return _expand(tokenizer, ids, media, merge)


def extend_prompt(prompt: Prompt, ids: Sequence[int]) -> Prompt:
    """Return the prompt with tokens of text behind its last one, which is text too."""
    positions = prompt.positions
    if positions is not None:
        more = positions[:, -1:] + torch.arange(1, len(ids) + 1, dtype=positions.dtype)
        positions = torch.cat((positions, more), dim=1)
    return replace(prompt, ids=(*prompt.ids, *ids), positions=positions)


def run_media(
    prompt: Prompt,
    tower: VisionTower,
    encode: Callable[[VisionTower, Medium], torch.Tensor] | None = None,
) -> Media | None:
    """Return the rows of the prompt's media, one image or video through the tower at a time.

    They wait on the host for the chunks that read them, and take no memory of the device.
    `encode` gives the rows of one medium, `encode_medium`'s by default.
    """
    if prompt.places is None or prompt.positions is None:
        return None
    encode = encode or encode_medium
    rows = [encode(tower, medium) for medium in prompt.media]
    return Media(torch.cat(rows), prompt.places, prompt.positions)


def encode_medium(tower: VisionTower, medium: Medium) -> torch.Tensor:
    """Return the rows [n, H] of an image or video, on the host."""
    return run_vision(tower, medium.patches, [medium.grid]).cpu()


def _has_pad(segment: Segment) -> bool:
    return not segment.literal and any(pad in segment.text for pad in PADS.values())


def _encode(tokenizer: Tokenizer, segments: Sequence[Segment]) -> list[int]:
    ids: list[int] = []
    for segment in segments:
        encode = tokenizer.encode_literal if segment.literal else tokenizer.encode
        ids += encode(segment.text)
    return ids


def _spell_times(segments: Sequence[Segment], videos: Sequence[Medium]) -> list[Segment]:
    """Replace the mark of each video by its layers: time, start, pad, end.

    The model was trained without the outer start and end that the template writes.
    """
    pad = PADS[VIDEO]
    remaining = iter(videos)
    spelled = []
    for segment in segments:
        if segment.literal:
            spelled.append(segment)
            continue
        text = segment.text.replace(f"{VISION_START}{pad}{VISION_END}", pad)
        head, *tails = text.split(pad)
        for tail in tails:
            medium = next(remaining, None)
            if medium is None:
                raise _mismatch(VIDEO, len(videos))
            head += "".join(_layer(time, pad) for time in medium.seconds) + tail
        spelled.append(Segment(head, False))
    if next(remaining, None) is not None:
        raise _mismatch(VIDEO, len(videos))
    return spelled


def _layer(seconds: float, pad: str) -> str:
    return f"<{seconds:.1f} seconds>{VISION_START}{pad}{VISION_END}"


def _expand(
    tokenizer: Tokenizer, ids: Sequence[int], media: Sequence[Medium], merge: int
) -> Prompt:
    """Give every pad as many tokens as its picture or layer has merged patches."""
    queues = {kind: [medium for medium in media if medium.kind == kind] for kind in PADS}
    counts = {kind: len(queue) for kind, queue in queues.items()}
    kinds = {tokenizer.require(pad): kind for kind, pad in PADS.items()}
    expanded: list[int] = []
    placed: list[Medium] = []
    begins: list[int] = []
    layer = 0
    for id in ids:
        kind = kinds.get(id)
        if kind is None:
            expanded.append(id)
            continue
        if not queues[kind]:
            raise _mismatch(kind, counts[kind])
        medium = queues[kind][0]
        if layer == 0:
            placed.append(medium)
        begins.append(len(expanded))
        expanded += [id] * (medium.grid.rows * medium.grid.columns // merge**2)
        layer = (layer + 1) % medium.grid.frames
        if layer == 0:
            queues[kind].pop(0)
    for kind, queue in queues.items():
        if queue:
            raise _mismatch(kind, counts[kind])
    runs = media_runs(begins, [medium.grid for medium in placed], merge)
    places = torch.cat([torch.arange(run.begin, run.begin + run.tokens) for run in runs])
    return Prompt(tuple(expanded), tuple(placed), places, rotary_positions(len(expanded), runs))


def _mismatch(kind: str, count: int) -> RequestError:
    return RequestError(
        f"the chat template does not place every {kind} once", got=f"{count} given",
        remedy="check that the messages hold as many parts of this kind as files are given",
    )  # fmt: skip
