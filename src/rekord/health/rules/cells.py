"""The values of one key in a batch, in contexts or in steps, and the rows that they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.health.keyed import Ints, KeyColumn, KeyedBatch

Mask: TypeAlias = npt.NDArray[np.bool_]
Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Cells:
    """One cell a record, or one a step: `lists` then says where the steps of each record begin."""

    column: KeyColumn
    lists: Ints | None = None

    @classmethod
    def of(cls, batch: KeyedBatch, key: str, *, step: bool) -> Cells | None:
        """The cells under a key; None where no record has it."""
        if not step:
            column = batch.context.get(key)
            return None if column is None else cls(column)
        found = batch.steps.get(key)
        return None if found is None else cls(found.steps, found.offsets)

    def records(self, cells: Ints) -> dict[int, int]:
        """The rows of the batch that these cells belong to, each with the first of its cells."""
        if self.lists is None:
            return {cell: cell for cell in cells.tolist()}
        owners = np.searchsorted(self.lists, cells, side="right") - 1
        rows, first = np.unique(owners, return_index=True)
        return dict(zip(rows.tolist(), cells[first].tolist(), strict=True))

    def marked(self, values: Mask) -> dict[int, int]:
        """The cells that have marked values, each with the place of the first one; places of no cell are left out."""
        at = np.flatnonzero(values)
        owners = self.column.owners[at]
        if self.column.valid is not None:
            at, owners = at[owners >= 0], owners[owners >= 0]
        cells, first = np.unique(owners, return_index=True)
        return dict(zip(cells.tolist(), at[first].tolist(), strict=True))

    def steps_of_rows(self) -> Ints:
        """How many steps each row of the batch has."""
        assert self.lists is not None
        return np.diff(self.lists)

    def without(self, rows: Mask) -> Cells:
        """The same cells but for the steps of some rows, which then have none."""
        assert self.lists is not None
        steps = np.where(rows, 0, self.steps_of_rows())
        kept = np.repeat(~rows, self.steps_of_rows())
        counts = np.diff(begins(self.column))
        values = self.column.values
        if isinstance(values, np.ndarray):
            values = values[np.repeat(kept, counts)]
        else:
            flags = np.repeat(kept, counts).tolist()
            values = _core.strings([values.bytes(place) for place, flag in enumerate(flags) if flag])
        column = KeyColumn(self.column.kind, values, _ends(counts[kept]), None)
        return Cells(column, _ends(steps))

    def begin(self, cell: int) -> int:
        """Where the values of a cell begin among all values."""
        return cell if self.column.offsets is None else int(self.column.offsets[cell])

    def step(self, row: int, cell: int) -> int | None:
        """Which step of a row of the batch a cell is; None where it is no step."""
        return None if self.lists is None else cell - int(self.lists[row])


def there(column: KeyColumn | None, rows: int) -> Mask:
    """Which rows have the key."""
    if column is None:
        return np.zeros(rows, np.bool_)
    return np.ones(rows, np.bool_) if column.valid is None else column.valid


def begins(column: KeyColumn) -> Ints:
    """Where the values of each row begin and end, also where the column does without saying it."""
    return np.arange(len(column) + 1, dtype=np.int64) if column.offsets is None else column.offsets


def _ends(counts: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def packed(values: _core.StringColumn) -> tuple[Ints, Array]:
    """(ends, data): the strings end to end; string i is data[ends[i]:ends[i + 1]]."""
    column = values if values.packed else values.pack(_core.Pool(0))
    ends, data = column.buffers()
    return ends, data
