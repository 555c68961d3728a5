"""What the values of one column have in common, and the feature that fits them."""

from __future__ import annotations

import datetime
import decimal
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord.errors import error, preview, schema_error
from rekord.location import Location
from rekord.schema.base import FLOAT_DTYPES, TENSOR_DTYPES, Feature, Shape
from rekord.schema.features import Bytes, Float32, Int64, Tensor, Text
from rekord.schema.row_adapters import is_missing
from rekord.schema.timestamp import TICKS_PER_SECOND, Timestamp

_FIRST_CHECK_VALUES = 1 << 16
_MAX_DISTINCT_VALUES = 1 << 22


def is_lossy_in_float32(values: Any) -> bool:
    """Whether float32 would merge two values, make one infinite, or change an integer."""
    array = np.asarray(values, np.float64)
    merging = Float32CollisionDetector()
    merging.add(array)
    with np.errstate(over="ignore", invalid="ignore"):
        whole = array == np.floor(array)
        changed = array.astype(np.float32).astype(np.float64) != array
    return merging.merges() or bool(np.any(whole & changed & np.isfinite(array)))


class Float32CollisionDetector:
    """Distinct float64 values, and whether float32 would merge two of them or make one infinite.

    At most four million distinct values are kept; further ones are compared with those only.
    """

    def __init__(self) -> None:
        self._kept: npt.NDArray[np.float64] = np.empty(0)
        self._waiting: list[npt.NDArray[np.float64]] = []
        self._waiting_values = 0
        self._found = False

    def add(self, values: Any) -> None:
        """Add values."""
        if self._found:
            return
        array = np.asarray(values, np.float64).ravel()
        self._waiting.append(array)
        self._waiting_values += array.size
        # As many new as old ones, so that sorting is amortised.
        if self._waiting_values >= max(_FIRST_CHECK_VALUES, self._kept.size):
            self._check_waiting()

    def merges(self) -> bool:
        """Whether float32 would lose more than digits."""
        self._check_waiting()
        return self._found

    def _check_waiting(self) -> None:
        if self._found or not self._waiting:
            return
        distinct = np.unique(np.concatenate([self._kept, *self._waiting]))
        self._waiting, self._waiting_values = [], 0
        distinct = distinct[np.isfinite(distinct)]
        with np.errstate(over="ignore"):
            rounded = distinct.astype(np.float32)
        self._found = bool(np.isinf(rounded).any() or (rounded[1:] == rounded[:-1]).any())
        if distinct.size <= _MAX_DISTINCT_VALUES or not self._kept.size:
            self._kept = distinct[:_MAX_DISTINCT_VALUES]


_DTYPE_FAMILIES = {
    "b": "bool",
    "i": "int",
    "u": "int",
    "f": "float",
    "c": "complex",
    "U": "text",
    "S": "bytes",
    "M": "time",
}
_PYTHON_SCALARS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "bool"),
    (int, "int"),
    (float, "float"),
    (complex, "complex"),
    (str, "text"),
    ((bytes, bytearray, memoryview), "bytes"),
    (datetime.datetime, "time"),
)
_MAX_DEPTH = 32

