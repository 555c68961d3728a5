"""What one pass over the records collects for the diagnoses."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.codec.values import rewrite_command
from rekord.dataset.read import open_frames
from rekord.errors import RekordError
from rekord.framing.frames import FrameReader
from rekord.health.check.float_integers import CHANNELS, HEIGHTS, WIDTHS
from rekord.health.check.rule import MIN_EVIDENCE_RECORDS, pack_strings
from rekord.health.doctor.diagnosis import AffectedRecord, Diagnosis
from rekord.health.finding import Finding, Severity
from rekord.health.key_columns import KeyColumn, KeyedBatch, get_payload
from rekord.report.formatting import format_count
from rekord.schema import Schema
from rekord.schema.base import Feature, ListKind
from rekord.schema.interop.tf_spec import SequenceSpec, Spec

MAX_AFFECTED_RECORDS = 3
"""Number of affected records that a diagnosis names."""

MAX_DISTINCT = 1024
"""Distinct values counted per key; a key with more does not hold classes."""

MAX_KEYS = 2000
"""Keys inspected; more of them are data, not names."""

WRITTEN_LIKE_THIS = "not damage: the checksums of these records match, so they were written like this"

MAX_LENGTHS = 64
MAX_SAMPLES = 8
_MAX_SAMPLE_BYTES = 4 << 20
_SAMPLE_BUDGET_BYTES = 128 << 20
_MAX_SHORT_TEXT_BYTES = 60

IntArray = npt.NDArray[np.int64]


@dataclass(slots=True)
class SampleBudget:
    """Bytes of samples that may still be kept, over all keys."""

    left_bytes: int = _SAMPLE_BUDGET_BYTES

    def takes(self, n_bytes: int) -> bool:
        """Whether a sample of this size fits; if so, it is counted."""
        if n_bytes > min(_MAX_SAMPLE_BYTES, self.left_bytes):
            return False
        self.left_bytes -= n_bytes
        return True


@dataclass(slots=True)
class RecordTally:
    """Number of affected records and files, and the positions of the first ones."""

    records: int = 0
    files: int = 0
    names: list[str] = field(default_factory=list)  # of the first few files
    places: list[AffectedRecord] = field(default_factory=list)
    _last: str | None = None

    def add(self, batch: KeyedBatch, rows: npt.NDArray[Any]) -> None:
        """Count rows of a batch; `rows` are sorted indices, or a flag per row."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        if not len(rows):
            return
        again = rows[1:] == rows[:-1]
        if again.any():  # several steps of one record
            rows = rows[np.concatenate(([True], ~again))]
        self.records += len(rows)
        if self._last != batch.path:
            self._last = batch.path
            self.files += 1
            if len(self.names) < MAX_AFFECTED_RECORDS:
                self.names.append(batch.path)
        for row in rows[: MAX_AFFECTED_RECORDS - len(self.places)]:
            self.places.append(get_affected_record(batch, row))

    def __bool__(self) -> bool:
        return self.records > 0


@dataclass(slots=True)
class ValueCounter:
    """Counts of distinct values; `counts` is None once there are too many."""

    counts: Counter[Any] | None = field(default_factory=Counter)
    most: int = MAX_DISTINCT

    def add(self, values: npt.NDArray[Any]) -> None:
        if self.counts is None or not len(values):
            return
        found, times = np.unique(values, return_counts=True)
        if len(found) > self.most:
            self.counts = None
            return
        for value, n in zip(found.tolist(), times.tolist(), strict=True):
            self.counts[value] += n
        if len(self.counts) > self.most:
            self.counts = None


