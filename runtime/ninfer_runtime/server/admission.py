"""How many requests may be here at once."""

from __future__ import annotations

from ninfer_runtime.server.api_error import ApiError

RETRY_SECONDS = 5


class Admission:
    """Counts requests from their start to their end: `lanes` have one, `pending` wait."""

    def __init__(self, lanes: int, pending: int) -> None:
        self._lanes, self._pending = lanes, pending
        self.present = 0

    def enter(self, count: int) -> None:
        """Count requests in; ApiError 429, counting none, when that is too many."""
        most = self._lanes + self._pending
        if self.present + count > most:
            message = (
                f"the server is busy: {self.present} requests are running or waiting, and there is "
                f"room for {most} (--max-concurrency and --max-pending-requests)"
            )
            raise ApiError(429, message, "server_overloaded", retry_after=RETRY_SECONDS)
        self.present += count

    def leave(self) -> None:
        self.present -= 1
