"""Images, masks and boxes in records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from rekord import _core
from rekord._core import Colour, ImageFault, ImageFormat
from rekord.codec.images.inspect import (
    FORMAT_NAMES,
    InvalidImage,
    collect_remarks,
    format_display_name,
    invalid_image_error,
    pixel_limit_ratio,
    too_many_pixels_error,
)
from rekord.codec.images.store import MaskIds, inspect_mask_value
from rekord.codec.values import InvalidValue
from rekord.health.check.rule import (
    Array,
    Cells,
    CheckRule,
    RowMask,
    compute_value_offsets,
    find_present_rows,
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
_REWRITE_HINT = "write the record again from its source, or leave it out"
_COLOURS = {
    Colour.PALETTE: "palette",
    Colour.GREY_ALPHA: "grey and alpha",
    Colour.RGB: "RGB",
    Colour.RGBA: "RGBA",
}
_MIN_ROTATED_ORIENTATION = 5


def to_finding(unfit: InvalidValue, whose: str) -> tuple[str, dict[str, Any]]:
    """The code of a finding and what it says, of what the codec would refuse to store or to decode."""
    code = _CODES[unfit.code]
    return code, {
        "message": f"{whose} {unfit.what}",
        "expected": unfit.expected,
        "found": unfit.found,
        "likely": unfit.likely if isinstance(unfit, InvalidImage) else None,
        # What is in a record is repaired where it came from; class ids may also be declared, and limits raised.
        "do": unfit.do if code in ("H739", "H767") else _REWRITE_HINT,
    }


def find_mask_problems(whose: str, data: bytes, facts: _core.ImageFacts, mask: Mask | None) -> Problems:
    """What is wrong with a whole image as a mask; without a declaration nothing is known of its classes."""
    ids = MaskIds(mask.classes, mask.ignore) if mask is not None else None
    bits = 16 if ids is not None and ids.wide else 8
    reading = _describe_tf_reading(facts, bits)
    if reading is not None and not (mask is None and _is_wide_grey(facts)):
        yield "H766", "error", _describe_missing_ids(whose, facts, bits, reading)
    elif ids is not None:
        try:
            inspect_mask_value(data, ids, None, "full")
        except InvalidValue as unfit:
            code, said = to_finding(unfit, whose)
            yield code, "warning" if code == "H769" else "error", said


def find_mask_size_mismatch(whose: str, of: str | None, image: Any, mask: Any) -> dict[str, Any] | None:
    """What to say of a mask that does not cover its image; sizes are (width, height, orientation)."""
    if image is None or mask is None or image[:2] == mask[:2]:
        return None
    likely = None
    if image[:2] == (mask[1], mask[0]):
        likely = "width and height are swapped: one of the two was turned"
        if image[2] >= _MIN_ROTATED_ORIENTATION:
            likely = "the image is turned by EXIF, and the mask was drawn on the turned one"
    return {
        "message": f"{whose} has another size than its image, {format_key(of or 'image')}",
        "expected": f"{image[0]:,} × {image[1]:,} (width × height), as the image has",
        "found": f"{mask[0]:,} × {mask[1]:,}",
        "likely": likely,
        "do": "write the mask that belongs to this image, or resize it without smoothing",
    }


def _is_wide_grey(facts: _core.ImageFacts) -> bool:
    # Panoptic ids need 16 bits, and their readers ask for them.
    return facts.format == ImageFormat.PNG and facts.colour == Colour.GREY and facts.bits == 16


def _describe_tf_reading(facts: _core.ImageFacts, bits: int) -> str | None:
    """What TensorFlow makes of the values of a mask; None where it reads them as they are."""
    if facts.format != ImageFormat.PNG:
        return "values that a lossy or coloured format has changed"
    if facts.colour != Colour.GREY:
        return "the brightness of the colours, not class ids"
    if facts.bits == bits:
        return None
    if facts.bits == 16:
        return "the upper 8 of 16 bits: every id below 256 as 0"
    if bits == 16:
        return f"each id times {65535 // ((1 << facts.bits) - 1)}, scaled to 16 bits"
    return f"each id times {255 // ((1 << facts.bits) - 1)}, scaled to 8 bits"


def _describe_missing_ids(whose: str, facts: _core.ImageFacts, bits: int, reading: str) -> dict[str, Any]:
    colour = _COLOURS.get(facts.colour)
    if facts.format != ImageFormat.PNG:
        what = format_display_name(FORMAT_NAMES[facts.format])
        likely, do = None, "store masks as PNG: a lossy format changes class ids"
    elif facts.colour == Colour.PALETTE:
        what = "a palette PNG"
        likely = "the index into the palette is the class id, as in the masks of Pascal VOC"
        do = "store the indices: np.array(PIL.Image.open(file)) as a PNG of one channel"
    elif colour is not None:
        what, likely = f"a PNG of colours ({colour})", None
        do = "turn each colour into its class id: rk.layouts.deeplab(colours={(128, 0, 0): 1, …})"
    else:
        what, likely = f"a grey PNG of {facts.bits} bits", None
        do = f"store it with {bits} bits, without scaling its values"
    return {
        "message": f"{whose} is {what}: TensorFlow reads {reading}",
        "expected": f"a PNG of one channel of {bits} bits whose values are class ids",
        "found": what,
        "likely": likely,
        "do": do,
    }


Problems: TypeAlias = "Iterator[tuple[str, Severity, dict[str, Any]]]"
"""The codes of findings, how bad they are, and what they say."""

ImageSize: TypeAlias = "tuple[int, int, int] | None"
"""Width, height and EXIF's orientation; None where the image does not say."""

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
"""Beyond its limit Pillow warns of a decompression bomb; beyond this many times the limit it raises an error."""

