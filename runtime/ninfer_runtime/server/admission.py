"""How many requests may be here at once."""

from __future__ import annotations

from ninfer_runtime.server.api_error import ApiError

RETRY_SECONDS = 5


class Admission:
    """Counts requests from their start to their end: `lanes` have one, `pending` wait; and those
    that are being prepared, beside them."""

    def __init__(self, lanes: int, pending: int) -> None:
        self._lanes, self._pending = lanes, pending
        self.present = self.preparing = 0

    def begin(self, *, counted: bool) -> None:
        """Count in a request that is to be prepared; ApiError 429 when that is too many. One that
        is only `counted` will not need room later."""
        self._check(self.preparing + (0 if counted else self.present), 1)
        self.preparing += 1

    def finish(self) -> None:
        """A request is prepared, or will never be."""
        self.preparing -= 1

    def enter(self, count: int) -> None:
        """Count requests in; ApiError 429, counting none, when that is too many."""
        self._check(self.present, count)
        self.present += count

    def _check(self, here: int, count: int) -> None:
        most = self._lanes + self._pending
        if here + count > most:
            message = (
                f"the server is busy: {here} requests are here, and there is "
                f"room for {most} (--max-concurrency and --max-pending-requests)"
            )
            raise ApiError(429, message, "server_overloaded", retry_after=RETRY_SECONDS)

    def leave(self) -> None:
        self.present -= 1
