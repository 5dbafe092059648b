"""Lines with the seconds since the start, on standard output and in a file."""

from __future__ import annotations

import time
from pathlib import Path


class ProgressLog:
    def __init__(self, path: Path) -> None:
        self.path, self.begin = path, time.time()
        path.write_text("")

    def seconds(self) -> float:
        return time.time() - self.begin

    def __call__(self, text: str) -> None:
        line = f"[{self.seconds():6.1f}s] {text}"
        print(line, flush=True)
        with self.path.open("a") as file:
            file.write(line + "\n")
