"""How the columns of two datasets differ: as their manifests declare them, or as their records were seen to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rekord.health.stats.report import FeatureStats, Part
from rekord.schema import Schema
from rekord.schema.jsonform import feature_members

_ONE, _VARYING = "one value", "a varying number of values"


@dataclass(frozen=True, kw_only=True)
class ColumnChange:
    """A column that both sides have and that is not the same. `says` are the changes in words, A → B."""

    a: Mapping[str, Any]
    b: Mapping[str, Any]
    says: list[str]

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"a": dict(self.a), "b": dict(self.b), "says": self.says}


@dataclass(frozen=True, kw_only=True)
class SchemaDiff:
    """Columns in one side only, and those that differ. `source` says whether they are declared or were seen."""

    source: Literal["manifests", "records"]
    added: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    removed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    changed: Mapping[str, ColumnChange] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        """Whether there is nothing to tell."""
        return not (self.added or self.removed or self.changed)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "source": self.source,
            "added": {name: dict(column) for name, column in self.added.items()},
            "removed": {name: dict(column) for name, column in self.removed.items()},
            "changed": {name: change.to_dict() for name, change in self.changed.items()},
        }


def declared_diff(a: Schema, b: Schema) -> SchemaDiff:
    """The difference of two schemas."""
    return _compared("manifests", *({name: _declared(schema, name) for name in schema} for schema in (a, b)))


def seen_diff(a: Part, b: Part) -> SchemaDiff:
    """The difference of what two sets of records were seen to have under their keys."""
    if not (a.records and b.records):
        return SchemaDiff(source="records")  # nothing can be said of columns that no record shows
    return _compared(
        "records", *({name: _seen(each) for name, each in part.features.items()} for part in (a, b))
    )


def described(column: Mapping[str, Any]) -> str:
    """A column in a few words: `int64, one value, optional`."""
    words = [str(column["type"])]
    for name, value in column.items():
        if name == "values":
            words.append(str(value))
        elif name in ("optional", "steps"):
            words += [name] if value else []
        elif name != "type":
            words.append(f"{name}={_shown(value)}")
    return ", ".join(words)


def _compared(
    source: Literal["manifests", "records"],
    a: Mapping[str, Mapping[str, Any]],
    b: Mapping[str, Mapping[str, Any]],
) -> SchemaDiff:
    changed = {}
    for name in a:
        if name in b and a[name] != b[name]:
            changed[name] = ColumnChange(a=a[name], b=b[name], says=_changes(a[name], b[name]))
    return SchemaDiff(
        source=source,
        added={name: column for name, column in b.items() if name not in a},
        removed={name: column for name, column in a.items() if name not in b},
        changed=changed,
    )


def _declared(schema: Schema, name: str) -> dict[str, Any]:
    column = feature_members(schema[name])
    return {**column, "steps": True} if name in schema.steps else column


def _seen(feature: FeatureStats) -> dict[str, Any]:
    counts = feature.seen.per_row.moments
    varies = counts.min != counts.max
    values = _VARYING if varies else _ONE if counts.max == 1 else f"{counts.max or 0:,} values"
    column: dict[str, Any] = {"type": " or ".join(sorted(feature.seen.kinds)), "values": values}
    if feature.missing:
        column["optional"] = True
    return {**column, "steps": True} if feature.is_step else column


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    says = []
    for name in dict.fromkeys([*a, *b]):
        before, after = a.get(name), b.get(name)
        if before == after:
            continue
        if name == "optional":
            says.append("required → optional" if after else "optional → required")
        elif name in ("type", "values"):
            says.append(f"{before} → {after}")
        elif name == "steps":
            says.append("one value a record → one a step" if after else "one value a step → one a record")
        else:
            says.append(f"{name} {_shown(before)} → {_shown(after)}")
    return says


def _shown(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else text[:59] + "…"
