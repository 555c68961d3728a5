"""Rows that an earlier dataset has already: their records are copied instead of being read and encoded again.

Everything after the encoding of rows is a conversion like any other, so its result is the same: docs/decisions/0049.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from rekord.conversion.encode_rows import hash_paths
from rekord.conversion.plan import ConversionJob, digest_value
from rekord.conversion.record_copier import BufferRing, RecordCopier, RecordRange, RecordSequence
from rekord.conversion.spill import EncodedRows
from rekord.conversion.splits import hash_rows
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.manifest import read_manifest
from rekord.dataset.origins import SYNTHETIC, RowOrigins, concat_origins, read_origins, to_plain_text
from rekord.dataset.samplers import EpochOrder, SubsetSampler, normalize_selection
from rekord.sources.base import PartItem, SourceFile, SourcePart, select_items
from rekord.storage.publication import read_bytes
from rekord.storage.router import is_remote
from rekord.storage.transaction import Staging

SOURCE_FILES = "source.json"
"""What `.rekord/` holds about the files that a dataset was written from."""

_PIECE_BYTES = 8 << 20
_PART_ROWS = 1 << 20
_ROW = np.dtype(
    [
        ("split", "u1"), ("record", "i8"), ("path", "u4"), ("position", "i8"), ("line", "i8"), ("copy", "i8"),
        ("key", "u8"), ("stratum", "u8"), ("hash", "u8"),
    ]
)  # fmt: skip


class SourceFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a dataset was written from, as they were then."""

    paths: list[str]  # below the root; a digest of those outside
    sizes: list[int]
    mtimes: list[int]
    context: str  # a digest of what the source found out from all files together
    flagged: list[str]  # files whose rows are not simply one record each: rejected, remarked, mapped to several
    checksum: str | None = None

    def to_json(self) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(self, checksum=self._checksum()))

    def _checksum(self) -> str:
        bare = msgspec.json.encode(msgspec.structs.replace(self, checksum=None))
        return hashlib.sha256(bare).hexdigest()

    @staticmethod
    def from_json(data: bytes) -> SourceFiles | None:
        """The content of a file; None if it is damaged."""
        try:
            found = msgspec.json.decode(data, type=SourceFiles)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        if found.checksum != found._checksum() or not len(found.paths) == len(found.sizes) == len(found.mtimes):
            return None
        return found


def describe_source_files(source: Any, files: Sequence[SourceFile], flagged: Iterable[str]) -> SourceFiles:
    """The files of a source, as they are now."""
    return SourceFiles(
        paths=[_to_stored_path(file.path) for file in files],
        sizes=[file.size_bytes for file in files],
        mtimes=[file.mtime_ns for file in files],
        context=digest_context(source),
        flagged=sorted(set(flagged)),
    )


def _to_stored_path(path: str) -> str:
    # The paths of files outside the root would tell where the data lies.
    if os.path.isabs(path) or path.startswith(".."):
        return "outside:" + hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    return to_plain_text(path)


def digest_context(source: Any) -> str:
    """A digest of what every row of a source depends on besides its own files."""
    return digest_value([source.kind, source.shared_context()])


@dataclass(frozen=True, slots=True)
class ReusedRows:
    """A part of a conversion: rows whose records are in a dataset."""

    folder: str
    first: int
    count: int


