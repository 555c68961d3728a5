"""Schema inference: what the values of each column of records or rows have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from rekord.arguments import tuple_names
from rekord.errors import RekordError, error, preview, schema_error
from rekord.schema.base import Feature, ListKind, Shape, round_to_dtype
from rekord.schema.column_evidence import ColumnEvidence
from rekord.schema.features import Bytes, Float32, Int64
from rekord.schema.row_adapters import column_batches, flatten_row, is_table
from rekord.schema.schema import Schema

IntRange = tuple[int, int]

_FLOAT32 = np.dtype("float32")
_KINDS: tuple[ListKind, ...] = ("bytes", "float", "int64")  # numbered from 1 in the core
_TYPES: dict[ListKind, type[Bytes] | type[Float32] | type[Int64]] = {
    "bytes": Bytes,
    "float": Float32,
    "int64": Int64,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KindMismatch:
    """The first record whose kind differs from the inferred one."""

    kind: ListKind
    record: int
    path: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The known fields as JSON-compatible values."""
        place = {} if self.path is None else {"path": self.path}
        return {"kind": self.kind, "record": self.record, **place}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEvidence:
    """What one key contains. `present` counts records; if `steps` is set, the rest is about single steps."""

    present: int  # records that have it, with a kind
    unset: int = 0
    kind: ListKind | None = None  # of the first record
    kinds: Mapping[ListKind, int]
    values: IntRange | None = None  # least and greatest number of values, of that kind
    steps: IntRange | None = None
    ints: IntRange | None = None
    floats: tuple[float, float] | None = None  # finite ones
    finite: int = 0
    nan: int = 0
    infinite: int = 0
    string_bytes: IntRange | None = None
    utf8: bool = False  # these three: whether all byte strings are, and there is one
    jpeg: bool = False
    png: bool = False
    differs: KindMismatch | None = None

    @staticmethod
    def from_facts(facts: Mapping[str, Any]) -> KeyEvidence:
        """The evidence of the core about a key."""
        unset, *counts = facts["kinds"]
        first, other = facts["first"], facts["other"]
        is_list = facts["steps"] is not None
        strings = facts["strings"] > 0
        return KeyEvidence(
            present=facts["records"] - (0 if is_list else unset[0]),
            unset=unset[0],
            kind=_KINDS[first - 1] if first else None,
            kinds={kind: n for kind, (n, _) in zip(_KINDS, counts, strict=True) if n},
            values=counts[first - 1][1] if first else None,
            steps=facts["steps"],
            ints=facts["ints"],
            floats=facts["floats"],
            finite=facts["finite"],
            nan=facts["nan"],
            infinite=facts["infinite"],
            string_bytes=facts["string_bytes"],
            utf8=strings and facts["utf8"],
            jpeg=strings and facts["jpeg"],
            png=strings and facts["png"],
            differs=KindMismatch(kind=_KINDS[other - 1], record=facts["other_record"]) if other else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """The relevant fields as JSON-compatible values."""
        out: dict[str, Any] = {"present": self.present, "kind": self.kind}
        if self.unset:
            out["unset"] = self.unset
        if self.differs is not None:
            out |= {"kinds": dict(self.kinds), "differs": self.differs.to_dict()}
        for name, span in (("steps", self.steps), ("values", self.values)):
            if span is not None:
                out[name] = list(span)
        if self.kind == "int64" and self.ints:
            out |= {"min": self.ints[0], "max": self.ints[1]}
        if self.kind == "float":
            if self.floats:
                least, most = [round_to_dtype(value, _FLOAT32) for value in self.floats]
                out |= {"min": least, "max": most}
            out |= {name: n for name, n in (("nan", self.nan), ("infinite", self.infinite)) if n}
        if self.kind == "bytes" and self.string_bytes:
            out["bytes"] = list(self.string_bytes)
            out["utf8"] = self.utf8
            if self.jpeg or self.png:
                out["format"] = "jpeg" if self.jpeg else "png"
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a number of records contain, by key: an Example's features or a SequenceExample's two maps.

    `complete` means that every record was read.
    """

    records: int
    complete: bool
    context: Mapping[str, KeyEvidence]
    steps: Mapping[str, KeyEvidence] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The member `evidence` of a schema's JSON."""
        out: dict[str, Any] = {"records": self.records, "complete": self.complete}
        groups = {"features": self.context}
        if self.steps is not None:
            groups = {"context": self.context, "steps": self.steps}
        for group, keys in groups.items():
            out[group] = {key: seen.to_dict() for key, seen in keys.items()}
        return out


def schema_from_evidence(evidence: Evidence) -> Schema:
    """The schema that all records match, except those whose kind differs from the first.

    A key that never has a kind is declared as optional Bytes, so that the schema covers all keys of its own records.
    Only the empty key is skipped, as it is not a valid column name.
    """
    document = evidence.to_dict()
    context = {
        key: _infer_feature(seen, seen.present < evidence.records) for key, seen in evidence.context.items() if key
    }
    if evidence.steps is None:
        return Schema(context, evidence=document)
    names = assign_step_columns(context, [key for key in evidence.steps if key])
    steps = {}
    for key, name in names.items():
        seen = evidence.steps[key]
        steps[name] = _infer_feature(seen, seen.present < evidence.records, key=None if name == key else key)
    return Schema(context=context, steps=steps, evidence=document)


def assign_step_columns(context: Collection[str], keys: Collection[str]) -> dict[str, str]:
    """The step column for each key: its own name, unless a context column has it."""
    taken = {*context, *keys}
    names = {}
    for key in keys:
        name = key
        if key in context:
            while name in taken:
                name = f"steps/{name}"
            taken.add(name)
        names[key] = name
    return names


def _infer_feature(seen: KeyEvidence, optional: bool, key: str | None = None) -> Feature:
    if seen.kind is None:
        return Bytes(shape=(None,), optional=optional, key=key)
    return _TYPES[seen.kind](shape=_infer_shape(seen), optional=optional, key=key)


def _infer_shape(seen: KeyEvidence) -> Shape:
    least, most = seen.values or (0, 0)
    if seen.steps is not None and seen.unset:
        least = 0  # a step without a kind is a step without values
    if least != most or most == 0:
        return (None,)
    return () if most == 1 else (most,)


def infer_rows(rows: Any, *, names: Sequence[str] | None = None, limit: int | None = None) -> Schema:
    """The schema that all rows, or the first `limit`, match; with evidence.

    Rows are mappings (nested names are joined with `/`), tuples with the columns `names` (default: x, y, weight),
    or a table: a dict of NumPy columns, an Arrow table, a pandas or polars DataFrame.
    """
    tuple_names(names)
    columns: dict[str, ColumnEvidence] = {}
    count = 0
    complete = True
    if is_table(rows):
        for length, batch in column_batches(rows, limit):
            for name, values in batch.items():
                seen = columns.get(name) or columns.setdefault(name, ColumnEvidence(name))
                seen.add_column(values, count)
            count += length
        complete = limit is None or count < limit or _count_table_rows(rows) == count
    else:
        items = iter(_require_iterable(rows))
        for row in items if limit is None else islice(items, limit):
            for name, value in flatten_row(row, count, names).items():
                seen = columns.get(name) or columns.setdefault(name, ColumnEvidence(name))
                seen.add(value, count)
            count += 1
        if limit is not None and count == limit:
            complete = next(items, items) is items
    if not count or not columns:
        raise error(
            "S126",
            expected="at least one row with at least one column",
            found="no rows" if not count else f"{count:,} rows without columns",
            do="give rows, or declare the schema: rk.Schema({...})",
        )
    features = {name: seen.feature(count) for name, seen in columns.items()}
    evidence = {
        "rows": count,
        "complete": complete,
        "features": {name: seen.evidence() for name, seen in columns.items()},
    }
    return Schema(features, evidence=evidence)


def infer_columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, Feature | RekordError]:
    """The feature that all values of each column match, or why there is none."""
    columns: dict[str, ColumnEvidence] = {}
    failures: dict[str, RekordError] = {}
    count = 0
    for row in rows:
        for name, value in flatten_row(row, count, None).items():
            if name in failures:
                continue
            seen = columns.get(name) or columns.setdefault(name, ColumnEvidence(name))
            try:
                seen.add(value, count)
            except RekordError as failure:
                failures[name] = failure
        count += 1
    features: dict[str, Feature | RekordError] = {}
    for name, seen in columns.items():
        try:
            features[name] = failures.get(name) or seen.feature(count)
        except RekordError as failure:
            features[name] = failure
    return features


def _count_table_rows(table: Any) -> int:
    first = next(iter(table.values()), ()) if hasattr(table, "values") and isinstance(table, dict) else table
    return int(first.num_rows) if hasattr(first, "num_rows") else len(first)


def _require_iterable(rows: Any) -> Iterable[Any]:
    if isinstance(rows, Iterable) and not isinstance(rows, (str, bytes, bytearray)):
        return rows
    if hasattr(rows, "__len__") and hasattr(rows, "__getitem__"):  # a map-style torch Dataset
        return (rows[i] for i in range(len(rows)))
    raise schema_error(
        "S132",
        f"rows have type {type(rows).__name__}, which is not iterable",
        expected="an iterable of mappings or tuples, or a table",
        found=preview(rows),
        do='give a list such as [{"label": 3}, …]',
    )
