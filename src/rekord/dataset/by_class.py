"""The records of a split by the class that a column gives them: from the index, or read once and kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rekord.codec.arrow import column_to_arrow
from rekord.dataset.index import CHUNK_RECORDS
from rekord.dataset.lazy_schema import LazySchema
from rekord.dataset.order import Ids
from rekord.dataset.selection import Selection, all_numbers, numbers_at
from rekord.dataset.shard_index import index_mismatch
from rekord.dataset.shards import Shards
from rekord.dataset.split import Split
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Feature, Int64, Label, Text

_READ_ROWS = 8192


@dataclass(frozen=True, eq=False)
class Coded:
    """The class of each record, `classes[codes[i]]`; a code of -1 says that it has none.

    Where a record may have several classes, those of record i are `codes[offsets[i]:offsets[i + 1]]`.
    """

    classes: tuple[Any, ...]
    codes: npt.NDArray[np.int32]
    offsets: Ids | None = None

    def counts(self) -> Ids:
        """How often each class occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.classes)).astype(np.int64)

    def pairs(self) -> tuple[Ids, Ids]:
        """Of a list column, records and a class of each: a class that a record names twice is one that it has."""
        assert self.offsets is not None
        records = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        return np.divmod(np.unique(records * len(self.classes) + self.codes), max(len(self.classes), 1))

    def of(self, ids: Ids) -> Coded:
        """The same of some records."""
        if self.offsets is None:
            return Coded(self.classes, self.codes[ids])
        lengths = np.diff(self.offsets)[ids]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        inside = np.arange(offsets[-1], dtype=np.int64) - np.repeat(offsets[:-1], lengths)
        return Coded(self.classes, self.codes[np.repeat(self.offsets[ids], lengths) + inside], offsets)


class ByClass:
    """The records of some shards by class. What was not in the index goes along when this is pickled."""

    def __init__(self, shards: Shards, schema: LazySchema, by: str, ids: Selection | None) -> None:
        self.feature = _checked_feature(schema, by)
        self.by = by
        self.shards = shards
        self.ids = ids
        self._schema = schema
        self._from_index = False
        self._coded: Coded | None = None
        self._order: Ids | None = None

    @property
    def is_several(self) -> bool:
        """Whether a record may have several classes."""
        return bool(self.feature.shape)

    @property
    def records(self) -> int:
        """How many records there are."""
        return len(self.shards) if self.ids is None else len(self.ids)

    @property
    def coded(self) -> Coded:
        """The class of each record."""
        if self._coded is None:
            self._coded = self._load()
            self._check()
        return self._coded

    @property
    def order(self) -> Ids:
        """The numbers of the records, sorted by class, those of a class as they come."""
        if self._order is None:
            codes = self.coded.codes
            # Small numbers are sorted digit by digit, which takes no comparisons.
            small = codes.astype(np.uint16) if len(self.coded.classes) < 1 << 16 else codes
            places = np.argsort(small, kind="stable").astype(np.int64)
            self._order = places if self.ids is None else numbers_at(self.ids, places)
        return self._order

    def __getstate__(self) -> dict[str, Any]:
        kept = dict(self.__dict__)
        kept["_order"] = None
        if self._from_index:
            kept["_coded"] = None
        return kept

    def _load(self) -> Coded:
        kept = _kept.setdefault(self.shards, {})
        if self.by not in kept:
            columns = _index_columns(self.shards, self.by)
            if columns is None and self.ids is not None:
                return _coded(self._read(self.ids))
            found = _coded(columns if columns is not None else self._read(None))
            kept[self.by] = found, columns is not None
        found, self._from_index = kept[self.by]
        return found if self.ids is None else found.of(all_numbers(self.ids))

    def _read(self, ids: Selection | None) -> Iterator[Any]:
        split = Split("", self.shards, self._schema, ids=ids)
        for batch in split.batches(_READ_ROWS, columns=[self.by]):
            yield column_to_arrow(batch[self.by])

    def _check(self) -> None:
        """Every record has a class, and a class that is declared."""
        coded = self._coded
        assert coded is not None
        bad = coded.codes < 0
        if isinstance(self.feature, Label):
            known = np.array([0 <= value < self.feature.count for value in coded.classes] or [True])
            bad |= ~known[coded.codes]
        if not bad.any():
            return
        self._coded = None
        first = int(np.argmax(bad))
        code = int(coded.codes[first])
        record = (
            first if coded.offsets is None else int(np.searchsorted(coded.offsets, first, side="right")) - 1
        )
        number = record if self.ids is None else int(self.ids[record])
        where = self.shards.where(number)
        raise error(
            "X552",
            f"{int(bad.sum()):,} of {self.records:,} records have no class in `{self.by}`"
            if coded.offsets is None
            else f"`{self.by}` has {int(bad.sum()):,} values that are no class",
            location=Location(path=where.path, record=where.record, offset=where.offset, feature=self.by),
            expected=_expected(self.feature),
            found="no value" if code < 0 else f"{coded.classes[code]!r}"[:60],
            do=f"split.filter(lambda row: row[{self.by!r}] …, columns=[{self.by!r}]) first, to leave them out",
        )