MISSING_VALUE = object()
"""Marks a None inside a list, as `unsupported_value` is None by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementSummary:
    """The elements of a value. `shape` is None if its parts have different shapes.

    `unsupported_value` is an element that no feature can hold, `remedy` what to do about it.
    """

    families: tuple[str, ...] = ()
    shape: tuple[int, ...] | None = ()
    dtype: Any = None  # None for Python numbers
    ints: tuple[int, int] | None = None  # the least and the greatest
    digits: int = 0  # significant bits of the longest integer
    float_range: tuple[float, float] | None = None  # of finite floats
    float64_values: Any = None
    times: tuple[tuple[str, str | None], ...] = ()  # units and time zones
    unsupported_value: Any = None
    remedy: str = ""


def summarize_elements(value: Any) -> ElementSummary:
    """The elements of one value of a row."""
    family = _python_type_family(value)
    if family is not None:
        return summarize_python_elements([value], (), (family,))
    if isinstance(value, (np.ndarray, np.generic)):
        return _summarize_array(np.asarray(value))
    if isinstance(value, (list, tuple)) or _is_sequence(value):
        return _summarize_list(value)
    if hasattr(value, "__array__") and not isinstance(value, (type, os.PathLike)) and not _is_image(value):
        try:
            return _summarize_array(np.asarray(value.__array__()))
        except Exception:  # a tensor on another device, or one with a gradient: it may raise anything
            return _summarize_unsupported(value)
    return _summarize_unsupported(value)


def _python_type_family(value: Any) -> str | None:
    if isinstance(value, np.generic) and not isinstance(value, (np.str_, np.bytes_)):
        return None  # np.float64 is a Python float, but has a dtype
    return next((family for kind, family in _PYTHON_SCALARS if isinstance(value, kind)), None)


def _summarize_array(array: Any) -> ElementSummary:
    dtype = array.dtype
    if dtype.name == "bfloat16":
        return ElementSummary(families=("float",), shape=array.shape, dtype=dtype)
    if dtype.kind == "O":
        return _summarize_list(array.tolist()) if array.ndim else summarize_elements(array[()])
    family = _DTYPE_FAMILIES.get(dtype.kind)
    if family is None or dtype.name in ("float128", "float96", "complex256", "complex192"):
        return _summarize_unsupported(array.ravel()[0] if array.size else array, dtype.name)
    if family in ("text", "bytes"):
        return ElementSummary(families=(family,), shape=array.shape)
    if family == "time":
        unit = _TIME_UNITS.get(np.datetime_data(dtype)[0])
        if unit is None:
            return _summarize_unsupported(array.ravel()[0] if array.size else array, dtype.name)
        return ElementSummary(families=(family,), shape=array.shape, times=((unit, None),))
    ints = reals = None
    digits = 0
    if family == "int" and array.size:
        ints = int(array.min()), int(array.max())
        digits = _count_significant_bits(array)
    if family == "float":
        finite = array[np.isfinite(array)]
        reals = (float(finite.min()), float(finite.max())) if finite.size else None
    doubles = array if dtype.name == "float64" else None
    return ElementSummary(
        families=(family,),
        shape=array.shape,
        dtype=dtype,
        ints=ints,
        digits=digits,
        float_range=reals,
        float64_values=doubles,
    )


def _summarize_list(value: Sequence[Any]) -> ElementSummary:
    flat: list[Any] = []
    shape = _flatten(value, flat, 0)
    if shape is not None and flat and all(isinstance(part, np.ndarray) for part in flat):
        shape = (*shape, *flat[0].shape) if len({part.shape for part in flat}) == 1 else None
        if shape is not None:
            return _summarize_array(np.concatenate([part.ravel() for part in flat]).reshape(shape))
    if shape is None:
        return ElementSummary(shape=None)
    kinds = {type(part): part for part in flat}
    families = {}
    for kind, part in kinds.items():
        family = _python_type_family(part)
        if family is None:
            inner = (
                summarize_elements(part)
                if isinstance(part, np.generic)
                else _summarize_unsupported(part, in_list=True)
            )
            if inner.unsupported_value is not None:
                return inner
            return (
                _summarize_array(np.asarray(flat).reshape(shape))
                if len(kinds) == 1
                else _summarize_mixed(flat, shape)
            )
        families[family] = kind
    return summarize_python_elements(flat, shape, tuple(families))


def _summarize_mixed(flat: list[Any], shape: tuple[int, ...]) -> ElementSummary:
    """NumPy scalars mixed with other values: as Python values, without loss."""
    plain = [part.item() if isinstance(part, np.generic) else part for part in flat]
    unsupported = [part for part in plain if _python_type_family(part) is None]
    if unsupported:
        return _summarize_unsupported(unsupported[0], in_list=True)
    return summarize_python_elements(
        plain, shape, tuple(dict.fromkeys(_python_type_family(part) or "" for part in plain))
    )


def _flatten(value: Sequence[Any], out: list[Any], depth: int) -> tuple[int, ...] | None:
    """The shape of nested lists, whose elements are appended to `out`; None if it is ragged."""
    shape: tuple[int, ...] | None = None
    for part in value:
        if isinstance(part, (list, tuple)) or (depth == 0 and _is_sequence(part)):
            if depth >= _MAX_DEPTH:
                return None
            inner = _flatten(part, out, depth + 1)
        else:
            inner = ()
            out.append(part)
        if inner is None or (shape is not None and inner != shape):
            return None
        shape = inner
    return (len(value), *(shape or ()))


def summarize_python_elements(flat: list[Any], shape: tuple[int, ...], families: tuple[str, ...]) -> ElementSummary:
    """The elements of a value that consists of Python values of these families."""
    ints = reals = doubles = None
    digits = 0
    if "int" in families:
        whole = [n for n in flat if isinstance(n, int)]
        ints = min(whole), max(whole)
        digits = max([(n // (n & -n)).bit_length() if n else 0 for n in map(abs, whole)])
    if "float" in families:
        doubles = [n for n in flat if isinstance(n, float)]
        finite = [n for n in doubles if isfinite(n)]
        reals = (min(finite), max(finite)) if finite else None
    return ElementSummary(
        families=families,
        shape=shape,
        ints=ints,
        digits=digits,
        float_range=reals,
        float64_values=doubles,
        times=tuple({_unit_and_zone(part): None for part in flat}) if families == ("time",) else (),
    )


_TIME_UNITS = {**dict.fromkeys(("Y", "M", "W", "D", "h", "m", "s"), "s"), "ms": "ms", "us": "us", "ns": "ns"}


def _unit_and_zone(value: datetime.datetime) -> tuple[str, str | None]:
    """The unit of a datetime, and its time zone; UTC for a zone without a name."""
    unit = _TIME_UNITS.get(getattr(value, "unit", "us"), "ns")  # a pandas Timestamp has a unit
    if value.tzinfo is None:
        return unit, None
    zone = getattr(value.tzinfo, "key", None) or getattr(value.tzinfo, "zone", None)
    return unit, zone if isinstance(zone, str) else "UTC"


def _count_significant_bits(whole: Any) -> int:
    """The significant bits of the longest integer, without trailing zeros."""
    if whole.dtype.kind == "u":
        magnitudes = whole.astype(np.uint64).ravel()
    else:
        bits = whole.astype(np.int64).ravel().view(np.uint64)
        magnitudes = np.where(bits >> np.uint64(63), ~bits + np.uint64(1), bits)
    magnitudes = magnitudes[magnitudes > 0]
    if not magnitudes.size:
        return 0
    return int((magnitudes // (magnitudes & (~magnitudes + np.uint64(1)))).max()).bit_length()


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview))


def _is_image(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "PIL"


def _summarize_unsupported(value: Any, dtype: str = "", *, in_list: bool = False) -> ElementSummary:
    if value is None:
        remedy = "drop None from the list, or make the whole value None"
    elif isinstance(value, (datetime.date, datetime.time, datetime.timedelta)) or dtype.startswith(
        ("datetime64", "timedelta64")
    ):
        remedy = "convert it to a datetime, to seconds, or to text: value.isoformat()"
    elif isinstance(value, decimal.Decimal):
        remedy = "convert it: float(value), str(value), or an integer of the smallest unit"
    elif isinstance(value, (set, frozenset)):
        remedy = "convert it to a list: sorted(value)"
    elif isinstance(value, os.PathLike) and in_list:
        remedy = "read the files: [path.read_bytes() for path in paths]"
    elif _is_image(value) and in_list:
        remedy = "write a row per image, or their encoded bytes as a list"
    elif isinstance(value, os.PathLike):
        remedy = "path.read_bytes(), or declare the column as rk.Image()"
    elif _is_image(value):
        remedy = "give the encoded bytes, or an array and declare rk.Image(format=…)"
    else:
        remedy = "convert it to numbers, text or bytes"
    return ElementSummary(unsupported_value=MISSING_VALUE if value is None else value, remedy=remedy)


_FAMILY_NAMES = {
    "bool": "bools",
    "int": "integers",
    "float": "floats",
    "complex": "complex numbers",
    "text": "strings",
    "bytes": "bytes",
    "time": "timestamps",
}
_PYTHON_DTYPES = {"bool": "bool", "int": "int64", "float": "float64", "complex": "complex128"}
_SIGNIFICAND_BITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
_INT64_RANGE = (-(2**63), 2**63 - 1)
_UINT64_MAX = 2**64 - 1
_SCALAR_FAMILIES = {bool: "bool", int: "int", float: "float", str: "text", bytes: "bytes"}
_RUN_VALUES = 4096


class ColumnEvidence:
    """What the values of one column have in common so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.present = 0
        self._families: dict[str, int] = {}  # and the first row of each
        self._dtypes: dict[str, None] = {}
        self._shapes: dict[int, list[int | None]] = {}  # by the number of dimensions
        self._raw = False  # has uint8 or uint16 arrays, stored as raw bytes
        self._empty = False  # has an empty list, whose elements could be anything
        self._ints: tuple[int, int] | None = None
        self._digits = 0
        self._reals: tuple[float, float] | None = None
        self._doubles = Float32CollisionDetector()
        self._times: dict[tuple[str, str | None], int] = {}  # units and time zones, and the first row of each
        # Consecutive scalars of one type are summarised together.
        self._run: list[Any] = []
        self._run_type: type = type(None)
        self._run_row = 0

    def add_column(self, values: Any, first_row: int) -> None:
        """Add the values of many rows: an array with the rows first, or a list."""
        if isinstance(values, np.ndarray) and values.dtype.kind in "biuf" and len(values):
            self.present += len(values)
            self._flush_run()
            self._note(summarize_elements(values), values.shape[1:], first_row)
            return
        if isinstance(values, np.ndarray) and values.dtype.kind == "M" and values.ndim == 1:
            self.add_times(values, None, first_row)
            return
        if hasattr(values, "type") and hasattr(values, "to_numpy"):  # timestamps of Arrow
            self.add_times(values.to_numpy(zero_copy_only=False), values.type.tz, first_row)
            return
        for row, value in enumerate(values, first_row):
            self.add(value, row)

    def add(self, value: Any, row: int) -> None:
        """Add one value."""
        if is_missing(value):
            return
        self.present += 1
        kind = type(value)
        if kind in _SCALAR_FAMILIES:
            if kind is not self._run_type:
                self._flush_run()
                self._run_type, self._run_row = kind, row
            if kind is not str and kind is not bytes:  # not kept: only their type matters
                self._run.append(value)
                if len(self._run) >= _RUN_VALUES:
                    self._summarize_run()
            return
        self._flush_run()
        leaves = summarize_elements(value)
        if leaves.unsupported_value is not None:
            raise self._unsupported_error(leaves, row)
        if leaves.shape is None:
            raise error(
                "S131",
                f"`{self.name}` has a list whose parts have different shapes",
                location=Location(feature=self.name, row=row),
                expected="parts of the same shape: only one dimension of a column may vary",
                found=preview(value),
                do="pad the parts to the same length, or declare partitions= for ragged values",
            )
        self._note(leaves, leaves.shape, row)

    def add_times(self, times: Any, zone: str | None, first_row: int) -> None:
        """Add many times in one time zone; NaT is missing."""
        present = int((~np.isnat(times)).sum())
        self.present += present
        self._flush_run()
        if present:
            leaves = summarize_elements(times)
            self._note(replace(leaves, times=tuple((unit, zone) for unit, _ in leaves.times)), (), first_row)

    def feature(self, rows: int) -> Feature:
        """The feature for the column, after `rows` rows."""
        self._flush_run()
        optional = self.present < rows
        shape = self._shape()
        families = set(self._families)
        if not families:
            # No values, or only empty lists: the type is unknown.
            return Bytes(shape=(None,), optional=optional)
        if families == {"text"}:
            return Text(shape=shape, optional=optional)
        if families == {"bytes"}:
            return Bytes(shape=shape, optional=optional)
        if families == {"time"}:
            return self._timestamps(shape, optional)
        if families <= {"bool", "int"}:
            return self._integer_feature(shape, optional)
        if families <= {"int", "float"}:
            return self._numbers(shape, optional)
        if families <= {"int", "float", "complex"}:
            return Tensor(self._common_dtype(), shape=shape, optional=optional)
        raise self._mixed_families_error()

    def evidence(self) -> dict[str, Any]:
        """The evidence as JSON-compatible values."""
        self._flush_run()
        out: dict[str, Any] = {"present": self.present, "types": list(self._families)}
        if self._dtypes:
            out["dtypes"] = list(self._dtypes)
        spans = [span for span in (self._ints, self._reals) if span is not None]
        if spans:
            out |= {"min": min(low for low, _ in spans), "max": max(high for _, high in spans)}
        return out

    def _flush_run(self) -> None:
        if self._run_type in _SCALAR_FAMILIES:
            self._summarize_run()
            self._run_type = type(None)

    def _summarize_run(self) -> None:
        family = _SCALAR_FAMILIES[self._run_type]
        values, self._run = self._run, []
        if values or family in ("text", "bytes"):
            self._note(summarize_python_elements(values, (), (family,)), (), self._run_row)

    def _note(self, leaves: ElementSummary, shape: tuple[int, ...], row: int) -> None:
        if not leaves.families and shape == (0,):
            self._empty = True
            return
        for family in leaves.families:
            self._families.setdefault(family, row)
            name = _PYTHON_DTYPES.get(family) if leaves.dtype is None else leaves.dtype.name
            if name is not None:
                self._dtypes[name] = None
        if leaves.dtype is not None and shape and leaves.dtype.name in ("uint8", "uint16"):
            self._raw = True
        if leaves.ints is not None:
            self._ints = least, most = _union_range(self._ints, leaves.ints)
            self._digits = max(self._digits, leaves.digits)
            self._check_64_bits(least, most)
        self._reals = _union_range(self._reals, leaves.float_range)
        for one in leaves.times:
            self._times.setdefault(one, row)
        if leaves.float64_values is not None:
            self._doubles.add(leaves.float64_values)
        known = self._shapes.setdefault(len(shape), list(shape))
        if known != list(shape):
            self._shapes[len(shape)] = [a if a == b else None for a, b in zip(known, shape, strict=True)]

    def _timestamps(self, shape: Shape, optional: bool) -> Feature:
        zones = {zone: row for (_, zone), row in reversed(self._times.items())}
        if None in zones and len(zones) > 1:
            raise schema_error(
                "S129",
                f"`{self.name}` has times with and without a time zone",
                column=self.name,
                expected="all times with a time zone, or all without",
                found=f"the other kind first in row {max(zones.values()):,}",
                do="value.replace(tzinfo=datetime.UTC), or another time zone",
            )
        unit: Any = max((unit for unit, _ in self._times), key=list(TICKS_PER_SECOND).index)
        zone = next(iter(zones)) if len(zones) == 1 else "UTC"
        return Timestamp(unit, shape, tz=zone, optional=optional)

    def _integer_feature(self, shape: Shape, optional: bool) -> Feature:
        name = "bool" if set(self._families) == {"bool"} else self._common_dtype()
        if self._raw or len(shape) > 1:
            return Tensor(name, shape=shape, optional=optional)
        return Int64(shape=shape, dtype=name, optional=optional)

    def _numbers(self, shape: Shape, optional: bool) -> Feature:
        name = self._common_dtype()
        if len(shape) > 1:
            return Tensor(name, shape=shape, optional=optional)
        merges = self._doubles.merges()
        self._check_exact("float64" if merges else "float32" if name == "float64" else name)
        if merges:
            return Tensor("float64", shape=shape, optional=optional)
        return Float32(shape=shape, dtype=name if name in FLOAT_DTYPES else "float32", optional=optional)

    def _common_dtype(self) -> str:
        """The dtype that can hold all values."""
        names = [name for name in self._dtypes if name in TENSOR_DTYPES and name != "bool"]
        if len(names) > 1 and "bfloat16" in names:
            names = ["float32" if name == "bfloat16" else name for name in names]
        if set(self._families) <= {"bool", "int"}:
            common = np.result_type(*[np.dtype(name) for name in names])
            if common.kind in "iu" and common.name not in ("int64", "uint64"):
                return str(common.name)
            # int64 mixed with uint64, or Python integers: whichever holds the numbers.
            if names == ["uint64"] or (self._ints is not None and self._ints[1] > _INT64_RANGE[1]):
                return "uint64"
            return "int64"
        floats = [name for name in names if "int" not in name]
        if floats == ["bfloat16"]:
            return "bfloat16"
        return str(np.result_type(*[np.dtype(name) for name in floats]).name)

    def _check_64_bits(self, least: int, most: int) -> None:
        if _INT64_RANGE[0] <= least and (most <= _INT64_RANGE[1] or (least >= 0 and most <= _UINT64_MAX)):
            return
        raise schema_error(
            "S130",
            f"`{self.name}` has an integer that does not fit 64 bits",
            column=self.name,
            expected="integers from -2^63 to 2^63 - 1, or from 0 to 2^64 - 1",
            found=f"integers from {preview(least)} to {preview(most)}",
            do="store it as text: str(number)",
        )

    def _check_exact(self, dtype: str) -> None:
        """Integers mixed with floats must be exact."""
        holds = _SIGNIFICAND_BITS[dtype]
        if "int" not in self._families or self._digits <= holds:
            return
        least, most = self._ints or (0, 0)
        raise schema_error(
            "S129",
            f"`{self.name}` has floats, and integers that {dtype} cannot represent exactly",
            column=self.name,
            expected=f"integers of at most {holds} bits, or no floats",
            found=f"integers from {least} to {most}, of up to {self._digits} bits",
            do="convert the column to all integers or all floats, or declare it in a schema",
        )

    def _shape(self) -> Shape:
        if self._empty and not self._shapes:
            return (None,)
        if not self._shapes:
            return ()
        if self._empty and 0 not in self._shapes:
            # For an array of any number of dimensions, an empty list means that the first may be 0.
            for sizes in self._shapes.values():
                sizes[0] = sizes[0] if sizes[0] == 0 else None
        if len(self._shapes) > 1 or (self._empty and 0 in self._shapes):
            dimensions = sorted({*self._shapes, *([1] if self._empty else [])})
            raise schema_error(
                "S131",
                f"`{self.name}` has values with different numbers of dimensions",
                column=self.name,
                expected="always a scalar, or always the same number of dimensions",
                found=" and ".join([f"{n} dimension" + "s" * (n != 1) for n in dimensions]),
                do="wrap scalars in lists: [value]",
            )
        (sizes,) = self._shapes.values()
        if len(sizes) == 1 and sizes[0] in (0, None):
            return (None,)
        known = math.prod(size for size in sizes if size is not None)
        # Arrays of numbers are stored with their shapes.
        is_tensor = set(self._families) <= {"bool", "int", "float", "complex"}
        if (sizes.count(None) > 1 and not is_tensor) or (None in sizes and known == 0):
            raise schema_error(
                "S131",
                f"`{self.name}` has values whose sizes vary in more than one dimension"
                if known
                else f"`{self.name}` has empty values whose sizes vary",
                column=self.name,
                expected="at most one dimension that varies" if known else "sizes that can be restored",
                found=f"shape {tuple(sizes)}",
                do="pad or crop the values to one size, or store them as encoded images or bytes",
            )
        return tuple(sizes)

    def _mixed_families_error(self) -> Exception:
        (one, _), (other, row) = list(self._families.items())[:2]
        texts = {one, other} == {"text", "bytes"}
        return schema_error(
            "S129",
            f"`{self.name}` has {_FAMILY_NAMES[one]} and {_FAMILY_NAMES[other]}",
            column=self.name,
            expected="values of one type",
            found=f"{_FAMILY_NAMES[other]} first in row {row:,}",
            do="encode the strings: value.encode()" if texts else "convert them to one type",
        )

    def _unsupported_error(self, leaves: ElementSummary, row: int) -> Exception:
        hole = leaves.unsupported_value is MISSING_VALUE
        what = "None inside a list" if hole else f"a value of type {_type_name(leaves.unsupported_value)}"
        return error(
            "S130",
            f"`{self.name}` has {what}",
            location=Location(feature=self.name, row=row),
            expected="numbers, bools, strings, bytes, datetimes, or lists and arrays of them",
            found=preview(None if hole else leaves.unsupported_value),
            do=leaves.remedy,
        )


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ in ("builtins", "numpy") else f"{kind.__module__}.{kind.__name__}"


def _union_range(a: Any, b: Any) -> Any:
    """The union of two ranges, either of which may be None."""
    if a is None or b is None:
        return b if a is None else a
    return min(a[0], b[0]), max(a[1], b[1])
