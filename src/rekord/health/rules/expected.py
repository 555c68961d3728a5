"""What a schema expects of each record key, compiled once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rekord.codec.plan import KINDS, slots_of
from rekord.health.rules.limits import Limits, indices_of, limits_of
from rekord.health.rules.once import named
from rekord.schema import Boxes, Feature, Int64, Schema, Sparse
from rekord.schema.base import Kind

_KINDS: dict[int, Kind] = {number: name for name, number in KINDS.items()}  # type: ignore[misc]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedKey:
    """One record key of a column: any multiple of `count` values where `ragged`, else so many."""

    key: str
    kind: Kind
    count: int
    ragged: bool
    utf8: bool
    limits: Limits | None  # of numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedColumn:
    """One column, and the keys that it is stored under."""

    name: str
    feature: Feature
    keys: tuple[ExpectedKey, ...]
    step: bool
    required: bool

    @property
    def optional(self) -> bool:
        """Whether an empty list of a fixed shape is a value that is missing."""
        return self.feature.optional

    def whose(self, key: str, step: int | None = None) -> str:
        """The subject of a sentence about what is stored under one of the keys."""
        stored = "" if key == self.name else f" (stored as {named(key)})"
        return f"{'' if step is None else f'step {step:,} of '}{named(self.name)}{stored}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A whole schema."""

    columns: tuple[ExpectedColumn, ...]
    context: Mapping[str, ExpectedColumn]  # by record key
    steps: Mapping[str, ExpectedColumn]


def compiled(schema: Schema) -> Expected:
    """What records must hold to be those of a schema."""
    context = [_column(name, feature, step=False) for name, feature in schema.context.items()]
    steps = [_column(name, feature, step=True) for name, feature in schema.steps.items()]
    return Expected(
        columns=(*context, *steps),
        context={key.key: column for column in context for key in column.keys},
        steps={key.key: column for column in steps for key in column.keys},
    )


def _column(name: str, feature: Feature, *, step: bool) -> ExpectedColumn:
    keys = tuple(
        ExpectedKey(
            key=slot.key,
            kind=_KINDS[slot.kind],
            count=slot.count,
            ragged=slot.ragged,
            utf8=slot.utf8,
            limits=_limits(feature, place) if slot.kind != KINDS["bytes"] else None,
        )
        for place, slot in enumerate(slots_of(name, feature))
    )
    return ExpectedColumn(name=name, feature=feature, keys=keys, step=step, required=feature.required)


def _limits(feature: Feature, place: int) -> Limits | None:
    """The limits of the numbers under the key at `place` of a column's keys."""
    if isinstance(feature, Boxes):
        return None  # a rule of their own knows what they mean
    if isinstance(feature, Sparse):
        return indices_of(feature) if place == 0 else limits_of(feature)
    return limits_of(feature) if place == 0 else limits_of(Int64())