@dataclass(frozen=True, kw_only=True)
class Reuse:
    """The dataset to copy records from, and the files that it was written from."""

    folder: str
    digest: str
    before: SourceFiles
    files: tuple[SourceFile, ...]  # now

    def plan_parts(
        self, job: ConversionJob, staging: Staging, part_bytes: int
    ) -> tuple[list[SourcePart], ReuseCounts]:
        """The whole source in parts, of which some are copied."""
        source: Any = job.source
        parts = source.parts(part_bytes)
        items = [list(source.part_items(part)) for part in parts]
        changed = self._find_changed(one for own in items for one in own)
        known = None if changed is None else _KnownRows.load(self.folder, job.splits.names)
        if changed is None or known is None:
            every = sum(len({one.path for one in own}) for own in items)
            return list(parts), ReuseCounts(converted=every)
        flagged = set(self.before.flagged)
        chosen: list[Any] = []
        made: list[SourcePart] = []
        copied: set[str] = set()
        converted: set[str] = set()
        waiting = first = 0

        def close() -> None:
            nonlocal waiting, first
            if waiting:
                made.append(SourcePart(ReusedRows(self.folder, first, waiting), 0))
            first, waiting = first + waiting, 0

        for part, own in zip(parts, items, strict=True):
            # A file in several items is copied whole, where its first item is.
            for key, group in groupby(own, lambda one: self._rows_of(one, known, changed, flagged) is not None):
                several = list(group)
                if not key:
                    close()
                    made.append(select_items(part, [one.content for one in several]))
                    converted |= {one.path for one in several}
                    continue
                for one in several:
                    rows = self._rows_of(one, known, changed, flagged)
                    assert rows is not None
                    if one.position is None and one.path in copied:
                        continue
                    copied.add(one.path)
                    chosen.append(rows)
                    waiting += len(rows)
                    if waiting >= _PART_ROWS:
                        close()
        close()
        rows = np.concatenate(chosen) if chosen else np.zeros(0, np.int64)
        known.write(staging, rows, job)
        return made, ReuseCounts(copied=len(copied - converted), converted=len(converted), records=len(rows))

    def _find_changed(self, items: Iterable[PartItem]) -> set[str] | None:
        """The files that are not as they were; None if others than those of single rows are among them."""
        before = dict(zip(self.before.paths, zip(self.before.sizes, self.before.mtimes, strict=True), strict=True))
        now = {_to_stored_path(file.path): (file.size_bytes, file.mtime_ns) for file in self.files}
        own = {_to_stored_path(path) for one in items for path in one.files}
        changed = {path for path in {**before, **now} if before.get(path) != now.get(path)}
        shared = now.keys() - own
        if shared:
            endings = {os.path.splitext(path)[1].lower() for path in own}
            # A file that is gone was shared unless it looks like those of single rows.
            gone = {path for path in before.keys() - now.keys() if os.path.splitext(path)[1].lower() not in endings}
            if changed & shared or gone:
                return None
        return changed

    def _rows_of(self, item: PartItem, known: _KnownRows, changed: set[str], flagged: set[str]) -> Any:
        """The numbers of the known rows of an item, in order; None if it has to be read."""
        if to_plain_text(item.path) in flagged or any(_to_stored_path(path) in changed for path in item.files):
            return None
        rows = known.find(item.path, item.position)
        return rows if len(rows) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseCounts:
    """What a conversion reused."""

    copied: int = 0  # files
    converted: int = 0
    records: int = 0  # copied


class _KnownRows:
    """The rows of a dataset by their origin. It takes about 60 bytes per record."""

    def __init__(self, origins: RowOrigins, splits: Any, records: Any) -> None:
        order = np.lexsort((origins.copy, origins.position, origins.path))
        self._origins = origins[order]
        self._splits = splits[order]
        self._records = records[order]
        self._numbers = {path: i for i, path in enumerate(origins.paths)}

    @staticmethod
    def load(folder: str, names: Sequence[str]) -> _KnownRows | None:
        """Those of the dataset in a folder; None if the origins of some records are unknown."""
        manifest = read_manifest(folder)
        pieces, splits, records = [], [], []
        for number, name in enumerate(names):
            part, begin = manifest.splits[name], 0
            shards = zip(part.names(name), part.shards.digest, part.shards.records, strict=True)
            for shard, digest, count in shards:
                found = read_origins(os.path.join(folder, shard), digest, count)
                if found is None:
                    return None
                pieces.append(found.rows(np.arange(count, dtype=np.int64)))
                splits.append(np.full(count, number, np.uint8))
                records.append(np.arange(begin, begin + count, dtype=np.int64))
                begin += count
        origins = concat_origins(pieces)
        if (origins.path == SYNTHETIC).any():
            return None
        return _KnownRows(origins, np.concatenate(splits), np.concatenate(records))

    def find(self, path: str, position: int | None) -> Any:
        number = self._numbers.get(os.fsencode(path))
        if number is None:
            return np.zeros(0, np.int64)
        first, last = np.searchsorted(self._origins.path, [number, number + 1])
        if position is not None:
            inside = self._origins.position[first:last]
            begin, end = np.searchsorted(inside, [position, position + 1])
            first, last = first + begin, first + end
        return np.arange(first, last, dtype=np.int64)

    def write(self, staging: Staging, rows: Any, job: ConversionJob) -> None:
        """Store what tasks need to know of the rows to copy."""
        own = self._origins[rows]
        table = np.zeros(len(rows), _ROW)
        table["split"], table["record"] = self._splits[rows], self._records[rows]
        for name in ("path", "position", "line", "copy"):
            table[name] = getattr(own, name)
        if job.shuffle and len(rows):
            paths = [os.fsdecode(path) for path in own.paths]
            bases = hash_paths(job.seed, "order", paths)
            table["key"] = hash_rows(bases[own.path], own.position, own.copy)
        if job.splits.stratify is not None and own.stratum is not None:
            table["stratum"], table["hash"] = own.stratum, own.hash
        data = io.BytesIO()
        np.save(data, table, allow_pickle=False)
        staging.write(staging.map_path(0, "reuse"), data.getbuffer())
        staging.write(staging.map_path(0, "reuse-paths"), b"\0".join(own.paths))


