"""One answer while it comes: its text, where its reasoning ends, and what the engine must do."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ninfer_runtime.engine.request import STOP, Step, TokenScore
from ninfer_runtime.frontend.stop_strings import StopStrings
from ninfer_runtime.frontend.text_stream import TextStream
from ninfer_runtime.frontend.tokenizer import Tokenizer
from ninfer_runtime.server.engine_process.grammar import AnswerMask, Matcher
from ninfer_runtime.server.engine_process.messages import WatchedAnswer
from ninfer_runtime.server.engine_process.reasoning_mark import ReasoningMark
from ninfer_runtime.server.events import ScoredToken
from ninfer_runtime.server.thinking_limit import SHORT_CLOSE_TEXT


@dataclass(frozen=True)
class Turn:
    """The answer has `keep` tokens, and goes on under `mask`; with `stop` it ends there, and the
    text of its first `shown` tokens came out whole."""

    keep: int
    mask: AnswerMask | None = None
    stop: str | None = None
    shown: int | None = None


@dataclass(frozen=True)
class Reading:
    """What the tokens of a step said; tokens past `turn.keep` count for nothing."""

    text: str
    scores: tuple[ScoredToken, ...]
    turn: Turn | None


class AnswerWatch:
    """Reads an answer token by token. `tokens` counts those that stand, `reasoning` those of them
    up to `</think>`; `closed_at` says at how many the reasoning was closed early."""

    def __init__(
        self,
        watched: WatchedAnswer,
        tokenizer: Tokenizer,
        vocabulary: int,
        matcher: Matcher | None = None,
    ) -> None:
        self._watched, self._tokenizer, self._vocabulary = watched, tokenizer, vocabulary
        self._matcher = matcher
        self._stream = TextStream(tokenizer, skip_special=True)
        self._mark = ReasoningMark(watched.thinking)
        self._stops = StopStrings(watched.stop)
        self._scores = _ScoreQueue(tokenizer)
        self._mask: AnswerMask | None = None
        self._beside_mark = ""
        # Where tokens of the answer end, in its characters: from the last one that came out on.
        self._ends: deque[tuple[int, int]] = deque([(0, 0)])
        self.tokens = self.reasoning = 0
        self.closed_at: int | None = None
        if watched.thinking is not True and matcher is not None:
            self._mask = AnswerMask(0, (), matcher, vocabulary)

    @property
    def first_mask(self) -> AnswerMask | None:
        """What the answer must match from its first token on."""
        return self._mask

    @property
    def masked(self) -> bool:
        """Whether tokens come one by one, under a mask."""
        return self._mask is not None

    @property
    def in_reasoning(self) -> bool:
        return self._mark.inside

    def read(self, step: Step) -> Reading:
        """Read the tokens of a step; nothing may be read past a turn of which it was the reason."""
        parts: list[str] = []
        turn = None
        for index, token in enumerate(step.tokens):
            self.tokens += 1
            last = index + 1 == len(step.tokens)
            if last and step.finish == STOP:
                turn = self._read_stop()
                break
            score = step.scores[index] if step.scores else None
            turn = self._read_token(token, score, parts)
            if turn is not None:
                break
        return Reading("".join(parts), self._scores.release(), turn)

    def finish(self) -> Reading:
        """Return what was held: no more tokens come."""
        parts: list[str] = []
        turn = self._take(self._stream.finish(), parts)
        if turn is None:
            turn = self._scan(self._mark.finish(), parts)
        if turn is None:
            parts.append(self._stops.finish())
            self._scores.sent = self._scores.seen + 1
        return Reading("".join(parts), self._scores.release(), turn)

    def _read_stop(self) -> Turn | None:
        """Count a stop id. Inside the reasoning of an answer that must match something it does not
        count: the reasoning is closed in its place, and the answer follows."""
        if self._mark.inside and self._matcher is not None and self._mask is None:
            self.tokens -= 1
            self.closed_at = self.reasoning
            return self._restrict(tuple(self._tokenizer.encode(SHORT_CLOSE_TEXT)))
        self.reasoning += self._mark.inside
        return None

    def _read_token(self, token: int, score: TokenScore | None, parts: list[str]) -> Turn | None:
        was_behind = self._mark.behind
        self._scores.begin(token, score)
        turn = self._take(self._stream.push((token,)), parts)
        if not was_behind and not self._mark.behind:
            self.reasoning = self.tokens if self._mark.inside else 0
        return turn or self._judge(was_behind)

    def _take(self, text: str, parts: list[str]) -> Turn | None:
        was_inside = self._mark.inside
        outside, answer = self._mark.push(text)
        parts.append(outside)
        if outside and self._mark.behind:
            self.reasoning = self.tokens
            self._beside_mark = answer
        if was_inside or outside:
            self._scores.leave_out(behind=self._mark.behind)
        return self._scan(answer, parts)

    def _scan(self, answer: str, parts: list[str]) -> Turn | None:
        text = self._stops.push(answer)
        self._scores.advance(answer, len(text))
        parts.append(text)
        self._ends.append((self._scores.seen, self.tokens))
        while len(self._ends) > 1 and self._ends[1][0] <= self._scores.sent:
            self._ends.popleft()
        found = self._stops.found
        return None if found is None else Turn(self.tokens, stop=found, shown=self._ends[0][1])

    def _judge(self, was_behind: bool) -> Turn | None:
        """Return what changes after this token."""
        if self._mask is not None:
            if self.tokens == self._mask.forced_until and not self._mask.constrains:
                self._mask = None
                return Turn(self.tokens)
            return None
        if self._mark.behind and not was_behind and self._matcher is not None:
            return self._restrict(self._begin_constrained(self._matcher))
        limit = self._watched.limit
        if self._mark.inside and limit is not None and self.reasoning >= limit:
            self.closed_at = self.reasoning
            return self._restrict(self._watched.close)
        return None

    def _restrict(self, forced: tuple[int, ...]) -> Turn:
        self._mask = AnswerMask(self.tokens, forced, self._matcher, self._vocabulary)
        return Turn(self.tokens, self._mask)

    def _begin_constrained(self, matcher: Matcher) -> tuple[int, ...]:
        """Return the blank line between reasoning and answer, as the model was trained to write
        it, unless the token that ended the reasoning went on. RequestError if it went astray."""
        if not self._beside_mark:
            return tuple(self._tokenizer.encode("\n\n"))
        matcher.consume(self._tokenizer.encode(self._beside_mark.lstrip()))
        return ()


class _ScoreQueue:
    """Scores of tokens of the answer, until their text is sent; those of a stop string never are.
    Tokens of the reasoning, and blank ones behind it, have none."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._queue: deque[tuple[int, ScoredToken]] = deque()
        self._blank = False
        self.seen = self.sent = 0

    def begin(self, token: int, score: TokenScore | None) -> None:
        if score is not None:
            read = self._tokenizer.token_bytes
            top = tuple((read(id), value) for id, value in score.top)
            self._queue.append((self.seen, ScoredToken(read(token), score.logprob, top)))

    def leave_out(self, *, behind: bool) -> None:
        """No token so far is one of the answer, at whose beginning blank space goes too."""
        self._blank = behind
        self._queue.clear()

    def advance(self, text: str, sent: int) -> None:
        if self._blank and text:
            self._blank = not text.strip()
            if self._blank:
                self._queue.clear()
        self.seen += len(text)
        self.sent += sent

    def release(self) -> tuple[ScoredToken, ...]:
        ready = []
        while self._queue and self._queue[0][0] < self.sent:
            ready.append(self._queue.popleft()[1])
        return tuple(ready)
