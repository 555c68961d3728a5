"""What most records of some files have in common, for checks without a schema."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rekord import _core
from rekord._core import PictureFormat
from rekord.health.keyed import KeyedBatch
from rekord.health.rules.boxes import BoxKeys
from rekord.health.rules.cells import Cells, Mask, there
from rekord.health.rules.masks import MASK_KEY
from rekord.health.rules.pictures import PictureKey
from rekord.health.rule import ENOUGH_RECORDS
from rekord.schema.base import Kind
from rekord.schema.pictures import BOX_SIDES

NEARLY_ALL = 0.95

_ALIKE = 0.5
_MOST_KEYS = 10_000
_MOST_COUNTS = 64
_LOOKED_AT = 64
_LOOKED_AT_A_BATCH = 16
_HEAD_BYTES = 64
_NUMBERS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|\d+")

Place = tuple[bool, str]
"""Whether it is a key of steps, and the key."""


@dataclass(slots=True)
class KeySeen:
    """What was seen of one key. `rows` are records, or steps; `counts` are their numbers of values."""

    present: int = 0  # records
    rows: int = 0
    kinds: Counter[Kind] = field(default_factory=Counter)
    counts: Counter[int] = field(default_factory=Counter)
    looked_at: int = 0
    pictures: int = 0
    empty: int = 0

    @property
    def usual_count(self) -> int | None:
        """The number of values that nearly all rows have."""
        if not self.counts:
            return None
        count, rows = self.counts.most_common(1)[0]
        return count if rows >= NEARLY_ALL * self.rows else None

    def is_rare(self, records: int) -> bool:
        """Whether so few of the records have the key that its name may be a slip."""
        few = (1 - NEARLY_ALL) * records if records >= ENOUGH_RECORDS else records / 2
        return self.present <= few

    @property
    def holds_pictures(self) -> bool:
        """Whether most of the values that are not empty begin as pictures do."""
        return self.pictures * 2 > self.looked_at - self.empty


@dataclass(slots=True)
class SetSeen:
    """What was seen of files whose names differ by numbers alone."""

    records: int = 0
    keys: dict[Place, KeySeen] = field(default_factory=dict)
    pictures: tuple[PictureKey, ...] | None = None
    boxes: tuple[BoxKeys, ...] | None = None

    def add(self, batch: KeyedBatch) -> None:
        """Take these records into account."""
        self.records += len(batch)
        for step, key in places(batch):
            cells = Cells.of(batch, key, step=step)
            assert cells is not None
            if (step, key) in self.keys or len(self.keys) < _MOST_KEYS:
                _note(self.keys.setdefault((step, key), KeySeen()), batch, key, cells, step=step)

    def usual(self, place: Place) -> bool:
        """Whether nearly all records have a key."""
        seen = self.keys.get(place)
        return seen is not None and seen.present >= NEARLY_ALL * self.records

    @property
    def has_holes(self) -> bool:
        """Whether keys are left out where a value is missing, as the way in which these files were written."""
        return any(
            not self.usual(place) and not seen.is_rare(self.records) for place, seen in self.keys.items()
        )


class Learnt:
    """What the records of each set of files are like, as far as a sample shows it."""

    def __init__(self) -> None:
        self._sets: dict[str, SetSeen] = {}
        self._kinds: dict[str, dict[Place, Kind]] = {}
        self._latest: tuple[str, SetSeen] | None = None  # a set that the sample lacks

    def add(self, batch: KeyedBatch) -> None:
        """Take these records into the sample."""
        self._sets.setdefault(set_of(batch.path), SetSeen()).add(batch)

    def seen(self, batch: KeyedBatch) -> SetSeen:
        """What is known of the set that a batch belongs to; of a set that no sample had, the batch is the sample."""
        name = set_of(batch.path)
        if name in self._sets:
            return self._sets[name]
        # One at a time: there may be as many such sets as files.
        if self._latest is None or self._latest[0] != name:
            self._kinds.pop(self._latest[0] if self._latest is not None else name, None)
            self._latest = name, SetSeen()
            self._latest[1].add(batch)
        return self._latest[1]

    def kinds(self, batch: KeyedBatch) -> Mapping[Place, Kind]:
        """The kind that most records have under each key, in a batch's set and in sets like it."""
        own, name = self.seen(batch), set_of(batch.path)
        if name not in self._kinds:
            others = [seen for seen in self._sets.values() if seen is not own]
            self._kinds[name] = _kinds(own.keys, others)
        return self._kinds[name]

    def pictures(self, batch: KeyedBatch) -> tuple[PictureKey, ...]:
        """The keys that hold pictures, images before masks."""
        seen = self.seen(batch)
        if seen.pictures is None:
            seen.pictures = _pictures(seen)
        return seen.pictures

    def boxes(self, batch: KeyedBatch) -> tuple[BoxKeys, ...]:
        """The boxes: `…/bbox/xmin` and its like."""
        seen = self.seen(batch)
        if seen.boxes is None:
            seen.boxes = _boxes(seen)
        return seen.boxes


