"""What a comparison of two datasets found: schemas, distributions, and records that differ."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from rekord import _core
from rekord.codec.decode import SequenceExample, decode
from rekord.dataset.read import open_frames
from rekord.errors import RekordError
from rekord.health.duplicates import PlaceArray
from rekord.health.finding import Finding, JsonFields
from rekord.health.key_columns import get_payload
from rekord.health.stats.report import FeatureStats, PartStats, compare_parts, to_json_value
from rekord.schema import Schema
from rekord.schema.json_form import feature_to_json

_SINGLE_VALUE, _VARYING_VALUES = "one value", "a varying number of values"


@dataclass(frozen=True, kw_only=True)
class ColumnDiff(JsonFields):
    """A column of both sides that differs. `says` are the changes in words, A → B."""

    a: Mapping[str, Any]
    b: Mapping[str, Any]
    says: list[str]


@dataclass(frozen=True, kw_only=True)
class SchemaDiff(JsonFields):
    """Columns in one side only, and those that differ. `source` is whether they are declared or observed."""

    source: Literal["manifests", "records"]
    added: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    removed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    changed: Mapping[str, ColumnDiff] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        """Whether there is nothing to report."""
        return not (self.added or self.removed or self.changed)


def diff_schemas(a: Schema, b: Schema) -> SchemaDiff:
    """The difference of two schemas."""
    return _diff_columns(
        "manifests", *({name: _describe_declared(schema, name) for name in schema} for schema in (a, b))
    )


def diff_observed_schemas(a: PartStats, b: PartStats) -> SchemaDiff:
    """The difference of the keys and kinds that two sets of records have."""
    if not (a.records and b.records):
        return SchemaDiff(source="records")  # without records, nothing is known about columns
    return _diff_columns(
        "records",
        *({name: _describe_observed(each) for name, each in part.features.items()} for part in (a, b)),
    )


def describe_column(column: Mapping[str, Any]) -> str:
    """A short description of a column: `int64, one value, optional`."""
    words = [str(column["type"])]
    for name, value in column.items():
        if name == "values":
            words.append(str(value))
        elif name in ("optional", "steps"):
            words += [name] if value else []
        elif name != "type":
            words.append(f"{name}={_format_shown(value)}")
    return ", ".join(words)


def _diff_columns(
    source: Literal["manifests", "records"],
    a: Mapping[str, Mapping[str, Any]],
    b: Mapping[str, Mapping[str, Any]],
) -> SchemaDiff:
    changed = {}
    for name in a:
        if name in b and a[name] != b[name]:
            changed[name] = ColumnDiff(a=a[name], b=b[name], says=_list_column_changes(a[name], b[name]))
    return SchemaDiff(
        source=source,
        added={name: column for name, column in b.items() if name not in a},
        removed={name: column for name, column in a.items() if name not in b},
        changed=changed,
    )


def _describe_declared(schema: Schema, name: str) -> dict[str, Any]:
    column = feature_to_json(schema[name])
    return {**column, "steps": True} if name in schema.steps else column


def _describe_observed(feature: FeatureStats) -> dict[str, Any]:
    counts = feature.seen.per_row.moments
    varies = counts.min != counts.max
    values = _VARYING_VALUES if varies else _SINGLE_VALUE if counts.max == 1 else f"{counts.max or 0:,} values"
    column: dict[str, Any] = {"type": " or ".join(sorted(feature.seen.kinds)), "values": values}
    if feature.missing:
        column["optional"] = True
    return {**column, "steps": True} if feature.is_step else column


def _list_column_changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
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
            says.append("one value per record → one per step" if after else "one value per step → one per record")
        else:
            says.append(f"{name} {_format_shown(before)} → {_format_shown(after)}")
    return says


def _format_shown(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else text[:59] + "…"


MEAN_THRESHOLD = 0.1
"""A mean has shifted if it differs by this many standard deviations of A."""

RANGE_THRESHOLD = 0.1
"""A minimum or maximum has shifted if it is outside the range of A by this share of the range."""


@dataclass(frozen=True, kw_only=True)
class FeatureShift(JsonFields):
    """A feature whose distribution shifted: why it is reported, and what both sides have."""

    says: list[str]
    distances: dict[str, float]  # by measure: "js", "linf", "missing"
    a: dict[str, Any]
    b: dict[str, Any]


def find_feature_shifts(a: PartStats, b: PartStats, *, besides: Sequence[str] = ()) -> dict[str, FeatureShift]:
    """The features of both sides that shifted; `besides` are keys that are new in every record."""
    says: dict[str, list[str]] = {}
    distances: dict[str, dict[str, float]] = {}
    if not (a.records and b.records):
        return {}
    for skew in compare_parts(a, b):
        # Both sides are complete, not samples: differences within chance are still shifts.
        if skew.distance is None or skew.threshold is None or skew.measure is None:
            continue
        if skew.distance > skew.threshold:
            says.setdefault(skew.feature, []).append(skew.says)
            distances.setdefault(skew.feature, {})[skew.measure] = skew.distance
    moved = {}
    for name, ours in a.features.items():
        theirs = b.features.get(name)
        if theirs is None or ours.key in besides or not (ours.present and theirs.present):
            continue
        reasons = [
            text for text in [*says.get(name, []), *_describe_number_shift(ours, theirs, name in says)] if text
        ]
        if reasons:
            moved[name] = FeatureShift(
                says=reasons,
                distances=distances.get(name, {}),
                a=_summarize_feature(ours),
                b=_summarize_feature(theirs),
            )
    return moved


def _describe_number_shift(ours: FeatureStats, theirs: FeatureStats, mean_is_said: bool) -> list[str]:
    if ours.kind != theirs.kind or ours.numbers is None or theirs.numbers is None:
        return []
    a, b = ours.numbers, theirs.numbers
    says = []
    mean, other, std = a.moments.mean, b.moments.mean, a.moments.std
    if mean is not None and other is not None and std is not None:
        if abs(other - mean) > max(MEAN_THRESHOLD * std, 1e-6 * abs(mean)) and not mean_is_said:
            says.append(f"mean {mean:.4g} vs {other:.4g}")
        room = RANGE_THRESHOLD * (a.moments.max - a.moments.min)
        if b.moments.min < a.moments.min - room:
            says.append(f"min {a.moments.min:.6g} vs {b.moments.min:.6g}")
        if b.moments.max > a.moments.max + room:
            says.append(f"max {a.moments.max:.6g} vs {b.moments.max:.6g}")
    for word, before, after in (
        ("NaN", a.nan, b.nan),
        ("infinite", a.negative_inf + a.positive_inf, b.negative_inf + b.positive_inf),
    ):
        if bool(before) != bool(after):
            says.append(f"{before:,} values {word} vs {after:,}")
    return says


def _summarize_feature(feature: FeatureStats) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "kind": feature.kind,
        "present": feature.present,
        "missing": feature.missing,
        "values_min": feature.seen.per_row.moments.min,
        "values_max": feature.seen.per_row.moments.max,
    }
    if feature.numbers is not None:
        moments = feature.numbers.moments
        facts |= {"min": to_json_value(moments.min), "max": to_json_value(moments.max)}
        facts |= {
            "mean": _finite_or_none(moments.mean),
            "std": _finite_or_none(moments.std),
            "nan": feature.numbers.nan,
        }
    if feature.strings is not None:
        lengths = feature.strings.lengths.moments
        facts |= {"length_min": lengths.min, "length_max": lengths.max, "length_mean": lengths.mean}
    return facts


def _finite_or_none(number: float | None) -> float | None:
    return number if number is None or math.isfinite(number) else None


RecordChange: TypeAlias = Literal["added", "removed", "changed"]

MAX_SHOWN_CHARACTERS = 60
_MAX_SHOWN_VALUES = 6
_MAX_SHOWN_BYTES = 16
_MAX_SHOWN_FEATURES = 8


@dataclass(frozen=True, kw_only=True)
class RecordPosition(JsonFields):
    """The location of a record: its file, its number in it, and its frame's offset in the decompressed stream."""

    path: str
    record: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class RecordExample(JsonFields):
    """A record in one side only, or changed in B. `features` are (in A, in B), formatted for display."""

    change: RecordChange
    key: int | str | None = None
    a: RecordPosition | None = None
    b: RecordPosition | None = None
    features: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        features = {name: {"a": a, "b": b} for name, (a, b) in self.features.items()}
        return {**super().to_dict(), "features": features}


