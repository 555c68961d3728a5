"""Images, masks and boxes in records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from rekord import _core
from rekord._core import Colour, ImageFault, ImageFormat
from rekord.codec.images.heif import detect_heif_format
from rekord.codec.images.inspect import (
    CONVERT_HINT,
    FORMAT_NAMES,
    InvalidImage,
    collect_remarks,
    format_display_name,
    invalid_image_error,
    pixel_limit_ratio,
    too_many_pixels_error,
    undecodable_remark,
)
from rekord.codec.images.metadata import read_metadata
from rekord.codec.images.store import MaskIds, inspect_mask_value
from rekord.codec.values import InvalidValue
from rekord.health.check.rule import (
    Array,
    Cells,
    CheckRule,
    RowMask,
    compute_value_offsets,
    format_key,
)
from rekord.health.finding import Finding, Severity
from rekord.health.key_columns import KeyColumn, KeyedBatch
from rekord.report.formatting import format_count
from rekord.schema import Boxes, Image, Mask, Schema, of_type
from rekord.schema.features import BOX_SIDES

MASK_KEY = "image/segmentation/class/encoded"
"""Where DeepLab's records keep the mask of `image/encoded`."""

_CODES = {
    "D410": "H739",
    "E330": "H760",
    "E331": "H761",
    "E332": "H762",
    "E321": "H763",
    "E335": "H767",
    "E337": "H769",
}
_STRIP_HINT = "rekord rewrite IN OUT --strip-metadata      (or transforms=rk.transforms.strip_metadata())"
_REWRITE_HINT = "write the record again from its source, or omit it"
_COLOURS = {
    Colour.PALETTE: "palette",
    Colour.GREY_ALPHA: "grey and alpha",
    Colour.RGB: "RGB",
    Colour.RGBA: "RGBA",
}
_MIN_SWAPPED_ORIENTATION = 5
"""From this EXIF orientation, an image is displayed with width and height swapped."""


def to_finding(unfit: InvalidValue, whose: str) -> tuple[str, dict[str, Any]]:
    """The code and details of a finding about a value the codec would reject."""
    code = _CODES[unfit.code]
    return code, {
        "message": f"{whose} {unfit.what}",
        "expected": unfit.expected,
        "found": unfit.found,
        "likely": unfit.likely if isinstance(unfit, InvalidImage) else None,
        # Records are repaired at their source; class ids may also be declared, and limits raised.
        "do": unfit.do if code in ("H739", "H767") else _REWRITE_HINT,
    }


def find_mask_problems(whose: str, data: bytes, facts: _core.ImageFacts, mask: Mask | None) -> Problems:
    """The problems of an intact image as a mask; without a declaration its classes are unknown."""
    ids = MaskIds(mask.classes, mask.ignore) if mask is not None else None
    bits = 16 if ids is not None and ids.wide else 8
    reading = _describe_tf_reading(facts, bits)
    if reading is not None and not (mask is None and _is_wide_grey(facts)):
        yield "H766", "error", _describe_missing_ids(whose, facts, bits, reading)
    elif ids is not None:
        try:
            inspect_mask_value(data, ids, None, "full")
        except InvalidValue as unfit:
            code, details = to_finding(unfit, whose)
            yield code, "warning" if code == "H769" else "error", details


def find_mask_size_mismatch(whose: str, of: str | None, image: Any, mask: Any) -> dict[str, Any] | None:
    """Details of a mask that differs in size from its image; sizes are (width, height, orientation)."""
    if image is None or mask is None or image[:2] == mask[:2]:
        return None
    likely = None
    if image[:2] == (mask[1], mask[0]):
        likely = "width and height are swapped: one of the two was rotated"
        if image[2] >= _MIN_SWAPPED_ORIENTATION:
            likely = "the image is rotated by EXIF, and the mask was drawn on the rotated image"
    return {
        "message": f"{whose} differs in size from its image, {format_key(of or 'image')}",
        "expected": f"{image[0]:,} × {image[1]:,} (width × height), like the image",
        "found": f"{mask[0]:,} × {mask[1]:,}",
        "likely": likely,
        "do": "write the mask of this image, or resize it without interpolation",
    }


