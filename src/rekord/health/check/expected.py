"""The values that a schema allows under each record key, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from rekord import _core
from rekord.codec.plan import KIND_NUMBERS, plan_slots
from rekord.health.check.rule import Array, Cells, RowMask, compute_value_offsets, format_key, pack_strings
from rekord.health.finding import Severity
from rekord.health.key_columns import KeyColumn
from rekord.schema import Feature, Int64, Schema, Tensor
from rekord.schema.base import FLOAT_DTYPES, ListKind, dtype_name, float_maximum, integer_bounds

_KINDS: dict[int, ListKind] = {number: name for name, number in KIND_NUMBERS.items()}  # type: ignore[misc]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedKey:
    """One record key of a column: `count` values, or any multiple of it if `ragged`."""

    key: str
    kind: ListKind
    count: int
    ragged: bool
    utf8: bool
    limits: ValueLimits | None  # of numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedColumn:
    """A column and its record keys."""

    name: str
    feature: Feature
    keys: tuple[ExpectedKey, ...]
    step: bool
    required: bool

    @property
    def optional(self) -> bool:
        """Whether an empty list of a fixed shape means a missing value."""
        return self.feature.optional

    def describe_key(self, key: str, step: int | None = None) -> str:
        """The subject of a sentence about the value under one of the keys."""
        stored = "" if key == self.name else f" (stored as {format_key(key)})"
        return f"{'' if step is None else f'step {step:,} of '}{format_key(self.name)}{stored}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedSchema:
    """A whole schema."""

    columns: tuple[ExpectedColumn, ...]
    context: Mapping[str, ExpectedColumn]  # by record key
    steps: Mapping[str, ExpectedColumn]


def compile_schema(schema: Schema) -> ExpectedSchema:
    """What a schema requires of records."""
    context = [_compile_column(name, feature, step=False) for name, feature in schema.context.items()]
    steps = [_compile_column(name, feature, step=True) for name, feature in schema.steps.items()]
    return ExpectedSchema(
        columns=(*context, *steps),
        context={key.key: column for column in context for key in column.keys},
        steps={key.key: column for column in steps for key in column.keys},
    )


def _compile_column(name: str, feature: Feature, *, step: bool) -> ExpectedColumn:
    keys = tuple(
        ExpectedKey(
            key=slot.key,
            kind=_KINDS[slot.kind],
            count=slot.count,
            ragged=slot.ragged,
            utf8=slot.utf8,
            limits=_compile_limits(feature, place) if slot.kind != KIND_NUMBERS["bytes"] else None,
        )
        for place, slot in enumerate(plan_slots(name, feature))
    )
    return ExpectedColumn(name=name, feature=feature, keys=keys, step=step, required=feature.required)


def _compile_limits(feature: Feature, place: int) -> ValueLimits | None:
    """The limits of the numbers under the key at position `place` of a column's keys."""
    if feature.sparse_size is not None:
        return build_index_limits(feature.sparse_size) if place == 0 else build_value_limits(feature)
    if feature.storage == "parallel":
        return None  # checked by a separate rule
    return build_value_limits(feature) if place == 0 else build_value_limits(Int64())


Meaning: TypeAlias = Literal["number", "label", "index"]
_NARROW_FLOATS = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLimits:
    """`low` and `high` apply to stored numbers; finite numbers within them are valid."""

    meaning: Meaning
    dtype: Any
    low: Any = None
    high: Any = None
    holds: tuple[Any, Any] | None = None  # what a dtype narrower than the stored one can hold
    range: tuple[Any, Any] | None = None  # as declared, for messages
    open: bool = False  # to infinity, which gets a warning

    def is_plausible(self, values: Array) -> bool:
        """Whether a quick check finds these values valid; it never misses a problem."""
        if not len(values):
            return True
        if self.low is None:
            return values.dtype != np.float32 or bool(np.isfinite(np.add.reduce(values)))
        numbers = values.view(np.uint64) if self.dtype == np.uint64 else values
        least, greatest = numbers.min(), numbers.max()
        inside = bool(least >= self.low and greatest <= self.high)
        return inside and not (self.open and (np.isinf(least) or np.isinf(greatest)))

    def find_violations(self, values: Array) -> Iterator[tuple[str, Severity, RowMask]]:
        """The problems with these values: a code, a severity and a mask of the values."""
        with np.errstate(all="ignore"):
            verdicts = list(self._reals(values) if values.dtype == np.float32 else self._whole(values))
        yield from [verdict for verdict in verdicts if verdict[2].any()]

    def _whole(self, values: Array) -> Iterator[tuple[str, Severity, RowMask]]:
        if self.low is None:
            return
        numbers = values.view(np.uint64) if self.dtype == np.uint64 else values
        wrong = (numbers < self.low) | (numbers > self.high)
        if self.meaning == "index":
            yield "D407", "error", wrong
            return
        if self.holds is not None:
            unfit = (numbers < self.holds[0]) | (numbers > self.holds[1])
            yield "D405", "error", unfit
            wrong &= ~unfit
        yield "H752" if self.meaning == "label" else "H750", "error", wrong

    def _reals(self, values: Array) -> Iterator[tuple[str, Severity, RowMask]]:
        finite = np.isfinite(values)
        rounded = _round_to_dtype(values, dtype_name(self.dtype))
        unfit = finite & np.isinf(rounded)
        yield "D405", "error", unfit
        if self.range is None:
            yield "H751", "warning", ~finite
            return
        inside = (rounded >= self.low) & (rounded <= self.high)
        yield "H751", "error", ~finite & ~inside
        yield "H751", "warning", ~finite & inside  # an infinity at an open end
        yield "H750", "error", finite & ~inside & ~unfit


