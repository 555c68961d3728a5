"""The index of a shard: where each record begins, its labels, and where readers can enter.

`OUT/.rekord/index/<shard>.arrow` is an Arrow file that is mapped, not read. It has a line for each record:

    offset         of the frame's first byte, in the decompressed stream (uint32 below 4 GiB)
    <column>       for each column that the index keeps
    order:<label>  for each Label column: the numbers of the records, sorted by class

and says in its metadata how many records each class has, and the flush points of a compressed shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from rekord.records.compress import FlushPoint
from rekord.schema import Label, Schema

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
    small = len(offsets) == 0 or int(offsets[-1]) < 1 << 32
    columns: dict[str, Any] = {"offset": pa.array(offsets.astype(np.uint32 if small else np.uint64))}
    classes: dict[str, dict[str, int]] = {}
    for name in names:
        values = _column(tables, f"index:{name}")
        if values is None:
            continue
        columns[name] = values
        feature = schema[name]
        if isinstance(feature, Label) and not feature.shape:
            # A record without a label comes last.
            ids = values.fill_null(feature.count).to_numpy(zero_copy_only=False)
            order = np.argsort(ids, kind="stable")
            columns[f"order:{name}"] = pa.array(order.astype(np.uint32))
            found, counts = np.unique(ids, return_counts=True)
            classes[name] = {
                str(one): count
                for one, count in zip(found.tolist(), counts.tolist(), strict=True)
                if one < feature.count
            }
    told = {
        "classes": classes,
        "flush_points": [[point.offset, point.compressed_offset] for point in flush_points],
    }
    table = pa.table(columns).replace_schema_metadata({"rekord": msgspec.json.encode(told)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return sink.getvalue().to_pybytes(), classes, _blocks(offsets)


def _column(tables: Sequence[pa.Table], name: str) -> Any:
    """A column of all rows; None where there are none, and so nothing that says its type."""
    chunks = [chunk for table in tables for chunk in table[name].chunks if len(chunk)]
    return pa.concat_arrays(chunks) if chunks else None


def _blocks(offsets: Any) -> list[list[int]]:
    """The first record of each stretch of BLOCK_BYTES."""
    if len(offsets) == 0:
        return []
    _, firsts = np.unique(offsets // BLOCK_BYTES, return_index=True)
    return [[int(record), int(offsets[record])] for record in firsts.tolist()]
