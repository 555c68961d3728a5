"""A schema compiled for the core: which record keys there are, and which column each belongs to.

Encoding, decoding and checking read the same plan, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from rekord import _core
from rekord.schema import Boxes, Feature, Image, Mask, Schema, Sparse, Tensor, Text
from rekord.schema.base import held

# The numbers that the core uses: the fields of tf.train.Feature, and core/plan.h's Missing.
KINDS = {"bytes": 1, "float": 2, "int64": 3}
REQUIRED, OPTIONAL, DEFAULTED = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlan:
    """One record key: what the core checks and stores for it."""

    key: str
    kind: int
    count: int = 1
    ragged: bool = False
    utf8: bool = False
    missing: int = REQUIRED
    fill: tuple[Any, ...] | None = None

    def compiled(self, *, skip: bool, missing: int | None = None) -> _core.Slot:
        """The slot as the core takes it; `skip` where its column is not wanted."""
        absent = self.missing if missing is None else missing
        return _core.Slot(self.key, self.kind, self.count, self.ragged, self.utf8, skip, absent, self.fill)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column: its feature, and which of the plan's slots hold it."""

    name: str
    feature: Feature
    slots: tuple[SlotPlan, ...]
    first: int  # index of the first of them in the plan
    as_stored: bool  # what the core decodes is the column already, but for the strings' type
    text: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The columns of one map of a record: an Example's features, a context, or the feature lists."""

    fields: tuple[Field, ...]
    wanted: frozenset[str]
    native: _core.Plan
    reading: _core.Plan  # the same, but that a default of several keys is not filled in key by key

    @property
    def slots(self) -> tuple[SlotPlan, ...]:
        """All slots, in the order of the core's plan."""
        return tuple(slot for field in self.fields for slot in field.slots)

    def field_of(self, slot: int) -> Field:
        """The column that a slot of the plan belongs to."""
        return next(field for field in reversed(self.fields) if field.first <= slot)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecPlan:
    """A whole schema. `steps` is None for Examples. `inferred`: from the first records, not declared."""

    schema: Schema
    context: Group
    steps: Group | None
    inferred: bool

    @property
    def is_payload(self) -> bool:
        """Whether payloads are taken as they are, without a look inside."""
        return self.schema.kind == "bytes"

    @property
    def columns(self) -> tuple[str, ...]:
        """The wanted columns, in the schema's order."""
        groups = (self.context,) if self.steps is None else (self.context, self.steps)
        return tuple(field.name for group in groups for field in group.fields if field.name in group.wanted)


def compile_plan(
    schema: Schema, columns: tuple[str, ...] | None = None, *, strict: bool = False
) -> CodecPlan:
    """The plan for a schema, or for some of its columns. `strict` refuses keys that it does not have."""
    # One row at a time, even the hash of a schema would take longer than the row.
    same = _recent.get((id(schema), columns, strict))
    if same is not None and same[0] is schema:
        return same[1]
    if columns is not None:
        for name in columns:
            schema[name]  # a column that is not there names its near misses
    # Schemas are equal in any order of their columns; batches keep the order of theirs.
    plan = _compiled(schema, tuple(schema), frozenset(schema if columns is None else columns), strict)
    if len(_recent) >= _MOST_RECENT:
        _recent.clear()
    _recent[id(schema), columns, strict] = schema, plan
    return plan


_MOST_RECENT = 16
_recent: dict[tuple[int, tuple[str, ...] | None, bool], tuple[Schema, CodecPlan]] = {}
"""Plans of the very same, frozen, schema objects; each is kept, so that its id stays its own."""


@lru_cache(maxsize=64)
def _compiled(schema: Schema, order: tuple[str, ...], wanted: frozenset[str], strict: bool) -> CodecPlan:
    return CodecPlan(
        schema=schema,
        context=_group(schema.context, wanted, strict),
        steps=_group(schema.steps, wanted, strict) if schema.is_sequence else None,
        inferred=strict,
    )


