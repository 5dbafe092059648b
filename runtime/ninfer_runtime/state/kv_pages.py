"""Ownership of key/value pages: plain bookkeeping on the host."""

from __future__ import annotations

from ninfer_formats.errors import NinferError


class PagePool:
    """Pages 0 .. count-1, each owned by nobody or by a number of holders."""

    def __init__(self, count: int) -> None:
        self._holders = [0] * count
        self._free = list(range(count - 1, -1, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Return `count` pages that nobody owned; NinferError, taking none, if there are fewer."""
        if count > len(self._free):
            raise NinferError("not enough KV pages", got=len(self._free), want=count)
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            self._holders[page] = 1
        return taken

    def share(self, pages: list[int]) -> None:
        """Add one holder to each page."""
        for page in pages:
            self._holders[page] += 1

    def give_back(self, pages: list[int]) -> None:
        """Remove one holder from each page; a page without holders is free."""
        for page in pages:
            self._holders[page] -= 1
            if not self._holders[page]:
                self._free.append(page)
