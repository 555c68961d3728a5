"""The labels of a split as they are and as they are to be, and how that gets into its records."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord.codec.columns import Optional, Ragged
from rekord.dataset.finish import Batch
from rekord.dataset.order import Ids
from rekord.dataset.split import Split
from rekord.feeds.sql_index import Indexed
from rekord.schema import Feature
from rekord.verbs.relabel_classes import Changed, Classes, refused

Flags = npt.NDArray[np.bool_]

_ROWS = 8192


@dataclass(frozen=True, eq=False)
class Values:
    """The ids of all records: one each, or those of record i from `offsets[i]` to `offsets[i + 1]`."""

    ids: Ids
    valid: Flags  # of each record
    offsets: Ids | None = None

    @property
    def records(self) -> int:
        """How many there are."""
        return len(self.valid)

    def of_values(self, flags: Flags) -> Flags:
        """What is said of each record, said of each value."""
        return flags if self.offsets is None else np.repeat(flags, np.diff(self.offsets))

    def of_records(self, flags: Flags) -> Flags:
        """The records that have any such value."""
        if self.offsets is None:
            return flags
        sums = np.concatenate([[0], np.cumsum(flags)])
        return np.asarray(sums[self.offsets[1:]] > sums[self.offsets[:-1]])


def values_of(split: Split, column: str, feature: Feature) -> Values:
    """The labels of a split: from its index where that has them, or else from the records."""
    if not feature.shape:
        indexed = Indexed(split._shards, {column: pa.int64()})
        if indexed.has([column]):
            arrays = [columns[column] for columns, _ in indexed.batches([column])]
            valid = [~np.asarray(array.is_null()) for array in arrays]
            filled = [np.asarray(array.fill_null(0)) for array in arrays]
            return Values(_joined(filled, np.int64), _joined(valid, bool))
    found = [_of_batch(batch[column]) for batch in split.batches(_ROWS, columns=[column])]
    lengths = [one.offsets for one in found]
    offsets = None
    if feature.shape:
        counts = [np.diff(one) for one in lengths if one is not None]
        offsets = np.concatenate([[0], np.cumsum(_joined(counts, np.int64))]).astype(np.int64)
    return Values(
        _joined([one.ids for one in found], np.int64), _joined([one.valid for one in found], bool), offsets
    )


def _of_batch(column: Any) -> Values:
    if isinstance(column, Ragged):
        valid = np.ones(len(column), bool) if column.valid is None else np.asarray(column.valid)
        return Values(np.asarray(column.values, np.int64), valid, np.asarray(column.offsets, np.int64))
    if isinstance(column, Optional):
        inner = _of_batch(column.values)
        return Values(inner.ids, np.asarray(column.valid), inner.offsets)
    rows = len(column)
    valid = np.ones(rows, bool)
    if column.ndim == 1:
        return Values(column.astype(np.int64), valid)
    width = column.shape[1]
    return Values(column.reshape(-1).astype(np.int64), valid, np.arange(rows + 1, dtype=np.int64) * width)


def _joined(parts: list[Any], kind: Any) -> Any:
    return np.concatenate([np.zeros(0, kind), *parts]).astype(kind)


def mapped(ids: Ids, by: Mapping[int, int | None], changed: Changed) -> Ids:
    """Ids by a map; what it does not name stays. A class that is left out and has records is refused."""
    found, places = np.unique(ids, return_inverse=True)
    made = np.array([_one(int(number), by, changed) for number in found], np.int64)
    return made[places.reshape(-1)] if len(found) else ids


def _one(number: int, by: Mapping[int, int | None], changed: Changed) -> int:
    new = by.get(number, number)
    before, after = changed.before.count, changed.after.count
    if new is None or (before is not None and after is not None and number < before and new >= after):
        name = changed.before.name(number)
        raise refused(
            f"the class `{name[:60]}` has records, and is not among the new classes",
            "all classes that have records, or others that they are mapped to",
            f"no class `{name[:60]}`",
            f'{{"{name[:40]}": "another"}}, or add it to the names',
            feature=changed.before.column,
        )
    return new


@dataclass(frozen=True, eq=False)
class NewLabels:
    """The labels that a split is to have. It is called with records that were decoded, and their numbers."""

    column: str
    optional: bool
    before: Values
    after: Values
    texts: Mapping[str, Mapping[int, str]]
    affected: Flags  # the records that are to be other bytes than before
    renamed: Flags  # the records that are of another class than before

    def __call__(self, batch: Batch, numbers: Ids) -> Batch:
        made: dict[str, Any] = dict(batch)
        made[self.column] = self._labels(batch[self.column], numbers)
        rows = np.flatnonzero(self.affected[numbers]).tolist()
        for name, by_id in self.texts.items():
            texts = batch[name].tolist()
            for row in rows:
                texts[row] = self._text(texts[row], by_id, int(numbers[row]))
            made[name] = texts
        return made

    def digest(self) -> str:
        """What tells these labels from others, in a few letters."""
        told = hashlib.sha256(np.packbits(self.affected).tobytes())
        told.update(self.after.ids.tobytes())
        told.update(np.packbits(self.after.valid).tobytes())
        return told.hexdigest()[:16]

    def _labels(self, column: Any, numbers: Ids) -> Any:
        if self.after.offsets is None:
            ids, valid = self.after.ids[numbers], self.after.valid[numbers]
            return Optional(ids, valid) if self.optional else ids
        begins, ends = self.after.offsets[numbers], self.after.offsets[numbers + 1]
        pieces = [self.after.ids[begin:end] for begin, end in zip(begins, ends, strict=True)]
        ids = _joined(pieces, np.int64)
        if isinstance(column, Ragged):
            return Ragged(ids, column.offsets - column.offsets[0], valid=column.valid)
        if isinstance(column, Optional):
            return Optional(ids.reshape(column.values.shape), column.valid)
        return ids.reshape(column.shape)

    def _text(self, text: Any, by_id: Mapping[int, str], number: int) -> Any:
        """The text beside a label. Where there is none for the class, it is left as it is."""
        if not self.after.valid[number]:
            return None
        if self.after.offsets is None:
            return by_id.get(int(self.after.ids[number]), text)
        begin, end = (int(one) for one in self.after.offsets[number : number + 2])
        ids = self.after.ids[begin:end].tolist()
        if len(text) != len(ids):
            return text  # it says something else
        return [by_id.get(one, word) for one, word in zip(ids, text, strict=True)]


def new_labels(
    column: str,
    feature: Feature,
    before: Values,
    after: Values,
    changed: Changed,
    texts: Mapping[str, Mapping[int, str]],
) -> NewLabels:
    """The labels of a split, from what they were and what they are to be."""
    same_valid = before.of_values(before.valid == after.valid)
    other_id = (before.ids != after.ids) | ~same_valid
    codes: dict[str, int] = {}
    other_name = _named(before.ids, changed.before, codes) != _named(after.ids, changed.after, codes)
    other_class = (other_name | ~same_valid) & before.of_values(after.valid | before.valid)
    affected = before.of_records(other_id | other_class if texts else other_id)
    renamed = before.of_records(other_class)
    return NewLabels(column, feature.optional, before, after, texts, affected, renamed)


def _named(ids: Ids, classes: Classes, codes: dict[str, int]) -> Ids:
    """A number for the name of each class, the same for the same name."""
    found, places = np.unique(ids, return_inverse=True)
    named = [codes.setdefault(classes.name(int(number)), len(codes)) for number in found]
    return np.array(named, np.int64)[places.reshape(-1)]