def _is_wide_grey(facts: _core.ImageFacts) -> bool:
    # Panoptic ids need 16 bits, and their readers expect them.
    return facts.format == ImageFormat.PNG and facts.colour == Colour.GREY and facts.bits == 16


def _describe_tf_reading(facts: _core.ImageFacts, bits: int) -> str | None:
    """How TensorFlow reads the values of a mask; None if it reads them unchanged."""
    if facts.format != ImageFormat.PNG:
        return "values altered by a lossy or colour format"
    if facts.colour != Colour.GREY:
        return "the brightness of the colours, not class ids"
    if facts.bits == bits:
        return None
    if facts.bits == 16:
        return "the upper 8 of 16 bits, so that every id below 256 becomes 0"
    factor = ((1 << bits) - 1) // ((1 << facts.bits) - 1)
    return f"each id multiplied by {factor}, scaled to {bits} bits"


def _describe_missing_ids(whose: str, facts: _core.ImageFacts, bits: int, reading: str) -> dict[str, Any]:
    colour = _COLOURS.get(facts.colour)
    if facts.format != ImageFormat.PNG:
        what = format_display_name(FORMAT_NAMES[facts.format])
        likely, do = None, "store masks as PNG: a lossy format changes class ids"
    elif facts.colour == Colour.PALETTE:
        what = "a palette PNG"
        likely = "the palette index is the class id, as in Pascal VOC masks"
        do = "store the indices: np.array(PIL.Image.open(file)) as a single-channel PNG"
    elif colour is not None:
        what, likely = f"a colour PNG ({colour})", None
        do = "map each colour to its class id: rk.layouts.deeplab(colours={(128, 0, 0): 1, …})"
    else:
        what, likely = f"a grey PNG with {facts.bits} bits", None
        do = f"store it with {bits} bits, without scaling the values"
    return {
        "message": f"{whose} is {what}: TensorFlow reads {reading}",
        "expected": f"a single-channel {bits}-bit PNG of class ids",
        "found": what,
        "likely": likely,
        "do": do,
    }


Problems: TypeAlias = "Iterator[tuple[str, Severity, dict[str, Any]]]"
"""Codes, severities and details of findings."""

ImageSize: TypeAlias = "tuple[int, int, int] | None"
"""Width, height and EXIF orientation; None if unknown."""

