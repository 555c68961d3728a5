"""The inputs of a model: how columns of a batch become the array that the model takes under one name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.codec.columns import Column, Optional, Ragged, SparseColumn, Strings
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.training.survey import as_text, valid_rows
from rekord.training.task import Form
from rekord.transforms.vocabularies import Words
from rekord.transforms.words import Splitting

Array: TypeAlias = "npt.NDArray[Any]"
Batch: TypeAlias = "Mapping[str, Column]"

PAD = 0
UNKNOWN = 1
FIRST = 2
"""The ids of texts and tokens: nothing, something that was not learned, and from here on what was."""

MOST_IDS = 1 << 16
"""Of more ids some share one: a table of so many rows is what a small model has room for, and learns in time."""

MOST_LENGTH = 256
"""Of a longer text or list of tokens the rest is cut off."""

_LARGEST = np.float32(1e19)

SPLITTING = Splitting("words", lowercase=True)


@dataclass(frozen=True)
class Spec:
    """An input as the model declares it. `size` is how many ids there are, 0 where it holds no ids.

    An image of uint8 has values up to 255, one of float32 values up to 1.
    """

    form: Form
    shape: tuple[int, ...]
    dtype: str
    size: int = 0


class Part(Protocol):
    """One input. A frozen value, shared by threads."""

    form: ClassVar[Form]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is made of."""

    @property
    def spec(self) -> Spec:
        """What comes out, of one record."""

    def __call__(self, batch: Batch) -> Array:
        """What comes out, of all records of a batch. Row i depends on record i alone."""

    def to_dict(self) -> dict[str, Any]:
        """All that was learned, as JSON holds it."""


@dataclass(frozen=True, eq=False)
class Numbers:
    """Numbers side by side. What is missing or NaN is the mean, and what is infinite the largest that was seen."""

    columns: tuple[str, ...]
    mean: Array
    variance: Array
    least: Array
    most: Array

    form: ClassVar[Form] = "numbers"

    @property
    def spec(self) -> Spec:
        return Spec("numbers", (len(self.mean),), "float32")

    def __call__(self, batch: Batch) -> Array:
        values = side_by_side(batch, self.columns)
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
    def from_dict(cls, told: Mapping[str, Any]) -> Numbers:
        arrays = [np.array(told[name], np.float32) for name in ("mean", "variance", "least", "most")]
        if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
            raise ValueError("as many means as variances")
        return cls(tuple([str(name) for name in told["columns"]]), *arrays)


@dataclass(frozen=True)
class Category:
    """One of some values as an id from 1 on; 0 where there is none, or one that was not learned.

    `count` ids from 0 on are stored where no `words` are given.
    """

    column: str
    words: Words | None
    count: int

    form: ClassVar[Form] = "category"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def spec(self) -> Spec:
        return Spec("category", (), "int32", 1 + self.count)

    def __call__(self, batch: Batch) -> Array:
        column = batch[self.column]
        if self.words is not None:
            assert isinstance(column, Strings)
            places = self.words.ids
            found = [-1 if value is None else places.get(as_text(value), -1) for value in column.tolist()]
            return np.array(found, np.int32) + np.array(1, np.int32)
        values = dense(column)
        known = valid_rows(column) & (values >= 0) & (values < self.count)
        ids: Array = np.where(known, values + 1, 0).astype(np.int32)
        return ids

    def to_dict(self) -> dict[str, Any]:
        words = None if self.words is None else list(self.words.words)
        return {"column": self.column, "words": words, "count": self.count}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Category:
        words = None if told["words"] is None else _words(told["words"])
        count = bounded(told["count"], MOST_IDS) if words is None else len(words)
        return cls(str(told["column"]), words, count)


