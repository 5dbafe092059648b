"""The file of a recipe, and its mistakes as one line (rules V-80, V-87 and V-88)."""

from __future__ import annotations

import hashlib
import traceback
from dataclasses import dataclass
from pathlib import Path

from ninfer_formats.errors import NinferError, UsageError

DEFAULT_FUNCTION = "configure"
_MOST_TEXT = 400


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
        return {"file": self.path.name, "function": self.function, "sha256": self.sha256}


def read_recipe(text: str) -> RecipeFile:
    """Return the recipe `FILE.py[:func]`; RecipeError when it cannot be read."""
    name, sign, function = text.rpartition(":")
    if not sign or text.endswith(".py"):
        name, function = text, DEFAULT_FUNCTION
    if not name.endswith(".py") or not function.isidentifier():
        raise RecipeError("--recipe is not understood", got=text, want="FILE.py[:FUNCTION]")
    try:
        return RecipeFile(Path(name), function, Path(name).read_bytes())
    except OSError as error:
        raise RecipeError(f"cannot read: {error.strerror}", path=name) from None


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
