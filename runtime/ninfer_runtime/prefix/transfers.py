"""Copies of rows between device and host, beside the device's other work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

Planes = Sequence[torch.Tensor]


class Transfers:
    """To the host on a stream of their own, back on that of all other work. On a processor they
    are plain copies."""

    def __init__(self, device: torch.device) -> None:
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._event: torch.cuda.Event | None = None

    def store(self, device: Planes, host: Planes, sources: list[int], targets: list[int]) -> None:
        """Copy device rows to host rows. `fence` before the device rows are written again."""
        if self._side is None:
            _copy_rows(device, host, sources, targets)
            return
        self._side.wait_stream(torch.cuda.current_stream(self._side.device))
        with torch.cuda.stream(self._side):
            _copy_rows(device, host, sources, targets)
            self._event = torch.cuda.Event()
            self._event.record(self._side)

    def fetch(self, host: Planes, device: Planes, sources: list[int], targets: list[int]) -> None:
        """Copy host rows to device rows, in order with the device's other work."""
        self.fence()
        _copy_rows(host, device, sources, targets)

    def fence(self) -> None:
        """Let the device's other work wait for everything stored so far; the host does not."""
        if self._event is not None and self._side is not None:
            torch.cuda.current_stream(self._side.device).wait_event(self._event)
            self._event = None


def _copy_rows(source: Planes, target: Planes, rows: list[int], places: list[int]) -> None:
    for row, place, count in find_runs(rows, places):
        for origin, copy in zip(source, target, strict=True):
            copy[place : place + count].copy_(origin[row : row + count], non_blocking=True)


def find_runs(rows: list[int], places: list[int]) -> Iterator[tuple[int, int, int]]:
    """Give (first row, first place, count) of stretches where both count up by one."""
    begin = 0
    for index in range(1, len(rows) + 1):
        whole = index < len(rows) and (
            rows[index] == rows[index - 1] + 1 and places[index] == places[index - 1] + 1
        )
        if not whole:
            yield rows[begin], places[begin], index - begin
            begin = index
