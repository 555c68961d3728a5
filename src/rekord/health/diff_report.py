"""What a comparison of two datasets found, as values and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekord.health.diff_examples import Example
from rekord.health.diff_schema import SchemaDiff
from rekord.health.diff_shift import Shift
from rekord.health.finding import Finding


@dataclass(frozen=True, kw_only=True)
class SplitSide:
    """A split of one side: how many of its records were compared, and how they lie there."""

    records: int
    files: int
    compression: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"records": self.records, "files": self.files, "compression": self.compression}


@dataclass(frozen=True, kw_only=True)
class RecordDiff:
    """How many records are in B only, in A only, another under the same key, and the same in another split.

    `features` counts the changed records by the feature that changed. Records whose key is missing, or is there more
    than once, are matched by what they hold.
    """

    added: int = 0
    removed: int = 0
    changed: int = 0
    moved: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    repeated_keys: tuple[int, int] = (0, 0)  # in A, in B
    without_key: tuple[int, int] = (0, 0)
    examples: Sequence[Example] = ()

    @property
    def same(self) -> bool:
        """Whether both sides have the same records in the same splits."""
        return not (self.added or self.removed or self.changed or self.moved)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "added": self.added,
            "removed": self.removed,
            "changed": self.changed,
            "moved": self.moved,
            "changed_features": dict(self.features),
            "repeated_keys": dict(zip("ab", self.repeated_keys, strict=True)),
            "without_key": dict(zip("ab", self.without_key, strict=True)),
            "examples": [example.to_dict() for example in self.examples],
        }


@dataclass(frozen=True, kw_only=True)
class Diff:
    """What `rk.diff` found. `findings` are what could not be read: then the comparison is incomplete."""

    a: str
    b: str
    key: str | None
    schema: SchemaDiff
    counts: Mapping[str, Mapping[str, int]]
    splits: Mapping[str, tuple[SplitSide | None, SplitSide | None]]
    features: Mapping[str, Shift] = field(default_factory=dict)
    records: RecordDiff = field(default_factory=RecordDiff)
    remarks: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    not_listed: int = 0
    unreadable: int = 0  # files that the disk would not give
    by_manifests: bool = False  # nothing was read: two manifests list the same checksums

    @property
    def same(self) -> bool:
        """Whether both hold the same, as far as all of it could be read. Order and sharding make no difference."""
        return self.complete and self.records.same and self.schema.same and not self.lone_splits

    @property
    def complete(self) -> bool:
        """Whether everything could be read."""
        return not self.findings

    @property
    def lone_splits(self) -> list[str]:
        """The splits that only one side has."""
        return [name for name, sides in self.splits.items() if None in sides]

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "same": self.same,
            "complete": self.complete,
            "by_manifests": self.by_manifests,
            "a": self.a,
            "b": self.b,
            "key": self.key,
            "schema": self.schema.to_dict(),
            "counts": {side: dict(counts) for side, counts in self.counts.items()},
            "splits": {
                name: {
                    side: None if split is None else split.to_dict()
                    for side, split in zip("ab", sides, strict=True)
                }
                for name, sides in self.splits.items()
            },
            "features": {name: shift.to_dict() for name, shift in self.features.items()},
            "records": self.records.to_dict(),
            "remarks": list(self.remarks),
            "findings": [finding.to_dict() for finding in self.findings],
            "not_listed": self.not_listed,
        }
