"""All that one pass gathered about some files, as the ailments look at it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rekord.codec.remedies import rewriting
from rekord.health.ailments.profile import MOST_PLACES, Profile, Tally
from rekord.health.ailments.raw_shapes import RawShapes
from rekord.health.ailments.unset import Unset
from rekord.health.ailments.words import count
from rekord.health.diagnosis import Diagnosis, Place
from rekord.health.finding import Finding, Severity
from rekord.schema import Schema
from rekord.schema.base import Feature, Kind
from rekord.schema.spec import SequenceSpec, Spec

_MOST_GROUPS = 1000


@dataclass(slots=True)
class Group:
    """Findings of one code, feature and severity in one file: the first few, and how many records share them."""

    path: str
    severity: Severity
    first: list[Finding] = field(default_factory=list)
    records: int = 0

    def add(self, finding: Finding) -> None:
        if finding.record is not None or finding.count > 1:  # else it is about the file
            self.records += finding.count
        if len(self.first) < MOST_PLACES:
            self.first.append(finding)


@dataclass(slots=True)
class FileFacts:
    """One file: how many records it gave, and what was found in it."""

    path: str
    records: int = 0
    groups: dict[tuple[str, str | None, Severity], Group] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        where: tuple[str, str | None, Severity] = finding.code, finding.feature, finding.severity
        if where not in self.groups and len(self.groups) >= _MOST_GROUPS:
            where = finding.code, None, finding.severity  # features of a hostile file: reported together
        self.groups.setdefault(where, Group(self.path, finding.severity)).add(finding)

    def of(self, code: str) -> Group | None:
        """The findings of a code, whatever their feature."""
        return next((group for (each, *_), group in self.groups.items() if each == code), None)


@dataclass(slots=True, kw_only=True)
class Case:
    """What the doctor was asked about, and all that the pass gathered."""

    asked: str
    schema: Schema | None = None
    listed: Schema | None = None  # by which `rewrite` of the same place names columns
    spec: Spec | SequenceSpec | None = None  # what TensorFlow is asked to parse
    compression: Mapping[str, str] = field(default_factory=dict)  # by file name, as a manifest says
    files: list[FileFacts] = field(default_factory=list)
    beside: list[FileFacts] = field(default_factory=list)  # findings about what is no file that was read
    profile: Profile = field(default_factory=Profile)
    raw: RawShapes = field(default_factory=RawShapes)
    unset: Unset = field(default_factory=Unset)
    _by_path: dict[str, FileFacts] = field(default_factory=dict)

    def facts_of(self, path: str | None) -> FileFacts:
        """The facts of a file that is read, or of something beside: a set of shards, a manifest."""
        if not self._by_path:
            self._by_path = {facts.path: facts for facts in self.files}
        where = path or self.asked
        facts = self._by_path.get(where)
        if facts is None:
            facts = self._by_path[where] = FileFacts(where)
            self.beside.append(facts)
        return facts

    def add(self, finding: Finding) -> None:
        """Take down a finding with what it is about."""
        self.facts_of(finding.path).add(finding)

    def features(self) -> Iterator[tuple[str, Feature]]:
        """The columns of the schema by their first record key."""
        if self.schema is not None:
            for column, feature in self.schema.context.items():
                yield feature.record_keys(column)[0], feature

    def keys_of_columns(self) -> dict[str, tuple[str, ...]]:
        """The record keys of each column of the schema."""
        features = {} if self.schema is None else self.schema.features
        return {column: feature.record_keys(column) for column, feature in features.items()}

    def declared_kinds(self) -> dict[str, Kind]:
        """The kind of each record key that the schema declares."""
        return {
            key: kind
            for column, feature in ({} if self.schema is None else self.schema.features).items()
            for key, kind in zip(feature.record_keys(column), feature.record_kinds(), strict=True)
        }

    def rewriting(self, option: str, key: str, to: str) -> str | None:
        """The command that changes a key in a copy of the files; None where `rewrite` has no name for it."""
        if self.listed is None:
            return rewriting(option, key, to)
        for column, feature in self.listed.context.items():
            # A key that is declared stays what it is when its column gets another name.
            if feature.record_keys(column) == (key,) and (option != "rename" or feature.key is None):
                return rewriting(option, column, to)
        return None

    def groups(self, code: str) -> list[Group]:
        """The findings of a code, a group a file."""
        return [group for facts in self.files for (each, *_), group in facts.groups.items() if each == code]

    def groups_about(self, code: str, key: str) -> list[Group]:
        """The findings of a code about a key, or about the column that is stored under it."""
        names = {key, *(column for column, keys in self.keys_of_columns().items() if key in keys)}
        return [group for group in self.groups(code) if any(each.feature in names for each in group.first)]

    def place(self, tally: Tally) -> str:
        """The path of what a tally counted: the file, or what was asked about where there are several."""
        return tally.names[0] if tally.files == 1 else self.asked

    def spread(self, tally: Tally, *, agree: bool = True) -> str | None:
        """Which files something is so in, in words; `agree` says that the other files have it right."""
        total = len(self.files)
        if not tally.records:
            return f"{tally.files:,} of {total:,} files" if total > 1 else None
        if total == 1:
            return f"{count(tally.records, 'record')} of {max(self.files[0].records, tally.records):,}"
        if tally.files == 1:
            name = os.path.basename(tally.names[0])
            others = f": the other {total - 1:,} agree with each other" if agree and total > 2 else ""
            return f"{count(tally.records, 'record')}, in {name} only{others}"
        return f"{count(tally.records, 'record')}, in {tally.files:,} of {total:,} files"

    def diagnosis(
        self,
        code: str,
        severity: Severity,
        tally: Tally,
        *,
        title: str,
        evidence: Iterable[str | None],
        do: str,
        feature: str | None = None,
        ruled_out: Iterable[str | None] = (),
        likely: str | None = None,
        tensorflow_error: str | None = None,
        agree: bool = True,
    ) -> Diagnosis:
        """A diagnosis of what a tally counted."""
        return Diagnosis(
            code=code,
            severity=severity,
            title=title,
            path=self.place(tally),
            files=tally.files,
            feature=feature,
            records_affected=tally.records,
            records=tuple(tally.places),
            evidence=tuple(line for line in (self.spread(tally, agree=agree), *evidence) if line),
            ruled_out=tuple(line for line in ruled_out if line),
            likely=likely,
            do=do,
            tensorflow_error=tensorflow_error,
        )


def tally_of(groups: Sequence[Group]) -> Tally:
    """What some groups of findings come to."""
    tally = Tally(records=sum(group.records for group in groups), files=len({group.path for group in groups}))
    tally.names = list(dict.fromkeys(group.path for group in groups))[:MOST_PLACES]
    places = [
        Place(path=finding.path or group.path, record=finding.record, offset=finding.offset)
        for group in groups
        for finding in group.first
    ]
    tally.places = places[:MOST_PLACES]
    return tally