def _load_rows(staging: Staging) -> Any:
    path = staging.map_path(0, "reuse")
    if is_remote(path):
        return np.load(io.BytesIO(read_bytes(staging.storage, path)), allow_pickle=False)
    return np.load(path, mmap_mode="r", allow_pickle=False)


def iter_reused_rows(job: ConversionJob, staging: Staging, part: ReusedRows) -> Iterator[EncodedRows]:
    """The rows of a part, in reading order, as they were encoded before."""
    table = _load_rows(staging)
    rows = table[part.first : part.first + part.count]
    paths = read_bytes(staging.storage, staging.map_path(0, "reuse-paths")).split(b"\0")
    dataset = open_dataset(part.folder)
    cursors = {}
    for number in np.unique(rows["split"]).tolist():
        own = rows["record"][rows["split"] == number]
        cursors[number] = _SplitCursor(dataset[job.splits.names[number]].view.shards, own, job)
    try:
        yield from _iter_pieces(job, rows, paths, cursors)
    finally:
        for cursor in cursors.values():
            cursor.close()


def _iter_pieces(
    job: ConversionJob, rows: Any, paths: list[bytes], cursors: dict[int, _SplitCursor]
) -> Iterator[EncodedRows]:
    frames: list[bytes] = []
    lengths: list[Any] = []
    lines: list[pa.Table] = []
    begin = at = n_bytes = 0
    splits = rows["split"]
    stops = np.flatnonzero(np.append(splits[1:] != splits[:-1], True)) + 1
    for stop in stops.tolist():
        while at < stop:
            data, framed, table = cursors[int(splits[at])].take(stop - at)
            frames.append(data)
            lengths.append(framed)
            lines.append(table)
            at += len(framed)
            n_bytes += len(data)
            if n_bytes >= _PIECE_BYTES or at == len(rows):
                yield _build_rows(job, rows[begin:at], paths, frames, lengths, lines)
                frames, lengths, lines, begin, n_bytes = [], [], [], at, 0


def _build_rows(
    job: ConversionJob, rows: Any, paths: list[bytes], frames: list[bytes], lengths: list[Any], lines: list[pa.Table]
) -> EncodedRows:
    stratified = job.splits.stratify is not None
    used, which = np.unique(rows["path"], return_inverse=True)
    table = pa.concat_tables(lines, promote_options="permissive")
    return EncodedRows(
        b"".join(frames),
        np.concatenate(lengths).astype(np.int64),
        np.zeros(len(rows), np.uint8) if stratified else np.array(rows["split"]),
        keys=np.array(rows["key"]) if job.shuffle else None,
        strata=np.array(rows["stratum"]) if stratified else None,
        hashes=np.array(rows["hash"]) if stratified else None,
        index={name: table[f"index:{name}"].combine_chunks() for name in job.index},
        origins=RowOrigins(
            [paths[number] for number in used.tolist()],
            which.astype(np.uint32),
            *[np.array(rows[name]) for name in ("position", "line", "copy")],
        ),
    )


class _SplitCursor:
    """Copies some records of a split, a few at a time."""

    def __init__(self, shards: Any, records: Any, job: ConversionJob) -> None:
        chosen = SubsetSampler(EpochOrder("sequential", len(records)), normalize_selection(np.array(records)))
        sequence = RecordSequence(shards, chosen)
        self._copier = RecordCopier(sequence, job.schema, job.index, BufferRing())
        self._windows = self._copier.windows(RecordRange(sequence, 0, len(records)))
        self._at = 0
        self._window: tuple[Any, Any, Any, pa.Table] | None = None

    def take(self, most: int) -> tuple[bytes, Any, pa.Table]:
        """Up to `most` of the next records: their frames, lengths and index rows."""
        if self._window is None:
            frames, lengths, table = next(self._windows)
            self._window, self._at = (frames, lengths, np.concatenate([[0], np.cumsum(lengths)]), table), 0
        frames, lengths, bounds, table = self._window
        first, last = self._at, min(self._at + most, len(lengths))
        taken = bytes(frames[int(bounds[first]) : int(bounds[last])])
        self._at = last
        if last == len(lengths):
            self._window = None
        return taken, lengths[first:last], table.slice(first, last - first)

    def close(self) -> None:
        self._copier.__exit__(None, None, None)