_kept: WeakKeyDictionary[Shards, dict[str, tuple[Coded, bool]]] = WeakKeyDictionary()
"""What was read of whole splits, and whether an index has it too, for as long as one of them is in use."""


def indexed_counts(shards: Shards, by: str) -> dict[int, int] | None:
    """The records of each class of a Label as the indexes of all shards say; None where one does not."""
    counts: dict[int, int] = {}
    for shard, records in enumerate(shards.counts.tolist()):
        if not records:
            continue
        found = shards.index(shard).classes.get(by)
        if found is None or sum(found.values()) != records:
            return None  # some records have no class: which ones is worth a look
        for name, count in found.items():
            counts[int(name)] = counts.get(int(name), 0) + count
    return counts


def _index_columns(shards: Shards, by: str) -> Iterator[Any] | None:
    """The column of each shard, chunk by chunk, where the indexes of all of them have it."""
    # An index without records has no columns, since nothing says their types.
    used = [shard for shard, records in enumerate(shards.counts.tolist()) if records]
    if not all(shards.index(shard).has_columns([by]) for shard in used):
        return None
    return _chunks(shards, used, by)


def _chunks(shards: Shards, used: Sequence[int], by: str) -> Iterator[Any]:
    for shard in used:
        index = shards.index(shard)
        for number in range(-(-len(index) // CHUNK_RECORDS)):
            if not index.keeps([by]):  # of another index than before
                raise index_mismatch(index.path, f"`{by}` in the index, as before", "an index without it")
            yield index.columns(number, [by]).column(0)


def _coded(arrays: Iterator[Any]) -> Coded:
    """Arrow arrays of classes as codes, numbered by the order of the classes themselves."""
    numbers: dict[Any, int] = {}
    codes: list[npt.NDArray[np.int32]] = []
    lengths: list[Ids] = []
    for array in arrays:
        values = array
        if pa.types.is_nested(array.type):
            counted = pc.fill_null(pc.list_value_length(array), 0)
            lengths.append(counted.to_numpy(zero_copy_only=False).astype(np.int64))
            values = array.flatten()
        encoded = values.dictionary_encode()
        # One more place, which a code of -1 leads to.
        here = np.full(len(encoded.dictionary) + 1, -1, np.int32)
        for place, value in enumerate(encoded.dictionary.to_pylist()):
            here[place] = numbers.setdefault(value, len(numbers))
        codes.append(here[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
    classes = sorted(numbers)
    renumbered = np.full(len(classes) + 1, -1, np.int32)
    for place, value in enumerate(classes):
        renumbered[numbers[value]] = place
    joined = renumbered[np.concatenate(codes)] if codes else np.zeros(0, np.int32)
    if not lengths:
        return Coded(tuple(classes), joined)
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return Coded(tuple(classes), joined, offsets)


def _checked_feature(schema: LazySchema, by: object) -> Feature:
    declared = schema.get()
    if not isinstance(by, str):
        raise _refused(repr(by)[:60], "the name of a column", type(by).__name__)
    feature: Feature = declared[by]
    whole = isinstance(feature, (Label, Int64, Bytes, Text)) and by in declared.context
    if not whole or len(feature.shape) > 1 or len(feature.record_keys(by)) > 1:
        shape = f" of shape {feature.shape}" if feature.shape else ""
        where = "" if by in declared.context else " in each step"
        found = f"{type(feature).__name__}{shape}{where}"
        raise _refused(f"`{by}`", "a Label, Int64, Bytes or Text of one value, or of a list of them", found)
    return feature


def _refused(what: str, expected: str, found: str) -> RekordError:
    return error(
        "U665",
        f"records cannot be told apart by {what}",
        expected=expected,
        found=found,
        do='by="label", or another column of whole numbers, bytes or texts',
    )


def _expected(feature: Feature) -> str:
    return (
        f"a class from 0 to {feature.count - 1}" if isinstance(feature, Label) else "a value in each record"
    )
