"""What an answer must match, as sets of tokens: the bridge to llguidance."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ninfer_runtime.errors import RequestError
from ninfer_runtime.frontend.tokenizer import Tokenizer
from ninfer_runtime.server.requests import Constraint

# A grammar's text; what is longer was not written by hand, and llguidance's own limits follow.
MAX_TEXT = 1 << 20
# Between the parts of a JSON text: without a bound, small models never stop indenting.
BLANK = r"[ \t]|\r?\n[ \t]{0,16}"
KINDS = ("json_object", "json_schema", "regex", "lark", "gbnf")


class Grammars:
    """Compiles constraints for one tokenizer; `vocabulary` counts the model's ids."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        import llguidance

        source = _TokenSource(tokenizer, vocabulary)
        self.vocabulary = vocabulary
        self.stops = tokenizer.stops
        self._tokens = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(source), n_vocab=vocabulary, eos_token=list(tokenizer.stops)
        )

    def compile(self, constraint: Constraint) -> Matcher:
        """Return a matcher at the beginning of an answer; RequestError for what is no grammar.

        Takes up to some hundred milliseconds, in which other threads run.
        """
        import llguidance

        if constraint.kind not in KINDS:
            raise RequestError(
                "constraint is of an unknown kind", got=constraint.kind, want=", ".join(KINDS)
            )
        if len(constraint.text) > MAX_TEXT:
            raise RequestError(
                "grammar is too long", got=f"{len(constraint.text)} characters", want=MAX_TEXT
            )
        limits = llguidance.LLParserLimits(verbose_errors=False)
        try:
            grammar = _translate(constraint)
            matcher = llguidance.LLMatcher(self._tokens, grammar, log_level=0, limits=limits)
        except BaseException as error:  # a panic in the library is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | RequestError):
                raise
            raise _refuse(constraint, f"{type(error).__name__}: {error}") from None
        if matcher.is_error():
            raise _refuse(constraint, matcher.get_error())
        found = Matcher(matcher, self.vocabulary)
        try:
            found.probe()
        except RequestError as error:
            raise _refuse(constraint, str(error)) from None
        return found


class Matcher:
    """An answer under way, and the tokens that may come next."""

    def __init__(self, matcher: Any, vocabulary: int) -> None:
        self._matcher, self._words = matcher, -(-vocabulary // 32)

    def probe(self) -> None:
        """Try two tokens on a copy: a grammar of too much effort is only found out as it is used.
        RequestError says so."""
        copy = Matcher(self._matcher.deep_copy(), self._words * 32)
        for _ in range(2):
            words = copy.mask()
            place = int(words.ne(0).int().argmax())
            word = int(words[place]) & 0xFFFFFFFF
            if not word or copy._matcher.is_stopped():
                return
            copy.consume((place * 32 + (word & -word).bit_length() - 1,))
        copy.mask()

    def consume(self, tokens: Sequence[int]) -> None:
        """Move on; RequestError for a token that may not come."""
        if tokens and not _shield(lambda: self._matcher.consume_tokens(list(tokens))):
            raise RequestError(f"the answer left its grammar: {_first_line(self._matcher)}")

    def mask(self) -> torch.Tensor:
        """Return int32 [ceil(V / 32)], a bit for every token; RequestError when the grammar takes
        more effort than it may."""
        words = torch.zeros(self._words, dtype=torch.int32)
        place, size = words.data_ptr(), words.numel() * 4
        _shield(lambda: self._matcher.unsafe_compute_mask_ptr(place, size))
        if self._matcher.is_error():
            raise RequestError(f"the grammar cannot go on: {_first_line(self._matcher)}")
        return words


class AnswerMask:
    """The mask of a request: tokens that must come, then what the grammar permits.

    `begin` counts the tokens before the first one that is masked. Without a grammar, nothing may
    be asked past the forced tokens: take the mask away then.
    """

    def __init__(
        self, begin: int, forced: Sequence[int], matcher: Matcher | None, vocabulary: int
    ) -> None:
        self._free, self._forced, self._matcher = begin + len(forced), tuple(forced), matcher
        self._begin, self._vocabulary, self._consumed = begin, vocabulary, begin + len(forced)

    @property
    def forced_until(self) -> int:
        """How many tokens there are when the last forced one has come."""
        return self._free

    @property
    def constrains(self) -> bool:
        """Whether there is anything to say after the forced tokens."""
        return self._matcher is not None

    def __call__(self, emitted: Sequence[int]) -> torch.Tensor:
        if len(emitted) < self._free:
            return _single(self._forced[len(emitted) - self._begin], self._vocabulary)
        if self._matcher is None:
            return torch.full((-(-self._vocabulary // 32),), -1, dtype=torch.int32)
        self._matcher.consume(emitted[self._consumed :])
        self._consumed = len(emitted)
        return self._matcher.mask()


def grammars_available() -> bool:
    return importlib.util.find_spec("llguidance") is not None


def _shield(act: Callable[[], Any]) -> Any:
    """Return what the library returns. RequestError for a panic in it, which is no Exception and
    would end every request instead of one."""
    try:
        return act()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise RequestError(f"the grammar library failed: {type(error).__name__}: {error}") from None


def _first_line(matcher: Any) -> str:
    return next(iter(matcher.get_error().splitlines()), "no reason given")


class _TokenSource:
    """The tokenizer as llguidance asks for it. Only special tokens are apart from text: the others
    that are spelled in brackets, `<tool_call>` among them, are written by answers."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        self._encode: Callable[[str], list[int]] = tokenizer.encode
        self._literal: Callable[[str], list[int]] = tokenizer.encode_literal
        self._special = [text for text, id in tokenizer.added.items() if id in tokenizer.special]
        self.eos_token_id = tokenizer.stops[0]
        self.bos_token_id = None
        self.tokens = [tokenizer.token_bytes(id) for id in range(vocabulary)]
        self.special_token_ids = sorted(tokenizer.special | set(tokenizer.stops))

    def __call__(self, text: str | bytes) -> list[int]:
        plain = text if isinstance(text, str) else text.decode("utf-8", "replace")
        spelled = any(special in plain for special in self._special)
        return self._literal(plain) if spelled else self._encode(plain)


def _translate(constraint: Constraint) -> str:
    """Return the grammar in llguidance's own form; RequestError for what has no such form."""
    import llguidance

    try:
        if constraint.kind in ("json_object", "json_schema"):
            schema = {"type": "object"}
            if constraint.kind == "json_schema":
                schema = json.loads(constraint.text)
            return llguidance.LLMatcher.grammar_from_json_schema(
                json.dumps(schema), overrides={"whitespace_pattern": BLANK}
            )
        return llguidance.grammar_from(constraint.kind, constraint.text)  # type: ignore[arg-type]
    except (ValueError, RecursionError) as error:
        raise _refuse(constraint, str(error)) from None


def _refuse(constraint: Constraint, why: str) -> RequestError:
    noun = {"json_schema": "schema", "regex": "regular expression"}.get(constraint.kind, "grammar")
    first = next((line for line in why.splitlines() if line.strip()), why)
    detail = next((line for line in why.splitlines() if line.startswith("error:")), "")
    reason = " ".join(f"{first} {detail}".split())
    return RequestError(f"the {noun} cannot be used: {reason}")


def _single(token: int, vocabulary: int) -> torch.Tensor:
    words = torch.zeros(-(-vocabulary // 32), dtype=torch.int64)
    words[token // 32] = 1 << token % 32
    return words.to(torch.int32)
