# pyright: reportMissingImports=false
"""Training the byte-pair tokenizer, and writing it with template and processor configs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conversation import (
    ADDED_TOKENS,
    END_OF_TEXT,
    END_OF_TURN,
    IMAGE,
    SPECIAL,
    VIDEO,
    VISION_END,
    VISION_START,
)
from image_patches import LARGEST_PIXELS, MERGE, PATCH, SMALLEST_PIXELS
from source_code import read_source

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MAX_LENGTH = 32768
TEMPLATE = Path(__file__).with_name("chat_template.jinja")


def train_tokenizer(files: list[Path], size: int, megabytes: float, extra: list[str]) -> Any:
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        trainers,
    )

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False)
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(files, megabytes, extra), trainer)
    added = [AddedToken(t, special=t in SPECIAL, normalized=False) for t in ADDED_TOKENS]
    tokenizer.add_tokens(added)
    return tokenizer


def _texts(files: list[Path], megabytes: float, extra: list[str]) -> Iterator[str]:
    total = 0
    for path in files:
        text = read_source(path)
        if text:
            total += len(text)
            yield text
        if total > megabytes * 1e6:
            # The chat examples count only where the sources do not fill the sample.
            return
    yield from extra


def save_tokenizer(tokenizer: Any, out: Path) -> None:
    """Write tokenizer, vocabulary, merges, template and the configs that go with them."""
    tokenizer.save(str(out / "tokenizer.json"))
    model = json.loads((out / "tokenizer.json").read_text())["model"]
    vocabulary = json.dumps(model["vocab"], ensure_ascii=False)
    (out / "vocab.json").write_text(vocabulary)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    (out / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    template = TEMPLATE.read_text()
    (out / "chat_template.jinja").write_text(template)
    _dump(out / "tokenizer_config.json", describe_tokenizer(tokenizer, template))
    for name, record in describe_processors().items():
        _dump(out / name, record)


def _dump(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False))


def describe_tokenizer(tokenizer: Any, template: str) -> dict[str, Any]:
    added = {
        str(tokenizer.token_to_id(token)): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": token in SPECIAL,
        }
        for token in ADDED_TOKENS
    }
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": [token for token in SPECIAL if token != END_OF_TEXT],
        "bos_token": None,
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
        "eos_token": END_OF_TURN,
        "errors": "replace",
        "model_max_length": MAX_LENGTH,
        "pad_token": END_OF_TEXT,
        "split_special_tokens": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
        "image_token": IMAGE,
        "video_token": VIDEO,
        "vision_bos_token": VISION_START,
        "vision_eos_token": VISION_END,
    }


def describe_processors() -> dict[str, dict[str, Any]]:
    half = [0.5, 0.5, 0.5]
    patches = {
        "patch_size": PATCH,
        "temporal_patch_size": 2,
        "merge_size": MERGE,
        "image_mean": half,
        "image_std": half,
    }
    image = {
        "size": {"longest_edge": LARGEST_PIXELS, "shortest_edge": SMALLEST_PIXELS},
        **patches,
        "processor_class": "Qwen3VLProcessor",
        "image_processor_type": "Qwen2VLImageProcessorFast",
    }
    video = {
        "size": {"longest_edge": 4 * LARGEST_PIXELS, "shortest_edge": SMALLEST_PIXELS},
        **patches,
        "fps": 2,
        "min_frames": 4,
        "max_frames": 768,
        "processor_class": "Qwen3VLProcessor",
        "video_processor_type": "Qwen3VLVideoProcessor",
    }
    return {"preprocessor_config.json": image, "video_preprocessor_config.json": video}
