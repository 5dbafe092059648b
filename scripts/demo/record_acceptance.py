# pyright: reportMissingImports=false
"""Record how far the MTP drafts of transformers' own greedy replies reach, item by item.

    PYTHONPATH=.:formats python scripts/demo/record_acceptance.py --out acceptance.json [--limit 4]

A reply has one digit for each of its tokens: how many of the drafts made from that token on, seven
at most, continue the reply. Drafts past its end count as misses. A run with k drafts starts at the
first digit and moves on by one more than the smaller of digit and k.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from record_text import to_text
from score_evaluation import (
    ACCEPTANCE_ITEMS,
    CODE_PROMPT,
    CODE_REPLY,
    DRAFTS,
    NEW_TOKENS,
    Scorer,
    limit_items,
    versions,
)

from ninfer_tools.demo.cache import locate_demo
from ninfer_tools.demo.evaluation import describe_sets, read_chat, read_code
from ninfer_tools.demo.manifest import read_manifest

# A processor has no use for larger batches.
BATCH_TOKENS = 8000


def count_reach(matches: torch.Tensor) -> str:
    """Return, for every row of `matches` bool [tokens, steps], the hits before the first miss."""
    return "".join(str(count) for count in matches.long().cumprod(1).sum(1).tolist())


def record_replies(
    scorer: Scorer, ids: list[str], prompts: list[list[int]], new_tokens: int
) -> dict[str, str]:
    replies = scorer.generate(prompts, new_tokens)
    found = zip(ids, prompts, replies, strict=True)
    return {id: count_reach(scorer.matches(prompt, reply)) for id, prompt, reply in found}


def record_chat(scorer: Scorer, limit: int) -> dict[str, str]:
    questions = limit_items(read_chat(), limit)
    prompts = [scorer.encode_question(item) for item in questions]
    return record_replies(scorer, [item.id for item in questions], prompts, NEW_TOKENS["chat"])


def record_code(scorer: Scorer, limit: int) -> dict[str, str]:
    """The passages whose first tokens are a prompt, as `score_evaluation.py` takes them."""
    rows = [(item.id, scorer.tokenizer(item.text).input_ids) for item in read_code()]
    rows = [(id, ids[:CODE_PROMPT]) for id, ids in rows if len(ids) > CODE_PROMPT][:limit]
    return record_replies(scorer, [id for id, _ in rows], [ids for _, ids in rows], CODE_REPLY)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--limit", type=int, default=max(ACCEPTANCE_ITEMS.values()))
    options = parser.parse_args()
    began = time.time()
    scorer = Scorer(locate_demo("checkpoint"), options.dtype, options.device, BATCH_TOKENS)
    limits = {name: min(options.limit, count) for name, count in ACCEPTANCE_ITEMS.items()}
    record: dict[str, Any] = {
        "checkpoint": read_manifest().digest,
        "sets": {name: describe_sets()["sets"][name]["sha256"] for name in limits},
        "versions": versions(),
        "dtype": options.dtype,
        "settings": {
            "decoding": "greedy",
            "new_tokens": {"chat": NEW_TOKENS["chat"], "code": CODE_REPLY},
            "code_prompt_tokens": CODE_PROMPT,
            "batch_tokens": BATCH_TOKENS,
            "drafts": max(DRAFTS),
            "items": limits,
        },
        "chat": record_chat(scorer, limits["chat"]),
        "code": record_code(scorer, limits["code"]),
    }
    options.out.write_text(to_text(record), encoding="utf-8")
    print(f"{len(record['chat'])} + {len(record['code'])} replies, {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
