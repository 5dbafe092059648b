# pyright: reportMissingImports=false
"""Make the fixed evaluation sets of the demo checkpoint.

    python scripts/demo/make_evaluation.py HELD_OUT_FOLDER OUT_FOLDER

HELD_OUT_FOLDER holds the unpacked wheels of the packages that training left out (PACKAGES below);
OUT_FOLDER receives chat, long, vision and code as packed JSON lines, sets.json, LICENSES.txt. The
same inputs give the same bytes. Needs Pillow and zstandard.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from question_sets import (
    ITEMS,
    LONG_FILLER,
    MAX_TOKENS,
    SEED,
    make_chat,
    make_long,
    stream,
)
from record_text import to_text
from vision_tasks import Question, VisionTasks

from ninfer_tools.demo.packing import pack

# Versions of the held-out packages, their licences, and the file that says so.
PACKAGES = {
    "networkx": ("3.6.1", "BSD-3-Clause", "licenses/LICENSE.txt"),
    "rich": ("14.2.0", "MIT", "LICENSE"),
    "seaborn": ("0.13.2", "BSD-3-Clause", "LICENSE.md"),
    "werkzeug": ("3.1.4", "BSD-3-Clause", "licenses/LICENSE.txt"),
}
# Code that others wrote, tables, and tests whose text is mostly data.
LEFT_OUT = {"external", "tests", "_vendor", "_emoji_codes.py", "_cell_widths.py", "_unicode_data"}
PASSAGE_CHARACTERS = 1600
PASSAGES_PER_FILE = 3
Record = dict[str, Any]


def make_vision() -> list[Record]:
    """Scenes until every task has its items; a scene asks each of its tasks once at most."""
    counts: Counter[str] = Counter()
    tasks = VisionTasks(stream("vision/shapes"))
    rows = list(shape_scenes(tasks, counts))
    tasks = VisionTasks(stream("vision/numbers"))
    while counts["image/number"] < ITEMS:
        image, objects = tasks.scene(digits=True)
        asked = [item for item in tasks.questions(objects, 2) if item.task == "number"]
        rows.append(scene_row("image", [image], asked, counts))
    tasks = VisionTasks(stream("vision/pairs"))
    while counts["two_images"] < ITEMS:
        images, questions = tasks.pair()
        rows.append(scene_row("two_images", images, questions[:2], counts))
    tasks = VisionTasks(stream("vision/videos"))
    while counts["video/motion"] < ITEMS:
        frames, questions = tasks.video()
        rows.append(scene_row("video", frames, questions, counts))
    return rows


def shape_scenes(tasks: VisionTasks, counts: Counter[str]) -> Iterable[Record]:
    wanted = ("describe", "position", "shape", "colour", "count")
    while any(counts[f"image/{task}"] < ITEMS for task in wanted):
        image, objects = tasks.scene(digits=False)
        asked: dict[str, Question] = {}
        for question in tasks.questions(objects, 9):
            if counts[f"image/{question.task}"] < ITEMS:
                asked.setdefault(question.task, question)
        if asked:
            yield scene_row("image", [image], list(asked.values()), counts)


def scene_row(
    kind: str, images: list[Image.Image], questions: list[Question], counts: Counter[str]
) -> Record:
    asked = []
    for question in questions:
        task = kind if question.task == "two" else f"{kind}/{question.task}"
        asked.append(
            {
                "id": f"{task}/{counts[task]:03d}",
                "task": task,
                "text": question.text,
                "answer": question.answer,
            }
        )
        counts[task] += 1
    files = [base64.b64encode(encode_png(image)).decode() for image in images]
    return {"kind": kind, "files": files, "questions": asked}


def encode_png(image: Image.Image) -> bytes:
    """Return a PNG of exactly these pixels, with a palette where 256 colours are enough."""
    pixels = np.asarray(image)
    colors, index = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    stored = image
    if len(colors) <= 256:
        stored = Image.fromarray(index.reshape(pixels.shape[:2]).astype(np.uint8), "P")
        stored.putpalette(colors.astype(np.uint8).tobytes())
    out = io.BytesIO()
    stored.save(out, "PNG", optimize=True)
    if not np.array_equal(np.asarray(Image.open(out).convert("RGB")), pixels):
        raise ValueError("the stored picture differs from the drawn one")
    return out.getvalue()


def make_code(folder: Path) -> list[Record]:
    rows = []
    for package in PACKAGES:
        rng = stream(f"code/{package}")
        share = ITEMS // len(PACKAGES)
        passages = [item for path in source_files(folder, package) for item in cut(path, rng)]
        for number, (path, text) in enumerate(rng.sample(passages, share)):
            source = path.relative_to(folder).as_posix()
            name = f"code/{package}/{number:03d}"
            row = {"id": name, "task": "code", "source": source, "text": text}
            rows.append(row)
    return rows


def source_files(folder: Path, package: str) -> list[Path]:
    files = sorted((folder / package).rglob("*.py"))
    if not files:
        raise SystemExit(f"{folder / package}: no Python files")
    return [path for path in files if not LEFT_OUT & set(path.relative_to(folder).parts)]


def cut(path: Path, rng: random.Random) -> list[tuple[Path, str]]:
    """Return up to three passages of whole lines from random places of a file."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    passages: list[str] = []
    passage = ""
    for line in lines:
        passage += line
        if len(passage) >= PASSAGE_CHARACTERS:
            passages.append(passage)
            passage = ""
    chosen = rng.sample(passages, min(PASSAGES_PER_FILE, len(passages)))
    return [(path, text) for text in chosen if len(text) < 2 * PASSAGE_CHARACTERS]


