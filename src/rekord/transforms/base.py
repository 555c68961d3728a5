"""The protocol of transforms, from rows of one schema to rows of another, and the base of column transforms."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property, partial
from importlib import import_module
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np

from rekord.arguments import flag, invalid, is_utf8_encodable, positive_int
from rekord.codec.columns import Array
from rekord.codec.numbers import NumberRule, store_numbers
from rekord.codec.values import InvalidValue, store_string, store_strings
from rekord.errors import RekordError, error, schema_error
from rekord.schema import Bytes, Feature, Schema, Text
from rekord.schema.base import dtype_name

_MAX_SIDE = 16_384
"""Larger images are hardly intended, and a batch of them would not fit in memory."""


def validate_side(name: str, value: object) -> int:
    """A height or a width."""
    return positive_int(name, value, most=_MAX_SIDE, do=f"{name}=224")


def validate_colour(name: str, value: Any) -> tuple[int, ...]:
    """A grey value, or red, green and blue."""
    parts = list(value) if isinstance(value, (tuple, list)) else [value]
    sound = [hasattr(one, "__index__") and not isinstance(one, bool) and 0 <= one <= 255 for one in parts]
    if len(parts) not in (1, 3) or not all(sound):
        raise invalid(name, value, "an integer from 0 to 255, or three of them", f"{name}=0")
    return tuple([int(one.__index__()) for one in parts])


def validate_numbers(name: str, value: Any) -> tuple[float, ...]:
    """A finite number, or one per channel."""
    parts = list(value) if isinstance(value, (tuple, list)) or hasattr(value, "tolist") else [value]
    try:
        found = [float(one) for one in parts if not isinstance(one, (bool, str))]
    except (TypeError, ValueError, OverflowError):
        found = []
    if len(found) != len(parts) or not 1 <= len(found) <= 4 or not all(map(math.isfinite, found)):
        raise invalid(name, value, 'a number, one number per channel, or "imagenet"', f"{name}=(0.5, 0.5, 0.5)")
    return tuple(found)


Row: TypeAlias = "dict[str, Any]"
"""A row as it is stored: images encoded, text as str, labels as ids, numbers from NumPy or Python."""


@dataclass(frozen=True)
class Bound:
    """A transform bound to rows of one schema."""

    schema: Schema  # of the rows it returns
    apply: Callable[[Row], Row]  # takes ownership of the row; raises a DataError with the column for invalid values
    touches: frozenset[str] | None = None  # the columns it reads or writes; None: any of them
    settles: frozenset[tuple[str, str]] = frozenset()  # remarks that do not hold after it: their code and column


@runtime_checkable
class Transform(Protocol):
    """A transform of rows, such as those in `rk.transforms`."""

    @property
    def name(self) -> str:
        """Its name in `rk.transforms`."""

    def options(self) -> Mapping[str, Any]:
        """The arguments that recreate it, as JSON values; the manifest records them."""

    def bind(self, before: Schema) -> Bound:
        """The transform for rows of a schema. Raises a SchemaError if it does not apply to them."""


@runtime_checkable
class Learning(Protocol):
    """A transform that is fitted to all rows before it can be applied, such as one that builds a vocabulary."""

    @property
    def name(self) -> str: ...

    def begin(self, before: Schema) -> FitState:
        """The state before the first row."""


class FitState(Protocol):
    """What a transform has learned from some rows. It is pickled between workers, so keep it small."""

    def update(self, row: Row) -> None:
        """Add a row, which must not be changed."""

    def merge(self, other: FitState) -> None:
        """Add what another worker has seen. The order must not matter."""

    def learned(self) -> Transform:
        """The fitted transform."""


def apply_all(bounds: Sequence[Bound], row: Row) -> Row:
    """Apply all of them to a row, in order."""
    for bound in bounds:
        row = bound.apply(row)
    return row


def collect_companions(steps: Iterable[Transform]) -> dict[str, bytes]:
    """The files of all steps by name. Two steps may share a name only if they share the file."""
    files: dict[str, bytes] = {}
    for step in steps:
        companions = getattr(step, "companions", dict)
        for name, data in companions().items():
            if files.setdefault(name, data) != data:
                raise error(
                    "U605",
                    f"two transforms need different files named {name}",
                    expected="results with different names",
                    found=f"another `{step.name}` with the same result name",
                    do='into="other"',
                )
    return files


class RecordedTransform:
    """A transform whose fields are the arguments of the function in `rk.transforms` that creates it."""

    name: ClassVar[str]

    def options(self) -> Mapping[str, Any]:
        """The arguments that recreate it, as JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> Transform:
        """The transform with these options; `folder` has the files that belong to it."""
        transform: Transform = getattr(import_module("rekord.transforms"), cls.name)(**options)
        return transform


