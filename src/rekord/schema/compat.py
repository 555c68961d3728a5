"""Whether data written with one schema can be read with another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rekord.schema.base import FLOATS, Feature, Shape, dtype_name, integer_bounds
from rekord.schema.features import Bytes, Float32, Image, Int64, Label, Mask, Sparse, Tensor
from rekord.schema.schema import KIND_NAMES, Schema

Verdict: TypeAlias = Literal["same", "widened", "breaking"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference; `column` is None where the schemas differ as a whole."""

    column: str | None
    what: str
    verdict: Literal["widened", "breaking"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatibility:
    """Same: the schemas are equal. Widened: all data of the first can be read. Breaking: some cannot."""

    verdict: Verdict
    changes: tuple[Change, ...]


_Found: TypeAlias = "Iterator[tuple[bool, str]]"  # whether the data can still be read, and what changed


def compat(a: Schema, b: Schema) -> Compatibility:
    """Can data written with `a` be read with `b`?

    Data lies under record keys, so that a renamed column with its old key is the same column. A default of
    `a` was written wherever a row had no value: such data is never absent.
    """
    changes = tuple(_changes(a, b))
    if any(change.verdict == "breaking" for change in changes):
        return Compatibility(verdict="breaking", changes=changes)
    return Compatibility(verdict="widened" if changes else "same", changes=changes)


def _changes(a: Schema, b: Schema) -> Iterator[Change]:
    if a.kind != b.kind:
        what = f"records were {KIND_NAMES[a.kind]} and are now {KIND_NAMES[b.kind]}"
        yield Change(column=None, what=what, verdict="breaking")
        return
    for before, after, elsewhere in ((a.context, b.context, a.steps), (a.steps, b.steps, a.context)):
        yield from _group(before, after, elsewhere)


def _group(
    before: Mapping[str, Feature], after: Mapping[str, Feature], elsewhere: Mapping[str, Feature]
) -> Iterator[Change]:
    owners = {feature.record_keys(name): name for name, feature in before.items()}
    used = set()
    for name, feature in after.items():
        keys = feature.record_keys(name)
        old = name if name in before else owners.get(keys)
        if old is None:
            yield _added(name, feature, keys, before, moved=name in elsewhere)
            continue
        used.add(old)
        found = list(_feature(before[old], feature, before[old].record_keys(old), keys))
        if old != name:
            found.insert(0, (True, f"renamed from `{old}`"))
        elif not found and before[old] != feature:
            # What is left is how rows are written: quality, rounding, cast, a key that was spelled out.
            found.append((True, "declared in another way, with no effect on reading"))
        for readable, what in found:
            yield Change(column=name, what=what, verdict="widened" if readable else "breaking")
    for name in before:
        if name not in used:
            yield Change(column=name, what="removed: its data is no longer read", verdict="widened")


def _added(
    name: str, feature: Feature, keys: tuple[str, ...], before: Mapping[str, Feature], *, moved: bool
) -> Change:
    if moved:
        return Change(column=name, what="moved between context and steps", verdict="breaking")
    stored = {key: old for old, had in before.items() for key in had.record_keys(old)}
    taken = [stored[key] for key in keys if key in stored]
    if taken:
        what = f"reads what `{taken[0]}` stored as another feature"
        return Change(column=name, what=what, verdict="breaking")
    if feature.required:
        return Change(column=name, what="new and required: no record has it", verdict="breaking")
    how = "optional" if feature.optional else "with a default"
    return Change(column=name, what=f"new, {how}", verdict="widened")


def _feature(a: Feature, b: Feature, keys_a: tuple[str, ...], keys_b: tuple[str, ...]) -> _Found:
    if keys_a != keys_b:
        yield False, f"read from {_listed(keys_b)}, but stored under {_listed(keys_a)}"
        return
    if type(a) is not type(b):
        if not _substitutes(a, b):
            yield False, f"stored as {type(a).__name__}, read as {type(b).__name__}"
            return
        yield True, f"{type(a).__name__} became {type(b).__name__}"
    yield from _presence(a, b)
    if isinstance(a, Sparse):
        if isinstance(b, Sparse) and a.size != b.size:
            yield a.size < b.size, f"size {a.size} became {b.size}"
    else:
        # A Tensor of any shape is one byte string to any other type.
        yield from _shapes(a.shape if isinstance(b, Tensor) or not isinstance(a, Tensor) else (), b.shape)
    if isinstance(a, (Int64, Label)) and isinstance(b, (Int64, Label)):
        yield from _integers(a, b)
    elif isinstance(a, Float32) and isinstance(b, Float32):
        yield from _floats(a, b)
    elif isinstance(a, Tensor) and isinstance(b, Tensor) and a.dtype != b.dtype:
        yield False, f"raw bytes of {dtype_name(a.dtype)}, read as {dtype_name(b.dtype)}"
    elif isinstance(a, Sparse) and isinstance(b, Sparse):
        yield from _dtypes(a.dtype, b.dtype, None)
    elif isinstance(a, Image) and isinstance(b, Image):
        yield from _pictures(a, b)
    elif isinstance(a, Mask) and isinstance(b, Mask):
        yield from _masks(a, b)


def _listed(keys: tuple[str, ...]) -> str:
    return ", ".join([f"`{key}`" for key in keys])


def _substitutes(a: Feature, b: Feature) -> bool:
    """Whether every stored value of type `a` is one of type `b`, as far as the types alone can say."""
    if isinstance(b, Bytes):
        return a.kind == "bytes"
    return isinstance(a, (Int64, Label)) and isinstance(b, (Int64, Label))


def _presence(a: Feature, b: Feature) -> _Found:
    def said(feature: Feature) -> str:
        return "optional" if feature.optional else "required" if feature.required else "filled by a default"

    if said(a) != said(b):
        yield not (a.optional and b.required), f"was {said(a)}, is {said(b)}"
    elif a.has_default and not _equal_defaults(a, b):
        yield True, f"default {a.default!r} became {b.default!r}"


def _equal_defaults(a: Feature, b: Feature) -> bool:
    return repr(a.default) == repr(b.default)  # NaN equals NaN here, as it does in the features themselves


def _shapes(a: Shape, b: Shape) -> _Found:
    if a == b:
        return
    if {a, b} <= {(), (1,)} or (a == () and b == (None,)):
        yield True, f"one value, of shape {a}, is read with shape {b}"
        return
    fits = len(a) == len(b) and all(new is None or new == old for old, new in zip(a, b, strict=True))
    yield fits, f"shape {a} became {b}"


def _integers(a: Int64 | Label, b: Int64 | Label) -> _Found:
    held = _bounds(a)
    yield from _dtypes(a.dtype, b.dtype, held)
    if isinstance(a, Label) and isinstance(b, Label):
        yield from _classes(a, b)
        return
    low, high = _bounds(b)
    if _bounds(a) != (low, high) and (isinstance(a, Label) or isinstance(b, Label) or a.range != b.range):
        what = f"values from {held[0]} to {held[1]}, now from {low} to {high}"
        yield low <= held[0] and held[1] <= high, what


def _bounds(feature: Int64 | Label) -> tuple[int, int]:
    if isinstance(feature, Label):
        return 0, feature.count - 1
    return feature.range or integer_bounds(feature.dtype)


def _classes(a: Label, b: Label) -> _Found:
    if a.count != b.count:
        yield a.count < b.count, f"{a.count} classes became {b.count}"
    if a.names == b.names:
        return
    if a.names is None or b.names is None:
        yield True, "classes were given names" if a.names is None else "classes lost their names"
        return
    for index, (old, new) in enumerate(zip(a.names, b.names, strict=False)):
        if old != new:
            yield False, f"class {index} was {old!r}, is {new!r}"
            return


def _floats(a: Float32, b: Float32) -> _Found:
    yield from _dtypes(a.dtype, b.dtype, None)
    if a.range != b.range:
        everything = float("-inf"), float("inf")
        held, allowed = a.range or everything, b.range or everything
        # NaN is inside no range: data that had none may hold it.
        fits = b.range is None or (a.range is not None and allowed[0] <= held[0] and held[1] <= allowed[1])
        yield fits, f"range {a.range} became {b.range}"


def _dtypes(a: Any, b: Any, held: tuple[int, int] | None) -> _Found:
    """Whether the values of one dtype, from `held[0]` to `held[1]` where known, fit another."""
    old, new = dtype_name(a), dtype_name(b)
    if old == new:
        return
    if old in FLOATS or new in FLOATS:
        fits = old in FLOATS and new == "float32"
    elif "uint64" in (old, new):
        # uint64 is stored bit for bit: its upper half looks like negative numbers to any other dtype.
        low, high = held or integer_bounds(a)
        fits = integer_bounds(b)[0] <= low and high <= min(integer_bounds(b)[1], 2**63 - 1)
    else:
        low, high = held or integer_bounds(a)
        fits = integer_bounds(b)[0] <= low and high <= integer_bounds(b)[1]
    yield fits, f"dtype {old} became {new}"


def _pictures(a: Image, b: Image) -> _Found:
    for name in ("format", "channels"):
        old, new = getattr(a, name), getattr(b, name)
        if old != new:
            yield new is None, f"{name} {old!r} became {new!r}"


def _masks(a: Mask, b: Mask) -> _Found:
    if a.classes != b.classes:
        yield a.classes < b.classes, f"{a.classes} classes became {b.classes}"
    if a.ignore != b.ignore:
        # A new ignore value is harmless only where it was no class; an old one must go on being ignored.
        yield (
            a.ignore is None and b.ignore is not None and b.ignore >= a.classes,
            (f"ignore {a.ignore} became {b.ignore}"),
        )
    elif a.ignore is not None and a.classes <= a.ignore < b.classes:
        yield True, f"{a.ignore} is ignored although it is a class now"
