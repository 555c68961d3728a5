"""Label columns: classes learned from their values, and values replaced by class ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from rekord.arguments import is_utf8_encodable
from rekord.codec.columns import Optional, Ragged, Strings
from rekord.codec.values import InvalidValue, describe_value
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.row_adapters import is_missing

MAX_CLASSES = 10_000
"""More distinct values than this are not classes."""

_MAX_NAME_CHARACTERS = 1000
_INTEGER_PATTERN = re.compile(r"[+-]?[0-9]{1,4000}")
_LISTS = (list, tuple, set, frozenset, Ragged)


def class_name(value: Any) -> str | None:
    """The class that a value stands for, as text; None if the value is missing. Raises InvalidValue."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if is_missing(value):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            raise _not_a_class(value, "bytes that are not UTF-8") from None
    if isinstance(value, str):
        if not is_utf8_encodable(value):
            raise _not_a_class(value, "text with lone surrogates")
        return str(value) or None
    if isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, float):
        if value != value:
            return None
        if value.is_integer():
            return str(int(value))
        raise _not_a_class(value, "a number with a fractional part")
    raise _not_a_class(value, f"a value of type {type(value).__name__}")


def _not_a_class(value: Any, what: str) -> InvalidValue:
    return InvalidValue(
        "E340",
        f"is {what}, which cannot be a class",
        expected="text, an integer or a bool",
        found=describe_value(value),
        do="fix the row, or declare the column with another type: columns={…}",
    )


def sort_classes(names: Iterable[str]) -> list[str]:
    """Class names in the order of their ids: integers by value, everything else by code point."""
    found = list(names)
    if all(_INTEGER_PATTERN.fullmatch(name) for name in found):
        return sorted(found, key=lambda name: (int(name), name))
    return sorted(found)


@dataclass(slots=True)
class ClassCollector:
    """The distinct values of a label column, as text; pickled from worker processes."""

    column: str
    names: set[str] = field(default_factory=set)
    has_lists: bool = False
    first_invalid: RekordError | None = None

    def add(self, value: Any) -> None:
        """Add the value of a row: a class, or a list of classes."""
        if isinstance(value, _LISTS) or (isinstance(value, np.ndarray) and value.ndim):
            self.has_lists = True
            self._add_distinct(value.tolist() if hasattr(value, "tolist") else value)
        else:
            self._add_distinct((value,))

    def add_column(self, column: Any) -> None:
        """Add the values of many rows."""
        if isinstance(column, (pa.Array, pa.ChunkedArray)):
            self._add_arrow(column)
        elif isinstance(column, Optional):
            self._add_array(column.values[column.valid])
        elif isinstance(column, Ragged):
            self.has_lists = True
            values = column.values
            self.add_column(values)
        elif isinstance(column, Strings):
            self._add_arrow(column.to_arrow())
        elif isinstance(column, np.ndarray):
            self._add_array(column)
        else:
            for value in column:
                self.add(value)

    def merge(self, other: ClassCollector) -> None:
        """Add the classes of another part of the data."""
        self.has_lists = self.has_lists or other.has_lists
        self.first_invalid = self.first_invalid or other.first_invalid
        self._extend(other.names)

    def _add_array(self, array: Any) -> None:
        if array.ndim > 1:
            self.has_lists = True
        if array.dtype.kind in "biufSU":
            self._add_distinct(np.unique(array).tolist())
        else:
            for value in array.tolist():
                self.add(value)

    def _add_arrow(self, array: Any) -> None:
        kind = array.type
        while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            self.has_lists = True
            array = pa.chunked_array([array]) if isinstance(array, pa.Array) else array
            array = pa.chunked_array([chunk.flatten() for chunk in array.chunks], kind.value_type)
            kind = array.type
        if pa.types.is_nested(kind):
            for value in array.to_pylist():
                self.add(value)
        else:
            self._add_distinct(array.unique().to_pylist())

    def _add_distinct(self, values: Iterable[Any]) -> None:
        found = []
        for value in values:
            try:
                name = class_name(value)
            except InvalidValue as failure:
                problem = failure.to_error(self.column)
                if isinstance(value, (float, np.floating)):
                    raise not_a_label_error(
                        self.column, problem.found or "", "numbers with a fractional part, as for regression"
                    ) from None
                self.first_invalid = self.first_invalid or problem
                continue
            if name is not None:
                if len(name) > _MAX_NAME_CHARACTERS:
                    raise not_a_label_error(self.column, f"a text of {len(name):,} characters", "free text")
                found.append(name)
        self._extend(found)

    def _extend(self, names: Iterable[str]) -> None:
        self.names.update(names)
        if len(self.names) > MAX_CLASSES:
            raise too_many_classes_error(self.column)


