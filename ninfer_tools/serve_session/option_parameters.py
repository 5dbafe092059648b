"""Options as parameters of commands, for typer to read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from ninfer_tools.serve_session.options import ServeOptions, is_flag, option_name

_TYPES: dict[str, Any] = {"int": int, "float": float, "str": str, "Path": Path, "bool": bool}


def take_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` with an option for every field of ServeOptions in place of `**values`.

    Every one is None unless it is given: what it stands for may come from a file.
    """
    own = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    parameters = [*own, *(_make_parameter(item) for item in fields(ServeOptions))]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {item.name: item.annotation for item in parameters}
    return command


def _make_parameter(item: Field[Any]) -> inspect.Parameter:
    kind = str(item.type).removesuffix(" | None")
    several = kind.startswith("tuple")
    value: Any = list[str] if several else _TYPES[kind]
    option = typer.Option(
        *_spell(item), help=_describe(item), metavar=item.metadata["metavar"], show_default=False
    )
    return inspect.Parameter(
        item.name, inspect.Parameter.KEYWORD_ONLY, default=None,
        annotation=Annotated[value | None, option],
    )  # fmt: skip


def _spell(item: Field[Any]) -> list[str]:
    names = [f"--{name}" for name in (option_name(item.name), *item.metadata["also"])]
    if not is_flag(item.type):
        return names
    return [f"{names[0]}/--{item.metadata['negative']}"]


def _describe(item: Field[Any]) -> str:
    help, unset = item.metadata["help"], item.metadata["unset"]
    if is_flag(item.type) or item.default in ("", ()):
        return help
    if item.default is None:
        return f"{help} Default: {unset}." if unset else help
    default = f"{item.default:g}" if isinstance(item.default, float) else item.default
    return f"{help} Default: {default}."
