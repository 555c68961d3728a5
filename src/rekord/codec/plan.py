"""A schema compiled for the core: its record keys, and the column of each.

Encoding, decoding and checking use the same plan, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from rekord import _core
from rekord.schema import Feature, Schema

# The numbers that the core uses: the fields of tf.train.Feature, and core/plan.h's Missing.
KIND_NUMBERS = {"bytes": 1, "float": 2, "int64": 3}
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

    def to_core_slot(self, *, skip: bool, missing: int | None = None) -> _core.Slot:
        """The slot for the core; `skip` if its column is not selected."""
        absent = self.missing if missing is None else missing
        return _core.Slot(self.key, self.kind, self.count, self.ragged, self.utf8, skip, absent, self.fill)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """One column: its feature, and its slots in the plan."""

    name: str
    feature: Feature
    slots: tuple[SlotPlan, ...]
    first: int  # index of the first of them in the plan
    is_as_stored: bool  # decoded by the core without conversion, except the type of strings
    is_string: bool  # stored as bytes
    text: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The columns of one map of a record: an Example's features, a context, or the feature lists."""

    fields: tuple[ColumnPlan, ...]
    selected: tuple[ColumnPlan, ...]  # those of them that are read
    native: _core.Plan
    reading: _core.Plan  # the same, without filling in defaults of several keys

    @property
    def slots(self) -> tuple[SlotPlan, ...]:
        """All slots, in the order of the core's plan."""
        return tuple(slot for field in self.fields for slot in field.slots)

    def column_of_slot(self, slot: int) -> ColumnPlan:
        """The column that a slot of the plan belongs to."""
        return next(field for field in reversed(self.fields) if field.first <= slot)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecPlan:
    """A whole schema. `steps` is None for Examples. `inferred`: from the first records, not declared."""

    schema: Schema
    context: GroupPlan
    steps: GroupPlan | None
    inferred: bool

    @property
    def is_payload(self) -> bool:
        """Whether payloads are not parsed."""
        return self.schema.kind == "bytes"

    @property
    def columns(self) -> tuple[str, ...]:
        """The selected columns, in the order of the schema."""
        groups = (self.context,) if self.steps is None else (self.context, self.steps)
        return tuple(field.name for group in groups for field in group.selected)


def compile_plan(schema: Schema, columns: tuple[str, ...] | None = None, *, strict: bool = False) -> CodecPlan:
    """The plan for a schema, or for some of its columns. With `strict`, unknown keys are an error."""
    # For a single row, even hashing the schema would take longer than the row.
    same = _plan_cache.get((id(schema), columns, strict))
    if same is not None and same[0] is schema:
        return same[1]
    if columns is not None:
        for name in columns:
            schema[name]  # raises an error with near misses
    # Schemas are equal in any order of their columns; batches keep the order of theirs.
    plan = _compile(schema, tuple(schema), frozenset(schema if columns is None else columns), strict)
    if len(_plan_cache) >= _MAX_CACHED_PLANS:
        _plan_cache.clear()
    _plan_cache[id(schema), columns, strict] = schema, plan
    return plan


_MAX_CACHED_PLANS = 16
_plan_cache: dict[tuple[int, tuple[str, ...] | None, bool], tuple[Schema, CodecPlan]] = {}
"""Plans by identity of the schema, which is kept so that its id is not reused."""


@lru_cache(maxsize=64)
def _compile(schema: Schema, order: tuple[str, ...], wanted: frozenset[str], strict: bool) -> CodecPlan:
    return CodecPlan(
        schema=schema,
        context=_compile_group(schema.context, wanted, strict),
        steps=_compile_group(schema.steps, wanted, strict) if schema.is_sequence else None,
        inferred=strict,
    )


def _compile_group(features: Mapping[str, Feature], wanted: frozenset[str], strict: bool) -> GroupPlan:
    fields: list[ColumnPlan] = []
    native: list[_core.Slot] = []
    reading: list[_core.Slot] = []
    for name, feature in features.items():
        slots = plan_slots(name, feature)
        fields.append(
            ColumnPlan(
                name=name,
                feature=feature,
                slots=slots,
                first=len(native),
                is_as_stored=_is_as_stored(feature),
                is_string=slots[0].kind == KIND_NUMBERS["bytes"],
                text=feature.is_text,
            )
        )
        native += [slot.to_core_slot(skip=name not in wanted) for slot in slots]
        # Missing keys of a column can only be detected if they are not filled in.
        hole = OPTIONAL if feature.has_default and len(slots) > 1 else None
        reading += [slot.to_core_slot(skip=name not in wanted, missing=hole) for slot in slots]
    return GroupPlan(
        fields=tuple(fields),
        selected=tuple(field for field in fields if field.name in wanted),
        native=_core.Plan(native, strict),
        reading=_core.Plan(reading, strict),
    )


def _is_as_stored(feature: Feature) -> bool:
    """Whether a column has one required value per row, in a dtype that the core decodes to."""
    is_tensor = feature.storage == "blob" and feature.dtype is not None
    if feature.optional or feature.storage == "parallel" or is_tensor:
        return False
    dtype = feature.dtype  # NumPy takes None for float64 when it compares
    return feature.shape == () and (dtype is None or dtype in (np.dtype("<i8"), np.dtype("<f4")))


def plan_slots(column: str, feature: Feature) -> tuple[SlotPlan, ...]:
    """The record keys of one column, and what each must contain."""
    keys = feature.record_keys(column)
    missing = OPTIONAL if feature.optional else DEFAULTED if feature.has_default else REQUIRED
    fills = feature.stored_default() if feature.has_default else [None] * len(keys)
    kinds = [KIND_NUMBERS[kind] for kind in feature.record_kinds()]
    shape = feature.stored_shape
    # How many values belong together: the product of the known dimensions.
    inner = 1 if feature.storage == "parallel" else prod(size for size in shape if size is not None)
    return tuple(
        SlotPlan(
            key=key,
            kind=kind,
            count=inner if i == 0 else 1,
            ragged=len(keys) > 1 or feature.storage == "parallel" or None in shape,
            utf8=i == 0 and feature.is_text,
            missing=missing,
            fill=fill,
        )
        for i, (key, kind, fill) in enumerate(zip(keys, kinds, fills, strict=True))
    )
