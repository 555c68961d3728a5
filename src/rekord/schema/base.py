"""What every declared type shares: key, presence, default, equality and the way it is written down."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from rekord.errors import RekordError
from rekord.schema.defaults import ABSENT, Absent, Misfit, is_unicode, plain
from rekord.schema.dtypes import dtype_name
from rekord.schema.refuse import refuse, shown
from rekord.schema.shapes import Shape

Kind: TypeAlias = Literal["int64", "float", "bytes"]

_BASE = ("key", "optional", "default")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Feature:
    """What all types share. `key` is the name in the record, the column's own where it is None.

    A value may be absent when `optional`, or when there is a `default`, which is kept as plain Python values
    (nested tuples for a shape). Two features are equal when they declare the same.
    """

    key: str | None = None
    optional: bool = False
    default: Any = ABSENT

    _kind: ClassVar[Kind] = "bytes"
    _stored_as_list: ClassVar[bool] = True  # a list element for each value, not one byte string for all
    _first: ClassVar[tuple[str, ...]] = ()  # the fields that repr shows without their names

    if TYPE_CHECKING:
        # Fields or properties of every subclass; real ones here would become the defaults of its fields.
        @property
        def shape(self) -> Shape: ...
        @property
        def dtype(self) -> Any: ...

    @property
    def kind(self) -> Kind:
        """The kind of list in the record that holds the values."""
        return self._kind

    @property
    def has_default(self) -> bool:
        return not isinstance(self.default, Absent)

    @property
    def required(self) -> bool:
        """Whether a record without this feature is an error."""
        return not self.optional and not self.has_default

    @property
    def variable(self) -> bool:
        """Whether the number of values varies from record to record."""
        return None in self.shape

    def record_keys(self, column: str) -> tuple[str, ...]:
        """The record's keys for this feature, the values' own first where there is one for the values."""
        return (self.key or column, *self._partition_keys())

    def record_kinds(self) -> tuple[Kind, ...]:
        """The list kind of each of `record_keys`, in the same order."""
        lengths: list[Kind] = ["int64" for _ in self._partition_keys()]
        return (self.kind, *lengths)

    def default_value(self) -> Any:
        """The default as a row holds it: an array or scalar of the dtype, else bytes, str, nested tuples."""
        dtype = self.dtype
        if not isinstance(dtype, np.dtype) or self._partition_keys():
            return self.default
        if self.shape == ():
            return dtype.type(self.default)
        array = np.array(self.default, dtype)
        known = int(np.prod([size for size in self.shape if size is not None]))
        missing = array.size // known if known else 0
        return array.reshape([missing if size is None else size for size in self.shape])

    def declared(self) -> dict[str, Any]:
        """The fields that were given another value than the usual one, in the order of the declaration."""
        own = [field for field in dataclasses.fields(self) if field.name not in _BASE]
        shared = [field for field in dataclasses.fields(self) if field.name in _BASE]
        values = {field.name: (getattr(self, field.name), field.default) for field in own + shared}
        return {name: value for name, (value, usual) in values.items() if not _same(value, usual)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Feature) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        parts = []
        for name, value in self.declared().items():
            parts.append(_written(value) if name in self._first else f"{name}={_written(value)}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def _identity(self) -> tuple[Any, ...]:
        values = [_exact(getattr(self, field.name)) for field in dataclasses.fields(self)]
        return (type(self).__name__, *values)

    def _partition_keys(self) -> tuple[str, ...]:
        return getattr(self, "partitions", ())

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __post_init__(self) -> None:
        # The key first, as errors name it; the default last, as it has to fit everything else.
        if self.key is not None:
            checked_name(self.key, f"the record key of a feature ({type(self).__name__})")
        self._check_own()
        self._check_flag("optional", self.optional)
        if self.optional and self.has_default:
            raise self._refuse(
                "S107",
                "is both optional and has a default",
                expected="one of the two: a hole that is kept, or a value that fills it",
                found=f"optional=True, default={shown(self.default)}",
                do="drop optional=True, or drop default=",
            )
        if self.optional and self._stored_as_list and 0 in self.shape:
            raise self._refuse(
                "S124",
                "is optional and always empty",
                expected="an optional feature that can hold a value: an empty list would mean absent",
                found=f"shape={self.shape}",
                do="drop optional=True, or give the shape that the values have",
            )
        if self.has_default:
            try:
                self._set("default", self._fit(self.default))
            except Misfit as misfit:
                raise self._refuse(
                    "S106",
                    "has a default that does not fit it",
                    expected=misfit.expected,
                    found=misfit.found,
                    do="give a default that could have been a value of the column",
                ) from None

    def _check_own(self) -> None:
        """Check the fields of the type itself, and bring them into their one form."""

    def _fit(self, value: object) -> Any:
        """A default in its one form; raises Misfit."""
        raise NotImplementedError

    def _check_flag(self, name: str, value: object) -> None:
        if not isinstance(value, bool):
            raise self._refuse(
                "S110",
                f"has {name}={shown(value)}",
                expected=f"{name}=True or {name}=False",
                found=shown(value),
                do="give a bool",
            )

    def _checked_whole(self, name: str, value: object, low: int, high: int) -> int:
        value = plain(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._refuse(
                "S110",
                f"has {name}={shown(value)}",
                expected=f"a whole number from {low} to {high}",
                found=shown(value),
                do=f"give {name} a number in this range",
            )
        return value

    def _refuse(self, code: str, what: str, *, expected: str, found: str, do: str) -> RekordError:
        name = type(self).__name__
        column = self.key if isinstance(self.key, str) else None
        who = f"{name} `{column}`" if column else name
        return refuse(code, f"{who} {what}", column=column, expected=expected, found=found, do=do)


def checked_name(name: object, what: str) -> str:
    """A column's name or a record key: a text that a record can hold."""
    if not isinstance(name, str) or not name or not is_unicode(name):
        raise refuse(
            "S109",
            f"{what} is not a name",
            column=name if isinstance(name, str) and name and is_unicode(name) else None,
            expected="a str of at least one character that UTF-8 can hold",
            found=shown(name),
            do="give it a name",
        )
    return name


def _same(value: Any, usual: Any) -> bool:
    if isinstance(usual, str) and not isinstance(value, str):
        return hasattr(value, "name") and dtype_name(value) == usual
    return type(value) is type(usual) and _exact(value) == _exact(usual)


def _exact(value: Any) -> Any:
    """A stand-in that is equal only to itself: NaN to NaN, but 0.0 not to -0.0, as their bytes are."""
    if isinstance(value, tuple):
        return tuple([_exact(part) for part in value])
    if isinstance(value, float):
        return "float", value.hex()
    if isinstance(value, complex):
        return "complex", value.real.hex(), value.imag.hex()
    return dtype_name(value) if isinstance(value, np.dtype) else value


def _written(value: Any) -> str:
    if isinstance(value, np.dtype):
        return repr(dtype_name(value))
    if isinstance(value, float) and not np.isfinite(value):
        return f"float('{value}')"
    if isinstance(value, tuple):
        inner = ", ".join([_written(part) for part in value])
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)
