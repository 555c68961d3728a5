"""One column of rows as it is being looked at, and the feature that its values fit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rekord.errors import error
from rekord.location import Location
from rekord.schema.base import Feature
from rekord.schema.dtypes import FLOATS, TENSORS
from rekord.schema.feature import Bytes, Float32, Int64, Tensor, Text
from rekord.schema.leaves import HOLE, Leaves, leaves_of, python_leaves
from rekord.schema.merging import Merging
from rekord.schema.refuse import refuse, shown
from rekord.schema.rowforms import is_missing
from rekord.schema.shapes import Shape

_WORDS = {
    "bool": "bools",
    "int": "whole numbers",
    "float": "floats",
    "complex": "complex numbers",
    "text": "texts",
    "bytes": "bytes",
}
_PYTHON = {"bool": "bool", "int": "int64", "float": "float64", "complex": "complex128"}
_DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
_INT64 = (-(2**63), 2**63 - 1)
_UINT64_MOST = 2**64 - 1
_SCALARS = {bool: "bool", int: "int", float: "float", str: "text", bytes: "bytes"}
_RUN_VALUES = 4096


class SeenColumn:
    """What the values of one column have in common so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.present = 0
        self._families: dict[str, int] = {}  # and the row that each was first seen in
        self._dtypes: dict[str, None] = {}
        self._shapes: dict[int, list[int | None]] = {}  # by the number of dimensions
        self._raw = False  # uint8 and uint16 arrays are kept as raw bytes
        self._empty = False  # an empty list, whose elements could be anything
        self._ints: tuple[int, int] | None = None
        self._digits = 0
        self._reals: tuple[float, float] | None = None
        self._doubles = Merging()
        # Scalars of one type that came one after another wait to be looked at together.
        self._run: list[Any] = []
        self._run_type: type = type(None)
        self._run_row = 0

    def add_column(self, values: Any, first_row: int) -> None:
        """Look at the values of many rows: an array with a row for each, or a list."""
        if isinstance(values, np.ndarray) and values.dtype.kind in "biuf" and len(values):
            self.present += len(values)
            self._end_run()
            self._note(leaves_of(values), values.shape[1:], first_row)
            return
        for row, value in enumerate(values, first_row):
            self.add(value, row)

    def add(self, value: Any, row: int) -> None:
        """Look at one value."""
        if is_missing(value):
            return
        self.present += 1
        kind = type(value)
        if kind in _SCALARS:
            if kind is not self._run_type:
                self._end_run()
                self._run_type, self._run_row = kind, row
            if kind is not str and kind is not bytes:  # large ones are not held; their type is all there is
                self._run.append(value)
                if len(self._run) >= _RUN_VALUES:
                    self._look_at_run()
            return
        self._end_run()
        leaves = leaves_of(value)
        if leaves.strange is not None:
            raise self._strange(leaves, row)
        if leaves.shape is None:
            raise self._uneven(value, row)
        self._note(leaves, leaves.shape, row)

    def feature(self, rows: int) -> Feature:
        """The type of the column, now that `rows` rows have been seen."""
        self._end_run()
        optional = self.present < rows
        shape = self._shape()
        families = set(self._families)
        if not families:
            # Never a value, or only empty lists: what it would hold cannot be known.
            return Bytes(shape=(None,), optional=optional)
        if families == {"text"}:
            return Text(shape=shape, optional=optional)
        if families == {"bytes"}:
            return Bytes(shape=shape, optional=optional)
        if families <= {"bool", "int"}:
            return self._whole_numbers(shape, optional)
        if families <= {"int", "float"}:
            return self._numbers(shape, optional)
        if families <= {"int", "float", "complex"}:
            return Tensor(self._common_dtype(), shape=shape, optional=optional)
        raise self._several()

    def evidence(self) -> dict[str, Any]:
        """What was seen, as JSON holds it."""
        self._end_run()
        out: dict[str, Any] = {"present": self.present, "types": list(self._families)}
        if self._dtypes:
            out["dtypes"] = list(self._dtypes)
        spans = [span for span in (self._ints, self._reals) if span is not None]
        if spans:
            out |= {"min": min(low for low, _ in spans), "max": max(high for _, high in spans)}
        return out

    def _end_run(self) -> None:
        if self._run_type in _SCALARS:
            self._look_at_run()
            self._run_type = type(None)

    def _look_at_run(self) -> None:
        family = _SCALARS[self._run_type]
        values, self._run = self._run, []
        if values or family in ("text", "bytes"):
            self._note(python_leaves(values, (), (family,)), (), self._run_row)

    def _note(self, leaves: Leaves, shape: tuple[int, ...], row: int) -> None:
        if not leaves.families and shape == (0,):
            self._empty = True
            return
        for family in leaves.families:
            self._families.setdefault(family, row)
            name = _PYTHON.get(family) if leaves.dtype is None else leaves.dtype.name
            if name is not None:
                self._dtypes[name] = None
        if leaves.dtype is not None and shape and leaves.dtype.name in ("uint8", "uint16"):
            self._raw = True
        if leaves.ints is not None:
            self._ints = least, most = _wider(self._ints, leaves.ints)
            self._digits = max(self._digits, leaves.digits)
            self._check_64_bits(least, most)
        self._reals = _wider(self._reals, leaves.reals)
        if leaves.doubles is not None:
            self._doubles.add(leaves.doubles)
        known = self._shapes.setdefault(len(shape), list(shape))
        if known != list(shape):
            self._shapes[len(shape)] = [a if a == b else None for a, b in zip(known, shape, strict=True)]

    def _whole_numbers(self, shape: Shape, optional: bool) -> Feature:
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
        return Float32(shape=shape, dtype=name if name in FLOATS else "float32", optional=optional)

    def _common_dtype(self) -> str:
        """The dtype that holds all values: that of the arrays, or Python's own."""
        names = [name for name in self._dtypes if name in TENSORS and name != "bool"]
        if len(names) > 1 and "bfloat16" in names:
            names = ["float32" if name == "bfloat16" else name for name in names]
        if set(self._families) <= {"bool", "int"}:
            common = np.result_type(*[np.dtype(name) for name in names])
            if common.kind in "iu" and common.name not in ("int64", "uint64"):
                return str(common.name)
            # int64 beside uint64, or Python's ints: whichever holds the numbers that there are.
            if names == ["uint64"] or (self._ints is not None and self._ints[1] > _INT64[1]):
                return "uint64"
            return "int64"
        floats = [name for name in names if "int" not in name]
        if floats == ["bfloat16"]:
            return "bfloat16"
        return str(np.result_type(*[np.dtype(name) for name in floats]).name)

    def _check_64_bits(self, least: int, most: int) -> None:
        if _INT64[0] <= least and (most <= _INT64[1] or (least >= 0 and most <= _UINT64_MOST)):
            return
        raise refuse(
            "S130",
            f"`{self.name}` has a whole number that 64 bits cannot hold",
            column=self.name,
            expected="numbers from -2^63 to 2^63 - 1, or from 0 to 2^64 - 1",
            found=f"numbers from {shown(least)} to {shown(most)}",
            do="store it as text: str(number)",
        )

    def _check_exact(self, dtype: str) -> None:
        """Whole numbers among floats must survive."""
        holds = _DIGITS[dtype]
        if "int" not in self._families or self._digits <= holds:
            return
        least, most = self._ints or (0, 0)
        raise refuse(
            "S129",
            f"`{self.name}` has floats, and whole numbers that {dtype} cannot hold beside them",
            column=self.name,
            expected=f"whole numbers of at most {holds} binary digits, or no floats",
            found=f"whole numbers from {least} to {most}, of up to {self._digits} digits",
            do="make the column all ints or all floats, or declare it in a schema of your own",
        )

    def _shape(self) -> Shape:
        if self._empty and not self._shapes:
            return (None,)
        if not self._shapes:
            return ()
        if self._empty and 0 not in self._shapes:
            # Of an array of any number of dimensions it says that the first may be 0.
            for sizes in self._shapes.values():
                sizes[0] = sizes[0] if sizes[0] == 0 else None
        if len(self._shapes) > 1 or (self._empty and 0 in self._shapes):
            dimensions = sorted({*self._shapes, *([1] if self._empty else [])})
            raise refuse(
                "S131",
                f"`{self.name}` has values of different numbers of dimensions",
                column=self.name,
                expected="always a scalar, always a list, or always an array of as many dimensions",
                found=" and ".join([f"{n} dimension" + "s" * (n != 1) for n in dimensions]),
                do="wrap scalars into lists: [value]",
            )
        (sizes,) = self._shapes.values()
        if len(sizes) == 1 and sizes[0] in (0, None):
            return (None,)
        known = math.prod(size for size in sizes if size is not None)
        if sizes.count(None) > 1 or (None in sizes and known == 0):
            raise refuse(
                "S131",
                f"`{self.name}` has values whose sizes differ in more than one dimension"
                if known
                else f"`{self.name}` has values without elements whose sizes differ",
                column=self.name,
                expected="at most one dimension that varies" if known else "sizes that can be restored",
                found=f"shape {tuple(sizes)}",
                do="pad or crop the values to one size, or store them encoded, as an image or as bytes",
            )
        return tuple(sizes)

    def _several(self) -> Exception:
        (one, _), (other, row) = list(self._families.items())[:2]
        texts = {one, other} == {"text", "bytes"}
        return refuse(
            "S129",
            f"`{self.name}` has {_WORDS[one]} and {_WORDS[other]}",
            column=self.name,
            expected="values of one type in a column",
            found=f"{_WORDS[other]} first in row {row:,}",
            do="encode the texts: value.encode()" if texts else "convert them to one type",
        )

    def _strange(self, leaves: Leaves, row: int) -> Exception:
        hole = leaves.strange is HOLE
        what = "None inside a list" if hole else f"a value of type {_type_name(leaves.strange)}"
        return error(
            "S130",
            f"`{self.name}` has {what}",
            location=Location(feature=self.name, row=row),
            expected="numbers, bools, texts, bytes, or lists and arrays of them",
            found=shown(None if hole else leaves.strange),
            do=leaves.remedy,
        )

    def _uneven(self, value: Any, row: int) -> Exception:
        return error(
            "S131",
            f"`{self.name}` has a list of parts of different shapes",
            location=Location(feature=self.name, row=row),
            expected="parts of one shape: only one dimension of a column may vary",
            found=shown(value),
            do="pad the parts to one length, or declare partitions= for ragged values",
        )


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ in ("builtins", "numpy") else f"{kind.__module__}.{kind.__name__}"


def _wider(a: Any, b: Any) -> Any:
    """The span of two spans, either of which may be none."""
    if a is None or b is None:
        return b if a is None else a
    return min(a[0], b[0]), max(a[1], b[1])
