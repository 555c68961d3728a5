"""A rule: no content occurs twice, and above all not in two splits."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from rekord.health.key_columns import KeyColumn, KeyedBatch, StepColumn
from rekord.report.formatting import format_count
from rekord.schema import Feature, Mask, Schema

MIN_CONTENT_BYTES = 256
"""Images of fewer bytes on average are icons or the like, and repeat by nature."""

_SAMPLED_VALUES = 8
_MASK_NAME = re.compile(r"mask|segmentation", re.IGNORECASE)
_IDENTITY_NAME = re.compile(r"(?:.*[/_])?(?:id|uid|uuid|guid|filename)|(?:.*/)?(?:key|path)|index", re.IGNORECASE)
_IDENTITY_SHARE = 0.9  # of the values of an identity are different, at least


@dataclass(frozen=True, slots=True)
class ContentKey:
    """One key whose values are compared on their own."""

    key: str
    in_steps: bool
    is_image: bool  # declared to be one, or recognised by its bytes; else a tensor that a schema declares


def find_identity_keys(batch: KeyedBatch, schema: Schema | None, column: str | None) -> frozenset[str]:
    """The keys that only tell records apart: those of the column that was named, and what looks like one.

    That is a name such as `image/source_id` whose values differ from record to record. The `user_id` of a table of
    ratings is named like that too, and is data.
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
    """The content of records like these: images, and the tensors of a schema; a mere table has none.

    Other bytes are no content, however large: questions share their paragraph, and recordings their calibration.
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
                continue  # grey PNGs beside images in colour are masks or depths: many are alike
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
    """Whether the first values are images that masks are not: in colour, or no PNG. None: they are no images."""
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
"""Where so small a share of tensors is different, they are settings or the like, and repeat by nature."""

_MAX_REPEATED_SHARE = 0.5
"""Where so large a share of a table's rows repeats, few and small columns make it so."""

_DigestArray = npt.NDArray[np.uint64]
_ValidMask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _ComparedKeys:
    """What is compared in records of one kind. No content keys: all keys but the identity."""

    content: Sequence[ContentKey]
    identity: frozenset[str]


