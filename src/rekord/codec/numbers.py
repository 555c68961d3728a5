"""Numbers, times and tensors as they are stored: validated against dtype, shape, range and classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from rekord.codec.columns import Array
from rekord.codec.values import (
    InvalidValue,
    Shape,
    as_array,
    as_sequence,
    check_shape,
    describe_shape,
    describe_value,
    flatten_nested,
    is_text,
)
from rekord.errors import closest_match
from rekord.schema import Feature, MultiLabel, Sparse, Tensor, Timestamp
from rekord.schema.base import InvalidDefault, dtype_name, integer_bounds, round_to_bfloat16, validate_element
from rekord.schema.timestamp import NoTimestamp, no_zone, ticks_of, ticks_of_array


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRule:
    """The valid numbers of one record key."""

    type_name: str  # of the feature, for messages
    dtype: Any
    floats: bool
    range: tuple[Any, Any] | None = None
    cast: bool = False
    exact: bool = False
    classes: int | None = None  # number of classes, if the numbers are class ids
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, feature: Feature, *, dtype: Any = None) -> NumberRule:
        """The rule of a feature; `dtype` for a key with another dtype."""
        declared = feature.stored_dtype if dtype is None else dtype
        name = dtype_name(declared)
        return cls(
            type_name=type(feature).__name__,
            dtype=declared,
            floats=name in ("float16", "float32", "bfloat16"),
            range=feature.limits,
            cast=getattr(feature, "cast", False),
            exact=getattr(feature, "rounding", "nearest") == "exact",
            classes=feature.class_count,
            names=feature.class_names,
        )

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest integer, by dtype, range and classes."""
        low, high = integer_bounds(self.dtype)
        return (low, high) if self.range is None else (max(low, self.range[0]), min(high, self.range[1]))

    @property
    def expected(self) -> str:
        """The valid numbers, for messages."""
        return "numbers" if self.floats else "integers"


def require_integers(numbers: Array, rule: NumberRule) -> None:
    """Raise an error for floats, or with `cast` for those with a fractional part."""
    broken = ~np.isfinite(numbers) | (numbers != np.floor(numbers))
    at = int(np.argmax(broken))  # 0 if there is none
    if not rule.cast:
        raise InvalidValue(
            "E304",
            f"is a float, expected {rule.type_name}",
            expected="integers",
            found=describe_value(numbers[at]),
            do="convert the values with int(value), or declare the column as Float32()"
            if rule.type_name != "Int64"
            else "Int64(cast=True) accepts floats without a fractional part; Float32() keeps it",
        )
    if broken.any():
        raise InvalidValue(
            "E304",
            "has a fractional part, expected Int64",
            expected="integers, or floats without a fractional part (cast=True)",
            found=describe_value(numbers[at]),
            do="round it first, or declare Float32()",
            at=at,
        )


def out_of_range_error(found: str, rule: NumberRule, at: int) -> InvalidValue:
    """The error for a number outside of the declared range."""
    assert rule.range is not None
    return InvalidValue(
        "E311",
        "is out of range",
        expected=f"a number from {rule.range[0]} to {rule.range[1]}",
        found=found,
        do="fix the row, or declare a wider range=",
        at=at,
    )


def is_bfloat16(numbers: Array) -> bool:
    """Whether these are bfloat16, a dtype of ml_dtypes."""
    return str(numbers.dtype.name) == "bfloat16"


def to_int_array(numbers: list[int]) -> Array:
    """Integers as int64, or as objects if one does not fit."""
    if all(-(2**63) <= number < 2**63 for number in numbers):
        return np.array(numbers, np.int64)
    return np.array(numbers, object)


_INT64_RANGE = (-(2**63), 2**63 - 1)


