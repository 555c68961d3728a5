"""Strings and nested values of rows as they are stored, and errors for values that do not match their feature."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from rekord.codec.columns import Array
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema import Feature

_MAX_PREVIEW_CHARACTERS = 40


class InvalidValue(Exception):
    """A value that cannot be stored. `at` is the position of the invalid element, `path` the file of an image.

    `what` follows the column name in the first line of the error.
    """

    def __init__(
        self,
        code: str,
        what: str,
        *,
        expected: str,
        found: str,
        do: str,
        at: int | None = None,
        path: str | None = None,
        likely: str | None = None,
    ) -> None:
        super().__init__(code)
        self.code = code
        self.what = what
        self.expected = expected
        self.found = found
        self.do = do
        self.at = at
        self.path = path
        self.likely = likely

    def to_error(self, column: str, *, row: int | None = None, step: int | None = None) -> RekordError:
        """The error for a value of this column."""
        whose = f"`{column}`" if step is None else f"step {step:,} of `{column}`"
        return error(
            self.code,
            f"{whose} {self.what}",
            location=Location(path=self.path, feature=column, row=row),
            expected=self.expected,
            found=self.found,
            likely=self.likely,
            do=self.do,
        )


def describe_value(value: Any) -> str:
    """A value for a message: small ones in full, large ones by type and size only."""
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value):,} bytes" if len(value) > 16 else repr(bytes(value))
    if isinstance(value, str):
        return repr(value) if len(value) <= _MAX_PREVIEW_CHARACTERS else f"{value[: _MAX_PREVIEW_CHARACTERS - 1]!r}…"
    if isinstance(value, np.ndarray):
        return describe_shape(value) if value.ndim else f"{value.dtype} {value[()]!s}"[:60]
    if isinstance(value, np.generic):
        # The dtypes that Python numbers become are not worth mentioning.
        plain = value.dtype.name in ("int64", "float64", "bool") or value.dtype.itemsize > 8
        return f"{value!s}"[:60] if plain else f"{value.dtype} {value!s}"[:60]
    if isinstance(value, (list, tuple, set, frozenset, dict)) and len(value) > 4:
        return f"a {type(value).__name__} of {len(value):,}"
    return preview(value)


def describe_shape(array: np.ndarray[Any, Any]) -> str:
    """The type and the shape of an array."""
    return f"array of {array.dtype}, shape {array.shape}"[:60]


_DECLARATIONS = {"bytes": "rk.Bytes()", "float": "rk.Float32()", "int64": "rk.Int64()"}
_INTEGER_PATTERN = re.compile(rb"[+-]?[0-9]{1,18}")
_NUMBER_PATTERN = re.compile(rb"[+-]?([0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9})")
_MAX_KEY_CHARACTERS = 60
EXACT_FLOAT32_LIMIT = 1 << 24
"""Up to here float32 represents every integer."""


def rewrite_command(option: str, key: str, to: str) -> str:
    """The command for a repaired copy, quoted for a shell: `rekord rewrite IN OUT --cast label=int64`."""
    cut = key if len(key) <= _MAX_KEY_CHARACTERS else key[: _MAX_KEY_CHARACTERS - 1] + "…"
    return f"rekord rewrite IN OUT --{option} {shlex.quote(f'{cut}={to}')}"


def suggest_kind_fix(column: str, feature: Feature, key: str, kind: str, values: Any, *, step: bool) -> str:
    """What to do about values whose kind differs from that of their feature."""
    declare = f"declare `{column[:_MAX_KEY_CHARACTERS]}` as {_DECLARATIONS[kind]}"
    if step or not _is_lossless_cast(feature, kind, values):
        return f"{declare}, or write the records again"
    to = "float32" if feature.kind == "float" else "int64"
    return f"{rewrite_command('cast', key, to)}; or {declare}"


def suggest_key_fix(column: str, key: str, near: str) -> str:
    """What to do about a missing key if the record has a similar one."""
    shown = f"declare `{column[:_MAX_KEY_CHARACTERS]}` with key={near[:_MAX_KEY_CHARACTERS]!r}"
    return f"{shown}; or {rewrite_command('rename', near, key[:_MAX_KEY_CHARACTERS])}"


def _is_lossless_cast(feature: Feature, kind: str, values: Any) -> bool:
    """Whether the values can be cast to the stored kind of a numeric feature without loss."""
    if feature.value_kind not in ("int", "float") or len(feature.record_kinds()) > 1:
        return False
    if kind == "bytes":
        form = _NUMBER_PATTERN if feature.kind == "float" else _INTEGER_PATTERN
        return all(form.fullmatch(value) for value in values)
    numbers = np.asarray(values)
    if kind == "int64":
        return not len(numbers) or bool(
            numbers.min() >= -EXACT_FLOAT32_LIMIT and numbers.max() <= EXACT_FLOAT32_LIMIT
        )
    with np.errstate(all="ignore"):
        return bool(np.all((np.abs(numbers) < 2.0**63) & (numbers == np.floor(numbers))))


Shape: TypeAlias = "tuple[int | None, ...]"

_TEXT_TYPES = (str, bytes, bytearray)


def is_text(value: object) -> bool:
    """Whether this is a str or byte string: a single value, although it has a length."""
    return isinstance(value, _TEXT_TYPES)


def as_array(value: Any) -> Array | None:
    """An array or array-like object as an array; None for anything else."""
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            if np.ma.is_masked(value):
                raise InvalidValue(
                    "E302",
                    "is a masked array with masked values",
                    expected="an array without masked values",
                    found=describe_value(value),
                    do="value.filled(0)",
                )
            return np.asarray(value.data)
        return np.asarray(value)
    if isinstance(value, (np.generic, memoryview)) or hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if hasattr(value, "__array__") and not isinstance(value, type):
        return np.asarray(value.__array__())
    return None


def as_sequence(value: Any) -> Sequence[Any] | None:
    """The parts of a list or other sequence; None for a single value."""
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, Sequence) and not is_text(value) and not isinstance(value, memoryview):
        return list(value)
    return None


def flatten_nested(value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """All leaves of nested lists, in order, and their shape; a leaf is anything but a list."""
    array = None if is_text(value) else as_array(value)
    if array is not None:
        return array.ravel().tolist() if array.dtype.kind in "OSUT" else list(array.ravel()), array.shape
    parts = as_sequence(value)
    if parts is None:
        return [value], ()
    leaves: list[Any] = []
    first: tuple[int, ...] | None = None
    for i, part in enumerate(parts):
        inner, shape = flatten_nested(part)
        if first is None:
            first = shape
        elif shape != first:
            raise InvalidValue(
                "E308",
                "has parts of different shapes",
                expected=f"parts of the same shape, as the first: {first}",
                found=f"shape {shape} in part {i:,}",
                do="pad or crop them to one shape, or declare partitions= for ragged values",
            )
        leaves += inner
    return leaves, (len(parts), *(first or ()))


def check_shape(given: tuple[int, ...], declared: Shape, value: Any) -> None:
    """Raise an error for a value that does not have the declared shape."""
    if len(given) == len(declared):
        wrong = [i for i, size in enumerate(declared) if size is not None and size != given[i]]
        if not wrong:
            return
        if len(declared) == 1:
            raise InvalidValue(
                "E307",
                f"has {given[0]:,} {'value' if given[0] == 1 else 'values'}, expected {declared[0]:,}",
                expected=f"shape {declared}",
                found=f"shape {given}",
                do=f"give {declared[0]:,} values, or declare shape=(None,) for a varying number",
            )
    elif _is_empty_prefix(given, declared):
        return
    raise InvalidValue(
        "E306",
        "has the wrong shape",
        expected=f"shape {declared}",
        found=f"shape {given}" if given else f"a single value: {describe_value(value)}"[:60],
        do=_suggest_shape_fix(given, declared),
    )


def _is_empty_prefix(given: tuple[int, ...], declared: Shape) -> bool:
    # `[]` does not determine the size of its rows.
    if not given or given[-1] != 0 or len(given) > len(declared):
        return False
    return all(want is None or want == size for want, size in zip(declared, given, strict=False))


def _suggest_shape_fix(given: tuple[int, ...], declared: Shape) -> str:
    if prod(given) == 1 and not declared:
        return f"give a scalar, or declare shape={given}"
    if not given and declared == (None,):
        return "give a list, [value], or declare shape=() for a scalar"
    if len(given) != len(declared) and None not in declared and prod(given) == prod(size or 0 for size in declared):
        return f"value.reshape({declared})"
    return f"give values of this shape, or declare shape={given}"


def store_strings(value: Any, feature: Feature, shape: tuple[int | None, ...]) -> list[bytes]:
    """All strings of a value of the declared shape, flat, as bytes."""
    if type(value) is memoryview:
        value = value.tobytes()
    leaves, given = flatten_nested(value)
    strings = [store_string(leaf, text=feature.is_text, at=i) for i, leaf in enumerate(leaves)]
    check_shape(given, shape, value)
    return strings


def store_string(leaf: Any, *, text: bool, at: int | None = None) -> bytes:
    """One str or byte string as bytes; `at` is its position among others."""
    if isinstance(leaf, str):
        try:
            return leaf.encode("utf-8")
        except UnicodeEncodeError as failure:
            raise _not_utf8_error(f"a lone surrogate, {leaf[failure.start]!a}, at {failure.start:,}", at) from None
    if isinstance(leaf, (bytes, bytearray, memoryview)):
        data = bytes(leaf)
        if text:
            try:
                data.decode("utf-8")
            except UnicodeDecodeError as failure:
                found = f"byte 0x{data[failure.start]:02x} at {failure.start:,} of {len(data):,}"
                raise _not_utf8_error(found, at) from None
        return data
    raise _wrong_type_error(leaf, text=text, at=at)


def _not_utf8_error(found: str, at: int | None) -> InvalidValue:
    return InvalidValue(
        "E318",
        "is not valid UTF-8",
        expected="a str without lone surrogates, or UTF-8 bytes",
        found=found,
        do='value.decode("latin-1"), or its actual encoding; Bytes() keeps the bytes unchanged',
        at=at,
    )


def _wrong_type_error(leaf: Any, *, text: bool, at: int | None) -> InvalidValue:
    wanted = "text" if text else "bytes"
    declared = "Text" if text else "Bytes"
    if isinstance(leaf, (int, float, complex)) or hasattr(leaf, "dtype"):
        return InvalidValue(
            "E305",
            f"is a number, expected {declared}",
            expected=wanted,
            found=describe_value(leaf),
            do="str(value), or declare Int64() or Float32()" if text else "declare Int64(), Float32() or Tensor()",
            at=at,
        )
    return InvalidValue(
        "E302",
        "contains None" if leaf is None else f"has type {type(leaf).__name__}",
        expected=wanted,
        found=describe_value(leaf),
        do=f"drop the element, or replace it with {'an empty str' if text else 'empty bytes'}"
        if leaf is None
        else f"convert it to {'str' if text else 'bytes'}",
        at=at,
    )