@dataclass(frozen=True, kw_only=True)
class ColumnTransform(RecordedTransform):
    """A transform of `column`. The result replaces the column or is named `into`; `keep` keeps both."""

    column: str
    into: str | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        for name, value in (("column", self.column), ("into", self.into)):
            if not (isinstance(value, str) and value) and not (name == "into" and value is None):
                raise invalid(name, value, "a column name", f'{name}="text"')
        flag("keep", self.keep)
        if self.keep and self.into is None:
            raise invalid("keep", True, "a name for the result: into=", 'keep=True, into="tokens"')

    @property
    def target(self) -> str:
        """The column of the result."""
        return self.into or self.column

    def placement_options(self) -> dict[str, Any]:
        """The fields of this class as JSON values."""
        return {"column": self.column, "into": self.into, "keep": self.keep}

    def require_source(self, before: Schema, allowed: tuple[type[Feature], ...], wanted: str) -> Feature:
        """The feature of the column. Raises if it has another type, or if the name of the result is taken."""
        feature = before[self.column]
        if self.column in before.steps or bool(getattr(feature, "partitions", None)):
            raise self.column_type_error("a column with one value or one list per record", feature)
        if not isinstance(feature, allowed):
            raise self.column_type_error(wanted, feature)
        if self.into is not None and self.into != self.column and self.into in before:
            raise schema_error(
                "S143",
                f"result column `{self.into}` already exists",
                column=self.into,
                expected="an unused column name",
                found=f"`{self.into}`: {before[self.into]!r}"[:60],
                do=f'into="{self.into}_2"',
            )
        return feature

    def require_text(self, before: Schema) -> Feature:
        """The feature of a column with one text per record."""
        feature = self.require_source(before, (Text, Bytes), "text")
        if feature.shape:
            raise self.column_type_error("one text per row", feature)
        return feature

    def column_type_error(
        self, wanted: str, feature: Feature, do: str = "name another column, or `cast` this one first"
    ) -> RekordError:
        """The error for a column whose type or shape the transform does not take."""
        return schema_error(
            "S142",
            f"`{self.name}` does not apply to `{self.column}`",
            column=self.column,
            expected=wanted,
            found=f"{feature!r}"[:60],
            do=do,
        )

    def shared(self, feature: Feature) -> dict[str, Any]:
        """What the result inherits: the key, if it replaces the column, and whether it is optional."""
        return {"key": feature.key if self.into is None else None, "optional": feature.optional}

    def bound(
        self,
        before: Schema,
        feature: Feature,
        read: Callable[[Row], Any],
        convert: Callable[[Any], Any] | None = None,
    ) -> Bound:
        """The transform that stores what `read` returns for a row in a column of this feature.

        With `convert`, the value is converted, unless it is missing.
        """
        value_of = read if convert is None else partial(_convert_present, read, convert)
        columns: dict[str, Feature] = {}
        for name, known in before.context.items():
            if name != self.column or self.keep:
                columns[name] = known
            if name == self.column:
                columns[self.target] = feature
        put = partial(_put_value, value_of, self.target, None if self.keep else self.column)
        return Bound(rebuild_schema(before, {**columns, **before.steps}), put, frozenset((self.column, self.target)))


def rebuild_schema(before: Schema, features: Mapping[str, Feature], steps: Collection[str] | None = None) -> Schema:
    """A schema of the same kind as `before` with other features; `steps` names those that are steps now."""
    if not before.is_sequence:
        return Schema(dict(features))
    inside = before.steps if steps is None else steps
    return Schema(
        context={name: one for name, one in features.items() if name not in inside},
        steps={name: one for name, one in features.items() if name in inside},
    )


def _convert_present(read: Callable[[Row], Any], convert: Callable[[Any], Any], row: Row) -> Any:
    value = read(row)
    return None if value is None else convert(value)


def _put_value(value_of: Callable[[Row], Any], target: str, dropped: str | None, row: Row) -> Row:
    value = value_of(row)
    if dropped is not None and dropped != target:
        row.pop(dropped, None)
    row[target] = value
    return row


def get_value(row: Row, column: str, feature: Feature) -> Any:
    """The value in a row, or the default; None if there is neither."""
    value = row.get(column)
    return feature.default_value() if value is None and feature.has_default else value