def store_ints(numbers: Array, rule: NumberRule) -> Array:
    """A flat array of numbers as int64."""
    if numbers.size == 0:
        return np.empty(0, np.int64)
    if numbers.dtype.kind == "f" or is_bfloat16(numbers):
        numbers = _floats_to_integers(numbers, rule)
    wrong = _find_outside(numbers, *rule.bounds)
    if wrong is not None and wrong.any():
        at = int(np.argmax(wrong))
        raise _out_of_bounds_error(int(numbers[at]), rule, at)
    # uint64 is stored bit for bit.
    if numbers.dtype == object:
        return np.array([int(n) & (2**64 - 1) for n in numbers], np.uint64).view(np.int64)
    if numbers.dtype == np.uint64:
        return np.ascontiguousarray(numbers).view(np.int64)
    return np.ascontiguousarray(numbers, np.int64)


def _floats_to_integers(numbers: Array, rule: NumberRule) -> Array:
    wide = numbers.astype(np.float64 if is_bfloat16(numbers) else np.longdouble)
    require_integers(wide, rule)
    if float(np.abs(wide).max()) < 2**62:
        return wide.astype(np.int64)
    return to_int_array([int(number) for number in wide])


def _find_outside(numbers: Array, low: int, high: int) -> Array | None:
    """Which numbers are below `low` or above `high`; None if there are none."""
    if numbers.dtype == object:
        return np.array([not low <= int(n) <= high for n in numbers], bool)
    if low <= int(numbers.min()) and int(numbers.max()) <= high:
        return None
    if numbers.dtype == np.uint64:
        if high < 0:
            return np.ones(numbers.shape, bool)
        outside: Array = (numbers > np.uint64(high)) | (numbers < np.uint64(max(low, 0)))
        return outside
    wide = numbers.astype(np.int64)
    wrong = np.zeros(numbers.shape, bool)
    # A bound beyond int64 excludes everything or nothing.
    wrong |= wide < low if low <= _INT64_RANGE[1] else True
    wrong |= wide > high if high <= _INT64_RANGE[1] else False
    return wrong


def _out_of_bounds_error(number: int, rule: NumberRule, at: int) -> InvalidValue:
    found = describe_value(number)
    if rule.classes is not None:
        return InvalidValue(
            "E317",
            "is not a class id",
            expected=f"an id from 0 to {rule.classes - 1:,}",
            found=found,
            do="fix the row, or declare more classes",
            at=at,
        )
    low, high = integer_bounds(rule.dtype)
    if not low <= number <= high:
        name = dtype_name(rule.dtype)
        do = 'declare Int64(dtype="uint64")' if 0 <= number < 2**64 and name == "int64" else "declare a wider dtype"
        if not -(2**63) <= number < 2**64:
            do = "declare Text() or Bytes(): no integer dtype is large enough"
        return InvalidValue(
            "E310",
            f"does not fit {name}",
            expected=f"an integer from {low} to {high}",
            found=found,
            do=do,
            at=at,
        )
    return out_of_range_error(found, rule, at)


MAX_EXACT_FLOAT32_INT = 2**24
"""Up to here float32 represents every integer."""


def store_floats(numbers: Array, rule: NumberRule) -> Array:
    """A flat array of numbers as float32."""
    stored = _round_to_dtype(numbers, rule)
    if numbers.dtype != np.float32 or dtype_name(rule.dtype) != "float32":
        _check_rounding(numbers, stored, rule)
    if rule.range is not None and stored.size:
        _check_range(numbers, stored, rule)
    return stored


def _round_to_dtype(numbers: Array, rule: NumberRule) -> Array:
    """The numbers rounded to the declared dtype, as float32."""
    name = dtype_name(rule.dtype)
    if numbers.dtype == np.float32 and name == "float32":
        return np.ascontiguousarray(numbers)  # keeps every bit, also of a NaN
    if numbers.dtype == object:
        numbers = np.array([float(n) if abs(n) < 2**1000 else np.inf * (1 if n > 0 else -1) for n in numbers])
    if numbers.dtype.kind not in "f":
        numbers = numbers.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if name == "bfloat16":
            return round_to_bfloat16(numbers.astype(np.float32))
        return np.ascontiguousarray(numbers.astype(name).astype(np.float32))