def gather_licences(folder: Path) -> str:
    texts = ["Licences of the packages whose lines stand in the code evaluation set.\n"]
    for package, (version, _, name) in PACKAGES.items():
        text = (folder / f"{package}-{version}.dist-info" / name).read_text(encoding="utf-8")
        texts.append(f"{'=' * 80}\n{package} {version}\n{'=' * 80}\n\n{text.strip()}\n")
    return "\n".join(texts)


def save(out: Path, name: str, rows: list[Record], counts: Counter[str]) -> Record:
    """Write one set and return its entry of sets.json."""
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows]
    content = "".join(lines).encode()
    packed = pack(content)
    (out / f"{name}.jsonl.zst").write_bytes(packed)
    return {
        "file": f"{name}.jsonl.zst",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "packed_bytes": len(packed),
        "packed_sha256": hashlib.sha256(packed).hexdigest(),
        "items": counts.total(),
        "tasks": dict(counts),
    }


def count_items(rows: list[Record]) -> Counter[str]:
    questions = [item for row in rows for item in row.get("questions", [row])]
    return Counter(item["task"] for item in questions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("held_out", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    made = {
        "chat": make_chat(),
        "long": make_long(),
        "vision": make_vision(),
        "code": make_code(options.held_out),
    }
    sets = {name: save(options.out, name, rows, count_items(rows)) for name, rows in made.items()}
    packages = {
        name: {"version": version, "license": license_id}
        for name, (version, license_id, _) in PACKAGES.items()
    }
    record = {
        "seed": SEED,
        "streams": "random.Random('SEED/chat/TASK'), 'SEED/long/TASK', 'SEED/code/PACKAGE',"
        " 'SEED/vision/NAME' with NAME shapes, numbers, pairs or videos",
        "chat": {"max_tokens": MAX_TOKENS, "distinct_prompts": True},
        "long": {"filler_tokens": LONG_FILLER, "distinct_prompts": True},
        "code": {"passage_characters": PASSAGE_CHARACTERS, "packages": packages},
        "sets": sets,
    }
    (options.out / "sets.json").write_text(to_text(record), encoding="utf-8")
    (options.out / "LICENSES.txt").write_text(gather_licences(options.held_out), encoding="utf-8")


if __name__ == "__main__":
    main()
