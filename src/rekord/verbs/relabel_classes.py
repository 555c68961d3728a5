"""The classes of a column before and after: which there are, by which ids, and what becomes of each."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Feature, Int64, Label
from rekord.schema.refuse import near_miss, shown
from rekord.verbs.remaking import Old


@dataclass(frozen=True)
class Classes:
    """What the ids of a column stand for.

    A list of a Label says its names in order; the classes of a layout have ids of their own, which stay; and
    numbers stand for themselves.
    """

    column: str
    kind: Literal["list", "layout", "numbers"]
    names: Mapping[int, str] = field(default_factory=dict)
    count: int | None = None  # of a Label: its ids are below

    def name(self, number: int) -> str:
        """What a class is called: by its name, or by its number."""
        return self.names.get(number, str(number))

    def id_of(self, value: Any) -> int:
        """The id of a class that is given by its name or its id."""
        if isinstance(value, str):
            found = next((number for number, name in self.names.items() if name == value), None)
            if found is not None:
                return found
            if not (value.isascii() and value.lstrip("-").isdigit() and len(value) < 20):
                raise self.unknown(value)
            value = int(value)
        try:
            number = operator.index(value)
        except TypeError:
            raise self.unknown(value) from None
        known = number in self.names if self.kind == "layout" else self._inside(number)
        if isinstance(value, bool) or not known:
            raise self.unknown(value)
        return number

    def has_name(self, value: Any) -> bool:
        """Whether a class is called so."""
        return value in self.names.values()

    def unknown(self, value: Any) -> RekordError:
        """The error for what is none of the classes."""
        near = near_miss(value, list(self.names.values())) if isinstance(value, str) else None
        named = f"one of {len(self.names):,} names" if self.names else ""
        ids = f"an id from 0 to {self.count - 1:,}" if self.count is not None else "a whole number of 64 bits"
        if self.kind == "layout":
            ids = "one of their ids"
        return error(
            "U628",
            f"`{self.column}` has no class {shown(value)}",
            location=Location(feature=self.column),
            expected=f"{named}, or {ids}" if named else ids,
            found=shown(value),
            do=f"did you mean {shown(near)}?"
            if near
            else "name another class, or give all classes: names=[…]",
        )

    def _inside(self, number: int) -> bool:
        if self.count is not None:
            return 0 <= number < self.count
        return -(2**63) <= number < 2**63


@dataclass(frozen=True)
class Changed:
    """The classes before and after. Ids that no map names stay as they are; None says that a class is left out."""

    before: Classes
    after: Classes
    base: Mapping[int, int | None]  # of every record
    hit: Mapping[int, int | None]  # of those that are to be changed
    origin: Mapping[int, int]  # the class before that a class after comes from, where there is one


def column_of(old: Old, column: Any) -> str:
    """The column whose labels are meant."""
    schema = old.schema
    if column is None:
        labels = [name for name, feature in schema.context.items() if isinstance(feature, Label)]
        usual = [name for name in ("label", "labels") if name in schema.context]
        found = labels if len(labels) == 1 else [name for name in usual if name in labels] or usual
        if not found:
            raise refused(
                "it is not clear which column is meant",
                "the name of a Label, or of an Int64",
                f"{len(labels)} Labels",
                'column="label"',
            )
        return found[0]
    feature = schema[column]
    if not isinstance(feature, (Label, Int64)) or column not in schema.context or len(feature.shape) > 1:
        raise refused(
            f"`{column[:60]}` holds no classes",
            "a Label or an Int64, of one value or a list of them",
            type(feature).__name__,
            'column="label"',
            feature=column,
        )
    return str(column)


def classes_of(old: Old, column: str) -> Classes:
    """The classes that a column has."""
    feature = old.schema[column]
    if isinstance(feature, Label):
        return Classes(column, "list", dict(enumerate(feature.names or ())), feature.count)
    told = None if old.manifest is None else old.manifest.options.get("layout")
    if isinstance(told, dict) and told.get("name") == "detection" and column == "labels":
        pairs = told.get("classes")
        if isinstance(pairs, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            return Classes(column, "layout", {int(number): str(name) for number, name in pairs})
    return Classes(column, "numbers")


def changed_classes(
    before: Classes, mapping: Mapping[Any, Any] | None, names: Any, *, everywhere: bool
) -> Changed:
    """What becomes of the classes. With `everywhere` a class that is mapped to another has no records any more."""
    given = mapping or {}
    if names is not None:
        after = _listed(before, names)
        base = _translated(before, after)
        return _checked(before, after, base, {**base, **_ids(before, after, given)})
    if not before.names:
        return _checked(before, before, {}, _ids(before, before, given))
    wanted = {before.id_of(old): _target(before, target) for old, target in given.items()}
    targets = {number: wanted.get(number, name) for number, name in before.names.items()}
    if before.kind == "layout" or not everywhere:
        return _same_ids(before, targets, everywhere=everywhere)
    return _closed_up(before, targets)


def _ids(before: Classes, after: Classes, mapping: Mapping[Any, Any]) -> dict[int, int | None]:
    return {before.id_of(old): after.id_of(target) for old, target in mapping.items()}


def _translated(before: Classes, after: Classes) -> dict[int, int | None]:
    """Each class by the id of the same name; where there are no names, by the same id."""
    if before.names and after.names:
        ids = {name: number for number, name in after.names.items()}
        return {number: ids.get(name) for number, name in before.names.items()}
    return {}


def _target(before: Classes, target: Any) -> str:
    """What a class that is mapped is to be called: a name that there is already, or a new one."""
    if isinstance(target, str) and target and (before.has_name(target) or not _is_number(target)):
        return target
    return before.name(before.id_of(target))


def _is_number(text: str) -> bool:
    return text.isascii() and text.lstrip("-").isdigit()


def _closed_up(before: Classes, targets: Mapping[int, str]) -> Changed:
    """A list of classes without those that nothing is any more: ids behind them move up."""
    kept: list[str] = []
    wanted = set(targets.values())
    for number, name in before.names.items():
        if name in wanted and name not in kept:
            kept.append(name)
        if not before.has_name(targets[number]) and targets[number] not in kept:
            kept.append(targets[number])
    after = Classes(before.column, "list", dict(enumerate(kept)), len(kept))
    ids: dict[int, int | None] = {number: kept.index(name) for number, name in targets.items()}
    return _checked(before, after, ids, ids)


def _same_ids(before: Classes, targets: Mapping[int, str], *, everywhere: bool) -> Changed:
    """Classes whose ids stay; a new name takes the id of the class that it is the new name of, or one of its own."""
    ids = {name: number for number, name in before.names.items()}
    wanted = set(targets.values())
    for number, name in targets.items():
        if name not in ids:
            free = everywhere and before.names[number] not in wanted
            taken = {one for other, one in ids.items() if other in wanted}
            ids[name] = number if free and number not in taken else max(ids.values()) + 1
    hit: dict[int, int | None] = {number: ids[name] for number, name in targets.items()}
    used = wanted if everywhere else {*before.names.values(), *wanted}
    names = {number: name for name, number in sorted(ids.items(), key=operator.itemgetter(1)) if name in used}
    count = None if before.count is None else max(before.count, len(names))
    return _checked(before, Classes(before.column, before.kind, names, count), {}, hit)


def _listed(before: Classes, names: Any) -> Classes:
    """The classes of a list of all of them, or of their number."""
    if before.kind != "list":
        raise refused(
            f"`{before.column[:60]}` is no Label, so that it has no list of classes",
            "no names",
            shown(names),
            "leave names= out",
            feature=before.column,
        )
    label = Label(names)  # which says what is wrong with them
    return Classes(before.column, "list", dict(enumerate(label.names or ())), label.count)


def _checked(
    before: Classes, after: Classes, base: Mapping[int, int | None], hit: Mapping[int, int | None]
) -> Changed:
    origin: dict[int, int] = {}
    names = {name: number for number, name in before.names.items()}
    for number, name in after.names.items():
        if name in names:
            origin[number] = names[name]
    for old, new in hit.items():
        if new is not None:
            origin.setdefault(new, old)
    return Changed(before, after, base, hit, origin)


def feature_after(feature: Feature, changed: Changed) -> Feature:
    """The column's feature with the classes that it has now."""
    if changed.after == changed.before:
        return feature
    if changed.after.kind == "layout" and isinstance(feature, Int64):
        return replace(feature, range=(1, max(changed.after.names)))
    if not isinstance(feature, Label):
        return feature
    default = feature.default
    if isinstance(default, str):
        number = feature.id_of(default)
        new = None if number is None else changed.hit.get(number, number)
        default = default if new is None else changed.after.name(new)
    elif isinstance(default, int):
        default = changed.hit.get(default, default)
    classes: Sequence[str] | int = tuple(changed.after.names.values()) or (changed.after.count or 0)
    return Label(classes, shape=feature.shape, key=feature.key, optional=feature.optional, default=default)


def refused(what: str, expected: str, found: str, do: str, *, feature: str | None = None) -> RekordError:
    """The error for a change that makes no sense."""
    return error("U629", what, location=Location(feature=feature), expected=expected, found=found, do=do)
