"""Spills: the encoded rows of a part on disk, sorted in runs, with an index of where each row is."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord import _core
from rekord.conversion.splits import HASH_BITS, HashArray, SplitRule
from rekord.dataset.origins import RowOrigins, concat_origins
from rekord.errors import DatasetError
from rekord.storage.local import Readable, Storage
from rekord.storage.publication import read_bytes
from rekord.storage.router import ROUTED_STORAGE, UNREACHABLE_CODES, is_remote
from rekord.storage.transaction import Staging

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this platform
    from zlib import crc32

MIN_DEFERRED_BYTES = 16 << 10
"""From this size on, writing a file's bytes to a spill costs more than opening the file a second time."""


class BlobInFile(NamedTuple):
    """A value of a row that is the content of a file, and its position in the row's frame."""

    path: str
    offset: int
    n_bytes: int


def defer_blobs(encoded: EncodedRows, blobs: Sequence[BlobInFile | None]) -> None:
    """Omit the contents of these files from the frames."""
    frames = memoryview(encoded.frames).cast("B")
    kept: list[memoryview] = []
    done = begin = 0
    for blob, length in zip(blobs, encoded.lengths.tolist(), strict=True):
        if blob is not None:
            kept.append(frames[done : begin + blob.offset])
            done = begin + blob.offset + blob.n_bytes
        begin += length
    encoded.frames = b"".join([*kept, frames[done:]])
    encoded.holes = DeferredBlobs(
        np.array([0 if blob is None else blob.offset for blob in blobs], np.int64),
        np.array([0 if blob is None else blob.n_bytes for blob in blobs], np.int64),
        [None if blob is None else blob.path for blob in blobs],
    )


def read_deferred_blob(path: bytes, hole: memoryview) -> bool:
    """Read the bytes of a file that a frame omits; False if the file no longer has that many."""
    try:
        with open(path, "rb", buffering=0) as file:
            return fill_buffer(file, hole) == len(hole)
    except OSError:
        return False


def fill_buffer(file: Readable | FileIO, view: memoryview) -> int:
    """Read until a buffer is full or the file ends; the number of bytes read."""
    filled = 0
    while filled < len(view) and (count := file.readinto(view[filled:])):
        filled += count
    return filled


