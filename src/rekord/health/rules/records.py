"""Records held against a declared schema: what is missing, of another kind or number, or not among its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rekord.health.finding import Finding, Severity
from rekord.health.keyed import KeyColumn, KeyedBatch, StepColumn
from rekord.health.rule import Repeated
from rekord.health.rules import values, words
from rekord.health.rules.cells import Cells, Mask, there
from rekord.health.rules.expected import ExpectedColumn, ExpectedKey, compiled
from rekord.health.rules.once import Once, named
from rekord.schema import Schema
from rekord.schema.refuse import near_miss

_MOST_COMPARED = 1000


class SchemaRule:
    """Every record is one that the schema declares."""

    def __init__(self, schema: Schema, *, tfds: bool = False) -> None:
        self._expected = compiled(schema)
        self._tfds = tfds
        self._repeated = Repeated()
        self._once = Once()
        self._meant: dict[tuple[bool, str], str | None] = {}

    def see(self, batch: KeyedBatch) -> Iterator[Finding]:
        """What is wrong with these records."""
        with np.errstate(all="ignore"):
            doubtful = [column for column in self._expected.columns if not _sound(column, batch)]
        strangers = {step: self._strangers(batch, step=step) for step in (False, True)}
        explained: dict[tuple[bool, str], Mask] = {}
        for column in doubtful:
            yield from self._presence(column, batch, strangers[column.step], explained)
            yield from self._keys(column, batch)
        for step, keys in strangers.items():
            for key in keys:
                self._note_stranger(batch, key, step=step, explained=explained.get((step, key)))

    def end_file(self, path: str) -> Iterator[Finding]:
        """What was only counted so far."""
        self._meant.clear()
        yield from self._repeated.end_file()
        yield from self._once.end_file()

    def end(self) -> Iterator[Finding]:
        """Nothing: every file has had its say."""
        yield from ()

    # Keys that the schema lacks.

    def _strangers(self, batch: KeyedBatch, *, step: bool) -> list[str]:
        found: dict[str, Any] = batch.steps if step else batch.context
        known = self._expected.steps if step else self._expected.context
        return [key for key in found if key not in known]

    def _meaning(self, key: str, *, step: bool) -> str | None:
        """The key that was probably meant."""
        if (step, key) not in self._meant:
            if len(self._meant) >= _MOST_COMPARED:
                return None  # names that nobody could have mistyped so often
            self._meant[step, key] = near_miss(key, self._expected.steps if step else self._expected.context)
        return self._meant[step, key]

    def _note_stranger(self, batch: KeyedBatch, key: str, *, step: bool, explained: Mask | None) -> None:
        here = _present(batch, key, step=step)
        rows = np.flatnonzero(here if explained is None else here & ~explained).tolist()
        meant = self._meaning(key, step=step)
        self._once.tell(batch, rows, "H754", "warning", key, lambda _: words.stranger(key, meant))

    # What is there, and what is not.

    def _presence(
        self,
        column: ExpectedColumn,
        batch: KeyedBatch,
        strangers: list[str],
        explained: dict[tuple[bool, str], Mask],
    ) -> Iterator[Finding]:
        here = [_present(batch, key.key, step=column.step) for key in column.keys]
        if not column.required:
            if len(here) > 1:
                yield from self._apart(column, batch, here)
            return
        missing = ~np.logical_and.reduce(here)
        if not missing.any():
            return
        first = np.argmin(np.array(here), axis=0)
        instead: dict[str, Mask] = {}
        for key in strangers:
            if self._meaning(key, step=column.step) in [one.key for one in column.keys]:
                instead[key] = missing & _present(batch, key, step=column.step)
                explained[column.step, key] = instead[key]

        def say(row: int) -> dict[str, Any]:
            other = next((key for key, rows in instead.items() if rows[row]), None)
            return words.missing(column, column.keys[int(first[row])].key, other)

        yield from self._repeated.tell(
            batch, np.flatnonzero(missing).tolist(), "D401", "error", column.name, say
        )

    def _apart(self, column: ExpectedColumn, batch: KeyedBatch, here: list[Mask]) -> Iterator[Finding]:
        """The keys of one column are all there in a record, or none of them."""
        wrong = np.logical_or.reduce(here) & ~np.logical_and.reduce(here)

        def say(row: int) -> dict[str, Any]:
            has = next(key.key for key, rows in zip(column.keys, here, strict=True) if rows[row])
            lacks = next(key.key for key, rows in zip(column.keys, here, strict=True) if not rows[row])
            return words.apart(
                column, "all of its keys, or none of them", f"{named(has)} without {named(lacks)}"
            )

        yield from self._repeated.tell(
            batch, np.flatnonzero(wrong).tolist(), "D407", "error", column.name, say
        )

    # What the keys hold.

    def _keys(self, column: ExpectedColumn, batch: KeyedBatch) -> Iterator[Finding]:
        there_at_all: list[Cells] = []
        parts: list[Cells] = []
        for key in column.keys:
            cells = Cells.of(batch, key.key, step=column.step)
            if cells is None or not (column.step or cells.column.present):
                continue
            there_at_all.append(cells)
            if cells.column.kind != key.kind and (len(cells.column.values) or not column.step):
                rows = cells.records(np.flatnonzero(there(cells.column, len(cells.column))))
                yield from self._tell(batch, column, key, cells, rows, "D403", words.wrong_kind)
                continue
            parts.append(cells)
            yield from self._counts(column, key, batch, cells)
            if cells.column.kind != key.kind:
                continue  # steps of which none has a value have no kind either
            for code, severity, marks in values.judged(column, key, cells, tfds=self._tfds):
                yield from self._values(batch, column, key, cells, marks, code, severity)
        if len(column.keys) > 1 and len(parts) == len(column.keys):
            yield from self._together(column, batch, parts)
        elif column.step and len(column.keys) > 1 and len(there_at_all) == len(column.keys):
            # Records without a step of the wrong kind may still have other numbers of steps.
            yield from self._uneven(column, batch, there_at_all, _uneven(there_at_all))

    def _counts(
        self, column: ExpectedColumn, key: ExpectedKey, batch: KeyedBatch, cells: Cells
    ) -> Iterator[Finding]:
        wrong = there(cells.column, len(cells.column)) & _wrong_counts(column, key, cells.column)
        rows = cells.records(np.flatnonzero(wrong))
        yield from self._tell(batch, column, key, cells, rows, "D402", words.wrong_count)

    def _values(
        self,
        batch: KeyedBatch,
        column: ExpectedColumn,
        key: ExpectedKey,
        cells: Cells,
        marks: Mask,
        code: str,
        severity: Severity,
    ) -> Iterator[Finding]:
        first = cells.marked(marks)
        rows = cells.records(np.fromiter(first, np.int64, len(first)))

        def say(row: int) -> dict[str, Any]:
            cell = rows[row]
            whose = column.whose(key.key, cells.step(row, cell))
            return words.VALUES[code](whose, column, key, cells, cell, first[cell])

        if severity == "error":
            yield from self._repeated.tell(batch, rows, code, severity, column.name, say)
        else:
            self._once.tell(batch, list(rows), code, severity, column.name, say)

    def _together(self, column: ExpectedColumn, batch: KeyedBatch, parts: list[Cells]) -> Iterator[Finding]:
        """The keys of one column agree about how many values there are, step by step where there are steps."""
        if column.step:
            uneven = _uneven(parts)
            if uneven.any():
                yield from self._uneven(column, batch, parts, uneven)
                parts = [part.without(uneven) for part in parts]
            if not len(parts[0].column):
                return
        here = np.logical_and.reduce([there(part.column, len(part.column)) for part in parts])
        together = values.partitions if getattr(column.feature, "partitions", ()) else values.lengths
        wrong, say_parts = together(column, parts)
        found = parts[0].records(np.flatnonzero(wrong & here))
        yield from self._repeated.tell(
            batch,
            found,
            "D407",
            "error",
            column.name,
            lambda row: words.apart(column, *say_parts(found[row])),
        )

    def _uneven(
        self, column: ExpectedColumn, batch: KeyedBatch, parts: list[Cells], uneven: Mask
    ) -> Iterator[Finding]:
        steps = [part.steps_of_rows() for part in parts]
        yield from self._repeated.tell(
            batch,
            np.flatnonzero(uneven).tolist(),
            "D407",
            "error",
            column.name,
            lambda row: words.uneven_steps(column, steps, row),
        )

    def _tell(
        self,
        batch: KeyedBatch,
        column: ExpectedColumn,
        key: ExpectedKey,
        cells: Cells,
        rows: dict[int, int],
        code: str,
        words_of: Callable[[str, ExpectedColumn, ExpectedKey, Cells, int], words.Said],
    ) -> Iterator[Finding]:
        def say(row: int) -> words.Said:
            whose = column.whose(key.key, cells.step(row, rows[row]))
            return words_of(whose, column, key, cells, rows[row])

        yield from self._repeated.tell(batch, rows, code, "error", column.name, say)


def _uneven(parts: list[Cells]) -> Mask:
    """The records in which the keys of one column have different numbers of steps."""
    first, *others = [part.steps_of_rows() for part in parts]
    uneven = np.zeros(len(first), bool)
    for each in others:
        uneven |= each != first
    return uneven


def _present(batch: KeyedBatch, key: str, *, step: bool) -> Mask:
    """Which records have a key, or a list of steps under it."""
    found: KeyColumn | StepColumn | None = batch.steps.get(key) if step else batch.context.get(key)
    if found is None:
        return np.zeros(len(batch), np.bool_)
    return np.ones(len(batch), np.bool_) if found.valid is None else found.valid


def _sound(column: ExpectedColumn, batch: KeyedBatch) -> bool:
    """Whether a quick look at a column has nothing against it; it never overlooks anything."""
    lengths = None
    for key in column.keys:
        if column.step:
            lists = batch.steps.get(key.key)
            found = None if lists is None else lists.steps
            if lists is not None and lists.valid is not None:
                return False
        else:
            found = batch.context.get(key.key)
        if found is None:
            if column.required or len(column.keys) > 1:
                return False
            continue
        if found.kind != key.kind or (found.valid is not None and (column.required or len(column.keys) > 1)):
            return False
        if found.offsets is None:
            # One place a row, which is what most columns have: nothing to count.
            if key.count != 1:
                return False
        elif (key.count != 1 or not key.ragged) and _wrong_counts(column, key, found).any():
            return False
        if len(column.keys) > 1:
            if getattr(column.feature, "partitions", ()):
                return False  # sums are taken where there is time for them
            if lengths is not None and not np.array_equal(lengths, found.counts):
                return False
            lengths = found.counts
        if not values.sound(column, key, found):
            return False
    return True


def _wrong_counts(column: ExpectedColumn, key: ExpectedKey, found: KeyColumn) -> Mask:
    """Which rows have another number of values than their shape says; rows without the key count as 0."""
    counts = found.counts
    wrong: Mask = counts % key.count != 0 if key.ragged and key.count else counts != key.count
    return wrong & (counts != 0) if column.optional and not (column.step or key.ragged) else wrong
