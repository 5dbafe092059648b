"""Text to token ids and back, with the files an artifact carries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import tokenizers

from ninfer_formats.reader import Artifact
from ninfer_runtime.errors import StartupError
from ninfer_runtime.frontend.byte_level import spell_out, spelling_bytes
from ninfer_runtime.frontend.resources import read_json, read_text

_DEFAULT_STOPS = ("<|im_end|>", "<|endoftext|>")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


class Tokenizer:
    """A byte-level BPE tokenizer. `added` maps the text of every added token to its id, `special`
    holds the ids of those that are no part of an answer, `stops` the ids that end one.

    `config` is tokenizer_config.json, `generation` is generation_config.json. Added tokens that
    only `config` has are added. StartupError for files that do not fit together.
    """

    def __init__(
        self, tokenizer_json: str, config: Mapping[str, Any], generation: Mapping[str, Any]
    ) -> None:
        self._tokenizer = _parse(tokenizer_json)
        self.config = config
        _merge_added(self._tokenizer, config.get("added_tokens_decoder") or {})
        added = self._tokenizer.get_added_tokens_decoder()
        self.added = {token.content: id for id, token in added.items()}
        self.special = frozenset(id for id, token in added.items() if token.special)
        self.stops = _read_stops(generation.get("eos_token_id"), self.added)
        self._alphabet = spelling_bytes()

    @property
    def size(self) -> int:
        """Ids from 0 that have a token."""
        return self._tokenizer.get_vocab_size()

    def require(self, text: str) -> int:
        """Return the id of an added token; StartupError if there is none."""
        if text not in self.added:
            raise StartupError("tokenizer has no such token", got=text)
        return self.added[text]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text in which added tokens are spelled out."""
        return self._tokenizer.encode(_well_formed(text), add_special_tokens=False).ids

    def encode_literal(self, text: str) -> list[int]:
        """Return the ids of a text none of which becomes an added token."""
        text = _well_formed(text)
        if self._tokenizer.normalizer is not None:
            text = self._tokenizer.normalizer.normalize_str(text)
        pieces = self._tokenizer.pre_tokenizer.pre_tokenize_str(text)
        model = self._tokenizer.model
        return [token.id for piece, _ in pieces for token in model.tokenize(piece)]

    def token_bytes(self, id: int) -> bytes:
        """Return what a token stands for; nothing for an id without a token."""
        spelling = self._tokenizer.id_to_token(id)
        if spelling is None:
            return b""
        return spelling.encode() if spelling in self.added else spell_out(spelling, self._alphabet)

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """Return the text of complete ids; bytes that are not UTF-8 become U+FFFD."""
        kept = (id for id in ids if not (skip_special and id in self.special))
        return b"".join(map(self.token_bytes, kept)).decode("utf-8", "replace")


def load_tokenizer(artifact: Artifact) -> Tokenizer:
    """Return the tokenizer of an artifact; StartupError when its files are absent or broken."""
    text = read_text(artifact, "tokenizer.json")
    if text is None:
        raise StartupError(
            "the artifact has no tokenizer.json", path=artifact.path,
            remedy="convert it again from a checkpoint that has one",
        )  # fmt: skip
    config = read_json(artifact, "tokenizer_config.json") or {}
    generation = read_json(artifact, "generation_config.json") or {}
    try:
        return Tokenizer(text, config, generation)
    except StartupError as error:
        error.path = error.path or artifact.path
        raise


def _parse(text: str) -> tokenizers.Tokenizer:
    try:
        tokenizer = tokenizers.Tokenizer.from_str(text)
        decoder = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder else {}
    except Exception as error:  # the library raises no narrower class
        raise StartupError(f"tokenizer cannot be read: {error}", where="tokenizer.json") from None
    if decoder.get("type") != "ByteLevel" or tokenizer.pre_tokenizer is None:
        raise StartupError(
            "tokenizer is not byte-level", where="tokenizer.json", got=decoder.get("type")
        )
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _merge_added(tokenizer: tokenizers.Tokenizer, described: Mapping[str, Any]) -> None:
    """Add the tokens that only tokenizer_config.json describes, under the ids it gives them."""
    where = "tokenizer_config.json added_tokens_decoder"
    try:
        tokens = sorted((int(id), dict(token)) for id, token in described.items())
    except (TypeError, ValueError):
        raise StartupError("added tokens are not objects by id", where=where) from None
    for id, token in tokens:
        content = str(token.get("content", ""))
        if tokenizer.token_to_id(content) is None:
            flags = {name: bool(token[name]) for name in _FLAGS if name in token}
            tokenizer.add_tokens([tokenizers.AddedToken(content, **flags)])
        if tokenizer.token_to_id(content) != id:
            raise StartupError(
                f"token {content!r} has another id", where=where,
                got=tokenizer.token_to_id(content), want=id,
            )  # fmt: skip


def _read_stops(stated: Any, added: Mapping[str, int]) -> tuple[int, ...]:
    """Return the ids that end an answer: generation_config.json's, else the family's."""
    if stated is None:
        return tuple(added[text] for text in _DEFAULT_STOPS if text in added)
    ids = stated if isinstance(stated, list) else [stated]
    if not all(type(id) is int and id >= 0 for id in ids):
        raise StartupError(
            "eos_token_id is not a list of ids", where="generation_config.json", got=stated
        )
    return tuple(ids)


def _well_formed(text: str) -> str:
    """Return the text with lone surrogates, which have no UTF-8 form, as U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