def _check_rounding(numbers: Array, stored: Array, rule: NumberRule) -> None:
    name = dtype_name(rule.dtype)
    if numbers.dtype == object or numbers.dtype.kind in "biu":
        for at in np.flatnonzero(_find_beyond_float32(numbers)).tolist():
            if np.isinf(stored[at]) or int(stored[at]) != int(numbers[at]):
                check_round_trip(int(numbers[at]), rule, at)
        if rule.exact:
            changed = np.array([int(n) != s for n, s in zip(numbers, stored.tolist(), strict=True)], bool)
            _reject_inexact(changed, numbers, rule)
        return
    wide = numbers.astype(np.float64) if numbers.dtype.itemsize < 8 else numbers
    lost = np.isinf(stored) & np.isfinite(wide)
    if lost.any():
        at = int(np.argmax(lost))
        raise _too_large_error(describe_value(numbers[at]), name, at)
    if rule.exact:
        _reject_inexact((stored.astype(wide.dtype) != wide) & ~np.isnan(wide), numbers, rule)


def _reject_inexact(changed: Array, numbers: Array, rule: NumberRule) -> None:
    if changed.any():
        at = int(np.argmax(changed))
        raise InvalidValue(
            "E315",
            "cannot be stored exactly",
            expected=f'a number that {dtype_name(rule.dtype)} represents exactly (rounding="exact")',
            found=describe_value(numbers[at]),
            do='declare rounding="nearest", or Tensor("float64"), which keeps every bit',
            at=at,
        )


def _find_beyond_float32(numbers: Array) -> Array:
    """Which integers are too large for float32 to represent all of their neighbours."""
    if numbers.dtype == object:
        return np.array([abs(int(n)) > MAX_EXACT_FLOAT32_INT for n in numbers], bool)
    if numbers.dtype.itemsize < 4:
        return np.zeros(0, bool)
    beyond = numbers > MAX_EXACT_FLOAT32_INT
    return beyond if numbers.dtype.kind == "u" else beyond | (numbers < -MAX_EXACT_FLOAT32_INT)


def check_round_trip(number: int, rule: NumberRule, at: int) -> None:
    """Raise an error for an integer that changes when stored as a float."""
    name = dtype_name(rule.dtype)
    try:
        as_float = float(number)
    except OverflowError:
        raise _too_large_error(describe_value(number)[:60], name, at) from None
    stored = float(_round_to_dtype(np.array([as_float]), rule)[0])
    if stored in (float("inf"), float("-inf")):
        raise _too_large_error(describe_value(number), name, at)
    if abs(number) > MAX_EXACT_FLOAT32_INT and int(stored) != number:
        raise InvalidValue(
            "E314",
            f"cannot be stored exactly as {name}",
            expected="an integer up to 2^24, or one that float32 represents exactly",
            found=describe_value(number),
            do="declare Int64(), or pass float(value) to allow rounding",
            at=at,
        )


def _too_large_error(found: str, name: str, at: int) -> InvalidValue:
    return InvalidValue(
        "E313",
        f"is too large for {name}",
        expected=f"a number that fits {name}; it would become infinite",
        found=found,
        do='scale it, or declare Tensor("float64")',
        at=at,
    )


def _check_range(numbers: Array, stored: Array, rule: NumberRule) -> None:
    assert rule.range is not None
    low, high = _round_to_dtype(np.array(rule.range, np.float64), rule)
    wrong = ~((stored >= low) & (stored <= high))
    if not wrong.any():
        return
    at = int(np.argmax(wrong))
    if np.isnan(stored[at]):
        raise InvalidValue(
            "E312",
            "is NaN, but a range is declared",
            expected=f"a number from {rule.range[0]} to {rule.range[1]}",
            found="nan",
            do="declare optional=True and use None for missing values, or drop range=",
            at=at,
        )
    raise out_of_range_error(describe_value(numbers[at]), rule, at)


