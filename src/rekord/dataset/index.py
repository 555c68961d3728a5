"""The index of a shard: where each record begins, its labels, and where readers can enter.

`OUT/.rekord/index/<shard>.arrow` is an Arrow file with a record batch for every 65,536 records, a chunk:

    "ARROW1" 0 0 | schema | chunk 0 | chunk 1 | … | end | checksums | footer | footer size | "ARROW1"
                                                          │
                 "rkindex2" | count | crc32c of the rest | crc32c of chunk 0 | … | 0 0 0 0 | crc32c of these

    offset         of the frame's first byte, in the decompressed stream (uint32 below 4 GiB)
    <column>       for each column that the index keeps
    order:<label>  for each Label column: the numbers of the records in the shard, sorted by class

Its metadata identifies its shard, and has the number of records of each class and the flush points of a compressed
shard. The manifest holds the same checksums, and only those count for a shard that it lists. An index of a file from
another writer only has offsets, identifies the file by its size and time, and is verified by its own checksums.

An index is hostile like any file. It is read, never mapped; the positions of its chunks are found by a few bounded
steps; nothing is given to Arrow before its checksum was compared, nor with compressed buffers, nor of a type that no
index has. A chunk is verified whenever it is read.
"""

from __future__ import annotations

import os
import stat as modes
import struct
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.framing.deflate import FlushPoint
from rekord.schema import Feature, Schema
from rekord.storage.portability import open_to_read, pread

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

METADATA_FOLDER = ".rekord"

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

Offsets = npt.NDArray[Any]
"""Where frames begin, as uint32 or uint64."""

Stamp: TypeAlias = "tuple[int, int, tuple[int, int]]"
"""The size of a file in bytes, the time of its last change, and which file it is."""

_OFFSET = "offset"
_ORDER = "order:"
"""Names that the index uses itself: a column of that name is not kept, but read from the records."""

CHUNK_RECORDS = 1 << 16
CHUNK_CACHE_BYTES = 64 << 20

BLOCK_BYTES = 8 << 20
"""Approximate distance in bytes between two entries of the block list."""

_MAGIC = b"ARROW1"
_TAIL = struct.Struct("<i6s")
_CHECKSUMS_MAGIC = b"rkindex2"
_MAX_CHUNK_BYTES = 1 << 30
_MAX_METADATA_BYTES = 1 << 20
_FRAMING_BYTES = 16
_BLOCK_RECORDS = 1 << 10
_MAX_BLOCK_LOOKUPS = 32
"""If more records of a chunk are needed, the whole chunk is read."""


class IndexMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of an index file."""

    records: Count
    shard: str | None = None  # the digest of its shard
    classes: dict[str, dict[str, Count]] = {}
    flush_points: list[tuple[Count, Count]] | None = None  # None: unknown
    file_bytes: Count | None = None
    mtime_ns: int = 0
    compression: str = "none"


@dataclass(frozen=True, slots=True)
class EncodedIndex:
    """The bytes of an index, and what the manifest records about it."""

    data: bytes
    checksums: list[int]
    classes: dict[str, dict[str, int]]
    blocks: list[tuple[int, int]]  # record and offset at about every 8 MiB


@dataclass(frozen=True, slots=True)
class IndexExpectation:
    """What is known of an index before it is read; None is unknown.

    `most_bytes` is the length of the shard's stream, or a bound for it: text in an index is text of the records.
    """

    most_bytes: int
    records: int | None = None
    checksums: Sequence[int] | None = None
    digest: str | None = None
    features: Mapping[str, Feature] | None = None


class IndexMismatch(Exception):
    """An index is invalid. Users never see this: there is a fallback, or it becomes an X547."""


def parse_frame_size(header: bytes) -> int:
    """The size of the frame that begins with a header."""
    return int.from_bytes(header[:8], "little") + _FRAMING_BYTES


def encode_index_file(
    schema: Schema,
    names: Sequence[str],
    offsets: Any,
    tables: Sequence[pa.Table],
    flush_points: Sequence[FlushPoint] | None,
    digest: str,
) -> EncodedIndex:
    """The index of a shard; `tables` have a column `index:<name>` for each of the names.

    `flush_points` are None for a compressed shard that can only be read from its start.
    """
    import pyarrow as pa

    columns: dict[str, Any] = {_OFFSET: pa.array(compact_offsets(offsets))}
    classes: dict[str, dict[str, int]] = {}
    for name in names:
        values = _concat_column(tables, f"index:{name}")
        if values is None:
            continue
        feature = schema[name]
        if not is_reserved_column(name) and _is_expected_field(pa.field(name, values.type), {name: feature}):
            columns[name] = values
        if feature.class_count is not None and not feature.shape:
            # A record without a label comes last.
            ids = values.fill_null(feature.class_count).to_numpy(zero_copy_only=False)
            order = np.argsort(ids, kind="stable")
            columns[f"{_ORDER}{name}"] = pa.array(order.astype(np.uint32))
            found, counts = np.unique(ids, return_counts=True)
            classes[name] = {
                str(one): count
                for one, count in zip(found.tolist(), counts.tolist(), strict=True)
                if one < feature.class_count
            }
    facts = IndexMetadata(
        records=len(offsets),
        shard=digest,
        classes=classes,
        flush_points=None
        if flush_points is None
        else [(point.offset, point.compressed_offset) for point in flush_points],
    )
    data, checksums = _encode_file(columns, facts)
    return EncodedIndex(data, checksums, classes, compute_blocks(offsets))


def encode_offsets_file(
    offsets: Offsets,
    file_bytes: int,
    mtime_ns: int = 0,
    compression: str = "none",
    flush_points: Sequence[FlushPoint] | None = None,
) -> bytes:
    """The bytes of an index with offsets only, and the size and time of its file."""
    import pyarrow as pa

    points = None if flush_points is None else [(one.offset, one.compressed_offset) for one in flush_points]
    facts = IndexMetadata(
        records=len(offsets),
        flush_points=points,
        file_bytes=file_bytes,
        mtime_ns=mtime_ns,
        compression=compression,
    )
    return _encode_file({_OFFSET: pa.array(offsets)}, facts)[0]


def is_reserved_column(name: str) -> bool:
    """Whether a column cannot be kept because the index uses its name."""
    return name == _OFFSET or name.startswith(_ORDER)


def index_path(shard: str) -> str:
    """The path of the index of a shard."""
    folder, name = os.path.split(shard)
    return os.path.join(folder, METADATA_FOLDER, "index", f"{name}.arrow")


def compact_offsets(offsets: Any) -> Offsets:
    """Offsets as uint32 if they fit, else as uint64."""
    small = len(offsets) == 0 or int(offsets[-1]) < 1 << 32
    return np.ascontiguousarray(offsets, np.uint32 if small else np.uint64)


def compute_blocks(offsets: Any) -> list[tuple[int, int]]:
    """The first record of every BLOCK_BYTES bytes, with its offset."""
    if len(offsets) == 0:
        return []
    _, firsts = np.unique(offsets // BLOCK_BYTES, return_index=True)
    return [(int(record), int(offsets[record])) for record in firsts.tolist()]


# Reading


class IndexFile:
    """An index file whose chunks are read and verified when they are used. Thread-safe."""

    def __init__(
        self,
        path: str,
        stamp: Stamp,
        facts: IndexMetadata,
        schema: pa.Schema,
        chunks: Sequence[tuple[int, int]],
        checksums: Sequence[int],
        *,
        most_bytes: int,
        columns: Sequence[str] = (),
        content: bytes | None = None,
    ) -> None:
        self.path = path
        self._max_bytes = most_bytes
        self.stamp = stamp
        self.facts = facts
        self.schema = schema
        self._chunks = chunks
        self._checksums = checksums
        self.columns = tuple(columns)
        """The columns that it keeps, where their types are known."""
        self._content = content
        self._whole: bool | None = None
        self._blocks: dict[int, _OffsetBlocks] = {}

    @property
    def records(self) -> int:
        return self.facts.records

    def is_intact(self) -> bool:
        """Whether all chunks match their checksums, verified once."""
        if self._whole is None:
            try:
                with _open_content(self.path, self._content) as (file, _):
                    for number in range(len(self._chunks)):
                        if not _chunk_cache.has(self._key(number)):
                            self._verify(file, number)
                self._whole = True
            except (IndexMismatch, OSError):
                self._whole = False
        return self._whole

    def chunk(self, number: int) -> pa.RecordBatch:
        """The records from `number * CHUNK_RECORDS` on; IndexMismatch if the chunk is damaged."""
        key = self._key(number)
        found = _chunk_cache.get(key)
        if found is None:
            found, size_bytes = self._read_chunk(number)
            _chunk_cache.put(key, found, size_bytes)
        return found

    def offsets(self, number: int) -> Offsets:
        """The offsets of a chunk, kept without its columns: random access needs those of many chunks."""
        key = (*self._key(number), _OFFSET)
        found: Offsets | None = _chunk_cache.get(key)
        if found is None:
            found = arrow_to_numpy(self._read_chunk(number)[0].column(0)).copy()
            _chunk_cache.put(key, found, found.nbytes)
        return found

    def get_offsets(self, records: Any) -> Any:
        """The offsets of some records, in any order.

        They may touch more chunks than fit in the cache. Of a chunk that was verified before, only the required
        blocks are read again, and compared with checksums computed then.
        """
        out = np.empty(len(records), np.int64)
        order = np.argsort(records)
        ascending = records[order]
        chunks, firsts = np.unique(ascending // CHUNK_RECORDS, return_index=True)
        edges = [*firsts.tolist(), len(records)]
        try:
            with _open_content(self.path, self._content) as (file, _):
                for i, number in enumerate(chunks.tolist()):
                    here = order[edges[i] : edges[i + 1]]
                    places = ascending[edges[i] : edges[i + 1]] - number * CHUNK_RECORDS
                    blocks = self._blocks.get(number)
                    if blocks is None or len(places) > _MAX_BLOCK_LOOKUPS or self._has_offsets(number):
                        out[here] = self.offsets(number)[places]
                    else:
                        out[here] = blocks.read(file, places)
        except OSError as failure:
            raise IndexMismatch(str(failure)) from failure
        return out

    def _has_offsets(self, number: int) -> bool:
        return _chunk_cache.has((*self._key(number), _OFFSET))

    def _read_chunk(self, number: int) -> tuple[pa.RecordBatch, int]:
        """A chunk, verified, and the bytes that it takes."""
        try:
            with _open_content(self.path, self._content) as (file, _):
                data = self._verify(file, number)
        except OSError as failure:
            raise IndexMismatch(str(failure)) from failure
        rows = min(CHUNK_RECORDS, self.records - number * CHUNK_RECORDS)
        batch = _decode_record_batch(data, self.schema, rows)
        offsets = arrow_to_numpy(batch.column(0)).astype(np.int64)
        if int(offsets[-1]) + _FRAMING_BYTES > self._max_bytes or (np.diff(offsets) < _FRAMING_BYTES).any():
            raise IndexMismatch("offsets of another file")
        if number not in self._blocks:
            self._blocks[number] = _OffsetBlocks.of(data, self._chunks[number][0], batch.column(0))
        return batch, len(data)

    def _key(self, number: int) -> tuple[Any, ...]:
        return self.path, self.stamp, self._checksums[0], self._checksums[number + 1], number

    def _verify(self, file: int | bytes, number: int) -> bytes:
        begin, end = self._chunks[number]
        data = _read_range(file, begin, end)
        if _core.crc32c(data) != self._checksums[number + 1]:
            raise IndexMismatch(f"wrong checksum of chunk {number:,}")
        return data


@dataclass(frozen=True, slots=True)
class _OffsetBlocks:
    """The position of a chunk's offsets in the file, and a checksum per 1,024 offsets: 1 byte per 256 records."""

    begin: int
    size_bytes: int
    kind: Any
    checksums: Any

    @classmethod
    def of(cls, data: bytes, chunk_begin: int, column: Any) -> _OffsetBlocks:
        """The blocks of a verified chunk; `column` is its column of offsets, a view of the same bytes."""
        import pyarrow as pa

        values = arrow_to_numpy(column)
        begin = column.buffers()[1].address - pa.py_buffer(data).address + column.offset * values.itemsize
        step = _BLOCK_RECORDS * values.itemsize
        whole = values.tobytes()
        checksums = [_core.crc32c(whole[i : i + step]) for i in range(0, len(whole), step)]
        return cls(chunk_begin + begin, values.nbytes, values.dtype, np.array(checksums, np.uint32))

    def read(self, file: int | bytes, places: Any) -> list[int]:
        """The offsets at some positions of the chunk, from blocks that have not changed."""
        width = int(self.kind.itemsize)
        out = []
        current, data = -1, b""
        for place in places.tolist():  # these ascend
            block, inside = divmod(place, _BLOCK_RECORDS)
            if block != current:
                begin = self.begin + block * _BLOCK_RECORDS * width
                end = min(begin + _BLOCK_RECORDS * width, self.begin + self.size_bytes)
                current, data = block, _read_range(file, begin, end)
                if _core.crc32c(data) != self.checksums[block]:
                    raise IndexMismatch(f"wrong checksum of block {block:,}")
            out.append(int.from_bytes(data[inside * width : (inside + 1) * width], "little"))
        return out


