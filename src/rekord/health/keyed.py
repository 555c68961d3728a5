"""Decoded records as columns by record key: what one pass over files gives to all that look at them.

No schema has a say here. A key holds what its records hold, of whatever kind and in whatever number, and what was
expected of it is compared afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.schema.base import Kind

Ints: TypeAlias = npt.NDArray[np.int64]
Valid: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class KeyColumn:
    """What each of some rows has under one key.

    `values` are all rows' values one behind another: an int64 or float32 array, or the byte strings. Row i has
    those from `offsets[i]` to `offsets[i + 1]`; without offsets every row has exactly one place in `values`.
    `valid` is False where a row does not have the key, or has it without a kind; without it every row has it. The
    place that such a row takes among values without offsets means nothing.
    """

    kind: Kind
    values: Any
    offsets: Ints | None
    valid: Valid | None

    def __len__(self) -> int:
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    @cached_property
    def counts(self) -> Ints:
        """How many values each row has; 0 where it does not have the key."""
        if self.offsets is not None:
            counts = np.diff(self.offsets)
            return counts if self.valid is None else np.where(self.valid, counts, 0)
        if self.valid is not None:
            return self.valid.astype(np.int64)
        return np.ones(len(self.values), np.int64)

    @property
    def present(self) -> int:
        """How many rows have the key."""
        return len(self) if self.valid is None else int(np.count_nonzero(self.valid))

    @cached_property
    def owners(self) -> Ints:
        """The row that each value belongs to; -1 for the places of rows that have none."""
        rows = np.arange(len(self), dtype=np.int64)
        if self.offsets is not None:
            return np.repeat(rows, np.diff(self.offsets))
        return rows if self.valid is None else np.where(self.valid, rows, -1)

    def has(self, row: int) -> bool:
        """Whether a row has the key."""
        return self.valid is None or bool(self.valid[row])

    def value(self, row: int) -> Any:
        """One row's values: an array, or a list of bytes; None where it has none."""
        if not self.has(row):
            return None
        begin, end = (row, row + 1) if self.offsets is None else map(int, self.offsets[row : row + 2])
        if isinstance(self.values, _core.StringColumn):
            return self.values.list_bytes(begin, end)
        return self.values[begin:end]


@dataclass(frozen=True, eq=False)
class StepColumn:
    """The steps that each of some rows has under one key of a SequenceExample's feature lists.

    `steps` has one row a step, without values where a step has no kind; row i of the batch has those from
    `offsets[i]` to `offsets[i + 1]`. `valid` is False where a record does not have the list; without it all have it.
    """

    steps: KeyColumn
    offsets: Ints
    valid: Valid | None

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, eq=False)
class KeyedBatch:
    """Some records of one file whose keys agree on their kinds. Every column has as many rows as `records`.

    Records come in the order of the file within a batch; those of other kinds are in batches of their own. The
    columns may be kept: nothing overwrites them.
    """

    path: str
    records: Ints  # the number of each row's record in its file
    offsets: Ints  # where its frame begins in the decompressed stream
    payload_bytes: Ints
    context: dict[str, KeyColumn]
    steps: dict[str, StepColumn]
    sequence: bool  # SequenceExamples, whose `context` is their context; else Examples

    def __len__(self) -> int:
        return len(self.records)
