"""The single pass: the statistics of every feature, accumulated while records are read.

The results of several files can be merged, so files may be read in any order and in any process.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.health.finding import Finding, Report
from rekord.health.key_columns import KeyColumn, KeyedBatch, StepColumn
from rekord.health.scan import scan_files
from rekord.health.stats.numbers import CountStatistics, MemoryBudget, NumberStatistics
from rekord.health.stats.strings import StringStatistics
from rekord.schema.base import ListKind

MAX_FEATURES = 10_000
"""Maximum number of keys with statistics; records whose keys are data, not names, may have any number of them."""

_MAX_NAMED_FEATURES = 10_000  # of the omitted keys
_PENDING_ROWS = 1 << 16
_PENDING_BYTES = 32 << 20
_PENDING_COLUMNS = 1 << 15
"""Batches are collected up to this many rows, bytes or columns: a NumPy call costs as much as many values."""

_IDLE_BYTES = 64 << 20
_DTYPES: dict[ListKind, npt.DTypeLike] = {"int64": np.int64, "float": np.float32}

FeaturePath: TypeAlias = "tuple[bool, str]"
"""Whether a key belongs to the steps of a sequence, and the key."""


class FeatureAccumulator:
    """The statistics of one key."""

    __slots__ = ("kindless", "kinds", "numbers", "per_row", "steps", "strings")

    def __init__(self, room: MemoryBudget) -> None:
        self.kinds: Counter[ListKind] = Counter()  # records, by the kind of the key in them
        self.kindless = 0  # records with a list of steps, none of which has a value
        self.numbers: dict[ListKind, NumberStatistics] = {}
        self.strings: StringStatistics | None = None
        self.per_row = CountStatistics(room)  # values per record that has the key; per step in a sequence
        self.steps: CountStatistics | None = None  # steps per record that has the list

    @property
    def present(self) -> int:
        """The number of records with the key."""
        return sum(self.kinds.values()) + self.kindless

    @property
    def kind(self) -> ListKind:
        """The kind of the key in most records."""
        return max(sorted(self.kinds), key=lambda kind: self.kinds[kind])

    def add(self, kind: ListKind, columns: Sequence[KeyColumn], room: MemoryBudget, pool: _core.Pool) -> None:
        """Add the values of some rows."""
        single = sum(column.present for column in columns if column.offsets is None)
        self.per_row.add_repeated(1, single)
        several = [column for column in columns if column.offsets is not None]
        if several:
            counts = [column.counts if column.valid is None else column.counts[column.valid] for column in several]
            self.per_row.add(np.concatenate(counts))
        if kind == "bytes":
            if self.strings is None:
                self.strings = StringStatistics(room)
            self.strings.add([(column.values, _select_valid(column)) for column in columns], room, pool)
            return
        if (numbers := self.numbers.get(kind)) is None:
            numbers = self.numbers[kind] = NumberStatistics(_DTYPES[kind], room)
        values = [
            column.values if (which := _select_valid(column)) is None else column.values[which] for column in columns
        ]
        numbers.add(values[0] if len(values) == 1 else np.concatenate(values), room)

    def merge(self, other: FeatureAccumulator, room: MemoryBudget) -> None:
        """Merge another one into this."""
        self.kinds.update(other.kinds)
        self.kindless += other.kindless
        self.per_row.merge(other.per_row)
        for kind, numbers in other.numbers.items():
            self.numbers.setdefault(kind, NumberStatistics(_DTYPES[kind], room)).merge(numbers, room)
        if other.strings is not None:
            if self.strings is None:
                self.strings = StringStatistics(room)
            self.strings.merge(other.strings, room)
        if other.steps is not None:
            if self.steps is None:
                self.steps = CountStatistics(room)
            self.steps.merge(other.steps)


class Accumulator:
    """The statistics of some records: those of a file, a split, or a dataset."""

    def __init__(self) -> None:
        self.records = 0
        self.payload_bytes = 0
        self.sequences = 0
        self.features: dict[FeaturePath, FeatureAccumulator] = {}
        self.left_out: set[str] = set()  # keys for which there was no room
        self._room = MemoryBudget()
        self._pool = _core.Pool(_IDLE_BYTES)
        self._pending: list[KeyedBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._pending_columns = 0

    def add(self, batch: KeyedBatch) -> None:
        """Add some records, now or together with later ones; `flush` after the last."""
        rows, payload_bytes = len(batch), int(batch.payload_bytes.sum())
        self.records += rows
        self.payload_bytes += payload_bytes
        self.sequences += rows if batch.sequence else 0
        self._pending.append(batch)
        self._pending_rows += rows
        self._pending_bytes += payload_bytes
        self._pending_columns += len(batch.context) + len(batch.steps)
        if (
            self._pending_rows >= _PENDING_ROWS
            or self._pending_bytes >= _PENDING_BYTES
            or self._pending_columns >= _PENDING_COLUMNS
        ):
            self.flush()

    def flush(self) -> None:
        """Add the records that are still waiting."""
        pending, self._pending = self._pending, []
        self._pending_rows = self._pending_bytes = self._pending_columns = 0
        columns: defaultdict[tuple[FeaturePath, ListKind], list[KeyColumn]] = defaultdict(list)
        steps: defaultdict[tuple[FeaturePath, ListKind], list[StepColumn]] = defaultdict(list)
        for batch in pending:
            for key, column in batch.context.items():
                columns[(False, key), column.kind].append(column)
            for key, lists in batch.steps.items():
                steps[(True, key), lists.steps.kind].append(lists)
        for (place, kind), found in columns.items():
            present = sum(column.present for column in found)
            feature = self._feature(place) if present else None
            if feature is not None:
                feature.kinds[kind] += present
                feature.add(kind, found, self._room, self._pool)
        for (place, kind), lists_found in steps.items():
            self._add_steps(place, kind, lists_found)

    def _add_steps(self, place: FeaturePath, kind: ListKind, found: list[StepColumn]) -> None:
        numbers = [np.diff(lists.offsets)[_none_if_all_valid(lists.valid)] for lists in found]
        present = sum(map(len, numbers))
        feature = self._feature(place) if present else None
        if feature is None:
            return
        if feature.steps is None:
            feature.steps = CountStatistics(self._room)
        feature.steps.add(np.concatenate(numbers))
        known = sum(map(_count_records_with_kind, found))
        feature.kindless += present - known
        if known:
            feature.kinds[kind] += known
            feature.add(kind, [lists.steps for lists in found], self._room, self._pool)

    def _feature(self, place: FeaturePath) -> FeatureAccumulator | None:
        """The statistics of a key; None if there is no room for another one."""
        feature = self.features.get(place)
        if feature is not None:
            return feature
        if len(self.features) >= MAX_FEATURES:
            if len(self.left_out) < _MAX_NAMED_FEATURES:
                self.left_out.add(place[1])
            return None
        self._room.features += 1
        feature = self.features[place] = FeatureAccumulator(self._room)
        return feature

    def merge(self, other: Accumulator) -> None:
        """Merge another one into this."""
        self.flush()
        other.flush()
        self.records += other.records
        self.payload_bytes += other.payload_bytes
        self.sequences += other.sequences
        self.left_out |= other.left_out
        for place, theirs in other.features.items():
            ours = self._feature(place)
            if ours is not None:
                ours.merge(theirs, self._room)


def accumulate(
    paths: Sequence[str], report: Report, into: Accumulator, sample: Callable[[KeyedBatch], None] | None = None
) -> Iterator[Finding]:
    """Read files to their ends; yields a finding for each damage. `sample` is called with each batch."""
    with closing(scan_files(paths, report)) as items:
        for item in items:
            if isinstance(item, KeyedBatch):
                if sample is not None:
                    sample(item)
                into.add(item)
            elif isinstance(item, Finding):
                yield item
            del item  # the next batch may reuse its memory
    into.flush()


def _select_valid(column: KeyColumn) -> Any:
    """The valid positions among the values; None for all."""
    return column.valid if column.offsets is None else None


def _none_if_all_valid(valid: Any) -> Any:
    return slice(None) if valid is None else valid


def _count_records_with_kind(lists: StepColumn) -> int:
    """The number of records with a value in some step: the kind of a column without any is a guess."""
    before = np.concatenate([[0], np.cumsum(lists.steps.counts > 0)])
    has = before[lists.offsets[1:]] > before[lists.offsets[:-1]]
    return int(np.count_nonzero(has[_none_if_all_valid(lists.valid)]))