class ByteLimitedCache:
    """The values that were used last, at most `most_bytes` of them. Thread-safe, and usable after a fork."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.cached_bytes = 0
        self._kept: OrderedDict[tuple[Any, ...], tuple[Any, int]] = OrderedDict()
        self._process = os.getpid()
        self._lock = Lock()

    def has(self, key: tuple[Any, ...]) -> bool:
        return key in self._kept

    def get(self, key: tuple[Any, ...]) -> Any:
        with self._locked():
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: tuple[Any, ...], value: Any, size_bytes: int) -> None:
        if size_bytes > self.most_bytes:
            return
        with self._locked():
            before = self._kept.pop(key, (None, 0))
            self._kept[key] = value, size_bytes
            self.cached_bytes += size_bytes - before[1]
            while self.cached_bytes > self.most_bytes:
                self.cached_bytes -= self._kept.popitem(last=False)[1][1]

    def clear(self) -> None:
        with self._locked():
            self._kept.clear()
            self.cached_bytes = 0

    def _locked(self) -> Lock:
        if self._process != os.getpid():  # the lock may have been held when the process was forked
            self._process, self._lock = os.getpid(), Lock()
        return self._lock


_chunk_cache = ByteLimitedCache(CHUNK_CACHE_BYTES)


def open_index_file(path: str, expected: IndexExpectation, content: bytes | None = None) -> IndexFile | None:
    """An index file, with everything except its chunks verified; None if it is missing or not the expected one.

    `content` is the whole file, if it was fetched from remote storage.
    """
    try:
        with _open_content(path, content) as (file, stamp):
            return _open_validated(path, file, stamp, expected)
    except (IndexMismatch, OSError, struct.error, msgspec.MsgspecError, ValueError, RecursionError, MemoryError):
        return None


def _open_validated(path: str, file: int | bytes, stamp: Stamp, expected: IndexExpectation) -> IndexFile:
    """The layout is read from unverified bytes; the checksums then show whether it was right."""
    size_bytes = stamp[0]
    if size_bytes < _TAIL.size:
        raise IndexMismatch("no footer")
    footer_bytes, magic = _TAIL.unpack(_read_range(file, size_bytes - _TAIL.size, size_bytes))
    footer_at = size_bytes - _TAIL.size - footer_bytes
    most_rest_bytes = _MAX_METADATA_BYTES + expected.most_bytes // 8 + 64 * (expected.records or 0)
    if magic != _MAGIC or not 0 < footer_bytes <= most_rest_bytes or footer_at < 0:
        raise IndexMismatch("no footer")
    footer = _read_range(file, footer_at, size_bytes)
    chunks = _find_batch_extents(footer, footer_at)
    own_at = footer_at - _checksums_size(len(chunks))
    first, after = (chunks[0][0], chunks[-1][1]) if chunks else (own_at, own_at)
    if not 0 < first <= after <= own_at or first + own_at - after > most_rest_bytes:
        raise IndexMismatch("chunks out of place")
    head, end = _read_range(file, 0, first), _read_range(file, after, own_at)
    checksums = expected.checksums
    if checksums is None:
        checksums = _decode_checksums(_read_range(file, own_at, footer_at), len(chunks))
    if len(checksums) != len(chunks) + 1 or _core.crc32c(head + end + footer) != checksums[0]:
        raise IndexMismatch("wrong checksum")
    schema, facts = _read_schema(head, expected)
    if len(chunks) != -(-facts.records // CHUNK_RECORDS):
        raise IndexMismatch("wrong number of chunks")
    columns = () if expected.features is None else [name for name in schema.names if not is_reserved_column(name)]
    content = file if isinstance(file, bytes) else None
    most_bytes = expected.most_bytes
    return IndexFile(
        path, stamp, facts, schema, chunks, checksums, most_bytes=most_bytes, columns=columns, content=content
    )


def _read_schema(head: bytes, expected: IndexExpectation) -> tuple[pa.Schema, IndexMetadata]:
    """The columns and the metadata of an index, if it belongs to the expected shard."""
    import pyarrow as pa

    try:
        schema = pa.ipc.read_schema(pa.py_buffer(head[8:]))
    except pa.ArrowException as failure:
        raise IndexMismatch(str(failure)) from failure
    facts = msgspec.json.decode((schema.metadata or {}).get(b"rekord", b""), type=IndexMetadata)
    names = schema.names
    if len(set(names)) < len(names) or not names or names[0] != _OFFSET:
        raise IndexMismatch("other columns")
    if schema.field(0).type not in (pa.uint32(), pa.uint64()):
        raise IndexMismatch("offsets of another type")
    # Without known features none of its columns is used.
    if expected.features is not None and not all(
        _is_expected_field(one, expected.features) for one in list(schema)[1:]
    ):
        raise IndexMismatch("a column of another type")
    if expected.records not in (None, facts.records) or expected.digest not in (None, facts.shard):
        raise IndexMismatch("an index of another shard")
    if facts.records * _FRAMING_BYTES > expected.most_bytes:
        raise IndexMismatch("more records than fit into the shard")
    if not all(key.isascii() and key.isdigit() for one in facts.classes.values() for key in one):
        raise IndexMismatch("class ids that are not numbers")
    return schema, facts


def _is_expected_field(field: pa.Field, features: Mapping[str, Feature]) -> bool:
    """Whether an index may have this column for the feature of its name."""
    import pyarrow as pa

    kinds = pa.types
    if field.name.startswith(_ORDER):
        by = features.get(field.name[len(_ORDER) :])
        return by is not None and by.class_count is not None and field.type == pa.uint32()
    feature, inner, depth = features.get(field.name), field.type, 0
    while kinds.is_list(inner) or kinds.is_large_list(inner) or kinds.is_fixed_size_list(inner):
        inner, depth = inner.value_type, depth + 1
    if feature is None or depth != len(feature.shape):
        return False
    if feature.storage == "parallel" or (feature.storage == "blob" and feature.dtype is not None):
        return False
    if feature.kind == "float":
        return bool(kinds.is_floating(inner))
    if feature.kind == "int64" and feature.dtype.kind == "M":
        return bool(kinds.is_timestamp(inner))
    if feature.kind == "int64":
        return bool(kinds.is_integer(inner) or kinds.is_boolean(inner))
    if feature.is_text:
        return bool(kinds.is_string(inner) or kinds.is_large_string(inner))
    return bool(kinds.is_binary(inner) or kinds.is_large_binary(inner))


def _decode_record_batch(data: bytes, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """A decoded chunk with exactly this many rows, in uncompressed buffers."""
    import pyarrow as pa

    try:
        message = pa.ipc.read_message(pa.py_buffer(data))
        check_uncompressed(message.metadata.to_pybytes(), rows)
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
    except (pa.ArrowException, ValueError, OSError) as failure:
        raise IndexMismatch(str(failure)) from failure
    if batch.num_rows != rows or batch.column(0).null_count:
        raise IndexMismatch("wrong number of rows")
    return batch


def arrow_to_numpy(array: Any) -> Offsets:
    """The numbers of an Arrow array without nulls. `to_numpy` may import pandas, which is slow."""
    kind = np.dtype(f"{'u' if str(array.type)[0] == 'u' else ''}int{array.type.bit_width}")
    whole = np.frombuffer(array.buffers()[1] or b"", kind)
    return whole[array.offset : array.offset + len(array)]


@contextmanager
def _open_content(path: str, content: bytes | None) -> Iterator[tuple[int | bytes, Stamp]]:
    if content is not None:
        yield content, (len(content), 0, (0, 0))
        return
    # By its bytes: a name need not be UTF-8. A pipe is not waited for, and is not an index.
    descriptor = open_to_read(os.fsencode(path))
    try:
        found = os.fstat(descriptor)
        if not modes.S_ISREG(found.st_mode):
            raise IndexMismatch("not a file")
        yield descriptor, (found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino))
    finally:
        os.close(descriptor)


def _read_range(file: int | bytes, begin: int, end: int) -> bytes:
    """A range of a file, which may have become shorter."""
    if isinstance(file, bytes):
        return file[begin:end]
    data = pread(file, end - begin, begin)
    if len(data) < end - begin:
        raise IndexMismatch("truncated file")
    return data


# The bytes of Arrow: flat tables of little-endian numbers that refer to their parts by relative positions. No number
# is trusted: each step stays within what was read.


class _FlatbufferTable:
    """A flatbuffer table at a position of some bytes."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        vtable = at - self._number("<i", at)
        size_bytes = self._number("<H", vtable)
        self._fields = [self._number("<H", vtable + place) for place in range(4, size_bytes, 2)]

    @classmethod
    def root(cls, data: bytes, at: int = 0) -> _FlatbufferTable:
        return cls(data, at + _unpack_number("<I", data, at))

    def has(self, field: int) -> bool:
        return field < len(self._fields) and self._fields[field] > 0

    def number(self, field: int, kind: str) -> int:
        """A number in the table itself; 0 if it is missing."""
        return self._number(kind, self._at + self._fields[field]) if self.has(field) else 0

    def table(self, field: int) -> _FlatbufferTable:
        """A table that a field points to."""
        return _FlatbufferTable(self._data, self._target(field))

    def vector(self, field: int, item: str) -> list[tuple[int, ...]]:
        """A vector of structs that a field points to."""
        if not self.has(field):
            return []
        at = self._target(field)
        count, size_bytes = self._number("<I", at), struct.calcsize(item)
        if at + 4 + count * size_bytes > len(self._data):
            raise IndexMismatch("list beyond the end")
        return [struct.unpack_from(item, self._data, at + 4 + i * size_bytes) for i in range(count)]

    def _target(self, field: int) -> int:
        if not self.has(field):
            raise IndexMismatch("missing part")
        at = self._at + self._fields[field]
        return at + self._number("<I", at)

    def _number(self, kind: str, at: int) -> int:
        return _unpack_number(kind, self._data, at)


