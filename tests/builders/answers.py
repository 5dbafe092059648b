"""What one call of the command line gave."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """Exit code, standard output and standard error of one call."""

    code: int
    out: str
    err: str

    @property
    def record(self) -> Any:
        return json.loads(self.out)

    @property
    def failure(self) -> str:
        """The last line: every failure is exactly one, after the notices of the way there."""
        return self.err.splitlines()[-1]
