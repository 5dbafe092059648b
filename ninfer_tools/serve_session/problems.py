"""Everything that keeps a server from starting, said at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ninfer_formats.errors import ForeignFileError, NinferError


class StartProblems(NinferError):
    """One line for each of several problems; `problems` is not empty."""

    def __init__(self, problems: Sequence[NinferError]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
        if all(isinstance(problem, ForeignFileError) for problem in problems):
            self.exit_code = ForeignFileError.exit_code

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class ProblemList:
    """Collects the errors of checks that do not depend on each other."""

    def __init__(self) -> None:
        self._found: list[NinferError] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep the error that the body ends with."""
        try:
            yield
        except NinferError as error:
            self.add(error)

    def add(self, problem: NinferError) -> None:
        several = problem.problems if isinstance(problem, StartProblems) else (problem,)
        known = [str(found) for found in self._found]
        self._found += [error for error in several if str(error) not in known]

    def __len__(self) -> int:
        return len(self._found)

    def raise_any(self) -> None:
        """Raise StartProblems if there are any."""
        if self._found:
            raise StartProblems(self._found)