def _group(features: Mapping[str, Feature], wanted: frozenset[str], strict: bool) -> Group:
    fields: list[Field] = []
    native: list[_core.Slot] = []
    reading: list[_core.Slot] = []
    for name, feature in features.items():
        slots = slots_of(name, feature)
        fields.append(
            Field(
                name=name,
                feature=feature,
                slots=slots,
                first=len(native),
                as_stored=_is_as_stored(feature),
                text=isinstance(feature, Text),
            )
        )
        native += [slot.compiled(skip=name not in wanted) for slot in slots]
        # Whether all of a column's keys are there, or none, is seen only if holes stay holes.
        hole = OPTIONAL if feature.has_default and len(slots) > 1 else None
        reading += [slot.compiled(skip=name not in wanted, missing=hole) for slot in slots]
    return Group(
        fields=tuple(fields),
        wanted=wanted & frozenset(features),
        native=_core.Plan(native, strict),
        reading=_core.Plan(reading, strict),
    )


def _is_as_stored(feature: Feature) -> bool:
    """Whether a column is one value a row, always there, in the dtype that the core decodes to."""
    if feature.optional or isinstance(feature, (Tensor, Sparse, Boxes)):
        return False
    return feature.shape == () and feature.dtype in (None, np.dtype("<i8"), np.dtype("<f4"))


def slots_of(column: str, feature: Feature) -> tuple[SlotPlan, ...]:
    """The record keys of one column and what each must hold."""
    keys = feature.record_keys(column)
    missing = OPTIONAL if feature.optional else DEFAULTED if feature.has_default else REQUIRED
    fills: Sequence[tuple[Any, ...] | None] = _fills(feature) if feature.has_default else [None] * len(keys)
    kinds = [KINDS[kind] for kind in feature.record_kinds()]
    if isinstance(feature, (Sparse, Boxes)) or len(keys) > 1:
        inner = 1 if isinstance(feature, (Sparse, Boxes)) else _inner(feature.shape)
        return tuple(
            SlotPlan(
                key=key,
                kind=kind,
                count=inner if i == 0 else 1,
                ragged=True,
                utf8=i == 0 and isinstance(feature, Text),
                missing=missing,
                fill=fill,
            )
            for i, (key, kind, fill) in enumerate(zip(keys, kinds, fills, strict=True))
        )
    one_value = isinstance(feature, (Tensor, Image, Mask))
    shape = () if one_value else feature.shape
    return (
        SlotPlan(
            key=keys[0],
            kind=kinds[0],
            count=_inner(shape),
            ragged=None in shape,
            utf8=isinstance(feature, Text),
            missing=missing,
            fill=fills[0],
        ),
    )


def _inner(shape: tuple[int | None, ...]) -> int:
    """How many values belong together: the product of the known dimensions."""
    return prod(size for size in shape if size is not None)


def _fills(feature: Feature) -> list[tuple[Any, ...]]:
    """The default as the values of each record key."""
    default = feature.default
    if isinstance(feature, Sparse):
        indices, values = default
        return [tuple(indices), _stored(feature, values)]
    if isinstance(feature, Boxes):
        sides = list(zip(*default, strict=True)) or [()] * 4
        return [tuple(float(value) for value in side) for side in sides]
    if isinstance(feature, Tensor):
        array = np.array(default, feature.dtype)
        return [(array.astype(feature.dtype.newbyteorder("<")).tobytes(),)]
    partitions = len(feature.record_keys("x")) - 1
    if partitions:
        return _partitioned(feature, default, partitions)
    return [_stored(feature, default)]


def _partitioned(feature: Feature, default: Any, partitions: int) -> list[tuple[Any, ...]]:
    """Flat values and the row lengths of each inner ragged level, outermost omitted."""
    lengths: list[tuple[Any, ...]] = []
    level = list(default)
    for _ in range(partitions):
        lengths.append(tuple(len(part) for part in level))
        level = [value for part in level for value in part]
    return [_stored(feature, tuple(level)), *lengths]


def _stored(feature: Feature, default: Any) -> tuple[Any, ...]:
    """A default of plain values, flattened, in the form of its record list."""
    flat = _flat(default)
    if isinstance(feature, Text):
        return tuple(text.encode() for text in flat)
    if feature.kind == "bytes":
        return tuple(bytes(value) for value in flat)
    if feature.kind == "float":
        return tuple(held(float(value), feature.dtype) for value in flat)
    # uint64 is stored bit for bit.
    return tuple(value - (1 << 64) if (value := int(item)) >= 1 << 63 else value for item in flat)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in _flat(part)]
    return [value]
