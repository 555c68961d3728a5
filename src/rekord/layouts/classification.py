"""The layout of image classification, as in ImageNet."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekord.arguments import check_keywords, invalid
from rekord.errors import RekordError, closest_match, error, preview
from rekord.layouts.base import IMAGE_COLUMNS, DerivedRow, Verify, derive_image
from rekord.location import Location
from rekord.schema import Feature, Int64, Label, Schema, Text


@check_keywords
def classification(
    *,
    classes: Sequence[str] | int | None = None,
    synsets: Sequence[str] | None = None,
    background: bool = False,
    optional_labels: bool = False,
) -> ClassificationLayout:
    """Images with one class each, under the keys of ImageNet's records.

    `classes` are the names by id from 0, or their number. With `background`, stored ids start at 1, as older image
    models of TensorFlow expect: 0 is reserved for a background class. To keep names and stored ids aligned, the
    schema's Label then has a name for 0 too, "background" (in brackets if a class already has this name). `synsets`
    are stored next to the names, one per class.

    Rows without a label are bad rows, unless `optional_labels` is set or no classes are known: labels are then
    optional integers.
    """
    count, names = _count_and_names(classes, synsets)
    return ClassificationLayout(
        schema=_build_schema(count, names, synsets is not None, background, optional_labels),
        count=count,
        names=names,
        synsets=None if synsets is None else tuple(synsets),
        background=bool(background),
        optional_labels=bool(optional_labels),
        ids={} if names is None else {name: i for i, name in enumerate(names)},
    )


def _build_schema(
    count: int | None, names: tuple[str, ...] | None, has_synsets: bool, background: bool, optional: bool
) -> Schema:
    key = "image/class/label"
    label: Feature
    if names is not None:
        label = Label(add_background(names) if background else names, key=key, optional=optional)
    elif count is not None:
        label = Label(count + 1 if background else count, key=key, optional=optional)
    else:
        label = Int64(key=key, optional=True)
    columns: dict[str, Feature] = {
        **IMAGE_COLUMNS,
        "colorspace": Text(key="image/colorspace"),
        "label": label,
    }
    if names is not None:
        columns["text"] = Text(key="image/class/text", optional=optional)
    if has_synsets:
        columns["synset"] = Text(key="image/class/synset", optional=optional)
    return Schema(columns)


def add_background(names: Sequence[str]) -> tuple[str, ...]:
    """Class names with one for id 0 before them."""
    name = "background"
    while name in names:
        name = f"({name})"
    return (name, *names)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationLayout:
    schema: Schema
    count: int | None
    names: tuple[str, ...] | None
    synsets: tuple[str, ...] | None
    background: bool
    optional_labels: bool
    ids: Mapping[str, int] = field(repr=False, compare=False)

    name = "classification"
    needs_derive = True

    def options(self) -> Mapping[str, Any]:
        return {
            "classes": self.count if self.names is None else list(self.names),
            "synsets": None if self.synsets is None else list(self.synsets),
            "background": self.background,
            "optional_labels": self.optional_labels,
        }

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        image, values, remarks = derive_image(row, verify, readers="readers of ImageNet's records")
        values |= {"format": image.format.upper(), "colorspace": "RGB"}
        label = row.get("label")
        if label is not None:
            class_id = self._id_of(label)
            values["label"] = class_id + 1 if self.background else class_id
            if self.names is not None:
                values["text"] = self.names[class_id]
            if self.synsets is not None:
                values["synset"] = self.synsets[class_id]
        return DerivedRow(values, tuple(remarks))

    def _id_of(self, label: Any) -> int:
        if isinstance(label, str):
            if label in self.ids:
                return self.ids[label]
            raise self._no_class("E316", "is not a class of the layout", label)
        try:
            class_id = operator.index(label)
        except TypeError:
            raise self._no_class("E317", "is not a class id", label) from None
        if isinstance(label, bool) or class_id < 0 or (self.count is not None and class_id >= self.count):
            raise self._no_class("E317", "is not a class id", label)
        return class_id

    def _no_class(self, code: str, what: str, label: Any) -> RekordError:
        ids = "an id ≥ 0" if self.count is None else f"an id from 0 to {self.count - 1:,}"
        expected = ids if self.names is None else f"{ids}, or one of {len(self.names):,} names"
        meant = closest_match(label, self.ids) if isinstance(label, str) else None
        do = "fix the row, or add the class: classes=[…]"
        return error(
            code,
            f"`label` {what}",
            location=Location(feature="label"),
            expected=expected,
            found=preview(label),
            do=f"did you mean {preview(meant)}?" if meant else do,
        )


def _count_and_names(
    classes: Sequence[str] | int | None, synsets: Sequence[str] | None
) -> tuple[int | None, tuple[str, ...] | None]:
    if classes is None and synsets is None:
        return None, None
    do = 'classes=["cat", "dog"]'
    if isinstance(classes, int) and not isinstance(classes, bool):
        count, names = classes, None
    elif isinstance(classes, (list, tuple)):
        count, names = len(classes), tuple(classes)
    else:
        raise invalid("classes", classes, "names by id, or the number of classes", do)
    if count < 1:
        raise invalid("classes", classes, "at least one class, or None if unknown", do)
    if synsets is not None and (not isinstance(synsets, (list, tuple)) or len(synsets) != count):
        raise invalid("synsets", synsets, f"{count:,} synsets, one per class", do)
    return count, names
