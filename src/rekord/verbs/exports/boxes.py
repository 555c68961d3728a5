"""Images with their boxes, as COCO's json files or as Pascal VOC's xml files."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import msgspec
import numpy as np

from rekord.codec.columns import Array
from rekord.errors import RekordError, error
from rekord.schema import Label
from rekord.schema.labelmap import label_map_text, read_label_map
from rekord.storage.files import write_error
from rekord.verbs.exports.names import extension_for, safe_part, without_extension
from rekord.verbs.exports.pictures import (
    PictureRow,
    Shared,
    in_split,
    label_map_of,
    own_name,
    picture_rows,
)
from rekord.verbs.exports.place import Staging
from rekord.verbs.exports.reading import Options, Records
from rekord.verbs.exports.roles import Roles, Seen, as_text, needs, roles_of, seen

_ROUNDING = 1e-4
_MOST_DIGITS = 6
_NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SPOOLED_BYTES = 16 << 20
_WHOLE = re.compile(r"[1-9]\d{0,15}")


class Boxed(NamedTuple):
    """A record that is an image with boxes in pixels: x0, y0, x1, y1."""

    row: PictureRow
    image: bytes
    seen: Seen
    name: str  # of its file, safe
    boxes: list[tuple[float, ...]]
    labels: list[int]
    extras: dict[str, list[Any]]


class Classes:
    """The names of classes by id, as they turn up."""

    def __init__(self, records: Records) -> None:
        self.names: dict[int, str] = {}
        self._told: dict[int, str] = {}
        place = label_map_of(records.split.paths)
        if place is not None:
            try:
                self._told = read_label_map(place)
            except RekordError:
                self._told = {}  # what cannot be read names nothing; `check` says so

    def see(self, records: Records, row: PictureRow, roles: Roles, labels: list[int]) -> None:
        """Learn the names of these labels."""
        feature = records.features[roles.labels or ""]
        declared = feature.names if isinstance(feature, Label) else None
        texts = _listed(row.of(roles.class_names))
        for i, label in enumerate(labels):
            name = as_text(texts[i]) if len(texts) == len(labels) else ""
            if not name and declared is not None and 0 <= label < len(declared):
                name = declared[label]
            name = name or self._told.get(label) or str(label)
            if self.names.setdefault(label, name) != name:
                raise error(
                    "X562",
                    f"class {label} has two names",
                    location=records.where(row.number, roles.class_names),
                    expected=f"{self.names[label][:40]!r}, as in records before",
                    found=repr(name[:40]),
                    do="mend the records: rekord check says more",
                )

    def whole(self) -> dict[int, str]:
        """All of them, those included that no box has; each name once."""
        names = {**self._told, **self.names}
        out: dict[int, str] = {}
        taken: set[str] = set()
        for number, name in sorted(names.items()):
            out[number] = name if name not in taken else f"{name} ({number})"
            taken.add(out[number])
        return out


def box_roles(records: Records, format: str) -> Roles:
    """The roles of a split with boxes."""
    roles = roles_of(records, format)
    if roles.boxes is None or roles.labels is None:
        raise needs(
            format,
            "boxes (rk.Boxes(), or the keys image/object/bbox/…) and their classes, `labels`",
            "no boxes" if roles.boxes is None else "boxes without classes",
            "--format images writes the pictures alone",
        )
    return roles


def write_coco(records: Records, staging: Staging, options: Options, shared: Shared) -> int:
    """A split as images and one json file; gives the number of its records."""
    roles = box_roles(records, "COCO")
    classes = Classes(records)
    output = staging.create(f"annotations/instances_{safe_part(records.name)}.json")
    encoder = msgspec.json.Encoder()
    ids: set[int] = set()
    total = number = 0
    output.write(b'{"images":[')
    with _Later() as later:
        for one in _boxed(records, roles, options):
            extension = extension_for(one.name, one.seen.format)
            stem = shared.names.take(in_split(shared, records, without_extension(one.name)), "", extension)
            stored = stem + extension
            staging.put(f"images/{stored}", one.image)
            below = stored.partition("/")[2] if shared.several else stored
            identity = _identity(as_text(one.row.of(roles.source_id)), ids, total)
            entry = {"id": identity, "file_name": below, "width": one.seen.width, "height": one.seen.height}
            output.write((b"," if total else b"") + encoder.encode(entry))
            total += 1
            classes.see(records, one.row, roles, one.labels)
            for i, (box, label) in enumerate(zip(one.boxes, one.labels, strict=True)):
                number += 1
                bbox = [box[0], box[1], _minus(box[2], box[0]), _minus(box[3], box[1])]
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


def write_voc(records: Records, staging: Staging, options: Options, shared: Shared) -> int:
    """A split as images, an xml file for each, and a list of them; gives the number of its records."""
    roles = box_roles(records, "Pascal VOC")
    classes = Classes(records)
    listed = staging.create(f"ImageSets/Main/{safe_part(records.name)}.txt")
    total = 0
    for one in _boxed(records, roles, options):
        # Names stand in lists, where a space ends them, and xml files lie in one folder.
        flat = re.sub(r"[\s/]+", "_", without_extension(one.name)).replace("#", "_")
        stem = shared.names.take(flat or f"{one.row.number:09d}")
        extension = extension_for(one.name, one.seen.format)
        staging.put(f"JPEGImages/{stem}{extension}", one.image)
        classes.see(records, one.row, roles, one.labels)
        names = [classes.names[label] for label in one.labels]
        _check_xml(records, one.row, roles, names)
        staging.put(f"Annotations/{stem}.xml", _xml(stem + extension, one, names).encode())
        listed.write(f"{stem}\n".encode())
        total += 1
    staging.finish(listed)
    shared.classes.update(classes.whole())
    return total


def finish_voc(staging: Staging, shared: Shared) -> None:
    """The ids of the classes, which xml files do not have: `rk.sources.voc` takes them as `label_map`."""
    if (
        min(shared.classes, default=1) > 0
    ):  # a label map has no class 0, and half of one would name no class well
        staging.put("label_map.pbtxt", label_map_text(shared.classes).encode())


def _boxed(records: Records, roles: Roles, options: Options) -> Iterator[Boxed]:
    for row in picture_rows(records, roles, options):
        image = row.of(roles.image)
        facts = seen(records, row.number, roles.image, image, sized=True)
        labels = [int(label) for label in _listed(row.of(roles.labels))]
        boxes = _boxes(records, row, roles, facts)
        extras = {name: _listed(row.of(column)) for name, column in (roles.extras or {}).items()}
        lengths = {"boxes": len(boxes), "labels": len(labels), **{k: len(v) for k, v in extras.items()}}
        uneven = next((name for name, length in lengths.items() if length != len(boxes)), None)
        if uneven is not None:
            raise error(
                "X560",
                f"`{uneven}` has another length than the boxes of its record",
                location=records.where(row.number, uneven),
                expected=f"{len(boxes):,}, one for each box",
                found=f"{lengths[uneven]:,}",
                do="mend the record, or export to .parquet",
            )
        yield Boxed(row, image, facts, own_name(records, row, roles), boxes, labels, extras)


def _boxes(records: Records, row: PictureRow, roles: Roles, facts: Seen) -> list[tuple[float, ...]]:
    """The boxes of a record in pixels, with the fewest digits that lead back to what is stored."""
    if isinstance(roles.boxes, tuple):
        sides = [np.array(_listed(row.of(side)), np.float32) for side in roles.boxes]
        even = len({len(side) for side in sides}) == 1
        given = np.stack(sides, axis=1) if even else np.full((1, 4), np.nan, np.float32)
    else:
        value = row.of(roles.boxes)
        given = np.array([] if value is None else value, np.float32).reshape(-1, 4)
    good = np.isfinite(given).all() and (roles.pixels or (np.abs(given - 0.5) <= 0.5 + _ROUNDING).all())
    if not good:
        where = roles.boxes if isinstance(roles.boxes, str) else roles.boxes[0] if roles.boxes else None
        raise error(
            "X560",
            "a box is not inside its image",
            location=records.where(row.number, where),
            expected="four sides, as shares of the image from 0 to 1",
            found=f"x0 {given[:, 0].min(initial=1):.4g} to x1 {given[:, 2].max(initial=0):.4g}",
            do="rekord check names all such records; mend them, or export to .parquet",
        )
    if roles.pixels:
        return [tuple(float(str(side)) for side in box) for box in given]
    scale = np.array([facts.width, facts.height] * 2, np.float64)
    return [tuple(box) for box in in_pixels(given, scale).tolist()]


def in_pixels(shares: Array, scale: Array) -> Array:
    """Sides in pixels that divided by the size of the image, as float32, are the stored ones again."""
    exact: Array = shares.astype(np.float64) * scale
    out: Array = exact.copy()
    open_ones = np.ones(exact.shape, bool)
    for digits in range(_MOST_DIGITS + 1):
        tried = np.round(exact, digits)
        # Sources hold pixels as float32 before they divide them.
        back = (tried.astype(np.float32).astype(np.float64) / scale).astype(np.float32)
        fits = open_ones & (back == shares) & (np.abs(tried - exact) <= 1e-3)
        out[fits] = tried[fits]
        open_ones &= ~fits
    return out


def _minus(end: float, begin: float) -> float:
    """A width that, added to its beginning, gives the end again, as float32 holds it."""
    width = end - begin
    for digits in range(8):
        short = round(width, digits)
        if np.float32(begin + short) == np.float32(end):
            return short
    return width


def _identity(text: str, taken: set[int], number: int) -> int:
    """The id of an image: its own where it is a number that nobody has yet."""
    wanted = int(text) if _WHOLE.fullmatch(text) else number + 1
    while wanted in taken:
        wanted = max(wanted, number) + 1
    taken.add(wanted)
    return wanted


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _check_xml(records: Records, row: PictureRow, roles: Roles, names: list[str]) -> None:
    for name in names:
        if _NO_XML.search(name) or name.strip() != name:
            raise error(
                "X560",
                "the name of a class cannot stand in xml",
                location=records.where(row.number, roles.class_names or roles.labels),
                expected="a name without control characters, and without space around it",
                found=repr(name[:40]),
                do="--format coco takes any name",
            )


def _xml(filename: str, one: Boxed, names: list[str]) -> str:
    lines = [
        "<annotation>",
        f"  <filename>{escape(filename)}</filename>",
        f"  <size><width>{one.seen.width}</width><height>{one.seen.height}</height><depth>3</depth></size>",
    ]
    for i, (name, box) in enumerate(zip(names, one.boxes, strict=True)):
        lines += ["  <object>", f"    <name>{escape(name)}</name>"]
        pose = as_text(one.extras["view"][i]) if "view" in one.extras else ""
        if pose and not _NO_XML.search(pose):
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


class _Later:
    """Bytes that are written behind others of which nobody knows yet how many there are."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_SPOOLED_BYTES)  # noqa: SIM115

    def __enter__(self) -> _Later:
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
