"""Stop strings in a text that comes in pieces (rules FE-21 and FE-22)."""

from __future__ import annotations

from collections.abc import Sequence

MAX_STOPS = 4


class StopStrings:
    """Passes text on until a stop string is complete; nothing of it, or behind it, comes out.

    The stop string whose end comes first counts, of several that end together the longest. Only
    text that may be the beginning of one is held, so what comes out does not depend on the
    pieces. An empty stop string is the caller's error.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """Return the text that certainly belongs to the answer; nothing once a stop was found."""
        if self.found is not None:
            return ""
        self._held += text
        matches = [
            (begin + len(stop), begin, stop)
            for stop in self._stops
            if (begin := self._held.find(stop)) >= 0
        ]
        if matches:
            _, begin, self.found = min(matches)
            return self._take(begin, rest=False)
        return self._take(len(self._held) - self._overlap())

    def finish(self) -> str:
        """Return what was held: the text is at its end."""
        return "" if self.found is not None else self._take(len(self._held))

    def _take(self, count: int, *, rest: bool = True) -> str:
        text, self._held = self._held[:count], self._held[count:] if rest else ""
        return text

    def _overlap(self) -> int:
        """Return how many characters at the end of the held text may begin a stop string."""
        longest = max(map(len, self._stops), default=1) - 1
        sizes = range(min(len(self._held), longest), 0, -1)
        return next((n for n in sizes if self._begins(self._held[-n:])), 0)

    def _begins(self, text: str) -> bool:
        return any(stop.startswith(text) for stop in self._stops)
