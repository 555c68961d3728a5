"""What a column becomes in TensorFlow: a dense, ragged or sparse tensor, or a pair with a validity mask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np

from rekord import _core
from rekord.codec.columns import Array, Optional, Ragged, SparseColumn, Strings
from rekord.codec.decode import assemble, new_batch
from rekord.dataset.batches import Batches, Request
from rekord.errors import RekordError, error
from rekord.location import Location

Shape: TypeAlias = tuple["int | None", ...]
Parts: TypeAlias = "Iterator[Any]"

INTEGERS = np.dtype(np.int64)
_WIDE_BYTES = 512
"""Rows of so many bytes cross over in a tensor of their own, without a copy; shorter ones share one."""


@dataclass(frozen=True, slots=True)
class Part:
    """One array of a form, flat unless it has another rank; `dtype` is None for byte strings, which are always flat.

    Parts of one dtype travel together where they have as many values: `each` for every row, and `more`. One whose
    `each` is None travels alone.
    """

    dtype: np.dtype[Any] | None
    each: int | None = None
    more: int = 0
    rank: int = 1


class Form(Protocol):
    """A column's form in TensorFlow."""

    def parts(self) -> tuple[Part, ...]:
        """The flat arrays that make up a column."""

    def put(self, column: Any) -> list[Any]:
        """These arrays of one column; `Strings` or lists of bytes where byte strings are meant."""

    def take(self, tf: Any, parts: Parts, rows: Any) -> Any:
        """The tensor of a column of `rows`, in the graph."""


