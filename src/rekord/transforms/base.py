"""What a transform is: it turns rows of one schema into rows of another; and what transforms of one column share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from rekord.schema import Feature, Schema
from rekord.schema.base import dtype_name

_MAX_SIDE = 16_384
"""Larger images are hardly meant, and a batch of them would not fit into memory."""


def validate_side(name: str, value: object) -> int:
    """A height or a width."""
    return positive_int(name, value, most=_MAX_SIDE, do=f"{name}=224")


def validate_colour(name: str, value: Any) -> tuple[int, ...]:
    """A grey value, or red, green and blue."""
    parts = list(value) if isinstance(value, (tuple, list)) else [value]
    sound = [hasattr(one, "__index__") and not isinstance(one, bool) and 0 <= one <= 255 for one in parts]
    if len(parts) not in (1, 3) or not all(sound):
        raise invalid(name, value, "a number from 0 to 255, or three of them", f"{name}=0")
    return tuple([int(one.__index__()) for one in parts])


def validate_numbers(name: str, value: Any) -> tuple[float, ...]:
    """A finite number, or one for each channel."""
    parts = list(value) if isinstance(value, (tuple, list)) or hasattr(value, "tolist") else [value]
    try:
        found = [float(one) for one in parts if not isinstance(one, (bool, str))]
    except (TypeError, ValueError, OverflowError):
        found = []
    if len(found) != len(parts) or not 1 <= len(found) <= 4 or not all(map(math.isfinite, found)):
        raise invalid(name, value, 'a number, or one for each channel, or "imagenet"', f"{name}=(0.5, 0.5, 0.5)")
    return tuple(found)


Row: TypeAlias = "dict[str, Any]"
"""A row as it is stored: images encoded, texts as str, labels as ids, numbers as NumPy or Python has them."""


@dataclass(frozen=True)
class Bound:
    """A transform for rows of one schema."""

    schema: Schema  # of the rows that it makes
    apply: Callable[[Row], Row]  # the row becomes its own; what does not fit is a DataError with the column
    touches: frozenset[str] | None = None  # the columns that it looks at or makes; None: any of them


@runtime_checkable
class Transform(Protocol):
    """One of `rk.transforms`."""

    @property
    def name(self) -> str:
        """Its name in `rk.transforms`."""

    def options(self) -> Mapping[str, Any]:
        """The arguments that make it again, as JSON holds them; they stand in the manifest."""

    def bind(self, before: Schema) -> Bound:
        """The transform for rows of a schema. A SchemaError where it has no meaning for them."""


@runtime_checkable
class Learning(Protocol):
    """A transform that must see all rows before it can be applied, such as one that builds a vocabulary."""

    @property
    def name(self) -> str: ...

    def begin(self, before: Schema) -> FitState:
        """Nothing seen yet."""


class FitState(Protocol):
    """What was seen of some rows. It is pickled between workers, so it is as small as it can be."""

    def update(self, row: Row) -> None:
        """One more row; it is not changed."""

    def merge(self, other: FitState) -> None:
        """What another worker saw, too. The order must not matter."""

    def learned(self) -> Transform:
        """The transform that was to be learned."""


def apply_all(bounds: Sequence[Bound], row: Row) -> Row:
    """A row through all of them, in order."""
    for bound in bounds:
        row = bound.apply(row)
    return row


def collect_companions(steps: Iterable[Transform]) -> dict[str, bytes]:
    """The files of all steps by name. Two steps may share one, but not its name alone."""
    files: dict[str, bytes] = {}
    for step in steps:
        made = getattr(step, "companions", None)
        for name, data in {} if made is None else made().items():
            if files.setdefault(name, data) != data:
                raise error(
                    "U605",
                    f"two transforms would keep different files called {name}",
                    expected="transforms of different columns",
                    found=f"`{step.name}` a second time",
                    do='give one result another name: into="…"',
                )
    return files


def fields_to_json(transform: Any) -> dict[str, Any]:
    """The fields of a transform by name, as JSON holds them."""
    values = {field.name: getattr(transform, field.name) for field in fields(transform)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def make_transform(name: str, options: Mapping[str, Any]) -> Transform:
    """What the function of this name in `rk.transforms` makes of the options."""
    made: Transform = getattr(import_module("rekord.transforms"), name)(**options)
    return made


@dataclass(frozen=True, kw_only=True)
class ColumnTransform:
    """A transform of `column`. Its result takes the column's place, or is called `into`; `keep` leaves both."""

    column: str
    into: str | None = None
    keep: bool = False
    name: ClassVar[str] = "a transform"

    def __post_init__(self) -> None:
        for name, value in (("column", self.column), ("into", self.into)):
            if not (isinstance(value, str) and value) and not (name == "into" and value is None):
                raise invalid(name, value, "the name of a column", f'{name}="text"')
        flag("keep", self.keep)
        if self.keep and self.into is None:
            raise invalid("keep", True, "a name for the result beside it", 'keep=True, into="tokens"')

    @property
    def target(self) -> str:
        """The column of the result."""
        return self.into or self.column

    def options(self) -> Mapping[str, Any]:
        """The arguments that make it again, as JSON holds them."""
        return fields_to_json(self)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> Transform:
        """The transform that has these options; `folder` keeps the files that belong to it."""
        return make_transform(cls.name, options)

    def placement_options(self) -> dict[str, Any]:
        """Which column and where to, as JSON holds it."""
        return {"column": self.column, "into": self.into, "keep": self.keep}

    def require_source(self, before: Schema, allowed: tuple[type[Feature], ...], wanted: str) -> Feature:
        """The feature of the column, if it is one of these types; refused also where the result has no place."""
        feature = before[self.column]
        if self.column in before.steps or bool(getattr(feature, "partitions", None)):
            raise self.column_type_error("a column of one value or one list a record", feature)
        if not isinstance(feature, allowed):
            raise self.column_type_error(wanted, feature)
        if self.into is not None and self.into != self.column and self.into in before:
            raise schema_error(
                "S143",
                f"the result of a transform is to be called `{self.into}`, as a column is already",
                column=self.into,
                expected="a name that no column has",
                found=f"`{self.into}`: {before[self.into]!r}"[:60],
                do='give it another name: into="…"',
            )
        return feature

    def column_type_error(
        self, wanted: str, feature: Feature, do: str = "name another column, or `cast` it first"
    ) -> RekordError:
        """The refusal of a column for what it holds."""
        return schema_error(
            "S142",
            f"`{self.name}` has no meaning for `{self.column}`",
            column=self.column,
            expected=wanted,
            found=f"{feature!r}"[:60],
            do=do,
        )

    def shared(self, feature: Feature) -> dict[str, Any]:
        """What the feature of the result takes over: the key, if it takes the place, and whether there are holes."""
        return {"key": feature.key if self.into is None else None, "optional": feature.optional}

    def bound(self, before: Schema, feature: Feature, value_of: Callable[[Row], Any]) -> Bound:
        """The transform that puts what `value_of` gives for a row into a column of this feature."""
        columns: dict[str, Feature] = {}
        for name, known in before.context.items():
            if name != self.column or self.keep:
                columns[name] = known
            if name == self.column:
                columns[self.target] = feature
        if before.is_sequence:
            schema = Schema(context=columns, steps=before.steps)
        else:
            schema = Schema(columns)
        put = partial(_put_value, value_of, self.target, None if self.keep else self.column)
        return Bound(schema, put, frozenset((self.column, self.target)))