def build_value_limits(feature: Feature) -> ValueLimits:
    """The limits of a feature's own numbers."""
    name, dtype, declared = dtype_name(feature.stored_dtype), feature.stored_dtype, feature.limits
    if name not in FLOAT_DTYPES:
        holds = None if name in ("int64", "uint64") else integer_bounds(dtype)
        low, high = declared or holds or (None, None)
        meaning: Meaning = "number" if feature.class_count is None else "label"
        return ValueLimits(meaning=meaning, dtype=dtype, low=low, high=high, holds=holds, range=declared)
    low, high = None, None
    if declared is not None:
        # In the declared dtype, where 0.1 differs from Python's 0.1.
        low, high = _round_to_dtype(np.array(declared, np.float32), name)
    elif name in _NARROW_FLOATS:
        high = np.float32(float_maximum(feature.dtype))
        low = -high
    ends = declared is not None and bool(np.isinf(declared).any())
    return ValueLimits(meaning="number", dtype=feature.dtype, low=low, high=high, range=declared, open=ends)


def build_index_limits(size: int) -> ValueLimits:
    """The limits of the indices of a sparse vector."""
    last = size - 1
    return ValueLimits(meaning="index", dtype=np.dtype("<i8"), low=0, high=last, range=(0, last))


def _round_to_dtype(values: Array, name: str) -> Array:
    """float32 values rounded to the declared dtype."""
    if name == "float16":
        return values.astype(np.float16).astype(np.float32)
    if name != "bfloat16":
        return values
    bits = np.ascontiguousarray(values).view(np.uint32)
    up = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(values), up.view(np.float32), values)


_UNKNOWN_LABEL = -1
"""What TFDS stores for an unknown class."""

ValueVerdict = tuple[str, Severity, RowMask]
CellDescriber = Callable[[int], tuple[str, str]]
"""The expected and found texts for a cell."""


def is_quickly_valid(column: ExpectedColumn, key: ExpectedKey, found: KeyColumn) -> bool:
    """Whether a quick check finds the values of a key valid; it never misses a problem."""
    if key.limits is not None:
        return key.limits.is_plausible(found.values)
    if key.utf8:
        return _is_all_utf8(found.values)
    if isinstance(column.feature, Tensor):
        return found.valid is None and _is_valid_tensor_column(column.feature, found.values)
    return True


def find_invalid_values(
    column: ExpectedColumn, key: ExpectedKey, cells: Cells, *, tfds: bool
) -> Iterator[ValueVerdict]:
    """The problems with the values of a key: a code, a severity and a mask of the values."""
    values = cells.column.values
    if key.limits is not None:
        for code, severity, marks in key.limits.find_violations(values):
            if code == "H752" and tfds:
                unknown = marks & (values == _UNKNOWN_LABEL)
                yield "H753", "note", unknown
                yield code, severity, marks & ~unknown
            else:
                yield code, severity, marks
    elif key.utf8:
        if not _is_all_utf8(values):
            strings = values.list_bytes(0, len(values))
            yield "D404", "error", np.array([not _is_utf8(value) for value in strings], np.bool_)
    elif isinstance(column.feature, Tensor):
        yield from _find_invalid_tensors(column.feature, values)


# Texts.


def _is_all_utf8(values: _core.StringColumn) -> bool:
    ends, data = pack_strings(values)
    if not len(data) or data.max() < 0x80:
        return True
    # Valid as a whole, and none starts inside a character: then each is valid.
    starts = ends[:-1]
    starts = starts[starts < len(data)]
    return _is_utf8(data.tobytes()) and not bool(np.any((data[starts] & 0xC0) == 0x80))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# Tensors.


def get_tensor_bytes(feature: Tensor) -> int:
    """The number of bytes of the known dimensions."""
    return prod(size for size in feature.shape if size is not None) * _get_item_bytes(feature)


def _get_item_bytes(feature: Tensor) -> int:
    return 2 if isinstance(feature.dtype, str) else int(feature.dtype.itemsize)


def _find_wrong_lengths(feature: Tensor, ends: Array) -> RowMask:
    lengths = np.diff(ends)
    whole = get_tensor_bytes(feature)
    varies = None in feature.shape and whole > 0
    wrong: RowMask = lengths % whole != 0 if varies else lengths != whole
    return wrong


