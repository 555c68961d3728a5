"""What the columns of records are for: which is the image, its mask, its class, its boxes and its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rekord import _core
from rekord.codec.looking import FORMATS
from rekord.errors import RekordError, error
from rekord.schema import Boxes, Bytes, Feature, Float32, Image, Int64, Label, Mask, Text
from rekord.schema.pictures import BOX_SIDES
from rekord.verbs.exports.reading import Records

_BBOX = "image/object/bbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The columns of a split by what they are for, None where there is none."""

    image: str
    mask: str | None = None
    filename: str | None = None
    source_id: str | None = None
    label: str | None = None
    label_text: str | None = None
    boxes: str | tuple[str, ...] | None = None  # one column, or the four of TFOD where nobody declared them
    pixels: bool = False  # whether boxes are in pixels, and not in shares of the image
    labels: str | None = None
    class_names: str | None = None
    extras: Mapping[str, str] | None = None  # is_crowd, area, difficult, … by column

    def columns(self) -> tuple[str, ...]:
        """All columns that are needed."""
        boxes = self.boxes if isinstance(self.boxes, tuple) else (self.boxes,)
        named = (self.image, self.mask, self.filename, self.source_id, self.label, self.label_text, *boxes)
        every = (*named, self.labels, self.class_names, *(self.extras or {}).values())
        return tuple(dict.fromkeys([name for name in every if name is not None]))


def roles_of(records: Records, format: str) -> Roles:
    """The roles of a split's columns: by their types where they are declared, by their keys and names else."""
    features = {name: one for name, one in records.features.items() if name not in records.split.schema.steps}
    image = _image(features, format)
    masks = [
        name for name, one in features.items() if isinstance(one, Mask) and one.of in (None, image)
    ] or _found(features, (Bytes, Image), "image/segmentation/class/encoded", "mask")
    boxes, pixels = _boxes(features)
    extras = {
        role: found[0]
        for role in ("is_crowd", "area", "difficult", "truncated", "occluded", "view")
        if (found := _found(features, (Int64, Float32, Text, Bytes), f"image/object/{role}", role, many=True))
    }
    return Roles(
        image=image,
        mask=_only(masks),
        filename=_only(_found(features, (Text, Bytes), "image/filename", "filename")),
        source_id=_only(_found(features, (Text, Bytes), "image/source_id", "source_id")),
        label=_label(features),
        label_text=_only(_found(features, (Text, Bytes), "image/class/text")),
        boxes=boxes,
        pixels=pixels,
        labels=_only(_found(features, (Int64, Label), "image/object/class/label", "labels", many=True)),
        class_names=_only(
            _found(features, (Text, Bytes), "image/object/class/text", "class_names", many=True)
        ),
        extras=extras,
    )


def _image(features: Mapping[str, Feature], format: str) -> str:
    found = [name for name, one in features.items() if isinstance(one, Image)]
    if len(found) > 1:
        found = [name for name in found if name == "image" or features[name].key == "image/encoded"] or found
    if not found:
        found = _found(features, (Bytes,), "image/encoded", "image")
    if len(found) == 1:
        return found[0]
    raise needs(
        format,
        "one column of images",
        f"{len(found)}: " + ", ".join(found)[:50] if found else "none",
        "name the one with columns=[…] (--columns)"
        if found
        else "name a file, such as OUT.parquet; or declare the images in a schema: rk.Image()",
    )


def _label(features: Mapping[str, Feature]) -> str | None:
    declared = [name for name, one in features.items() if isinstance(one, Label) and one.shape == ()]
    found = declared if len(declared) == 1 else [name for name in declared if name == "label"]
    return _only(found or _found(features, (Int64, Label), "image/class/label", "label"))


def _boxes(features: Mapping[str, Feature]) -> tuple[str | tuple[str, ...] | None, bool]:
    declared = [name for name, one in features.items() if isinstance(one, Boxes)]
    if declared:
        return declared[0], False
    pixels = [
        name
        for name, one in features.items()
        if isinstance(one, Float32) and one.shape == (None, 4) and name in ("boxes", "bbox")
    ]
    if pixels:
        return pixels[0], True
    sides = [_found(features, (Float32,), f"{_BBOX}/{side}", many=True) for side in BOX_SIDES]
    return (tuple(side[0] for side in sides), False) if all(sides) else (None, False)


def _found(
    features: Mapping[str, Feature], kinds: tuple[Any, ...], *names: str, many: bool = False
) -> list[str]:
    """The first column of some types that has one of these keys or names; with `many` a list will do."""
    return [
        column
        for wanted in names
        for column, one in features.items()
        if isinstance(one, kinds) and wanted in (column, one.key) and (many or one.shape == ())
    ][:1]


def _only(found: list[str]) -> str | None:
    return found[0] if found else None


def needs(format: str, expected: str, found: str, do: str) -> RekordError:
    """The error for a dataset that has not what a format is made of."""
    return error("U676", f"{format} needs what the dataset has not", expected=expected, found=found, do=do)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the first bytes of a picture say of it."""

    format: str
    width: int
    height: int


def seen(records: Records, number: int, column: str, data: Any, *, sized: bool = False) -> Seen:
    """What kind of picture this is, and its size where that is needed; X561 where it cannot be told."""
    content = data if isinstance(data, bytes) else b""
    facts = _core.look(content, False)
    format = FORMATS.get(facts.format)
    if format is None or (sized and not (facts.width and facts.height)):
        raise error(
            "X561",
            f"`{column[:60]}` is no picture that a file could be named for",
            location=records.where(number, column),
            expected="JPEG, PNG, GIF, BMP, WebP or TIFF",
            found="no value" if data is None else f"{len(content):,} bytes that begin {content[:8].hex(' ')}",
            do="rekord check says which records are so; leave them out, or export to .parquet",
        )
    return Seen(format, facts.width, facts.height)


def as_text(value: Any) -> str:
    """A name out of a record, whatever it is."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)