def _unpack_number(kind: str, data: bytes, at: int) -> int:
    if not 0 <= at <= len(data) - struct.calcsize(kind):
        raise IndexMismatch("position beyond the end")
    number: int = struct.unpack_from(kind, data, at)[0]
    return number


def _find_batch_extents(footer: bytes, footer_at: int) -> list[tuple[int, int]]:
    """Where the record batches of a file begin and end, one after another: Footer.recordBatches."""
    blocks = _FlatbufferTable.root(footer).vector(3, "<qi4xq")  # offset, bytes of metadata, bytes of the body
    extents = [(begin, begin + metadata + body) for begin, metadata, body in blocks]
    at = extents[0][0] if extents else 0
    for begin, end in extents:
        if begin != at or not begin < end <= footer_at or end - begin > _MAX_CHUNK_BYTES:
            raise IndexMismatch("chunks out of place")
        at = end
    return extents


def check_uncompressed(metadata: bytes, rows: int | None = None) -> None:
    """Refuse a record batch of the wrong length, or with compressed buffers: a few bytes could become gigabytes."""
    message = _FlatbufferTable.root(metadata)
    batch = message.table(2)  # Message.header
    if message.number(1, "<B") != 3 or batch.has(3) or rows not in (None, batch.number(0, "<q")):
        raise IndexMismatch("not a plain record batch")