def learn(batches: Iterable[KeyedBatch]) -> Learnt:
    """What the records of a sample have in common, set of files by set of files."""
    learnt = Learnt()
    for batch in batches:
        learnt.add(batch)
    return learnt


def _pictures(seen: SetSeen) -> tuple[PictureKey, ...]:
    keys = [place for place, one in seen.keys.items() if one.pictures and one.holds_pictures]
    images = [key for step, key in keys if not step and key != MASK_KEY]
    found = [
        PictureKey(
            key=key,
            feature=key,
            step=step,
            is_mask=key == MASK_KEY,
            of="image/encoded" if key == MASK_KEY else None,
            alone=sum(other.rpartition("/")[0] == key.rpartition("/")[0] for other in images) <= 1,
            empty_is_usual=seen.keys[step, key].empty * 3 > seen.keys[step, key].looked_at,
        )
        for step, key in keys
    ]
    return tuple(sorted(found, key=lambda one: one.is_mask))


def _boxes(seen: SetSeen) -> tuple[BoxKeys, ...]:
    stems = [(step, key[: -len("/xmin")]) for step, key in seen.keys if key.endswith("bbox/xmin")]
    return tuple(
        BoxKeys(stem=stem, feature=stem, step=step)
        for step, stem in stems
        if all((step, f"{stem}/{side}") in seen.keys for side in BOX_SIDES)
    )


def set_of(path: str) -> str:
    """What the names of files that belong together share: all but numbers."""
    folder, name = os.path.split(path)
    return os.path.join(folder, _NUMBERS.sub("#", name))


def _note(seen: KeySeen, batch: KeyedBatch, key: str, cells: Cells, *, step: bool) -> None:
    column = cells.column
    if not column.present:
        return
    seen.present += int(np.count_nonzero(records_with(batch, key, step=step)))
    seen.rows += column.present
    seen.kinds[column.kind] += column.present if has_kind(cells) else 0
    for count, rows in zip(
        *np.unique(column.counts[there(column, len(column))], return_counts=True), strict=True
    ):
        if int(count) in seen.counts or len(seen.counts) < _MOST_COUNTS:
            seen.counts[int(count)] += int(rows)
    if isinstance(column.values, _core.StringColumn):
        _look(seen, cells)


def has_kind(cells: Cells) -> bool:
    """Whether the kind of these cells is one that their records have: steps of which none has a value have none."""
    return cells.lists is None or len(cells.column.values) > 0


def _look(seen: KeySeen, cells: Cells) -> None:
    """Whether the first values are pictures."""
    room = min(_LOOKED_AT - seen.looked_at, _LOOKED_AT_A_BATCH)
    places = np.flatnonzero(cells.column.owners >= 0)[: max(room, 0)]
    for place in places.tolist():
        data = cells.column.values.bytes(place)
        seen.looked_at += 1
        seen.empty += not data
        seen.pictures += _core.look(data[:_HEAD_BYTES], False).format != PictureFormat.NONE


def _kinds(own: Mapping[Place, KeySeen], others: Iterable[SetSeen]) -> dict[Place, Kind]:
    """The kind that most records have under each key, in one set and in those that have about the same keys."""
    counted: dict[Place, Counter[Kind]] = {place: Counter(seen.kinds) for place, seen in own.items()}
    for other in others:
        both = own.keys() & other.keys.keys()
        if both and len(both) >= _ALIKE * len(own.keys() | other.keys.keys()):
            for place in both:
                counted[place].update(other.keys[place].kinds)
    return {place: kinds.most_common(1)[0][0] for place, kinds in counted.items() if kinds.total()}


def places(batch: KeyedBatch) -> list[Place]:
    """All keys of a batch."""
    return [(False, key) for key in batch.context] + [(True, key) for key in batch.steps]


def records_with(batch: KeyedBatch, key: str, *, step: bool) -> Mask:
    """Which records have a key."""
    found: Any = batch.steps.get(key) if step else batch.context.get(key)
    if found is None:
        return np.zeros(len(batch), np.bool_)
    return np.ones(len(batch), np.bool_) if found.valid is None else found.valid
