"""Exports with images: a folder per class, images and masks in two trees, COCO and Pascal VOC."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import msgspec
import numpy as np

from rekord import _core
from rekord.codec.columns import Array
from rekord.codec.images.inspect import FORMAT_NAMES
from rekord.errors import RekordError, error
from rekord.schema import Boxes, Bytes, Feature, Float32, Image, Int64, Label, Mask, Text, of_type
from rekord.schema.features import BOX_SIDES
from rekord.schema.interop.label_map import format_label_map, read_label_map
from rekord.storage.local import write_error
from rekord.storage.transaction import StagedFolder
from rekord.verbs.export.reading import (
    ExportedRecords,
    Options,
    UniqueNames,
    choose_extension,
    safe_name,
    safe_part,
    strip_image_extension,
)
from rekord.verbs.export.tables import to_python_values

_BBOX = "image/object/bbox"
_TEXTS = (Text, Bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRoles:
    """The columns of a split by purpose; None if there is no such column."""

    image: str
    mask: str | None = None
    filename: str | None = None
    source_id: str | None = None
    label: str | None = None
    label_text: str | None = None
    boxes: str | tuple[str, ...] | None = None  # one column, or the four of TFOD if no schema declares boxes
    pixels: bool = False  # whether boxes are in pixels rather than fractions of the image
    labels: str | None = None
    class_names: str | None = None
    extras: Mapping[str, str] | None = None  # is_crowd, area, difficult, … by column

    def columns(self) -> tuple[str, ...]:
        """All required columns."""
        boxes = self.boxes if isinstance(self.boxes, tuple) else (self.boxes,)
        named = (self.image, self.mask, self.filename, self.source_id, self.label, self.label_text, *boxes)
        every = (*named, self.labels, self.class_names, *(self.extras or {}).values())
        return tuple(dict.fromkeys([name for name in every if name is not None]))


def infer_roles(records: ExportedRecords, format: str) -> ColumnRoles:
    """The roles of a split's columns: by declared type, otherwise by key or name."""
    features = {name: one for name, one in records.features.items() if name not in records.split.schema.steps}
    image = _find_image_column(features, format)
    masks = [name for name, one in of_type(features, Mask).items() if one.of in (None, image)]
    boxes, pixels = _find_box_columns(features)
    extras = {
        role: found
        for role in ("is_crowd", "area", "difficult", "truncated", "occluded", "view")
        if (found := _find_column(features, (Int64, Float32, *_TEXTS), f"image/object/{role}", role, many=True))
    }
    return ColumnRoles(
        image=image,
        mask=masks[0]
        if masks
        else _find_column(features, (Bytes, Image), "image/segmentation/class/encoded", "mask"),
        filename=_find_column(features, _TEXTS, "image/filename", "filename"),
        source_id=_find_column(features, _TEXTS, "image/source_id", "source_id"),
        label=_find_label_column(features),
        label_text=_find_column(features, _TEXTS, "image/class/text"),
        boxes=boxes,
        pixels=pixels,
        labels=_find_column(features, (Int64, Label), "image/object/class/label", "labels", many=True),
        class_names=_find_column(features, _TEXTS, "image/object/class/text", "class_names", many=True),
        extras=extras,
    )


def _find_image_column(features: Mapping[str, Feature], format: str) -> str:
    found = list(of_type(features, Image))
    if len(found) > 1:
        found = [name for name in found if name == "image" or features[name].key == "image/encoded"] or found
    undeclared = None if found else _find_column(features, (Bytes,), "image/encoded", "image")
    if len(found) == 1 or undeclared is not None:
        return undeclared or found[0]
    raise missing_columns_error(
        format,
        "one column of images",
        f"{len(found)}: " + ", ".join(found)[:50] if found else "none",
        f'columns=["{found[0][:40]}"]' if found else 'format="parquet"',
    )


def _find_label_column(features: Mapping[str, Feature]) -> str | None:
    declared = [name for name, one in of_type(features, Label).items() if one.shape == ()]
    if len(declared) == 1 or "label" in declared:
        return declared[0] if len(declared) == 1 else "label"
    return _find_column(features, (Int64, Label), "image/class/label", "label")


