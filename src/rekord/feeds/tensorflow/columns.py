"""The form of a column in TensorFlow: a dense, ragged or sparse tensor, or a pair with a validity mask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np

from rekord.codec.columns import Array, Optional, Ragged, SparseColumn, Strings
from rekord.dataset.batches import Batches, BatchRequest
from rekord.errors import RekordError, error
from rekord.feeds.feed import is_numeric, make_empty_batch
from rekord.location import Location

Shape: TypeAlias = tuple["int | None", ...]
TensorIterator: TypeAlias = "Iterator[Any]"

INT64_DTYPE = np.dtype(np.int64)
_MIN_WIDE_ROW_BYTES = 512
"""Rows of at least this size are passed in a tensor of their own, without a copy; shorter ones share one."""


@dataclass(frozen=True, slots=True)
class TensorPart:
    """One array of a form, flat unless it has another rank; `dtype` is None for byte strings, which are always flat.

    Parts of one dtype and the same number of values, `each` per row plus `more`, are packed together. A part whose
    `each` is None is packed alone. `row_shape` is the shape of a row if all have the same.
    """

    dtype: np.dtype[Any] | None
    each: int | None = None
    more: int = 0
    rank: int = 1
    row_shape: tuple[int, ...] | None = None


class TensorForm(Protocol):
    """A column's form in TensorFlow."""

    def parts(self) -> tuple[TensorPart, ...]:
        """The flat arrays that make up a column."""

    def put(self, column: Any) -> list[Any]:
        """These arrays of one column; `Strings` or lists of bytes for byte strings."""

    def take(self, tf: Any, parts: TensorIterator, rows: Any) -> Any:
        """The tensor of a column of `rows`, in the graph."""


@dataclass(frozen=True, slots=True)
class DenseForm:
    """Numbers of one shape, or byte strings if `dtype` is None; a size of None varies between batches."""

    dtype: np.dtype[Any] | None
    shape: Shape = ()

    def parts(self) -> tuple[TensorPart, ...]:
        if None in self.shape:
            # Numbers are passed in their shape; the shape of strings is passed separately.
            own = TensorPart(self.dtype, rank=1 + len(self.shape))
            return (own,) if self.dtype is not None else (TensorPart(None), TensorPart(INT64_DTYPE))
        row_shape: tuple[int, ...] = self.shape  # type: ignore[assignment]
        each = prod(row_shape)
        wide = self.dtype is not None and each * self.dtype.itemsize >= _MIN_WIDE_ROW_BYTES
        return (TensorPart(self.dtype, None if wide else each, row_shape=row_shape),)

    def put(self, column: Any) -> list[Any]:
        # Images that happen to have the same size are Optional if some are missing.
        column = column.values if isinstance(column, Optional) else column
        if self.dtype is None:
            texts = column if isinstance(column, Strings) else strings_to_bytes(column)
            return [texts] if None not in self.shape else [texts, np.array(column.shape[1:], INT64_DTYPE)]
        column = np.ascontiguousarray(column, self.dtype)
        return [column if None in self.shape else column.reshape(-1)]

    def take(self, tf: Any, parts: TensorIterator, rows: Any) -> Any:
        out = next(parts)
        if None in self.shape:
            if self.dtype is None:
                out = tf.reshape(out, tf.concat([[tf.cast(rows, tf.int64)], next(parts)], 0))
        elif 0 in self.shape:
            out = tf.reshape(out, [rows, *self.shape])
        elif self.shape:
            # A known shape needs no extra operation: there may be hundreds of columns.
            out = tf.reshape(out, [-1, *self.shape])
        out.set_shape([tf.get_static_value(rows), *self.shape])
        return out


@dataclass(frozen=True, slots=True)
class RaggedForm:
    """Rows of different lengths, whose values have a form themselves."""

    values: TensorForm

    def parts(self) -> tuple[TensorPart, ...]:
        # The total number of values is unknown.
        inner = [replace(part, each=None, row_shape=None) for part in self.values.parts()]
        return (TensorPart(INT64_DTYPE, 1, 1), *inner)

    def put(self, column: Ragged) -> list[Any]:
        return [column.offsets, *self.values.put(column.values)]

    def take(self, tf: Any, parts: TensorIterator, rows: Any) -> Any:
        splits = _set_row_count(tf, next(parts), rows, more=1)
        values = self.values.take(tf, parts, splits[-1])
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


