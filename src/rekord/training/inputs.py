"""Model inputs: conversion of the columns of a batch to arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.codec.columns import Column, Optional, Ragged, SparseColumn, Strings
from rekord.dataset.postprocess import build_image_decoder
from rekord.errors import RekordError, error, preview
from rekord.schema import Schema
from rekord.training.choose import untrainable_error
from rekord.training.task import MAX_CHANNELS, InputForm, Task, decode_string, find_valid_rows
from rekord.transforms.vocabularies import WordList, WordSplitter

Array: TypeAlias = "npt.NDArray[Any]"
Batch: TypeAlias = "Mapping[str, Column]"

PAD_ID = 0
UNKNOWN_ID = 1
FIRST_WORD_ID = 2
"""The ids of text and tokens: padding, unknown, and the first known one."""

MAX_IDS = 1 << 16
"""The maximum size of an embedding table in a small model; if there are more ids, some share a row."""

MAX_LENGTH = 256
"""Longer texts and lists of tokens are truncated."""

_MAX_FLOAT = np.float32(1e19)

WORD_SPLITTING = WordSplitter("words", lowercase=True)


@dataclass(frozen=True)
class InputSpec:
    """An input of the model. `size` is the number of ids, 0 if it has none.

    Images have values up to 255 as uint8, and up to 1 as float32.
    """

    form: InputForm
    shape: tuple[int, ...]
    dtype: str
    size: int = 0


class InputEncoder(Protocol):
    """Encodes one input. A frozen value, shared by threads."""

    form: ClassVar[InputForm]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""

    @property
    def spec(self) -> InputSpec:
        """The shape and type of one encoded record."""

    def __call__(self, batch: Batch) -> Array:
        """The encoded records of a batch. Row i depends only on record i."""

    def to_dict(self) -> dict[str, Any]:
        """What was learned, as JSON values."""


@dataclass(frozen=True, eq=False)
class NumberInput:
    """Numbers. Missing values and NaN become the mean, infinities the largest or smallest number seen."""

    columns: tuple[str, ...]
    mean: Array
    variance: Array
    least: Array
    most: Array

    form: ClassVar[InputForm] = "numbers"

    @property
    def spec(self) -> InputSpec:
        return InputSpec("numbers", (len(self.mean),), "float32")

    def __call__(self, batch: Batch) -> Array:
        values = stack_columns(batch, self.columns)
        for strange, instead in (
            (np.isnan(values), self.mean),
            (values == np.inf, self.most),
            (values == -np.inf, self.least),
        ):
            if strange.any():
                values = np.where(strange, instead, values)
        return values

    def to_dict(self) -> dict[str, Any]:
        arrays = {name: getattr(self, name).tolist() for name in ("mean", "variance", "least", "most")}
        return {"columns": list(self.columns), **arrays}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> NumberInput:
        arrays = [np.array(state[name], np.float32) for name in ("mean", "variance", "least", "most")]
        if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
            raise ValueError("as many means as variances")
        return cls(tuple([str(name) for name in state["columns"]]), *arrays)


@dataclass(frozen=True)
class _ColumnInput:
    """The base of inputs with one column."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def to_dict(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(one.words) if isinstance(one, WordList) else one for name, one in values.items()}


@dataclass(frozen=True)
class CategoryInput(_ColumnInput):
    """A category as an id ≥ 1; 0 for a missing or unknown value.

    Without `words`, the column has `count` ids starting at 0.
    """

    words: WordList | None
    count: int

    form: ClassVar[InputForm] = "category"

    @property
    def spec(self) -> InputSpec:
        return InputSpec("category", (), "int32", 1 + self.count)

    def __call__(self, batch: Batch) -> Array:
        column = batch[self.column]
        if self.words is not None:
            assert isinstance(column, Strings)
            places = self.words.ids
            found = [-1 if value is None else places.get(decode_string(value), -1) for value in column.tolist()]
            return np.array(found, np.int32) + np.array(1, np.int32)
        values = to_dense(column)
        known = find_valid_rows(column) & (values >= 0) & (values < self.count)
        ids: Array = np.where(known, values + 1, 0).astype(np.int32)
        return ids

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> CategoryInput:
        words = None if state["words"] is None else _load_words(state["words"])
        count = validate_bounded(state["count"], MAX_IDS) if words is None else len(words)
        return cls(str(state["column"]), words, count)