_MIN_SWAPPED_ORIENTATION = 5
"""From this orientation of EXIF on an image is shown with its width and height swapped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageKey:
    """A record key that holds images, and what is known of them."""

    key: str
    feature: str  # the column, or the key itself where there is no schema
    step: bool = False
    image: Image | None = None  # as declared
    mask: Mask | None = None
    is_mask: bool = False
    of: str | None = None  # the key of a mask's image
    alone: bool = True  # no other image lies in the same folder of keys
    is_empty_allowed: bool = False

    @property
    def declared(self) -> bool:
        """Whether a schema says that this is an image."""
        return self.image is not None or self.mask is not None


def find_declared_images(schema: Schema) -> tuple[ImageKey, ...]:
    """The images of a schema, images before masks."""
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
    """Every image is whole and what is said of it; `keys_of` gives the images of a batch."""

    def __init__(self, keys_of: Callable[[KeyedBatch], Sequence[ImageKey]]) -> None:
        super().__init__()
        self._keys_of = keys_of

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """What is wrong with the images of these records."""
        sizes: dict[tuple[str | None, bool], dict[int, ImageSize]] = {}
        for key in self._keys_of(batch):
            cells = Cells.of(batch, key.key, step=key.step)
            if cells is None or cells.column.kind != "bytes":
                continue
            beside = _ImageMetadata(batch, key)
            sizes[key.key, key.step] = seen = {}
            for row, cell, step, data in _iter_images(cells):
                facts = _core.inspect_image(data, True)
                seen[cell] = _get_size(facts)
                for code, severity, said in self._about(key, data, facts, step, beside, row):
                    yield from self._report(batch, [row], code, severity, key.feature, partial(_say, said))
                if key.is_mask and (key.of, key.step) in sizes:
                    image = sizes[key.of, key.step].get(cell)
                    apart = find_mask_size_mismatch(_format_image_name(key, step), key.of, image, seen[cell])
                    if apart is not None:
                        yield from self._report(batch, [row], "H768", "error", key.feature, partial(_say, apart))

    def _about(
        self,
        key: ImageKey,
        data: bytes,
        facts: _core.ImageFacts,
        step: int | None,
        beside: _ImageMetadata,
        row: int,
    ) -> Problems:
        whose = _format_image_name(key, step)
        what = "mask" if key.is_mask else "image"
        if facts.fault == ImageFault.EMPTY and key.is_empty_allowed:
            return
        tiff = facts.format == ImageFormat.TIFF
        if facts.fault != ImageFault.NONE or (tiff and not key.is_mask):
            code, said = to_finding(invalid_image_error(facts, data, None, what), whose)
            yield code, "warning" if tiff and not key.declared else "error", said
            return
        yield from _find_oversized(facts, whose, declared=key.declared)
        yield from beside.format(row, facts, whose, key)
        yield from beside.size(row, facts, whose)
        if key.is_mask:
            yield from find_mask_problems(whose, data, facts, key.mask)
            return
        yield from beside.channels(row, facts, whose, key)
        for code, sentence in collect_remarks(facts, None, "image"):
            yield code, "note", {"message": sentence.replace("the image", whose, 1)}


def _find_oversized(facts: _core.ImageFacts, whose: str, *, declared: bool) -> Problems:
    """What decode=True would refuse for its number of pixels.

    Where no schema declares an image nobody is known to decode it, unless Pillow too would take it for an attack.
    """
    times = pixel_limit_ratio(facts)
    if times > 1:
        code, said = to_finding(too_many_pixels_error(facts), whose)
        yield code, "error" if declared or times > _PILLOW_ERROR_FACTOR else "warning", said


class _ImageMetadata:
    """The keys beside an image that say what it is: `image/format` and `image/height` of `image/encoded`."""

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
        """The format that the schema declares, or that a key says."""
        found = FORMAT_NAMES[facts.format]
        wanted = key.image.format if key.image is not None else None
        if wanted is not None and wanted != found:
            yield (
                "H764",
                "error",
                {
                    "message": f"{whose} is {format_display_name(found)}, the schema says "
                    f"{format_display_name(wanted)}",
                    "expected": f"the bytes of a {format_display_name(wanted)} image",
                    "found": format_display_name(found),
                    "do": f'declare format="{found}", or format=None for any',
                },
            )
            return
        said = self._of("format", row, bytes)
        if said is None:
            return
        wanted = _FORMAT_NAMES.get(said[:8].decode("latin-1").strip().lower().lstrip("."))
        if wanted is not None and wanted != found:
            yield (
                "H764",
                "warning",
                {
                    "message": f"{whose} is {format_display_name(found)}, {format_key(self._names['format'])} "
                    "says otherwise",
                    "expected": f"{format_display_name(wanted)}, as {format_key(self._names['format'])} says",
                    "found": format_display_name(found),
                    "likely": "a file whose name ends in another format than its bytes have",
                    "do": f"write {format_key(self._names['format'])} from the bytes of the image, not from its name",
                },
            )

    def size(self, row: int, facts: _core.ImageFacts, whose: str) -> Problems:
        """The size that the keys say."""
        width, height = self._of("width", row, int), self._of("height", row, int)
        if width in (None, facts.width) and height in (None, facts.height):
            return
        keys = " and ".join([format_key(self._names[name]) for name in ("width", "height") if name in self._names])
        likely = None
        if (width, height) == (facts.height, facts.width):
            likely = "width and height are swapped"
            if facts.orientation >= _MIN_SWAPPED_ORIENTATION:
                likely = "the image is turned by EXIF, and the keys tell the size of the turned one"
        told = " × ".join(["?" if side is None else f"{side:,}" for side in (width, height)])
        yield (
            "H765",
            "error",
            {
                "message": f"{whose} has another size than {keys} say",
                "expected": f"{told} (width × height), as {keys} say",
                "found": f"{facts.width:,} × {facts.height:,}",
                "likely": likely,
                "do": "write the keys from the image itself, after any resizing",
            },
        )

    def channels(self, row: int, facts: _core.ImageFacts, whose: str, key: ImageKey) -> Problems:
        """How many channels the schema or a key says: a note, where readers that ask for three get three."""
        said = self._of("channels", row, int)
        source = format_key(self._names["channels"]) if said is not None else "the schema"
        if said is None and key.image is not None:
            said = key.image.channels
        if said in (None, facts.channels) or facts.colour in (Colour.CMYK, Colour.YCCK):
            return
        yield (
            "H738",
            "note" if said == 3 else "warning",
            {
                "message": f"{whose} has {format_count(facts.channels, 'channel')}, {source} says {said}",
                "expected": format_count(said, "channel"),
                "found": f"{format_count(facts.channels, 'channel')} of {facts.bits} bits",
                "do": f"tf.io.decode_image(…, channels={said}) gives what is said"
                if said in (1, 3, 4)
                else "write the key from the image itself",
            },
        )


def _say(said: dict[str, Any], row: int) -> dict[str, Any]:
    return said


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
    """The key that says something of an image: image/height or image_height of image; height beside it."""
    wanted = "bytes" if name == "format" else "int64"
    candidates = [f"{key.key}/{name}", f"{key.key}_{name}"]
    # A size in the folder of a mask is its image's, which the mask is compared with anyway.
    if key.alone and (not key.is_mask or key.key == MASK_KEY):
        candidates.append(f"{_parent_key(key.key)}{name}")
    for candidate in candidates:
        column = batch.context.get(candidate)
        if column is not None and column.kind == wanted:
            return candidate
    return None


def _get_single_values(batch: KeyedBatch, key: str) -> list[Any]:
    """The one value that each row has under a key; None where it has none, or several."""
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
"""By how much a side may pass the border of its image without a finding: float32 arithmetic is no closer."""

_MAX_ROUNDING = 1e-3
"""Up to here it is a note: coordinates that were rounded to three decimals are off by less."""

_MAX_OVERSHOOT = 0.1 + _FLOAT_NOISE
"""Up to here it is a warning: the Object Detection API reads coordinates up to 1.1, and stops at larger ones."""

_MIN_PIXEL_COORDINATE = 1.5
"""A coordinate above this is in pixels: no annotation leaves its image by half of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxKeys:
    """Where some boxes are stored: four keys that begin alike, and the lists that tell what is in each box."""

    stem: str
    feature: str  # the column, or the stem where there is no schema
    step: bool = False
    declared: bool = False
    from_one: bool = True  # whether class ids begin at 1, as far as nobody declares otherwise

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
        found = BoxKeys(stem=stem, feature=name, step=name in schema.steps, declared=True)
        label = next(
            (one for column, one in schema.items() if found.sibling(CLASS_IDS) in one.record_keys(column)),
            None,
        )
        free = label is None or (label.value_kind == "int" and label.limits is None)
        out.append(BoxKeys(stem=stem, feature=name, step=name in schema.steps, declared=True, from_one=free))
    return tuple(out)


