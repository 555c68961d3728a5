"""What a rule of `check` is, the cells it looks at, and how many findings of one sort become a few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.codes import CODES
from rekord.health.finding import Finding, Severity
from rekord.health.key_columns import IntArray, KeyColumn, KeyedBatch, StepColumn

MIN_EVIDENCE_RECORDS = 20
"""With fewer records, nothing is concluded that holds only because no record contradicts it."""

MAX_LISTED_PER_CODE = 20
"""So many findings of one code, feature and file are told one by one; the rest are one finding with a count."""


class CheckRule:
    """Something that records are held against, batch by batch."""

    def __init__(self) -> None:
        self._repeated = RepeatedFindings()
        self._once = DeferredFindings()

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """What is wrong with these records."""
        raise NotImplementedError

    def end_file(self, path: str) -> Iterator[Finding]:
        """What remains to be said after the last batch of a file: what was only counted so far."""
        yield from self._repeated.end_file()
        yield from self._once.end_file()

    def end(self) -> Iterator[Finding]:
        """What remains to be said after the last file."""
        return iter(())

    def _report(
        self,
        batch: KeyedBatch,
        rows: Iterable[int],
        code: str,
        severity: Severity,
        feature: str | None,
        say: Callable[[int], dict[str, Any]],
    ) -> Iterator[Finding]:
        """Errors one by one, up to a number of them; anything less once a file, with how many records share it."""
        if severity == "error":
            yield from self._repeated.report(batch, rows, code, severity, feature, say)
        else:
            self._once.report(batch, list(rows), code, severity, feature, say)


class RepeatedFindings:
    """Findings of one rule in one file: the first few as they are met, the rest counted until the file ends."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str | None], int] = {}
        self._more: dict[tuple[str, str | None], Finding] = {}

    def report(
        self,
        batch: KeyedBatch,
        rows: Iterable[int],
        code: str,
        severity: Severity,
        feature: str | None,
        say: Callable[[int], dict[str, Any]],
    ) -> Iterator[Finding]:
        """A finding for each of the rows; `say` gives what there is to say of one: message, expected, found, …"""
        where = code, feature
        for row in rows:
            told = self._told.get(where, 0)
            if told >= MAX_LISTED_PER_CODE and (more := self._more.get(where)) is not None:
                more.count += 1
                continue
            finding = build_finding(batch, row, code, severity, feature, say(row))
            self._told[where] = told + 1
            if told < MAX_LISTED_PER_CODE:
                yield finding
            else:
                self._more[where] = finding

    def end_file(self) -> Iterator[Finding]:
        """The findings that were only counted, one a code and feature; then begin again."""
        rest = list(self._more.values())
        self._told.clear()
        self._more.clear()
        yield from rest


RowMask: TypeAlias = npt.NDArray[np.bool_]
Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Cells:
    """One cell a record, or one a step: `lists` then says where the steps of each record begin."""

    column: KeyColumn
    lists: IntArray | None = None

    @classmethod
    def of(cls, batch: KeyedBatch, key: str, *, step: bool) -> Cells | None:
        """The cells under a key; None where no record has it."""
        if not step:
            column = batch.context.get(key)
            return None if column is None else cls(column)
        found = batch.steps.get(key)
        return None if found is None else cls(found.steps, found.offsets)

    def records(self, cells: IntArray) -> dict[int, int]:
        """The rows of the batch that these cells belong to, each with the first of its cells."""
        if self.lists is None:
            return {cell: cell for cell in cells.tolist()}
        owners = np.searchsorted(self.lists, cells, side="right") - 1
        rows, first = np.unique(owners, return_index=True)
        return dict(zip(rows.tolist(), cells[first].tolist(), strict=True))

    def marked(self, values: RowMask) -> dict[int, int]:
        """The cells that have marked values, each with the place of the first one; places of no cell are left out."""
        at = np.flatnonzero(values)
        owners = self.column.owners[at]
        if self.column.valid is not None:
            at, owners = at[owners >= 0], owners[owners >= 0]
        cells, first = np.unique(owners, return_index=True)
        return dict(zip(cells.tolist(), at[first].tolist(), strict=True))

    def count_steps(self) -> IntArray:
        """How many steps each row of the batch has."""
        assert self.lists is not None
        return np.diff(self.lists)

    def without(self, rows: RowMask) -> Cells:
        """The same cells but for the steps of some rows, which then have none."""
        assert self.lists is not None
        steps = np.where(rows, 0, self.count_steps())
        kept = np.repeat(~rows, self.count_steps())
        counts = np.diff(compute_value_offsets(self.column))
        values = self.column.values
        if isinstance(values, np.ndarray):
            values = values[np.repeat(kept, counts)]
        else:
            flags = np.repeat(kept, counts).tolist()
            values = _core.strings([values.bytes(place) for place, flag in enumerate(flags) if flag])
        column = KeyColumn(self.column.kind, values, _compute_ends(counts[kept]), None)
        return Cells(column, _compute_ends(steps))

    def begin(self, cell: int) -> int:
        """Where the values of a cell begin among all values."""
        return cell if self.column.offsets is None else int(self.column.offsets[cell])

    def step(self, row: int, cell: int) -> int | None:
        """Which step of a row of the batch a cell is; None where it is no step."""
        return None if self.lists is None else cell - int(self.lists[row])


