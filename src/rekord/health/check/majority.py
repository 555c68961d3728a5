"""Records that differ from most others, for checks without a schema."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from rekord import _core
from rekord._core import ImageFormat
from rekord.errors import closest_match
from rekord.health.check.images import MASK_KEY, BoxKeys, ImageKey
from rekord.health.check.rule import (
    LIST_NAMES,
    MIN_EVIDENCE_RECORDS,
    Cells,
    CheckRule,
    DeferredFindings,
    RowMask,
    find_records_with_key,
    format_key,
)
from rekord.health.finding import Finding, Severity
from rekord.health.key_columns import KeyColumn, KeyedBatch
from rekord.report.formatting import format_count
from rekord.schema.base import ListKind
from rekord.schema.features import BOX_SIDES

MAJORITY_SHARE = 0.95

_SIMILAR_SHARE = 0.5
_MAX_KEYS = 10_000
_MAX_COUNTS = 64
_MAX_INSPECTED = 64
_MAX_INSPECTED_PER_BATCH = 16
_HEAD_BYTES = 64
_NUMBER_PATTERN = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|\d+")

KeyPath = tuple[bool, str]
"""Whether the key is one of the steps, and the key."""


@dataclass(slots=True)
class KeyStatistics:
    """Statistics of one key. `rows` are records or steps; `counts` are their numbers of values."""

    present: int = 0  # records
    rows: int = 0
    kinds: Counter[ListKind] = field(default_factory=Counter)
    counts: Counter[int] = field(default_factory=Counter)
    inspected: int = 0
    images: int = 0
    empty: int = 0

    @property
    def typical_count(self) -> int | None:
        """The number of values in nearly all rows."""
        if not self.counts:
            return None
        count, rows = self.counts.most_common(1)[0]
        return count if rows >= MAJORITY_SHARE * self.rows else None

    def is_rare(self, records: int) -> bool:
        """Whether so few records have the key that its name may be a typo."""
        few = (1 - MAJORITY_SHARE) * records if records >= MIN_EVIDENCE_RECORDS else records / 2
        return self.present <= few

    @property
    def is_mostly_images(self) -> bool:
        """Whether most of the non-empty values start like images."""
        return self.images * 2 > self.inspected - self.empty


@dataclass(slots=True)
class FileSetStatistics:
    """Statistics of files whose names differ only in numbers."""

    records: int = 0
    keys: dict[KeyPath, KeyStatistics] = field(default_factory=dict)
    images: tuple[ImageKey, ...] | None = None
    boxes: tuple[BoxKeys, ...] | None = None

    def add(self, batch: KeyedBatch) -> None:
        """Add these records."""
        self.records += len(batch)
        for step, key in list_key_paths(batch):
            cells = Cells.of(batch, key, step=step)
            assert cells is not None
            if (step, key) in self.keys or len(self.keys) < _MAX_KEYS:
                seen = self.keys.setdefault((step, key), KeyStatistics())
                _update_key_statistics(seen, batch, key, cells, step=step)

    def is_common(self, place: KeyPath) -> bool:
        """Whether nearly all records have a key."""
        seen = self.keys.get(place)
        return seen is not None and seen.present >= MAJORITY_SHARE * self.records

    @property
    def has_missing_keys(self) -> bool:
        """Whether these files omit keys for missing values."""
        return any(not self.is_common(place) and not seen.is_rare(self.records) for place, seen in self.keys.items())


class RecordPatterns:
    """Patterns in a sample of the records of each set of files."""

    def __init__(self) -> None:
        self._sets: dict[str, FileSetStatistics] = {}
        self._kinds: dict[str, dict[KeyPath, ListKind]] = {}
        self._latest: tuple[str, FileSetStatistics] | None = None  # a set that the sample lacks

    def add(self, batch: KeyedBatch) -> None:
        """Add these records to the sample."""
        self._sets.setdefault(infer_file_set(batch.path), FileSetStatistics()).add(batch)

    def seen(self, batch: KeyedBatch) -> FileSetStatistics:
        """The statistics of the file set of a batch; without a sample, the batch is the sample."""
        name = infer_file_set(batch.path)
        if name in self._sets:
            return self._sets[name]
        # One at a time: there may be as many sets as files.
        if self._latest is None or self._latest[0] != name:
            self._kinds.pop(self._latest[0] if self._latest is not None else name, None)
            self._latest = name, FileSetStatistics()
            self._latest[1].add(batch)
        return self._latest[1]

    def kinds(self, batch: KeyedBatch) -> Mapping[KeyPath, ListKind]:
        """The kind most records have under each key, in the file set of a batch and in similar ones."""
        own, name = self.seen(batch), infer_file_set(batch.path)
        if name not in self._kinds:
            others = [seen for seen in self._sets.values() if seen is not own]
            self._kinds[name] = _find_common_kinds(own.keys, others)
        return self._kinds[name]

    def images(self, batch: KeyedBatch) -> tuple[ImageKey, ...]:
        """The keys that hold images, images before masks."""
        seen = self.seen(batch)
        if seen.images is None:
            seen.images = _find_image_keys(seen)
        return seen.images

    def boxes(self, batch: KeyedBatch) -> tuple[BoxKeys, ...]:
        """The boxes: `…/bbox/xmin` and so on."""
        seen = self.seen(batch)
        if seen.boxes is None:
            seen.boxes = _find_box_keys(seen)
        return seen.boxes


def learn_patterns(batches: Iterable[KeyedBatch]) -> RecordPatterns:
    """The patterns in the records of a sample, by file set."""
    learnt = RecordPatterns()
    for batch in batches:
        learnt.add(batch)
    return learnt


def _find_image_keys(seen: FileSetStatistics) -> tuple[ImageKey, ...]:
    keys = [place for place, one in seen.keys.items() if one.images and one.is_mostly_images]
    images = [key for step, key in keys if not step and key != MASK_KEY]
    found = [
        ImageKey(
            key=key,
            feature=key,
            step=step,
            is_mask=key == MASK_KEY,
            of="image/encoded" if key == MASK_KEY else None,
            alone=sum(other.rpartition("/")[0] == key.rpartition("/")[0] for other in images) <= 1,
            is_empty_allowed=seen.keys[step, key].empty * 3 > seen.keys[step, key].inspected,
        )
        for step, key in keys
    ]
    return tuple(sorted(found, key=lambda one: one.is_mask))


def _find_box_keys(seen: FileSetStatistics) -> tuple[BoxKeys, ...]:
    stems = [(step, key[: -len("/xmin")]) for step, key in seen.keys if key.endswith("bbox/xmin")]
    return tuple(
        BoxKeys(stem=stem, feature=stem, step=step)
        for step, stem in stems
        if all((step, f"{stem}/{side}") in seen.keys for side in BOX_SIDES)
    )


def infer_file_set(path: str) -> str:
    """The name of a file with its numbers masked, which files of one set share."""
    folder, name = os.path.split(path)
    return os.path.join(folder, _NUMBER_PATTERN.sub("#", name))


def _update_key_statistics(seen: KeyStatistics, batch: KeyedBatch, key: str, cells: Cells, *, step: bool) -> None:
    column = cells.column
    if not column.present:
        return
    seen.present += int(np.count_nonzero(find_records_with_key(batch, key, step=step)))
    seen.rows += column.present
    seen.kinds[column.kind] += column.present if has_kind(cells) else 0
    counts, times = np.unique(column.counts[column.mask], return_counts=True)
    for count, rows in zip(counts.tolist(), times.tolist(), strict=True):
        if count in seen.counts or len(seen.counts) < _MAX_COUNTS:
            seen.counts[count] += rows
    if isinstance(column.values, _core.StringColumn):
        _inspect_values(seen, cells)


def has_kind(cells: Cells) -> bool:
    """Whether these cells have a kind: steps without any value have none."""
    return cells.lists is None or len(cells.column.values) > 0


def _inspect_values(seen: KeyStatistics, cells: Cells) -> None:
    """Count the images among the first values."""
    room = min(_MAX_INSPECTED - seen.inspected, _MAX_INSPECTED_PER_BATCH)
    places = np.flatnonzero(cells.column.owners >= 0)[: max(room, 0)]
    for place in places.tolist():
        data = cells.column.values.bytes(place)
        seen.inspected += 1
        seen.empty += not data
        seen.images += _core.inspect_image(data[:_HEAD_BYTES], False).format != ImageFormat.NONE


def _find_common_kinds(
    own: Mapping[KeyPath, KeyStatistics], others: Iterable[FileSetStatistics]
) -> dict[KeyPath, ListKind]:
    """The kind most records have under each key, in one file set and in those with similar keys."""
    counted: dict[KeyPath, Counter[ListKind]] = {place: Counter(seen.kinds) for place, seen in own.items()}
    for other in others:
        both = own.keys() & other.keys.keys()
        if both and len(both) >= _SIMILAR_SHARE * len(own.keys() | other.keys.keys()):
            for place in both:
                counted[place].update(other.keys[place].kinds)
    return {place: kinds.most_common(1)[0][0] for place, kinds in counted.items() if kinds.total()}


def list_key_paths(batch: KeyedBatch) -> list[KeyPath]:
    """All keys of a batch."""
    return [(False, key) for key in batch.context] + [(True, key) for key in batch.steps]


_MAX_COMPARED_KEYS = 1000
_DIGITS = re.compile(r"\d+")


class MajorityRule(CheckRule):
    """Every record resembles most others."""

    def __init__(self, learnt: RecordPatterns) -> None:
        super().__init__()
        self._patterns = learnt
        self._held = DeferredFindings()
        self._path: str | None = None

    def _begin(self, batch: KeyedBatch) -> None:
        self._path = batch.path
        self._seen = self._patterns.seen(batch)
        self._kinds = self._patterns.kinds(batch)
        self._boxes = frozenset(key for boxes in self._patterns.boxes(batch) for key in boxes.keys)
        enough = self._seen.records >= MIN_EVIDENCE_RECORDS
        self._holes = self._seen.has_missing_keys
        self._wanted = [place for place in self._seen.keys if enough and self._seen.is_common(place)]
        self._common = [place for place, one in self._seen.keys.items() if one.present * 2 > self._seen.records]
        self._meant: dict[KeyPath, str | None] = {}
        self._counts = {
            place: seen.typical_count
            for place, seen in self._seen.keys.items()
            if seen.rows >= MIN_EVIDENCE_RECORDS and seen.typical_count is not None
        }
        self._records = 0
        self._having: dict[KeyPath, int] = {}  # records with a key whose number of values is usually the same

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """The findings about these records; those that may turn out normal in this file wait until its end."""
        if batch.path != self._path:
            self._begin(batch)
        self._records += len(batch)
        with np.errstate(all="ignore"):
            doubtful = self._find_suspect_keys(batch)
        replaced = self._replaced(batch)
        for place in self._wanted:
            self._missing(batch, place, replaced.get(place))
        for place in list_key_paths(batch):
            cells = Cells.of(batch, place[1], step=place[0])
            if cells is None or not cells.column.present:
                continue
            usual = self._kinds.get(place)
            if usual is not None and cells.column.kind != usual and has_kind(cells):
                yield from self._find_other_kind(batch, place, cells, usual)
                continue
            self._find_other_count(batch, place, cells)
            if place in doubtful:
                self._find_non_finite(batch, place, cells)

    def end_file(self, path: str) -> Iterator[Finding]:
        """The deferred findings, unless this file shows that they are normal."""
        for finding in self._held.end_file():
            records = self._records
            if finding.code == "H758":
                records = max(self._having.get((step, str(finding.feature)), 0) for step in (False, True))
            # A few are outliers, all of them make an unusual file; anything between is normal for the file.
            if finding.count == records or finding.count <= max(1, (1 - MAJORITY_SHARE) * records):
                yield finding
        yield from super().end_file(path)
        self._path = None

    # Keys.

    def _replaced(self, batch: KeyedBatch) -> dict[KeyPath, RowMask]:
        """Common keys that records have under a similar name instead."""
        out: dict[KeyPath, RowMask] = {}
        for place in list_key_paths(batch):
            step, key = place
            meant = self._find_similar_key(place)
            if meant is None:
                continue
            here = find_records_with_key(batch, key, step=step)
            lacks = here & ~find_records_with_key(batch, meant, step=step)
            out[step, meant] = out.get((step, meant), np.zeros(len(batch), np.bool_)) | lacks
            rows = np.flatnonzero(lacks).tolist()
            self._once.report(batch, rows, "H757", "warning", key, partial(self._describe_typo, place, meant))
        return out

    def _describe_typo(self, place: KeyPath, meant: str, _row: int) -> dict[str, Any]:
        step, key = place
        return {
            "message": f"unusual key {format_key(key)}: did you mean {format_key(meant)}?",
            "expected": f"{format_key(meant)}, as in {self._seen.keys[step, meant].present:,} of "
            f"{format_count(self._seen.records, 'sampled record')}",
            "found": format_key(key),
            "do": f"write the records again with {format_key(meant)}",
        }

    def _find_similar_key(self, place: KeyPath) -> str | None:
        """The common key that a rare one was probably meant to be."""
        if place in self._meant or len(self._meant) >= _MAX_COMPARED_KEYS:
            return self._meant.get(place)
        step, key = place
        seen = self._seen.keys.get(place)
        near = None
        if seen is None or seen.is_rare(self._seen.records):
            # Numbered names are not typos: `x_1` and `x_2`.
            bare = _DIGITS.sub("#", key)
            common = [k for s, k in self._common if s == step and _DIGITS.sub("#", k) != bare]
            near = closest_match(key, common)
        self._meant[place] = near
        return near

    def _missing(self, batch: KeyedBatch, place: KeyPath, replaced: RowMask | None) -> None:
        step, key = place
        found: Any = batch.steps.get(key) if step else batch.context.get(key)
        if found is not None and found.valid is None:
            return
        lacks = ~find_records_with_key(batch, key, step=step)
        wrong = lacks if replaced is None else lacks & ~replaced
        present = self._seen.keys[place].present
        details = {
            "message": f"{format_key(key)} is missing, but nearly all records have it",
            "expected": f"a {'list of steps' if step else 'value'} under {format_key(key)}, as in {present:,} of "
            f"{format_count(self._seen.records, 'sampled record')}",
            "found": "no such key, or a key without a kind",
            "do": "write the records again with it, or declare it optional in a schema",
        }
        severity: Severity = "note" if self._holes else "warning"
        self._held.report(batch, np.flatnonzero(wrong).tolist(), "H756", severity, key, lambda _: details)

    # Kinds, counts and numbers.

    def _find_other_kind(self, batch: KeyedBatch, place: KeyPath, cells: Cells, usual: ListKind) -> Iterator[Finding]:
        column = cells.column
        rows = cells.records(np.flatnonzero(column.mask))
        stored, expected = LIST_NAMES[column.kind], LIST_NAMES[usual]

        def describe(row: int) -> dict[str, Any]:
            return {
                "message": f"{format_key(place[1])} is stored as {stored}, but most records have {expected}",
                "expected": expected,
                "found": stored + _describe_values(column, rows[row], usual),
                "do": "write the records again: TensorFlow parses one kind per key",
            }

        yield from self._repeated.report(batch, rows, "H755", "error", place[1], describe)

    def _find_other_count(self, batch: KeyedBatch, place: KeyPath, cells: Cells) -> None:
        usual = self._counts.get(place)
        if usual is None:
            return
        column = cells.column
        having = column.present
        if place[0]:
            having = int(np.count_nonzero(find_records_with_key(batch, place[1], step=True)))
        self._having[place] = self._having.get(place, 0) + having
        if column.offsets is None and usual == 1:
            return
        rows = cells.records(np.flatnonzero((column.counts != usual) & column.mask))

        def describe(row: int) -> dict[str, Any]:
            return {
                "message": f"{format_key(place[1])} does not have the number of values of nearly all records",
                "expected": f"{usual:,}",
                "found": f"{int(column.counts[rows[row]]):,}",
                "do": "fix the record, or declare a schema with shape=(None,)",
            }

        self._held.report(batch, list(rows), "H758", "warning", place[1], describe)

    def _find_suspect_keys(self, batch: KeyedBatch) -> set[KeyPath]:
        """The keys with a non-finite number, and possibly some whose sum overflows."""
        found = [(False, key, column) for key, column in batch.context.items()]
        found += [(True, key, column.steps) for key, column in batch.steps.items()]
        return {
            (step, key)
            for step, key, column in found
            if column.kind == "float" and key not in self._boxes and not np.isfinite(np.add.reduce(column.values))
        }

    def _find_non_finite(self, batch: KeyedBatch, place: KeyPath, cells: Cells) -> None:
        values = cells.column.values
        first = cells.marked(~np.isfinite(values))
        rows = cells.records(np.fromiter(first, np.int64, len(first)))

        def describe(row: int) -> dict[str, Any]:
            return {
                "message": f"{format_key(place[1])} is NaN or infinite",
                "expected": "finite numbers",
                "found": str(values[first[rows[row]]]),
                "do": "omit unknown values, or fix the computation",
            }

        self._once.report(batch, list(rows), "H751", "warning", place[1], describe)


def _describe_values(column: KeyColumn, row: int, usual: ListKind) -> str:
    """A remark on the values of another kind."""
    values = column.value(row)
    if column.kind == "float" and usual == "int64" and len(values):
        with np.errstate(all="ignore"):
            if bool(np.all(values == np.floor(values))):
                return ", all values integers"
    return ""
