"""Folders of pictures: a folder a class, or images and their masks in two trees alike."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rekord.errors import error
from rekord.schema import Label
from rekord.verbs.exports.names import Names, extension_for, safe_name, safe_part, without_extension
from rekord.verbs.exports.place import Staging
from rekord.verbs.exports.plain import plain_values
from rekord.verbs.exports.reading import Options, Records
from rekord.verbs.exports.roles import Roles, as_text, roles_of, seen


@dataclass(eq=False)
class Shared:
    """What the splits of one export have in common: no name twice, no folder for two classes."""

    names: Names = field(default_factory=Names)
    folders: dict[str, str] = field(default_factory=dict)
    classes: dict[int, str] = field(default_factory=dict)
    several: bool = False  # whether splits have folders of their own


class PictureRow(NamedTuple):
    """A record by the roles of its columns."""

    number: int
    values: dict[str, Any]

    def of(self, column: str | None) -> Any:
        return None if column is None else self.values[column]


def picture_rows(records: Records, roles: Roles, options: Options) -> Iterator[PictureRow]:
    """The records one by one."""
    for batch, first, rows in records.batches(roles.columns()):
        columns = {name: plain_values(column) for name, column in batch.items()}
        for row in range(rows):
            yield PictureRow(first + row, {name: values[row] for name, values in columns.items()})
        options.on_records(rows)


def write_images(records: Records, staging: Staging, options: Options, shared: Shared) -> int:
    """The pictures of a split as files; gives the number of its records."""
    roles = roles_of(records, "a folder of images")
    total = 0
    for row in picture_rows(records, roles, options):
        image = row.of(roles.image)
        mask = row.of(roles.mask)
        total += 1
        if image is None:
            continue  # an optional image that is not there: nothing can stand for it in a folder
        format = seen(records, row.number, roles.image, image).format
        name = own_name(records, row, roles)
        extension = extension_for(name, format)
        if roles.mask is None:
            stem = _in_class(shared, records, row, roles, without_extension(name))
            stem = shared.names.take(in_split(shared, records, stem), extension)
            staging.put(stem + extension, image)
            continue
        # Images and masks are paired by their stems.
        masked = "" if mask is None else extension_for("", seen(records, row.number, roles.mask, mask).format)
        stem = shared.names.take(in_split(shared, records, without_extension(name)), "", extension, masked)
        staging.put(f"images/{stem}{extension}", image)
        if mask is not None:
            staging.put(f"masks/{stem}{masked}", mask)
    return total


def own_name(records: Records, row: PictureRow, roles: Roles) -> str:
    """The name of a record's file as the record has it, made safe; its number where it has none."""
    name = safe_name(as_text(row.of(roles.filename)))
    first, _, rest = name.partition("/")
    if rest and first.lower() == records.name.lower():
        name = rest  # the folder of the split is not part of the name
    return name if without_extension(name) else f"{row.number:09d}"


def in_split(shared: Shared, records: Records, stem: str) -> str:
    """A path below the folder of its split, where there are several."""
    return f"{safe_part(records.name)}/{stem}" if shared.several else stem


def _in_class(shared: Shared, records: Records, row: PictureRow, roles: Roles, stem: str) -> str:
    label = class_name(records, row, roles)
    if label is None:
        # Else the first folder of its own name would be read as its class.
        return stem if roles.label is None else stem.replace("/", "_")
    folder = safe_part(label)
    before = shared.folders.setdefault(folder.casefold(), label)
    if before != label:
        raise error(
            "X562",
            f"two classes would have the folder {folder[:40]!r}",
            location=records.where(row.number, roles.label),
            expected="classes whose names differ as names of folders, in any letter case",
            found=f"{before[:40]!r} and {label[:40]!r}",
            do="rename one of the classes, or export to .parquet",
        )
    return stem if stem.partition("/")[0] == folder and "/" in stem else f"{folder}/{stem}"


def class_name(records: Records, row: PictureRow, roles: Roles) -> str | None:
    """The class of a record by name; by number where it has no name."""
    value = row.of(roles.label)
    if value is None:
        return None
    feature = records.features[roles.label or ""]
    if isinstance(feature, Label) and feature.names is not None and 0 <= value < len(feature.names):
        return str(feature.names[value])
    text = as_text(row.of(roles.label_text))
    return text or str(value)


def label_map_of(paths: tuple[str, ...]) -> str | None:
    """The label map beside a dataset's files, if there is one."""
    for folder in dict.fromkeys(os.path.dirname(path) for path in paths):
        place = os.path.join(folder, "label_map.pbtxt")
        if os.path.isfile(place):
            return place
    return None
