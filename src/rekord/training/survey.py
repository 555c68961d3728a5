"""A look at some records before anything is learned from them: what tells columns apart that have the same type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.codec.columns import Column, Optional, Ragged, SparseColumn, Strings, Valid
from rekord.dataset.split import Split

Array: TypeAlias = "npt.NDArray[Any]"

SURVEYED_RECORDS = 10_000
FIRST_RECORDS = 32

_LEAST_EVIDENCE = 20
"""Of fewer records it may well be chance that two columns go together."""

_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Seen:
    """A column of one value a record. Texts stand here as numbers, equal for equal texts in one process."""

    values: Array
    valid: Valid
    is_text: bool

    @cached_property
    def distinct(self) -> int:
        """How many different values there are."""
        return len(np.unique(self.values[self.valid]))

    @property
    def records(self) -> int:
        """How many records were looked at."""
        return len(self.values)

    @property
    def all_different(self) -> bool:
        """Whether each record has a value of its own."""
        return self.records > 1 and bool(self.valid.all()) and self.distinct == self.records


def sampled(split: Split, most: int) -> Split:
    """All records, or at most so many with equal gaps: the first ones may all be of one class."""
    records = len(split)
    if records <= most:
        return split
    view: Split = split[:: -(-records // most)]
    return view


def first_batch(split: Split, columns: Sequence[str]) -> dict[str, Column]:
    """These columns of the first few records; nothing where there are no records."""
    with iter(split.batches(FIRST_RECORDS, columns=columns, threads=1, prefetch=0)) as batches:
        return next(batches, {})


def survey(split: Split, columns: Sequence[str]) -> dict[str, Seen]:
    """Columns of one value a record, of some thousand records."""
    parts: dict[str, list[tuple[Array, Valid]]] = {name: [] for name in columns}
    texts: set[str] = set()
    if columns:
        for batch in sampled(split, SURVEYED_RECORDS).batches(_ROWS, columns=columns):
            for name in columns:
                column = batch[name]
                if isinstance(column, Strings):
                    texts.add(name)
                parts[name].append((_values(column), valid_rows(column)))
    return {name: _joined(found, name in texts) for name, found in parts.items() if found}


def tells(seen: Seen, target: Seen) -> bool:
    """Whether a column gives the target away: it equals it, or has one value for each class and no other."""
    both = seen.valid & target.valid
    if 2 * int(both.sum()) < seen.records:
        return False
    ours, theirs = seen.values[both], target.values[both]
    values, our_codes = np.unique(ours, return_inverse=True)
    classes, their_codes = np.unique(theirs, return_inverse=True)
    if len(classes) < 2 or len(values) != len(classes):
        return False
    if seen.is_text == target.is_text and np.array_equal(_plain(ours), _plain(theirs)):
        return True
    if len(ours) < _LEAST_EVIDENCE or 2 * len(values) > len(ours):
        return False
    pairs = our_codes.reshape(-1).astype(np.int64) * len(classes) + their_codes.reshape(-1)
    return len(np.unique(pairs)) == len(values)


def valid_rows(column: Column) -> Valid:
    """True for each row that has a value."""
    if isinstance(column, (Optional, Strings, Ragged, SparseColumn)) and column.valid is not None:
        return column.valid
    return np.ones(len(column), np.bool_)


def as_text(value: str | bytes | None) -> str:
    """A stored string as a text; what is no UTF-8 is replaced, and what is missing is empty."""
    if value is None:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _values(column: Column) -> Array:
    if isinstance(column, Strings):
        return np.array([hash(as_text(value)) for value in column.tolist()], np.int64)
    return column.values if isinstance(column, Optional) else np.asarray(column)


def _joined(parts: list[tuple[Array, Valid]], is_text: bool) -> Seen:
    values = np.concatenate([values for values, _ in parts])
    return Seen(values, np.concatenate([valid for _, valid in parts]), is_text)


def _plain(values: Array) -> Array:
    # A label that was copied as a float is still the label; texts are compared as they are.
    with np.errstate(over="ignore"):
        return values.astype(np.float32) if values.dtype.kind == "f" else values
