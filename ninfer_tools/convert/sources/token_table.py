"""Token ids of a checkpoint from both tokenizer files (rules S-33 to S-35)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ninfer_formats.errors import NinferError
from ninfer_tools.convert.sources.json_text import read_json_object
from ninfer_tools.convert.sources.name_lists import name_some

TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"


@dataclass
class TokenTable:
    """Tokens by id, the ids that are special in either file, and faults."""

    tokens: dict[int, str] = field(default_factory=dict)
    special: set[int] = field(default_factory=set)
    problems: list[NinferError] = field(default_factory=list)

    @property
    def count(self) -> int:
        """One more than the largest id."""
        return max(self.tokens, default=-1) + 1


def read_token_table(
    resources: Mapping[str, bytes], paths: Mapping[str, str], rows: int
) -> TokenTable:
    """Return the tokens of tokenizer.json and of `added_tokens_decoder` in tokenizer_config.json.

    `rows` is the number of embedding rows, which bounds the ids. Files that are absent
    contribute nothing. `paths` says what messages call the file of a role.
    """
    table = TokenTable()
    texts: dict[str, dict[int, str]] = {}
    for file, list_tokens in ((TOKENIZER, _list_tokenizer), (CONFIG, _list_config)):
        if file not in resources:
            continue
        try:
            content = read_json_object(resources[file], file, paths[file])
            texts[file] = _collect(list_tokens(content), paths[file], rows, table)
        except NinferError as error:
            error.path = error.path or paths[file]
            table.problems.append(error)
    _compare(texts.get(TOKENIZER, {}), texts.get(CONFIG, {}), paths, table)
    table.tokens = texts.get(CONFIG, {}) | texts.get(TOKENIZER, {})
    return table


Token = tuple[Any, Any, bool]


def _list_tokenizer(content: Mapping[str, Any]) -> Iterator[Token]:
    """Yield (id, text, special)."""
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict):
        raise NinferError("tokenizer has no vocabulary", where="model.vocab")
    for text, number in vocabulary.items():
        yield number, text, False
    added = content.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise NinferError("added tokens are no list of objects", where="added_tokens")
    for token in added:
        yield token.get("id"), token.get("content"), token.get("special") is True


def _list_config(content: Mapping[str, Any]) -> Iterator[Token]:
    added = content.get("added_tokens_decoder") or {}
    if not isinstance(added, dict):
        raise NinferError("added tokens are no object", where="added_tokens_decoder")
    for key, token in added.items():
        text = token.get("content") if isinstance(token, dict) else token
        special = isinstance(token, dict) and token.get("special") is True
        yield int(key) if key.isdecimal() and len(key) < 19 else key, text, special


def _collect(tokens: Iterator[Token], path: str, rows: int, table: TokenTable) -> dict[int, str]:
    found: dict[int, str] = {}
    twice, outside = [], []
    for number, text, special in tokens:
        if type(number) is not int or not isinstance(text, str):
            raise NinferError("token has no id or no text", got=f"{number}: {text}")
        if not 0 <= number < rows:
            outside.append(f"{number} ({text})")
        if found.setdefault(number, text) != text:
            twice.append(f"{number} ({found[number]} and {text})")
        if special:
            table.special.add(number)
    for what, names, want in (
        ("token ids exceed the vocabulary rows of the model", outside, f"0 to {rows - 1}"),
        ("token ids stand for two tokens", twice, None),
    ):
        if names:
            text = f"{what}: {name_some(names)}"
            table.problems.append(NinferError(text, path=path, want=want))
    return found


def _compare(
    tokenizer: Mapping[int, str],
    config: Mapping[int, str],
    paths: Mapping[str, str],
    table: TokenTable,
) -> None:
    """Refuse an id with two texts, and a text with two ids, across the files."""
    ids = {text: number for number, text in tokenizer.items()}
    clashes = []
    for number, text in config.items():
        other = tokenizer.get(number, text)
        if other != text:
            clashes.append(f"{number} is {other} in {TOKENIZER} and {text} in {CONFIG}")
        elif ids.get(text, number) != number:
            clashes.append(f"{text} is {ids[text]} in {TOKENIZER} and {number} in {CONFIG}")
    if clashes:
        what = f"the tokenizer files disagree: {name_some(clashes)}"
        where = f"against {paths[TOKENIZER]}"
        table.problems.append(NinferError(what, path=paths[CONFIG], where=where))
