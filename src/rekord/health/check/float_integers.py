"""What the words of a record key say about its values; sizes of images and class ids that are stored as floats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rekord.health.check.rule import MIN_EVIDENCE_RECORDS, Cells, CheckRule, build_finding, format_key
from rekord.health.finding import Finding, Severity
from rekord.health.key_columns import KeyedBatch
from rekord.schema import Schema

HEIGHTS = ("height", "rows", "h")
WIDTHS = ("width", "cols", "columns", "w")
CHANNELS = ("channels", "depth", "channel", "c")
LABEL_WORDS = frozenset({"label", "labels", "class", "classes", "category", "categories", "cls"})
_IMAGE_WORDS = frozenset({"image", "img", "mask", "frame"})
_DIMENSION_WORDS = frozenset({*HEIGHTS, *WIDTHS, *CHANNELS} - {"h", "w", "c", "rows", "columns", "depth"})


def split_key_words(key: str) -> list[str]:
    """The words of a key, `image/object_ID` as image, object, id."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", key)
    return [word for word in re.split(r"[^0-9a-z]+", spaced.lower()) if word]


@lru_cache(maxsize=4096)
def is_label_key(key: str) -> bool:
    """Whether the last words of a key name a class."""
    return bool(LABEL_WORDS & set(split_key_words(key)[-2:])) and "text" not in split_key_words(key)[-1:]


@lru_cache(maxsize=4096)
def is_dimension_key(key: str) -> bool:
    """Whether a key names a height, a width or a number of channels."""
    return split_key_words(key)[-1:] != [] and split_key_words(key)[-1] in _DIMENSION_WORDS


def should_be_integers(key: str, *, records: int, most_values: int) -> bool:
    """Whether floats under a key, all of them integers, are meant as integers: sizes of images, and class ids."""
    enough = records >= MIN_EVIDENCE_RECORDS
    if is_dimension_key(key):
        # A height alone may be that of a person.
        return enough or bool(_IMAGE_WORDS & set(split_key_words(key)))
    # Several floats under a label are real targets: a relevance per item, or a vector of 0 and 1.
    return is_label_key(key) and enough and (most_values <= 1 or "class" in split_key_words(key))


_MAX_KEYS = 1000


@dataclass(slots=True)
class _FloatKey:
    """A key of floats that have all been integers so far."""

    finding: Finding
    records: int = 0
    most_values: int = 0


class FloatIntegerRule(CheckRule):
    """Image sizes and class ids are integers. Files are judged as a whole: one fraction makes a key a measurement."""

    def __init__(self, schema: Schema | None) -> None:
        super().__init__()
        self._declared = frozenset(
            key
            for name, feature in (schema.features.items() if schema is not None else ())
            if feature.kind == "float"
            for key in feature.record_keys(name)
        )
        self._keys: dict[tuple[bool, str], _FloatKey | None] = {}  # None: not all are integers

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """Collects evidence; nothing is found before the end of a file."""
        for step, keys in ((False, batch.context), (True, batch.steps)):
            for key in keys:
                if is_dimension_key(key) or is_label_key(key):
                    self._add(batch, key, step=step)
        return iter(())

    def end_file(self, path: str) -> Iterator[Finding]:
        """A finding for each key whose values in this file are integers."""
        for (_, key), seen in self._keys.items():
            if seen is not None and should_be_integers(key, records=seen.records, most_values=seen.most_values):
                seen.finding.count = seen.records
                yield seen.finding
        self._keys.clear()

    def _add(self, batch: KeyedBatch, key: str, *, step: bool) -> None:
        place = step, key
        cells = Cells.of(batch, key, step=step)
        known = self._keys.get(place)
        is_new = place not in self._keys
        if cells is None or (known is None and not is_new) or (is_new and len(self._keys) >= _MAX_KEYS):
            return
        column = cells.column
        filled = column.counts > 0
        if not filled.any():
            return
        if column.kind != "float":
            self._keys[place] = None
            return
        rows = list(cells.records(np.flatnonzero(filled)))
        values = column.values[column.owners >= 0]
        if not np.all(np.isfinite(values) & (values == np.floor(values))):
            self._keys[place] = None
            return
        if known is None:
            known = self._keys[place] = _FloatKey(self._build_finding(batch, rows[0], key, float(values[0])))
        known.records += len(rows)
        known.most_values = max(known.most_values, int(column.counts.max()))

    def _build_finding(self, batch: KeyedBatch, row: int, key: str, first: float) -> Finding:
        is_declared = key in self._declared
        severity: Severity = "note" if is_declared else "warning"
        what = "an image size" if is_dimension_key(key) else "a label"
        return build_finding(
            batch,
            row,
            "H836",
            severity,
            key,
            {
                "message": f"{format_key(key)} is {what} stored as floats",
                "expected": "int64_list",
                "found": f"float_list; all values are integers, first {first:.1f}",
                "likely": "a division, or pandas, which converts integers with missing values to floats",
                "do": f'rk.rewrite(path, out, cast={{"{key[:60]}": "int64"}})',
            },
        )