def iter_windows(lengths: Any, window_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of records of up to `window_bytes` together, with at least one record each."""
    ends = np.cumsum(lengths)
    at = 0
    while at < len(lengths):
        until = int(np.searchsorted(ends, ends[at] - lengths[at] + window_bytes, side="right"))
        until = max(until, at + 1)
        yield at, until
        at = until


RUN_BYTES = 32 << 20
"""Bytes of frames per run: what is sorted, and gathered, in memory at a time."""

_WRITE_BYTES = 4 << 20

IntArray = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class DeferredBlobs:
    """File contents that frames omit: at most one range per frame, read again when shards are written."""

    at: IntArray  # position in the frame
    n_bytes: IntArray  # length; 0 if nothing is omitted
    paths: list[Any]  # str; bytes as in the index; None if nothing is omitted

    def take(self, order: IntArray) -> DeferredBlobs:
        return DeferredBlobs(self.at[order], self.n_bytes[order], [self.paths[i] for i in order.tolist()])


def concat_deferred_blobs(holes: list[DeferredBlobs | None], rows: list[int]) -> DeferredBlobs | None:
    """The holes of rows that came in several chunks."""
    if not any(holes):
        return None
    all_of = [
        DeferredBlobs(np.zeros(count, np.int64), np.zeros(count, np.int64), [None] * count) if one is None else one
        for one, count in zip(holes, rows, strict=True)
    ]
    return DeferredBlobs(
        np.concatenate([one.at for one in all_of]),
        np.concatenate([one.n_bytes for one in all_of]),
        [path for one in all_of for path in one.paths],
    )


@dataclass(slots=True, eq=False)
class EncodedRows:
    """Rows as frames, in reading order."""

    frames: Any  # a buffer
    lengths: IntArray  # of the frames, in bytes
    splits: npt.NDArray[np.uint8]
    keys: HashArray | None = None  # sort key, if rows are shuffled
    strata: HashArray | None = None  # hash of the class, if splits wait until all rows are counted
    hashes: HashArray | None = None  # hash for the split, likewise
    index: dict[str, Any] | None = None  # Arrow arrays by column
    holes: DeferredBlobs | None = None
    origins: RowOrigins | None = None

    @property
    def rows(self) -> int:
        return len(self.lengths)

    @property
    def stored(self) -> IntArray:
        """The number of bytes of each frame in `frames`."""
        return self.lengths if self.holes is None else self.lengths - self.holes.n_bytes


class SplitSegment(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive rows of one split in a part's index, in order."""

    split: int
    first: int
    count: int
    framed_bytes: int


class CompletedPart(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a finished part."""

    rows: int  # read, including rejected ones
    first_row: int = 0  # the rows of earlier parts, if the source is one sequence
    records: int
    rejected: int
    remarks: int
    flagged: list[str] = []  # the files with such rows, and those whose rows did not become one record each
    spill_bytes: int
    index_bytes: int
    index_crc: int
    digest: str  # of the frames, in reading order; those of earlier parts included, if the source is one sequence
    segments: list[SplitSegment]


class RowDigest:
    """A checksum of rows as they were read: equal rows, in the same order, give the same text.

    It does not depend on the pieces in which they arrive. Each frame ends with a checksum of its payload, so the
    contents of holes count as well.
    """

    def __init__(self) -> None:
        self._framed_bytes = 0
        self._records = 0
        self._crc = 0

    def add(self, encoded: EncodedRows) -> None:
        self._crc = crc32(encoded.frames, self._crc)
        self._records += encoded.rows
        self._framed_bytes += int(encoded.lengths.sum())

    def __str__(self) -> str:
        return f"{self._crc:08x}-{self._records}-{self._framed_bytes}"


class SpillWriter:
    """Accepts the encoded rows of a part; `finish` returns what goes into its `.done` file.

    `digest` is that of the rows before it, if the source is one sequence.
    """

    def __init__(self, staging: Staging, part: int, *, sort: bool, digest: RowDigest | None = None) -> None:
        self._staging = staging
        self._part = part
        self._sort = sort
        self._file = staging.create(staging.map_path(part, "spill"))
        self._waiting: list[EncodedRows] = []
        self._waiting_bytes = 0
        self._written_bytes = 0
        self._records = 0
        self._batches: list[pa.RecordBatch] = []
        self._segments: list[SplitSegment] = []
        self._digest = RowDigest() if digest is None else digest
        self._paths: dict[bytes, int] = {}
        self.spilled_bytes = 0

    def add(self, encoded: EncodedRows) -> None:
        """Add rows. Without sorting, frames are written immediately, and only their lengths and keys are kept."""
        self._digest.add(encoded)
        self.spilled_bytes += int(encoded.lengths.sum())
        if not self._sort:
            self._write(encoded.frames)
            encoded.frames = b""
        self._waiting.append(encoded)
        self._waiting_bytes += int(encoded.lengths.sum())
        if self._waiting_bytes >= RUN_BYTES:
            self._flush()

    def finish(
        self, *, rows: int, first_row: int, rejected: int, remarks: int, flagged: Sequence[str]
    ) -> CompletedPart:
        self._flush()
        index = _encode_index_file(self._batches, list(self._paths))
        self._file.commit()
        self._staging.write(self._staging.map_path(self._part, "index"), index)
        return CompletedPart(
            rows=rows,
            first_row=first_row,
            records=self._records,
            rejected=rejected,
            remarks=remarks,
            flagged=sorted(flagged),
            spill_bytes=self._written_bytes,
            index_bytes=len(index),
            index_crc=_core.crc32c(index),
            digest=str(self._digest),
            segments=self._segments,
        )

    def discard(self) -> None:
        """Discard the spill: the next attempt starts with a new file, and may need the space of this one."""
        self._file.abort()

    def _write(self, frames: Any) -> None:
        self._file.write(frames)
        self._written_bytes += len(memoryview(frames).cast("B"))

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        if not waiting:
            return
        joined = _concat_rows(waiting)
        order = None
        if self._sort:
            order = _compute_order(joined)
            begin = self._written_bytes
            self._write_sorted(waiting, joined.stored, order)
        else:
            begin = self._written_bytes - int(joined.stored.sum())
        self._note(joined, order, begin)

    def _write_sorted(self, waiting: list[EncodedRows], lengths: IntArray, order: IntArray) -> None:
        views = [memoryview(encoded.frames).cast("B") for encoded in waiting]
        bases = np.cumsum([0] + [len(view) for view in views])
        begins = np.cumsum(lengths) - lengths
        which = np.searchsorted(bases, begins, side="right") - 1
        inner = begins - bases[which]
        pieces: list[memoryview] = []
        piece_bytes = 0
        for row in order.tolist():
            begin = int(inner[row])
            length = int(lengths[row])
            pieces.append(views[which[row]][begin : begin + length])
            piece_bytes += length
            if piece_bytes >= _WRITE_BYTES:
                self._write(b"".join(pieces))
                pieces, piece_bytes = [], 0
        if pieces:
            self._write(b"".join(pieces))

    def _note(self, joined: EncodedRows, order: IntArray | None, begin: int) -> None:
        taken = joined if order is None else _take_rows(joined, order)
        offsets = begin + np.cumsum(taken.stored) - taken.stored
        # Splits are contiguous if rows are sorted; otherwise there is one, or they are not known yet.
        self._segments += _build_segments(taken.splits, taken.lengths, self._records)
        self._records += taken.rows
        self._batches.append(build_index_batch(taken, offsets, self._paths))


def _build_segments(splits: Any, lengths: IntArray, first_row: int) -> list[SplitSegment]:
    """The segments of rows whose splits are contiguous."""
    return [
        SplitSegment(split, first_row + first, end - first, int(lengths[first:end].sum()))
        for split, first, end in _iter_equal_runs(splits)
    ]


def _iter_equal_runs(values: Any) -> Iterator[tuple[int, int, int]]:
    """Each value of a sorted array, with the positions at which it begins and ends."""
    found, firsts = np.unique(values, return_index=True)
    return zip(found.tolist(), firsts.tolist(), [*firsts[1:].tolist(), len(values)], strict=True)


def needs_sorting(*, shuffle: bool, splits: int, stratified: bool) -> bool:
    """Whether the rows of a part are reordered on the way to a shard."""
    return shuffle or (splits > 1 and not stratified)


def build_index_batch(
    rows: EncodedRows, offsets: IntArray, numbers: dict[bytes, int] | None = None
) -> pa.RecordBatch:
    """The index rows for rows at `offsets`; `numbers` has those of the files that they come from."""
    columns = {"offset": offsets, "length": rows.lengths, "split": rows.splits}
    for name, values in (("key", rows.keys), ("stratum", rows.strata), ("hash", rows.hashes)):
        if values is not None:
            columns[name] = values
    arrays = {name: pa.array(values) for name, values in columns.items()}
    if rows.holes is not None:
        # As the system has them: a file name need not be UTF-8.
        paths = [None if path is None else os.fsencode(path) for path in rows.holes.paths]
        arrays["hole"] = pa.array(paths, pa.large_binary())
        arrays["hole_at"] = pa.array(rows.holes.at)
        arrays["hole_bytes"] = pa.array(rows.holes.n_bytes)
    arrays |= {f"index:{name}": values for name, values in (rows.index or {}).items()}
    if rows.origins is not None and numbers is not None:
        own = rows.origins
        known = np.array([numbers.setdefault(path, len(numbers)) for path in own.paths], np.uint32)
        arrays["origin:path"] = pa.array(known[own.path])
        arrays["origin:position"] = pa.array(own.position)
        for name in ("line", "copy"):
            if (column := getattr(own, name)).any():
                arrays[f"origin:{name}"] = pa.array(column)
    return pa.RecordBatch.from_pydict(arrays)


_PATHS = b"paths"  # in the metadata of an index: the files that its rows come from


def _encode_index_file(batches: list[pa.RecordBatch], paths: list[bytes]) -> bytes:
    if not batches:
        return b""
    # A run without holes lacks their columns.
    table = pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="default")
    return encode_arrow_file(table.replace_schema_metadata({_PATHS: b"\0".join(paths)}))


def read_row_origins(table: pa.Table, paths_of: Callable[[int], pa.Table]) -> RowOrigins | None:
    """The origins of index rows of several parts, which the column `part` names; None if they have none.

    `paths_of` is the index of a part.
    """
    if "origin:path" not in table.column_names or table["origin:path"].null_count:
        return None
    parts, numbers = table["part"].to_numpy(), table["origin:path"].to_numpy()
    path = np.zeros(len(table), np.uint32)
    paths: list[bytes] = []
    for part in np.unique(parts).tolist():
        mine = parts == part
        used, inverse = np.unique(numbers[mine], return_inverse=True)
        path[mine] = len(paths) + inverse
        known = paths_of(part).schema.metadata[_PATHS].split(b"\0")
        paths += [known[number] for number in used.tolist()]

    def column(name: str, dtype: Any = np.int64) -> Any:
        if name not in table.column_names:
            return np.zeros(len(table), dtype)
        return table[name].fill_null(0).to_numpy()

    stratified = "stratum" in table.column_names
    return RowOrigins(
        paths,
        path,
        column("origin:position"),
        column("origin:line"),
        column("origin:copy"),
        column("stratum") if stratified else None,
        column("hash") if stratified else None,
    )


def encode_arrow_file(table: pa.Table) -> bytes:
    """The bytes of an Arrow IPC file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def read_part_index(path: str, storage: Storage = ROUTED_STORAGE) -> pa.Table | None:
    """The index of a part, memory-mapped if possible; None if it has no rows, is missing or truncated."""
    if is_remote(path):
        try:
            return pa.ipc.open_file(pa.py_buffer(read_bytes(storage, path))).read_all()
        except pa.ArrowInvalid:
            return None
        except DatasetError as failure:
            if failure.code in UNREACHABLE_CODES:
                raise
            return None
    try:
        # Closed here, not when the last of Arrow's threads lets go of it: the staging folder may be removed before.
        with pa.memory_map(os.fsencode(path)) as file:
            return pa.ipc.open_file(file).read_all()
    except pa.ArrowInvalid:
        return None
    except OSError as failure:
        if failure.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise  # it is complete, but cannot be opened now
        return None


_ROW_ARRAYS = ("lengths", "splits", "keys", "strata", "hashes")


def _concat_rows(waiting: list[EncodedRows]) -> EncodedRows:
    if len(waiting) == 1:
        return waiting[0]

    def all_of(name: str) -> Any:
        values = [getattr(encoded, name) for encoded in waiting]
        return None if values[0] is None else np.concatenate(values)

    index = {
        name: pa.concat_arrays([encoded.index[name] for encoded in waiting if encoded.index is not None])
        for name in waiting[0].index or {}
    }
    return EncodedRows(
        frames=b"",
        **{name: all_of(name) for name in _ROW_ARRAYS},
        index=index,
        holes=concat_deferred_blobs([encoded.holes for encoded in waiting], [encoded.rows for encoded in waiting]),
        origins=concat_origins([encoded.origins for encoded in waiting])  # type: ignore[misc]
        if all(encoded.origins is not None for encoded in waiting)
        else None,
    )


def _compute_order(rows: EncodedRows) -> IntArray:
    """By split, then by key; rows that are equal in both stay in reading order."""
    if rows.keys is None:
        return np.argsort(rows.splits, kind="stable")
    return np.lexsort((rows.keys, rows.splits))


def _take_rows(rows: EncodedRows, order: IntArray) -> EncodedRows:
    def take(name: str) -> Any:
        values = getattr(rows, name)
        return None if values is None else values[order]

    positions = pa.array(order)
    return EncodedRows(
        frames=b"",
        **{name: take(name) for name in _ROW_ARRAYS},
        index={name: values.take(positions) for name, values in (rows.index or {}).items()},
        holes=None if rows.holes is None else rows.holes.take(order),
        origins=None if rows.origins is None else rows.origins[order],
    )


_BIN_BITS = 12
_BINS = 1 << _BIN_BITS
"""Number of bins in which the hashes of a class are counted; only bins that hold an edge are then sorted."""

_MIN_BINNED_ROWS = _BINS
"""Smaller classes get no bins: they have fewer hashes than bins, and there may be very many of them."""

SplitEdges = dict[int, npt.NDArray[np.uint64]]


def compute_split_edges(tables: Callable[[], Iterator[pa.Table]], rule: SplitRule) -> SplitEdges:
    """For each class the hashes at which its splits after the first begin; `tables` is called up to three times."""
    sizes: Counter[int] = Counter()
    for table in tables():
        found, counts = np.unique(table["stratum"].to_numpy(), return_counts=True)
        sizes.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
    bins = {stratum: np.zeros(_BINS, np.int64) for stratum, size in sizes.items() if size > _MIN_BINNED_ROWS}
    for table in tables() if bins else ():
        for stratum, hashes in _iter_strata(table):
            if stratum in bins:
                bins[stratum] += np.bincount(_compute_bins(hashes), minlength=_BINS)
    ranks = {stratum: _compute_split_ranks(rule, sizes[stratum]) for stratum in bins}
    wanted = {
        stratum: set(np.searchsorted(np.cumsum(bins[stratum]), ranks[stratum], side="right").tolist())
        for stratum in bins
    }
    near: dict[int, list[HashArray]] = {stratum: [] for stratum in sizes}
    for table in tables():
        for stratum, hashes in _iter_strata(table):
            close = hashes
            if stratum in bins:
                close = hashes[np.isin(_compute_bins(hashes), list(wanted[stratum]))]
            near[stratum].append(close)
    edges: SplitEdges = {}
    for stratum, size in sizes.items():
        sorted_hashes = np.sort(np.concatenate(near.pop(stratum)))
        if stratum in bins:
            edges[stratum] = _select_edges(sorted_hashes, bins[stratum], ranks[stratum], wanted[stratum])
        else:
            edges[stratum] = _select_edges(sorted_hashes, np.array([size]), _compute_split_ranks(rule, size), {0})
    return edges


def _compute_split_ranks(rule: SplitRule, rows: int) -> Any:
    """The rank of the first row of each split after the first."""
    return np.cumsum(rule.shares(rows))[:-1]


def _compute_bins(hashes: HashArray) -> npt.NDArray[np.int64]:
    bins: npt.NDArray[np.int64] = (hashes >> np.uint64(HASH_BITS - _BIN_BITS)).astype(np.int64)
    return bins


def _select_edges(near: HashArray, bins: Any, ranks: Any, wanted: set[int]) -> npt.NDArray[np.uint64]:
    """The hash of the row of each rank; one past the last for a rank that no row has."""
    ends = np.cumsum(bins)
    out = []
    for rank in ranks.tolist():
        if rank >= int(ends[-1]):
            out.append(np.iinfo(np.uint64).max)
            continue
        at = int(np.searchsorted(ends, rank, side="right"))
        before = int(ends[at] - bins[at])  # rows in the bins before this one
        earlier = sum(int(bins[other]) for other in wanted if other < at and other < len(bins))
        out.append(int(near[earlier + rank - before]))
    return np.array(out, np.uint64)


def _iter_strata(table: pa.Table) -> Iterator[tuple[int, HashArray]]:
    hashes = table["hash"].to_numpy()
    for stratum, rows in _iter_stratum_rows(table):
        yield stratum, hashes[rows]


def _iter_stratum_rows(table: pa.Table) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Each class of a table, and where its rows are: sorted once, since there may be as many classes as rows."""
    strata = table["stratum"].to_numpy()
    order = np.argsort(strata, kind="stable")
    for stratum, first, end in _iter_equal_runs(strata[order]):
        yield stratum, order[first:end]


def assign_stratified_splits(
    table: pa.Table, segments: Sequence[SplitSegment], edges: SplitEdges
) -> tuple[pa.Table, list[SplitSegment]]:
    """The index of a part with its rows sorted by their splits, run by run."""
    hashes = table["hash"].to_numpy()
    splits = np.zeros(len(table), np.uint8)
    for stratum, mine in _iter_stratum_rows(table):
        splits[mine] = np.searchsorted(edges[stratum], hashes[mine], side="right")
    lengths = table["length"].to_numpy()
    orders, out = [np.zeros(0, np.int64)], []
    for run in segments:
        inside = splits[run.first : run.first + run.count]
        order = run.first + np.argsort(inside, kind="stable")
        orders.append(order)
        out += _build_segments(splits[order], lengths[order], run.first)
    order = np.concatenate(orders)
    return table.take(pa.array(order)), out
