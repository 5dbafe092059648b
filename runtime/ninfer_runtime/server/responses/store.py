"""Responses that are kept in memory for a while, to read them again or to go on with them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninfer_runtime.server.api_error import ApiError

_NODE_BYTES = 64  # what an object costs beside its text
_LINK_BYTES = 8

Item = Mapping[str, Any]


@dataclass(frozen=True)
class KeptResponse:
    """`input` are all items the model saw, those of earlier responses first; `response` is the
    object that was answered."""

    response: Mapping[str, Any]
    input: tuple[Item, ...]

    @property
    def items(self) -> tuple[Item, ...]:
        """The conversation so far."""
        return (*self.input, *self.response["output"])


class ResponseStore:
    """Keeps up to `records` responses of together `limit` bytes, the least lately used go first.

    Responses of one conversation share its items, which are counted once: none needs another to
    be there still.
    """

    def __init__(self, records: int, limit: int) -> None:
        self._records, self._limit = records, limit
        self._kept: OrderedDict[str, KeptResponse] = OrderedDict()
        self._holders: dict[int, list[int]] = {}  # by identity of an item: holders, bytes
        self._items: dict[str, Item] = {}  # by id, which clients may have given twice
        self._bytes = 0

    @property
    def bytes(self) -> int:
        return self._bytes

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, id: str, param: str | None = None) -> KeptResponse:
        """Return a response; ApiError 404 when it is not, or not any more, there."""
        found = self._kept.get(id)
        if found is None:
            message = (
                f"response {id[:100]!r} is not here: it was never kept (store: false), was "
                "deleted, made room for newer ones, or the server was started again"
            )
            raise ApiError(404, message, "response_not_found", param)
        self._kept.move_to_end(id)
        return found

    def find_item(self, id: str) -> Item | None:
        """Return an item of any response by its id, None when there is none."""
        return self._items.get(id)

    def keep(self, kept: KeptResponse) -> None:
        """Keep a response, as long as there is room, in the place of one of its id."""
        name = kept.response["id"]
        if name in self._kept:
            self._forget(self._kept.pop(name))
        self._kept[name] = kept
        for item in kept.items:
            holders = self._holders.setdefault(id(item), [0, measure(item)])
            self._bytes += holders[1] if holders[0] == 0 else 0
            holders[0] += 1
            self._items[item["id"]] = item
        self._bytes += self._own_bytes(kept)
        while self._kept and (len(self._kept) > self._records or self._bytes > self._limit):
            self._forget(self._kept.popitem(last=False)[1])

    def delete(self, id: str) -> None:
        """Forget a response; ApiError 404 when it is not there."""
        self._forget(self.find(id))
        del self._kept[id]

    def _forget(self, kept: KeptResponse) -> None:
        self._bytes -= self._own_bytes(kept)
        for item in kept.items:
            holders = self._holders[id(item)]
            holders[0] -= 1
            if holders[0] == 0:
                self._bytes -= holders[1]
                del self._holders[id(item)]
                if self._items.get(item["id"]) is item:
                    del self._items[item["id"]]

    def _own_bytes(self, kept: KeptResponse) -> int:
        """Return the bytes of what a response does not share."""
        own = {name: value for name, value in kept.response.items() if name != "output"}
        return measure(own) + _LINK_BYTES * len(kept.items)


def measure(value: Any) -> int:
    """Return about how many bytes a JSON value takes."""
    size, rest = 0, [value]
    while rest:
        one = rest.pop()
        size += _NODE_BYTES
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, Mapping):
            rest += [*one.keys(), *one.values()]
        elif isinstance(one, Sequence):
            rest += one
    return size
