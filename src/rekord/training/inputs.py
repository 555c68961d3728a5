"""The inputs of a model: how the columns of a batch become its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.codec.columns import Column, Optional, Ragged, SparseColumn, Strings
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.training.choose import target_error
from rekord.training.task import MAX_CHANNELS, InputForm, Task, decode_string, find_valid_rows
from rekord.transforms.vocabularies import WordList, WordSplitter

Array: TypeAlias = "npt.NDArray[Any]"
Batch: TypeAlias = "Mapping[str, Column]"

PAD_ID = 0
UNKNOWN_ID = 1
FIRST_WORD_ID = 2
"""The ids of texts and tokens: nothing, something that was not learned, and from here on what was."""

MAX_IDS = 1 << 16
"""Of more ids some share one: a table of so many rows is what a small model has room for, and learns in time."""

MAX_LENGTH = 256
"""Of a longer text or list of tokens the rest is cut off."""

_MAX_FLOAT = np.float32(1e19)

WORD_SPLITTING = WordSplitter("words", lowercase=True)


@dataclass(frozen=True)
class InputSpec:
    """An input as the model declares it. `size` is how many ids there are, 0 where it holds no ids.

    An image of uint8 has values up to 255, one of float32 values up to 1.
    """

    form: InputForm
    shape: tuple[int, ...]
    dtype: str
    size: int = 0


class InputEncoder(Protocol):
    """One input. A frozen value, shared by threads."""

    form: ClassVar[InputForm]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is made of."""

    @property
    def spec(self) -> InputSpec:
        """What comes out, of one record."""

    def __call__(self, batch: Batch) -> Array:
        """What comes out, of all records of a batch. Row i depends on record i alone."""

    def to_dict(self) -> dict[str, Any]:
        """All that was learned, as JSON holds it."""


@dataclass(frozen=True, eq=False)
class NumberInput:
    """Numbers side by side. What is missing or NaN is the mean, and what is infinite the largest that was seen."""

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
    def from_dict(cls, told: Mapping[str, Any]) -> NumberInput:
        arrays = [np.array(told[name], np.float32) for name in ("mean", "variance", "least", "most")]
        if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
            raise ValueError("as many means as variances")
        return cls(tuple([str(name) for name in told["columns"]]), *arrays)


@dataclass(frozen=True)
class _ColumnInput:
    """What the inputs of one column share."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def to_dict(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(one.words) if isinstance(one, WordList) else one for name, one in values.items()}


@dataclass(frozen=True)
class CategoryInput(_ColumnInput):
    """One of some values as an id from 1 on; 0 where there is none, or one that was not learned.

    `count` ids from 0 on are stored where no `words` are given.
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
    def from_dict(cls, told: Mapping[str, Any]) -> CategoryInput:
        words = None if told["words"] is None else _load_words(told["words"])
        count = validate_bounded(told["count"], MAX_IDS) if words is None else len(words)
        return cls(str(told["column"]), words, count)


@dataclass(frozen=True)
class TextInput(_ColumnInput):
    """A text as the ids of its words, cut or padded to one length."""

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
    def from_dict(cls, told: Mapping[str, Any]) -> TextInput:
        return cls(str(told["column"]), _load_words(told["words"]), validate_bounded(told["length"], MAX_LENGTH))