RecordPair: TypeAlias = "tuple[RecordChange, RecordPosition | None, RecordPosition | None]"


def to_record_positions(places: PlaceArray, files: Sequence[str]) -> list[RecordPosition]:
    """Rows of the sort as locations."""
    return [
        RecordPosition(path=files[int(row["file"])], record=int(row["record"]), offset=int(row["offset"]))
        for row in places
    ]


def read_examples(pairs: Sequence[RecordPair], keys: tuple[str | None, str | None]) -> list[RecordExample]:
    """The records at these locations. `keys` are the record keys that identify them in A and in B."""
    payloads = _read_payloads({place for _, *both in pairs for place in both if place is not None})
    found = []
    for change, a, b in pairs:
        before, after = (None if place is None else _decode_payload(payloads.get(place)) for place in (a, b))
        holder, key = (after, keys[1]) if before is None else (before, keys[0])
        found.append(
            RecordExample(
                change=change,
                key=None if key is None or holder is None else _get_key_value(holder.get(key)),
                a=a,
                b=b,
                features=_diff_values(before, after) if before is not None and after is not None else {},
            )
        )
    return found


def format_value(value: Any) -> str | None:
    """The value of a key in a record, truncated for display; None if it is missing."""
    if value is None:
        return None
    if isinstance(value, dict):  # the steps of a sequence
        return f"{value['steps']:,} steps"
    if len(value) == 1:
        return _format_single_value(value[0])
    some = ", ".join([_format_single_value(each) for each in value[:_MAX_SHOWN_VALUES]])
    more = ", …" if len(value) > _MAX_SHOWN_VALUES else ""
    text = f"[{some}{more}]"
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{len(value):,} values"


