"""How many drafts stand in every round, in a run and in the recorded one on the same items."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass
class Acceptance:
    """`standing[i]` counts the rounds, of `rounds`, in which more than i drafts stood."""

    drafts: int
    rounds: int = 0
    standing: list[int] = field(default_factory=list)

    def add(self, accepted: int) -> None:
        """Count a round."""
        counts = self.standing or [0] * self.drafts
        self.rounds += 1
        self.standing = [count + (accepted > i) for i, count in enumerate(counts)]

    @property
    def shares(self) -> list[float]:
        return [count / self.rounds for count in self.standing]


def replay(reach: str, drafts: int) -> Iterator[int]:
    """Yield the accepted drafts of every round of a recorded reply.

    `reach` has a digit for each token of the reply: how many drafts made from it continue the
    reply; those past its end do not. The first round starts at the first token.
    """
    position = 0
    while position < len(reach) - 1:
        accepted = min(int(reach[position]), drafts)
        yield accepted
        position += accepted + 1


@dataclass
class Reply:
    """A reply that grows round by round until an end token or `longest` tokens.

    What rounds brought past its end is dropped, and counts as drafts that did not stand: the
    recorded count is the same. `accepted` has an entry for each round with drafts, which is each
    but the first.
    """

    longest: int
    ends: Collection[int]
    tokens: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def extend(self, new: Sequence[int]) -> bool:
        """Take the tokens of a round; return whether the reply is over."""
        room = self.longest - len(self.tokens)
        kept = [i + 1 for i, token in enumerate(new) if token in self.ends]
        count = min([*kept, len(new), room])
        if self.tokens:
            self.accepted.append(min(len(new) - 1, count))
        self.tokens += new[:count]
        return count == room or (bool(self.tokens) and self.tokens[-1] in self.ends)
