"""Matching the records of two sides, by digests of their content and by a key."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.dataset.read import open_frames
from rekord.errors import RekordError
from rekord.health.duplicates import PLACE_DTYPE, ExternalSort, PlaceArray, find_group_starts, no_room
from rekord.health.key_columns import DigestArray, KeyColumn, KeyedBatch, compute_key_seed, mix_column, mix_steps
from rekord.health.stats.numbers import mix_hash_bits
from rekord.storage.local import read_error
from rekord.storage.portability import pread_into


def digest_records(batch: KeyedBatch) -> DigestArray:
    """The digest of every record of a batch."""
    into = np.zeros((len(batch), 2), np.uint64)
    for key in sorted(batch.context):
        mix_column(key, batch.context[key], into)
    for key in sorted(batch.steps):
        mix_steps(key, batch.steps[key], into)
    return into


def digest_keys(column: KeyColumn) -> DigestArray:
    """The digest of every row's value in the key column."""
    into = np.zeros((len(column), 2), np.uint64)
    _core.digest_column(compute_key_seed("key", column.kind, ""), column.values, column.offsets, column.valid, into)
    return into


def digest_payloads(path: str) -> Iterator[tuple[int, list[int], DigestArray]]:
    """The digests of whole payloads, for files without Examples: (first record, offsets, digests).

    Damage is skipped silently: the pass that determined the kind of payload has reported it.
    """
    number = compute_key_seed("payload", "bytes", "")
    with open_frames(path) as reader:
        has_more = True
        while has_more:
            has_more = False
            try:
                for stretch in reader.iter_verified_frames():
                    payloads = stretch.payloads()
                    into = np.zeros((len(payloads), 2), np.uint64)
                    _core.digest_column(number, _core.strings(payloads), None, None, into)
                    yield stretch.first_record, [stretch.offset(i) for i in range(len(payloads))], into
            except RekordError as failure:
                _, has_more = reader.recover(failure)