def too_many_classes_error(column: str) -> RekordError:
    """The error for a column with too many distinct values."""
    return error(
        "S147",
        f"`{column[:60]}` has more than {MAX_CLASSES:,} distinct values",
        location=Location(feature=column[:60]),
        expected=f"at most {MAX_CLASSES:,} classes",
        found="more",
        likely="the column identifies rows, or is free text",
        do="name another column, or declare the classes: rk.Label(names)",
    )


def not_a_label_error(column: str, found: str, likely: str | None) -> RekordError:
    """The error for a column whose values are not classes."""
    return error(
        "S148",
        f"`{column[:60]}` does not hold classes, and cannot be a label",
        location=Location(feature=column[:60]),
        expected="text, integers or bools, or lists of them",
        found=found,
        likely=likely,
        do="name another column, or leave it as it is",
    )


@dataclass(frozen=True)
class ClassIds:
    """Replaces the values of a column by the ids of its classes."""

    names: tuple[str, ...]
    is_list: bool = False  # several classes per row, which the encoder looks up

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def convert_value(self, value: Any) -> Any:
        """The class id of a value, None if it is missing; an unknown class stays text, which the encoder reports."""
        if self.is_list:
            if is_missing(value):
                return None
            if not (isinstance(value, _LISTS) or (isinstance(value, np.ndarray) and value.ndim)):
                raise InvalidValue(
                    "E340",
                    "is a single value, not a list of classes",
                    expected="a list of classes, as in other rows",
                    found=describe_value(value),
                    do="write a list with one element",
                )
            names = [class_name(one) for one in (value.tolist() if hasattr(value, "tolist") else value)]
            return list(dict.fromkeys([name for name in names if name is not None]))
        name = class_name(value)
        return None if name is None else self._ids.get(name, name)

    def convert_column(self, column: Any) -> Any:
        """The class ids of many rows."""
        if isinstance(column, Strings):
            column = column.to_arrow()
        if isinstance(column, Optional):
            column = pa.array(column.values, mask=~np.asarray(column.valid, np.bool_))
        try:
            array = column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column)
            if isinstance(array, pa.ChunkedArray):
                array = array.combine_chunks()
            if not pa.types.is_nested(array.type):
                return self._convert_arrow(array)
        except (pa.ArrowException, TypeError, ValueError, InvalidValue):
            pass  # values of several types, or an invalid one: row by row
        rows = column.to_pylist() if isinstance(column, (pa.Array, pa.ChunkedArray)) else column
        converted = []
        for row, value in enumerate(rows):
            try:
                converted.append(self.convert_value(value))
            except InvalidValue as failure:
                failure.at = row
                raise
        return converted

    def _convert_arrow(self, array: Any) -> Any:
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        ids = [self.convert_value(value) for value in encoded.dictionary.to_pylist()]
        if any(isinstance(one, str) for one in ids):
            return [None if place is None else ids[place] for place in encoded.indices.to_pylist()]
        return pa.array(ids, pa.int64()).take(encoded.indices)


@dataclass(frozen=True)
class ColumnConversions:
    """What happens to the columns of rows before they are encoded: some are left out, some become class ids."""

    classes: Mapping[str, ClassIds] = field(default_factory=dict)
    drop: frozenset[str] = frozenset()
    keep: tuple[str, ...] | None = None

    @property
    def needs_rows(self) -> bool:
        """Whether columns must be converted row by row: multi-hot vectors of a whole chunk could be too large."""
        return any(one.is_list for one in self.classes.values())

    def options(self) -> dict[str, Any]:
        """The conversions as JSON."""
        return {
            "classes": {name: list(one.names) for name, one in self.classes.items()},
            "drop": sorted(self.drop),
            "keep": None if self.keep is None else list(self.keep),
        }

    def is_kept(self, name: str) -> bool:
        """Whether a column is written."""
        return name not in self.drop and (self.keep is None or name in self.keep)

    def convert_row(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A row as the layout gets it. Raises EncodeError."""
        row = {name: value for name, value in values.items() if self.is_kept(name)}
        for name, ids in self.classes.items():
            if name in row:
                try:
                    row[name] = ids.convert_value(row[name])
                except InvalidValue as failure:
                    raise failure.to_error(name) from None
        return row

    def convert_columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Columns of many rows as they are encoded. Raises EncodeError, with the row."""
        columns = {name: column for name, column in values.items() if self.is_kept(name)}
        for name, ids in self.classes.items():
            if name in columns:
                try:
                    columns[name] = ids.convert_column(columns[name])
                except InvalidValue as failure:
                    raise failure.to_error(name, row=failure.at) from None
        return columns
