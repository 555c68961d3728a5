"""The rules of `check`, the cells they inspect, and the aggregation of repeated findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.codes import CODES
from rekord.health.finding import MAX_LISTED_RECORDS, Finding, Severity
from rekord.health.key_columns import IntArray, KeyColumn, KeyedBatch, StepColumn

RowMask: TypeAlias = npt.NDArray[np.bool_]
Array: TypeAlias = npt.NDArray[Any]

Describer: TypeAlias = Callable[[int], dict[str, Any]]
"""Details of the finding about a row: message, expected, found, likely, do."""

MIN_EVIDENCE_RECORDS = 20
"""With fewer records, the absence of a counterexample is not evidence."""

MAX_LISTED_PER_CODE = 20
"""Findings listed individually per code, feature and file; the rest become one finding with a count."""


class CheckRule:
    """A rule that records are checked against, batch by batch."""

    def __init__(self) -> None:
        self._repeated = RepeatedFindings()
        self._once = DeferredFindings()

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """The findings about these records."""
        raise NotImplementedError

    def end_file(self, path: str) -> Iterator[Finding]:
        """The remaining findings after the last batch of a file: those only counted so far."""
        yield from self._repeated.end_file()
        yield from self._once.end_file()

    def end(self) -> Iterator[Finding]:
        """The remaining findings after the last file."""
        return iter(())

    def _report(
        self,
        batch: KeyedBatch,
        rows: Iterable[int],
        code: str,
        severity: Severity,
        feature: str | None,
        describe: Describer,
    ) -> Iterator[Finding]:
        """Report errors individually, up to a limit; others once per file, with a count."""
        if severity == "error":
            yield from self._repeated.report(batch, rows, code, severity, feature, describe)
        else:
            self._once.report(batch, list(rows), code, severity, feature, describe)


class RepeatedFindings:
    """Findings of one rule in one file: the first few immediately, the rest as a count at the end."""

    def __init__(self) -> None:
        self._listed: dict[tuple[str, str | None], int] = {}
        self._more: dict[tuple[str, str | None], Finding] = {}

    def report(
        self,
        batch: KeyedBatch,
        rows: Iterable[int],
        code: str,
        severity: Severity,
        feature: str | None,
        describe: Describer,
    ) -> Iterator[Finding]:
        """A finding for each row; `describe` returns its details: message, expected, found, …"""
        where = code, feature
        for row in rows:
            listed = self._listed.get(where, 0)
            if listed >= MAX_LISTED_PER_CODE and (more := self._more.get(where)) is not None:
                more.count += 1
                more.add_record(batch.path, int(batch.records[row]))
                continue
            finding = build_finding(batch, row, code, severity, feature, describe(row))
            self._listed[where] = listed + 1
            if listed < MAX_LISTED_PER_CODE:
                yield finding
            else:
                finding.add_record(batch.path, int(batch.records[row]))
                self._more[where] = finding

    def end_file(self) -> Iterator[Finding]:
        """The counted findings, one per code and feature; then reset."""
        rest = list(self._more.values())
        for finding in rest:
            if finding.count == 1:
                finding.records.clear()
        self._listed.clear()
        self._more.clear()
        yield from rest


@dataclass(frozen=True, slots=True)
class Cells:
    """One cell per record, or one per step: `lists` then has the offsets of the steps of each record."""

    column: KeyColumn
    lists: IntArray | None = None

    @classmethod
    def of(cls, batch: KeyedBatch, key: str, *, step: bool) -> Cells | None:
        """The cells under a key; None if no record has it."""
        if not step:
            column = batch.context.get(key)
            return None if column is None else cls(column)
        found = batch.steps.get(key)
        return None if found is None else cls(found.steps, found.offsets)

    def records(self, cells: IntArray) -> dict[int, int]:
        """The rows of the batch with these cells, each with its first cell."""
        if self.lists is None:
            return {cell: cell for cell in cells.tolist()}
        owners = np.searchsorted(self.lists, cells, side="right") - 1
        rows, first = np.unique(owners, return_index=True)
        return dict(zip(rows.tolist(), cells[first].tolist(), strict=True))

    def marked(self, values: RowMask) -> dict[int, int]:
        """The cells with marked values, each with the index of the first one; values of no cell are skipped."""
        at = np.flatnonzero(values)
        owners = self.column.owners[at]
        if self.column.valid is not None:
            at, owners = at[owners >= 0], owners[owners >= 0]
        cells, first = np.unique(owners, return_index=True)
        return dict(zip(cells.tolist(), at[first].tolist(), strict=True))

    def count_steps(self) -> IntArray:
        """The number of steps of each row of the batch."""
        assert self.lists is not None
        return np.diff(self.lists)

    def without(self, rows: RowMask) -> Cells:
        """The same cells without the steps of some rows."""
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
        """The offset of the first value of a cell."""
        return cell if self.column.offsets is None else int(self.column.offsets[cell])

    def step(self, row: int, cell: int) -> int | None:
        """The step number of a cell in its row; None if it is not a step."""
        return None if self.lists is None else cell - int(self.lists[row])


def find_records_with_key(batch: KeyedBatch, key: str, *, step: bool) -> RowMask:
    """Which records have a key, or a list of steps under it."""
    found: KeyColumn | StepColumn | None = batch.steps.get(key) if step else batch.context.get(key)
    return np.zeros(len(batch), np.bool_) if found is None else found.mask


def compute_value_offsets(column: KeyColumn) -> IntArray:
    """The offsets of the values of each row, even if the column has none."""
    return np.arange(len(column) + 1, dtype=np.int64) if column.offsets is None else column.offsets


def _compute_ends(counts: IntArray) -> IntArray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def pack_strings(values: _core.StringColumn) -> tuple[IntArray, Array]:
    """(ends, data): the concatenated strings; string i is data[ends[i]:ends[i + 1]]."""
    column = values if values.packed else values.pack(_core.Pool(0))
    ends, data = column.buffers()
    return ends, data


MAX_FEATURES = 100
MAX_SHOWN_CHARACTERS = 60
LIST_NAMES = {"bytes": "bytes_list", "float": "float_list", "int64": "int64_list"}


def build_finding(
    batch: KeyedBatch, row: int, code: str, severity: Severity, feature: str | None, details: dict[str, Any]
) -> Finding:
    """The finding about one row of a batch; details that are None are dropped."""
    return Finding.of(
        code,
        severity,
        path=batch.path,
        record=int(batch.records[row]),
        offset=int(batch.offsets[row]),
        feature=feature,
        **{name: text for name, text in details.items() if text is not None},
    )


class DeferredFindings:
    """Findings reported at the end of their file, at the first of the affected records."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, Severity, str | None], Finding] = {}

    def report(
        self,
        batch: KeyedBatch,
        rows: Sequence[int],
        code: str,
        severity: Severity,
        feature: str | None,
        describe: Describer,
    ) -> None:
        """Count these rows; `describe` is called for the first one only.

        The number of features is up to the file: beyond a hundred they share one finding per code and severity.
        """
        if not len(rows):
            return
        if (code, severity, feature) not in self._held and len(self._held) >= MAX_FEATURES:
            feature, describe = None, lambda _: {"message": f"{CODES[code]}: too many keys to list"}
        held = self._held.get((code, severity, feature))
        if held is not None:
            held.count += len(rows)
            _list_records(held, batch, rows)
            return
        finding = build_finding(batch, rows[0], code, severity, feature, describe(rows[0]))
        finding.count = len(rows)
        _list_records(finding, batch, rows)
        self._held[code, severity, feature] = finding

    def end_file(self) -> Iterator[Finding]:
        """The deferred findings; then reset."""
        held = list(self._held.values())
        self._held.clear()
        for finding in held:
            if finding.count == 1:
                finding.records.clear()  # it is named in the finding itself
        yield from held


def _list_records(finding: Finding, batch: KeyedBatch, rows: Sequence[int]) -> None:
    for row in rows[: MAX_LISTED_RECORDS - len(finding.records)]:
        finding.add_record(batch.path, int(batch.records[row]))


def format_key(key: str) -> str:
    """A record key for a message: in backticks, truncated."""
    return f"`{key}`" if len(key) <= MAX_SHOWN_CHARACTERS else f"`{key[: MAX_SHOWN_CHARACTERS - 1]}…`"
