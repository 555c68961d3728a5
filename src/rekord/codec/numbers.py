"""Numbers in any form that a row may give them, gathered into one array before anything is rounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from rekord.codec.columns import Array
from rekord.codec.integers import store_ints
from rekord.codec.nested import Shape, as_array, check_shape, flat, is_text
from rekord.codec.number_rule import NumberRule, array_of_ints, is_bfloat16, require_whole
from rekord.codec.reals import WHOLE, check_survives, store_floats
from rekord.codec.unfit import Unfit, described
from rekord.schema.refuse import near_miss


def stored_numbers(value: Any, rule: NumberRule, shape: Shape) -> Array:
    """All numbers of a value of the declared shape, flat, as int64 or float32."""
    numbers, given = as_numbers(value, rule)
    check_shape(given, shape, value)
    return store(numbers, rule)


def store(numbers: Array, rule: NumberRule) -> Array:
    """Numbers that are an array already, checked and as they are stored."""
    return store_floats(numbers, rule) if rule.floats else store_ints(numbers, rule)


def as_numbers(value: Any, rule: NumberRule) -> tuple[Array, tuple[int, ...]]:
    """A value as a flat array of numbers, nothing of which has been rounded yet, and its shape."""
    array = None if is_text(value) else as_array(value)
    if array is None and isinstance(value, (list, tuple)):
        array = _plain_list(value, rule)
    if array is not None and (array.dtype.kind in "biuf" or is_bfloat16(array)):
        return array.ravel(), array.shape
    leaves, given = flat(value)
    return _from_leaves(leaves, rule), given


def _plain_list(value: Any, rule: NumberRule) -> Array | None:
    """A list as NumPy reads it, where that cannot have changed a number."""
    try:
        array = np.array(value)
    except (ValueError, TypeError, OverflowError):
        return None  # ragged, or no numbers: the leaves will tell
    if array.size == 0:
        return None
    if array.dtype.kind in "bi":
        return array
    # A list of ints and floats becomes floats, which large ints do not survive.
    with np.errstate(over="ignore"):  # float16 has no number as large as the one to compare with
        if array.dtype.kind == "f" and rule.floats and bool(np.all(~(np.abs(array) > WHOLE))):
            return array
    return None


def _from_leaves(leaves: list[Any], rule: NumberRule) -> Array:
    """Single values as an array of the narrowest type that changes none of them."""
    numbers: list[int | float] = []
    whole = True
    for i, leaf in enumerate(leaves):
        number = _number(leaf, rule, i)
        whole = whole and isinstance(number, int)
        numbers.append(number)
    if not whole and not rule.floats:
        require_whole(np.array([float(n) if _in_float64(n) else 0.5 for n in numbers]), rule)
        numbers = [int(number) for number in numbers]
        whole = True
    if whole:
        return array_of_ints([int(number) for number in numbers])
    for i, number in enumerate(numbers):
        if isinstance(number, int):
            check_survives(number, rule, i)
    return np.array(numbers, np.float64)


def _in_float64(number: int | float) -> bool:
    return isinstance(number, float) or abs(number) < 2**1000


def _number(leaf: Any, rule: NumberRule, at: int) -> int | float:
    if rule.label is not None and isinstance(leaf, str):
        return _class_id(leaf, rule, at)
    if isinstance(leaf, (bool, np.bool_, int, np.integer)):
        return int(leaf)
    if (
        isinstance(leaf, (float, np.floating))
        or getattr(getattr(leaf, "dtype", None), "name", "") == "bfloat16"
    ):
        return float(leaf)
    if is_text(leaf):
        raise Unfit(
            "E303",
            f"is {'text' if isinstance(leaf, str) else 'bytes'}, the schema says {rule.type_name}",
            expected=rule.wanted,
            found=described(leaf),
            do=_text_remedy(leaf, rule),
            at=at,
        )
    raise Unfit(
        "E302",
        "has no value in one of its places" if leaf is None else f"is of type {type(leaf).__name__}",
        expected=rule.wanted,
        found=described(leaf),
        do="leave the value out, or put a number in its place"
        if leaf is None
        else f"convert it: {'float' if rule.floats else 'int'}(...), a list, or a NumPy array",
        at=at,
    )


def _text_remedy(leaf: Any, rule: NumberRule) -> str:
    if rule.label is not None:
        return "give the class name as a str, or its id"
    convert = "float" if rule.floats else "int"
    return f"{convert}(value), or declare {'Text()' if isinstance(leaf, str) else 'Bytes()'}"


def _class_id(name: str, rule: NumberRule, at: int) -> int:
    assert rule.label is not None
    if rule.ids is not None and name in rule.ids:
        return rule.ids[name]
    names = rule.label.names
    if names is None:
        expected, do = f"an id from 0 to {rule.label.count - 1:,}", "Label([names, ...]) declares the names"
    else:
        some = ", ".join(repr(one) for one in names[:3])
        expected = f"one of {len(names):,} names: {some}{', …' if len(names) > 3 else ''}"[:160]
        meant = near_miss(name, names)
        do = f"did you mean {meant!r}?" if meant else "add the name to the Label, or mend the row"
    raise Unfit(
        "E316",
        "names no class of the schema" if names else "is a name, and the schema has only ids",
        expected=expected,
        found=described(name),
        do=do,
        at=at,
    )
