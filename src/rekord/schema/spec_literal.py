"""Literals of a Python file, read from its syntax: nothing is imported and nothing runs."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekord.errors import RekordError, error
from rekord.location import Location

MOST_ENTRIES = 100_000
LARGEST = 1 << 63

_MOST_STEPS = 1_000_000  # a few lines can double something fifty times
_DEEPEST = 50  # names that lead to names, and expressions in expressions
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True, slots=True)
class Event:
    """What a statement does to a name: binds it to a value, puts one item into it, or merges a dict into it."""

    value: ast.expr | None  # None where the syntax alone does not say it
    line: int
    conditional: bool = False
    item: ast.expr | None = None
    merges: bool = False
    what: str = ""  # what it is, where there is no value


@dataclass(frozen=True, slots=True)
class Scope:
    """The names of a module or of a function, and of what stands around it."""

    path: str
    names: Mapping[str, Sequence[Event]] = field(default_factory=dict)
    outer: Scope | None = None
    steps_left: list[int] = field(default_factory=lambda: [_MOST_STEPS], compare=False)

    def within(self, names: Mapping[str, Sequence[Event]]) -> Scope:
        """A scope inside this one, which shares the work that may be done."""
        return Scope(self.path, names, self, self.steps_left)

    def find(self, name: str) -> tuple[Sequence[Event], Scope] | None:
        """What happens to a name, and where."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name], scope
            scope = scope.outer
        return None


def constant(node: ast.expr, scope: Scope, depth: int = 0) -> Any:
    """A number, a text, None, or a tuple of such (a list becomes one)."""
    check_depth(node, scope, depth)
    node, scope = resolved(node, scope, depth)
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple)):
        return tuple([constant(each, scope, depth + 1) for each in node.elts])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = constant(node.operand, scope, depth + 1)
        if isinstance(value, (int, float)):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _computed(node, scope, depth)
    if isinstance(node, ast.Call) and last_name(node.func) in ("list", "tuple") and len(node.args) == 1:
        value = constant(node.args[0], scope, depth + 1)
        if isinstance(value, tuple):
            return value
    raise not_literal(node, scope, described(node))


def _computed(node: ast.BinOp, scope: Scope, depth: int) -> Any:
    left, right = constant(node.left, scope, depth + 1), constant(node.right, scope, depth + 1)
    numbers = type(left) is int and type(right) is int
    joined = isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, (str, tuple))
    if joined and len(left) + len(right) <= MOST_ENTRIES:
        return left + right
    # Small numbers only: what a hostile file could make of powers and products has no end.
    if (
        numbers
        and abs(left) < LARGEST
        and abs(right) < LARGEST
        and not (isinstance(node.op, ast.FloorDiv) and right == 0)
    ):
        return _OPERATORS[type(node.op)](left, right)
    raise not_literal(node, scope, "a calculation with something else than whole numbers")


def resolved(node: ast.expr, scope: Scope, depth: int = 0) -> tuple[ast.expr, Scope]:
    """The expression that a name stands for, and the scope in which it is to be read."""
    seen = 0
    while isinstance(node, ast.Name):
        found = scope.find(node.id)
        if found is None:
            return node, scope
        events, where = found
        if all(event.what == "an import" for event in events):
            return node, scope
        if len(events) != 1:
            raise not_literal(events[1], where, f"`{node.id}`, bound more than once")
        node, scope = value_of(events[0], node, where), where
        seen += 1
        check_depth(node, scope, depth + seen)
    return node, scope


def events_of(node: ast.Name, scope: Scope) -> tuple[Sequence[Event], Scope]:
    """What happens to a name that must be bound somewhere in the file, and where."""
    found = scope.find(node.id)
    if found is None:
        raise not_literal(node, scope, f"`{node.id}`, which this file does not bind")
    return found


def value_of(event: Event, node: ast.Name, scope: Scope) -> ast.expr:
    """The value of an event, which the syntax must say."""
    if event.value is None:
        raise not_literal(event, scope, f"`{node.id}`, {event.what}")
    return event.value


def last_name(node: ast.AST) -> str | None:
    """`FixedLenFeature` of `tf.io.FixedLenFeature`, or of a bare name; None for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def described(node: ast.AST) -> str:
    """What an expression is, in a few words of the file's own text."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        text = type(node).__name__
    return f"`{text}`" if len(text) <= 50 else f"`{text[:49]}…`"


def check_depth(node: ast.AST, scope: Scope, depth: int) -> None:
    """Refuse what has no end."""
    scope.steps_left[0] -= 1
    if depth > _DEEPEST or scope.steps_left[0] < 0:
        raise not_literal(node, scope, "names or expressions that lead too deep, or in a circle")


def not_literal(node: ast.AST | Event, scope: Scope, what: str) -> RekordError:
    """The error for what the syntax alone does not say."""
    line = node.line if isinstance(node, Event) else getattr(node, "lineno", None)
    return error(
        "S134",
        "a tf.io spec is read from the syntax alone, and this part of it only running would tell",
        location=Location(path=scope.path, line=line),
        expected="literals: texts, numbers, lists, tf.io features, and names that are bound to such",
        found=what,
        do="write it as a literal, or give --schema FILE",
    )
