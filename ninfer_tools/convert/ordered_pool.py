"""Work on other threads, its results in order, some ahead of whoever takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

Task = TypeVarTuple("Task")
Result = TypeVar("Result")


class OrderedPool:
    """Calls functions on `threads` threads; at most `waiting` calls more than that are ahead."""

    def __init__(self, threads: int, waiting: int, name: str) -> None:
        self._depth = threads + waiting
        self._pool = ThreadPoolExecutor(threads, name)

    def __enter__(self) -> OrderedPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def stream(
        self, work: Callable[[*Task], Result], tasks: Iterable[tuple[*Task]]
    ) -> Iterator[tuple[tuple[*Task], Result]]:
        """Yield every task and what `work` made of it, in order; raises what `work` raises."""
        left = iter(tasks)
        coming: deque[tuple[tuple[*Task], Future[Result]]] = deque()
        try:
            while True:
                while len(coming) < self._depth and (found := next(left, None)) is not None:
                    coming.append((found, self._pool.submit(work, *found)))
                if not coming:
                    return
                task, future = coming.popleft()
                yield task, future.result()
        finally:
            for _, future in coming:
                future.cancel()
