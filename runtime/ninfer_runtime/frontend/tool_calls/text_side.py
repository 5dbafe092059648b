"""Text of an answer between its calls: blank space beside them, and tags that a cut would make."""

from __future__ import annotations

_WRITTEN = (
    "<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>",
    "<function_calls>", "</function_calls>",
)  # fmt: skip
_LONGEST = max(map(len, _WRITTEN))


class TextSide:
    """Holds blank space until it is known what follows. Beside calls it only separates texts:
    none of it is left before the first text and behind the last."""

    def __init__(self) -> None:
        self._blank: list[str] = []
        self._behind: list[str] = []
        self._beside_call = False
        self._begun = False

    def add(self, text: str) -> str:
        """Return what is certain now."""
        kept = text.rstrip()
        trailing = text[len(kept) :]
        if not kept:
            (self._behind if self._beside_call else self._blank).append(trailing)
            return ""
        if self._beside_call:
            kept = self._separate(kept)
        blank = "".join(self._blank)
        self._blank = [trailing]
        self._begun, self._beside_call = True, False
        return blank + kept

    def mark(self) -> None:
        """A call stands here."""
        self._beside_call = True

    def finish(self) -> str:
        return "" if self._beside_call else "".join(self._blank)

    def _separate(self, text: str) -> str:
        """Put one of the blank stretches around the calls between the texts, the first if any."""
        body = text.lstrip()
        behind = "".join(self._behind) + text[: len(text) - len(body)]
        if not self._begun:
            self._blank = []
        elif not any(self._blank):
            self._blank = [behind]
        self._behind = []
        return body


class SeamGuard:
    """Where a tag was taken out, the text on either side may make another: its second half goes
    too. Every other text passes."""

    def __init__(self) -> None:
        self._tail = ""
        self._edge = ""
        self._held = ""

    def seam(self) -> None:
        """A tag was taken out here."""
        tail = self._tail[self._tail.rfind("<") :] if "<" in self._tail else ""
        begins = any(tag.startswith(tail) and tag != tail for tag in _WRITTEN)
        if tail and begins and not self._held:
            self._edge = tail

    def add(self, text: str) -> str:
        if self._edge:
            text = self._hold(text)
        self._tail = (self._tail + text[-_LONGEST:])[-_LONGEST:]
        return text

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held

    def _hold(self, text: str) -> str:
        self._held += text
        rests = [tag[len(self._edge) :] for tag in _WRITTEN if tag.startswith(self._edge)]
        while (rest := next((r for r in rests if self._held.startswith(r)), None)) is not None:
            self._held = self._held[len(rest) :]
        if any(rest.startswith(self._held) for rest in rests):
            return ""
        text, self._held, self._edge = self._held, "", ""
        return text
