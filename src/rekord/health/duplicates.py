"""Equal content found in bounded memory: digests sorted on disk, and the records that share one."""

from __future__ import annotations

import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.portability import pread_into

PLACE_DTYPE = np.dtype(
    [
        ("high", np.uint64),
        ("low", np.uint64),
        ("record", np.int64),
        ("offset", np.int64),
        ("file", np.uint32),
        ("split", np.uint32),
        ("feature", np.uint32),
        ("count", np.uint32),
    ]
)
"""A location of something with the digest (high, low): the first of `count` locations."""

_ROW_BYTES_DTYPE = np.dtype((np.void, PLACE_DTYPE.itemsize))
"""The same rows without fields: NumPy moves them ten times as fast."""

MEMORY_BYTES = 64 << 20

PlaceArray: TypeAlias = npt.NDArray[np.void]

_BUFFER_COPIES = 5  # of the rows in memory, while they are sorted
_STRIDE = 512  # sparse enough that those of a billion locations take 16 MB
_DIGEST_END = 1 << 64


@dataclass(frozen=True, slots=True)
class _SortedRun:
    begin: int  # in rows, in the file
    end: int
    block_keys: npt.NDArray[np.uint64]  # the digest of every _STRIDE-th row


class ExternalSort:
    """Accepts locations in any order; `parts` returns them by digest. Use it in a `with` block, or close it."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._max_rows = max(16, memory_bytes // (_BUFFER_COPIES * PLACE_DTYPE.itemsize))
        self._rows = np.empty(0, PLACE_DTYPE)
        self._used = 0
        self._runs: list[_SortedRun] = []
        self._file: IO[bytes] | None = None

    @property
    def spilled(self) -> bool:
        """Whether there were too many to keep in memory."""
        return self._file is not None

    def add(self, places: PlaceArray) -> None:
        """Add some locations. Raises X546 if they do not fit on disk."""
        while len(places):
            if self._used == self._max_rows:
                self._make_room()
            taken = min(len(places), self._max_rows - self._used)
            if len(self._rows) < self._used + taken:
                grown = np.empty(min(self._max_rows, max(1024, 2 * (self._used + taken))), PLACE_DTYPE)
                _copy_rows(grown[: self._used], self._rows[: self._used])
                self._rows = grown
            _copy_rows(self._rows[self._used : self._used + taken], places[:taken])
            self._used += taken
            places = places[taken:]

    def parts(self, *, repeated_only: bool = False) -> Iterator[PlaceArray]:
        """All locations, sorted by (high, low, split, file, record). A part ends where another digest begins.

        Of more than two locations with the same digest in one split some may be omitted: the first two are always
        included, and the sum of the counts is correct. With `repeated_only`, digests with one location are omitted,
        which takes less time if most have only one.
        """
        for rows in self._unsorted_parts():
            yield _combine_rows(_sort_rows(_select_repeated(rows) if repeated_only else rows))

    def _unsorted_parts(self) -> Iterator[PlaceArray]:
        """All locations. Those with the same digest are in the same part."""
        if self._file is None:
            yield self._rows[: self._used]
            return
        if self._used:
            self._spill(_combine_rows(_sort_rows(self._rows[: self._used])))
        self._rows = np.empty(0, PLACE_DTYPE)  # its memory now belongs to the parts
        self._used = 0
        for begins, ends in self._cuts():
            if sum(ends) > sum(begins):
                yield self._gathered(begins, ends)

    def close(self) -> None:
        """Release memory and disk space."""
        self._rows = np.empty(0, PLACE_DTYPE)
        self._used = 0
        self._runs.clear()
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def __enter__(self) -> ExternalSort:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _make_room(self) -> None:
        rows = _combine_rows(_sort_rows(self._rows[: self._used]))
        # A million equal digests collapse to almost nothing, and need not be written to disk.
        if len(rows) > self._max_rows // 2:
            self._spill(rows)
            rows = rows[:0]
        _copy_rows(self._rows[: len(rows)], rows)
        self._used = len(rows)

    def _spill(self, rows: PlaceArray) -> None:
        begin = self._runs[-1].end if self._runs else 0
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
                weakref.finalize(self, self._file.close)  # in case of an interrupt before `close`
            left = rows.view(np.uint8).data
            while left:
                left = left[self._file.write(left) :]
        except OSError as failure:
            raise no_room(failure, (begin + len(rows)) * PLACE_DTYPE.itemsize, "check") from None
        self._runs.append(_SortedRun(begin, begin + len(rows), rows["high"][::_STRIDE].copy()))

    def _cuts(self) -> Iterator[tuple[list[int], list[int]]]:
        """The range of the next digests in each run; no more rows than fit in memory."""
        begins = [run.begin for run in self._runs]
        total = self._runs[-1].end
        value, width = 0, max(1, _DIGEST_END * self._max_rows // (2 * total))
        while value < _DIGEST_END:
            ends = [
                run.end if value + width >= _DIGEST_END else self._first_from(value + width, run)
                for run in self._runs
            ]
            rows = sum(ends) - sum(begins)
            if rows > self._max_rows and width > 1:
                width //= 2
                continue
            yield begins, ends
            begins, value = ends, value + width
            if rows < self._max_rows // 4:
                width *= 2

    def _first_from(self, value: int, run: _SortedRun) -> int:
        """The first row of a run whose digest is not below `value`."""
        behind = int(np.searchsorted(run.block_keys, np.uint64(value)))
        if behind == 0:
            return run.begin
        begin = run.begin + (behind - 1) * _STRIDE
        stretch = np.empty(min(_STRIDE, run.end - begin), PLACE_DTYPE)
        self._read_into(stretch, begin)
        return begin + int(np.searchsorted(stretch["high"], np.uint64(value)))

    def _gathered(self, begins: list[int], ends: list[int]) -> PlaceArray:
        rows = np.empty(sum(ends) - sum(begins), PLACE_DTYPE)
        filled = 0
        for begin, end in zip(begins, ends, strict=True):
            self._read_into(rows[filled : filled + end - begin], begin)
            filled += end - begin
        return rows

    def _read_into(self, values: npt.NDArray[Any], row: int) -> None:
        """Fill an array from the file, starting at a row."""
        assert self._file is not None
        try:
            pread_into(self._file.fileno(), values.view(np.uint8).data, row * PLACE_DTYPE.itemsize)
        except OSError as failure:
            raise no_room(failure, self._runs[-1].end * PLACE_DTYPE.itemsize, "check") from None


def find_group_starts(places: PlaceArray) -> npt.NDArray[np.bool_]:
    """Which sorted locations have another digest than the one before."""
    starts = np.ones(len(places), np.bool_)
    high, low = places["high"], places["low"]
    starts[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return starts


def find_cell_starts(places: PlaceArray) -> npt.NDArray[np.bool_]:
    """Which sorted locations have another digest, or are in another split, than the one before."""
    starts = find_group_starts(places)
    split = places["split"]
    starts[1:] |= split[1:] != split[:-1]
    return starts


def _select_repeated(rows: PlaceArray) -> PlaceArray:
    """The locations whose digest may not be unique. Sorting numbers alone is much faster than sorting rows."""
    high = np.sort(rows["high"])
    repeated = high[1:][high[1:] == high[:-1]]
    if not len(repeated):
        return rows[:0]
    at = np.searchsorted(repeated, rows["high"])
    at[at == len(repeated)] = 0
    return _take_rows(rows, np.flatnonzero(repeated[at] == rows["high"]))


def _sort_rows(rows: PlaceArray) -> PlaceArray:
    rows = _take_rows(rows, np.argsort(rows["high"]))
    high = rows["high"]
    equal = high[1:] == high[:-1]
    if equal.any():
        # Few digests share their first half unless they are equal: only those need a comparison of all keys.
        tied = np.zeros(len(rows), np.bool_)
        tied[1:] = equal
        tied[:-1] |= equal
        at = np.flatnonzero(tied)
        ties = _take_rows(rows, at)
        keys = [ties[name] for name in ("record", "file", "split", "low", "high")]
        rows.view(_ROW_BYTES_DTYPE)[at] = _take_rows(ties, np.lexsort(keys)).view(_ROW_BYTES_DTYPE)
    return rows


def _combine_rows(rows: PlaceArray) -> PlaceArray:
    """The first two locations of each digest in each split, the second with the count of all after the first."""
    starts = np.flatnonzero(find_cell_starts(rows))
    if len(starts) == len(rows):
        return rows
    sizes = np.diff(starts, append=len(rows))
    many = starts[sizes > 2]
    if not len(many):
        return rows
    rank = np.arange(len(rows)) - np.repeat(starts, sizes)
    counts = np.add.reduceat(rows["count"], starts, dtype=np.int64)[sizes > 2]
    rows["count"][many + 1] = counts - rows["count"][many]
    return _take_rows(rows, np.flatnonzero(rank < 2))


def _copy_rows(target: PlaceArray, rows: PlaceArray) -> None:
    target.view(_ROW_BYTES_DTYPE)[:] = rows.view(_ROW_BYTES_DTYPE)


def _take_rows(rows: PlaceArray, at: npt.NDArray[np.intp]) -> PlaceArray:
    return np.take(rows.view(_ROW_BYTES_DTYPE), at).view(PLACE_DTYPE)


def no_room(failure: OSError, size_bytes: int, command: str) -> RekordError:
    """The error for a temporary file that could not be written or read."""
    try:
        folder: str | None = tempfile.gettempdir()
    except OSError:
        folder = None
    return error(
        "X546",
        location=Location(path=folder),
        expected=f"at least {size_bytes:,} bytes of free space",
        found=(failure.strerror or str(failure))[:60],
        do=f"TMPDIR=/a/folder/with/room rekord {command} …",
    )


_IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class DuplicateRecord:
    """A record: the number of its file, its number in the file, and the offset of its frame."""

    file: int
    record: int
    offset: int


@dataclass(frozen=True, slots=True, order=True)
class DuplicatePair:
    """Two records with the same content, and the number of all such records."""

    first: DuplicateRecord
    second: DuplicateRecord
    records: int


@dataclass(slots=True)
class DuplicateTally:
    """The number of duplicated contents and of their records, with the first ones by location.

    `records` are those of the split, or of the second of two splits; `others` those of the first one.
    """

    contents: int = 0
    records: int = 0
    others: int = 0
    pairs: list[DuplicatePair] = field(default_factory=list)


class DuplicateCounter:
    """Summarises parts of sorted locations, in constant memory."""

    def __init__(self, most_pairs: int) -> None:
        self._max_pairs = most_pairs
        self.within: dict[tuple[int, int], DuplicateTally] = {}  # by feature and split
        self.across: dict[tuple[int, int, int], DuplicateTally] = {}  # by feature and two splits, the lower one first
        self.repeats: Counter[int] = Counter()  # by feature: records with the same content as an earlier one

    def take(self, part: PlaceArray) -> None:
        """Add one part, which has all locations of its digests."""
        groups = find_group_starts(part)
        if groups.all():
            return
        starts = np.flatnonzero(find_cell_starts(part))
        counts = np.add.reduceat(part["count"], starts, dtype=np.int64)
        first = np.flatnonzero(groups[starts])  # for each digest, the first of its splits
        sizes = np.diff(first, append=len(starts))
        features = part["feature"][starts]
        for feature in np.unique(features[first][np.add.reduceat(counts, first) > 1]).tolist():
            mine = features == feature
            self.repeats[feature] += int(counts[mine].sum()) - int(np.count_nonzero(mine[first]))
        self._within(part, starts, counts)
        others = np.ones(len(starts), np.bool_)
        others[first] = False
        if others.any():
            home = np.repeat(first, sizes)
            at = np.flatnonzero(others)
            self._across(part, starts, counts, home[at], at)

    def _within(self, part: PlaceArray, starts: _IntArray, counts: _IntArray) -> None:
        at = np.flatnonzero(counts > 1)
        ones = starts[at]
        for (feature, split), chosen in _iter_key_groups(part["feature"][ones], part["split"][ones]):
            tally = self.within.setdefault((feature, split), DuplicateTally())
            mine = ones[chosen]
            records = counts[at[chosen]]
            tally.contents += len(mine)
            tally.records += int(records.sum())
            self._keep(tally, part[mine], part[mine + 1], records)

    def _across(self, part: PlaceArray, starts: _IntArray, counts: _IntArray, home: _IntArray, at: _IntArray) -> None:
        a, b = starts[home], starts[at]
        for (feature, one, other), chosen in _iter_key_groups(part["feature"][b], part["split"][a], part["split"][b]):
            tally = self.across.setdefault((feature, one, other), DuplicateTally())
            tally.contents += len(chosen)
            tally.others += int(counts[home[chosen]].sum())
            tally.records += int(counts[at[chosen]].sum())
            records = counts[home[chosen]] + counts[at[chosen]]
            self._keep(tally, part[a[chosen]], part[b[chosen]], records)

    def _keep(self, tally: DuplicateTally, first: PlaceArray, second: PlaceArray, records: _IntArray) -> None:
        order = np.lexsort((first["record"], first["file"]))[: self._max_pairs].tolist()
        pairs = [
            DuplicatePair(_to_duplicate_record(first[i]), _to_duplicate_record(second[i]), int(records[i]))
            for i in order
        ]
        tally.pairs = sorted([*tally.pairs, *pairs])[: self._max_pairs]


def _iter_key_groups(*keys: npt.NDArray[Any]) -> Iterator[tuple[Any, _IntArray]]:
    """The positions of each existing combination of keys."""
    if not len(keys[0]):
        return
    bases = [int(key.max()) + 1 for key in keys]
    joined = np.zeros(len(keys[0]), np.uint64)
    for key, base in zip(keys, bases, strict=True):
        joined = joined * np.uint64(base) + key
    _, first, which, sizes = np.unique(joined, return_index=True, return_inverse=True, return_counts=True)
    positions = np.split(np.argsort(which, kind="stable"), np.cumsum(sizes)[:-1])
    for at, chosen in zip(first.tolist(), positions, strict=True):
        yield tuple(int(key[at]) for key in keys), chosen


def _to_duplicate_record(row: Any) -> DuplicateRecord:
    return DuplicateRecord(int(row["file"]), int(row["record"]), int(row["offset"]))
