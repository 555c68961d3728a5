"""Splits as Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rekord.codec.arrow import column_to_arrow

if TYPE_CHECKING:
    from rekord.dataset.dataset import Split

_ROWS = 8192


def split_to_arrow(split: Split, columns: Sequence[str] | None) -> pa.Table:
    """All records of a split, in file order, as chunks of a table."""
    chunks = [
        pa.RecordBatch.from_pydict({name: column_to_arrow(column) for name, column in batch.items()})
        for batch in split.batches(_ROWS, columns=columns)
    ]
    if chunks:
        return pa.Table.from_batches(chunks)
    names = list(split.schema if columns is None else columns)
    return pa.table({name: pa.nulls(0) for name in names})