def store_numbers(value: Any, rule: NumberRule, shape: Shape) -> Array:
    """All numbers of a value of the declared shape, flattened, as int64 or float32."""
    numbers, given = to_number_array(value, rule)
    check_shape(given, shape, value)
    return store_array(numbers, rule)


def store_array(numbers: Array, rule: NumberRule) -> Array:
    """An array of numbers, validated, as it is stored."""
    return store_floats(numbers, rule) if rule.floats else store_ints(numbers, rule)


def to_number_array(value: Any, rule: NumberRule) -> tuple[Array, tuple[int, ...]]:
    """A value as a flat array of unrounded numbers, and its shape."""
    array = None if is_text(value) else as_array(value)
    if array is None and isinstance(value, (list, tuple)):
        array = _convert_plain_list(value, rule)
    if array is not None and (array.dtype.kind in "biuf" or is_bfloat16(array)):
        return array.ravel(), array.shape
    leaves, given = flatten_nested(value)
    return _convert_elements(leaves, rule), given


def _convert_plain_list(value: Any, rule: NumberRule) -> Array | None:
    """A list as a NumPy array, if the conversion cannot have changed a number."""
    try:
        array = np.array(value)
    except (ValueError, TypeError, OverflowError):
        return None  # ragged, or not numbers: the elements are checked one by one
    if array.size == 0:
        return None
    if array.dtype.kind in "bi":
        return array
    # A list of integers and floats becomes floats, which changes large integers.
    with np.errstate(over="ignore"):  # the limit overflows float16
        if array.dtype.kind == "f" and rule.floats and bool(np.all(~(np.abs(array) > MAX_EXACT_FLOAT32_INT))):
            return array
    return None


def _convert_elements(leaves: list[Any], rule: NumberRule) -> Array:
    """Single values as an array of the narrowest type that represents all of them exactly."""
    numbers: list[int | float] = []
    whole = True
    for i, leaf in enumerate(leaves):
        number = _parse_number(leaf, rule, i)
        whole = whole and isinstance(number, int)
        numbers.append(number)
    if not whole and not rule.floats:
        require_integers(np.array([float(n) if _is_exact_in_float64(n) else 0.5 for n in numbers]), rule)
        numbers = [int(number) for number in numbers]
        whole = True
    if whole:
        return to_int_array([int(number) for number in numbers])
    for i, number in enumerate(numbers):
        if isinstance(number, int):
            check_round_trip(number, rule, i)
    return np.array(numbers, np.float64)


def _is_exact_in_float64(number: int | float) -> bool:
    return isinstance(number, float) or abs(number) < 2**1000


def _parse_number(leaf: Any, rule: NumberRule, at: int) -> int | float:
    if rule.classes is not None and isinstance(leaf, str):
        return _find_class_id(leaf, rule, at)
    if isinstance(leaf, (bool, np.bool_, int, np.integer)):
        return int(leaf)
    if isinstance(leaf, (float, np.floating)) or getattr(getattr(leaf, "dtype", None), "name", "") == "bfloat16":
        return float(leaf)
    if is_text(leaf):
        raise InvalidValue(
            "E303",
            f"is {'text' if isinstance(leaf, str) else 'bytes'}, expected {rule.type_name}",
            expected=rule.expected,
            found=describe_value(leaf),
            do=_suggest_text_fix(leaf, rule),
            at=at,
        )
    raise InvalidValue(
        "E302",
        "contains None" if leaf is None else f"has type {type(leaf).__name__}",
        expected=rule.expected,
        found=describe_value(leaf),
        do="drop the element, or replace it with a number"
        if leaf is None
        else f"convert it: {'float' if rule.floats else 'int'}(...), a list, or a NumPy array",
        at=at,
    )