@dataclass(slots=True)
class KindProfile:
    """Statistics of the lists of one kind under one key."""

    kind: ListKind
    room: SampleBudget
    tally: RecordTally = field(default_factory=RecordTally)
    lists: int = 0  # one per record, or one per step
    values: int = 0
    counts: ValueCounter = field(default_factory=lambda: ValueCounter(most=MAX_LENGTHS))
    fewest: int = 1 << 62
    most: int = 0
    # numbers
    low: float = float("inf")
    high: float = float("-inf")
    distinct: ValueCounter = field(default_factory=ValueCounter)
    integer_lists: int = 0  # of floats: those with only finite integers
    # byte strings
    total_bytes: int = 0
    lengths: ValueCounter = field(default_factory=lambda: ValueCounter(most=MAX_LENGTHS))
    single_bytes: int = 0  # lists of several values of one byte each
    numeric: bool = True  # every value so far is a number written as text
    texts: Counter[str] | None = field(default_factory=Counter)  # None once there are too many, or other bytes
    text_places: dict[str, AffectedRecord] = field(default_factory=dict)
    samples: list[tuple[AffectedRecord, Any]] = field(default_factory=list)  # bytes, or the numbers of a record

    @property
    def constant(self) -> int | None:
        """The number of values in every record; None if it varies."""
        return self.most if self.fewest == self.most else None

    @property
    def has_enough_records(self) -> bool:
        """Whether there are enough records to draw conclusions from what they have in common."""
        return self.tally.records >= MIN_EVIDENCE_RECORDS

    @property
    def is_all_integers(self) -> bool:
        return self.kind == "float" and self.integer_lists == self.lists and self.values > 0

    def add(self, batch: KeyedBatch, column: KeyColumn, rows: IntArray) -> None:
        """Add a column; `rows` maps its rows to those of the batch."""
        present = np.arange(len(column)) if column.valid is None else np.flatnonzero(column.valid)
        if not len(present):
            return
        self.tally.add(batch, rows[present])
        self.lists += len(present)
        counts = column.counts[present]
        self.counts.add(counts)
        self.fewest = min(self.fewest, int(counts.min()))
        self.most = max(self.most, int(counts.max()))
        self.values += int(counts.sum())
        if self.kind == "bytes":
            self._add_strings(batch, column, present, rows)
        else:
            self._sample_numbers(batch, column, present, rows)
            self._add_numbers(column, present)

    def _add_numbers(self, column: KeyColumn, present: IntArray) -> None:
        values = column.values
        if column.offsets is None and column.valid is not None:
            values = values[present]
        if not len(values):
            return
        if self.kind == "int64":
            self.low = min(self.low, float(values.min()))
            self.high = max(self.high, float(values.max()))
            self.distinct.add(values)
            return
        finite = np.isfinite(values)
        good = values if finite.all() else values[finite]
        if len(good):
            self.low = min(self.low, float(good.min()))
            self.high = max(self.high, float(good.max()))
        with np.errstate(invalid="ignore"):  # a NaN that signals is data too
            whole = finite & (np.rint(values) == values)
        if not whole.any():
            return
        if column.offsets is None:
            self.integer_lists += int(np.count_nonzero(whole))
        else:
            odd = np.zeros(len(column), np.bool_)
            odd[column.owners[~whole]] = True
            self.integer_lists += int(np.count_nonzero(~odd[present] & (column.counts[present] > 0)))
        if whole.all():
            self.distinct.add(values)

    def _sample_numbers(self, batch: KeyedBatch, column: KeyColumn, present: IntArray, rows: IntArray) -> None:
        for row in present[: MAX_SAMPLES - len(self.samples)].tolist():
            value = column.value(row)
            if self.room.takes(value.nbytes):
                # A copy: a view would keep the whole batch.
                self.samples.append((get_affected_record(batch, int(rows[row])), value.copy()))

    def _add_strings(self, batch: KeyedBatch, column: KeyColumn, present: IntArray, rows: IntArray) -> None:
        ends, _ = pack_strings(column.values)
        lengths = np.diff(ends)
        owners = column.owners
        own = np.flatnonzero(owners >= 0)
        lengths = lengths[own]
        if not len(lengths):
            return
        self.total_bytes += int(lengths.sum())
        self.lengths.add(lengths)
        long = np.zeros(len(column), np.bool_)
        long[owners[own[lengths != 1]]] = True
        several = column.counts[present] > 1
        self.single_bytes += int(np.count_nonzero(several & ~long[present]))
        self._inspect_strings(batch, column, own, rows)

    def _inspect_strings(self, batch: KeyedBatch, column: KeyColumn, own: IntArray, rows: IntArray) -> None:
        owners = column.owners
        for at in own[: MAX_SAMPLES - len(self.samples)].tolist():
            value = column.values.bytes(at)
            if self.room.takes(len(value)):
                self.samples.append((get_affected_record(batch, int(rows[owners[at]])), value))
        if self.texts is None and not self.numeric:
            return
        for at in own.tolist():
            value = column.values.bytes(at)
            self.numeric = self.numeric and is_number_text(value)
            self._add_text(batch, int(rows[owners[at]]), value)
            if self.texts is None and not self.numeric:
                return

    def _add_text(self, batch: KeyedBatch, row: int, value: bytes) -> None:
        if self.texts is None:
            return
        text = to_short_text(value)
        if text is None:
            self.texts = None
            return
        if text not in self.texts:
            if len(self.texts) >= MAX_DISTINCT:
                self.texts = None
                return
            self.text_places[text] = get_affected_record(batch, row)
        self.texts[text] += 1