def find_present_rows(column: KeyColumn | None, rows: int) -> RowMask:
    """Which rows have the key."""
    if column is None:
        return np.zeros(rows, np.bool_)
    return np.ones(rows, np.bool_) if column.valid is None else column.valid


def find_records_with_key(batch: KeyedBatch, key: str, *, step: bool) -> RowMask:
    """Which records have a key, or a list of steps under it."""
    found: KeyColumn | StepColumn | None = batch.steps.get(key) if step else batch.context.get(key)
    if found is None:
        return np.zeros(len(batch), np.bool_)
    return np.ones(len(batch), np.bool_) if found.valid is None else found.valid


def compute_value_offsets(column: KeyColumn) -> IntArray:
    """Where the values of each row begin and end, also where the column does without saying it."""
    return np.arange(len(column) + 1, dtype=np.int64) if column.offsets is None else column.offsets


def _compute_ends(counts: IntArray) -> IntArray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def pack_strings(values: _core.StringColumn) -> tuple[IntArray, Array]:
    """(ends, data): the strings end to end; string i is data[ends[i]:ends[i + 1]]."""
    column = values if values.packed else values.pack(_core.Pool(0))
    ends, data = column.buffers()
    return ends, data


MAX_FEATURES = 100
MAX_SHOWN_CHARACTERS = 60


def build_finding(
    batch: KeyedBatch, row: int, code: str, severity: Severity, feature: str | None, said: dict[str, Any]
) -> Finding:
    """The finding about one row of a batch; what is None is not said."""
    return Finding.of(
        code,
        severity,
        path=batch.path,
        record=int(batch.records[row]),
        offset=int(batch.offsets[row]),
        feature=feature,
        **{name: text for name, text in said.items() if text is not None},
    )


class DeferredFindings:
    """Findings that are told when their file ends, at the first of the records that share them."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, Severity, str | None], Finding] = {}

    def report(
        self,
        batch: KeyedBatch,
        rows: Sequence[int],
        code: str,
        severity: Severity,
        feature: str | None,
        say: Callable[[int], dict[str, Any]],
    ) -> None:
        """The same is true of all these rows; `say` is asked about the first one only.

        Whoever made the file chose how many features there are: beyond a hundred they share one finding a code and
        severity.
        """
        if not len(rows):
            return
        if (code, severity, feature) not in self._held and len(self._held) >= MAX_FEATURES:
            feature, say = None, lambda _: {"message": f"{CODES[code]}: under more keys than are named here"}
        held = self._held.get((code, severity, feature))
        if held is not None:
            held.count += len(rows)
            return
        finding = build_finding(batch, rows[0], code, severity, feature, say(rows[0]))
        finding.count = len(rows)
        self._held[code, severity, feature] = finding

    def end_file(self) -> Iterator[Finding]:
        """All that was held; then begin again."""
        told = list(self._held.values())
        self._held.clear()
        yield from told


def format_key(key: str) -> str:
    """A key of a record as a message shows it: whoever wrote the file chose its length."""
    return f"`{key}`" if len(key) <= MAX_SHOWN_CHARACTERS else f"`{key[: MAX_SHOWN_CHARACTERS - 1]}…`"
