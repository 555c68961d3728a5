"""The index of a shard: where each record begins, its labels, and where readers can enter.

`OUT/.rekord/index/<shard>.arrow` is an Arrow file that is mapped, not read. It has a line for each record:

    offset         of the frame's first byte, in the decompressed stream (uint32 below 4 GiB)
    <column>       for each column that the index keeps
    order:<label>  for each Label column: the numbers of the records, sorted by class

and says in its metadata how many records each class has, the flush points of a compressed shard, and a checksum of
the offsets. An index of somebody else's file has the offsets alone, and says of which file, by its size and time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.dataset.manifest import FOLDER
from rekord.errors import RekordError
from rekord.records.compress import FlushPoint
from rekord.schema import Label, Schema
from rekord.storage.anywhere import ANYWHERE
from rekord.storage.remote import is_remote

if TYPE_CHECKING:
    import pyarrow as pa

Offsets = npt.NDArray[Any]
"""Where frames begin, as uint32 or uint64."""

_OURS = ("offset",)
_ORDER = "order:"
"""Names of the index itself: a column of that name is not kept, and is read from the records where it is needed."""

BLOCK_BYTES = 8 << 20
"""About how many bytes of records lie between two places that the block list names."""


def index_file(
    schema: Schema,
    names: Sequence[str],
    offsets: Any,
    tables: Sequence[pa.Table],
    flush_points: Sequence[FlushPoint],
) -> tuple[bytes, dict[str, dict[str, int]], list[list[int]]]:
    """The bytes of a shard's index, its class counts, and [record, offset] at about every 8 MiB."""
    import pyarrow as pa

    begins = compact(offsets)
    columns: dict[str, Any] = {"offset": pa.array(begins)}
    classes: dict[str, dict[str, int]] = {}
    for name in names:
        values = _column(tables, f"index:{name}")
        if values is None:
            continue
        if name not in _OURS and not name.startswith(_ORDER):
            columns[name] = values
        feature = schema[name]
        if isinstance(feature, Label) and not feature.shape:
            # A record without a label comes last.
            ids = values.fill_null(feature.count).to_numpy(zero_copy_only=False)
            order = np.argsort(ids, kind="stable")
            columns[f"{_ORDER}{name}"] = pa.array(order.astype(np.uint32))
            found, counts = np.unique(ids, return_counts=True)
            classes[name] = {
                str(one): count
                for one, count in zip(found.tolist(), counts.tolist(), strict=True)
                if one < feature.count
            }
    told = Told(
        crc32c=_core.crc32c(begins),
        classes=classes,
        flush_points=[(point.offset, point.compressed_offset) for point in flush_points],
    )
    return _file(columns, told), classes, blocks_of(offsets)


def offsets_file(offsets: Offsets, *, file_bytes: int, mtime_ns: int = 0, compression: str = "none") -> bytes:
    """The bytes of an index that has nothing but offsets, and the file that it is of."""
    import pyarrow as pa

    told = Told(
        crc32c=_core.crc32c(offsets), file_bytes=file_bytes, mtime_ns=mtime_ns, compression=compression
    )
    return _file({"offset": pa.array(offsets)}, told)


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the metadata of an index file says."""

    crc32c: int  # of the offsets
    classes: dict[str, dict[str, int]] = {}
    flush_points: list[tuple[int, int]] | None = None  # None: nobody knows where reading could begin
    file_bytes: int | None = None
    mtime_ns: int = 0
    compression: str = "none"


@dataclass(frozen=True, eq=False)
class IndexFile:
    """An index file that is whole in itself; whether it fits its shard is another question."""

    offsets: Offsets
    table: pa.Table
    told: Told


def index_path(shard: str) -> str:
    """Where the index of a shard lies, in the folder of the shard."""
    folder, name = os.path.split(shard)
    return os.path.join(folder, FOLDER, "index", f"{name}.arrow")


def read_index_file(path: str) -> IndexFile | None:
    """An index file, mapped; None where there is none, or one that is damaged."""
    import pyarrow as pa

    try:
        table = pa.ipc.open_file(_content(path)).read_all()
        told = msgspec.json.decode((table.schema.metadata or {})[b"rekord"], type=Told)
        table.validate(full=True)
        column = table["offset"]
        if column.null_count or column.type not in (pa.uint32(), pa.uint64()):
            return None
        offsets = _numbers(column.combine_chunks())
    except (pa.ArrowException, OSError, KeyError, ValueError, RekordError):
        # No such file, no Arrow file, metadata that is no JSON of ours, or more memory claimed than there is.
        return None
    return IndexFile(offsets, table, told) if _core.crc32c(offsets) == told.crc32c else None


def _numbers(array: Any) -> Offsets:
    """The numbers of an Arrow array without nulls. pyarrow's own conversions to NumPy may import pandas."""
    whole = np.frombuffer(array.buffers()[1] or b"", np.dtype(str(array.type)))
    return whole[array.offset : array.offset + len(array)]


def compact(offsets: Any) -> Offsets:
    """Offsets in numbers of four bytes where those are enough."""
    small = len(offsets) == 0 or int(offsets[-1]) < 1 << 32
    return np.ascontiguousarray(offsets, np.uint32 if small else np.uint64)


def _content(path: str) -> Any:
    import pyarrow as pa

    if not is_remote(path):
        # By its bytes: a name need not be UTF-8. What is mapped stays when the file is closed.
        with pa.memory_map(os.fsencode(path)) as file:
            return file.read_buffer()
    with ANYWHERE.open_read(path) as remote:
        data = bytearray(remote.size_bytes)
        view, filled = memoryview(data), 0
        while filled < len(data) and (count := remote.readinto(view[filled:])):
            filled += count
        return pa.py_buffer(bytes(data[:filled]))


def _file(columns: dict[str, Any], told: Told) -> bytes:
    import pyarrow as pa

    table = pa.table(columns).replace_schema_metadata({"rekord": msgspec.json.encode(told)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _column(tables: Sequence[pa.Table], name: str) -> Any:
    """A column of all rows; None where there are none, and so nothing that says its type."""
    import pyarrow as pa

    chunks = [chunk for table in tables for chunk in table[name].chunks if len(chunk)]
    return pa.concat_arrays(chunks) if chunks else None


def blocks_of(offsets: Any) -> list[list[int]]:
    """The first record of each stretch of BLOCK_BYTES."""
    if len(offsets) == 0:
        return []
    _, firsts = np.unique(offsets // BLOCK_BYTES, return_index=True)
    return [[int(record), int(offsets[record])] for record in firsts.tolist()]
