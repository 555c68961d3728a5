"""What a baseline tells: which column that is, which classes it has, and why it cannot be learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rekord.codec.columns import Optional, Valid
from rekord.dataset.by_class import ByClass, Coded
from rekord.dataset.split import Split
from rekord.dataset.transformed import refuse_changed
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Boxes, Bytes, Feature, Float32, Image, Int64, Label, Mask, Schema, Tensor, Text
from rekord.schema.refuse import shown
from rekord.training.survey import as_text, valid_rows
from rekord.training.task import Kind, Task

MOST_CLASSES = 10_000

_NAMES = ("label", "labels", "class", "target", "y", "category")
_LISTED = 8
_ROWS = 8192
_PICTURES = 128


def target_of(schema: Schema, label: str | None) -> tuple[Kind, str]:
    """What is learned, and from which column: the one that is named, or the only one that can be meant."""
    if label is not None:
        feature = schema[label]
        kind = None if label in schema.steps else _kind(feature)
        if kind is None:
            raise _no_target(schema, label, feature)
        return kind, label
    context = schema.context
    masks = [name for name, feature in context.items() if isinstance(feature, Mask)]
    labels = [name for name, feature in context.items() if isinstance(feature, Label) and not feature.shape]
    called = [name for name, feature in context.items() if _is_called_so(name, feature)]
    for kind, found in (("segmentation", masks), ("classification", labels), (None, called)):
        if len(found) > 1:
            raise no_baseline(
                "several columns could be what is to be learned",
                found=listed(schema, found),
                expected="one of them",
                do=f"rekord train PATH --label {found[0]}, or another of them",
            )
        if found:
            return kind or _kind(schema[found[0]]) or "classification", found[0]
    if any(isinstance(feature, Boxes) for feature in schema.values()):
        raise no_baseline(
            "there is no baseline for boxes",
            expected="one class, one number or a mask for each record",
            found=listed(schema),
            do="rekord reader PATH --for tensorflow, for a model of your own; or --label KEY",
        )
    raise no_baseline(
        "nothing says which column is to be learned",
        expected="a Mask, one Label, or one column of single values called label, class, target, category or y",
        found=listed(schema),
        do="rekord train PATH --label KEY",
    )


def classes_of(split: Split, kind: Kind, target: str) -> tuple[tuple[str, ...], tuple[Any, ...] | None]:
    """The names of the classes, and what stands in the column for each where that is not its id.

    All records of the split are looked at, through the index where it has the column.
    """
    feature = split.schema[target]
    if not len(split):
        raise _unlearnable(
            "there are no records to learn from", target, expected="some records", found="none"
        )
    if isinstance(feature, Mask):
        _check_count(target, feature.classes, len(split))
        _check_present(split, target, feature)
        return _numbered(feature.classes), None
    if kind == "regression":
        _check_numbers(split, target)
        return (), None
    coded = _coded(split, target)
    if isinstance(feature, Label):
        _check_count(target, feature.count, len(split))
        _check_several(target, coded, len(split))
        return feature.names or _numbered(feature.count), None
    _check_several(target, coded, len(split))
    _check_count(target, len(coded.classes), len(split), feature=feature)
    return tuple([_name(value) for value in coded.classes]), coded.classes


def check_target(split: Split, task: Task) -> None:
    """Refuse a split, such as the one for validation, that has targets which the task does not know."""
    feature = split.schema[task.target]
    if isinstance(feature, Mask):
        _check_present(split, task.target, feature)
    elif task.kind == "regression":
        _check_numbers(split, task.target, constant=True)
    else:
        coded = _coded(split, task.target)
        known = set(task.values or ())
        new = [value for value in coded.classes if task.values is not None and value not in known]
        if new:
            counts = coded.counts()
            records = sum(int(counts[coded.classes.index(value)]) for value in new)
            raise _unlearnable(
                f"{records:,} records of `{split.name}` have a class that the training split has not",
                task.target,
                expected=f"one of the {len(task.classes):,} classes that are learned",
                found=f"{len(new):,} others, such as {shown(new[0])}",
                do=f"rekord split IN OUT --split train=0.9,val=0.1 --stratify {task.target}",
            )


def listed(schema: Schema, names: Sequence[str] | None = None) -> str:
    """Columns and what they are declared as."""
    chosen = list(schema if names is None else names)
    some = ", ".join([f"`{name}` {_declared(schema, name)}" for name in chosen[:_LISTED]])
    return (some or "no columns") + (f" and {len(chosen) - _LISTED:,} more" if len(chosen) > _LISTED else "")


def no_baseline(what: str, *, expected: str, found: str, do: str, feature: str | None = None) -> RekordError:
    """The error for columns that no small model is made for."""
    return error("U608", what, location=Location(feature=feature), expected=expected, found=found, do=do)


def no_class(task: Task, what: str, expected: str, found: str) -> RekordError:
    """The error for a target that the model cannot be told."""
    return _unlearnable(what, task.target, expected=expected, found=found)


def _kind(feature: Feature) -> Kind | None:
    """What kind of task it is to learn a column; None where there is no model for it."""
    if isinstance(feature, Mask):
        return "segmentation"
    if isinstance(feature, (Boxes, Image)) or feature.shape != ():
        return None
    if isinstance(feature, (Label, Int64, Text, Bytes)):
        return "classification"
    is_float = (
        isinstance(feature, Tensor) and feature.dtype.kind not in "biuc"
    )  # bfloat16 has a kind of its own
    return "regression" if is_float or isinstance(feature, Float32) else None


def _is_called_so(name: str, feature: Feature) -> bool:
    names = {part.rpartition("/")[2].casefold() for part in (name, feature.key or name)}
    return _kind(feature) in ("classification", "regression") and not names.isdisjoint(_NAMES)


def _no_target(schema: Schema, label: str, feature: Feature) -> RekordError:
    if isinstance(feature, Boxes):
        what = "there is no baseline for boxes"
    elif label in schema.steps:
        what = f"`{label}` has a value for each step, and one a record is learned"
    else:
        what = f"`{label}` is nothing that a baseline learns"
    others = [name for name in schema.context if name != label and _kind(schema[name]) is not None]
    return no_baseline(
        what,
        feature=label,
        expected="one class, one number or a mask for each record",
        found=_declared(schema, label),
        do=f"--label {others[0]}, or another column of single values"
        if others
        else "add a column to be learned",
    )


def _declared(schema: Schema, name: str) -> str:
    feature = schema[name]
    kind = f"{type(feature).__name__}"
    if isinstance(feature, Tensor):
        kind += f" {feature.dtype.name}"
    if feature.shape and not isinstance(feature, Boxes):
        kind += f" {feature.shape}"
    return f"{kind} in each step" if name in schema.steps else kind


def _coded(split: Split, target: str) -> Coded:
    refuse_changed(split, target, "train")
    try:
        return ByClass(split._shards, split._schema, target, split._ids).coded
    except RekordError as failure:
        if failure.code != "X552":
            raise
        is_missing = failure.found == "no value"
        raise error(
            "U678",
            failure.what,
            location=failure.location,
            expected=failure.expected,
            found=failure.found,
            do=f'rekord rewrite IN OUT --where "{_sql(target)} is not null", and train on OUT'
            if is_missing
            else "rekord check PATH, which names such records",
        ) from None


def _check_several(target: str, coded: Coded, records: int) -> None:
    if len(coded.classes) < 2:
        raise _unlearnable(
            f"all {records:,} records have the same class",
            target,
            expected="at least two classes that occur",
            found=f"only {shown(coded.classes[0])}",
            do="--label KEY, if another column is meant; --split NAME, if another split is",
        )


def _check_count(target: str, count: int, records: int, *, feature: Feature | None = None) -> None:
    """Refuse as many classes as no small model tells; values that hardly occur twice are no classes at all."""
    if count < 2:
        raise _unlearnable(
            f"`{target}` has one class",
            target,
            expected="at least two classes",
            found="one",
            do="--label KEY",
        )
    is_number = isinstance(feature, Int64)
    hardly_twice = feature is not None and count > 2 and 2 * count > records
    if count <= MOST_CLASSES and not hardly_twice:
        return
    cast = f"rekord rewrite IN OUT --cast {target}=float32, and train on OUT to learn it as a number"
    raise _unlearnable(
        f"`{target}` has {count:,} different values in {records:,} records"
        if feature is not None
        else f"`{target}` has {count:,} classes",
        target,
        expected=f"at most {MOST_CLASSES:,} classes" + (", each of several records" if hardly_twice else ""),
        found="a number that is measured, or one for each record" if is_number else f"{count:,}",
        do=cast if is_number else "--label KEY, with the column of the classes",
    )


def _check_present(split: Split, target: str, feature: Feature) -> None:
    if not feature.optional:
        return
    missing = _Places()
    for batch in split.batches(_PICTURES, columns=[target]):
        missing.add(~valid_rows(batch[target]))
    _check_missing(split, target, missing)


def _check_numbers(split: Split, target: str, *, constant: bool = False) -> None:
    missing, strange = _Places(), _Places()
    least, most = np.inf, -np.inf
    for batch in split.batches(_ROWS, columns=[target]):
        column = batch[target]
        valid = valid_rows(column)
        with np.errstate(over="ignore"):
            values = (column.values if isinstance(column, Optional) else np.asarray(column)).astype(
                np.float32
            )
        finite = np.isfinite(values) & valid
        missing.add(~valid)
        strange.add(valid & ~finite)
        least = min(least, values[finite].min(initial=np.inf))
        most = max(most, values[finite].max(initial=-np.inf))
    _check_missing(split, target, missing)
    if strange.count:
        raise error(
            "U678",
            f"{strange.count:,} of {len(split):,} records have no finite number in `{target}`",
            location=strange.location(split, target),
            expected="a finite number in each record",
            found="NaN, or an infinite one",
            do=f'rekord rewrite IN OUT --where "isfinite({_sql(target)})", and train on OUT',
        )
    if least == most and not constant:
        raise _unlearnable(
            f"all {len(split):,} records have the same number",
            target,
            expected="numbers that differ",
            found=f"only {float(least):g}",
            do="--label KEY, if another column is meant",
        )


class _Places:
    """How many records something is true of, and which is the first."""

    def __init__(self) -> None:
        self.count = 0
        self._seen = 0
        self._first = 0

    def add(self, true: Valid) -> None:
        if not self.count and true.any():
            self._first = self._seen + int(np.argmax(true))
        self.count += int(true.sum())
        self._seen += len(true)

    def location(self, split: Split, target: str) -> Location:
        number = self._first if split._ids is None else int(split._ids[self._first])
        where = split._shards.where(number)
        return Location(path=where.path, record=where.record, offset=where.offset, feature=target)


def _check_missing(split: Split, target: str, missing: _Places) -> None:
    if missing.count:
        raise error(
            "U678",
            f"{missing.count:,} of {len(split):,} records have no value in `{target}`",
            location=missing.location(split, target),
            expected="a value in each record",
            found="no value",
            do=f'rekord rewrite IN OUT --where "{_sql(target)} is not null", and train on OUT',
        )


def _unlearnable(
    what: str,
    target: str,
    *,
    expected: str,
    found: str,
    do: str = "rekord check PATH, which names such records",
) -> RekordError:
    return error("U678", what, location=Location(feature=target), expected=expected, found=found, do=do)


def _sql(column: str) -> str:
    """A column as a query names it, inside a command whose quotes are double."""
    return column if column.isidentifier() else f'\\"{column}\\"'


def _numbered(count: int) -> tuple[str, ...]:
    return tuple([str(number) for number in range(count)])


def _name(value: Any) -> str:
    return as_text(value) if isinstance(value, (str, bytes)) else str(value)