class BoxRule(CheckRule):
    """Every box lies in its image; `boxes_of` gives the boxes of a batch."""

    def __init__(self, boxes_of: Callable[[KeyedBatch], Sequence[BoxKeys]]) -> None:
        super().__init__()
        self._boxes_of = boxes_of

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """What is wrong with the boxes of these records."""
        for boxes in self._boxes_of(batch):
            sides = [Cells.of(batch, key, step=boxes.step) for key in boxes.keys]
            found = [side for side in sides if side is not None and side.column.kind == "float"]
            if len(found) == len(BOX_SIDES) and len({len(side.column) for side in found}) == 1:
                yield from self._boxes(batch, boxes, found)
            yield from self._classes(batch, boxes)

    def _boxes(self, batch: KeyedBatch, boxes: BoxKeys, sides: list[Cells]) -> Iterator[Finding]:
        columns = [side.column for side in sides]
        counts = [column.counts for column in columns]
        # Where a list is missing there are no values of it, whatever stands in its place.
        even = np.logical_and.reduce([count == counts[0] for count in counts])
        if not even.all() and not boxes.declared:
            rows = sides[0].records(np.flatnonzero(~even))
            say = lambda row: _describe_uneven_sides(boxes, counts, rows[row])  # noqa: E731
            yield from self._report(batch, rows, "H770", "error", boxes.feature, say)
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
        for code, severity, wrong, say in judged:
            yield from self._marked(batch, boxes, sides, edges, owners, wrong, code, severity, say)

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
        say: Callable[[str, Sequence[float], str], dict[str, Any]],
    ) -> Iterator[Finding]:
        at = np.flatnonzero(wrong)
        if not len(at):
            return
        cells, first = np.unique(owners[at], return_index=True)
        place = dict(zip(cells.tolist(), at[first].tolist(), strict=True))
        several = np.bincount(owners[at], minlength=len(sides[0].column))

        rows = sides[0].records(cells)

        def words(row: int) -> dict[str, Any]:
            cell = rows[row]
            box = [float(edge[place[cell]]) for edge in edges]
            more = int(several[cell]) - 1
            number = place[cell] - int(np.searchsorted(owners, cell))
            shown = f"box {number:,}: {', '.join([f'{side:.4g}' for side in box])}"
            return say(format_key(boxes.feature), box, shown + (f"; {more:,} more in the record" if more else ""))

        yield from self._report(batch, rows, code, severity, boxes.feature, words)

    def _classes(self, batch: KeyedBatch, boxes: BoxKeys) -> Iterator[Finding]:
        """The classes of boxes: as many as there are boxes, and none of them the background's."""
        first = Cells.of(batch, boxes.keys[0], step=boxes.step)
        for name in (CLASS_IDS, CLASS_NAMES):
            key = boxes.sibling(name)
            cells = Cells.of(batch, key, step=boxes.step)
            if cells is None:
                continue
            counts = cells.column.counts
            if first is not None and len(first.column) == len(cells.column):
                wanted = first.column.counts
                wrong = (counts != wanted) & find_present_rows(first.column, len(wanted))
                # Names may be left out, and are then missing or an empty list.
                wrong &= (counts > 0) if name == CLASS_NAMES else find_present_rows(cells.column, len(wanted))
                rows = cells.records(np.flatnonzero(wrong))
                say = partial(_describe_count_mismatch, boxes, key, wanted, counts, rows)
                yield from self._report(batch, rows, "H770", "error", key, say)
            if name == CLASS_IDS and boxes.from_one and cells.column.kind == "int64":
                yield from self._below_one(batch, boxes, cells, key)

    def _below_one(self, batch: KeyedBatch, boxes: BoxKeys, cells: Cells, key: str) -> Iterator[Finding]:
        values = cells.column.values
        if not len(values) or values.min() >= 1:
            return
        first = cells.marked(values < 1)
        rows = cells.records(np.fromiter(first, np.int64, len(first)))

        def say(row: int) -> dict[str, Any]:
            found = int(values[first[rows[row]]])
            return {
                "message": f"{format_key(key)} is {found}, and ids begin at 1",
                "expected": "class ids from 1: TensorFlow's object detection takes 0 for the background",
                "found": str(found),
                "do": "add 1 to the ids, here and in the label map",
            }

        yield from self._report(batch, rows, "H774", "warning", key, say)


