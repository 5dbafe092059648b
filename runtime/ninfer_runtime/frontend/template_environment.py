"""The sandbox chat templates run in: the functions they need, within a budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from ninfer_runtime.frontend.template_budget import Budget, check_format, check_widths

BUDGET = "_ninfer_budget"
_WIDTH_FILTERS = ("center", "indent", "wordwrap", "truncate", "batch", "slice", "format")


class TemplateRefusalError(Exception):
    """The template called `raise_exception`."""


class _Guard(Extension):
    """Keeps `{% generation %}` blocks as they are, and offers the checks that nodes call."""

    tags = {"generation"}  # noqa: RUF012, a name of the library

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)

    def tick(self, context: Context) -> str:
        _budget(context).check_time()
        return ""

    def bound(self, context: Context, text: str) -> str:
        _budget(context).check_size(len(text))
        return text


class _GuardCalls(NodeTransformer):
    """Makes every turn of a loop look at the time and every `~` at the size."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("tick", node.lineno), lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        self.generic_visit(node)
        return _call("bound", node.lineno, node)


def _call(name: str, line: int, *arguments: nodes.Expr) -> nodes.Call:
    function = nodes.ExtensionAttribute(_Guard.identifier, name, lineno=line)
    context = nodes.ContextReference(lineno=line)
    return nodes.Call(function, [context, *arguments], [], None, None, lineno=line)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """What chat templates are written for: trimmed blocks, loop controls, `raise_exception`,
    `strftime_now`, and a `tojson` that keeps characters as they are."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Guard, loopcontrols])
        self.filters["tojson"] = _to_json
        for name in _WIDTH_FILTERS:
            self.filters[name] = _limit_widths(self.filters[name])
        self.globals["raise_exception"] = _refuse
        self.globals["strftime_now"] = _format_now
        self.globals["namespace"] = _PlainNamespace

    def compile_guarded(self, source: str, name: str) -> jinja2.Template:
        """Compile a template whose loops and joins look at the budget of the rendering."""
        tree = _GuardCalls().visit(self.parse(source, name, name))
        code = self.compile(tree, name, name)
        return jinja2.Template.from_code(self, code, self.make_globals(None))

    def call(self, context: Context, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = _budget(context)
        budget.check_time()
        owner = getattr(callee, "__self__", None)
        if isinstance(owner, str):
            check_widths((*args, *kwargs.values()))
        return super().call(context, callee, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def limited(*args: Any, **kwargs: Any) -> str:
            check_format(value.__self__, (*args, *kwargs.values()))
            return wrapped(*args, **kwargs)

        return limited

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = _budget(context)
        budget.check_operands(operator, left, right)
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, str | list | tuple):
            budget.check_size(len(result))
        return result


class _PlainNamespace(Namespace):
    """A namespace without names that begin with an underscore."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise TypeError(f"a namespace cannot have {name}")
        super().__setitem__(name, value)


def _budget(context: Context) -> Budget:
    # `parent` is what rendering was given; the template's own variables lie elsewhere.
    return context.parent[BUDGET]


def _limit_widths(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def limited(*arguments: Any, **named: Any) -> Any:
        check_widths((*arguments, *named.values()))
        if arguments and function is FILTERS["format"]:
            check_format(str(arguments[0]))
        return function(*arguments, **named)

    return limited


def _refuse(message: str) -> None:
    raise TemplateRefusalError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _format_now(format: str) -> str:
    return datetime.now().strftime(format)
