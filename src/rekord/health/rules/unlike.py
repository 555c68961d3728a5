"""Records that differ from most of the others: what a check without a schema has to go by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from rekord.health.finding import Finding
from rekord.health.keyed import KeyColumn, KeyedBatch
from rekord.health.rule import Repeated
from rekord.health.rules.cells import Cells, Mask, there
from rekord.health.rule import ENOUGH_RECORDS
from rekord.health.rules.majority import (
    NEARLY_ALL,
    Learnt,
    Place,
    has_kind,
    places,
    records_with,
)
from rekord.health.rules.once import Once, named, of_records
from rekord.health.rules.words import LISTS
from rekord.schema.base import Kind
from rekord.schema.refuse import near_miss

_MOST_COMPARED = 1000
_DIGITS = re.compile(r"\d+")


class MajorityRule:
    """Every record is like most of the others."""

    def __init__(self, learnt: Learnt) -> None:
        self._learnt = learnt
        self._repeated = Repeated()
        self._once = Once()
        self._held = Once()
        self._path: str | None = None

    def _begin(self, batch: KeyedBatch) -> None:
        self._path = batch.path
        self._seen = self._learnt.seen(batch)
        self._kinds = self._learnt.kinds(batch)
        self._boxes = frozenset(key for boxes in self._learnt.boxes(batch) for key in boxes.keys)
        enough = self._seen.records >= ENOUGH_RECORDS
        self._holes = self._seen.has_holes
        self._wanted = [place for place in self._seen.keys if enough and self._seen.usual(place)]
        self._common = [
            place for place, one in self._seen.keys.items() if one.present * 2 > self._seen.records
        ]
        self._meant: dict[Place, str | None] = {}
        self._counts = {
            place: seen.usual_count
            for place, seen in self._seen.keys.items()
            if seen.rows >= ENOUGH_RECORDS and seen.usual_count is not None
        }
        self._records = 0
        self._having: dict[Place, int] = {}  # records with a key whose number of values is usually the same

    def see(self, batch: KeyedBatch) -> Iterator[Finding]:
        """What is wrong with these records; what may turn out to be usual in this file waits until its end."""
        if batch.path != self._path:
            self._begin(batch)
        self._records += len(batch)
        with np.errstate(all="ignore"):
            doubtful = self._doubtful(batch)
        replaced = self._replaced(batch)
        for place in self._wanted:
            self._missing(batch, place, replaced.get(place))
        for place in places(batch):
            cells = Cells.of(batch, place[1], step=place[0])
            if cells is None or not cells.column.present:
                continue
            usual = self._kinds.get(place)
            if usual is not None and cells.column.kind != usual and has_kind(cells):
                yield from self._other_kind(batch, place, cells, usual)
                continue
            self._other_count(batch, place, cells)
            if place in doubtful:
                self._not_finite(batch, place, cells)

    def end_file(self, path: str) -> Iterator[Finding]:
        """What was held back, where this file does not show that it is usual."""
        for finding in self._held.end_file():
            records = self._records
            if finding.code == "H758":
                records = max(self._having.get((step, str(finding.feature)), 0) for step in (False, True))
            # Few of them are odd ones out; all of them make an odd file; else this is how the file is.
            if finding.count == records or finding.count <= max(1, (1 - NEARLY_ALL) * records):
                yield finding
        yield from self._repeated.end_file()
        yield from self._once.end_file()
        self._path = None

    def end(self) -> Iterator[Finding]:
        """Nothing: every file has had its say."""
        yield from ()

    # Keys.

    def _replaced(self, batch: KeyedBatch) -> dict[Place, Mask]:
        """Usual keys that records lack, and have under a name that is nearly the same."""
        out: dict[Place, Mask] = {}
        for place in places(batch):
            step, key = place
            meant = self._near(place)
            if meant is None:
                continue
            here = records_with(batch, key, step=step)
            lacks = here & ~records_with(batch, meant, step=step)
            out[step, meant] = out.get((step, meant), np.zeros(len(batch), np.bool_)) | lacks
            rows = np.flatnonzero(lacks).tolist()
            self._once.tell(batch, rows, "H757", "warning", key, lambda _, p=place, m=meant: self._slip(p, m))  # type: ignore[misc]
        return out

    def _slip(self, place: Place, meant: str) -> dict[str, Any]:
        step, key = place
        return {
            "message": f"{named(key)} is here instead of {named(meant)}: did you mean {named(meant)}?",
            "expected": f"{named(meant)}, as in {self._seen.keys[step, meant].present:,} of "
            f"{of_records(self._seen.records)} that were looked at",
            "found": named(key),
            "do": f"write the records again with {named(meant)}",
        }

    def _near(self, place: Place) -> str | None:
        """The common key that a rare one was probably meant to be."""
        if place in self._meant or len(self._meant) >= _MOST_COMPARED:
            return self._meant.get(place)
        step, key = place
        seen = self._seen.keys.get(place)
        near = None
        if seen is None or seen.is_rare(self._seen.records):
            # Names that count are no slips: `x_1` beside `x_2`.
            bare = _DIGITS.sub("#", key)
            common = [k for s, k in self._common if s == step and _DIGITS.sub("#", k) != bare]
            near = near_miss(key, common)
        self._meant[place] = near
        return near

    def _missing(self, batch: KeyedBatch, place: Place, replaced: Mask | None) -> None:
        step, key = place
        found: Any = batch.steps.get(key) if step else batch.context.get(key)
        if found is not None and found.valid is None:
            return
        lacks = ~records_with(batch, key, step=step)
        wrong = lacks if replaced is None else lacks & ~replaced
        present = self._seen.keys[place].present
        self._held.tell(
            batch,
            np.flatnonzero(wrong).tolist(),
            "H756",
            "note" if self._holes else "warning",
            key,
            lambda _: {
                "message": f"{named(key)} is missing, and nearly all records have it",
                "expected": f"a {'list of steps' if step else 'value'} under {named(key)}, as in {present:,} of "
                f"{of_records(self._seen.records)} that were looked at",
                "found": "no such key, or one without a kind",
                "do": "write the records again with it, or declare a schema in which it is optional",
            },
        )

    # Kinds, counts and numbers.

    def _other_kind(self, batch: KeyedBatch, place: Place, cells: Cells, usual: Kind) -> Iterator[Finding]:
        column = cells.column
        rows = cells.records(np.flatnonzero(there(column, len(column))))
        yield from self._repeated.tell(
            batch,
            rows,
            "H755",
            "error",
            place[1],
            lambda row: {
                "message": f"{named(place[1])} is stored as {LISTS[column.kind]}, most records have {LISTS[usual]}",
                "expected": LISTS[usual],
                "found": LISTS[column.kind] + _about(column, rows[row], usual),
                "do": "write the records again: TensorFlow parses one kind for a key",
            },
        )

    def _other_count(self, batch: KeyedBatch, place: Place, cells: Cells) -> None:
        usual = self._counts.get(place)
        if usual is None:
            return
        column = cells.column
        having = column.present
        if place[0]:
            having = int(np.count_nonzero(records_with(batch, place[1], step=True)))
        self._having[place] = self._having.get(place, 0) + having
        if column.offsets is None and usual == 1:
            return
        wrong = (column.counts != usual) & there(column, len(column))
        rows = cells.records(np.flatnonzero(wrong))
        self._held.tell(
            batch,
            list(rows),
            "H758",
            "warning",
            place[1],
            lambda row: {
                "message": f"{named(place[1])} has another number of values than nearly all records have",
                "expected": f"{usual:,}",
                "found": f"{int(column.counts[rows[row]]):,}",
                "do": "mend the record, or declare a schema with shape=(None,)",
            },
        )

    def _doubtful(self, batch: KeyedBatch) -> set[Place]:
        """The keys with a number that is not finite, and perhaps some whose sum is too large."""
        found = [(False, key, column) for key, column in batch.context.items()]
        found += [(True, key, column.steps) for key, column in batch.steps.items()]
        return {
            (step, key)
            for step, key, column in found
            if column.kind == "float"
            and key not in self._boxes
            and not np.isfinite(np.add.reduce(column.values))
        }

    def _not_finite(self, batch: KeyedBatch, place: Place, cells: Cells) -> None:
        values = cells.column.values
        first = cells.marked(~np.isfinite(values))
        rows = cells.records(np.fromiter(first, np.int64, len(first)))
        self._once.tell(
            batch,
            list(rows),
            "H751",
            "warning",
            place[1],
            lambda row: {
                "message": f"{named(place[1])} is NaN or infinite",
                "expected": "finite numbers",
                "found": str(values[first[rows[row]]]),
                "do": "leave a value out where it is not known, or mend it where it is computed",
            },
        )


def _about(column: KeyColumn, row: int, usual: Kind) -> str:
    """What the values of another kind show about themselves."""
    values = column.value(row)
    if column.kind == "float" and usual == "int64" and len(values):
        with np.errstate(all="ignore"):
            if bool(np.all(values == np.floor(values))):
                return ", all values whole numbers"
    return ""