@dataclass(slots=True)
class KeyProfile:
    """Statistics of one key by kind, and the records without a value."""

    key: str
    step: bool = False  # a feature list of SequenceExamples; `records` are steps then
    kinds: dict[ListKind, KindProfile] = field(default_factory=dict)
    holes: RecordTally = field(default_factory=RecordTally)

    @property
    def records(self) -> int:
        return sum(stored.tally.records for stored in self.kinds.values())

    @property
    def main(self) -> KindProfile | None:
        """The kind most records have."""
        return max(self.kinds.values(), key=lambda stored: stored.tally.records, default=None)


class RecordProfile:
    """All keys of all files, batch by batch."""

    def __init__(self) -> None:
        self.keys: dict[str, KeyProfile] = {}
        self.steps: dict[str, KeyProfile] = {}
        self.records = 0
        self.payload_bytes = 0
        self._room = SampleBudget()

    def update(self, batch: KeyedBatch) -> None:
        """Add a batch."""
        rows = np.arange(len(batch))
        for key, column in batch.context.items():
            profile = _get_key_profile(self.keys, key, step=False)
            if profile is None:
                continue
            self._add(profile, batch, column, rows)
            if column.valid is not None:
                profile.holes.add(batch, ~column.valid)
        for key, lists in batch.steps.items():
            profile = _get_key_profile(self.steps, key, step=True)
            if profile is not None:
                self._add(profile, batch, lists.steps, np.repeat(rows, np.diff(lists.offsets)))
        self.records += len(batch)
        self.payload_bytes += int(batch.payload_bytes.sum())

    def _add(self, profile: KeyProfile, batch: KeyedBatch, column: KeyColumn, rows: IntArray) -> None:
        if column.present == 0:
            return
        stored = profile.kinds.get(column.kind)
        if stored is None:
            stored = profile.kinds[column.kind] = KindProfile(column.kind, self._room)
        stored.add(batch, column, rows)


def _get_key_profile(profiles: dict[str, KeyProfile], key: str, *, step: bool) -> KeyProfile | None:
    """The profile of a key, created if needed; None if there are too many keys."""
    if key not in profiles and len(profiles) < MAX_KEYS:
        profiles[key] = KeyProfile(key, step)
    return profiles.get(key)


def get_affected_record(batch: KeyedBatch, row: int) -> AffectedRecord:
    return AffectedRecord(path=batch.path, record=int(batch.records[row]), offset=int(batch.offsets[row]))


def is_number_text(value: bytes) -> bool:
    """Whether bytes are a number written as text, such as `3` or `-0.5`."""
    if not 0 < len(value) <= 32 or not value.isascii() or b"_" in value:
        return False
    try:
        return bool(np.isfinite(float(value)))
    except ValueError:
        return False


def to_short_text(value: bytes) -> str | None:
    """Bytes as a text that could be a name; None if they are too long or not text."""
    if len(value) > _MAX_SHORT_TEXT_BYTES:
        return None
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.replace("\n", "").replace("\t", "").replace("\r", "").isprintable() else None


_MAX_READ_BYTES = 16 << 20
"""How much of a compressed file is read again for one record."""

_MAX_CACHED_RECORDS = 256


class UnsetKeys:
    """Keys without a value, looked up on demand."""

    def __init__(self) -> None:
        self._keys: dict[AffectedRecord, frozenset[str]] = {}

    def names(self, place: AffectedRecord, key: str) -> bool:
        """Whether a record has the key but no list under it; False if unknown."""
        if place not in self._keys:
            if len(self._keys) >= _MAX_CACHED_RECORDS:
                return False
            self._keys[place] = _find_unset_keys(place)
        return key in self._keys[place]


def read_payload(place: AffectedRecord) -> bytes | None:
    """The payload of a record; None if it cannot be read, or only by reading very much."""
    assert place.record is not None
    assert place.offset is not None
    try:
        with open_frames(place.path) as reader:
            started = reader.start_at(offset=place.offset, record=place.record) if place.offset else False
            if not started and place.offset > _MAX_READ_BYTES:
                return None
            # Offsets of compressed files count decompressed bytes: such a file is read from its beginning.
            if started and reader.compression != "none":
                return None
            return _read_frame_payload(reader, place.offset)
    except RekordError:
        return None