_FLOAT_TYPES = (float, np.float32, np.float64)
_INTEGER_TYPES = (int, np.int64)
_MAX_PLAIN_FLOAT = 3.4e38  # float32 holds a little more


@dataclass(frozen=True)
class NumberReader:
    """Reads the numbers of a column: Int64, Float32 or Label."""

    column: str
    feature: Feature

    @cached_property
    def _rule(self) -> NumberRule:
        return NumberRule.of(self.feature)

    @cached_property
    def _plain(self) -> tuple[Any, Any] | None:
        """The bounds of single numbers that need no further check; None if all of them do."""
        rule, name = self._rule, dtype_name(self.feature.dtype)
        if self.feature.shape or rule.exact or (rule.floats and rule.range is not None):
            return None
        if rule.floats:
            return (-_MAX_PLAIN_FLOAT, _MAX_PLAIN_FLOAT) if name == "float32" else None
        return None if name == "bool" else rule.bounds

    def array(self, row: Row) -> Array | None:
        """The numbers in the declared dtype and shape."""
        value = get_value(row, self.column, self.feature)
        if value is None:
            return None
        shape = self.feature.shape
        try:  # not `column_errors`, which takes longer than the numbers themselves
            flat = store_numbers(value, self._rule, shape)
        except InvalidValue as unfit:
            raise unfit.to_error(self.column) from unfit.__cause__
        dtype = self.feature.dtype
        if dtype_name(dtype) == "uint64":
            flat = flat.view(np.uint64)
        elif isinstance(dtype, np.dtype) and dtype.kind in "biuf":
            flat = flat.astype(dtype, copy=False)
        return flat.reshape([-1 if size is None else size for size in shape])

    def one(self, row: Row) -> Any:
        """The number in a column of single numbers, as a Python number."""
        value: Any = row.get(self.column)
        plain, floats = self._plain, self._rule.floats
        known = plain is not None and type(value) in (_FLOAT_TYPES if floats else _INTEGER_TYPES)
        if known and plain[0] <= value <= plain[1]:  # type: ignore[index]
            return float(np.float32(value)) if floats else int(value)
        array = self.array(row)
        return None if array is None else array.item()

    def flat(self, row: Row) -> list[Any] | None:
        """The numbers as Python numbers, in one list."""
        if not self.feature.shape:
            one = self.one(row)
            return None if one is None else [one]
        array = self.array(row)
        return None if array is None else list(array.ravel().tolist())


@dataclass(frozen=True)
class TextReader:
    """Reads the strings of a column: Text, or Bytes in UTF-8."""

    column: str
    feature: Feature

    def one(self, row: Row) -> str | None:
        """The text in a column of single texts."""
        value = row.get(self.column)
        if type(value) is str and not self.feature.shape and is_utf8_encodable(value):
            return value
        texts = self.flat(row)
        return None if texts is None else texts[0]

    def flat(self, row: Row) -> list[str] | None:
        """All texts, in one list."""
        strings = self.strings(row)
        if strings is None:
            return None
        if not self.feature.is_text:
            with column_errors(self.column):
                strings = [store_string(one, text=True, at=i) for i, one in enumerate(strings)]
        return [one.decode() for one in strings]

    def strings(self, row: Row) -> list[bytes] | None:
        """All values as the bytes that are stored, in one list."""
        value = get_value(row, self.column, self.feature)
        if value is None:
            return None
        try:
            return store_strings(value, self.feature, self.feature.shape)
        except InvalidValue as unfit:
            raise unfit.to_error(self.column) from unfit.__cause__


@contextmanager
def column_errors(column: str) -> Iterator[None]:
    """Raise an invalid value as the error that names its column."""
    try:
        yield
    except InvalidValue as unfit:
        raise unfit.to_error(column) from unfit.__cause__


def is_text_feature(feature: Feature) -> bool:
    """Whether the values of a column are strings."""
    return feature.value_kind in ("str", "bytes")


def is_tensor(feature: Feature) -> bool:
    """Whether values are arrays stored as one byte string."""
    return feature.storage == "blob" and feature.dtype is not None


def is_numeric(feature: Feature) -> bool:
    """Whether values are numbers, class ids included."""
    return is_tensor(feature) or feature.value_kind in ("int", "float")


def value_reader(column: str, feature: Feature) -> TextReader | NumberReader:
    """The reader of a column of strings or of numbers."""
    return TextReader(column, feature) if is_text_feature(feature) else NumberReader(column, feature)


def unflatten(values: list[Any], feature: Feature) -> Any:
    """The values of a row in the shape of a column of at most one dimension: the list, or its only value."""
    return values if feature.shape else values[0]
