"""A rule: no duplicate content, above all not in two splits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord._core import Colour, ImageFormat
from rekord.dataset.read import SPLIT_STEMS
from rekord.errors import RekordError, preview
from rekord.health.check.rule import MAX_LISTED_PER_CODE, CheckRule
from rekord.health.duplicates import (
    MEMORY_BYTES,
    PLACE_DTYPE,
    DuplicateCounter,
    DuplicatePair,
    DuplicateTally,
    ExternalSort,
)
from rekord.health.finding import Finding, Severity
from rekord.health.key_columns import KeyColumn, KeyedBatch, StepColumn, mix_column, mix_steps
from rekord.report.formatting import format_count
from rekord.schema import Feature, Mask, Schema

MIN_CONTENT_BYTES = 256
"""Images with fewer bytes on average are icons or similar, and repeat by nature."""

_SAMPLED_VALUES = 8
_MASK_NAME = re.compile(r"mask|segmentation", re.IGNORECASE)
_IDENTITY_NAME = re.compile(r"(?:.*[/_])?(?:id|uid|uuid|guid|filename)|(?:.*/)?(?:key|path)|index", re.IGNORECASE)
_IDENTITY_SHARE = 0.9  # of the values of an identity are different, at least


@dataclass(frozen=True, slots=True)
class ContentKey:
    """A key whose values are compared separately."""

    key: str
    in_steps: bool
    is_image: bool  # declared or recognised; else a declared tensor


def find_identity_keys(batch: KeyedBatch, schema: Schema | None, column: str | None) -> frozenset[str]:
    """The keys that only identify records: those of the declared column, and similar ones.

    That is a name such as `image/source_id` whose values are nearly unique. The `user_id` in a table of ratings has
    such a name too, but is data.
    """
    keys = [
        key
        for key, values in batch.context.items()
        if _IDENTITY_NAME.fullmatch(key) and _count_distinct(values) >= _IDENTITY_SHARE * values.present
    ]
    if column is not None:
        feature = None if schema is None else schema.get(column)
        keys += [column] if feature is None else feature.record_keys(column)
    return frozenset(keys)


def _count_distinct(column: KeyColumn) -> int:
    if isinstance(column.values, _core.StringColumn):
        return len(set(column.values.list_bytes(0, len(column.values))))
    return len(np.unique(column.values))


def find_content_keys(batch: KeyedBatch, schema: Schema | None, identity: frozenset[str]) -> list[ContentKey]:
    """The content keys of records like these: images, and the tensors of a schema; plain tables have none.

    Other bytes are not content, however large: questions share their paragraph, and recordings their calibration.
    """
    declared, masks = _find_declared_content(schema)
    found = [one for one in declared if one.key in (batch.steps if one.in_steps else batch.context)]
    known = {(one.key, one.in_steps) for one in declared} | masks
    steps = {key: column.steps for key, column in batch.steps.items()}
    for in_steps, columns in ((False, batch.context), (True, steps)):
        images = {key: _is_color_image(column) for key, column in columns.items() if _has_large_values(column)}
        coloured = any(image is True for image in images.values())
        for key, image in sorted(images.items()):
            if (key, in_steps) in known or key in identity or _MASK_NAME.search(key):
                continue
            if image is False and coloured:
                continue  # grey PNGs next to colour images are masks or depths: many are alike
            if image is not None:
                found.append(ContentKey(key, in_steps, is_image=True))
    return sorted(found, key=lambda one: (one.in_steps, one.key))


def _find_declared_content(schema: Schema | None) -> tuple[list[ContentKey], set[tuple[str, bool]]]:
    if schema is None:
        return [], set()
    content, masks = [], set()
    groups: tuple[tuple[bool, Mapping[str, Feature]], ...] = ((False, schema.context), (True, schema.steps))
    for in_steps, columns in groups:
        for column, feature in columns.items():
            key = feature.record_keys(column)[0]
            if isinstance(feature, Mask):
                masks.add((key, in_steps))
            elif feature.storage == "blob":
                content.append(ContentKey(key, in_steps, is_image=feature.is_image))
    return content, masks


def _has_large_values(column: KeyColumn) -> bool:
    if column.kind != "bytes" or not column.present:
        return False
    return int(column.values.total_bytes) >= MIN_CONTENT_BYTES * column.present


def _is_color_image(column: KeyColumn) -> bool | None:
    """Whether the first values are images other than masks: in colour, or not PNG. None: not images."""
    coloured, seen = False, 0
    for i in range(min(len(column.values), _SAMPLED_VALUES)):
        data = column.values.bytes(i)
        if data:
            facts = _core.inspect_image(data, False)
            if facts.format == ImageFormat.NONE:
                return None
            seen += 1
            is_grey = facts.colour in (Colour.GREY, Colour.PALETTE)
            coloured = coloured or facts.format != ImageFormat.PNG or not is_grey
    return coloured if seen else None


_MAX_UNIQUE_SHARE = 0.1
"""Tensors with a smaller share of distinct values are settings or similar, and repeat by nature."""

_MAX_REPEATED_SHARE = 0.5
"""If a larger share of rows repeats, the table just has few and small columns."""

_DigestArray = npt.NDArray[np.uint64]
_ValidMask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _ComparedKeys:
    """What is compared in records of one kind. Without content keys: all keys except the identity."""

    content: Sequence[ContentKey]
    identity: frozenset[str]


class DuplicateContentRule(CheckRule):
    """The rule. `split_of` returns the split of a file, `key` is the column that identifies a row.

    The content keys are those of `schema`, or chosen from the first records. If splits were only guessed from
    folders (`guessed_splits`), the same content in two of them is an error only if they are named like splits.
    """

    def __init__(
        self,
        split_of: Callable[[str], str],
        schema: Schema | None = None,
        key: str | None = None,
        *,
        guessed_splits: bool = False,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        super().__init__()
        self._split_of = split_of
        self._schema = schema
        self._key = key
        self._guessed_splits = guessed_splits
        self._sort: ExternalSort | None = ExternalSort(memory_bytes)
        self._choices: dict[bool, _ComparedKeys] = {}  # by whether records are sequences
        self._paths: dict[str, tuple[int, int]] = {}  # the number and the split of each file
        self._splits: dict[str, int] = {}
        self._features: dict[tuple[str, bool] | None, int] = {}  # a content key, or None for rows of a table
        self._images: set[int] = set()
        self._seen: Counter[tuple[int, int]] = Counter()  # records by feature and split

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """Add digests of the records; duplicates are found at the end."""
        if self._sort is None or not len(batch):
            return
        choice = self._choices.get(batch.sequence)
        if choice is None:
            identity = find_identity_keys(batch, self._schema, self._key)
            choice = _ComparedKeys(find_content_keys(batch, self._schema, identity), identity)
            self._choices[batch.sequence] = choice
        try:
            for one in choice.content:
                column = (batch.steps if one.in_steps else batch.context).get(one.key)
                if column is not None:
                    self._add(batch, one, *self._content(one, column))
            if not choice.content:
                self._add(batch, None, *self._row(batch, choice.identity))
        except RekordError as failure:
            self.close()
            yield Finding.from_error(failure)

    def end(self) -> Iterator[Finding]:
        """The duplicates."""
        if self._sort is None:
            return
        equal = DuplicateCounter(MAX_LISTED_PER_CODE)
        try:
            for part in self._sort.parts(repeated_only=True):
                equal.take(part)
        except RekordError as failure:
            yield Finding.from_error(failure)
            return
        finally:
            self.close()
        yield from _DuplicateFindings(self, equal).findings()

    def close(self) -> None:
        """Release memory and disk; no more duplicates are found."""
        if self._sort is not None:
            self._sort.close()
            self._sort = None

    # ---- Digests ----

    def _content(self, one: ContentKey, column: KeyColumn | StepColumn) -> tuple[_DigestArray, _ValidMask]:
        into = np.zeros((len(column), 2), np.uint64)
        if isinstance(column, StepColumn):
            mix_steps(one.key, column, into)
            return into, np.diff(column.offsets) > 0
        mix_column(one.key, column, into)
        present = column.counts > 0
        if column.kind == "bytes":
            present &= (into != _digest_empty(one.key)).any(axis=1)
        return into, present

    def _row(self, batch: KeyedBatch, identity: frozenset[str]) -> tuple[_DigestArray, _ValidMask]:
        into = np.zeros((len(batch), 2), np.uint64)
        present = np.zeros(len(batch), np.bool_)
        for key in sorted(batch.context.keys() - identity):
            column = batch.context[key]
            mix_column(key, column, into)
            if column.offsets is None and column.valid is None:
                present[:] = True
            else:
                present |= column.counts > 0
        for key in sorted(batch.steps.keys() - identity):
            mix_steps(key, batch.steps[key], into)
            present |= np.diff(batch.steps[key].offsets) > 0
        return into, present

    def _add(self, batch: KeyedBatch, one: ContentKey | None, digests: _DigestArray, present: _ValidMask) -> None:
        assert self._sort is not None
        name = None if one is None else (one.key, one.in_steps)
        feature = self._features.setdefault(name, len(self._features))
        if one is not None and one.is_image:
            self._images.add(feature)
        if batch.path not in self._paths:
            split = self._splits.setdefault(self._split_of(batch.path), len(self._splits))
            self._paths[batch.path] = len(self._paths), split
        file, split = self._paths[batch.path]
        rows = np.flatnonzero(present)
        places = np.empty(len(rows), PLACE_DTYPE)
        places["low"], places["high"] = digests[rows, 0], digests[rows, 1]
        places["record"], places["offset"] = batch.records[rows], batch.offsets[rows]
        places["file"], places["split"], places["feature"], places["count"] = file, split, feature, 1
        self._seen[feature, split] += len(rows)
        self._sort.add(places)


@lru_cache(maxsize=4096)
def _digest_empty(key: str) -> _DigestArray:
    """The digest of an empty string, which does not make records duplicates."""
    into = np.zeros((1, 2), np.uint64)
    mix_column(key, KeyColumn("bytes", _core.strings([b""]), None, None), into)
    return into


class _DuplicateFindings:
    """The findings about counted duplicates."""

    def __init__(self, rule: DuplicateContentRule, equal: DuplicateCounter) -> None:
        self._equal = equal
        self._seen = rule._seen
        self._images = rule._images
        self._guessed_splits = rule._guessed_splits
        self._paths = list(rule._paths)
        self._splits = list(rule._splits)
        self._features = [None if name is None else name[0] for name in rule._features]

    def findings(self) -> Iterator[Finding]:
        for number, feature in enumerate(self._features):
            total = sum(count for (which, _), count in self._seen.items() if which == number)
            repeats = self._equal.repeats[number]
            if feature is None:
                yield from self._table(number, often=repeats > _MAX_REPEATED_SHARE * total)
            elif repeats and number not in self._images and total - repeats < _MAX_UNIQUE_SHARE * total:
                yield self._describe_natural_repeats(number, feature, total - repeats, total)
            else:
                yield from self._content(number, feature)

    def _across(self, number: int) -> Iterator[tuple[int, int, DuplicateTally]]:
        """The splits and tallies of content in two splits."""
        for (which, one, other), tally in sorted(self._equal.across.items(), key=lambda item: item[0]):
            if which == number:
                yield one, other, tally

    def _within(self, number: int) -> Iterator[tuple[int, DuplicateTally]]:
        """The splits and tallies of content repeated in one split."""
        for (which, split), tally in sorted(self._equal.within.items(), key=lambda item: item[0]):
            if which == number:
                yield split, tally

    def _content(self, number: int, feature: str) -> Iterator[Finding]:
        for one, other, tally in self._across(number):
            names = preview(self._splits[one]), preview(self._splits[other])
            severity: Severity = "error" if self._has_certain_splits(one, other) else "warning"
            totals = (
                f"; {format_count(tally.others, 'record')} of {names[0]} and {tally.records:,} of {names[1]} in total"
            )
            message = f"splits {names[0]} and {names[1]} have the same `{feature[:60]}`"
            do = "keep one of them, and split by a shared key: rekord write SOURCE OUT --split-by KEY"
            yield from self._pairs("H787", severity, feature, message, tally, totals, do)
        for split, tally in self._within(number):
            message = f"duplicate `{feature[:60]}`{self._format_split('in', split)}"
            do = "keep one of them, unless the duplicates are intentional"
            yield from self._pairs("H786", "warning", feature, message, tally, "", do)

    def _pairs(
        self, code: str, severity: Severity, feature: str, message: str, tally: DuplicateTally, totals: str, do: str
    ) -> Iterator[Finding]:
        for pair in tally.pairs:
            found = f"also in {self._where(pair.second)}{totals}"
            yield self._finding(code, severity, feature, message, pair, found, do)
        left = tally.contents - len(tally.pairs)
        if left > 0:
            records = tally.records + tally.others - sum(pair.records for pair in tally.pairs)
            found, do = format_count(records, "record"), "fix the listed ones, then check again"
            finding = self._finding(code, severity, feature, f"{message}: {left:,} more", tally.pairs[-1], found, do)
            finding.record = finding.offset = None
            finding.count = records
            finding.records = []
            yield finding

    def _describe_natural_repeats(self, number: int, feature: str, distinct: int, total: int) -> Finding:
        tallies = [
            tally
            for found in (self._equal.within, self._equal.across)
            for key, tally in found.items()
            if key[0] == number
        ]
        pair = min(tally.pairs[0] for tally in tallies)
        finding = self._finding(
            "H786",
            "note",
            feature,
            f"`{feature[:60]}` has only {distinct:,} distinct "
            f"{'value' if distinct == 1 else 'values'} in {format_count(total, 'record')}",
            pair,
            f"also in {self._where(pair.second)}",
            "nothing if records share such values; else remove the duplicates",
        )
        finding.count = total
        return finding

    def _table(self, number: int, *, often: bool) -> Iterator[Finding]:
        for one, other, tally in self._across(number):
            names = preview(self._splits[one]), preview(self._splits[other])
            total = self._seen[number, other]
            message = f"{tally.records:,} of {total:,} rows of split {names[1]} are also in split {names[0]}"
            severity: Severity = "note" if often or not self._has_certain_splits(one, other) else "warning"
            do = "split by a shared key: rekord write SOURCE OUT --split-by KEY"
            yield self._table_finding("H788", severity, message, tally, do)
        for split, tally in self._within(number):
            total = self._seen[number, split]
            message = f"{tally.records:,} of {total:,} rows{self._format_split('of', split)} are duplicates"
            yield self._table_finding(
                "H789", "note", message, tally, "keep one of each, unless rows repeat by nature"
            )

    def _table_finding(self, code: str, severity: Severity, message: str, tally: DuplicateTally, do: str) -> Finding:
        found = f"the first is also in {self._where(tally.pairs[0].second)}"
        finding = self._finding(code, severity, None, message, tally.pairs[0], found, do)
        finding.count = tally.records + tally.others
        return finding

    def _finding(
        self,
        code: str,
        severity: Severity,
        feature: str | None,
        message: str,
        pair: DuplicatePair,
        found: str,
        do: str,
    ) -> Finding:
        return Finding.of(
            code,
            severity,
            path=self._paths[pair.first.file],
            record=pair.first.record,
            offset=pair.first.offset,
            feature=feature,
            message=message,
            found=found,
            do=do,
            count=pair.records,
            records=[(self._paths[place.file], int(place.record)) for place in (pair.first, pair.second)],
        )

    def _has_certain_splits(self, *splits: int) -> bool:
        """Whether these are certainly splits: declared, or named like splits."""
        words = [re.split(r"[^a-z]+", self._splits[split].lower()) for split in splits]
        return not self._guessed_splits or not any(SPLIT_STEMS.isdisjoint(each) for each in words)

    def _format_split(self, preposition: str, split: int) -> str:
        return f" {preposition} split {preview(self._splits[split])}" if len(self._splits) > 1 else ""

    def _where(self, place: Any) -> str:
        return f"{self._paths[place.file]}, record {place.record:,}"
