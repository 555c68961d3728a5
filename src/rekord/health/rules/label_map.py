"""Class ids and names held against the label map that lies beside the records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rekord.errors import RekordError
from rekord.health.finding import Finding
from rekord.health.keyed import KeyColumn, KeyedBatch
from rekord.health.rule import Repeated
from rekord.schema.labelmap import read_label_map

_ENDINGS = ("label_map.pbtxt", "labelmap.pbtxt")
IDS = "image/object/class/label"
NAMES = "image/object/class/text"


def find_label_map(folder: str) -> str | None:
    """The label map in a folder, where there is exactly one."""
    try:
        found = [name for name in sorted(os.listdir(folder)) if name.lower().endswith(_ENDINGS)]
    except OSError:
        return None
    place = os.path.join(folder, found[0]) if len(found) == 1 else None
    return place if place is not None and os.path.isfile(place) else None


def label_map_rule(path: str) -> LabelMapRule | Finding:
    """The rule for a label map, or what is wrong with it."""
    try:
        return LabelMapRule(os.path.basename(path), read_label_map(path))
    except RekordError as failure:
        return Finding.from_error(failure)


class LabelMapRule:
    """A rule: every class id and name of an object is one of the map's. `classes` are names by their ids."""

    def __init__(self, name: str, classes: Mapping[int, str]) -> None:
        self._name = name
        self._ids = np.array(sorted(classes), np.int64)
        self._names = {text.encode() for text in classes.values()}
        self._repeated = Repeated()

    def see(self, batch: KeyedBatch) -> Iterator[Finding]:
        """The records that have another one."""
        ids, names = batch.context.get(IDS), batch.context.get(NAMES)
        if ids is not None and ids.kind == "int64":
            wrong = ~np.isin(ids.values, self._ids)
            yield from self._told(batch, IDS, ids, wrong, lambda place: str(int(ids.values[place])))
        if names is not None and names.kind == "bytes":
            texts = names.values.list_bytes(0, len(names.values))
            # An empty name stands for a name that was left out.
            wrong = np.fromiter((bool(t) and t not in self._names for t in texts), np.bool_, len(texts))
            yield from self._told(batch, NAMES, names, wrong, lambda place: repr(texts[place])[:60])

    def end_file(self, path: str) -> Iterator[Finding]:
        """What was only counted so far."""
        yield from self._repeated.end_file()

    def end(self) -> Iterator[Finding]:
        """Nothing: every file has had its say."""
        return iter(())

    def _told(
        self, batch: KeyedBatch, key: str, column: KeyColumn, wrong: Any, shown: Any
    ) -> Iterator[Finding]:
        places = np.flatnonzero(wrong)
        first = {int(column.owners[place]): int(place) for place in places[::-1] if column.owners[place] >= 0}
        yield from self._repeated.tell(
            batch,
            sorted(first),
            "H752",
            "error",
            key,
            lambda row: {
                "message": f"`{key}` has a class that {self._name} lacks",
                "expected": f"one of the {len(self._ids):,} classes of {self._name}",
                "found": shown(first[row]),
                "do": f"add the class to {self._name}, or mend the records where they are written",
            },
        )