@dataclass(frozen=True)
class TokenInput(_ColumnInput):
    """Whole numbers from 0 to `largest` as ids, cut or padded to one length.

    Of a column of one length, the zeros at the end are what somebody has padded it with.
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
    def from_dict(cls, told: Mapping[str, Any]) -> TokenInput:
        return cls(str(told["column"]), int(told["largest"]), validate_bounded(told["length"], MAX_LENGTH))


def to_dense(column: Column) -> Array:
    """A column of one shape as an array, zero where a row is missing."""
    if isinstance(column, Optional):
        return np.where(_broadcast_mask(column.valid, column.values), column.values, column.values.dtype.type(0))
    assert isinstance(column, np.ndarray)
    return column


def stack_columns(batch: Batch, columns: tuple[str, ...]) -> Array:
    """Columns of numbers as one float32 matrix, NaN where a row is missing."""
    made = []
    for name in columns:
        column = batch[name]
        if isinstance(column, SparseColumn):
            values = column.to_dense()
        else:
            values = column.values if isinstance(column, Optional) else np.asarray(column)
        with np.errstate(over="ignore"):
            flat = values.reshape(len(values), -1).astype(np.float32)
        # What float32 cannot square counts as infinite, and is then bounded: it stands for a missing value mostly,
        # and no variance would be left that says anything of the others.
        flat[np.abs(flat) > _MAX_FLOAT] *= np.float32(np.inf)
        flat[~find_valid_rows(column)] = np.nan
        made.append(flat)
    return made[0] if len(made) == 1 else np.concatenate(made, axis=1)


def to_token_lists(column: Column) -> Ragged:
    """The tokens of each row as int64, those of a fixed length without the zeros at their end."""
    if isinstance(column, Ragged):
        return Ragged(np.asarray(column.values).astype(np.int64), column.offsets, valid=column.valid)
    values = to_dense(column).astype(np.int64)
    width = values.shape[1]
    last = width - np.argmax(values[:, ::-1] != 0, axis=1)
    kept = np.arange(width) < np.where((values != 0).any(axis=1), last, 0)[:, None]
    offsets = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64)
    return Ragged(values[kept], offsets)


def validate_bounded(told: Any, most: int) -> int:
    """A number of things that was told, from 1 to `most`: what is read back must not take more memory than it did."""
    number = int(told)
    if not 1 <= number <= most:
        raise ValueError(f"{number} is not from 1 to {most}")
    return number


def input_state_error(found: str) -> RekordError:
    """The error for what was learned and cannot be read back."""
    return error(
        "X575",
        "what was learned of the inputs cannot be read back",
        location=Location(),
        expected="what `rekord train` wrote",
        found=found[:60],
        do="rekord train PATH --fresh, which learns it again",
    )


def _ensure_nonempty(ids: Array) -> Array:
    # The mean over no words at all would be no number.
    ids[ids[:, 0] == PAD_ID, 0] = UNKNOWN_ID
    return ids


def _broadcast_mask(valid: Array, values: Array) -> Array:
    return valid.reshape(-1, *[1] * (values.ndim - 1))


def _load_words(told: Any) -> WordList:
    if not isinstance(told, list) or not all(isinstance(word, str) for word in told):
        raise TypeError("a list of words")
    return WordList(tuple(told))


MIN_SIDE = 8
MAX_SIDE = 4096
"""What a model can be asked to take as the height or width of an image."""


@dataclass(frozen=True)
class _SizedInput(_ColumnInput):
    """An image of one size, from whatever it is stored as."""

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
    """An image, all of them of one size; a record that has none gets a black one.

    `is_stored` says that the column is declared as bytes, which nobody has decoded before.
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
    def from_dict(cls, told: Mapping[str, Any]) -> ImageInput:
        height, width, channels = _load_size(told)
        return cls(str(told["column"]), height, width, channels, bool(told["is_stored"]))


@dataclass(frozen=True)
class PixelInput(_SizedInput):
    """An image that is stored as numbers, `scale` of which are 1; larger ones are thinned out to the size."""

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
    def from_dict(cls, told: Mapping[str, Any]) -> PixelInput:
        height, width, channels = _load_size(told)
        return cls(str(told["column"]), height, width, channels, float(told["scale"]))


def _load_size(told: Mapping[str, Any]) -> list[int]:
    most = {"height": MAX_SIDE, "width": MAX_SIDE, "channels": MAX_CHANNELS}
    return [validate_bounded(told[name], limit) for name, limit in most.items()]


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
"""What is told under which name."""


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """What a model takes at once: inputs by name, targets, and of how many records they are."""

    x: dict[str, Array]
    y: Array
    rows: int


