"""Splits as Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rekord import _core
from rekord.codec.arrow import column_to_arrow
from rekord.codec.assemble import assemble
from rekord.codec.decode import new_batch
from rekord.codec.plan import compile_plan

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
    # Without a record the types are those of a batch of none.
    plan = compile_plan(split.schema, None if columns is None else tuple(columns))
    empty = assemble(plan, new_batch(plan, _core.Pool(0)).take(), 0)
    return pa.table({name: column_to_arrow(column) for name, column in empty.items()})
