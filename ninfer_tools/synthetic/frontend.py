"""The six frontend resources of a synthetic model: tokenizer, template and preprocessing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files

from ninfer_tools.synthetic.byte_pairs import build_merges
from ninfer_tools.synthetic.vocabulary import ADDED_TOKENS, Vocabulary

# The family's split: marks stay with their letters, digits stand alone.
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTEXT_LENGTH = 262144


def build_frontend(vocab_tokens: int = 248077, seed: int = 0) -> dict[str, bytes]:
    """Return resource role -> UTF-8 bytes, in the order in which artifacts store them.

    The tokenizer has exactly `vocab_tokens` ids without gaps: bytes and merges drawn from `seed`,
    then the 33 added tokens. Preprocessing states the family's vision geometry (patch 16, temporal
    patch 2, merge 2). Raises UsageError when `vocab_tokens` is too small or too large.
    """
    vocabulary = Vocabulary(vocab_tokens)
    return {
        "tokenizer.json": _to_json(_describe_tokenizer(vocabulary, seed)),
        "tokenizer_config.json": _to_json(_describe_config(vocabulary)),
        "chat_template.jinja": read_chat_template(),
        "generation_config.json": _to_json(_describe_generation(vocabulary)),
        "preprocessor_config.json": _to_json(_describe_images()),
        "video_preprocessor_config.json": _to_json(_describe_videos()),
    }


def read_chat_template() -> bytes:
    """Return the project's own chat template for the family."""
    return files("ninfer_tools.synthetic").joinpath("chat_template.jinja").read_bytes()


def _describe_tokenizer(vocabulary: Vocabulary, seed: int) -> dict[str, object]:
    merges = build_merges(vocabulary.base_tokens, seed)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    split = {"type": "Split", "pattern": {"Regex": SPLIT_PATTERN}, "behavior": "Isolated"}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, **token} for i, token in _describe_added(vocabulary).items()],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{**split, "invert": False}, {**byte_level, "use_regex": False}],
        },
        "post_processor": {**byte_level, "use_regex": False},
        "decoder": {**byte_level, "use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": merges.tokens,
            "merges": merges.merges,
        },
    }


def _describe_added(vocabulary: Vocabulary) -> dict[int, dict[str, object]]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        vocabulary.base_tokens + i: {"content": content, **flags, "special": special}
        for i, (content, special) in enumerate(ADDED_TOKENS)
    }


def _describe_config(vocabulary: Vocabulary) -> dict[str, object]:
    added = _describe_added(vocabulary)
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {str(i): token for i, token in added.items()},
        "additional_special_tokens": [c for c, special in ADDED_TOKENS[1:] if special],
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "image_token": "<|image_pad|>",
        "model_max_length": CONTEXT_LENGTH,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
        "video_token": "<|video_pad|>",
        "vision_bos_token": "<|vision_start|>",
        "vision_eos_token": "<|vision_end|>",
    }


def _describe_generation(vocabulary: Vocabulary) -> dict[str, object]:
    end, turn_end = vocabulary.added_id("<|endoftext|>"), vocabulary.added_id("<|im_end|>")
    return {
        "bos_token_id": end,
        "do_sample": True,
        "eos_token_id": [turn_end, end],
        "pad_token_id": end,
        "temperature": 1.0,
        "top_k": 20,
        "top_p": 0.95,
    }


def _describe_pixels(shortest: int, longest: int) -> dict[str, object]:
    # Both "edges" are pixel counts in this family.
    return {
        "size": {"longest_edge": longest, "shortest_edge": shortest},
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "processor_class": "Qwen3VLProcessor",
    }


def _describe_images() -> dict[str, object]:
    return {
        **_describe_pixels(65536, 16777216),
        "image_processor_type": "Qwen2VLImageProcessorFast",
    }


def _describe_videos() -> dict[str, object]:
    return {
        **_describe_pixels(4096, 25165824),
        "fps": 2,
        "min_frames": 4,
        "max_frames": 768,
        "video_processor_type": "Qwen3VLVideoProcessor",
    }


def _to_json(value: Mapping[str, object]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()