def _find_box_columns(features: Mapping[str, Feature]) -> tuple[str | tuple[str, ...] | None, bool]:
    declared = list(of_type(features, Boxes))
    if declared:
        return declared[0], False
    pixels = [
        name
        for name, one in features.items()
        if one.value_kind == "float" and one.shape == (None, 4) and name in ("boxes", "bbox")
    ]
    if pixels:
        return pixels[0], True
    sides = [_find_column(features, (Float32,), f"{_BBOX}/{side}", many=True) for side in BOX_SIDES]
    return (None, False) if None in sides else (tuple(side for side in sides if side is not None), False)


def _find_column(
    features: Mapping[str, Feature], kinds: tuple[Any, ...], *names: str, many: bool = False
) -> str | None:
    """The first column of these types with one of these keys or names; `many` allows lists."""
    found = (
        column
        for wanted in names
        for column, one in features.items()
        if isinstance(one, kinds) and wanted in (column, one.key) and (many or one.shape == ())
    )
    return next(found, None)


def missing_columns_error(format: str, expected: str, found: str, do: str) -> RekordError:
    """The error for a dataset without the columns that a format requires."""
    return error("U676", f"dataset lacks columns that {format} needs", expected=expected, found=found, do=do)


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """The format and size in the first bytes of an image."""

    format: str
    width: int
    height: int


def read_image_header(
    records: ExportedRecords, number: int, column: str, data: Any, *, sized: bool = False
) -> ImageHeader:
    """The format of an image, and its size where required; raises X561 if they cannot be determined."""
    content = data if isinstance(data, bytes) else b""
    facts = _core.inspect_image(content, False)
    format = FORMAT_NAMES.get(facts.format)
    if format is None or (sized and not (facts.width and facts.height)):
        raise error(
            "X561",
            f"`{column[:60]}` is not an image of a known format",
            location=records.where(number, column),
            expected="JPEG, PNG, GIF, BMP, WebP or TIFF",
            found="no value" if data is None else f"{len(content):,} bytes that begin with {content[:8].hex(' ')}",
            do=f"rekord check {records.split.paths[0][:60]}",
        )
    return ImageHeader(format, facts.width, facts.height)