def _select_row_values(column: KeyColumn, rows: RowMask) -> Array:
    """The values of some rows."""
    values: Array = column.values
    if column.offsets is None and column.valid is None and rows.all():
        return values
    return values[np.repeat(rows & find_present_rows(column, len(rows)), np.diff(compute_value_offsets(column)))]


def _describe_uneven_sides(boxes: BoxKeys, counts: list[Any], cell: int) -> dict[str, Any]:
    numbers = [int(count[cell]) for count in counts]
    return {
        "message": f"the four lists under {format_key(boxes.stem)} have different lengths",
        "expected": f"as many of each side: {', '.join(BOX_SIDES)}",
        "found": ", ".join([f"{number:,}" for number in numbers]),
        "do": "write the four sides of a box together",
    }


def _describe_count_mismatch(
    boxes: BoxKeys, key: str, wanted: Array, found: Array, rows: dict[int, int], row: int
) -> dict[str, Any]:
    return {
        "message": f"{format_key(key)} has another length than the boxes under {format_key(boxes.stem)}",
        "expected": f"{int(wanted[rows[row]]):,}, one for each box",
        "found": f"{int(found[rows[row]]):,}",
        "do": "write boxes and their classes together, and leave out both where one is left out",
    }


def _describe_outside_box(whose: str, box: Sequence[float], shown: str) -> dict[str, Any]:
    said = {
        "message": f"{whose} has a box outside of its image",
        "expected": "xmin, ymin, xmax, ymax from 0 to 1",
        "found": shown,
        "do": "clip the box to its image, or leave it out",
    }
    past = max(max(-side, side - 1) for side in box)
    if max(box) > _MIN_PIXEL_COORDINATE:
        said["likely"] = "these are pixels: TensorFlow's object detection reads fractions of the image"
        said["do"] = "divide x by the width of the image and y by its height"
    elif past <= _MAX_ROUNDING:
        said["likely"] = "the coordinates were rounded"
        said["do"] = "clip the box to its image: np.clip(box, 0, 1)"
    elif past <= _MAX_OVERSHOOT:
        said["likely"] = "the box passes the border of its image a little; object detection reads up to 1.1"
        said["do"] = "clip the box to its image: np.clip(box, 0, 1)"
    return said


def _describe_reversed_box(whose: str, box: Sequence[float], shown: str) -> dict[str, Any]:
    crossed = box[0] > box[2] and box[1] > box[3]
    return {
        "message": f"{whose} has a box that is reversed",
        "expected": "xmin < xmax and ymin < ymax",
        "found": shown,
        "likely": None if not crossed else "the corners are swapped",
        "do": "write the lesser coordinate as the min; x, y, width, height are not what these keys hold",
    }


def _describe_flat_box(whose: str, box: Sequence[float], shown: str) -> dict[str, Any]:
    return {
        "message": f"{whose} has a box without an area",
        "expected": "xmin < xmax and ymin < ymax",
        "found": shown,
        "do": "leave the box out: a loss on it may become NaN",
    }
