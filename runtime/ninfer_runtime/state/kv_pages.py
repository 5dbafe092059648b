"""Ownership of key/value pages: plain bookkeeping on the host."""

from __future__ import annotations

from ninfer_formats.errors import NinferError


class PagePool:
    """Pages 0 .. count-1, each owned by nobody or by a number of holders; the prefix cache may
    keep a page beside these. `idle` counts pages that it alone has."""

    def __init__(self, count: int) -> None:
        self._holders = [0] * count
        self._kept = [False] * count
        self._free = list(range(count - 1, -1, -1))
        self.idle = self.kept = 0

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def available(self) -> int:
        """How many pages requests can have: those that are free or kept for no other reason than
        that nobody needed them."""
        return self.free + self.idle

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
            self.idle -= self.is_idle(page)
            self._holders[page] += 1

    def give_back(self, pages: list[int]) -> None:
        """Remove one holder from each page; a page without holders is free, or idle."""
        for page in pages:
            self._holders[page] -= 1
            if not self._holders[page]:
                if self._kept[page]:
                    self.idle += 1
                else:
                    self._free.append(page)

    def is_idle(self, page: int) -> bool:
        return self._kept[page] and not self._holders[page]

    def keep(self, page: int) -> None:
        """Keep a page that has a holder."""
        self._kept[page] = True
        self.kept += 1

    def let_go(self, page: int) -> None:
        """Keep a page no more; it is free if it has no holder."""
        self.idle -= self.is_idle(page)
        self._kept[page] = False
        self.kept -= 1
        if not self._holders[page]:
            self._free.append(page)