def _suggest_text_fix(leaf: Any, rule: NumberRule) -> str:
    if rule.classes is not None:
        return "give the class name as a str, or its id"
    convert, declared = "float" if rule.floats else "int", "Text()" if isinstance(leaf, str) else "Bytes()"
    return f"convert the values with {convert}(value), or declare the column as {declared}"


@lru_cache(maxsize=64)
def _ids(names: tuple[str, ...]) -> dict[str, int]:
    return {name: i for i, name in enumerate(names)}


def _find_class_id(name: str, rule: NumberRule, at: int) -> int:
    assert rule.classes is not None
    names = rule.names
    if names is not None and name in _ids(names):
        return _ids(names)[name]
    if names is None:
        expected, do = f"an id from 0 to {rule.classes - 1:,}", f"{rule.type_name}([names, ...]) declares class names"
    else:
        some = ", ".join(repr(one) for one in names[:3])
        expected = f"one of {len(names):,} names: {some}{', …' if len(names) > 3 else ''}"[:160]
        meant = closest_match(name, names)
        do = f"did you mean {meant!r}?" if meant else f"add the name to the {rule.type_name}, or fix the row"
    raise InvalidValue(
        "E316",
        "is not a known class name" if names else "is a name, but the schema has only class ids",
        expected=expected,
        found=describe_value(name),
        do=do,
        at=at,
    )


def store_multi_hot(value: Any, feature: MultiLabel) -> Array:
    """The multi-hot vector of a list of class names, or the vector itself."""
    array = None if is_text(value) else as_array(value)
    if array is not None and array.dtype.kind in "OSUT":
        value = array.tolist()
    elif isinstance(value, (set, frozenset)):
        value = sorted(value, key=str)
    if isinstance(value, str):
        raise InvalidValue(
            "E306",
            "is a single name, expected a list of class names",
            expected="a list of class names, or a vector of 0 and 1",
            found=describe_value(value),
            do=f"give a list: [{describe_value(value)}]",
        )
    names = None if is_text(value) else as_sequence(value)
    if names is None or not all(isinstance(name, str) for name in names):
        return store_numbers(value, NumberRule.of(feature), feature.shape)
    rule = NumberRule(
        type_name="MultiLabel", dtype=feature.dtype, floats=False, classes=feature.count, names=feature.names
    )
    vector = np.zeros(feature.count, np.int64)
    for at, name in enumerate(names):
        vector[_find_class_id(name, rule, at)] = 1
    return vector


_INDEX_RULE = NumberRule(type_name="Sparse", dtype=np.dtype("<i8"), floats=False)


def store_tensor(value: Any, feature: Tensor) -> tuple[Any, ...]:
    """An array of the declared dtype and shape as its raw little-endian bytes, and its shape if that is stored."""
    array = conform_tensor(value, feature)
    shape = (np.array(array.shape, np.int64),) if feature.stores_shape else ()
    return [raw_bytes(array, feature)], *shape


def conform_tensor(value: Any, feature: Feature) -> Array:
    """A value as an array of the declared shape, in the declared dtype."""
    array = None if is_text(value) else as_array(value)
    if array is not None and array.dtype.kind == "O":
        value, array = array.tolist(), None
    array = _tensor_from_values(value, feature) if array is None else cast_tensor(array, feature)
    check_shape(array.shape, feature.shape, value)
    return array