def _read_frame_payload(reader: FrameReader, offset: int) -> bytes | None:
    for stretch in reader.iter_verified_frames():
        for index in range(len(stretch.extents)):
            if stretch.offset(index) == offset:
                return get_payload(stretch, index)
    return None


def _find_unset_keys(place: AffectedRecord) -> frozenset[str]:
    payload = read_payload(place)
    example = None if payload is None else _core.decode_example(payload)
    if example is None or isinstance(example, _core.Problem):
        return frozenset()
    return frozenset(key for key, value in example.items() if value is None)


_MAX_RATIOS = 8
_MAX_PIXELS = 1 << 40

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class ImageShape:
    """Height, width and channels (None if no key gives them) of one record."""

    height: int
    width: int
    channels: int | None

    def __str__(self) -> str:
        deep = "" if self.channels is None else f" × {self.channels}"
        return f"{self.height:,} × {self.width:,}{deep}"


@dataclass(slots=True)
class SizedKey:
    """A key whose records also have a height and a width."""

    kind: ListKind
    keys: tuple[str, ...]  # of height, width and, if there is one, channels
    ratios: dict[float, RecordTally] = field(default_factory=dict)  # values or bytes for each pixel and channel
    shapes: list[tuple[AffectedRecord, ImageShape, int]] = field(default_factory=list)  # first few, with sizes
    mismatched: RecordTally = field(default_factory=RecordTally)  # records whose size is not a multiple

    @property
    def has_channels(self) -> bool:
        """Whether a key gives the number of channels."""
        return len(self.keys) == 3


class RawShapeProfile:
    """Keys that may hold pixels: byte strings, and lists of numbers."""

    def __init__(self) -> None:
        self.sized: dict[str, SizedKey] = {}

    def update(self, batch: KeyedBatch) -> None:
        """Compare the sizes in a batch with the heights and widths in it."""
        if not any(key.endswith(HEIGHTS) for key in batch.context):
            return
        for key, column in batch.context.items():
            keys = find_dimension_keys(key, batch.context)
            if keys is None or key in keys:
                continue
            dims = [_get_scalars(batch.context[each]) for each in keys]
            sizes = _get_sizes(column)
            if sizes is None or any(dim is None for dim in dims):
                continue
            known = self.sized.get(key)
            if known is None and len(self.sized) >= MAX_KEYS:
                continue
            if known is None or known.kind != column.kind:
                known = self.sized[key] = SizedKey(column.kind, keys)
            self._compare(known, batch, sizes, [dim for dim in dims if dim is not None])

    @staticmethod
    def _compare(known: SizedKey, batch: KeyedBatch, sizes: Floats, dims: list[Floats]) -> None:
        with np.errstate(all="ignore"):
            pixels = np.prod(dims, axis=0)
            sound = np.all([(dim >= 1) & (dim == np.rint(dim)) for dim in dims], axis=0)
        usable = sound & (pixels < _MAX_PIXELS) & (sizes > 0)
        ratios = np.divide(sizes, pixels, out=np.full(len(batch), -1.0), where=usable)
        whole = usable & (ratios == np.rint(ratios)) & (ratios <= 64)
        for ratio in np.unique(ratios[whole])[:_MAX_RATIOS].tolist():
            if ratio in known.ratios or len(known.ratios) < _MAX_RATIOS:
                known.ratios.setdefault(ratio, RecordTally()).add(batch, whole & (ratios == ratio))
        known.mismatched.add(batch, usable & ~whole)
        for row in np.flatnonzero(usable)[: MAX_SAMPLES - len(known.shapes)].tolist():
            size = [int(dim[row]) for dim in dims]
            shape = ImageShape(size[0], size[1], size[2] if len(size) == 3 else None)
            known.shapes.append((get_affected_record(batch, row), shape, int(sizes[row])))


def find_dimension_keys(key: str, keys: object) -> tuple[str, ...] | None:
    """The keys of the height, the width and, if any, the channels of the image under `key`."""
    assert hasattr(keys, "__contains__")
    stem = key
    while True:
        stem, mark, _ = stem.rpartition("/")
        for prefix in (f"{stem}/",) if mark else ("", "image_", "image/", f"{key}_", f"{key}/", "img_"):
            height = _find_first_key(prefix, HEIGHTS, keys)
            width = _find_first_key(prefix, WIDTHS, keys)
            if height is not None and width is not None:
                channels = _find_first_key(prefix, CHANNELS, keys)
                return (height, width) if channels is None else (height, width, channels)
        if not mark:
            return None