def decode_name(value: Any) -> str:
    """A name stored in a record, as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


@dataclass(eq=False)
class ExportState:
    """Shared by the splits of one export: no duplicate names, no folder for two classes."""

    names: UniqueNames = field(default_factory=UniqueNames)
    folders: dict[str, str] = field(default_factory=dict)
    classes: dict[int, str] = field(default_factory=dict)
    several: bool = False  # whether splits have folders of their own


class ImageRow(NamedTuple):
    """A record by column."""

    number: int
    values: dict[str, Any]

    def of(self, column: str | None) -> Any:
        return None if column is None else self.values[column]


def iter_image_rows(records: ExportedRecords, roles: ColumnRoles, options: Options) -> Iterator[ImageRow]:
    """The records one by one."""
    for batch, first, rows in records.batches(roles.columns()):
        columns = {name: to_python_values(column) for name, column in batch.items()}
        for row in range(rows):
            yield ImageRow(first + row, {name: values[row] for name, values in columns.items()})
        options.on_records(rows)


def write_images(records: ExportedRecords, staging: StagedFolder, options: Options, shared: ExportState) -> int:
    """Write the images of a split as files; returns the number of records."""
    roles = infer_roles(records, "a folder of images")
    total = 0
    for row in iter_image_rows(records, roles, options):
        image = row.of(roles.image)
        mask = row.of(roles.mask)
        total += 1
        if image is None:
            continue  # a missing optional image: a folder has no placeholder for it
        format = read_image_header(records, row.number, roles.image, image).format
        name = choose_file_name(records, row, roles)
        extension = choose_extension(name, format)
        if roles.mask is None:
            stem = _join_class_folder(shared, records, row, roles, strip_image_extension(name))
            stem = shared.names.take(join_split_folder(shared, records, stem), extension)
            staging.put(stem + extension, image)
            continue
        # Images and masks are paired by their stems.
        masked = (
            ""
            if mask is None
            else choose_extension("", read_image_header(records, row.number, roles.mask, mask).format)
        )
        stem = shared.names.take(
            join_split_folder(shared, records, strip_image_extension(name)), "", extension, masked
        )
        staging.put(f"images/{stem}{extension}", image)
        if mask is not None:
            staging.put(f"masks/{stem}{masked}", mask)
    return total


def choose_file_name(records: ExportedRecords, row: ImageRow, roles: ColumnRoles) -> str:
    """The file name stored in a record, made safe; the record number if there is none."""
    name = safe_name(decode_name(row.of(roles.filename)))
    first, _, rest = name.partition("/")
    if rest and first.lower() == records.name.lower():
        name = rest  # the split's folder is not part of the name
    return name if strip_image_extension(name) else f"{row.number:09d}"


def join_split_folder(shared: ExportState, records: ExportedRecords, stem: str) -> str:
    """A path inside the folder of its split, if there are several."""
    return f"{safe_part(records.name)}/{stem}" if shared.several else stem


def _join_class_folder(
    shared: ExportState, records: ExportedRecords, row: ImageRow, roles: ColumnRoles, stem: str
) -> str:
    label = get_class_name(records, row, roles)
    if label is None:
        # Otherwise the first folder of its own name would be read as its class.
        return stem if roles.label is None else stem.replace("/", "_")
    folder = safe_part(label)
    before = shared.folders.setdefault(folder.casefold(), label)
    if before != label:
        raise error(
            "X562",
            f"two classes would share the folder {folder[:40]!r}",
            location=records.where(row.number, roles.label),
            expected="class names that differ as folder names, ignoring case",
            found=f"{before[:40]!r} and {label[:40]!r}",
            do='format="parquet"',
        )
    return stem if stem.partition("/")[0] == folder and "/" in stem else f"{folder}/{stem}"


def get_class_name(records: ExportedRecords, row: ImageRow, roles: ColumnRoles) -> str | None:
    """The class name of a record; the class id if it has no name."""
    value = row.of(roles.label)
    if value is None:
        return None
    feature = records.features[roles.label or ""]
    if isinstance(feature, Label) and feature.names is not None and 0 <= value < len(feature.names):
        return str(feature.names[value])
    text = decode_name(row.of(roles.label_text))
    return text or str(value)


def find_dataset_label_map(paths: tuple[str, ...]) -> str | None:
    """The label map next to a dataset's files, if there is one."""
    for folder in dict.fromkeys(os.path.dirname(path) for path in paths):
        place = os.path.join(folder, "label_map.pbtxt")
        if os.path.isfile(place):
            return place
    return None


_ROUNDING_TOLERANCE = 1e-4
_MAX_DIGITS = 6
_INVALID_XML_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_MAX_SPOOLED_BYTES = 16 << 20
_POSITIVE_INTEGER = re.compile(r"[1-9]\d{0,15}")


class BoxedImage(NamedTuple):
    """An image with boxes in pixels: x0, y0, x1, y1."""

    row: ImageRow
    image: bytes
    seen: ImageHeader
    name: str  # of its file, safe
    boxes: list[tuple[float, ...]]
    labels: list[int]
    extras: dict[str, list[Any]]


