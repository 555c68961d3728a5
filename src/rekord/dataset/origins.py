"""Origins: for each record of a shard, the file and row of the raw data that it was made from.

They are stored next to the index, in one file per shard, `.rekord/origins/<shard>.origins`:

    "rkorig1\\n"                    magic
    SHA-256 of the rest            32 bytes
    length of the header           uint32
    header                         JSON: the digest of the shard, and the sizes of what follows
    columns                        one after another, little-endian, one value per run
    ends of the paths              uint32 each
    paths                          bytes, as the system has them, below the root of the source

A run is a range of records whose rows follow each other in one file. The file says nothing about the records
themselves, so it is no part of the dataset's digest. What does not match its shard is not used.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rekord.dataset.index import METADATA_FOLDER, ByteLimitedCache, Count
from rekord.dataset.manifest import find_shard_entry
from rekord.errors import RekordError
from rekord.storage.local import read_file
from rekord.storage.router import ROUTED_STORAGE, UNREACHABLE_CODES

ORIGINS_FOLDER = "origins"
SYNTHETIC = 0xFFFFFFFF
"""The number of the path of records that no single row was made into, such as those of SMOTE."""

_MAGIC = b"rkorig1\n"
_DIGEST_BYTES = 32
_LENGTH = struct.Struct("<I")
_MAX_FILE_BYTES = 1 << 32
_MAX_CACHED_BYTES = 256 << 20
_COLUMNS = ("record", "path", "position", "line", "copy", "stratum", "hash")
_DTYPES = ("<u4", "<u8")

IntArray = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class RowOrigins:
    """Where rows come from, column by column."""

    paths: list[bytes]
    path: Any  # number in `paths`, or SYNTHETIC
    position: IntArray  # of the row in its file
    line: IntArray  # in a text file, from 1; 0 if unknown
    copy: Any  # which of the rows that were made of one row
    stratum: Any = None  # of stratified splits: the hash of the class, and the one that ranks the row in it
    hash: Any = None

    def __len__(self) -> int:
        return len(self.position)

    def __getitem__(self, rows: Any) -> RowOrigins:
        """Some of the rows: a slice, or their numbers."""
        chosen: dict[str, Any] = {
            name: None if (one := getattr(self, name)) is None else one[rows] for name in _COLUMNS[1:]
        }
        return RowOrigins(self.paths, **chosen)

    def path_of(self, row: int) -> bytes | None:
        number = int(self.path[row])
        return None if number == SYNTHETIC else self.paths[number]


def concat_origins(pieces: Sequence[RowOrigins]) -> RowOrigins:
    """The origins of consecutive rows as one."""
    if len(pieces) == 1:
        return pieces[0]
    numbers: dict[bytes, int] = {}
    paths = []
    for one in pieces:
        own = np.array([numbers.setdefault(path, len(numbers)) for path in one.paths] or [0], np.uint32)
        known = one.path != SYNTHETIC
        paths.append(np.where(known, own[np.where(known, one.path, 0)], np.uint32(SYNTHETIC)).astype(np.uint32))

    def all_of(name: str) -> Any:
        values = [getattr(one, name) for one in pieces]
        return None if not values or any(one is None for one in values) else np.concatenate(values)

    rest = {name: all_of(name) for name in _COLUMNS[2:]}
    if not pieces:
        rest = dict.fromkeys(_COLUMNS[2:5], np.zeros(0, np.int64))
    return RowOrigins(list(numbers), np.concatenate(paths) if paths else np.zeros(0, np.uint32), **rest)


def origins_path(shard: str) -> str:
    """The path of the origins of a shard."""
    folder, name = os.path.split(shard)
    return os.path.join(folder, METADATA_FOLDER, ORIGINS_FOLDER, f"{name}.origins")


def to_plain_text(path: str) -> str:
    """A path as text that JSON can hold: a file name need not be UTF-8."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class OriginRuns:
    """Collects the origins of a shard, as runs: rows in file order take no memory."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._columns: list[dict[str, Any]] = []
        self._last: tuple[int, ...] | None = None  # path, position, line and copy of the last row
        self.records = 0
        self.is_complete = True  # False once rows without origins were added

    def add(self, rows: RowOrigins | None) -> None:
        """Add the next rows."""
        if rows is None or not self.is_complete:
            self.is_complete = False
            return
        if not len(rows):
            return
        # Only paths that occur get a number, in the order in which they do.
        used, firsts, inverse = np.unique(rows.path, return_index=True, return_inverse=True)
        numbers = np.zeros(len(used), np.uint32)
        for at in np.argsort(firsts).tolist():
            number = int(used[at])
            known = SYNTHETIC if number == SYNTHETIC else None
            numbers[at] = self._numbers.setdefault(rows.paths[number], len(self._numbers)) if known is None else known
        path = numbers[inverse]
        # How rows were read in pieces must not show: the first may continue the last run.
        last = self._last or (-1, 0, 0, 0)
        current = [path.astype(np.int64), rows.position, rows.line, rows.copy]
        before = [np.concatenate([[one], column[:-1]]) for one, column in zip(last, current, strict=True)]
        self._last = tuple([int(column[-1]) for column in current])
        stepped = (rows.line - before[2] == 1) | ((rows.line == 0) & (before[2] == 0))
        breaks = (current[0] != before[0]) | (rows.position - before[1] != 1) | ~stepped
        breaks |= (rows.copy != 0) | (before[3] != 0)
        if rows.stratum is not None:
            breaks[:] = True  # every row has hashes of its own
        first = np.flatnonzero(breaks)
        values = {"record": first + self.records, "path": path[first]}
        for name in _COLUMNS[2:]:
            column = getattr(rows, name)
            if column is not None:
                values[name] = column[first]
        self._columns.append(values)
        self.records += len(rows)

    def encode(self, shard_digest: str) -> bytes | None:
        """The file; None if the origins of some rows are unknown."""
        if not self.is_complete:
            return None
        data: list[bytes] = []
        columns: list[tuple[str, str]] = []
        runs = sum(len(one["record"]) for one in self._columns)
        for name in _COLUMNS:
            pieces = [one[name] for one in self._columns if name in one]
            if sum(map(len, pieces)) != runs or not runs:
                continue
            whole = np.concatenate(pieces)
            if name in ("line", "copy") and not whole.any():
                continue
            dtype = _DTYPES[int(whole.max()) > SYNTHETIC]
            columns.append((name, dtype))
            data.append(whole.astype(dtype).tobytes())
        paths = list(self._numbers)
        data.append(np.cumsum([len(path) for path in paths], dtype=np.int64).astype("<u4").tobytes())
        data += paths
        header = msgspec.json.encode(
            _Header(shard=shard_digest, records=self.records, runs=runs, paths=len(paths), columns=columns)
        )
        body = _LENGTH.pack(len(header)) + header + b"".join(data)
        return _MAGIC + hashlib.sha256(body).digest() + body


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    shard: str
    records: Count
    runs: Count
    paths: Count
    columns: list[tuple[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class ShardOrigins:
    """The origins of the records of one shard."""

    records: int
    paths: list[bytes]
    columns: dict[str, Any]  # per run

    def rows(self, records: Any) -> RowOrigins:
        """The origins of some records, by their number in the shard."""
        records = np.asarray(records, np.int64)
        starts = self.columns.get("record", np.zeros(0, np.int64))
        run = np.searchsorted(starts, records, side="right") - 1
        after = records - starts[run]
        line = self._column("line", run)
        return RowOrigins(
            self.paths,
            self._column("path", run).astype(np.uint32),
            self._column("position", run) + after,
            np.where(line > 0, line + after, 0),
            self._column("copy", run),
            *[None if (one := self.columns.get(name)) is None else one[run] for name in ("stratum", "hash")],
        )

    def find_row_files(self) -> frozenset[int]:
        """The numbers of the files of which a row is known that is not the first; another file may be one row."""
        if not self.records:
            return frozenset()
        lengths = np.diff(self.columns["record"], append=self.records)
        position = self._column("position", np.arange(len(lengths)))
        found: list[int] = np.unique(self.columns["path"][(lengths > 1) | (position > 0)]).tolist()
        return frozenset(found)

    def _column(self, name: str, run: Any) -> IntArray:
        if name not in self.columns:
            return np.zeros(len(run), np.int64)
        column: IntArray = self.columns[name][run].astype(np.int64)
        return column


def read_origins(shard: str, digest: str, records: int) -> ShardOrigins | None:
    """The origins of a shard with this digest and number of records; None if they are missing or do not match."""
    try:
        data = read_file(origins_path(shard), ROUTED_STORAGE, most_bytes=_MAX_FILE_BYTES)
        return _parse(data, digest, records)
    except RekordError as failure:
        if failure.code in UNREACHABLE_CODES:
            raise
        return None
    except (OSError, ValueError, IndexError, struct.error, msgspec.MsgspecError):
        return None


def _parse(data: bytes, digest: str, records: int) -> ShardOrigins:
    """The content of a file. Raises ValueError and the like: nothing of it is trusted before its checksum is."""
    begin = len(_MAGIC) + _DIGEST_BYTES
    body = memoryview(data)[begin:]
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != data[len(_MAGIC) : begin]:
        raise ValueError("damaged")
    (length,) = _LENGTH.unpack_from(body)
    at = _LENGTH.size + length
    header = msgspec.json.decode(body[_LENGTH.size : at], type=_Header)
    if header.shard != digest or header.records != records or header.runs > records:
        raise ValueError("of another shard")
    columns: dict[str, Any] = {}
    for name, dtype in header.columns:
        if name not in _COLUMNS or dtype not in _DTYPES or name in columns:
            raise ValueError("unknown column")
        values = np.frombuffer(body, dtype, header.runs, at)
        at += values.nbytes
        columns[name] = values if name in ("stratum", "hash") else values.astype(np.int64)
    ends = np.frombuffer(body, "<u4", header.paths, at).astype(np.int64)
    at += header.paths * 4
    text = bytes(body[at:])
    if header.paths and (int(ends[-1]) != len(text) or (np.diff(ends, prepend=0) < 0).any()):
        raise ValueError("paths of other lengths")
    starts = columns.get("record")
    if records:
        if starts is None or "path" not in columns or int(starts[0]) or (np.diff(starts) <= 0).any():
            raise ValueError("no runs")
        path = columns["path"]
        numbered = path[path != SYNTHETIC]
        if int(starts[-1]) >= records or (len(numbered) and int(numbered.max()) >= header.paths):
            raise ValueError("records or paths that do not exist")
        for name in ("position", "line", "copy"):
            # Runs count on from here.
            if name in columns and not 0 <= int(columns[name].min()) <= int(columns[name].max()) < 1 << 62:
                raise ValueError("numbers out of range")
    bounds = [0, *ends.tolist()]
    paths = [text[first:end] for first, end in pairwise(bounds)]
    return ShardOrigins(records, paths, columns)


_cache = ByteLimitedCache(_MAX_CACHED_BYTES)


def find_origins(shard: str) -> ShardOrigins | None:
    """The origins of a shard that a manifest lists; None if they are unknown."""
    listed = find_shard_entry(shard)
    expected = None if listed is None else listed.expected
    if expected is None or expected.digest is None or expected.records is None:
        return None
    key = (shard, expected.digest)
    found: ShardOrigins | None = _cache.get(key)
    if found is None and (found := read_origins(shard, expected.digest, expected.records)) is not None:
        size_bytes = sum(values.nbytes for values in found.columns.values()) + sum(map(len, found.paths))
        _cache.put(key, found, size_bytes)
    return found


def gather_origins(paths: Sequence[str], shards: Any, records: Any) -> RowOrigins | None:
    """The origins of records by the number of their shard and their number in it; None if some are unknown."""
    order = np.argsort(shards, kind="stable")
    pieces = []
    for shard in np.unique(shards).tolist():
        found = find_origins(paths[shard])
        mine = records[shards == shard]
        if found is None or (len(mine) and int(mine.max()) >= found.records):
            return None
        pieces.append(found.rows(mine))
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return concat_origins(pieces)[back]
