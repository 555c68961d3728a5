"""Columns as other types: numbers of another dtype, texts as numbers, numbers as texts; nothing is lost unasked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, isinf
from typing import Any

import numpy as np

from rekord.codec.columns import Array
from rekord.codec.tensors import stored_tensor
from rekord.codec.unfit import Unfit, described
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Feature, Float32, Int64, Label, Schema, Tensor, Text
from rekord.schema.dtypes import FLOATS, INTEGERS, dtype_name, integer_bounds, rounded
from rekord.transforms.base import Bound, Row
from rekord.transforms.one_column import Numbers, OneColumn, Texts, given, is_texts, unusable

_TARGETS = (*INTEGERS, *FLOATS, "float64", "text", "bytes")
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_MOST_DIGITS = 400  # of a number in a text; more say nothing
_BOOLS = {"true": 1, "false": 0, "1": 1, "0": 0}


def cast(
    column: str, dtype: str, *, lossy: bool = False, into: str | None = None, keep: bool = False
) -> Cast:
    """A column as another type: a dtype of whole numbers or floats, `text` or `bytes`.

    A value that would not survive is refused. With `lossy` fractions are cut off and digits rounded away, and bytes
    that are no text are replaced; what is too large for the dtype is refused all the same. A text is a number where
    it is written as one; a label is its id as a number, and its name as a text.
    """
    if not isinstance(dtype, str) or dtype not in _TARGETS:
        raise unusable("dtype", dtype, "one of " + ", ".join(_TARGETS), 'dtype="float32"')
    if not isinstance(lossy, bool):
        raise unusable("lossy", lossy, "True or False", "lossy=True")
    return Cast(column=column, dtype=dtype, lossy=lossy, into=into, keep=keep)


@dataclass(frozen=True, kw_only=True)
class Cast(OneColumn):
    """The transform that `cast` makes."""

    dtype: str
    lossy: bool

    name = "cast"

    def options(self) -> Mapping[str, Any]:
        return {**self.placed(), "dtype": self.dtype, "lossy": self.lossy}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> Cast:
        return cast(**options)

    def bind(self, before: Schema) -> Bound:
        allowed = (Int64, Float32, Label, Text, Bytes, Tensor)
        feature = self.source_of(before, allowed, "numbers, labels, texts or bytes")
        if isinstance(feature, Tensor) and dtype_name(feature.dtype) not in (*INTEGERS, *FLOATS, "float64"):
            raise self.misfit("real numbers", feature)
        if isinstance(feature, Tensor) and isinstance(feature.dtype, str):
            raise self.misfit("a dtype that NumPy knows (bfloat16 needs ml_dtypes)", feature)
        made = _made(self.dtype, feature, self.shared(feature))
        return self.bound(before, made, _Casting(self.column, feature, self.dtype, self.lossy))


def _made(dtype: str, feature: Feature, shared: dict[str, Any]) -> Feature:
    if dtype == "text":
        return Text(feature.shape, **shared)
    if dtype == "bytes":
        return Bytes(feature.shape, **shared)
    if dtype == "float64":
        return Tensor("float64", feature.shape, **shared)
    if dtype in INTEGERS:
        return Int64(feature.shape, dtype=dtype, **shared)
    return Float32(feature.shape, dtype=dtype, **shared)


@dataclass(frozen=True)
class _Casting:
    column: str
    feature: Feature
    dtype: str
    lossy: bool

    def __call__(self, row: Row) -> Any:
        if is_texts(self.feature):
            return self._of_texts(row)
        array = self._numbers(row)
        if array is None:
            return None
        if self.dtype in ("text", "bytes"):
            texts = [self._text(one) for one in array.ravel()]
            return self._shaped(
                [one.encode() for one in texts] if self.dtype == "bytes" else texts, array.shape
            )
        made = self._as_numbers(array)
        return made if array.ndim else made[()]

    # From texts.

    def _of_texts(self, row: Row) -> Any:
        value = given(row, self.column, self.feature)
        if value is None:
            return None
        if self.dtype == "bytes" or (self.dtype == "text" and isinstance(self.feature, Text)):
            return value  # the encoder takes either for bytes, and looks at texts
        if self.dtype == "text":
            return self._decoded(value)
        texts = Texts(self.column, self.feature).flat(row)
        assert texts is not None
        shape = np.shape(value) if self.feature.shape else ()
        numbers = [self._parsed(text) for text in texts]
        array = np.array(numbers, "O").reshape(shape)
        return array.tolist() if self.dtype != "float64" else array.astype(np.float64)

    def _decoded(self, value: Any) -> Any:
        """Bytes as texts; without `lossy` the encoder judges them."""
        if not self.lossy:
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value).decode("utf-8", "replace")
        if isinstance(value, (list, tuple, np.ndarray)):
            return [self._decoded(one) for one in value]
        return value

    def _parsed(self, text: str) -> int | float:
        bare = text.strip()
        if len(bare) > _MOST_DIGITS or "_" in bare:
            raise self._lost(text, "a number")
        if self.dtype == "bool":
            if bare.lower() not in _BOOLS:
                raise self._lost(text, "true, false, 1 or 0")
            return _BOOLS[bare.lower()]
        if _WHOLE.fullmatch(bare):
            number: int | float = int(bare)
        else:
            try:
                number = float(bare)
            except ValueError:
                raise self._lost(text, "a number") from None
        if self.dtype in INTEGERS:
            return self._whole(number, text)
        near = self._real(float(number) if abs(number) < 1 << 1000 else np.inf)
        if isinf(near) and (isinstance(number, int) or isfinite(number)):
            raise self._lost(text, f"a number that {self.dtype} holds")
        return near

    def _whole(self, number: int | float, shown: Any) -> int:
        low, high = integer_bounds(np.dtype(self.dtype))
        if isinstance(number, float):
            if not isfinite(number):
                raise self._lost(shown, "a whole number")
            if not number.is_integer() and not self.lossy:
                raise self._lost(shown, "a whole number", "lossy=True cuts the fraction off")
            number = int(number)
        if not low <= number <= high:
            raise self._lost(shown, f"a whole number from {low} to {high}")
        return number

    # From numbers.

    def _numbers(self, row: Row) -> Array | None:
        if not isinstance(self.feature, Tensor):
            return Numbers(self.column, self.feature).array(row)
        value = given(row, self.column, self.feature)
        if value is None:
            return None
        try:
            data = stored_tensor(value, self.feature)
        except Unfit as unfit:
            raise unfit.told(self.column) from unfit.__cause__
        shape = [-1 if size is None else size for size in self.feature.shape]
        return np.frombuffer(data, self.feature.dtype).reshape(shape)

    def _text(self, number: Any) -> str:
        if isinstance(self.feature, Label) and self.feature.names is not None:
            return self.feature.names[int(number)]
        return str(bool(number)).lower() if isinstance(number, (bool, np.bool_)) else str(number)

    def _as_numbers(self, array: Array) -> Array:
        if self.dtype == "bool":
            return self._bools(array)
        if self.dtype in INTEGERS:
            return self._wholes(array)
        return self._reals(array)

    def _bools(self, array: Array) -> Array:
        lost = ~((array == 0) | (array == 1))
        if self.lossy:
            lost = array != array
        self._refuse(
            array, lost, "0 or 1", "" if self.lossy else "lossy=True takes every other number for True"
        )
        made: Array = array != 0
        return made

    def _wholes(self, array: Array) -> Array:
        low, high = integer_bounds(np.dtype(self.dtype))
        if array.dtype.kind == "f":
            whole = np.trunc(array)
            if not self.lossy:
                fraction = np.isfinite(array) & (whole != array)
                self._refuse(array, fraction, "a whole number", "lossy=True cuts the fraction off")
            # Both bounds are powers of two, or next to one: float64 compares them exactly.
            wide = whole.astype(np.float64)
            with np.errstate(invalid="ignore"):
                fits = (wide >= float(low)) & (wide < float(high + 1))
            self._refuse(array, ~fits, f"a whole number from {low} to {high}")
            return whole.astype(self.dtype)
        if array.size and not (low <= int(array.min()) and int(array.max()) <= high):
            outside = [not low <= one <= high for one in array.ravel().tolist()]
            self._refuse(
                array, np.array(outside).reshape(array.shape), f"a whole number from {low} to {high}"
            )
        return array.astype(self.dtype)

    def _reals(self, array: Array) -> Array:
        if self.dtype == "bfloat16":
            near = np.array([self._real(float(one)) for one in array.ravel()], np.float32).reshape(
                array.shape
            )
        else:
            with np.errstate(over="ignore"):
                near = array.astype(self.dtype)
        wide = near.astype(np.float64)
        if array.dtype.kind == "f":
            before = array.astype(np.float64)
            self._refuse(array, np.isinf(wide) & np.isfinite(before), f"a number that {self.dtype} holds")
            changed = (wide != before) & (before == before)
        else:
            self._refuse(array, np.isinf(wide), f"a number that {self.dtype} holds")
            pairs = zip(wide.ravel().tolist(), array.ravel().tolist(), strict=True)
            changed = np.array([int(a) != b for a, b in pairs], bool).reshape(array.shape)
        if not self.lossy:
            self._refuse(array, changed, f"a number that {self.dtype} holds", "lossy=True rounds it")
        return near

    def _real(self, number: float) -> float:
        return number if self.dtype == "float64" else rounded(number, self.dtype)

    # Refusals.

    def _refuse(self, array: Array, lost: Array, expected: str, do: str = "") -> None:
        if np.any(lost):
            raise self._lost(array.ravel()[int(np.argmax(lost.ravel()))], expected, do)

    def _lost(self, value: Any, expected: str, do: str = "") -> RekordError:
        return error(
            "E386",
            f"`{self.column}` does not survive as {self.dtype}",
            location=Location(feature=self.column),
            expected=expected,
            found=described(value)[:60],
            do=do or "mend the row, or cast to a type that holds it",
        )

    def _shaped(self, values: list[Any], shape: tuple[int, ...]) -> Any:
        if not shape:
            return values[0]
        made = np.empty(len(values), object)
        made[:] = values
        return made.reshape(shape).tolist()