@dataclass(frozen=True, slots=True)
class Dense:
    """Numbers of one shape, or byte strings where `dtype` is None; a size of None differs from batch to batch."""

    dtype: np.dtype[Any] | None
    shape: Shape = ()

    def parts(self) -> tuple[Part, ...]:
        if None in self.shape:
            # Numbers cross in their own shape; of strings that is told.
            own = Part(self.dtype, rank=1 + len(self.shape))
            return (own,) if self.dtype is not None else (Part(None), Part(INTEGERS))
        each: int = prod(self.shape)  # type: ignore[arg-type]
        wide = self.dtype is not None and each * self.dtype.itemsize >= _WIDE_BYTES
        return (Part(self.dtype, None if wide else each),)

    def put(self, column: Any) -> list[Any]:
        # Pictures that happen to be of one size are Optional where some are missing.
        column = column.values if isinstance(column, Optional) else column
        if self.dtype is None:
            texts = column if isinstance(column, Strings) else listed_bytes(column)
            return [texts] if None not in self.shape else [texts, np.array(column.shape[1:], INTEGERS)]
        column = np.ascontiguousarray(column, self.dtype)
        return [column if None in self.shape else column.reshape(-1)]

    def take(self, tf: Any, parts: Parts, rows: Any) -> Any:
        out = next(parts)
        if None in self.shape:
            if self.dtype is None:
                out = tf.reshape(out, tf.concat([[tf.cast(rows, tf.int64)], next(parts)], 0))
        elif 0 in self.shape:
            out = tf.reshape(out, [rows, *self.shape])
        elif self.shape:
            # A shape that is known needs no operation of its own: there may be hundreds of columns.
            out = tf.reshape(out, [-1, *self.shape])
        out.set_shape([tf.get_static_value(rows), *self.shape])
        return out


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of different lengths, whose values have a form themselves."""

    values: Form

    def parts(self) -> tuple[Part, ...]:
        # How many values there are in all is known of none.
        inner = [replace(part, each=None) for part in self.values.parts()]
        return (Part(INTEGERS, 1, 1), *inner)

    def put(self, column: Ragged) -> list[Any]:
        return [column.offsets, *self.values.put(column.values)]

    def take(self, tf: Any, parts: Parts, rows: Any) -> Any:
        splits = _of_rows(tf, next(parts), rows, more=1)
        values = self.values.take(tf, parts, splits[-1])
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


@dataclass(frozen=True, slots=True)
class Inner:
    """Rows of one shape in which a dimension varies that is not the first: None in `shape`."""

    dtype: np.dtype[Any] | None
    shape: Shape

    def parts(self) -> tuple[Part, ...]:
        return Part(INTEGERS), Part(self.dtype)

    def put(self, column: Ragged) -> list[Any]:
        before, after = self._around()
        lengths = np.repeat(column.lengths // max(prod(before) * prod(after), 1), prod(before))
        return [np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), column.values]

    def take(self, tf: Any, parts: Parts, rows: Any) -> Any:
        before, after = self._around()
        splits, values = next(parts), tf.reshape(next(parts), [-1, *after])
        out = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        for at in range(len(before) - 1, -1, -1):
            count = rows * prod(before[:at])
            out = tf.RaggedTensor.from_uniform_row_length(out, before[at], nrows=count, validate=False)
        return out

    def _around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        at = self.shape.index(None)
        return self.shape[:at], self.shape[at + 1 :]  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Sparse:
    """Sparse vectors of `size`, one a row, or one a step of a row."""

    dtype: np.dtype[Any]
    size: int
    steps: bool = False

    def parts(self) -> tuple[Part, ...]:
        return Part(INTEGERS, rank=2), Part(self.dtype), Part(INTEGERS)

    def put(self, column: Any) -> list[Any]:
        places: list[Array] = []
        longest = 0
        if isinstance(column, Ragged):
            longest = int(column.lengths.max(initial=0))
            row = np.repeat(np.arange(len(column)), column.lengths)
            places = [row, np.arange(len(row)) - np.repeat(column.offsets[:-1], column.lengths)]
            column = column.values
        assert isinstance(column, SparseColumn)
        lengths = column.values.lengths
        if places:
            places = [np.repeat(place, lengths) for place in places]
        else:
            places = [np.repeat(np.arange(len(column)), lengths)]
        indices = np.stack([*places, np.asarray(column.indices.values)], axis=1)
        values = np.ascontiguousarray(column.values.values, self.dtype)
        order = np.lexsort(indices.T[::-1])  # as TensorFlow expects; records may have been written otherwise
        if (np.diff(order) != 1).any():
            indices, values = indices[order], values[order]
        return [indices, values, np.array([longest], INTEGERS)]

    def take(self, tf: Any, parts: Parts, rows: Any) -> Any:
        indices, values, longest = next(parts), next(parts), next(parts)
        shape = [tf.cast(rows, tf.int64)]
        if self.steps:
            shape.append(tf.reshape(longest, []))
        indices.set_shape([None, len(shape) + 1])
        return tf.SparseTensor(indices, values, tf.stack([*shape, tf.constant(self.size, tf.int64)]))


@dataclass(frozen=True, slots=True)
class Pictures:
    """Pictures in sizes of their own, ragged in height and width; `after` are the channels, where there are any."""

    dtype: np.dtype[Any]
    after: tuple[int, ...]

    def parts(self) -> tuple[Part, ...]:
        return Part(INTEGERS, 1, 1), Part(INTEGERS), Part(self.dtype)

    def put(self, column: Any) -> list[Any]:
        pictures = column.values if isinstance(column, Optional) else column
        none = np.zeros((0, 0, *self.after), self.dtype)
        there = [none if one is None else one for one in pictures]
        if isinstance(column, Optional):
            there = [one if valid else none for one, valid in zip(there, column.valid, strict=True)]
        heights = np.array([one.shape[0] for one in there], np.int64)
        widths = np.array([one.shape[1] for one in there], np.int64)
        flat = np.concatenate([one.reshape(-1) for one in there]) if there else none.reshape(-1)
        return [_ends(heights), _ends(np.repeat(widths, heights)), flat]

    def take(self, tf: Any, parts: Parts, rows: Any) -> Any:
        heights, widths = _of_rows(tf, next(parts), rows, more=1), next(parts)
        pixels = tf.reshape(next(parts), [-1, *self.after])
        lines = tf.RaggedTensor.from_row_splits(pixels, widths, validate=False)
        return tf.RaggedTensor.from_row_splits(lines, heights, validate=False)


@dataclass(frozen=True, slots=True)
class Holes:
    """A column in which rows may be missing: {"values": …, "valid": …}."""

    values: Form

    def parts(self) -> tuple[Part, ...]:
        return (*self.values.parts(), Part(np.dtype(np.bool_), 1))

    def put(self, column: Any) -> list[Any]:
        if isinstance(column, np.ndarray):  # pictures of different sizes
            valid = np.array([one is not None for one in column], np.bool_)
        else:
            valid = np.ones(len(column), np.bool_) if column.valid is None else column.valid
        takes_holes = isinstance(self.values, Pictures) or not isinstance(column, Optional)
        return [*self.values.put(column if takes_holes else column.values), valid]

    def take(self, tf: Any, parts: Parts, rows: Any) -> Any:
        values = self.values.take(tf, parts, rows)
        return {"values": values, "valid": _of_rows(tf, next(parts), rows)}


def form_of(column: Any, *, optional: bool) -> Form:
    """The form of columns like this one."""
    form: Form
    if isinstance(column, Optional):
        return Holes(form_of(column.values, optional=False))
    if isinstance(column, Strings):
        form = Dense(None, column.row_shape)
    elif isinstance(column, SparseColumn):
        form = Sparse(np.asarray(column.values.values).dtype, column.size)
    elif isinstance(column, Ragged):
        form = _form_of_rows(column)
    else:
        form = Dense(None if column.dtype.kind in "OSU" else _tensor_dtype(column), column.shape[1:])
    return Holes(form) if optional else form


def _tensor_dtype(values: np.ndarray[Any, Any]) -> np.dtype[Any]:
    """The dtype of a tensor of these values; TensorFlow has no times, and takes them as they are stored."""
    return INTEGERS if values.dtype.kind == "M" else values.dtype


def _form_of_rows(column: Ragged) -> Form:
    values = column.values
    if isinstance(values, SparseColumn):
        return Sparse(np.asarray(values.values.values).dtype, values.size, steps=True)
    if column.row_shape is not None:
        shape = tuple([None if size == -1 else size for size in column.row_shape])
        return Inner(None if isinstance(values, Strings) else _tensor_dtype(values), shape)  # type: ignore[arg-type]
    return Rows(form_of(values, optional=False))


def padded(form: Form) -> Form:
    """The form after ragged="pad": what was ragged is dense, in sizes that differ from batch to batch."""
    if isinstance(form, Holes):
        # Missing rows are all padding then, and no longer told apart.
        return padded(form.values) if isinstance(form.values, (Rows, Inner, Pictures)) else form
    if isinstance(form, Inner):
        return Dense(form.dtype, form.shape)
    if isinstance(form, Pictures):
        return Dense(form.dtype, (None, None, *form.after))
    if isinstance(form, Sparse) and form.steps:
        return Dense(form.dtype, (None, form.size))
    if not isinstance(form, Rows):
        return form
    inner = padded(form.values)
    assert isinstance(inner, Dense)
    return Dense(inner.dtype, (None, *inner.shape))


def _of_rows(tf: Any, flat: Any, rows: Any, more: int = 0) -> Any:
    """A tensor of a value a row, and `more`, told how many that are where it is known beforehand."""
    known = tf.get_static_value(rows)
    flat.set_shape([None if known is None else known + more])
    return flat


def _ends(lengths: Array) -> Array:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def listed_bytes(column: Any) -> list[bytes]:
    """The strings of a column as bytes; b"" for one that is missing."""
    if isinstance(column, Strings):
        values = column.to_numpy().reshape(-1).tolist() if column.row_shape else column.tolist()
        if not column.text and column.valid is None:
            return values
    else:
        values = np.asarray(column, object).reshape(-1).tolist()
    return [_as_bytes(value) for value in values]


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        with suppress(UnicodeEncodeError):
            return value.encode()
    if value is None or isinstance(value, bytes):
        return value or b""
    raise error(
        "U676",
        f"an array of objects holds {type(value).__name__}",
        expected="bytes, str that UTF-8 can hold, or None",
        found=ascii(value)[:60],
        do="let the function for `map` give arrays of numbers, or of strings",
    )


_TRIED_ROWS = (1, 7)
"""Of batches of these sizes, what differs in a shape is taken for what varies."""

_NUMBERS = "biufc"


def mapped_forms(request: Request) -> dict[str, Form]:
    """The forms of what the function for `map` gives."""
    schema = request.plan().schema
    tried = [_forms(_first_batch(request, rows)) for rows in _TRIED_ROWS]
    forms = _common_forms(*tried)
    if not forms:
        raise _refused("the function for `map` gives no columns", "a column at least", "{}")
    for name, form in forms.items():
        # Strings and ragged rows say that some are missing only where some are: a later batch may have holes.
        if name in schema and schema[name].optional and _hides_holes(form):
            forms[name] = Holes(form)
    return forms


def check_mapped(forms: Mapping[str, Form], batch: Mapping[str, Any]) -> None:
    """Refuse a batch that is not in these forms: the graph was told them."""
    own = _forms(batch)
    for name, form in _common_forms(forms, own).items():
        if form != forms[name]:
            raise _changed(name, forms[name], own[name])
    rows = len(next(iter(batch.values()), ()))
    for name, column in batch.items():
        if len(column) != rows:
            raise _refused(
                f"`{name}` has another number of rows than the rest of its batch",
                f"{rows:,} rows",
                f"{len(column):,}",
                feature=name,
            )


def _common_forms(first: Mapping[str, Form], second: Mapping[str, Form]) -> dict[str, Form]:
    if list(first) != list(second):
        raise _refused(
            "the function for `map` gives other columns for other batches",
            str(list(first)),
            str(list(second)),
        )
    return {name: _common(name, first[name], second[name]) for name in first}


def _hides_holes(form: Form) -> bool:
    return isinstance(form, (Rows, Inner, Sparse)) or (isinstance(form, Dense) and form.dtype is None)


def _first_batch(request: Request, rows: int) -> Mapping[str, Any]:
    """The first records of an epoch as the function gives them, on one thread that ends with this."""
    alone = replace(
        request,
        batch_size=rows,
        rank=0,
        world=1,
        remainder="keep",
        threads=1,
        prefetch=0,
        worker=0,
        workers=1,
    )
    with iter(Batches(alone)) as batches:
        for batch in batches:
            return batch
    plan = request.plan()
    empty = assemble(plan, new_batch(plan, _core.Pool(0)).take(), 0)
    return empty if request.finish is None else request.finish(empty)


def _forms(batch: Mapping[str, Any]) -> dict[str, Form]:
    forms: dict[str, Form] = {}
    for name, column in batch.items():
        known = isinstance(column, (Strings, Ragged, Optional, SparseColumn))
        numbers = isinstance(column, np.ndarray) and column.ndim > 0 and _is_tensor(column)
        if not isinstance(name, str) or not (known or numbers):
            raise _refused(
                f"the function for `map` gives {type(column).__name__} for {repr(name)[:60]}",
                "columns by name: arrays of numbers or strings, or columns of rekord",
                repr(column)[:60],
            )
        valid = getattr(column, "valid", None)
        forms[name] = form_of(column, optional=valid is not None and not isinstance(column, Optional))
    return forms


def _is_tensor(column: np.ndarray[Any, Any]) -> bool:
    return column.dtype.kind in _NUMBERS + "OSUM" or column.dtype.name == "bfloat16"


def _common(name: str, first: Form, second: Form) -> Form:
    """One form for both: sizes that differ are unknown, and holes in one are holes in all."""
    if isinstance(first, Holes) or isinstance(second, Holes):
        inner = [form.values if isinstance(form, Holes) else form for form in (first, second)]
        return Holes(_common(name, *inner))
    if isinstance(first, Rows) and isinstance(second, Rows):
        return Rows(_common(name, first.values, second.values))
    if isinstance(first, Dense) and isinstance(second, Dense) and len(first.shape) == len(second.shape):
        pairs = zip_longest(first.shape, second.shape)
        shape = tuple([one if one == other else None for one, other in pairs])
        if first.dtype == second.dtype:
            return Dense(first.dtype, shape)
    if first == second:
        return first
    raise _changed(name, first, second)


def _changed(name: str, first: Form, second: Form) -> RekordError:
    return _refused(
        f"the function for `map` gives `{name}` in another form for another batch",
        _said(first),
        _said(second),
        feature=name,
    )


def _said(form: Form) -> str:
    if isinstance(form, Holes):
        return _said(form.values) + ", some missing"
    if isinstance(form, Rows):
        return "ragged rows of " + _said(form.values)
    if isinstance(form, Dense):
        sizes = ["?" if size is None else str(size) for size in form.shape]
        return f"{'strings' if form.dtype is None else form.dtype} ({', '.join(['rows', *sizes])})"
    return type(form).__name__.lower()


def _refused(what: str, expected: str, found: str, *, feature: str | None = None) -> RekordError:
    return error(
        "U676",
        what,
        location=Location(feature=feature),
        expected=expected[:60],
        found=found[:60],
        do="let the function give the same columns for every batch, or use dataset.map with TensorFlow's functions",
    )