def raw_bytes(array: Array, feature: Feature) -> bytes:
    """The little-endian bytes of an array in the declared dtype."""
    if isinstance(feature.dtype, str):  # bfloat16 without NumPy's help: the upper half of a float32
        halves = np.ascontiguousarray(array, "<f4").view("<u4") >> np.uint32(16)
        return bytes(halves.astype("<u2").tobytes())
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def cast_tensor(array: Array, feature: Feature) -> Array:
    """An array in the declared dtype, if the cast changes no value."""
    name = dtype_name(feature.dtype)
    if array.dtype.name == name:
        return array
    target = feature.dtype
    if isinstance(target, np.dtype) and array.dtype.kind in "biufc" and np.can_cast(array.dtype, target, "safe"):
        out = array.astype(target)
        # NumPy considers int64 to float64 safe; beyond 2^53 it is not.
        if array.dtype.kind not in "iu" or out.dtype.kind not in "fc" or _is_unchanged(array, out):
            return out
    elif array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        raise InvalidValue(
            "E303" if array.dtype.kind in "SUT" else "E302",
            f"is an array of {array.dtype}, expected Tensor",
            expected=f"an array of {name}",
            found=describe_shape(array),
            do="give an array of numbers",
        )
    raise InvalidValue(
        "E324",
        f"is an array of {array.dtype}, expected {name}",
        expected=f"an array of {name}, or of a dtype that casts to it without change",
        found=describe_shape(array),
        do=f'value.astype("{name}") to allow the change, or Tensor("{array.dtype.name}")',
    )


def _is_unchanged(whole: Array, out: Array) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(np.array_equal(out.real.astype(whole.dtype), whole))


def _tensor_from_values(value: Any, feature: Feature) -> Array:
    """Nested lists of plain numbers, which have no dtype."""
    leaves, given = flatten_nested(value)
    elements = []
    for i, leaf in enumerate(leaves):
        try:
            elements.append(validate_element(leaf, feature.dtype))
        except InvalidDefault as misfit:
            text = is_text(leaf)
            number = isinstance(leaf, (int, float, complex, np.number))
            raise InvalidValue(
                "E303" if text else "E324" if number else "E302",
                "has an element that does not fit its dtype",
                expected=misfit.expected,
                found=describe_value(leaf),
                do="give an array of the declared dtype",
                at=i,
            ) from None
    dtype = "<f4" if isinstance(feature.dtype, str) else feature.dtype
    return np.array(elements, dtype).reshape(given)


def store_sparse(value: Any, feature: Sparse) -> tuple[Array, Array]:
    """A sparse vector as its ascending indices and their values."""
    indices, values = _split_pair(value, feature)
    places = _store_indices(indices, feature)
    rule = NumberRule.of(feature)
    numbers = store_numbers(values, rule, (None,))
    if len(places) != len(numbers):
        raise _sparse_error("one value per index", f"{len(places):,} indices and {len(numbers):,} values")
    order = np.argsort(places, kind="stable")
    places, numbers = places[order], numbers[order]
    if (places[1:] == places[:-1]).any():
        duplicate = int(places[1:][places[1:] == places[:-1]][0])
        raise _sparse_error("unique indices", f"duplicate index {duplicate:,}")
    return places, numbers


def _split_pair(value: Any, feature: Sparse) -> tuple[Any, Any]:
    if isinstance(value, Mapping):
        return list(value.keys()), list(value.values())
    array = None if isinstance(value, (list, tuple)) or is_text(value) else as_array(value)
    if array is not None:
        if array.shape != (feature.size,):
            check_shape(array.shape, (feature.size,), value)
        if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
            return np.arange(feature.size), array  # rejected with its values
        where = np.flatnonzero(array)
        return where, array[where]
    parts = as_sequence(value)
    if parts is not None and len(parts) == 2 and all(_is_list(part) for part in parts):
        return parts[0], parts[1]
    raise InvalidValue(
        "E302",
        f"has type {type(value).__name__}, expected Sparse",
        expected="(indices, values), {index: value}, or a dense array",
        found=describe_value(value),
        do="(indices, values) of the nonzero elements",
    )


def _is_list(part: Any) -> bool:
    return not is_text(part) and (as_sequence(part) is not None or np.ndim(part) == 1)