def _put_value(value_of: Callable[[Row], Any], target: str, dropped: str | None, row: Row) -> Row:
    value = value_of(row)
    if dropped is not None and dropped != target:
        row.pop(dropped, None)
    row[target] = value
    return row


def get_value(row: Row, column: str, feature: Feature) -> Any:
    """The value of a row, or the default; None where there is neither."""
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
        """The least and the greatest of single numbers that need no more looking at; None where all do."""
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
        try:
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
        """The number of a column of single ones, as Python's own."""
        value: Any = row.get(self.column)
        plain, floats = self._plain, self._rule.floats
        known = plain is not None and type(value) in (_FLOAT_TYPES if floats else _INTEGER_TYPES)
        if known and plain[0] <= value <= plain[1]:  # type: ignore[index]
            return float(np.float32(value)) if floats else int(value)
        array = self.array(row)
        return None if array is None else array.item()

    def flat(self, row: Row) -> list[Any] | None:
        """The numbers as Python's own, in one list."""
        if not self.feature.shape:
            one = self.one(row)
            return None if one is None else [one]
        array = self.array(row)
        numbers: list[Any] | None = None if array is None else array.ravel().tolist()
        return numbers


@dataclass(frozen=True)
class TextReader:
    """Reads the texts of a column: Text, or Bytes that are UTF-8."""

    column: str
    feature: Feature

    def one(self, row: Row) -> str | None:
        """The text of a column of single ones."""
        value = row.get(self.column)
        if type(value) is str and not self.feature.shape and is_utf8_encodable(value):
            return value
        texts = self.flat(row)
        return None if texts is None else texts[0]

    def flat(self, row: Row) -> list[str] | None:
        """All texts, in one list."""
        value = get_value(row, self.column, self.feature)
        if value is None:
            return None
        try:
            strings = store_strings(value, self.feature, self.feature.shape)
            if not self.feature.is_text:
                strings = [store_string(one, text=True, at=i) for i, one in enumerate(strings)]
        except InvalidValue as unfit:
            raise unfit.to_error(self.column) from unfit.__cause__
        return [one.decode() for one in strings]


def is_text_feature(feature: Feature) -> bool:
    return feature.value_kind in ("str", "bytes")