@dataclass(frozen=True)
class TextInput(_ColumnInput):
    """Text as the ids of its words, truncated or padded to one length."""

    words: WordList
    length: int

    form: ClassVar[InputForm] = "text"

    @property
    def spec(self) -> InputSpec:
        return InputSpec("text", (self.length,), "int32", FIRST_WORD_ID + len(self.words))

    def __call__(self, batch: Batch) -> Array:
        column = batch[self.column]
        assert isinstance(column, Strings)
        ids = self.words.ids
        out = np.zeros((len(column), self.length), np.int32)
        for row, text in enumerate(column.tolist()):
            found = [ids.get(word, -1) + FIRST_WORD_ID for word in WORD_SPLITTING(decode_string(text))[: self.length]]
            out[row, : len(found)] = found
        return _ensure_nonempty(out)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> TextInput:
        return cls(str(state["column"]), _load_words(state["words"]), validate_bounded(state["length"], MAX_LENGTH))


@dataclass(frozen=True)
class TokenInput(_ColumnInput):
    """Integers from 0 to `largest` as ids, truncated or padded to one length.

    In a column of fixed length, zeros at the end are padding.
    """

    largest: int
    length: int

    form: ClassVar[InputForm] = "tokens"

    @property
    def spec(self) -> InputSpec:
        return InputSpec("tokens", (self.length,), "int32", min(FIRST_WORD_ID + 1 + self.largest, MAX_IDS))

    def __call__(self, batch: Batch) -> Array:
        tokens = to_token_lists(batch[self.column])
        ids = Ragged(self._ids(np.asarray(tokens.values)), tokens.offsets, valid=tokens.valid)
        return _ensure_nonempty(ids.to_padded(PAD_ID, self.length))

    def _ids(self, tokens: Array) -> Array:
        known = (tokens >= 0) & (tokens <= self.largest)
        room = self.spec.size - FIRST_WORD_ID
        return np.where(known, tokens % np.int64(room) + FIRST_WORD_ID, UNKNOWN_ID).astype(np.int32)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> TokenInput:
        return cls(str(state["column"]), int(state["largest"]), validate_bounded(state["length"], MAX_LENGTH))


def to_dense(column: Column) -> Array:
    """A column of one shape as an array, with zeros for missing rows."""
    if isinstance(column, Optional):
        valid = column.valid.reshape(-1, *[1] * (column.values.ndim - 1))
        return np.where(valid, column.values, column.values.dtype.type(0))
    assert isinstance(column, np.ndarray)
    return column


def stack_columns(batch: Batch, columns: tuple[str, ...]) -> Array:
    """Columns of numbers as one float32 matrix, with NaN for missing rows."""
    parts = []
    for name in columns:
        column = batch[name]
        if isinstance(column, SparseColumn):
            values = column.to_dense()
        else:
            values = column.values if isinstance(column, Optional) else np.asarray(column)
        with np.errstate(over="ignore"):
            flat = values.reshape(len(values), -1).astype(np.float32)
        # Numbers whose square overflows float32 count as infinite and are then bounded: most of them stand for a
        # missing value, and would make the variance meaningless for all others.
        flat[np.abs(flat) > _MAX_FLOAT] *= np.float32(np.inf)
        flat[~find_valid_rows(column)] = np.nan
        parts.append(flat)
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def to_token_lists(column: Column) -> Ragged:
    """The tokens of each row as int64; in a column of fixed length, without the zeros at the end."""
    if isinstance(column, Ragged):
        return Ragged(np.asarray(column.values).astype(np.int64), column.offsets, valid=column.valid)
    values = to_dense(column).astype(np.int64)
    width = values.shape[1]
    last = width - np.argmax(values[:, ::-1] != 0, axis=1)
    kept = np.arange(width) < np.where((values != 0).any(axis=1), last, 0)[:, None]
    offsets = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64)
    return Ragged(values[kept], offsets)


def to_ragged(values: Array) -> Ragged:
    """A matrix as lists of one length."""
    return Ragged(values.reshape(-1), np.arange(len(values) + 1, dtype=np.int64) * values.shape[1])


def validate_bounded(value: Any, most: int) -> int:
    """A number from 1 to `most`: a stored state must not take more memory than the original."""
    number = int(value)
    if not 1 <= number <= most:
        raise ValueError(f"{number} is not from 1 to {most}")
    return number


def _ensure_nonempty(ids: Array) -> Array:
    # The mean over no words would be NaN.
    ids[ids[:, 0] == PAD_ID, 0] = UNKNOWN_ID
    return ids


def _load_words(words: Any) -> WordList:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise TypeError("a list of words")
    return WordList(tuple(words))


MIN_SIDE = 8
MAX_SIDE = 4096
"""The limits for the height and width of a model's images."""


@dataclass(frozen=True)
class _SizedInput(_ColumnInput):
    """An image of one size, in any stored form."""

    height: int
    width: int
    channels: int
    form: ClassVar[InputForm] = "image"
    dtype: ClassVar[str]

    @property
    def spec(self) -> InputSpec:
        return InputSpec("image", (self.height, self.width, self.channels), self.dtype)


