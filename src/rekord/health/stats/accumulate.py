"""The single pass: the statistics of every feature, accumulated while records are read, and a sample of records.

The results of several files can be merged, so files may be read in any order and in any process.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.codec.preview import is_image
from rekord.health.finding import Finding, Report
from rekord.health.key_columns import KeyColumn, KeyedBatch, StepColumn
from rekord.health.scan import scan_files
from rekord.health.stats.numbers import CountStatistics, MemoryBudget, NumberStatistics, mix_hash_bits
from rekord.health.stats.strings import StringStatistics, format_string
from rekord.schema import Boxes, Label, Mask, Schema, of_type
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


MAX_SAMPLES = 60
MAX_SAMPLES_PER_CLASS = 5
MAX_SAMPLED_ROWS = 6
"""Samples of records without images, which are shown as rows of a table."""

_MAX_RECORD_BYTES = 8 << 20
_MAX_TOTAL_BYTES = 64 << 20
_MAX_KEYS = 64
_FIRST_RECORDS = 8
_LABEL_NAMES = ("class/text", "label", "class", "category", "target")
_MASK_NAMES = ("segmentation/class/encoded", "mask", "segmentation")
_BOX_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True, eq=False)
class RecordSample:
    """One record: an array or a list of byte strings per key, None where it is missing."""

    split: str
    path: str
    record: int
    label: Hashable | None  # of its class, if it has one
    values: Mapping[str, Any]
    payload_bytes: int
    priority: int

    @cached_property
    def images(self) -> dict[str, bytes]:
        """The encoded images by key."""
        return {key: value[0] for key, value in self.values.items() if _is_single_image(value)}


class RecordSampler:
    """Keeps the records with the lowest priorities, which are hashes of their positions: up to 5 of each class.

    Records without images are rows of a table: a few of them are enough, of any class.
    """

    def __init__(self, schema: Schema | None) -> None:
        self._label_keys = [
            key
            for column, label in of_type({} if schema is None else schema.context, Label).items()
            for key in label.record_keys(column)[:1]
            if label.shape == ()
        ]
        self._seen = 0
        self._bytes = 0
        self._has_many_classes = False
        self._groups: dict[Hashable | None, list[RecordSample]] = {}
        self._has_images: bool | None = None

    @property
    def samples(self) -> list[RecordSample]:
        """The samples in the order of their classes, and within a class in the order of the records."""
        groups = sorted(self._groups.items(), key=lambda group: _class_sort_key(group[0]))
        return [sample for _, group in groups for sample in group]

    def add(self, split: str, batch: KeyedBatch) -> None:
        """Consider the records of a batch."""
        priorities = _hash_positions(self._seen, len(batch))
        self._seen += len(batch)
        if self._has_images is None:
            first = range(min(len(batch), _FIRST_RECORDS))  # some may be corrupt
            columns = [column for column in batch.context.values() if column.kind == "bytes"]
            self._has_images = any(_is_single_image(column.value(row)) for column in columns for row in first)
        labels = self._read_labels(batch) if self._has_images else None
        if labels is None:
            # Most are not among the lowest: found without visiting each of them.
            group = self._groups.get(None, [])
            worst = group[-1].priority if len(group) >= self._quota else None
            rows = range(len(batch)) if worst is None else np.flatnonzero(priorities < worst).tolist()
            if worst is None and len(batch) > self._quota:
                rows = np.argpartition(priorities, self._quota)[: self._quota].tolist()
            for row in rows:
                self._offer(split, batch, row, None, int(priorities[row]))
            return
        for row, (label, priority) in enumerate(zip(labels, priorities.tolist(), strict=True)):
            self._offer(split, batch, row, label, priority)

    @property
    def _quota(self) -> int:
        if not self._has_images:
            return MAX_SAMPLED_ROWS
        if self._groups.keys() <= {None}:
            return MAX_SAMPLES // 2
        return 1 if self._has_many_classes else max(1, min(MAX_SAMPLES_PER_CLASS, MAX_SAMPLES // len(self._groups)))

    def _offer(self, split: str, batch: KeyedBatch, row: int, label: Hashable | None, priority: int) -> None:
        size = int(batch.payload_bytes[row])
        group = self._groups.get(label, [])
        if size > _MAX_RECORD_BYTES or (len(group) >= self._quota and priority >= group[-1].priority):
            return
        if not group and len(self._groups) >= MAX_SAMPLES:
            self._has_many_classes = True
            last = max(self._groups, key=lambda one: self._groups[one][0].priority)
            if priority >= self._groups[last][0].priority:
                return
            self._remove(last, 0)
        sample = RecordSample(
            split, batch.path, int(batch.records[row]), label, dict(_iter_values(batch, row)), size, priority
        )
        self._groups[label] = sorted([*group, sample], key=lambda one: one.priority)
        self._bytes += size
        quota = self._quota
        for each in list(self._groups) if not group else [label]:
            self._remove(each, quota)
        while self._bytes > _MAX_TOTAL_BYTES:
            longest = max(self._groups, key=lambda one: (len(self._groups[one]), self._groups[one][-1].priority))
            self._remove(longest, len(self._groups[longest]) - 1)

    def _remove(self, label: Hashable | None, kept: int) -> None:
        """Keep the first samples of a class."""
        group = self._groups[label]
        self._bytes -= sum(one.payload_bytes for one in group[kept:])
        if kept:
            self._groups[label] = group[:kept]
        else:
            del self._groups[label]

    def _read_labels(self, batch: KeyedBatch) -> list[Hashable | None] | None:
        keys = self._label_keys or [
            key for name in _LABEL_NAMES for key in batch.context if f"/{key}".endswith(f"/{name}")
        ]
        column = next((batch.context[key] for key in keys if key in batch.context), None)
        if column is None or column.kind == "float" or column.offsets is not None:
            return None
        values = column.values.list_bytes(0, len(batch)) if column.kind == "bytes" else column.values.tolist()
        return [value if there else None for value, there in zip(values, column.mask.tolist(), strict=True)]


@dataclass(frozen=True)
class SampleKeys:
    """Which keys hold masks and boxes, and the names of classes; from the schema, or from well-known names."""

    masks: Mapping[str, Mask | None]
    boxes: tuple[str, ...]  # the keys of xmin, ymin, xmax, ymax
    box_names: tuple[str, ...]  # keys with the class of each box, the most readable first
    class_names: tuple[str, ...] | None

    @classmethod
    def find(cls, schema: Schema | None, samples: list[RecordSample]) -> SampleKeys:
        """The keys of some samples."""
        columns = {} if schema is None else schema.context
        labels = of_type(columns, Label)
        names = next((label.names for label in labels.values() if label.shape == ()), None)
        masks: dict[str, Mask | None] = {
            mask.record_keys(column)[0]: mask for column, mask in of_type(columns, Mask).items()
        }
        boxes = [feature.record_keys(column) for column, feature in of_type(columns, Boxes).items()]
        keys = list(dict.fromkeys(key for sample in samples for key in sample.values))
        if schema is None:
            masks = {key: None for key in keys if f"/{key}".endswith(tuple(f"/{name}" for name in _MASK_NAMES))}
        if not boxes:
            stems = [key.removesuffix("xmin") for key in keys if key.endswith("bbox/xmin")]
            boxes = [tuple(f"{stem}{side}" for side in _BOX_SIDES) for stem in stems]
        stem = boxes[0][0].rpartition("bbox/")[0] if boxes else ""
        box_names = tuple(f"{stem}class/{name}" for name in ("text", "label")) if boxes else ()
        return cls(masks, boxes[0] if boxes else (), box_names, names)

    def name_class(self, label: Hashable | None) -> str:
        """The name of a class, as in the statistics."""
        if label is None:
            return "no class"
        if isinstance(label, bytes):
            return format_string(label)
        names = self.class_names
        return (
            names[label] if names is not None and isinstance(label, int) and 0 <= label < len(names) else str(label)
        )

    def read_boxes(self, sample: RecordSample) -> list[tuple[float, float, float, float, str]]:
        """The boxes of a record in fractions, with the names of their classes."""
        stored = [sample.values.get(key) for key in self.boxes]
        sides = [side for side in stored if side is not None]
        if len(sides) < len(_BOX_SIDES) or len({len(side) for side in sides}) != 1:
            return []
        values = next((sample.values[key] for key in self.box_names if sample.values.get(key) is not None), ())
        names = [format_string(one) if isinstance(one, bytes) else str(int(one)) for one in values]
        names += [""] * (len(sides[0]) - len(names))
        found = zip(*[[float(one) for one in side] for side in sides], names, strict=False)
        return [box for box in found if np.isfinite(box[:4]).all()]


def _iter_values(batch: KeyedBatch, row: int) -> Iterator[tuple[str, Any]]:
    # Byte strings first: an image may follow after very many numbers.
    ordered = sorted(batch.context.items(), key=lambda item: item[1].kind != "bytes")
    kept = {key for key, _ in islice(ordered, _MAX_KEYS)}
    for key, column in batch.context.items():
        if key in kept:
            value = column.value(row)
            # A slice would keep the arrays of the whole batch in memory.
            yield key, value.copy() if isinstance(value, np.ndarray) else value


def _is_single_image(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1 and is_image(value[0])


def _class_sort_key(label: Hashable | None) -> tuple[int, Any]:
    return (2, 0) if label is None else (0, label) if isinstance(label, int) else (1, label)


def _hash_positions(first: int, count: int) -> npt.NDArray[np.uint64]:
    """Well mixed numbers of consecutive positions (SplitMix64)."""
    positions = np.arange(first, first + count, dtype=np.uint64) + np.uint64(1)
    return mix_hash_bits(positions * np.uint64(0x9E3779B97F4A7C15))