def _is_valid_tensor_column(feature: Tensor, values: _core.StringColumn) -> bool:
    ends, data = pack_strings(values)
    if _find_wrong_lengths(feature, ends).any():
        return False
    if not len(data) or isinstance(feature.dtype, str):
        return True
    if feature.dtype == np.bool_:
        return bool(data.max() <= 1)
    return feature.dtype.kind not in "fc" or bool(np.isfinite(np.add.reduce(data.view(feature.dtype))))


def _find_invalid_tensors(feature: Tensor, values: _core.StringColumn) -> Iterator[ValueVerdict]:
    ends, data = pack_strings(values)
    wrong = _find_wrong_lengths(feature, ends)
    yield "D406", "error", wrong
    if isinstance(feature.dtype, str):
        return  # bfloat16, without a package that supports it
    odd = np.zeros(len(wrong), np.bool_)
    looks = feature.dtype == np.bool_ or feature.dtype.kind in "fc"
    for place in np.flatnonzero(~wrong).tolist() if looks else ():
        piece = data[ends[place] : ends[place + 1]]
        if feature.dtype == np.bool_:
            odd[place] = len(piece) and piece.max() > 1
        else:
            odd[place] = not np.isfinite(np.frombuffer(piece.tobytes(), feature.dtype)).all()
    if feature.dtype == np.bool_:
        yield "D405", "error", odd
    else:
        yield "H751", "warning", odd


# Keys of one column.


def find_length_mismatches(column: ExpectedColumn, parts: list[Cells]) -> tuple[RowMask, CellDescriber]:
    """Which cells have different numbers of values under the keys of a column."""
    counts = [part.column.counts for part in parts]
    wrong = np.logical_or.reduce([count != counts[0] for count in counts])

    def describe(cell: int) -> tuple[str, str]:
        other = next(i for i, count in enumerate(counts) if count[cell] != counts[0][cell])
        as_many = f"{counts[0][cell]:,} values under {format_key(column.keys[other].key)}"
        return f"{as_many}, as under {format_key(column.keys[0].key)}", f"{counts[other][cell]:,}"

    return wrong, describe


def find_shape_mismatches(column: ExpectedColumn, parts: list[Cells]) -> tuple[RowMask, CellDescriber]:
    """Which cells have bytes that do not match the shape stored with them."""
    feature = column.feature
    assert isinstance(feature, Tensor)
    item_bytes = 2 if isinstance(feature.dtype, str) else feature.dtype.itemsize
    blame: dict[int, tuple[str, str]] = {}
    wrong = np.zeros(len(parts[0].column), np.bool_)
    for cell in range(len(wrong)):
        data, shape = (part.column.value(cell) for part in parts)
        if data is None or shape is None:
            continue
        sizes = shape.tolist()
        fits = len(sizes) == len(feature.shape) and all(
            size >= 0 and declared in (None, size) for size, declared in zip(sizes, feature.shape, strict=True)
        )
        if fits and [len(one) for one in data] == [prod(sizes) * item_bytes]:
            continue
        wrong[cell] = True
        stored = ", ".join([f"{len(one):,} bytes" for one in data[:2]]) or "no bytes"
        blame[cell] = (
            f"one string of {dtype_name(feature.dtype)}, of the shape {feature.shape}",
            (f"{stored}, and the shape {_format_few(shape)}"),
        )
    return wrong, lambda cell: blame[cell]


def find_partition_mismatches(column: ExpectedColumn, parts: list[Cells]) -> tuple[RowMask, CellDescriber]:
    """Which cells have row lengths that do not add up to the number of values."""
    inner = column.keys[0].count or 1
    held = parts[0].column.counts // inner
    blame: dict[int, tuple[str, str]] = {}
    wrong = np.zeros(len(parts[0].column), np.bool_)
    for part in reversed(parts[1:]):
        found = part.column
        lengths = found.values if isinstance(found.values, np.ndarray) else np.zeros(0, np.int64)
        # A length beyond the number of values is invalid, and the sum might overflow.
        invalid = (lengths < 0) | (lengths > (held.max() if len(held) else 0))
        places = compute_value_offsets(found)
        sums = np.diff(np.concatenate([[0], np.cumsum(np.where(invalid, 0, lengths))])[places])
        bad = (sums != held) | (np.diff(np.concatenate([[0], np.cumsum(invalid)])[places]) > 0)
        for cell in np.flatnonzero(bad & ~wrong).tolist():
            blame[cell] = (
                f"row lengths that sum to {held[cell]:,}",
                _format_few(lengths[places[cell] : places[cell + 1]]),
            )
        wrong |= bad
        held = found.counts
    return wrong, lambda cell: blame[cell]


def _format_few(numbers: Array) -> str:
    shown = ", ".join([str(int(number)) for number in numbers[:4]])[:50]
    return f"{shown}, …" if len(numbers) > 4 else shown or "none"


def find_first_invalid_item(feature: Tensor, data: bytes) -> tuple[int, Any]:
    """The index and value of the first item of a tensor that is not a bool, or not finite."""
    if feature.dtype == np.bool_:
        items = np.frombuffer(data, np.uint8)
        place = int(np.argmax(items > 1))
    else:
        items = np.frombuffer(data, feature.dtype)
        place = int(np.argmin(np.isfinite(items)))
    return place, items[place]