@dataclass(frozen=True)
class ImageInput(_SizedInput):
    """Images resized to one size; a missing image is black.

    `is_stored` is true if the column is declared as bytes, which are not decoded by the reader.
    """

    is_stored: bool = False

    dtype: ClassVar[str] = "uint8"

    def __call__(self, batch: Batch) -> Array:
        column = batch[self.column]
        if not isinstance(column, Strings):
            return to_dense(column)
        from rekord.codec.images.decode import decode_image
        from rekord.codec.images.inspect import InvalidImage

        out = np.zeros((len(column), *self.spec.shape), np.uint8)
        for row, data in enumerate(column.tolist()):
            if data is not None:
                try:
                    out[row] = decode_image(data, self.channels, (self.height, self.width))
                except InvalidImage as refused:
                    raise refused.to_error(self.column) from refused.__cause__
        return out

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> ImageInput:
        height, width, channels = _load_size(state)
        return cls(str(state["column"]), height, width, channels, bool(state["is_stored"]))


@dataclass(frozen=True)
class PixelInput(_SizedInput):
    """Images stored as numbers, divided by `scale`; larger ones are subsampled to the size."""

    scale: float

    dtype: ClassVar[str] = "float32"

    def __call__(self, batch: Batch) -> Array:
        values = to_dense(batch[self.column])
        values = values.reshape(len(values), *values.shape[1:3], self.channels)
        rows = _compute_nearest(values.shape[1], self.height)
        columns = _compute_nearest(values.shape[2], self.width)
        with np.errstate(over="ignore"):
            scaled = values[:, rows[:, None], columns].astype(np.float32) / np.float32(self.scale)
        bounded: Array = np.nan_to_num(scaled, nan=0.0, posinf=1.0, neginf=-1.0)
        return bounded

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> PixelInput:
        height, width, channels = _load_size(state)
        return cls(str(state["column"]), height, width, channels, float(state["scale"]))


def _load_size(state: Mapping[str, Any]) -> list[int]:
    most = {"height": MAX_SIDE, "width": MAX_SIDE, "channels": MAX_CHANNELS}
    return [validate_bounded(state[name], limit) for name, limit in most.items()]


def _compute_nearest(have: int, want: int) -> Array:
    places: Array = ((np.arange(want) + 0.5) * have / want).astype(np.int64)
    return places


_KINDS: Mapping[str, Any] = {
    "picture": ImageInput,
    "pixels": PixelInput,
    "numbers": NumberInput,
    "category": CategoryInput,
    "words": TextInput,
    "tokens": TokenInput,
}
"""The classes by the name that is stored for them."""


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """One batch for the model: inputs by name, targets, and the number of records."""

    x: dict[str, Array]
    y: Array
    rows: int