class ClassRegistry:
    """Class names by id, collected from the records."""

    def __init__(self, records: ExportedRecords) -> None:
        self.names: dict[int, str] = {}
        self._label_map: dict[int, str] = {}
        place = find_dataset_label_map(records.split.paths)
        if place is not None:
            with suppress(RekordError):  # `check` reports a label map that cannot be read
                self._label_map = read_label_map(place)

    def add(self, records: ExportedRecords, row: ImageRow, roles: ColumnRoles, labels: list[int]) -> None:
        """Add the names of these labels."""
        feature = records.features[roles.labels or ""]
        declared = feature.names if isinstance(feature, Label) else None
        texts = _to_list(row.of(roles.class_names))
        for i, label in enumerate(labels):
            name = decode_name(texts[i]) if len(texts) == len(labels) else ""
            if not name and declared is not None and 0 <= label < len(declared):
                name = declared[label]
            name = name or self._label_map.get(label) or str(label)
            if self.names.setdefault(label, name) != name:
                raise error(
                    "X562",
                    f"class {label} has two names",
                    location=records.where(row.number, roles.class_names),
                    expected=f"{self.names[label][:40]!r}, as in earlier records",
                    found=repr(name[:40]),
                    do=f"rekord check {records.split.paths[0][:60]}",
                )

    def whole(self) -> dict[int, str]:
        """All classes, including those without boxes; each name once."""
        names = {**self._label_map, **self.names}
        out: dict[int, str] = {}
        taken: set[str] = set()
        for number, name in sorted(names.items()):
            out[number] = name if name not in taken else f"{name} ({number})"
            taken.add(out[number])
        return out


def check_images(records: ExportedRecords, options: Options) -> None:
    """Raise if there is no column of images."""
    infer_roles(records, "a folder of images")


def check_coco(records: ExportedRecords, options: Options) -> None:
    """Raise where COCO lacks a column."""
    infer_box_roles(records, "COCO")


def check_voc(records: ExportedRecords, options: Options) -> None:
    """Raise where Pascal VOC lacks a column."""
    infer_box_roles(records, "Pascal VOC")


def infer_box_roles(records: ExportedRecords, format: str) -> ColumnRoles:
    """The roles of a split with boxes."""
    roles = infer_roles(records, format)
    if roles.boxes is None or roles.labels is None:
        raise missing_columns_error(
            format,
            "boxes (rk.Boxes(), or the keys image/object/bbox/…) and their classes, `labels`",
            "no boxes" if roles.boxes is None else "boxes without classes",
            'format="images"',
        )
    return roles


def write_coco(records: ExportedRecords, staging: StagedFolder, options: Options, shared: ExportState) -> int:
    """Write a split as images and one JSON file; returns the number of records."""
    roles = infer_box_roles(records, "COCO")
    classes = ClassRegistry(records)
    output = staging.output(f"annotations/instances_{safe_part(records.name)}.json")
    encoder = msgspec.json.Encoder()
    ids: set[int] = set()
    total = number = 0
    output.write(b'{"images":[')
    with _SpooledBytes() as later:
        for one in _iter_boxed_images(records, roles, options):
            extension = choose_extension(one.name, one.seen.format)
            stem = shared.names.take(
                join_split_folder(shared, records, strip_image_extension(one.name)), "", extension
            )
            stored = stem + extension
            staging.put(f"images/{stored}", one.image)
            below = stored.partition("/")[2] if shared.several else stored
            identity = _assign_image_id(decode_name(one.row.of(roles.source_id)), ids, total)
            entry = {"id": identity, "file_name": below, "width": one.seen.width, "height": one.seen.height}
            output.write((b"," if total else b"") + encoder.encode(entry))
            total += 1
            classes.add(records, one.row, roles, one.labels)
            for i, (box, label) in enumerate(zip(one.boxes, one.labels, strict=True)):
                number += 1
                x0, y0, x1, y1 = box
                bbox = [x0, y0, _compute_exact_width(x1, x0), _compute_exact_width(y1, y0)]
                area = one.extras["area"][i] if "area" in one.extras else float("nan")
                area = area if np.isfinite(area) else bbox[2] * bbox[3]
                crowd = one.extras["is_crowd"][i] if "is_crowd" in one.extras else 0
                annotation = {
                    "id": number,
                    "image_id": identity,
                    "category_id": label,
                    "bbox": bbox,
                    "area": area,
                    "iscrowd": crowd,
                }
                later.write((b"," if number > 1 else b"") + encoder.encode(annotation))
        output.write(b'],"annotations":[')
        for piece in later.pieces():
            output.write(piece)
    categories = [{"id": label, "name": name} for label, name in classes.whole().items()]
    output.write(b'],"categories":' + encoder.encode(categories) + b"}\n")
    staging.finish(output)
    return total


