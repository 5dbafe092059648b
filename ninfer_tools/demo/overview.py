"""What `ninfer demo` says: parts, sizes, scores and where to go next."""

from __future__ import annotations

from typing import Any

from ninfer_tools.console import format_bytes, format_table
from ninfer_tools.demo.evaluation import describe_sets, read_scores
from ninfer_tools.demo.manifest import PARTS, Manifest

DTYPES = ("bfloat16", "float32")


def describe(
    manifest: Manifest, metrics: dict[str, Any], unpacked: dict[str, Any]
) -> dict[str, Any]:
    scores = read_scores()
    return {
        "digest": manifest.digest,
        "unpacked": unpacked,
        "parts": {part: _part(manifest, metrics, part) for part in PARTS},
        "evaluation_items": {name: s["items"] for name, s in describe_sets()["sets"].items()},
        "scored_by": {"transformers": scores["versions"]["transformers"], "gpu": scores["gpu"]},
        "scores": {dtype: flatten_scores(scores["runs"][dtype]) for dtype in DTYPES},
        "acceptance": {
            "mtp": {
                name: scores["runs"]["bfloat16"][name]["mtp_acceptance"]["k=3"]["mean_accepted"]
                for name in ("code", "chat")
            },
            "dflash2": {
                name: metrics["dflash2"]["evaluation"][name]["dflash2"]["K=7"][
                    "mean_accepted_per_round"
                ]
                for name in ("code", "chat")
            },
        },
        "metrics": metrics,
    }


def _part(manifest: Manifest, metrics: dict[str, Any], part: str) -> dict[str, Any]:
    files = manifest.part(part)
    return {
        "parameters": metrics[part]["parameters"],
        "bytes": sum(file.bytes for file in files),
        "files": {file.name.partition("/")[2]: file.sha256 for file in files},
    }


def flatten_scores(run: dict[str, Any]) -> dict[str, float]:
    """Return task -> share of right replies, and the perplexity of the code passages."""
    tasks = {
        task: entry["score"]
        for name in ("chat", "long", "vision")
        for task, entry in run[name]["tasks"].items()
    }
    return {**tasks, "code perplexity": run["code"]["perplexity"]}


def show(record: dict[str, Any]) -> None:
    checkpoint, drafter = (record["parts"][part] for part in PARTS)
    unpacked = record["unpacked"]
    print("Demo checkpoint: small, really trained, in the files and names of a Qwen3.5 dense model")
    print(f"  checkpoint  text, vision and MTP, {_size(checkpoint)}")
    print(f"  dflash2     its DFlash2 drafter, {_size(drafter)}")
    state = "in" if unpacked["complete"] else "not yet unpacked; goes to"
    print(f"  {state} {unpacked['path']}")
    by, items = record["scored_by"], sum(record["evaluation_items"].values())
    print(f"\nGreedy scores of transformers {by['transformers']} on the {items:,} bundled items")
    print(format_table([("task", *DTYPES), *_score_rows(record["scores"])]))
    mtp, block = record["acceptance"]["mtp"], record["acceptance"]["dflash2"]
    print("\nAccepted drafts, mean (bfloat16)")
    print(f"  MTP, of 3      code {mtp['code']:.2f}, chat {mtp['chat']:.2f}")
    print(f"  DFlash2, of 7  code {block['code']:.2f}, chat {block['chat']:.2f}, a round")
    print("\nGreedy decoding, prompts like those of the tasks; anything else gives nonsense.")
    print("Next: ninfer demo --path, or ninfer demo --path dflash2")


def _size(part: dict[str, Any]) -> str:
    return f"{part['parameters'] / 1e6:.2f} M parameters, {format_bytes(part['bytes'])}"


def _score_rows(scores: dict[str, dict[str, float]]) -> list[tuple[str, ...]]:
    return [
        (task, *(_score(task, scores[dtype][task]) for dtype in DTYPES))
        for task in scores[DTYPES[0]]
    ]


def _score(task: str, value: float) -> str:
    return f"{value:.3f}" if "perplexity" in task else f"{100 * value:.1f}%"