@dataclass(frozen=True)
class WordIds:
    """A text as the ids of its words, cut or padded to one length."""

    column: str
    words: Words
    length: int

    form: ClassVar[Form] = "text"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def spec(self) -> Spec:
        return Spec("text", (self.length,), "int32", FIRST + len(self.words))

    def __call__(self, batch: Batch) -> Array:
        column = batch[self.column]
        assert isinstance(column, Strings)
        ids = self.words.ids
        out = np.zeros((len(column), self.length), np.int32)
        for row, text in enumerate(column.tolist()):
            found = [ids.get(word, -1) + FIRST for word in SPLITTING(as_text(text))[: self.length]]
            out[row, : len(found)] = found
        return _never_empty(out)

    def to_dict(self) -> dict[str, Any]:
        return {"column": self.column, "words": list(self.words.words), "length": self.length}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> WordIds:
        return cls(str(told["column"]), _words(told["words"]), bounded(told["length"], MOST_LENGTH))


@dataclass(frozen=True)
class TokenIds:
    """Whole numbers from 0 to `largest` as ids, cut or padded to one length.

    Of a column of one length, the zeros at the end are what somebody has padded it with.
    """

    column: str
    largest: int
    length: int

    form: ClassVar[Form] = "tokens"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def spec(self) -> Spec:
        return Spec("tokens", (self.length,), "int32", min(FIRST + 1 + self.largest, MOST_IDS))

    def __call__(self, batch: Batch) -> Array:
        tokens = token_lists(batch[self.column])
        ids = Ragged(self._ids(np.asarray(tokens.values)), tokens.offsets, valid=tokens.valid)
        return _never_empty(ids.to_padded(PAD, self.length))

    def _ids(self, tokens: Array) -> Array:
        known = (tokens >= 0) & (tokens <= self.largest)
        room = self.spec.size - FIRST
        return np.where(known, tokens % np.int64(room) + FIRST, UNKNOWN).astype(np.int32)

    def to_dict(self) -> dict[str, Any]:
        return {"column": self.column, "largest": self.largest, "length": self.length}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> TokenIds:
        return cls(str(told["column"]), int(told["largest"]), bounded(told["length"], MOST_LENGTH))


def dense(column: Column) -> Array:
    """A column of one shape as an array, zero where a row is missing."""
    if isinstance(column, Optional):
        return np.where(_beside(column.valid, column.values), column.values, column.values.dtype.type(0))
    assert isinstance(column, np.ndarray)
    return column


def side_by_side(batch: Batch, columns: tuple[str, ...]) -> Array:
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
        flat[np.abs(flat) > _LARGEST] *= np.float32(np.inf)
        flat[~valid_rows(column)] = np.nan
        made.append(flat)
    return made[0] if len(made) == 1 else np.concatenate(made, axis=1)


def token_lists(column: Column) -> Ragged:
    """The tokens of each row as int64, those of a fixed length without the zeros at their end."""
    if isinstance(column, Ragged):
        return Ragged(np.asarray(column.values).astype(np.int64), column.offsets, valid=column.valid)
    values = dense(column).astype(np.int64)
    width = values.shape[1]
    last = width - np.argmax(values[:, ::-1] != 0, axis=1)
    kept = np.arange(width) < np.where((values != 0).any(axis=1), last, 0)[:, None]
    offsets = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64)
    return Ragged(values[kept], offsets)


def bounded(told: Any, most: int) -> int:
    """A number of things that was told, from 1 to `most`: what is read back must not take more memory than it did."""
    number = int(told)
    if not 1 <= number <= most:
        raise ValueError(f"{number} is not from 1 to {most}")
    return number


def damaged(found: str) -> RekordError:
    """The error for what was learned and cannot be read back."""
    return error(
        "X575",
        "what was learned of the inputs cannot be read back",
        location=Location(),
        expected="what `rekord train` wrote",
        found=found[:60],
        do="rekord train PATH --fresh, which learns it again",
    )


def _never_empty(ids: Array) -> Array:
    # The mean over no words at all would be no number.
    ids[ids[:, 0] == PAD, 0] = UNKNOWN
    return ids


def _beside(valid: Array, values: Array) -> Array:
    return valid.reshape(-1, *[1] * (values.ndim - 1))


def _words(told: Any) -> Words:
    if not isinstance(told, list) or not all(isinstance(word, str) for word in told):
        raise TypeError("a list of words")
    return Words(tuple(told))