@dataclass(frozen=True, eq=False)
class BatchEncoder:
    """Makes steps of batches by what was learned of the training split. Can be pickled and shared by threads."""

    task: Task
    parts: Mapping[str, InputEncoder]  # by the names of the model's inputs
    target_mean: float = 0.0
    target_std: float = 1.0

    @cached_property
    def specs(self) -> Mapping[str, InputSpec]:
        """The inputs as the model declares them."""
        return {name: part.spec for name, part in self.parts.items()}

    @property
    def mean(self) -> Array | None:
        """Of each value of the input "numbers"; None where there is no such input."""
        numbers = self._numbers
        return None if numbers is None else numbers.mean

    @property
    def variance(self) -> Array | None:
        """Of each value of the input "numbers", nowhere 0."""
        numbers = self._numbers
        return None if numbers is None else numbers.variance

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of the image, where there is one."""
        image = self.parts.get("image")
        return (image.height, image.width) if isinstance(image, (ImageInput, PixelInput)) else None

    def reading(self) -> dict[str, Any]:
        """What `split.batches` is to be asked for."""
        columns = [column for part in self.parts.values() for column in part.columns]
        image = self.parts.get("image")
        decodes = isinstance(image, ImageInput) and not image.is_stored
        return {
            "columns": [*columns, self.task.target],
            "decode": decodes,
            "resize": self.image_size if decodes else None,
        }

    def __call__(self, batch: dict[str, Column]) -> TrainingStep:
        y = self._target(batch[self.task.target])
        return TrainingStep({name: part(batch) for name, part in self.parts.items()}, y, len(y))

    def to_dict(self) -> dict[str, Any]:
        """What was learned, as JSON holds it; with the classes, so that the model can be used with it alone."""
        inputs = {name: {"kind": _get_input_kind(part), **part.to_dict()} for name, part in self.parts.items()}
        target = {
            "column": self.task.target,
            "kind": self.task.kind,
            "classes": list(self.task.classes),
            "mean": self.target_mean,
            "std": self.target_std,
        }
        return {"inputs": inputs, "target": target}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any], task: Task) -> BatchEncoder:
        """The encoder that `to_dict` told of, for the same task."""
        try:
            parts = {str(name): _KINDS[one["kind"]].from_dict(one) for name, one in told["inputs"].items()}
            return cls(task, parts, float(told["target"]["mean"]), float(told["target"]["std"]))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as failure:
            raise input_state_error(f"{type(failure).__name__}: {failure}") from None

    @property
    def _numbers(self) -> NumberInput | None:
        numbers = self.parts.get("numbers")
        return numbers if isinstance(numbers, NumberInput) else None

    def _target(self, column: Column) -> Array:
        missing = int((~find_valid_rows(column)).sum())
        if missing:
            what = f"{missing:,} of {len(column):,} records of a batch have no value in `{self.task.target}`"
            raise target_error(self.task, what, "a value in each record", "no value")
        stored = column.values if isinstance(column, Optional) else column
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
            what = f"`{self.task.target}` has pixels of none of the classes, in {records:,} records of a batch"
            ignored = "" if self.task.ignore is None else f", or {self.task.ignore}, which is ignored"
            found = str(int(ids[strange][0]))
            raise target_error(self.task, what, f"ids below {len(self.task.classes):,}{ignored}", found)
        return ids

    def _number(self, stored: Array) -> Array:
        with np.errstate(over="ignore"):
            values = stored.astype(np.float32)
        strange = ~np.isfinite(values)
        if strange.any():
            what = f"`{self.task.target}` is no finite number in {int(strange.sum()):,} records of a batch"
            raise target_error(self.task, what, "a finite number in each record", f"{values[strange][0]}")
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
        values = stored[row] if isinstance(stored, Strings) else np.asarray(stored)[row].item()
        raise target_error(
            self.task,
            f"`{self.task.target}` has a value that is none of the classes",
            f"one of {len(self.task.classes):,} classes",
            preview(values),
        )

    @cached_property
    def _ids(self) -> dict[Any, int]:
        return {value: number for number, value in enumerate(self.task.values or ())}


def _get_input_kind(part: InputEncoder) -> str:
    return next(name for name, kind in _KINDS.items() if type(part) is kind)