@dataclass(frozen=True, slots=True)
class InnerRaggedForm:
    """Rows in which a dimension other than the first varies: None in `shape`."""

    dtype: np.dtype[Any] | None
    shape: Shape

    def parts(self) -> tuple[TensorPart, ...]:
        return TensorPart(INT64_DTYPE), TensorPart(self.dtype)

    def put(self, column: Ragged) -> list[Any]:
        before, after = self._around()
        lengths = np.repeat(column.lengths // max(prod(before) * prod(after), 1), prod(before))
        return [compute_row_splits(lengths), column.values]

    def take(self, tf: Any, parts: TensorIterator, rows: Any) -> Any:
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
class SparseForm:
    """Sparse vectors of `size`, one per row, or one per step of a row."""

    dtype: np.dtype[Any]
    size: int
    steps: bool = False

    def parts(self) -> tuple[TensorPart, ...]:
        return TensorPart(INT64_DTYPE, rank=2), TensorPart(self.dtype), TensorPart(INT64_DTYPE)

    def put(self, column: Any) -> list[Any]:
        places: list[Array] = [np.arange(len(column))]
        longest = 0
        if isinstance(column, Ragged):
            longest = int(column.lengths.max(initial=0))
            row = np.repeat(places[0], column.lengths)
            places = [row, np.arange(len(row)) - np.repeat(column.offsets[:-1], column.lengths)]
            column = column.values
        assert isinstance(column, SparseColumn)
        places = [np.repeat(place, column.values.lengths) for place in places]
        indices = np.stack([*places, np.asarray(column.indices.values)], axis=1)
        values = np.ascontiguousarray(column.values.values, self.dtype)
        order = np.lexsort(indices.T[::-1])  # TensorFlow expects sorted indices; records may have others
        if (np.diff(order) != 1).any():
            indices, values = indices[order], values[order]
        return [indices, values, np.array([longest], INT64_DTYPE)]

    def take(self, tf: Any, parts: TensorIterator, rows: Any) -> Any:
        indices, values, longest = next(parts), next(parts), next(parts)
        shape = [tf.cast(rows, tf.int64)]
        if self.steps:
            shape.append(tf.reshape(longest, []))
        indices.set_shape([None, len(shape) + 1])
        return tf.SparseTensor(indices, values, tf.stack([*shape, tf.constant(self.size, tf.int64)]))


@dataclass(frozen=True, slots=True)
class ImageForm:
    """Images or tensors of different sizes, ragged in their first `levels` dimensions; `after` are the others."""

    dtype: np.dtype[Any]
    after: tuple[int, ...]
    levels: int = 2

    def parts(self) -> tuple[TensorPart, ...]:
        inner = [TensorPart(INT64_DTYPE) for _ in range(self.levels - 1)]
        return TensorPart(INT64_DTYPE, 1, 1), *inner, TensorPart(self.dtype)

    def put(self, column: Any) -> list[Any]:
        images = column.values if isinstance(column, Optional) else column
        empty = np.zeros((*[0] * self.levels, *self.after), self.dtype)
        present = [empty if one is None else one for one in images]
        if isinstance(column, Optional):
            present = [one if valid else empty for one, valid in zip(present, column.valid, strict=True)]
        counts = np.ones(len(present), np.int64)  # of the parts of each row, level by level
        splits = []
        for level in range(self.levels):
            sizes = np.array([one.shape[level] for one in present], np.int64)
            splits.append(compute_row_splits(np.repeat(sizes, counts)))
            counts = counts * sizes
        return [*splits, np.concatenate([empty.reshape(-1), *[one.reshape(-1) for one in present]])]

    def take(self, tf: Any, parts: TensorIterator, rows: Any) -> Any:
        splits = [_set_row_count(tf, next(parts), rows, more=1), *[next(parts) for _ in range(self.levels - 1)]]
        out = tf.reshape(next(parts), [-1, *self.after])
        for level in reversed(splits):
            out = tf.RaggedTensor.from_row_splits(out, level, validate=False)
        return out


@dataclass(frozen=True, slots=True)
class MaskedForm:
    """A column in which rows may be missing: {"values": …, "valid": …}."""

    values: TensorForm

    def parts(self) -> tuple[TensorPart, ...]:
        return (*self.values.parts(), TensorPart(np.dtype(np.bool_), 1, row_shape=()))

    def put(self, column: Any) -> list[Any]:
        if isinstance(column, np.ndarray):  # images of different sizes
            valid = np.array([one is not None for one in column], np.bool_)
        else:
            valid = np.ones(len(column), np.bool_) if column.valid is None else column.valid
        takes_holes = isinstance(self.values, ImageForm) or not isinstance(column, Optional)
        return [*self.values.put(column if takes_holes else column.values), valid]

    def take(self, tf: Any, parts: TensorIterator, rows: Any) -> Any:
        values = self.values.take(tf, parts, rows)
        return {"values": values, "valid": _set_row_count(tf, next(parts), rows)}


def infer_form(column: Any, *, optional: bool) -> TensorForm:
    """The form of columns like this one."""
    form: TensorForm
    if isinstance(column, Optional):
        return MaskedForm(infer_form(column.values, optional=False))
    if isinstance(column, Strings):
        form = DenseForm(None, column.row_shape)
    elif isinstance(column, SparseColumn):
        form = SparseForm(np.asarray(column.values.values).dtype, column.size)
    elif isinstance(column, Ragged):
        form = _infer_ragged_form(column)
    else:
        form = DenseForm(None if column.dtype.kind in "OSU" else _tensor_dtype(column), column.shape[1:])
    return MaskedForm(form) if optional else form


def _tensor_dtype(values: np.ndarray[Any, Any]) -> np.dtype[Any]:
    """The dtype of a tensor of these values; TensorFlow has no times, and gets the stored integers."""
    return INT64_DTYPE if values.dtype.kind == "M" else values.dtype


def _infer_ragged_form(column: Ragged) -> TensorForm:
    values = column.values
    if isinstance(values, SparseColumn):
        return SparseForm(np.asarray(values.values.values).dtype, values.size, steps=True)
    if column.row_shape is not None:
        shape = tuple([None if size == -1 else size for size in column.row_shape])
        return InnerRaggedForm(None if isinstance(values, Strings) else _tensor_dtype(values), shape)  # type: ignore[arg-type]
    return RaggedForm(infer_form(values, optional=False))


def pad_form(form: TensorForm) -> TensorForm:
    """The form after ragged="pad": what was ragged is dense, with sizes that vary between batches."""
    if isinstance(form, MaskedForm):
        # Missing rows are all padding then, and no longer distinguishable.
        return pad_form(form.values) if isinstance(form.values, (RaggedForm, InnerRaggedForm, ImageForm)) else form
    if isinstance(form, InnerRaggedForm):
        return DenseForm(form.dtype, form.shape)
    if isinstance(form, ImageForm):
        return DenseForm(form.dtype, (*[None] * form.levels, *form.after))
    if isinstance(form, SparseForm) and form.steps:
        return DenseForm(form.dtype, (None, form.size))
    if not isinstance(form, RaggedForm):
        return form
    inner = pad_form(form.values)
    assert isinstance(inner, DenseForm)
    return DenseForm(inner.dtype, (None, *inner.shape))


def _set_row_count(tf: Any, flat: Any, rows: Any, more: int = 0) -> Any:
    """A tensor of one value per row, plus `more`, with its static shape set if that is known."""
    known = tf.get_static_value(rows)
    flat.set_shape([None if known is None else known + more])
    return flat


def compute_row_splits(lengths: Array | list[int]) -> Array:
    """Offsets from lengths, beginning with 0."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def strings_to_bytes(column: Any) -> list[bytes]:
    """The strings of a column as bytes; b"" for one that is missing."""
    if isinstance(column, Strings):
        values = column.to_numpy().reshape(-1).tolist() if column.row_shape else column.tolist()
        if not column.text and column.valid is None:
            return values
    else:
        values = np.asarray(column, object).reshape(-1).tolist()
    return [_to_bytes(value) for value in values]


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        with suppress(UnicodeEncodeError):
            return value.encode()
    if value is None or isinstance(value, bytes):
        return value or b""
    raise error(
        "U676",
        f"object array contains {type(value).__name__}",
        expected="bytes, str that can be encoded as UTF-8, or None",
        found=ascii(value)[:60],
        do="return arrays of numbers or strings from the function for `map`",
    )


_PROBE_ROWS = (1, 7)
"""Sizes of the trial batches: dimensions that differ between them are taken to vary."""


def infer_mapped_forms(request: BatchRequest) -> dict[str, TensorForm]:
    """The forms of the columns that the function for `map` returns."""
    schema = request.plan().schema
    tried = [_infer_batch_forms(_read_first_batch(request, rows)) for rows in _PROBE_ROWS]
    forms = _merge_batch_forms(*tried)
    if not forms:
        raise _map_error("function for `map` returns no columns", "at least one column", "{}")
    for name, form in forms.items():
        # Strings and ragged rows have a mask only if some are missing, which may be so in a later batch.
        if name in schema and schema[name].optional and _has_implicit_missing(form):
            forms[name] = MaskedForm(form)
    return forms


def validate_mapped_batch(forms: Mapping[str, TensorForm], batch: Mapping[str, Any]) -> None:
    """Refuse a batch that does not have these forms, which the graph declares."""
    own = _infer_batch_forms(batch)
    for name, form in _merge_batch_forms(forms, own).items():
        if form != forms[name]:
            raise _form_mismatch_error(name, forms[name], own[name])
    rows = len(next(iter(batch.values()), ()))
    for name, column in batch.items():
        if len(column) != rows:
            what = f"`{name}` has a different number of rows from the rest of its batch"
            raise _map_error(what, f"{rows:,} rows", f"{len(column):,}", feature=name)


def _merge_batch_forms(first: Mapping[str, TensorForm], second: Mapping[str, TensorForm]) -> dict[str, TensorForm]:
    if list(first) != list(second):
        what = "function for `map` returns different columns for different batches"
        raise _map_error(what, str(list(first)), str(list(second)))
    return {name: _merge_forms(name, first[name], second[name]) for name in first}


def _has_implicit_missing(form: TensorForm) -> bool:
    return isinstance(form, (RaggedForm, InnerRaggedForm, SparseForm)) or (
        isinstance(form, DenseForm) and form.dtype is None
    )


def _read_first_batch(request: BatchRequest, rows: int) -> Mapping[str, Any]:
    """The first batch of an epoch, read on one thread that ends with this call."""
    single: dict[str, Any] = {"rank": 0, "world": 1, "threads": 1, "prefetch": 0, "worker": 0, "workers": 1}
    alone = replace(request, batch_size=rows, remainder="keep", **single)
    with iter(Batches(alone)) as batches:
        for batch in batches:
            return batch
    empty = make_empty_batch(request.plan())
    return empty if request.finish is None else request.finish(empty)


def _infer_batch_forms(batch: Mapping[str, Any]) -> dict[str, TensorForm]:
    forms: dict[str, TensorForm] = {}
    for name, column in batch.items():
        known = isinstance(column, (Strings, Ragged, Optional, SparseColumn))
        is_array = isinstance(column, np.ndarray) and column.ndim > 0
        if not isinstance(name, str) or not (
            known or (is_array and (is_numeric(column) or column.dtype.kind in "OSUM"))
        ):
            raise _map_error(
                f"function for `map` returns {type(column).__name__} for {repr(name)[:60]}",
                "columns by name: arrays of numbers or strings, or columns of rekord",
                repr(column)[:60],
            )
        valid = getattr(column, "valid", None)
        forms[name] = infer_form(column, optional=valid is not None and not isinstance(column, Optional))
    return forms


def _merge_forms(name: str, first: TensorForm, second: TensorForm) -> TensorForm:
    """One form for both: sizes that differ are unknown, and missing values in one are possible in all."""
    if isinstance(first, MaskedForm) or isinstance(second, MaskedForm):
        inner = [form.values if isinstance(form, MaskedForm) else form for form in (first, second)]
        return MaskedForm(_merge_forms(name, *inner))
    if isinstance(first, RaggedForm) and isinstance(second, RaggedForm):
        return RaggedForm(_merge_forms(name, first.values, second.values))
    if isinstance(first, DenseForm) and isinstance(second, DenseForm) and len(first.shape) == len(second.shape):
        pairs = zip(first.shape, second.shape, strict=True)
        shape = tuple([one if one == other else None for one, other in pairs])
        if first.dtype == second.dtype:
            return DenseForm(first.dtype, shape)
    if first == second:
        return first
    raise _form_mismatch_error(name, first, second)


def _form_mismatch_error(name: str, first: TensorForm, second: TensorForm) -> RekordError:
    what = f"function for `map` returns `{name}` in different forms"
    return _map_error(what, describe_form(first), describe_form(second), feature=name)


def describe_form(form: TensorForm) -> str:
    """A form in a few words."""
    if isinstance(form, MaskedForm):
        return describe_form(form.values) + ", some missing"
    if isinstance(form, RaggedForm):
        return "ragged rows of " + describe_form(form.values)
    if isinstance(form, DenseForm):
        sizes = ["?" if size is None else str(size) for size in form.shape]
        return f"{'strings' if form.dtype is None else form.dtype} ({', '.join(['rows', *sizes])})"
    return type(form).__name__.lower()


def _map_error(what: str, expected: str, found: str, *, feature: str | None = None) -> RekordError:
    return error(
        "U676",
        what,
        location=Location(feature=feature),
        expected=expected[:60],
        found=found[:60],
        do="return the same columns for every batch, or use dataset.map(…) with TensorFlow functions",
    )
