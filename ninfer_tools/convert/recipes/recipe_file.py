"""The file of a recipe, and its mistakes as one line (rules V-80, V-87 and V-88)."""

from __future__ import annotations

import hashlib
import inspect
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninfer_formats.errors import NinferError, UsageError, printable
from ninfer_tools.convert.regular_file import read_regular

DEFAULT_FUNCTION = "configure"
_MOST_TEXT = 400
_MAX_BYTES = 10_000_000


class RecipeError(UsageError):
    """A recipe cannot be read, or its code fails; `where` is the line."""


@dataclass(frozen=True)
class RecipeFile:
    """The file of a recipe as it was read, and the function to call."""

    path: Path
    function: str
    text: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text).hexdigest()

    def as_record(self) -> dict[str, str]:
        """Return what artifacts say of it: no folder, so that equal conversions stay equal."""
        name = printable(self.path.name)
        return {"file": name, "function": self.function, "sha256": self.sha256}


def read_recipe(text: str) -> RecipeFile:
    """Return the recipe `FILE.py[:func]`; RecipeError when it cannot be read."""
    name, sign, function = text.rpartition(":")
    if not sign or text.endswith(".py"):
        name, function = text, DEFAULT_FUNCTION
    if not name.endswith(".py") or not function.isidentifier():
        raise RecipeError("--recipe is not understood", got=text, want="FILE.py[:FUNCTION]")
    try:
        return RecipeFile(Path(name), function, read_regular(Path(name), _MAX_BYTES))
    except UsageError as error:
        raise RecipeError(error.what, path=name, got=error.got, want=error.want) from None


def refuse_unrun(result: Any) -> None:
    """Raise UsageError when what a function returned shows that its body has not run."""
    if inspect.isgenerator(result) or inspect.iscoroutine(result) or inspect.isasyncgen(result):
        if not inspect.isasyncgen(result):
            result.close()
        raise UsageError(
            "the function is async or a generator, so that nothing in it runs",
            want="def, without async and yield",
        )


def read_divisor(value: Any) -> float:
    """Return a divisor that a recipe gives; UsageError for what is no number, bool among it."""
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise UsageError("divisor is no number", got=repr(value)[:80])
    return float(number)


def explain(error: BaseException, path: Path, parameter: str | None = None) -> RecipeError:
    """Return the error as one line that names the last line of the recipe that was running.

    `parameter` is the one whose rows were computed, when it happened.
    """
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    places = [f"line {lines[-1]}"] if lines else []
    where = ", ".join([*places, *([parameter] if parameter else [])]) or None
    if isinstance(error, NinferError):
        what = f"{error.where}: {error.what}" if error.where else error.what
        facts = {"got": error.got, "want": error.want, "remedy": error.remedy}
        return RecipeError(what, path=path, where=where, **facts)
    text = f"{type(error).__name__}: {_describe(error)}"
    return RecipeError(text, path=path, where=where)


def _describe(error: BaseException) -> str:
    """Return an error's text; its class is the recipe's, and may fail at this too."""
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        return " ".join(text.split())[:_MOST_TEXT]
    except Exception:
        return "(it cannot say what)"
