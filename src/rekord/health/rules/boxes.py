"""Boxes in records: four lists of one length, inside of their image, the lesser side first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rekord.health.finding import Finding, Severity
from rekord.health.keyed import KeyColumn, KeyedBatch
from rekord.health.rule import Repeated
from rekord.health.rules.cells import Array, Cells, Mask, begins, there
from rekord.health.rules.once import Once, named
from rekord.schema import Boxes, Int64, Schema
from rekord.schema.pictures import BOX_SIDES

CLASS_IDS = "class/label"
CLASS_NAMES = "class/text"
_FLOAT_NOISE = 1e-6
"""By how much a side may pass the border of its image without a finding: float32 arithmetic is no closer."""

_ROUNDED = 1e-3
"""Up to here it is a note: coordinates that were rounded to three decimals are off by less."""

_TOLERATED = 0.1 + _FLOAT_NOISE
"""Up to here it is a warning: the Object Detection API reads coordinates up to 1.1, and stops at larger ones."""

_PIXELS = 1.5
"""A coordinate above this is in pixels: no annotation leaves its image by half of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxKeys:
    """Where some boxes are stored: four keys that begin alike, and the lists that tell what is in each box."""

    stem: str
    feature: str  # the column, or the stem where there is no schema
    step: bool = False
    declared: bool = False
    from_one: bool = True  # whether class ids begin at 1, as far as nobody declares otherwise

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of xmin, ymin, xmax, ymax."""
        return tuple(f"{self.stem}/{side}" for side in BOX_SIDES)

    def beside(self, name: str) -> str:
        """A key that belongs to the same objects."""
        return f"{self.stem[: self.stem.rfind('/') + 1]}{name}"


def declared_boxes(schema: Schema) -> tuple[BoxKeys, ...]:
    """The boxes of a schema."""
    out = []
    for name, feature in schema.items():
        if not isinstance(feature, Boxes):
            continue
        stem = feature.record_keys(name)[0].rpartition("/")[0]
        found = BoxKeys(stem=stem, feature=name, step=name in schema.steps, declared=True)
        label = next(
            (one for column, one in schema.items() if found.beside(CLASS_IDS) in one.record_keys(column)),
            None,
        )
        free = label is None or (isinstance(label, Int64) and label.range is None)
        out.append(BoxKeys(stem=stem, feature=name, step=name in schema.steps, declared=True, from_one=free))
    return tuple(out)


class BoxRule:
    """Every box lies in its image; `boxes_of` gives the boxes of a batch."""

    def __init__(self, boxes_of: Callable[[KeyedBatch], Sequence[BoxKeys]]) -> None:
        self._boxes_of = boxes_of
        self._repeated = Repeated()
        self._once = Once()

    def see(self, batch: KeyedBatch) -> Iterator[Finding]:
        """What is wrong with the boxes of these records."""
        for boxes in self._boxes_of(batch):
            sides = [Cells.of(batch, key, step=boxes.step) for key in boxes.keys]
            found = [side for side in sides if side is not None and side.column.kind == "float"]
            if len(found) == len(BOX_SIDES) and len({len(side.column) for side in found}) == 1:
                yield from self._boxes(batch, boxes, found)
            yield from self._classes(batch, boxes)

    def end_file(self, path: str) -> Iterator[Finding]:
        """What was only counted so far."""
        yield from self._repeated.end_file()
        yield from self._once.end_file()

    def end(self) -> Iterator[Finding]:
        """Nothing: every file has had its say."""
        yield from ()

    def _boxes(self, batch: KeyedBatch, boxes: BoxKeys, sides: list[Cells]) -> Iterator[Finding]:
        columns = [side.column for side in sides]
        counts = [column.counts for column in columns]
        # Where a list is missing there are no values of it, whatever stands in its place.
        even = np.logical_and.reduce([count == counts[0] for count in counts])
        if not even.all() and not boxes.declared:
            rows = sides[0].records(np.flatnonzero(~even))
            yield from self._tell(
                batch, boxes, rows, "H770", "error", lambda cell: _uneven(boxes, counts, cell)
            )
        edges = [_kept(column, even) for column in columns]
        owners = np.repeat(np.arange(len(even)), np.where(even, counts[0], 0))
        if not len(owners):
            return
        with np.errstate(all="ignore"):
            low, high = min(edge.min() for edge in edges), max(edge.max() for edge in edges)
            spans = [edges[2] - edges[0], edges[3] - edges[1]]
            if low >= -_FLOAT_NOISE and high <= 1 + _FLOAT_NOISE and all((span > 0).all() for span in spans):
                return
            past = np.maximum.reduce([np.maximum(-edge, edge - 1) for edge in edges])
            reversed_ = (spans[0] < 0) | (spans[1] < 0)
            flat = ~reversed_ & (past <= _TOLERATED) & ((spans[0] == 0) | (spans[1] == 0))
            far = ~(past <= _TOLERATED)  # NaN too
        judged: list[tuple[str, Severity, Mask, Callable[..., dict[str, Any]]]] = [
            ("H771", "note", (past > _FLOAT_NOISE) & (past <= _ROUNDED), _outside),
            ("H771", "warning", (past > _ROUNDED) & ~far, _outside),
            ("H771", "error", far, _outside),
            ("H772", "error", reversed_, _reversed),
            ("H773", "warning", flat, _flat),
        ]
        for code, severity, wrong, say in judged:
            yield from self._marked(batch, boxes, sides, edges, owners, wrong, code, severity, say)

    def _marked(
        self,
        batch: KeyedBatch,
        boxes: BoxKeys,
        sides: list[Cells],
        edges: list[Array],
        owners: Array,
        wrong: Mask,
        code: str,
        severity: Severity,
        say: Callable[[str, Sequence[float], str], dict[str, Any]],
    ) -> Iterator[Finding]:
        at = np.flatnonzero(wrong)
        if not len(at):
            return
        cells, first = np.unique(owners[at], return_index=True)
        place = dict(zip(cells.tolist(), at[first].tolist(), strict=True))
        several = np.bincount(owners[at], minlength=len(sides[0].column))

        def words(cell: int) -> dict[str, Any]:
            box = [float(edge[place[cell]]) for edge in edges]
            more = int(several[cell]) - 1
            number = place[cell] - int(np.searchsorted(owners, cell))
            shown = f"box {number:,}: {', '.join([f'{side:.4g}' for side in box])}"
            return say(_whose(boxes), box, shown + (f"; {more:,} more in the record" if more else ""))

        yield from self._tell(batch, boxes, sides[0].records(cells), code, severity, words)

    def _classes(self, batch: KeyedBatch, boxes: BoxKeys) -> Iterator[Finding]:
        """The classes of boxes: as many as there are boxes, and none of them the background's."""
        first = Cells.of(batch, boxes.keys[0], step=boxes.step)
        for name in (CLASS_IDS, CLASS_NAMES):
            key = boxes.beside(name)
            cells = Cells.of(batch, key, step=boxes.step)
            if cells is None:
                continue
            counts = cells.column.counts
            if first is not None and len(first.column) == len(cells.column):
                wanted = first.column.counts
                wrong = (counts != wanted) & there(first.column, len(wanted))
                # Names may be left out, and are then missing or an empty list.
                wrong &= (counts > 0) if name == CLASS_NAMES else there(cells.column, len(wanted))
                rows = cells.records(np.flatnonzero(wrong))
                yield from self._tell(
                    batch,
                    boxes,
                    rows,
                    "H770",
                    "error",
                    lambda cell, key=key, counts=counts, wanted=wanted: _unlike(  # type: ignore[misc]
                        boxes, key, int(wanted[cell]), int(counts[cell])
                    ),
                    feature=key,
                )
            if name == CLASS_IDS and boxes.from_one and cells.column.kind == "int64":
                yield from self._below_one(batch, boxes, cells, key)

    def _below_one(self, batch: KeyedBatch, boxes: BoxKeys, cells: Cells, key: str) -> Iterator[Finding]:
        values = cells.column.values
        if not len(values) or values.min() >= 1:
            return
        first = cells.marked(values < 1)
        rows = cells.records(np.fromiter(first, np.int64, len(first)))
        yield from self._tell(
            batch,
            boxes,
            rows,
            "H774",
            "warning",
            lambda cell: {
                "message": f"{named(key)} is {int(values[first[cell]])}, and ids begin at 1",
                "expected": "class ids from 1: TensorFlow's object detection takes 0 for the background",
                "found": str(int(values[first[cell]])),
                "do": "add 1 to the ids, here and in the label map",
            },
            feature=key,
        )

    def _tell(
        self,
        batch: KeyedBatch,
        boxes: BoxKeys,
        rows: dict[int, int],
        code: str,
        severity: Severity,
        say: Callable[[int], dict[str, Any]],
        *,
        feature: str | None = None,
    ) -> Iterator[Finding]:
        about = boxes.feature if feature is None else feature
        if severity == "error":
            yield from self._repeated.tell(batch, rows, code, severity, about, lambda row: say(rows[row]))
        else:
            self._once.tell(batch, list(rows), code, severity, about, lambda row: say(rows[row]))