def write_voc(records: ExportedRecords, staging: StagedFolder, options: Options, shared: ExportState) -> int:
    """Write a split as images, one XML file per image, and a list; returns the number of records."""
    roles = infer_box_roles(records, "Pascal VOC")
    classes = ClassRegistry(records)
    listed = staging.output(f"ImageSets/Main/{safe_part(records.name)}.txt")
    total = 0
    for one in _iter_boxed_images(records, roles, options):
        # A space ends a name in the list, and all XML files are in one folder.
        flat = re.sub(r"[\s/]+", "_", strip_image_extension(one.name)).replace("#", "_")
        stem = shared.names.take(flat or f"{one.row.number:09d}")
        extension = choose_extension(one.name, one.seen.format)
        staging.put(f"JPEGImages/{stem}{extension}", one.image)
        classes.add(records, one.row, roles, one.labels)
        names = [classes.names[label] for label in one.labels]
        _check_xml(records, one.row, roles, names)
        staging.put(f"Annotations/{stem}.xml", _format_xml(stem + extension, one, names).encode())
        listed.write(f"{stem}\n".encode())
        total += 1
    staging.finish(listed)
    shared.classes.update(classes.whole())
    return total


def finish_voc(staging: StagedFolder, shared: ExportState) -> None:
    """Write the class ids, which XML files lack: `rk.sources.voc` takes them as `label_map`."""
    if min(shared.classes, default=1) > 0:  # a label map cannot hold class 0
        staging.put("label_map.pbtxt", format_label_map(shared.classes).encode())


def _iter_boxed_images(records: ExportedRecords, roles: ColumnRoles, options: Options) -> Iterator[BoxedImage]:
    for row in iter_image_rows(records, roles, options):
        image = row.of(roles.image)
        facts = read_image_header(records, row.number, roles.image, image, sized=True)
        labels = [int(label) for label in _to_list(row.of(roles.labels))]
        boxes = _read_pixel_boxes(records, row, roles, facts)
        extras = {name: _to_list(row.of(column)) for name, column in (roles.extras or {}).items()}
        lengths = {"boxes": len(boxes), "labels": len(labels), **{k: len(v) for k, v in extras.items()}}
        uneven = next((name for name, length in lengths.items() if length != len(boxes)), None)
        if uneven is not None:
            raise error(
                "X560",
                f"`{uneven}` and boxes differ in length",
                location=records.where(row.number, uneven),
                expected=f"{len(boxes):,} values, one per box",
                found=f"{lengths[uneven]:,}",
                do='format="parquet"',
            )
        yield BoxedImage(row, image, facts, choose_file_name(records, row, roles), boxes, labels, extras)


def _read_pixel_boxes(
    records: ExportedRecords, row: ImageRow, roles: ColumnRoles, facts: ImageHeader
) -> list[tuple[float, ...]]:
    """The boxes of a record in pixels, with the fewest digits that round-trip to the stored values."""
    if isinstance(roles.boxes, tuple):
        sides = [np.array(_to_list(row.of(side)), np.float32) for side in roles.boxes]
        even = len({len(side) for side in sides}) == 1
        given = np.stack(sides, axis=1) if even else np.full((1, 4), np.nan, np.float32)
    else:
        value = row.of(roles.boxes)
        given = np.array([] if value is None else value, np.float32).reshape(-1, 4)
    good = np.isfinite(given).all() and (roles.pixels or (np.abs(given - 0.5) <= 0.5 + _ROUNDING_TOLERANCE).all())
    if not good:
        where = roles.boxes if isinstance(roles.boxes, str) else roles.boxes[0] if roles.boxes else None
        raise error(
            "X560",
            "box is not inside its image",
            location=records.where(row.number, where),
            expected="four sides, as fractions of the image from 0 to 1",
            found=f"x0 {given[:, 0].min(initial=1):.4g} to x1 {given[:, 2].max(initial=0):.4g}",
            do='format="parquet"',
        )
    if roles.pixels:
        return [tuple(float(str(side)) for side in box) for box in given]
    scale = np.array([facts.width, facts.height] * 2, np.float64)
    return [tuple(box) for box in to_pixels(given, scale).tolist()]