def compute_order_sum(digests: DigestArray, positions: npt.NDArray[np.int64]) -> int:
    """A number that depends on the position of each digest. The sum over parts is that of the whole."""
    weights = mix_hash_bits(positions.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    return int((digests[:, 0] * weights).sum(dtype=np.uint64))


MAX_FEATURES = 1024
"""Features beyond this number are counted as one: that many keys are data, not names."""

OTHER_KEYS = "(other keys)"

FingerprintArray: TypeAlias = npt.NDArray[np.uint32]
RowNumbers: TypeAlias = npt.NDArray[np.int64]

_OFFSET_WORDS = 2
_READ_BYTES = 1 << 20
"""Rows that are this close are read together."""


class FeatureNumbering:
    """The numbers of the features of both sides, in the order of their first occurrence."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[bool, str], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, key: str, *, step: bool) -> int:
        """The number of a feature; a new one gets the next number."""
        known = self._numbers.get((step, key))
        if known is not None:
            return known
        if len(self._numbers) >= MAX_FEATURES - 1:
            step, key = False, OTHER_KEYS
        return self._numbers.setdefault((step, key), len(self._numbers))

    def names(self) -> list[str]:
        """The keys of the features, by number. A key may exist both in the context and in the steps."""
        return [key for _, key in self._numbers]


class FeatureFingerprints:
    """The rows of one side. `add` numbers them from 0."""

    def __init__(self, features: FeatureNumbering) -> None:
        self._features = features
        self._file: IO[bytes] | None = None
        self._words = 0  # written so far
        self._rows = 0
        # For each run of rows of the same width: its first row, its first word, and the words per row.
        self._blocks: list[tuple[int, int, int]] = []

    def add(self, batch: KeyedBatch) -> int:
        """Keep the fingerprints of a batch; returns the number of its first row."""
        numbers = [self._features.number(key, step=False) for key in batch.context]
        step_numbers = [self._features.number(key, step=True) for key in batch.steps]
        prints = np.zeros((len(batch), _OFFSET_WORDS + len(self._features)), np.uint32)
        prints[:, :_OFFSET_WORDS] = batch.offsets.view(np.uint32).reshape(-1, _OFFSET_WORDS)
        for number, (key, column) in zip(numbers, batch.context.items(), strict=True):
            digests = np.zeros((len(batch), 2), np.uint64)
            mix_column(key, column, digests)
            prints[:, _OFFSET_WORDS + number] ^= digests[:, 0].astype(np.uint32)
        for number, (key, steps) in zip(step_numbers, batch.steps.items(), strict=True):
            digests = np.zeros((len(batch), 2), np.uint64)
            mix_steps(key, steps, digests)
            prints[:, _OFFSET_WORDS + number] ^= digests[:, 0].astype(np.uint32)
        return self._keep(prints)

    def read(self, rows: RowNumbers) -> tuple[RowNumbers, FingerprintArray]:
        """The offsets and the fingerprints of some rows, one column per feature known by now."""
        out = np.zeros((len(rows), _OFFSET_WORDS + len(self._features)), np.uint32)
        if len(rows):
            order = np.argsort(rows, kind="stable")
            ends = [*(first for first, _, _ in self._blocks[1:]), self._rows]
            cuts = np.searchsorted(rows[order], ends).tolist()
            for (first_row, first_word, width), begin, end in zip(self._blocks, [0, *cuts], cuts, strict=False):
                which = order[begin:end]
                out[which, :width] = self._block_rows(first_word, width, rows[which] - first_row)
        return np.ascontiguousarray(out[:, :_OFFSET_WORDS]).view(np.int64)[:, 0], out[:, _OFFSET_WORDS:]

    def close(self) -> None:
        """Release the temporary file."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _block_rows(self, first_word: int, width: int, rows: RowNumbers) -> FingerprintArray:
        """These rows of a block, which are in order. Read, not mapped: a disk error in a mapped file would end
        the process."""
        assert self._file is not None
        out = np.empty((len(rows), width), np.uint32)
        rows_at_once = max(1, _READ_BYTES // (4 * width))
        begin = 0
        while begin < len(rows):
            first = int(rows[begin])
            end = int(np.searchsorted(rows, first + rows_at_once))
            stretch = np.empty((int(rows[end - 1]) + 1 - first, width), np.uint32)
            self._read(stretch, 4 * (first_word + first * width))
            out[begin:end] = stretch[rows[begin:end] - first]
            begin = end
        return out

    def _read(self, into: FingerprintArray, offset: int) -> None:
        assert self._file is not None
        try:
            pread_into(self._file.fileno(), into.reshape(-1).view(np.uint8).data, offset)
        except OSError as failure:
            raise read_error(tempfile.gettempdir(), failure) from failure

    def _keep(self, prints: FingerprintArray) -> int:
        first, width = self._rows, prints.shape[1]
        if not self._blocks or self._blocks[-1][2] != width:
            self._blocks.append((first, self._words, width))
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            left = prints.reshape(-1).view(np.uint8).data
            while left:
                left = left[self._file.write(left) :]
        except OSError as failure:
            raise no_room(failure, 4 * (self._words + prints.size), "diff") from None
        self._rows += len(prints)
        self._words += prints.size
        return first


MAX_EXAMPLES = 10
"""Number of added, removed, changed and moved records, each, that are reported with their locations."""

_PAIR_CHUNK = 1 << 14

GroupCounts = npt.NDArray[np.int64]


@dataclass(kw_only=True)
class ContentMatch:
    """The number of records in one side only, or in both but in another split; and the first of each."""

    added: int = 0
    removed: int = 0
    moved: int = 0
    added_places: PlaceArray = field(default_factory=lambda: np.empty(0, PLACE_DTYPE))
    removed_places: PlaceArray = field(default_factory=lambda: np.empty(0, PLACE_DTYPE))


@dataclass(kw_only=True)
class KeyMatch:
    """What happened to keys that occur once on each side, and which features changed."""

    changed: int = 0
    features: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    repeated_in_a: int = 0  # keys that occur more than once
    repeated_in_b: int = 0
    added_places: PlaceArray = field(default_factory=lambda: np.empty(0, PLACE_DTYPE))
    removed_places: PlaceArray = field(default_factory=lambda: np.empty(0, PLACE_DTYPE))
    changed_places: list[tuple[PlaceArray, PlaceArray]] = field(default_factory=list)  # in A, in B


def build_sort_rows(
    digests: npt.NDArray[np.uint64],
    *,
    records: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    file: int,
    split: int,
    side: int,
    numbers: npt.NDArray[np.int64] | int = 0,
) -> PlaceArray:
    """Records in the form that is sorted. `split` includes the side, and `feature` is a number of ours."""
    rows = np.empty(len(digests), PLACE_DTYPE)
    rows["low"], rows["high"] = digests[:, 0], digests[:, 1]
    rows["record"], rows["offset"] = records, offsets
    rows["file"], rows["split"], rows["feature"], rows["count"] = file, 2 * split + side, numbers, 1
    return rows


def match_content(sort: ExternalSort) -> ContentMatch:
    """Compare the two sides as multisets of records."""
    found = ContentMatch()
    for places in sort.parts():
        if not len(places):
            continue
        starts = find_group_starts(places)
        in_a, in_b = _count_sides(places, starts)
        found.added += int(np.maximum(in_b - in_a, 0).sum())
        found.removed += int(np.maximum(in_a - in_b, 0).sum())
        split = places["split"] >> 1
        starts_here = starts.copy()
        starts_here[1:] |= split[1:] != split[:-1]
        stayed = int(np.minimum(*_count_sides(places, starts_here)).sum())
        found.moved += int(np.minimum(in_a, in_b).sum()) - stayed
        found.added_places = _merge_first_places(
            found.added_places, _select_last_places(places, starts, in_b > in_a, side=1)
        )
        found.removed_places = _merge_first_places(
            found.removed_places, _select_last_places(places, starts, in_a > in_b, side=0)
        )
    return found


def match_keys(sort: ExternalSort, prints: tuple[FeatureFingerprints, FeatureFingerprints]) -> KeyMatch:
    """Compare the records of each key. Records are paired only if their key occurs once on both sides."""
    found = KeyMatch()
    for places in sort.parts():
        if not len(places):
            continue
        starts = find_group_starts(places)
        in_a, in_b = _count_sides(places, starts)
        found.repeated_in_a += int(np.count_nonzero(in_a > 1))
        found.repeated_in_b += int(np.count_nonzero(in_b > 1))
        found.added_places = _merge_first_places(
            found.added_places, _select_last_places(places, starts, in_a == 0, side=1)
        )
        found.removed_places = _merge_first_places(
            found.removed_places, _select_last_places(places, starts, in_b == 0, side=0)
        )
        once = (in_a == 1) & (in_b == 1)
        ours, theirs = (_select_last_places(places, starts, once, side=side) for side in (0, 1))
        changed = ours["offset"] != theirs["offset"]  # half of the digest of their content
        _add_changed(found, ours[changed], theirs[changed], prints)
    for side, rows in enumerate((found.removed_places, found.added_places)):
        rows["offset"], _ = prints[side].read(rows["feature"].astype(np.int64))
    return found


def _add_changed(
    found: KeyMatch,
    ours: PlaceArray,
    theirs: PlaceArray,
    prints: tuple[FeatureFingerprints, FeatureFingerprints],
) -> None:
    found.changed += len(ours)
    for begin in range(0, len(ours), _PAIR_CHUNK):
        pair = ours[begin : begin + _PAIR_CHUNK], theirs[begin : begin + _PAIR_CHUNK]
        # In the order in which they were written, which is the fastest to read.
        order = np.argsort(pair[0]["feature"], kind="stable")
        a, b = (rows[order] for rows in pair)
        (a["offset"], before), (b["offset"], after) = (
            prints[side].read(rows["feature"].astype(np.int64)) for side, rows in enumerate((a, b))
        )
        counts = np.count_nonzero(before != after, axis=0)
        found.features = _sum_padded(found.features, counts)
        both = [
            *found.changed_places,
            *((a[i : i + 1], b[i : i + 1]) for i in range(min(len(a), MAX_EXAMPLES))),
        ]
        both.sort(key=lambda each: (int(each[0]["file"][0]), int(each[0]["record"][0])))
        found.changed_places = both[:MAX_EXAMPLES]


def _sum_padded(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    out = np.zeros(max(len(a), len(b)), np.int64)
    out[: len(a)] += a
    out[: len(b)] += b
    return out


def _count_sides(places: PlaceArray, starts: npt.NDArray[np.bool_]) -> tuple[GroupCounts, GroupCounts]:
    """The number of records of each group in A and in B."""
    first = np.flatnonzero(starts)
    counts, in_b = places["count"].astype(np.int64), (places["split"] & 1).astype(np.bool_)
    return (
        np.add.reduceat(np.where(in_b, 0, counts), first),
        np.add.reduceat(np.where(in_b, counts, 0), first),
    )


def _select_last_places(
    places: PlaceArray, starts: npt.NDArray[np.bool_], wanted: npt.NDArray[np.bool_], *, side: int
) -> PlaceArray:
    """For each selected group, the last location on one side."""
    at = np.where((places["split"] & 1) == side, np.arange(len(places)), -1)
    last = np.maximum.reduceat(at, np.flatnonzero(starts))[wanted]
    return places[last]


def _merge_first_places(known: PlaceArray, more: PlaceArray) -> PlaceArray:
    both = np.concatenate([known, more])
    return both[np.lexsort((both["record"], both["file"]))[:MAX_EXAMPLES]]