def _find_first_key(prefix: str, names: tuple[str, ...], keys: object) -> str | None:
    return next((f"{prefix}{name}" for name in names if f"{prefix}{name}" in keys), None)  # type: ignore[operator]


def _get_scalars(column: KeyColumn) -> Floats | None:
    """One number per row, 0 if missing; None if the column holds something else."""
    if column.kind == "bytes" or not len(column):
        return None
    if column.offsets is None:
        values = column.values.astype(np.float64)
        return values if column.valid is None else np.where(column.valid, values, 0.0)
    one = column.counts == 1
    values = np.zeros(len(column))
    values[one] = column.values[column.offsets[:-1][one]]
    return np.where(np.isfinite(values), values, 0.0)


def _get_sizes(column: KeyColumn) -> Floats | None:
    """Bytes of the only byte string, or number of values, of each row; 0 without any."""
    if column.kind != "bytes":
        return column.counts.astype(np.float64) if column.offsets is not None else None
    lengths = np.diff(pack_strings(column.values)[0])
    if column.offsets is None:
        return np.where(column.counts == 1, lengths, 0).astype(np.float64)
    sizes = np.zeros(len(column))
    one = column.counts == 1
    sizes[one] = lengths[column.offsets[:-1][one]]
    several = column.counts > 1
    if several.any():
        sizes[several] = column.counts[several]  # one-byte strings are counted, not measured
    return sizes


_MAX_GROUPS = 1000


@dataclass(slots=True)
class FindingGroup:
    """Findings of one code, feature and severity in one file: the first few, and the number of records."""

    path: str
    severity: Severity
    first: list[Finding] = field(default_factory=list)
    records: int = 0

    def add(self, finding: Finding) -> None:
        if finding.record is not None or finding.count > 1:  # else it is about the file
            self.records += finding.count
        if len(self.first) < MAX_AFFECTED_RECORDS:
            self.first.append(finding)


@dataclass(slots=True)
class FileEvidence:
    """The number of records in one file, and the findings about it."""

    path: str
    records: int = 0
    groups: dict[tuple[str, str | None, Severity], FindingGroup] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        where: tuple[str, str | None, Severity] = finding.code, finding.feature, finding.severity
        if where not in self.groups and len(self.groups) >= _MAX_GROUPS:
            where = finding.code, None, finding.severity  # features of a hostile file: reported together
        self.groups.setdefault(where, FindingGroup(self.path, finding.severity)).add(finding)

    def of(self, code: str) -> FindingGroup | None:
        """The findings of a code, for any feature."""
        return next((group for (each, *_), group in self.groups.items() if each == code), None)