def to_pixels(shares: Array, scale: Array) -> Array:
    """Sides in pixels that round-trip: divided by the image size they give the stored float32 values."""
    exact: Array = shares.astype(np.float64) * scale
    out: Array = exact.copy()
    open_ones = np.ones(exact.shape, bool)
    for digits in range(_MAX_DIGITS + 1):
        tried = np.round(exact, digits)
        # Sources hold pixels as float32 before they divide them.
        back = (tried.astype(np.float32).astype(np.float64) / scale).astype(np.float32)
        fits = open_ones & (back == shares) & (np.abs(tried - exact) <= 1e-3)
        out[fits] = tried[fits]
        open_ones &= ~fits
    return out


def _compute_exact_width(end: float, begin: float) -> float:
    """The shortest width that, added to `begin`, gives `end` in float32."""
    width = end - begin
    for digits in range(8):
        short = round(width, digits)
        if np.float32(begin + short) == np.float32(end):
            return short
    return width


def _assign_image_id(text: str, taken: set[int], number: int) -> int:
    """The id of an image: the stored one if it is a number that is not taken."""
    wanted = int(text) if _POSITIVE_INTEGER.fullmatch(text) else number + 1
    while wanted in taken:
        wanted = max(wanted, number) + 1
    taken.add(wanted)
    return wanted


def _to_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _check_xml(records: ExportedRecords, row: ImageRow, roles: ColumnRoles, names: list[str]) -> None:
    for name in names:
        if _INVALID_XML_CHARACTERS.search(name) or name.strip() != name:
            raise error(
                "X560",
                "class name cannot be written as XML",
                location=records.where(row.number, roles.class_names or roles.labels),
                expected="a name without control characters or surrounding whitespace",
                found=repr(name[:40]),
                do='format="coco"',
            )


def _format_xml(filename: str, one: BoxedImage, names: list[str]) -> str:
    lines = [
        "<annotation>",
        f"  <filename>{escape(filename)}</filename>",
        f"  <size><width>{one.seen.width}</width><height>{one.seen.height}</height><depth>3</depth></size>",
    ]
    for i, (name, box) in enumerate(zip(names, one.boxes, strict=True)):
        lines += ["  <object>", f"    <name>{escape(name)}</name>"]
        pose = decode_name(one.extras["view"][i]) if "view" in one.extras else ""
        if pose and not _INVALID_XML_CHARACTERS.search(pose):
            lines.append(f"    <pose>{escape(pose)}</pose>")
        for flag in ("difficult", "truncated", "occluded"):
            if flag in one.extras:
                lines.append(f"    <{flag}>{int(bool(one.extras[flag][i]))}</{flag}>")
        sides = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
        lines.append(
            "    <bndbox>" + "".join(f"<{side}>{value:.15g}</{side}>" for side, value in sides) + "</bndbox>"
        )
        lines.append("  </object>")
    return "\n".join([*lines, "</annotation>", ""])


class _SpooledBytes:
    """Bytes that are held back until the size of what precedes them is known."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_MAX_SPOOLED_BYTES)  # noqa: SIM115

    def __enter__(self) -> _SpooledBytes:
        return self

    def __exit__(self, *failure: Any) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as failure:
            raise write_error(os.path.join(tempfile.gettempdir(), "…"), failure) from failure

    def pieces(self) -> Iterator[bytes]:
        try:
            self._file.seek(0)
            while piece := self._file.read(1 << 20):
                yield piece
        except OSError as failure:
            raise write_error(os.path.join(tempfile.gettempdir(), "…"), failure) from failure