def _checksums_size(chunks: int) -> int:
    """The size in bytes of the checksums in the file."""
    return -(-(len(_CHECKSUMS_MAGIC) + 4 + 4 * (chunks + 1) + 4) // 8) * 8


def _decode_checksums(data: bytes, chunks: int) -> list[int]:
    body, checksum = data[:-4], int.from_bytes(data[-4:], "little")
    if not body.startswith(_CHECKSUMS_MAGIC) or _core.crc32c(body) != checksum:
        raise IndexMismatch("no checksums")
    count = int.from_bytes(body[8:12], "little")
    if count != chunks + 1:
        raise IndexMismatch("checksums of another file")
    return list(struct.unpack_from(f"<{count}I", body, 12))


# Writing


def _encode_file(columns: dict[str, Any], facts: IndexMetadata) -> tuple[bytes, list[int]]:
    """The bytes of an index file, and its checksums."""
    import pyarrow as pa

    table = pa.table(columns).replace_schema_metadata({"rekord": msgspec.json.encode(facts)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        if len(table):
            file.write_table(table, max_chunksize=CHUNK_RECORDS)
    return _append_checksums(sink.getvalue().to_pybytes())


def _append_checksums(data: bytes) -> tuple[bytes, list[int]]:
    """An Arrow file with the checksums of its parts, and these."""
    footer_bytes, _ = _TAIL.unpack(data[-_TAIL.size :])
    footer_at = len(data) - _TAIL.size - footer_bytes
    chunks = _find_batch_extents(data[footer_at:], footer_at)
    first, after = (chunks[0][0], chunks[-1][1]) if chunks else (footer_at, footer_at)
    rest = data[:first] + data[after:]
    checksums = [_core.crc32c(rest), *[_core.crc32c(data[begin:end]) for begin, end in chunks]]
    own = _CHECKSUMS_MAGIC + struct.pack(f"<I{len(checksums)}I", len(checksums), *checksums)
    own += bytes(_checksums_size(len(chunks)) - len(own) - 4)
    own += struct.pack("<I", _core.crc32c(own))
    # Arrow ignores bytes between the batches and the footer: it finds both by their positions.
    return data[:footer_at] + own + data[footer_at:], checksums


def _concat_column(tables: Sequence[pa.Table], name: str) -> Any:
    """A column of all rows; None without rows, where its type is unknown."""
    import pyarrow as pa

    chunks = [chunk for table in tables for chunk in table[name].chunks if len(chunk)]
    return pa.concat_arrays(chunks) if chunks else None
