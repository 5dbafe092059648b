# pyright: reportMissingImports=false
"""Drawn images and videos of the demo checkpoint, with questions that have one right answer."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from PIL import Image, ImageDraw, ImageFont

COLORS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (40, 70, 220),
    "yellow": (240, 220, 50),
    "purple": (150, 60, 190),
    "orange": (245, 140, 30),
    "black": (15, 15, 15),
    "white": (250, 250, 250),
}
SHAPES = ["circle", "square", "triangle", "cross"]
BACKGROUNDS = [
    (200, 200, 200),
    (128, 128, 128),
    (225, 215, 200),
    (180, 205, 225),
    (90, 100, 110),
]
DIGIT_COLORS = ["red", "blue", "black", "white", "green"]
DIRECTIONS = ["left", "right", "up", "down"]
FRAMES = 4
Pixels = tuple[int, int]


class Question(NamedTuple):
    text: str
    answer: str
    task: str


class Sample(NamedTuple):
    """A conversation about `media`: ("image", picture) or ("video", frames) entries."""

    media: list[tuple[str, Any]]
    messages: list[dict[str, Any]]
    tasks: list[str]


def draw_shape(
    draw: ImageDraw.ImageDraw, shape: str, color: Any, x: float, y: float, size: float
) -> None:
    if shape == "circle":
        draw.ellipse([x - size, y - size, x + size, y + size], fill=color)
    elif shape == "square":
        draw.rectangle([x - size, y - size, x + size, y + size], fill=color)
    elif shape == "triangle":
        draw.polygon([(x, y - size), (x + size, y + size), (x - size, y + size)], fill=color)
    else:
        bar = size / 3
        draw.rectangle([x - size, y - bar, x + size, y + bar], fill=color)
        draw.rectangle([x - bar, y - size, x + bar, y + size], fill=color)


class VisionTasks:
    """Draws scenes and questions about them from one `random.Random`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def sample(self, turns: int = 3, kind: str | None = None) -> Sample:
        kind = kind or self.rng.choices(["one", "two", "video"], [75, 15, 10])[0]
        if kind == "one":
            image, objects = self.scene()
            media: list[tuple[str, Any]] = [("image", image)]
            questions = self.questions(objects, turns)
        elif kind == "video":
            frames, questions = self.video()
            media, questions = [("video", frames)], questions[:turns]
        else:
            images, questions = self.pair()
            media, questions = [("image", image) for image in images], questions[:turns]
        messages: list[dict[str, Any]] = []
        for question in questions:
            content: Any = question.text
            if not messages:
                content = [{"type": name} for name, _ in media]
                content.append({"type": "text", "text": question.text})
            messages.append({"role": "user", "content": content})
            messages.append({"role": "assistant", "content": question.answer})
        return Sample(media, messages, [question.task for question in questions])

    def size(self, small: bool = False) -> Pixels:
        """Draw (height, width); sides of 56 to 260, seldom more than 150."""
        r = self.rng
        longest = 150 if small else 260
        while True:
            height, width = r.randint(56, longest), r.randint(56, longest)
            if small or r.random() < 0.7:
                height, width = r.randint(56, 150), r.randint(56, 150)
            if max(height, width) / min(height, width) <= 3.5:
                return height, width

    def scene(
        self, n: int | None = None, size: Pixels | None = None, digits: bool | None = None
    ) -> tuple[Image.Image, list[dict[str, Any]]]:
        """Draw a number, or up to four shapes in cells of a grid so that none overlap."""
        r = self.rng
        height, width = size or self.size()
        image = Image.new("RGB", (width, height), r.choice(BACKGROUNDS))
        if (digits is None and r.random() < 0.25) or digits:
            return image, [self._draw_number(image)]
        rows, columns = max(1, min(3, height // 56)), max(1, min(3, width // 56))
        cells = [(i, j) for i in range(rows) for j in range(columns)]
        cells = r.sample(cells, min(n or r.randint(1, 4), rows * columns))
        colors = r.sample(list(COLORS), len(cells))
        cell = (height / rows, width / columns)
        draw = ImageDraw.Draw(image)
        objects = [
            self._draw_object(draw, (width, height), place, cell, color)
            for place, color in zip(cells, colors, strict=True)
        ]
        return image, objects

    def _draw_object(
        self,
        draw: ImageDraw.ImageDraw,
        size: Pixels,
        place: tuple[int, int],
        cell: tuple[float, float],
        color: str,
    ) -> dict[str, Any]:
        r = self.rng
        (i, j), (high, wide) = place, cell
        half = min(high, wide) * r.uniform(0.26, 0.44)
        x = j * wide + r.uniform(half, wide - half)
        y = i * high + r.uniform(half, high - half)
        shape = r.choice(SHAPES)
        draw_shape(draw, shape, COLORS[color], x, y, half)
        return {"shape": shape, "color": color, "x": x / size[0], "y": y / size[1]}

    def _draw_number(self, image: Image.Image) -> dict[str, Any]:
        r, (width, height) = self.rng, image.size
        draw = ImageDraw.Draw(image)
        text = "".join(r.choice("0123456789") for _ in range(r.randint(1, 3)))
        points = int(min(height * 0.8, width * 1.3 / len(text)) * r.uniform(0.75, 1))
        font = ImageFont.load_default(size=points)
        left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
        x = r.uniform(0, max(0, width - (right - left))) - left
        y = r.uniform(0, max(0, height - (bottom - top))) - top
        color = r.choice(DIGIT_COLORS)
        draw.text((x, y), text, fill=COLORS[color], font=font)
        return {"shape": "number", "color": color, "text": text}

    def questions(self, objects: list[dict[str, Any]], limit: int) -> list[Question]:
        """Return at most `limit` questions about a scene, in random order."""
        if objects[0]["shape"] == "number":
            found = [
                Question("What number is shown?", objects[0]["text"], "number"),
                Question("What colour is the number?", objects[0]["color"], "colour"),
            ]
        else:
            found = self._about_shapes(objects)
        self.rng.shuffle(found)
        return found[:limit]

    def _about_shapes(self, objects: list[dict[str, Any]]) -> list[Question]:
        r = self.rng
        found = [Question("How many shapes are there?", str(len(objects)), "count")]
        chosen = r.choice(objects)
        found.append(Question(f"What shape is {chosen['color']}?", chosen["shape"], "shape"))
        shapes = [item["shape"] for item in objects]
        unique = [item for item in objects if shapes.count(item["shape"]) == 1]
        if unique:
            item = r.choice(unique)
            text = f"What colour is the {item['shape']}?"
            found.append(Question(text, item["color"], "colour"))
        if len(objects) == 1:
            return found + about_one(objects[0])
        first, second = r.sample(objects, 2)
        return found + about_two(first, second)

    def pair(self) -> tuple[list[Image.Image], list[Question]]:
        """Draw two images with one shape each and questions that need both."""
        first, (one,) = self.scene(1, self.size(True), False)
        second, (two,) = self.scene(1, self.size(True), False)
        pairs = [
            ("What colour is the shape in the first image?", one["color"]),
            ("What colour is the shape in the second image?", two["color"]),
            ("What shape is in the second image?", two["shape"]),
            ("What shape is in the first image?", one["shape"]),
        ]
        if one["color"] != two["color"]:
            pairs.append((f"Which image has the {two['color']} shape?", "the second"))
            pairs.append((f"Which image has the {one['color']} shape?", "the first"))
        questions = [Question(text, answer, "two") for text, answer in pairs]
        self.rng.shuffle(questions)
        return [first, second], questions

    def video(self, size: Pixels | None = None) -> tuple[list[Image.Image], list[Question]]:
        """Draw four frames of a shape that moves in a straight line."""
        r = self.rng
        height, width = size or (r.choice([64, 96, 128]), r.choice([64, 96, 128]))
        color, shape = r.choice(list(COLORS)), r.choice(SHAPES)
        background, direction = r.choice(BACKGROUNDS), r.choice(DIRECTIONS)
        half = min(height, width) * r.uniform(0.15, 0.22)
        across = r.uniform(0.3, 0.7)
        frames = []
        for step in range(FRAMES):
            along = 0.2 + 0.6 * step / (FRAMES - 1)
            along = 1 - along if direction in ("left", "up") else along
            sideways = direction in ("left", "right")
            x, y = (along, across) if sideways else (across, along)
            frame = Image.new("RGB", (width, height), background)
            draw_shape(ImageDraw.Draw(frame), shape, COLORS[color], x * width, y * height, half)
            frames.append(frame)
        questions = [
            Question(f"Which way does the {shape} move?", direction, "motion"),
            Question("What colour is the moving shape?", color, "colour"),
            Question("What shape moves?", shape, "shape"),
        ]
        r.shuffle(questions)
        return frames, questions


def about_one(item: dict[str, Any]) -> list[Question]:
    found = [Question("What is in the image?", f"a {item['color']} {item['shape']}", "describe")]
    if abs(item["x"] - 0.5) > 0.12:
        text = "Is the shape on the left or on the right?"
        found.append(Question(text, "left" if item["x"] < 0.5 else "right", "position"))
    if abs(item["y"] - 0.5) > 0.12:
        text = "Is the shape at the top or at the bottom?"
        found.append(Question(text, "top" if item["y"] < 0.5 else "bottom", "position"))
    return found


def about_two(first: dict[str, Any], second: dict[str, Any]) -> list[Question]:
    one, two = (f"{item['color']} {item['shape']}" for item in (first, second))
    found = []
    if abs(first["x"] - second["x"]) > 0.15:
        text = f"Is the {one} left or right of the {two}?"
        answer = "left" if first["x"] < second["x"] else "right"
        found.append(Question(text, answer, "position"))
    if abs(first["y"] - second["y"]) > 0.15:
        text = f"Is the {one} above or below the {two}?"
        answer = "above" if first["y"] < second["y"] else "below"
        found.append(Question(text, answer, "position"))
    return found