@dataclass(slots=True, kw_only=True)
class DoctorCase:
    """The input of the doctor, and everything the pass collected."""

    path: str
    schema: Schema | None = None
    listed: Schema | None = None  # whose column names `rewrite` of this dataset uses
    spec: Spec | SequenceSpec | None = None  # what TensorFlow should parse
    compression: Mapping[str, str] = field(default_factory=dict)  # by file name, from the manifest
    files: list[FileEvidence] = field(default_factory=list)
    companion_files: list[FileEvidence] = field(default_factory=list)  # not read as records
    profile: RecordProfile = field(default_factory=RecordProfile)
    raw: RawShapeProfile = field(default_factory=RawShapeProfile)
    unset: UnsetKeys = field(default_factory=UnsetKeys)
    _by_path: dict[str, FileEvidence] = field(default_factory=dict)

    def get_file_evidence(self, path: str | None) -> FileEvidence:
        """The evidence of a record file, or of something else: a set of shards, a manifest."""
        if not self._by_path:
            self._by_path = {facts.path: facts for facts in self.files}
        where = path or self.path
        facts = self._by_path.get(where)
        if facts is None:
            facts = self._by_path[where] = FileEvidence(where)
            self.companion_files.append(facts)
        return facts

    def add(self, finding: Finding) -> None:
        """File a finding under its path."""
        self.get_file_evidence(finding.path).add(finding)

    def features(self) -> Iterator[tuple[str, Feature]]:
        """The columns of the schema by their first record key."""
        if self.schema is not None:
            for column, feature in self.schema.context.items():
                yield feature.record_keys(column)[0], feature

    def keys_of_columns(self) -> dict[str, tuple[str, ...]]:
        """The record keys of each column of the schema."""
        features = {} if self.schema is None else self.schema.features
        return {column: feature.record_keys(column) for column, feature in features.items()}

    def declared_kinds(self) -> dict[str, ListKind]:
        """The kind of each record key that the schema declares."""
        return {
            key: kind
            for column, feature in ({} if self.schema is None else self.schema.features).items()
            for key, kind in zip(feature.record_keys(column), feature.record_kinds(), strict=True)
        }

    def format_rewrite_command(self, option: str, key: str, to: str) -> str | None:
        """The command that changes a key in a copy of the files; None if `rewrite` has no column for it."""
        if self.listed is None:
            return rewrite_command(option, key, to)
        for column, feature in self.listed.context.items():
            # A declared key stays the same when its column is renamed.
            if feature.record_keys(column) == (key,) and (option != "rename" or feature.key is None):
                return rewrite_command(option, column, to)
        return None

    def groups(self, code: str) -> list[FindingGroup]:
        """The findings of a code, one group per file."""
        return [group for facts in self.files for (each, *_), group in facts.groups.items() if each == code]

    def find_groups(self, code: str, key: str) -> list[FindingGroup]:
        """The findings of a code about a key or its column."""
        names = {key, *(column for column, keys in self.keys_of_columns().items() if key in keys)}
        return [group for group in self.groups(code) if any(each.feature in names for each in group.first)]

    def place(self, tally: RecordTally) -> str:
        """The path of the only file in a tally, or the path given to the doctor."""
        return tally.names[0] if tally.files == 1 else self.path

    def describe_files(self, tally: RecordTally, *, agree: bool = True) -> str | None:
        """The affected records and files, in words; `agree`: the other files are consistent."""
        total = len(self.files)
        if not tally.records:
            return f"{tally.files:,} of {total:,} files" if total > 1 else None
        if total == 1:
            return f"{format_count(tally.records, 'record')} of {max(self.files[0].records, tally.records):,}"
        if tally.files == 1:
            name = os.path.basename(tally.names[0])
            others = f"; the other {total - 1:,} are consistent" if agree and total > 2 else ""
            return f"{format_count(tally.records, 'record')}, in {name} only{others}"
        return f"{format_count(tally.records, 'record')}, in {tally.files:,} of {total:,} files"

    def diagnosis(
        self,
        code: str,
        severity: Severity,
        tally: RecordTally,
        *,
        title: str,
        evidence: Iterable[str | None],
        do: str,
        feature: str | None = None,
        ruled_out: Iterable[str | None] = (),
        likely: str | None = None,
        tensorflow_error: str | None = None,
        agree: bool = False,
    ) -> Diagnosis:
        """A diagnosis of the records in a tally."""
        return Diagnosis(
            code=code,
            severity=severity,
            title=title,
            path=self.place(tally),
            files=tally.files,
            feature=feature,
            records_affected=tally.records,
            records=tuple(tally.places),
            evidence=tuple(line for line in (self.describe_files(tally, agree=agree), *evidence) if line),
            ruled_out=tuple(line for line in ruled_out if line),
            likely=likely,
            do=do,
            tensorflow_error=tensorflow_error,
        )

    def stored_diagnosis(
        self,
        code: str,
        key: str,
        stored: KindProfile,
        tensorflow_error: str | None,
        *,
        severity: Severity = "warning",
        **details: Any,
    ) -> Diagnosis:
        """A diagnosis of what is stored under a key; an error if TensorFlow will raise one."""
        severity = severity if tensorflow_error is None else "error"
        details |= {"feature": key, "tensorflow_error": tensorflow_error, "agree": True}
        return self.diagnosis(code, severity, stored.tally, **details)


def tally_finding_groups(groups: Sequence[FindingGroup]) -> RecordTally:
    """The tally of some groups of findings."""
    tally = RecordTally(records=sum(group.records for group in groups), files=len({group.path for group in groups}))
    tally.names = list(dict.fromkeys(group.path for group in groups))[:MAX_AFFECTED_RECORDS]
    places = [
        AffectedRecord(path=finding.path or group.path, record=finding.record, offset=finding.offset)
        for group in groups
        for finding in group.first
    ]
    tally.places = places[:MAX_AFFECTED_RECORDS]
    return tally