def _kept(column: KeyColumn, rows: Mask) -> Array:
    """The values of some rows."""
    values: Array = column.values
    if column.offsets is None and column.valid is None and rows.all():
        return values
    return values[np.repeat(rows & there(column, len(rows)), np.diff(begins(column)))]


def _whose(boxes: BoxKeys) -> str:
    return named(boxes.feature)


def _uneven(boxes: BoxKeys, counts: list[Any], cell: int) -> dict[str, Any]:
    numbers = [int(count[cell]) for count in counts]
    return {
        "message": f"the four lists under {named(boxes.stem)} have different lengths",
        "expected": f"as many of each side: {', '.join(BOX_SIDES)}",
        "found": ", ".join([f"{number:,}" for number in numbers]),
        "do": "write the four sides of a box together",
    }


def _unlike(boxes: BoxKeys, key: str, wanted: int, found: int) -> dict[str, Any]:
    return {
        "message": f"{named(key)} has another length than the boxes under {named(boxes.stem)}",
        "expected": f"{wanted:,}, one for each box",
        "found": f"{found:,}",
        "do": "write boxes and their classes together, and leave out both where one is left out",
    }


def _outside(whose: str, box: Sequence[float], shown: str) -> dict[str, Any]:
    said = {
        "message": f"{whose} has a box outside of its image",
        "expected": "xmin, ymin, xmax, ymax from 0 to 1",
        "found": shown,
        "do": "clip the box to its image, or leave it out",
    }
    past = max(max(-side, side - 1) for side in box)
    if max(box) > _PIXELS:
        said["likely"] = "these are pixels: TensorFlow's object detection reads fractions of the image"
        said["do"] = "divide x by the width of the image and y by its height"
    elif past <= _ROUNDED:
        said["likely"] = "the coordinates were rounded"
        said["do"] = "clip the box to its image: np.clip(box, 0, 1)"
    elif past <= _TOLERATED:
        said["likely"] = "the box passes the border of its image a little; object detection reads up to 1.1"
        said["do"] = "clip the box to its image: np.clip(box, 0, 1)"
    return said


def _reversed(whose: str, box: Sequence[float], shown: str) -> dict[str, Any]:
    crossed = box[0] > box[2] and box[1] > box[3]
    return {
        "message": f"{whose} has a box that is reversed",
        "expected": "xmin < xmax and ymin < ymax",
        "found": shown,
        "likely": None if not crossed else "the corners are swapped",
        "do": "write the lesser coordinate as the min; x, y, width, height are not what these keys hold",
    }


def _flat(whose: str, box: Sequence[float], shown: str) -> dict[str, Any]:
    return {
        "message": f"{whose} has a box without an area",
        "expected": "xmin < xmax and ymin < ymax",
        "found": shown,
        "do": "leave the box out: a loss on it may become NaN",
    }