def _format_single_value(value: Any) -> str:
    if isinstance(value, bytes):
        try:
            text = value[: 4 * MAX_SHOWN_CHARACTERS].decode()
        except UnicodeDecodeError:
            text = ""
        if text.isprintable() and (text or not value):
            shown = f"'{text}'"
            return shown if len(shown) <= MAX_SHOWN_CHARACTERS else shown[: MAX_SHOWN_CHARACTERS - 1] + "…"
        more = "…" if len(value) > _MAX_SHOWN_BYTES else ""
        return f"{len(value):,} bytes ({value[:_MAX_SHOWN_BYTES].hex()}{more})"
    return str(value)  # float32 with as many digits as needed


def _get_key_value(value: Any) -> int | str | None:
    if value is None or isinstance(value, dict) or len(value) != 1:
        return None
    return int(value[0]) if isinstance(value, np.ndarray) else _format_single_value(value[0])


def _diff_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    changed: dict[str, tuple[str | None, str | None]] = {}
    for name in sorted({*before, *after}):
        a, b = before.get(name), after.get(name)
        if not _is_same_value(a, b) and len(changed) < _MAX_SHOWN_FEATURES:
            changed[name] = format_value(a), format_value(b)
    return changed


def _is_same_value(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return False
    return bool(a == b)


def _decode_payload(payload: tuple[bytes, bool] | None) -> dict[str, Any] | None:
    """The features of a record; None if it can no longer be read, or is not an Example."""
    if payload is None:
        return None
    content, sequence = payload
    try:
        record = decode(content, kind="sequence" if sequence else "example")
    except RekordError:
        return None
    if not isinstance(record, SequenceExample):
        return dict(record)
    steps = {
        key: {"steps": len(values), "values": [_freeze(value) for value in values]}
        for key, values in record.steps.items()
    }
    return {**record.context, **steps}


def _freeze(value: Any) -> Any:
    return (value.dtype.kind, value.tobytes()) if isinstance(value, np.ndarray) else value


def _read_payloads(places: Iterable[RecordPosition]) -> dict[RecordPosition, tuple[bytes, bool]]:
    """The payloads at some locations, and whether their files hold SequenceExamples."""
    by_path: defaultdict[str, list[RecordPosition]] = defaultdict(list)
    for place in places:
        by_path[place.path].append(place)
    found = {}
    for path, wanted in by_path.items():
        try:
            found.update(_read_file_payloads(path, sorted(wanted, key=lambda place: place.offset)))
        except RekordError:
            continue  # its damage has been reported, and the locations are known without it
    return found


def _read_file_payloads(path: str, wanted: Sequence[RecordPosition]) -> dict[RecordPosition, tuple[bytes, bool]]:
    found = {}
    sequence = _has_sequence_examples(path)
    for place in wanted:
        with open_frames(path) as reader:
            if not reader.start_at(offset=place.offset, record=place.record):
                break
            stretch = next(reader.iter_verified_frames(), None)
            if stretch is not None:
                found[place] = get_payload(stretch, 0), sequence
    left = {place.offset: place for place in wanted if place not in found}
    if left:  # compressed: can only be read from the start
        with open_frames(path) as reader:
            for stretch in reader.iter_verified_frames():
                for index in range(len(stretch.extents)):
                    at = left.pop(stretch.offset(index), None)
                    if at is not None:
                        found[at] = get_payload(stretch, index), sequence
                if not left:
                    break
    return found


def _has_sequence_examples(path: str) -> bool:
    from rekord.dataset.infer import detect_payload_kind

    with open_frames(path) as reader:
        stretch = next(reader.iter_verified_frames(), None)
        return stretch is not None and detect_payload_kind(stretch) == _core.PayloadKind.SEQUENCE


@dataclass(frozen=True, kw_only=True)
class SplitSide(JsonFields):
    """A split of one side: the number of compared records, and their arrangement."""

    records: int
    files: int
    compression: str


@dataclass(frozen=True, kw_only=True)
class RecordDiff:
    """The number of records in B only, in A only, changed under the same key, and the same in another split.

    `features` counts the changed records by the feature that changed. Records whose key is missing or duplicate
    are matched by content.
    """

    added: int = 0
    removed: int = 0
    changed: int = 0
    moved: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    repeated_keys: tuple[int, int] = (0, 0)  # in A, in B
    without_key: tuple[int, int] = (0, 0)
    examples: Sequence[RecordExample] = ()

    @property
    def same(self) -> bool:
        """Whether both sides have the same records in the same splits."""
        return not (self.added or self.removed or self.changed or self.moved)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
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
    """The result of `rk.diff`. `findings` are what could not be read: then the comparison is incomplete."""

    a: str
    b: str
    key: str | None
    schema: SchemaDiff
    counts: Mapping[str, Mapping[str, int]]
    splits: Mapping[str, tuple[SplitSide | None, SplitSide | None]]
    features: Mapping[str, FeatureShift] = field(default_factory=dict)
    records: RecordDiff = field(default_factory=RecordDiff)
    remarks: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    not_listed: int = 0
    unreadable: int = 0  # files that could not be read from disk
    by_manifests: bool = False  # nothing was read: two manifests list the same checksums

    @property
    def same(self) -> bool:
        """Whether both sides have the same content and all of it could be read. Order and sharding do not matter."""
        return self.complete and self.records.same and self.schema.same and not self.unmatched_splits

    @property
    def complete(self) -> bool:
        """Whether everything could be read."""
        return not self.findings

    @property
    def unmatched_splits(self) -> list[str]:
        """The splits that only one side has."""
        return [name for name, sides in self.splits.items() if None in sides]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
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
                    side: None if split is None else split.to_dict() for side, split in zip("ab", sides, strict=True)
                }
                for name, sides in self.splits.items()
            },
            "features": {name: shift.to_dict() for name, shift in self.features.items()},
            "records": self.records.to_dict(),
            "remarks": list(self.remarks),
            "findings": [finding.to_dict() for finding in self.findings],
            "not_listed": self.not_listed,
        }
