"""`--column NAME=TYPE`: the type of a column, as a feature type with arguments as in Python."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rekord.cli.console import escape_controls, invalid_option
from rekord.errors import RekordError, add_location, closest_match

if TYPE_CHECKING:
    from rekord.schema import Feature

_EXAMPLE = "--column zip=text --column age=float32"


def parse_columns(texts: Sequence[str] | None) -> dict[str, Feature] | None:
    """`age=float32`, `churn=label`, `vec=float32(shape=(3,))`: the declared features by column."""
    if not texts:
        return None
    found: dict[str, Feature] = {}
    for text in texts:
        name, equals, kind = text.partition("=")
        name = name.strip()
        if not equals or not name or not kind.strip():
            raise _invalid_column(text, "NAME=TYPE", text)
        if name in found:
            raise _invalid_column(text, "each column once", text)
        with add_location(feature=name):
            found[name] = parse_feature(kind.strip(), text)
    return found


def parse_feature(kind: str, text: str) -> Feature:
    """A feature type by its name, ignoring case, with arguments as in Python: `label(["cat", "dog"])`."""
    from rekord.schema.base import FEATURE_TYPES, FLOAT_DTYPES, INTEGER_DTYPES

    name, arguments, options = _parse_call(kind, text)
    types = {one.lower(): cls for one, cls in FEATURE_TYPES.items() if one != "Payload"}
    names = {one: (types["int64"], {"dtype": one}) for one in INTEGER_DTYPES}
    names |= {one: (types["float32"], {"dtype": one}) for one in FLOAT_DTYPES}
    names |= {one: (cls, {}) for one, cls in types.items()}
    if name.lower() not in names:
        known = [*types, *[one for one in names if one not in types]]
        near = closest_match(name.lower(), known)
        do = text[: text.index("=") + 1] + near if near else None
        raise _invalid_column(text, "one of " + ", ".join(known), name, do)
    cls, given = names[name.lower()]
    try:
        return cls(*arguments, **{**given, **options})
    except RekordError:
        raise
    except TypeError as failure:
        raise _invalid_column(text, f"the arguments of rk.{cls.__name__}", str(failure)) from None


def _parse_call(kind: str, text: str) -> tuple[str, list[Any], dict[str, Any]]:
    if "(" not in kind:
        return kind, [], {}
    expected = "a type with literal arguments, such as label(['cat', 'dog'])"
    try:
        call = ast.parse(kind, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError(kind)
        if any(keyword.arg is None for keyword in call.keywords):
            raise ValueError(kind)
        arguments = [ast.literal_eval(one) for one in call.args]
        options = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise _invalid_column(text, expected, kind) from None
    return call.func.id, arguments, options


def _invalid_column(text: str, expected: str, found: str, do: str | None = None) -> RekordError:
    import shlex

    shown = _EXAMPLE if do is None else f"--column {shlex.quote(escape_controls(do))}"
    return invalid_option("--column", text, expected, shown, found=found)