def get_step(batch: Mapping[str, object]) -> TrainingStep:
    """The step of a batch that was requested with `BatchEncoder.reading`."""
    return batch["step"]  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class BatchEncoder:
    """Turns batches into steps with what was learned from the training split. Picklable, and shared by threads."""

    task: Task
    parts: Mapping[str, InputEncoder]  # by the names of the model's inputs
    target_mean: float = 0.0
    target_std: float = 1.0

    @cached_property
    def specs(self) -> Mapping[str, InputSpec]:
        """The inputs of the model by name."""
        return {name: part.spec for name, part in self.parts.items()}

    @property
    def numbers(self) -> NumberInput | None:
        """The input "numbers", if there is one."""
        numbers = self.parts.get("numbers")
        return numbers if isinstance(numbers, NumberInput) else None

    @property
    def image_size(self) -> tuple[int, int] | None:
        """The height and width of the image, if there is one."""
        image = self.parts.get("image")
        return (image.height, image.width) if isinstance(image, _SizedInput) else None

    def reading(self) -> dict[str, Any]:
        """The arguments of `split.batches` for this encoder; `get_step` returns the step of such a batch."""
        columns = [column for part in self.parts.values() for column in part.columns]
        image = self.parts.get("image")
        decodes = isinstance(image, ImageInput) and not image.is_stored
        return {
            "columns": [*columns, self.task.target],
            "decode": decodes,
            "resize": self.image_size if decodes else None,
            "map": lambda batch: {"step": self(batch)},
        }

    def __call__(self, batch: dict[str, Column]) -> TrainingStep:
        y = self._target(batch[self.task.target])
        return TrainingStep(self.encode_inputs(batch), y, len(y))

    def encode_inputs(self, batch: Batch) -> dict[str, Array]:
        """The inputs of the model, without the target."""
        return {name: part(batch) for name, part in self.parts.items()}

    def decode_images(self, batch: dict[str, Column], schema: Schema) -> dict[str, Column]:
        """A batch of stored values as `reading` requests it: images and masks decoded and resized."""
        reading = self.reading()
        if not reading["decode"]:
            return batch
        columns = tuple([name for name in reading["columns"] if name in batch])
        return build_image_decoder(schema, columns, reading["resize"])(batch)

    def to_dict(self) -> dict[str, Any]:
        """What was learned, as JSON values; with the classes, so that nothing else is needed to use the model."""
        inputs = {name: {"kind": _get_input_kind(part), **part.to_dict()} for name, part in self.parts.items()}
        target = {
            "column": self.task.target,
            "kind": self.task.kind,
            "classes": list(self.task.classes),
            "mean": self.target_mean,
            "std": self.target_std,
        }
        forms = {each.column: each.form for each in self.task.inputs}
        return {"inputs": inputs, "forms": forms, "target": target}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], task: Task) -> BatchEncoder:
        """The encoder restored from the result of `to_dict`, for the same task."""
        try:
            parts = {str(name): _KINDS[one["kind"]].from_dict(one) for name, one in state["inputs"].items()}
            return cls(task, parts, float(state["target"]["mean"]), float(state["target"]["std"]))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as failure:
            raise error(
                "X575",
                "encoder state cannot be restored",
                expected="a state written by `rekord train`",
                found=f"{type(failure).__name__}: {failure}"[:60],
                do="fresh=True, to start over",
            ) from None

    def _target_error(self, what: str, expected: str, found: str) -> RekordError:
        return untrainable_error(what, column=self.task.target, expected=expected, found=found)

    def _target(self, column: Column) -> Array:
        missing = int((~find_valid_rows(column)).sum())
        if missing:
            what = f"{missing:,} of {len(column):,} records of a batch have no value in `{self.task.target}`"
            raise self._target_error(what, "a value in each record", "no value")
        stored = column.values if isinstance(column, Optional) else column
        if self.task.kind == "multilabel":
            return self._multi_hot(stored)
        if self.task.kind == "segmentation":
            return self._pixel_ids(np.asarray(stored).astype(np.int32))
        if self.task.kind == "regression":
            return self._number(np.asarray(stored))
        return self._class_ids(stored)

    def _pixel_ids(self, ids: Array) -> Array:
        strange = (ids < 0) | (ids >= len(self.task.classes))
        if self.task.ignore is not None:
            strange &= ids != self.task.ignore
        if strange.any():
            records = int(strange.any((1, 2)).sum())
            what = f"`{self.task.target}` has pixels with unknown class ids in {records:,} records of a batch"
            ignored = "" if self.task.ignore is None else f", or {self.task.ignore} (ignored)"
            expected = f"ids below {len(self.task.classes):,}{ignored}"
            raise self._target_error(what, expected, str(int(ids[strange][0])))
        return ids

    def _multi_hot(self, stored: Any) -> Array:
        """One number per class, 1 if the record has it: as stored, or from lists of class ids."""
        classes = len(self.task.classes)
        if not self.task.is_id_list:
            values = np.asarray(stored)
            strange = (values != 0) & (values != 1)
        else:
            lists = stored if isinstance(stored, Ragged) else to_ragged(np.asarray(stored))
            ids = np.asarray(lists.values)
            strange = (ids < 0) | (ids >= classes)
            values = np.zeros((len(lists), classes), np.float32)
            if not strange.any():
                values[np.repeat(np.arange(len(lists)), lists.lengths), ids] = 1
        if strange.any():
            what = f"`{self.task.target}` has values that are not classes"
            expected = f"class ids below {classes:,}" if self.task.is_id_list else "0 or 1 for each class"
            found = (ids if self.task.is_id_list else values)[strange][0]
            raise self._target_error(what, expected, str(int(found)))
        return values.astype(np.float32)

    def _number(self, stored: Array) -> Array:
        with np.errstate(over="ignore"):
            values = stored.astype(np.float32)
        strange = ~np.isfinite(values)
        if strange.any():
            what = f"`{self.task.target}` is not finite in {int(strange.sum()):,} records of a batch"
            raise self._target_error(what, "a finite number in each record", f"{values[strange][0]}")
        return values

    def _class_ids(self, stored: Any) -> Array:
        if self.task.values is None:
            ids = np.asarray(stored)
            known = (ids >= 0) & (ids < len(self.task.classes))
        else:
            values = stored.tolist() if isinstance(stored, Strings) else np.asarray(stored).tolist()
            ids = np.array([self._ids.get(value, -1) for value in values], np.int32)
            known = ids >= 0
        if known.all():
            return ids.astype(np.int32)
        row = int(np.argmin(known))
        value = stored[row] if isinstance(stored, Strings) else np.asarray(stored)[row].item()
        what = f"`{self.task.target}` has a value that is not one of the classes"
        raise self._target_error(what, f"one of {len(self.task.classes):,} classes", preview(value))

    @cached_property
    def _ids(self) -> dict[Any, int]:
        return {value: number for number, value in enumerate(self.task.values or ())}


def _get_input_kind(part: InputEncoder) -> str:
    return next(name for name, kind in _KINDS.items() if type(part) is kind)
