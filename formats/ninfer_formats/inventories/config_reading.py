"""Typed reading of config dictionaries that may hold anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ninfer_formats.errors import NinferError
from ninfer_formats.inventories.geometry import MAX_LAYERS

# Sizes are bounded so that no arithmetic or enumeration on them can run away.
MAX_SIZE = 2**31 - 1
_REQUIRED = object()
# Numbers are held as float32: a smaller one would turn to zero there.
_LEAST_NUMBER = 1e-37


class ConfigReader:
    """Reads one dictionary; every error names the dictionary and the key.

    A `default` is taken when the key is absent or null.
    """

    def __init__(self, name: str, values: object, error: type[NinferError]) -> None:
        self._name, self._error = name, error
        if not isinstance(values, Mapping):
            raise error(
                "not a JSON object", where=name, got=type(values).__name__, want="an object"
            )
        self._values: Mapping[str, Any] = values

    def refuse(self, key: str, got: object, want: str) -> NinferError:
        """Return the error for a value that cannot be used."""
        what = "required key is missing" if got is None else "value cannot be used"
        return self._error(what, where=f"{self._name}.{key}", got=got, want=want)

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None

    def value(self, key: str, default: Any, want: str) -> Any:
        """Return the raw value of `key`, or `default` if it is absent or null."""
        found = self._values.get(key)
        if found is not None:
            return found
        if default is _REQUIRED:
            raise self.refuse(key, None, want)
        return default

    def integer(
        self, key: str, default: Any = _REQUIRED, low: int = 1, high: int = MAX_SIZE
    ) -> int:
        want = f"an integer from {low} to {high}"
        found = self.value(key, default, want)
        if not _is_integer(found) or not low <= found <= high:
            raise self.refuse(key, found, want)
        return found

    def integers(self, key: str, low: int, high: int, count: int | None = None) -> tuple[int, ...]:
        many = f"{count} integers" if count else f"1 to {MAX_LAYERS} integers"
        want = f"{many} from {low} to {high}"
        return self._items(key, want, lambda x: _is_integer(x) and low <= x <= high, count)

    def number(self, key: str, default: Any = _REQUIRED, high: float = 1e30) -> float:
        want = f"a number from {_LEAST_NUMBER:g} to {high:g}"
        found = self.value(key, default, want)
        real = isinstance(found, int | float) and not isinstance(found, bool)
        if not real or not _LEAST_NUMBER <= found <= high:
            raise self.refuse(key, found, want)
        return float(found)

    def boolean(self, key: str, default: Any = _REQUIRED) -> bool:
        found = self.value(key, default, "true or false")
        if not isinstance(found, bool):
            raise self.refuse(key, found, "true or false")
        return found

    def choices(self, key: str, allowed: tuple[str, ...], count: int) -> tuple[str, ...]:
        """Return a list of `count` strings out of `allowed`."""
        want = f"{count} of {', '.join(allowed)}"
        return self._items(key, want, lambda x: isinstance(x, str) and x in allowed, count)

    def _items(
        self, key: str, want: str, is_legal: Callable[[Any], bool], count: int | None
    ) -> tuple[Any, ...]:
        found = self.value(key, _REQUIRED, want)
        if not isinstance(found, list | tuple) or not 1 <= len(found) <= MAX_LAYERS:
            raise self.refuse(key, found, want)
        if count not in (None, len(found)) or not all(map(is_legal, found)):
            raise self.refuse(key, found, want)
        return tuple(found)

    def first_string(self, key: str) -> str | None:
        """Return the first string of a list (`architectures`), or None."""
        found = self._values.get(key)
        if isinstance(found, list | tuple) and found and isinstance(found[0], str):
            return found[0]
        return None

    def section(self, key: str) -> ConfigReader:
        found = self.value(key, _REQUIRED, "an object")
        return ConfigReader(f"{self._name}.{key}", found, self._error)


def _is_integer(value: object) -> bool:
    # True and False are ints in Python, but not in JSON.
    return isinstance(value, int) and not isinstance(value, bool)