_FORMAT_NAMES = {
    "jpg": "jpeg",
    "jpe": "jpeg",
    "jpeg": "jpeg",
    "png": "png",
    "gif": "gif",
    "bmp": "bmp",
    "webp": "webp",
}
_PILLOW_ERROR_FACTOR = 2
"""Beyond its limit Pillow warns of a decompression bomb; beyond this multiple it raises an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageKey:
    """A record key of images, and what is known about them."""

    key: str
    feature: str  # the column, or the key itself without a schema
    step: bool = False
    image: Image | None = None  # as declared
    mask: Mask | None = None
    is_mask: bool = False
    of: str | None = None  # the key of a mask's image
    alone: bool = True  # no other image has the same key prefix
    is_empty_allowed: bool = False

    @property
    def declared(self) -> bool:
        """Whether a schema declares this image."""
        return self.image is not None or self.mask is not None


def find_declared_images(schema: Schema) -> tuple[ImageKey, ...]:
    """The images of a schema, with masks last."""
    images = of_type(schema.features, Image)
    keys = {name: image.record_keys(name)[0] for name, image in images.items()}
    out = []
    for name, image in images.items():
        same = [other for other in keys.values() if _parent_key(other) == _parent_key(keys[name])]
        step = name in schema.steps
        out.append(ImageKey(key=keys[name], feature=name, step=step, image=image, alone=len(same) <= 1))
    for name, mask in of_type(schema.features, Mask).items():
        key, of = mask.record_keys(name)[0], keys.get(mask.of or next(iter(images), ""))
        out.append(ImageKey(key=key, feature=name, step=name in schema.steps, mask=mask, is_mask=True, of=of))
    return tuple(out)


class ImageRule(CheckRule):
    """Every image is intact and matches its metadata; `keys_of` returns the images of a batch."""

    def __init__(self, keys_of: Callable[[KeyedBatch], Sequence[ImageKey]]) -> None:
        super().__init__()
        self._keys_of = keys_of

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """The findings about the images of these records."""
        sizes: dict[tuple[str | None, bool], dict[int, ImageSize]] = {}
        for key in self._keys_of(batch):
            cells = Cells.of(batch, key.key, step=key.step)
            if cells is None or cells.column.kind != "bytes":
                continue
            metadata = _ImageMetadata(batch, key)
            sizes[key.key, key.step] = seen = {}
            for row, cell, step, data in _iter_images(cells):
                facts = _core.inspect_image(data, True)
                seen[cell] = _get_size(facts)
                whose = _format_image_name(key, step)
                problems = list(self._find_problems(key, data, facts, whose, metadata, row))
                if key.is_mask and (key.of, key.step) in sizes:
                    image = sizes[key.of, key.step].get(cell)
                    mismatch = find_mask_size_mismatch(whose, key.of, image, seen[cell])
                    problems += [] if mismatch is None else [("H768", "error", mismatch)]
                for code, severity, details in problems:
                    yield from self._report(batch, [row], code, severity, key.feature, partial(_constant, details))

    def _find_problems(
        self, key: ImageKey, data: bytes, facts: _core.ImageFacts, whose: str, metadata: _ImageMetadata, row: int
    ) -> Problems:
        what = "mask" if key.is_mask else "image"
        if facts.fault == ImageFault.EMPTY and key.is_empty_allowed:
            return
        heif = detect_heif_format(data) if facts.fault == ImageFault.NOT_AN_IMAGE and not key.is_mask else None
        if heif is not None:
            yield "H842", "note", {"message": undecodable_remark(whose, heif), "do": CONVERT_HINT}
            return
        tiff = facts.format == ImageFormat.TIFF
        if facts.fault != ImageFault.NONE or (tiff and not key.is_mask):
            code, details = to_finding(invalid_image_error(facts, data, None, what), whose)
            yield code, "warning" if tiff and not key.declared else "error", details
            return
        yield from _find_oversized(facts, whose, declared=key.declared)
        yield from metadata.format(row, facts, whose, key)
        yield from metadata.size(row, facts, whose)
        if key.is_mask:
            yield from find_mask_problems(whose, data, facts, key.mask)
            return
        yield from metadata.channels(row, facts, whose, key)
        for code, sentence in collect_remarks(facts, None, "image"):
            yield code, "note", {"message": sentence.replace("the image", whose, 1)}
        yield from _find_private_metadata(data, whose)


def _find_private_metadata(data: bytes, whose: str) -> Problems:
    """Positions and maker notes in the metadata of an image."""
    metadata = read_metadata(data)
    if metadata.has_position:
        what = "contains the position where it was taken (GPS)"
        yield "H843", "warning", {"message": f"{whose} {what}", "do": _STRIP_HINT}
    if metadata.has_maker_note:
        what = "contains a maker note, in which cameras store serial numbers and more"
        yield "H844", "note", {"message": f"{whose} {what}", "do": _STRIP_HINT}


def _find_oversized(facts: _core.ImageFacts, whose: str, *, declared: bool) -> Problems:
    """An image with too many pixels for decode=True.

    An undeclared image is an error only if Pillow would also reject it as a decompression bomb.
    """
    times = pixel_limit_ratio(facts)
    if times > 1:
        code, details = to_finding(too_many_pixels_error(facts.width, facts.height), whose)
        yield code, "error" if declared or times > _PILLOW_ERROR_FACTOR else "warning", details


class _ImageMetadata:
    """The keys that describe an image: `image/format` and `image/height` of `image/encoded`."""

    def __init__(self, batch: KeyedBatch, key: ImageKey) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, list[Any]] = {}
        for name in ("format", "height", "width", "channels"):
            found = None if key.step else _find_companion_key(batch, key, name)
            if found is not None:
                self._names[name] = found
                self._values[name] = _get_single_values(batch, found)

    def _of(self, name: str, row: int, kind: type) -> Any:
        value = self._values[name][row] if name in self._values else None
        return value if isinstance(value, kind) else None

    def format(self, row: int, facts: _core.ImageFacts, whose: str, key: ImageKey) -> Problems:
        """The format that the schema declares, or that a key gives."""
        found = FORMAT_NAMES[facts.format]
        shown = format_display_name(found)
        wanted = key.image.format if key.image is not None else None
        if wanted is not None and wanted != found:
            details = {
                "message": f"{whose} is {shown}, but declared as {format_display_name(wanted)}",
                "expected": f"the bytes of a {format_display_name(wanted)} image",
                "found": shown,
                "do": f'declare format="{found}", or format=None for any format',
            }
            yield "H764", "error", details
            return
        given = self._of("format", row, bytes)
        if given is None:
            return
        wanted = _FORMAT_NAMES.get(given[:8].decode("latin-1").strip().lower().lstrip("."))
        if wanted is not None and wanted != found:
            source = format_key(self._names["format"])
            details = {
                "message": f"{whose} is {shown}, but {source} is {format_display_name(wanted)}",
                "expected": f"{format_display_name(wanted)}, as in {source}",
                "found": shown,
                "likely": "the extension of the source file does not match its format",
                "do": f"set {source} from the bytes of the image, not from the file name",
            }
            yield "H764", "warning", details

    def size(self, row: int, facts: _core.ImageFacts, whose: str) -> Problems:
        """The size that the keys give."""
        width, height = self._of("width", row, int), self._of("height", row, int)
        if width in (None, facts.width) and height in (None, facts.height):
            return
        keys = " and ".join([format_key(self._names[name]) for name in ("width", "height") if name in self._names])
        likely = None
        if (width, height) == (facts.height, facts.width):
            likely = "width and height are swapped"
            if facts.orientation >= _MIN_SWAPPED_ORIENTATION:
                likely = "the image is rotated by EXIF, and the keys give the size of the rotated image"
        given = " × ".join(["?" if side is None else f"{side:,}" for side in (width, height)])
        details = {
            "message": f"{whose} does not have the size in {keys}",
            "expected": f"{given} (width × height), as in {keys}",
            "found": f"{facts.width:,} × {facts.height:,}",
            "likely": likely,
            "do": "set the keys from the image itself, after any resizing",
        }
        yield "H765", "error", details

    def channels(self, row: int, facts: _core.ImageFacts, whose: str, key: ImageKey) -> Problems:
        """The number of channels in the schema or a key: a note for 3, which readers can convert to."""
        given = self._of("channels", row, int)
        source = format_key(self._names["channels"]) if given is not None else "the schema"
        if given is None and key.image is not None:
            given = key.image.channels
        if given in (None, facts.channels) or facts.colour in (Colour.CMYK, Colour.YCCK):
            return
        details = {
            "message": f"{whose} has {format_count(facts.channels, 'channel')}, but {source} gives {given}",
            "expected": format_count(given, "channel"),
            "found": f"{format_count(facts.channels, 'channel')} of {facts.bits} bits",
            "do": f"convert with tf.io.decode_image(…, channels={given})"
            if given in (1, 3, 4)
            else "set the key from the image itself",
        }
        yield "H738", "note" if given == 3 else "warning", details


def _constant(details: dict[str, Any], row: int) -> dict[str, Any]:
    return details


def _iter_images(cells: Cells) -> Iterator[tuple[int, int, int | None, bytes]]:
    """Every image: its row in the batch, its cell, its step, and its bytes."""
    column = cells.column
    owners = column.owners.tolist()
    rows = owners
    if cells.lists is not None:
        rows = (np.searchsorted(cells.lists, column.owners, side="right") - 1).tolist()
    for place, (row, cell) in enumerate(zip(rows, owners, strict=True)):
        if cell >= 0:
            yield row, cell, cells.step(row, cell), column.values.bytes(place)


def _format_image_name(key: ImageKey, step: int | None) -> str:
    stored = "" if key.key == key.feature else f" (stored as {format_key(key.key)})"
    return f"{'' if step is None else f'step {step:,} of '}{format_key(key.feature)}{stored}"


def _get_size(facts: _core.ImageFacts) -> ImageSize:
    whole = facts.fault == ImageFault.NONE and facts.format != ImageFormat.NONE
    return (facts.width, facts.height, facts.orientation) if whole else None


def _parent_key(key: str) -> str:
    return key[: key.rfind("/") + 1]


def _find_companion_key(batch: KeyedBatch, key: ImageKey, name: str) -> str | None:
    """The key that describes an image: image/height or image_height of image; height with the same prefix."""
    wanted = "bytes" if name == "format" else "int64"
    candidates = [f"{key.key}/{name}", f"{key.key}_{name}"]
    # A size with the prefix of a mask belongs to its image, which the mask is compared with anyway.
    if key.alone and (not key.is_mask or key.key == MASK_KEY):
        candidates.append(f"{_parent_key(key.key)}{name}")
    for candidate in candidates:
        column = batch.context.get(candidate)
        if column is not None and column.kind == wanted:
            return candidate
    return None


def _get_single_values(batch: KeyedBatch, key: str) -> list[Any]:
    """The single value of each row under a key; None without one, or with several."""
    column = batch.context[key]
    if isinstance(column.values, _core.StringColumn):
        values: list[Any] = column.values.list_bytes(0, len(column.values))
    else:
        values = column.values.tolist()
    if column.offsets is not None:
        begins, counts = column.offsets.tolist(), column.counts.tolist()
        values = [values[begins[row]] if counts[row] == 1 else None for row in range(len(batch))]
    if column.valid is not None:
        values = [value if here else None for value, here in zip(values, column.valid.tolist(), strict=True)]
    return values


CLASS_IDS = "class/label"
CLASS_NAMES = "class/text"
_FLOAT_NOISE = 1e-6
"""Tolerance for sides outside the image: the precision of float32 arithmetic."""

_MAX_ROUNDING = 1e-3
"""Up to here it is a note: coordinates rounded to three decimals are off by less."""

_MAX_OVERSHOOT = 0.1 + _FLOAT_NOISE
"""Up to here it is a warning: the Object Detection API accepts coordinates up to 1.1."""

_MIN_PIXEL_COORDINATE = 1.5
"""Coordinates above this are pixels: no annotation exceeds its image by half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxKeys:
    """The keys of boxes: four with the same prefix, and the lists of their classes."""

    stem: str
    feature: str  # the column, or the stem without a schema
    step: bool = False
    declared: bool = False
    from_one: bool = True  # whether class ids start at 1, unless declared otherwise

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of xmin, ymin, xmax, ymax."""
        return tuple(f"{self.stem}/{side}" for side in BOX_SIDES)

    def sibling(self, name: str) -> str:
        """A key that belongs to the same objects."""
        return f"{self.stem[: self.stem.rfind('/') + 1]}{name}"


def find_declared_boxes(schema: Schema) -> tuple[BoxKeys, ...]:
    """The boxes of a schema."""
    out = []
    for name, feature in of_type(schema.features, Boxes).items():
        stem = feature.record_keys(name)[0].rpartition("/")[0]
        boxes = BoxKeys(stem=stem, feature=name, step=name in schema.steps, declared=True)
        ids = boxes.sibling(CLASS_IDS)
        label = next((one for column, one in schema.items() if ids in one.record_keys(column)), None)
        free = label is None or (label.value_kind == "int" and label.limits is None)
        out.append(replace(boxes, from_one=free))
    return tuple(out)


class BoxRule(CheckRule):
    """Every box is inside its image; `boxes_of` returns the boxes of a batch."""

    def __init__(self, boxes_of: Callable[[KeyedBatch], Sequence[BoxKeys]]) -> None:
        super().__init__()
        self._boxes_of = boxes_of

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """The findings about the boxes of these records."""
        for boxes in self._boxes_of(batch):
            sides = [Cells.of(batch, key, step=boxes.step) for key in boxes.keys]
            found = [side for side in sides if side is not None and side.column.kind == "float"]
            if len(found) == len(BOX_SIDES) and len({len(side.column) for side in found}) == 1:
                yield from self._boxes(batch, boxes, found)
            yield from self._classes(batch, boxes)

    def _boxes(self, batch: KeyedBatch, boxes: BoxKeys, sides: list[Cells]) -> Iterator[Finding]:
        columns = [side.column for side in sides]
        counts = [column.counts for column in columns]
        # A missing list has no values, whatever is in its place.
        even = np.logical_and.reduce([count == counts[0] for count in counts])
        if not even.all() and not boxes.declared:
            rows = sides[0].records(np.flatnonzero(~even))
            describe_uneven = partial(_describe_uneven_sides, boxes, counts, rows)
            yield from self._report(batch, rows, "H770", "error", boxes.feature, describe_uneven)
        edges = [_select_row_values(column, even) for column in columns]
        owners = np.repeat(np.arange(len(even)), np.where(even, counts[0], 0))
        if not len(owners):
            return
        with np.errstate(all="ignore"):
            low, high = min(edge.min() for edge in edges), max(edge.max() for edge in edges)
            spans = [edges[2] - edges[0], edges[3] - edges[1]]
            if low >= -_FLOAT_NOISE and high <= 1 + _FLOAT_NOISE and all((span > 0).all() for span in spans):
                return
            past = np.maximum.reduce([np.maximum(-edge, edge - 1) for edge in edges])
            reversed_ = (spans[0] < 0) | (spans[1] < 0)
            flat = ~reversed_ & (past <= _MAX_OVERSHOOT) & ((spans[0] == 0) | (spans[1] == 0))
            far = ~(past <= _MAX_OVERSHOOT)  # NaN too
        judged: list[tuple[str, Severity, RowMask, Callable[..., dict[str, Any]]]] = [
            ("H771", "note", (past > _FLOAT_NOISE) & (past <= _MAX_ROUNDING), _describe_outside_box),
            ("H771", "warning", (past > _MAX_ROUNDING) & ~far, _describe_outside_box),
            ("H771", "error", far, _describe_outside_box),
            ("H772", "error", reversed_, _describe_reversed_box),
            ("H773", "warning", flat, _describe_flat_box),
        ]
        for code, severity, wrong, describe in judged:
            yield from self._marked(batch, boxes, sides, edges, owners, wrong, code, severity, describe)

    def _marked(
        self,
        batch: KeyedBatch,
        boxes: BoxKeys,
        sides: list[Cells],
        edges: list[Array],
        owners: Array,
        wrong: RowMask,
        code: str,
        severity: Severity,
        describe: Callable[[str, Sequence[float], str], dict[str, Any]],
    ) -> Iterator[Finding]:
        at = np.flatnonzero(wrong)
        if not len(at):
            return
        cells, first = np.unique(owners[at], return_index=True)
        place = dict(zip(cells.tolist(), at[first].tolist(), strict=True))
        several = np.bincount(owners[at], minlength=len(sides[0].column))

        rows = sides[0].records(cells)

        def describe_row(row: int) -> dict[str, Any]:
            cell = rows[row]
            box = [float(edge[place[cell]]) for edge in edges]
            more = int(several[cell]) - 1
            number = place[cell] - int(np.searchsorted(owners, cell))
            shown = f"box {number:,}: {', '.join([f'{side:.4g}' for side in box])}"
            more_text = f"; {more:,} more in the record" if more else ""
            return describe(format_key(boxes.feature), box, shown + more_text)

        yield from self._report(batch, rows, code, severity, boxes.feature, describe_row)

    def _classes(self, batch: KeyedBatch, boxes: BoxKeys) -> Iterator[Finding]:
        """The classes of boxes: one per box, and none of them the background."""
        first = Cells.of(batch, boxes.keys[0], step=boxes.step)
        for name in (CLASS_IDS, CLASS_NAMES):
            key = boxes.sibling(name)
            cells = Cells.of(batch, key, step=boxes.step)
            if cells is None:
                continue
            counts = cells.column.counts
            if first is not None and len(first.column) == len(cells.column):
                wanted = first.column.counts
                wrong = (counts != wanted) & first.column.mask
                # Names are optional: missing, or an empty list.
                wrong &= (counts > 0) if name == CLASS_NAMES else cells.column.mask
                rows = cells.records(np.flatnonzero(wrong))
                describe = partial(_describe_count_mismatch, boxes, key, wanted, counts, rows)
                yield from self._report(batch, rows, "H770", "error", key, describe)
            if name == CLASS_IDS and boxes.from_one and cells.column.kind == "int64":
                yield from self._below_one(batch, boxes, cells, key)

    def _below_one(self, batch: KeyedBatch, boxes: BoxKeys, cells: Cells, key: str) -> Iterator[Finding]:
        values = cells.column.values
        if not len(values) or values.min() >= 1:
            return
        first = cells.marked(values < 1)
        rows = cells.records(np.fromiter(first, np.int64, len(first)))

        def describe(row: int) -> dict[str, Any]:
            found = int(values[first[rows[row]]])
            return {
                "message": f"{format_key(key)} is {found}, but class ids start at 1",
                "expected": "class ids from 1: in TensorFlow's object detection, 0 is the background",
                "found": str(found),
                "do": "add 1 to the ids, here and in the label map",
            }

        yield from self._report(batch, rows, "H774", "warning", key, describe)


def _select_row_values(column: KeyColumn, rows: RowMask) -> Array:
    """The values of some rows."""
    values: Array = column.values
    if column.offsets is None and column.valid is None and rows.all():
        return values
    return values[np.repeat(rows & column.mask, np.diff(compute_value_offsets(column)))]


def _describe_uneven_sides(boxes: BoxKeys, counts: list[Any], rows: dict[int, int], row: int) -> dict[str, Any]:
    numbers = [int(count[rows[row]]) for count in counts]
    return {
        "message": f"the four lists under {format_key(boxes.stem)} differ in length",
        "expected": f"equal lengths of {', '.join(BOX_SIDES)}",
        "found": ", ".join([f"{number:,}" for number in numbers]),
        "do": "write the four sides of a box together",
    }


def _describe_count_mismatch(
    boxes: BoxKeys, key: str, wanted: Array, found: Array, rows: dict[int, int], row: int
) -> dict[str, Any]:
    return {
        "message": f"{format_key(key)} differs in length from the boxes under {format_key(boxes.stem)}",
        "expected": f"{int(wanted[rows[row]]):,}, one per box",
        "found": f"{int(found[rows[row]]):,}",
        "do": "write boxes and their classes together, and omit both if one is omitted",
    }


def _describe_outside_box(whose: str, box: Sequence[float], shown: str) -> dict[str, Any]:
    details = {
        "message": f"{whose} has a box outside its image",
        "expected": "xmin, ymin, xmax, ymax from 0 to 1",
        "found": shown,
        "do": "clip the box to its image, or omit it",
    }
    past = max(max(-side, side - 1) for side in box)
    if max(box) > _MIN_PIXEL_COORDINATE:
        details["likely"] = "these are pixels, but TensorFlow's object detection reads fractions of the image"
        details["do"] = "divide x by the width of the image and y by its height"
    elif past <= _MAX_ROUNDING:
        details["likely"] = "the coordinates were rounded"
        details["do"] = "clip the box to its image: np.clip(box, 0, 1)"
    elif past <= _MAX_OVERSHOOT:
        details["likely"] = "the box slightly exceeds its image; object detection accepts coordinates up to 1.1"
        details["do"] = "clip the box to its image: np.clip(box, 0, 1)"
    return details


def _describe_reversed_box(whose: str, box: Sequence[float], shown: str) -> dict[str, Any]:
    crossed = box[0] > box[2] and box[1] > box[3]
    return {
        "message": f"{whose} has a reversed box",
        "expected": "xmin < xmax and ymin < ymax",
        "found": shown,
        "likely": "the corners are swapped" if crossed else None,
        "do": "write the smaller coordinate as the minimum; these keys do not hold x, y, width, height",
    }


def _describe_flat_box(whose: str, box: Sequence[float], shown: str) -> dict[str, Any]:
    return {
        "message": f"{whose} has a box without an area",
        "expected": "xmin < xmax and ymin < ymax",
        "found": shown,
        "do": "omit the box: a loss on it may become NaN",
    }
