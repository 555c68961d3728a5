"""Whether data written with one schema can be read with another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rekord.arguments import check_keywords
from rekord.schema.base import Changes, Feature
from rekord.schema.schema import KIND_NAMES, Schema

Verdict: TypeAlias = Literal["same", "widened", "breaking"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference; `column` is None if it concerns the whole schema."""

    column: str | None
    what: str
    verdict: Literal["widened", "breaking"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatibility:
    """same: the schemas are equal. widened: all data of the first can be read. breaking: some cannot."""

    verdict: Verdict
    changes: tuple[Change, ...]


@check_keywords
def compat(a: Schema, b: Schema) -> Compatibility:
    """Whether data written with `a` can be read with `b`.

    Columns are matched by name, then by record key: a renamed column that keeps its key is the same column. A default
    of `a` was written for every missing value, so that this data is never absent.
    """
    changes = tuple(_find_changes(a, b))
    if any(change.verdict == "breaking" for change in changes):
        return Compatibility(verdict="breaking", changes=changes)
    return Compatibility(verdict="widened" if changes else "same", changes=changes)


def _find_changes(a: Schema, b: Schema) -> Iterator[Change]:
    if a.kind != b.kind:
        what = f"records were {KIND_NAMES[a.kind]} and are now {KIND_NAMES[b.kind]}"
        yield Change(column=None, what=what, verdict="breaking")
        return
    for before, after, elsewhere in ((a.context, b.context, a.steps), (a.steps, b.steps, a.context)):
        yield from _compare_columns(before, after, elsewhere)


def _compare_columns(
    before: Mapping[str, Feature], after: Mapping[str, Feature], elsewhere: Mapping[str, Feature]
) -> Iterator[Change]:
    owners = {feature.record_keys(name): name for name, feature in before.items()}
    used = set()
    for name, feature in after.items():
        keys = feature.record_keys(name)
        old = name if name in before else owners.get(keys)
        if old is None:
            yield _describe_added_column(name, feature, keys, before, moved=name in elsewhere)
            continue
        used.add(old)
        found = list(_compare_features(before[old], feature, before[old].record_keys(old), keys))
        if old != name:
            found.insert(0, (True, f"renamed from `{old}`"))
        elif not found and before[old] != feature:
            # The rest concerns writing only: quality, rounding, cast, an explicit key.
            found.append((True, "declaration changed, without effect on reading"))
        for readable, what in found:
            yield Change(column=name, what=what, verdict="widened" if readable else "breaking")
    for name in before:
        if name not in used:
            yield Change(column=name, what="removed, no longer read", verdict="widened")


def _describe_added_column(
    name: str, feature: Feature, keys: tuple[str, ...], before: Mapping[str, Feature], *, moved: bool
) -> Change:
    if moved:
        return Change(column=name, what="moved between context and steps", verdict="breaking")
    stored = {key: old for old, had in before.items() for key in had.record_keys(old)}
    taken = [stored[key] for key in keys if key in stored]
    if taken:
        what = f"reads the data of `{taken[0]}` as another feature"
        return Change(column=name, what=what, verdict="breaking")
    if feature.required:
        return Change(column=name, what="new and required, missing in all records", verdict="breaking")
    how = "optional" if feature.optional else "with a default"
    return Change(column=name, what=f"new, {how}", verdict="widened")


def _compare_features(a: Feature, b: Feature, keys_a: tuple[str, ...], keys_b: tuple[str, ...]) -> Changes:
    if keys_a != keys_b:
        yield False, f"read from {_format_keys(keys_b)}, but stored under {_format_keys(keys_a)}"
        return
    if type(a) is not type(b):
        if not b.reads(a):
            yield False, f"stored as {type(a).__name__}, read as {type(b).__name__}"
            return
        yield True, f"{type(a).__name__} became {type(b).__name__}"
    yield from _compare_presence(a, b)
    yield from b.shape_changes_since(a)
    yield from b.changes_since(a)


def _format_keys(keys: tuple[str, ...]) -> str:
    return ", ".join([f"`{key}`" for key in keys])


def _compare_presence(a: Feature, b: Feature) -> Changes:
    def describe(feature: Feature) -> str:
        return "optional" if feature.optional else "required" if feature.required else "with a default"

    if describe(a) != describe(b):
        yield not (a.optional and b.required), f"{describe(a)} became {describe(b)}"
    elif a.has_default and repr(a.default) != repr(b.default):  # by repr, NaN equals NaN
        yield True, f"default {a.default!r} became {b.default!r}"