def _store_indices(indices: Any, feature: Sparse) -> Array:
    try:
        places = store_numbers(indices, _INDEX_RULE, (None,))
    except InvalidValue as failure:
        raise _sparse_error("a list of integers as indices", failure.found) from None
    wrong = (places < 0) | (places >= feature.size)
    if wrong.any():
        raise _sparse_error(f"indices from 0 to {feature.size - 1:,}", f"index {int(places[np.argmax(wrong)]):,}")
    return places


def _sparse_error(expected: str, found: str) -> InvalidValue:
    return InvalidValue(
        "E320",
        "has invalid indices",
        expected=expected,
        found=found,
        do="fix the indices, or declare another size=",
    )


def stored_times(value: Any, feature: Timestamp, shape: Shape) -> Array:
    """All times of a value of the declared shape, flattened, as int64."""
    check_zone(value, feature)
    array = None if is_text(value) or hasattr(value, "utcoffset") else as_array(value)
    if array is not None and array.dtype.kind == "M":
        check_shape(array.shape, shape, value)
        return store_times(array.ravel(), feature)
    # datetime64 elements one by one: a list of them as an array might change the unit.
    leaves, given = ([value], ()) if hasattr(value, "utcoffset") else flatten_nested(value)
    check_shape(given, shape, value)
    ticks = [_tick(leaf, feature, at) for at, leaf in enumerate(leaves)]
    numbers = np.array(ticks, np.int64)
    _check_times(numbers, feature)
    return numbers


def store_times(times: Array, feature: Timestamp) -> Array:
    """A flat array of datetime64 as int64."""
    holes = np.isnat(times)
    if holes.any():
        raise _hole(int(np.argmax(holes)))
    try:
        numbers = ticks_of_array(times, feature)
    except NoTimestamp as failure:
        raise _no_time(failure, failure.at) from None
    _check_times(numbers, feature)
    return numbers


def check_zone(column: Any, feature: Feature) -> None:
    """Raise an error for a column of Arrow, pandas or polars without a time zone, if the feature declares one.

    NumPy has no time zones: its datetime64 is UTC.
    """
    if not isinstance(feature, Timestamp) or feature.tz is None or isinstance(column, (np.ndarray, np.generic)):
        return
    kind = getattr(column, "type", None) or getattr(column, "dtype", None)
    while getattr(kind, "value_type", None) is not None:  # lists of Arrow
        kind = kind.value_type  # type: ignore[union-attr]
    is_time = str(kind).lower().startswith(("timestamp[", "datetime64[", "datetime("))
    if is_time and all(getattr(kind, name, None) is None for name in ("tz", "time_zone")):
        raise _no_time(no_zone(str(kind), feature), None)


def _no_time(failure: NoTimestamp, at: int | None) -> InvalidValue:
    """The error for a value that is not a valid timestamp."""
    return InvalidValue(
        failure.code, failure.what, expected=failure.expected, found=failure.found, do=failure.do, at=at
    )


def _tick(leaf: Any, feature: Timestamp, at: int) -> int:
    if feature.is_missing(leaf):
        raise _hole(at)
    try:
        return ticks_of(leaf, feature)
    except NoTimestamp as failure:
        raise _no_time(failure, at) from None


def _hole(at: int) -> InvalidValue:
    return InvalidValue(
        "E302",
        "contains None or NaT",
        expected="times",
        found="None or NaT",
        do="drop the element, or replace it with a time",
        at=at,
    )


def _check_times(numbers: Array, feature: Timestamp) -> None:
    limits = feature.limits
    if limits is None or feature.range is None or not numbers.size:
        return
    wrong = (numbers < limits[0]) | (numbers > limits[1])
    if wrong.any():
        at = int(np.argmax(wrong))
        low, high = (end or "any time" for end in feature.range)
        raise InvalidValue(
            "E311",
            "is out of range",
            expected=f"a time from {low} to {high}",
            found=feature.text(int(numbers[at])),
            do="fix the row, or declare a wider range=",
            at=at,
        )
