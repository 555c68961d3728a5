"""An existing shard as a shard of a dataset: every record verified and decoded, its digest, and its index."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord import _core
from rekord.codec.columns import Column, Optional, Ragged, column_to_arrow
from rekord.codec.plan import compile_plan
from rekord.conversion.shards import CompletedShard
from rekord.dataset.index import Count, encode_index_file
from rekord.dataset.manifest import tag_digest
from rekord.dataset.read import next_frames
from rekord.dataset.readers.pipeline import BatchDecoder
from rekord.dataset.readers.sequential import FileSegment
from rekord.dataset.shard_index import file_changed_error, find_seekable_points, read_stamp
from rekord.errors import RekordError, error
from rekord.framing.frames import SlabReader
from rekord.location import Location
from rekord.schema import Schema
from rekord.storage.local import LOCAL, Readable, Storage

if TYPE_CHECKING:
    from rekord.framing.inflate import ByteSource

_MAX_ROWS = 8192  # decoded at once
_DRAIN_BYTES = 1 << 16


class AdoptedShard(CompletedShard, frozen=True, kw_only=True):
    """The facts about a shard that another tool wrote."""

    compression: str
    is_sequential_only: bool  # compressed, without places where reading can start
    id_ranges: dict[str, tuple[int, Count]]  # least and greatest class id of each label column


@dataclass(frozen=True, kw_only=True)
class ShardScan:
    """How to read the shards: all columns are decoded, those of `index` are kept.

    `ids` are the class ids that a label column may have. With `strict`, a key that the schema lacks is an error.
    """

    schema: Schema
    index: tuple[str, ...] = ()
    strict: bool = False
    ids: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    storage: Storage = LOCAL

    def run(self, path: str, on_bytes: Callable[[int], object]) -> tuple[AdoptedShard, bytes]:
        """The facts about a shard and the bytes of its index. `on_bytes` is called with the bytes read."""
        stamp = read_stamp(path)
        pool = _core.Pool(0)
        decoder = BatchDecoder(compile_plan(self.schema, None, strict=self.strict), pool)
        offsets: list[Any] = [np.zeros(0, np.uint64)]
        tables: list[pa.Table] = []
        ranges: dict[str, tuple[int, int]] = {}
        file = _HashingFile(self.storage.open_read(path), on_bytes)
        with SlabReader(file, path=path, sized=True, pool=pool, reuse=True) as reader:
            while (segment := next_frames(reader, _MAX_ROWS)) is not None:
                offsets.append(_core.frame_offsets(segment.slab, segment.begin, segment.end, segment.offset))
                piece = FileSegment(path, segment)
                batch = decoder.decode(piece)
                for name, allowed in self.ids.items():
                    self._check_ids(name, batch[name], allowed, piece, ranges)
                if self.index:
                    tables.append(pa.table({f"index:{name}": column_to_arrow(batch[name]) for name in self.index}))
            compression, framed_bytes = reader.compression, reader.offset
            file.drain()
        now = read_stamp(path)
        if now != stamp:
            raise file_changed_error(path, stamp, now)
        whole = np.concatenate(offsets).astype(np.int64)
        points = () if compression == "none" else find_seekable_points(path, compression, whole, stamp[0])
        digest = tag_digest(file.digest.hexdigest())
        made = encode_index_file(self.schema, self.index, whole, tables, points, digest)
        facts = AdoptedShard(
            records=len(whole),
            framed_bytes=framed_bytes,
            file_bytes=stamp[0],
            digest=digest,
            index=made.checksums,
            classes=made.classes,
            blocks=made.blocks,
            compression=compression,
            is_sequential_only=points is None,
            id_ranges=ranges,
        )
        return facts, made.data

    def _check_ids(
        self,
        name: str,
        column: Column,
        allowed: npt.NDArray[np.int64],
        piece: FileSegment,
        ranges: dict[str, tuple[int, int]],
    ) -> None:
        ids, rows = _present_values(column)
        if not len(ids):
            return
        wrong = np.flatnonzero(~np.isin(ids, allowed))
        if len(wrong):
            raise unknown_class_error(name, int(ids[wrong[0]]), allowed, piece.where(int(rows[wrong[0]])))
        least, most = ranges.get(name, (int(ids[0]), int(ids[0])))
        ranges[name] = min(least, int(ids.min())), max(most, int(ids.max()))


def _present_values(column: Column) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The values of an integer column, flat, and the row of each."""
    if isinstance(column, Ragged):
        values, rows = np.asarray(column.values), np.repeat(np.arange(len(column)), column.lengths)
    else:
        values = column.values if isinstance(column, Optional) else np.asarray(column)
        rows = np.repeat(np.arange(len(column)), int(np.prod(values.shape[1:])))
    if getattr(column, "valid", None) is not None:
        present = np.asarray(column.valid)[rows]  # type: ignore[union-attr]
        return values.reshape(-1)[present], rows[present]
    return values.reshape(-1), rows


def unknown_class_error(name: str, found: int, allowed: npt.NDArray[np.int64], where: Location) -> RekordError:
    """The error for a class id that has no name."""
    first, last = int(allowed[0]), int(allowed[-1])
    one_based = first == 0 and found == last + 1
    return error(
        "X588",
        f"class id {found} of `{name[:60]}` has no name",
        location=where.within(feature=name),
        expected=f"one of the {len(allowed):,} class ids from {first} to {last}",
        found=str(found),
        likely="the class ids of these records start at 1" if one_based else None,
        do="add a first name for class 0, such as background, to label_map="
        if one_based
        else f"add class {found} to label_map=, or correct the records",
    )


class _HashingFile:
    """A file whose SHA-256 is computed while it is read from start to end."""

    def __init__(self, file: Readable, on_bytes: Callable[[int], object]) -> None:
        self.digest = hashlib.sha256()
        self._file = file
        self._on_bytes = on_bytes

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def readinto(self, buffer: bytearray | memoryview, /) -> int:
        count = self._file.readinto(buffer)
        self.digest.update(memoryview(buffer)[:count])
        self._on_bytes(count)
        return count

    def seek(self, offset: int, /) -> int:
        raise AssertionError("the file is read from start to end")

    def drain(self) -> None:
        """Read the rest, such as the padding after the last gzip member."""
        buffer = bytearray(_DRAIN_BYTES)
        while self.readinto(buffer):
            pass

    def close(self) -> None:
        self._file.close()


if TYPE_CHECKING:
    _: type[ByteSource] = _HashingFile