class DuplicateContentRule(CheckRule):
    """The rule. `split_of` tells the split of a file, `key` the column that is a row's identity.

    The content keys are those of `schema`, or chosen when the first records are seen. Where splits were only guessed
    from folders, `guessed_splits`, the same content in two of them is no error unless they are named like splits.
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
        self._seeds: dict[tuple[str, str], int] = {}
        self._nothing: dict[int, _DigestArray] = {}

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """Takes digests of what the records hold; what is the same is known at the end."""
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
        """What is there more than once."""
        if self._sort is None:
            return
        equal = DuplicateCounter(MAX_LISTED_PER_CODE)
        try:
            for part in self._sort.parts():
                equal.take(part)
        except RekordError as failure:
            yield Finding.from_error(failure)
            return
        finally:
            self.close()
        yield from _DuplicateFindings(self, equal).findings()

    def close(self) -> None:
        """Let go of what was kept; from then on nothing is looked for."""
        if self._sort is not None:
            self._sort.close()
            self._sort = None

    # ---- Digests ----

    def _content(self, one: ContentKey, column: KeyColumn | StepColumn) -> tuple[_DigestArray, _ValidMask]:
        rows = len(column)
        into = np.zeros((rows, 2), np.uint64)
        self._mix(one.key, column, into)
        if isinstance(column, StepColumn):
            return into, np.diff(column.offsets) > 0
        present = column.counts > 0
        if column.kind == "bytes":
            present &= (into != self._digest_empty(self._seed(column.kind, one.key))).any(axis=1)
        return into, present

    def _row(self, batch: KeyedBatch, identity: frozenset[str]) -> tuple[_DigestArray, _ValidMask]:
        into = np.zeros((len(batch), 2), np.uint64)
        present = np.zeros(len(batch), np.bool_)
        for columns in (batch.context, batch.steps):
            for key in sorted(columns):
                if key in identity:
                    continue
                column = columns[key]
                self._mix(key, column, into)
                if isinstance(column, StepColumn):
                    present |= np.diff(column.offsets) > 0
                elif column.offsets is None and column.valid is None:
                    present[:] = True
                else:
                    present |= column.counts > 0
        return into, present

    def _mix(self, key: str, column: KeyColumn | StepColumn, into: _DigestArray) -> None:
        if isinstance(column, KeyColumn):
            seed = self._seed(column.kind, key)
            _core.digest_column(seed, column.values, column.offsets, column.valid, into)
            return
        steps = np.zeros((len(column.steps), 2), np.uint64)
        self._mix(key, column.steps, steps)
        # The digests of a record's steps, two numbers each, are a list of numbers like any other.
        seed = self._seed("steps", key)
        _core.digest_column(seed, steps.reshape(-1), column.offsets * 2, column.valid, into)

    def _seed(self, kind: str, key: str) -> int:
        seed = self._seeds.get((kind, key))
        if seed is None:
            name = f"{kind}\0{key}".encode("utf-8", "surrogatepass")
            seed = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")
            self._seeds[kind, key] = seed
        return seed

    def _digest_empty(self, seed: int) -> _DigestArray:
        """The digest of one empty string, which many records have without being the same."""
        if seed not in self._nothing:
            into = np.zeros((1, 2), np.uint64)
            _core.digest_column(seed, _core.strings([b""]), None, None, into)
            self._nothing[seed] = into
        return self._nothing[seed]

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


class _DuplicateFindings:
    """The findings, from what was counted."""

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

    def _content(self, number: int, feature: str) -> Iterator[Finding]:
        for (which, one, other), tally in sorted(self._equal.across.items(), key=lambda item: item[0]):
            if which == number:
                yield from self._leaks(feature, one, other, tally)
        for (which, split), tally in sorted(self._equal.within.items(), key=lambda item: item[0]):
            if which == number:
                yield from self._duplicates(feature, split, tally)

    def _leaks(self, feature: str, one: int, other: int, tally: DuplicateTally) -> Iterator[Finding]:
        names = preview(self._splits[one]), preview(self._splits[other])
        severity: Severity = "error" if self._has_certain_splits(one, other) else "warning"
        in_all = f"{format_count(tally.others, 'record')} of {names[0]} and {tally.records:,} of {names[1]} in all"
        message = f"the same `{feature[:60]}` is in split {names[0]} and in split {names[1]}"
        do = "keep one of them, and split by what equal records share: rekord write --split-by KEY"
        for pair in tally.pairs:
            found = f"also {self._where(pair.second)}; {in_all}"
            yield self._finding("H787", severity, feature, message, pair, found, do)
        yield from self._more("H787", severity, feature, message, tally)

    def _duplicates(self, feature: str, split: int, tally: DuplicateTally) -> Iterator[Finding]:
        message = f"the same `{feature[:60]}` is there more than once{self._in_split(split)}"
        do = "keep one of them, unless they are there to weigh more"
        for pair in tally.pairs:
            found = f"also {self._where(pair.second)}"
            yield self._finding("H786", "warning", feature, message, pair, found, do)
        yield from self._more("H786", "warning", feature, message, tally)

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
            f"`{feature[:60]}` has only {distinct:,} different "
            f"{'value' if distinct == 1 else 'values'} in {format_count(total, 'record')}",
            pair,
            f"also {self._where(pair.second)}",
            "nothing, where records share such values; else remove the copies",
        )
        finding.count = total
        return finding

    def _table(self, number: int, *, often: bool) -> Iterator[Finding]:
        for (which, one, other), tally in sorted(self._equal.across.items(), key=lambda item: item[0]):
            if which == number:
                names = preview(self._splits[one]), preview(self._splits[other])
                total = self._seen[which, other]
                finding = self._finding(
                    "H788",
                    "note" if often or not self._has_certain_splits(one, other) else "warning",
                    None,
                    f"{tally.records:,} of {total:,} rows of split {names[1]} are in split {names[0]} too",
                    tally.pairs[0],
                    f"the first is also {self._where(tally.pairs[0].second)}",
                    "split by what equal rows share: rekord write --split-by KEY",
                )
                finding.count = tally.records + tally.others
                yield finding
        for (which, split), tally in sorted(self._equal.within.items(), key=lambda item: item[0]):
            if which == number:
                finding = self._finding(
                    "H789",
                    "note",
                    None,
                    f"{tally.records:,} of {self._seen[which, split]:,} rows{self._of_split(split)} are there more "
                    "than once",
                    tally.pairs[0],
                    f"the first is also {self._where(tally.pairs[0].second)}",
                    "keep one of each, unless rows repeat by nature",
                )
                finding.count = tally.records
                yield finding

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
        )

    def _more(
        self, code: str, severity: Severity, feature: str, message: str, tally: DuplicateTally
    ) -> Iterator[Finding]:
        left = tally.contents - len(tally.pairs)
        if left > 0:
            last = tally.pairs[-1]
            records = tally.records + tally.others - sum(pair.records for pair in tally.pairs)
            finding = self._finding(
                code,
                severity,
                feature,
                f"{message}: {left:,} more",
                last,
                format_count(records, "record"),
                _FIX_LISTED_HINT,
            )
            finding.record = finding.offset = None
            finding.count = records
            yield finding

    def _has_certain_splits(self, *splits: int) -> bool:
        """Whether these are splits beyond doubt: declared, or named like some."""
        words = [re.split(r"[^a-z]+", self._splits[split].lower()) for split in splits]
        return not self._guessed_splits or not any(SPLIT_STEMS.isdisjoint(each) for each in words)

    def _in_split(self, split: int) -> str:
        return f" in split {preview(self._splits[split])}" if len(self._splits) > 1 else ""

    def _of_split(self, split: int) -> str:
        return f" of split {preview(self._splits[split])}" if len(self._splits) > 1 else ""

    def _where(self, place: Any) -> str:
        return f"{self._paths[place.file]}, record {place.record:,}"


_FIX_LISTED_HINT = "fix those that are listed, then check again"
