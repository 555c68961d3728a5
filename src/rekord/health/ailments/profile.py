"""What the records hold under each key, gathered in one pass and small whatever the size of the data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.health.diagnosis import Place
from rekord.health.keyed import KeyColumn, KeyedBatch
from rekord.health.rule import ENOUGH_RECORDS
from rekord.schema.base import Kind

MOST_PLACES = 3
"""So many affected records are named."""

MOST_DISTINCT = 1024
"""So many different values of a key are kept apart; beyond that nobody meant classes."""

MOST_KEYS = 2000
"""So many keys are looked at; where there are more, they are data and not names."""

MOST_LENGTHS = 64
MOST_SAMPLES = 8
_SAMPLE_BYTES = 4 << 20
_ALL_SAMPLES_BYTES = 128 << 20
_SHORT_BYTES = 60

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Room:
    """How many bytes of samples may still be kept, for all keys together."""

    left_bytes: int = _ALL_SAMPLES_BYTES

    def takes(self, n_bytes: int) -> bool:
        """Whether a sample of this size may be kept; it is counted then."""
        if n_bytes > min(_SAMPLE_BYTES, self.left_bytes):
            return False
        self.left_bytes -= n_bytes
        return True


@dataclass(slots=True)
class Tally:
    """How many records something is true of, in which files, and where the first of them stand."""

    records: int = 0
    files: int = 0
    names: list[str] = field(default_factory=list)  # of the first few files
    places: list[Place] = field(default_factory=list)
    _last: str | None = None

    def add(self, batch: KeyedBatch, rows: npt.NDArray[Any]) -> None:
        """Count the rows of a batch; `rows` are their indices in order, or a flag for each row."""
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
            if len(self.names) < MOST_PLACES:
                self.names.append(batch.path)
        for row in rows[: MOST_PLACES - len(self.places)]:
            self.places.append(
                Place(path=batch.path, record=int(batch.records[row]), offset=int(batch.offsets[row]))
            )

    def __bool__(self) -> bool:
        return self.records > 0


@dataclass(slots=True)
class Distinct:
    """How often each of a few values occurs; `counts` is None once there are too many of them."""

    counts: Counter[Any] | None = field(default_factory=Counter)
    most: int = MOST_DISTINCT

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
class Stored:
    """What records hold under one key as lists of one kind."""

    kind: Kind
    room: Room
    tally: Tally = field(default_factory=Tally)
    lists: int = 0  # one a record, or one a step
    values: int = 0
    counts: Distinct = field(default_factory=lambda: Distinct(most=MOST_LENGTHS))
    fewest: int = 1 << 62
    most: int = 0
    # numbers
    low: float = float("inf")
    high: float = float("-inf")
    distinct: Distinct = field(default_factory=Distinct)
    whole_lists: int = 0  # of floats: those that have only finite whole numbers
    # byte strings
    total_bytes: int = 0
    lengths: Distinct = field(default_factory=lambda: Distinct(most=MOST_LENGTHS))
    single_bytes: int = 0  # lists of several values of one byte each
    numeric: bool = True  # every value so far is a number written as text
    texts: Counter[str] | None = field(
        default_factory=Counter
    )  # None once there are too many, or other bytes
    text_places: dict[str, Place] = field(default_factory=dict)
    samples: list[tuple[Place, Any]] = field(default_factory=list)  # bytes, or the numbers of a record

    @property
    def constant(self) -> int | None:
        """The number of values that every record has; None where it varies."""
        return self.most if self.fewest == self.most else None

    @property
    def is_enough(self) -> bool:
        """Whether there are enough records to conclude something from what all of them have in common."""
        return self.tally.records >= ENOUGH_RECORDS

    @property
    def all_whole(self) -> bool:
        return self.kind == "float" and self.whole_lists == self.lists and self.values > 0

    def add(self, batch: KeyedBatch, column: KeyColumn, rows: Ints) -> None:
        """See a column; `rows` gives the batch's row of each of the column's rows."""
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

    def _add_numbers(self, column: KeyColumn, present: Ints) -> None:
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
            self.whole_lists += int(np.count_nonzero(whole))
        else:
            odd = np.zeros(len(column), np.bool_)
            odd[column.owners[~whole]] = True
            self.whole_lists += int(np.count_nonzero(~odd[present] & (column.counts[present] > 0)))
        if whole.all():
            self.distinct.add(values)

    def _sample_numbers(self, batch: KeyedBatch, column: KeyColumn, present: Ints, rows: Ints) -> None:
        for row in present[: MOST_SAMPLES - len(self.samples)].tolist():
            value = column.value(row)
            if self.room.takes(value.nbytes):
                # A copy: a view would keep the whole batch.
                self.samples.append((place_of(batch, int(rows[row])), value.copy()))

    def _add_strings(self, batch: KeyedBatch, column: KeyColumn, present: Ints, rows: Ints) -> None:
        ends, _ = packed(column.values)
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
        self._look(batch, column, own, rows)

    def _look(self, batch: KeyedBatch, column: KeyColumn, own: Ints, rows: Ints) -> None:
        owners = column.owners
        for at in own[: MOST_SAMPLES - len(self.samples)].tolist():
            value = column.values.bytes(at)
            if self.room.takes(len(value)):
                self.samples.append((place_of(batch, int(rows[owners[at]])), value))
        if self.texts is None and not self.numeric:
            return
        for at in own.tolist():
            value = column.values.bytes(at)
            self.numeric = self.numeric and is_number(value)
            self._add_text(batch, int(rows[owners[at]]), value)
            if self.texts is None and not self.numeric:
                return

    def _add_text(self, batch: KeyedBatch, row: int, value: bytes) -> None:
        if self.texts is None:
            return
        text = short_text(value)
        if text is None:
            self.texts = None
            return
        if text not in self.texts:
            if len(self.texts) >= MOST_DISTINCT:
                self.texts = None
                return
            self.text_places[text] = place_of(batch, row)
        self.texts[text] += 1


@dataclass(slots=True)
class KeyProfile:
    """What the records hold under one key: of each kind, and how many have nothing there."""

    key: str
    step: bool = False  # a feature list of SequenceExamples; `records` are steps then
    kinds: dict[Kind, Stored] = field(default_factory=dict)
    holes: Tally = field(default_factory=Tally)

    @property
    def records(self) -> int:
        return sum(stored.tally.records for stored in self.kinds.values())

    @property
    def main(self) -> Stored | None:
        """The kind that most records have."""
        return max(self.kinds.values(), key=lambda stored: stored.tally.records, default=None)


class Profile:
    """All keys of all files, batch by batch."""

    def __init__(self) -> None:
        self.keys: dict[str, KeyProfile] = {}
        self.steps: dict[str, KeyProfile] = {}
        self.records = 0
        self.payload_bytes = 0
        self._room = Room()

    def see(self, batch: KeyedBatch) -> None:
        """Take a batch in."""
        rows = np.arange(len(batch))
        for key, column in batch.context.items():
            profile = _profile(self.keys, key, step=False)
            if profile is None:
                continue
            self._add(profile, batch, column, rows)
            if column.valid is not None:
                profile.holes.add(batch, ~column.valid)
        for key, lists in batch.steps.items():
            profile = _profile(self.steps, key, step=True)
            if profile is not None:
                self._add(profile, batch, lists.steps, np.repeat(rows, np.diff(lists.offsets)))
        self.records += len(batch)
        self.payload_bytes += int(batch.payload_bytes.sum())

    def _add(self, profile: KeyProfile, batch: KeyedBatch, column: KeyColumn, rows: Ints) -> None:
        if column.present == 0:
            return
        stored = profile.kinds.get(column.kind)
        if stored is None:
            stored = profile.kinds[column.kind] = Stored(column.kind, self._room)
        stored.add(batch, column, rows)


def _profile(profiles: dict[str, KeyProfile], key: str, *, step: bool) -> KeyProfile | None:
    """The profile of a key, a new one where there is none yet; None where there are too many keys."""
    if key not in profiles and len(profiles) < MOST_KEYS:
        profiles[key] = KeyProfile(key, step)
    return profiles.get(key)


def place_of(batch: KeyedBatch, row: int) -> Place:
    return Place(path=batch.path, record=int(batch.records[row]), offset=int(batch.offsets[row]))


def packed(strings: _core.StringColumn) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Where each byte string ends in a buffer of all of them (0 first), and the buffer."""
    column = strings if strings.packed else strings.pack(_core.Pool(0))
    ends, data = column.buffers()
    return ends, data


def is_number(value: bytes) -> bool:
    """Whether bytes are a number written as text, such as `3` or `-0.5`."""
    if not 0 < len(value) <= 32 or not value.isascii() or b"_" in value:
        return False
    try:
        return bool(np.isfinite(float(value)))
    except ValueError:
        return False


def short_text(value: bytes) -> str | None:
    """Bytes as a text that could be a name; None where they are long, or no text."""
    if len(value) > _SHORT_BYTES:
        return None
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.replace("\n", "").replace("\t", "").replace("\r", "").isprintable() else None
