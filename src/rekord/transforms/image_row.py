"""The image of a row while it is transformed, with its masks and boxes."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from PIL import Image as Pillow

from rekord import _core
from rekord.codec.columns import Array
from rekord.codec.images.decode import (
    convert_mode,
    decode_mask,
    draft_jpeg,
    inspect_header,
    nearest_indices,
    resize_pixels,
    with_open_image,
)
from rekord.codec.images.inspect import (
    FORMAT_NAMES,
    EncodedImage,
    GeneratedBytes,
    GeneratedMask,
    encode_grey_png,
)
from rekord.codec.images.jpeg import Box, Size, decode_jpeg
from rekord.codec.images.store import MaskIds, check_mask_size, store_image, store_mask
from rekord.codec.values import describe_value
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Image, Mask
from rekord.transforms.base import Row, column_errors

PILLOW_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
FILTERS = {
    "nearest": Pillow.Resampling.NEAREST,
    "box": Pillow.Resampling.BOX,
    "bilinear": Pillow.Resampling.BILINEAR,
    "hamming": Pillow.Resampling.HAMMING,
    "bicubic": Pillow.Resampling.BICUBIC,
    "lanczos": Pillow.Resampling.LANCZOS,
}
_AVERAGING_FILTERS = ("box", "bilinear", "hamming")
"""Filters that use only what falls into a pixel: a JPEG may be decoded at a smaller scale for them."""

_WIDE_MODE = "F"  # 16-bit grey is kept as floats, which represent all of its values
_WIDE_STEP = 257
_GREY_WEIGHTS = (0.299, 0.587, 0.114)


class ImagePixels:
    """The pixels of an image; `box` is the part that belongs to it, if a JPEG was decoded at a smaller scale."""

    def __init__(self, pixels: Any, size: Size, box: Box | None) -> None:
        self._pixels = pixels  # an image of Pillow, or an array (height, width, 1 or 3) of uint8
        self._size = size
        self._box = box

    @property
    def image(self) -> Any:
        """The pixels as an image of Pillow."""
        if isinstance(self._pixels, np.ndarray):
            grey = self._pixels.shape[2] == 1
            self._pixels = Pillow.fromarray(self._pixels[:, :, 0] if grey else self._pixels)
        return self._pixels

    @image.setter
    def image(self, image: Any) -> None:
        self._pixels = image

    def move(self, move: Placement, filter: str, pad: tuple[int, ...]) -> None:
        """Resize, crop and pad in one step."""
        top, left, height, width = move.part
        whole = (top, left, height, width) == (0, 0, *self._size)
        if self._box is not None or not whole or self._size != move.inner:
            self._pixels = self._resample(move, filter)
        self._box, self._size = None, move.size
        if move.pads:
            ground = Pillow.new(self.image.mode, (move.size[1], move.size[0]), _fill_colour(self.image.mode, pad))
            ground.paste(self.image, (move.at[1], move.at[0]))
            self.image = ground

    def _resample(self, move: Placement, filter: str) -> Any:
        top, left, height, width = move.part
        cuts = (height, width) == move.inner and self._box is None
        if cuts and float(top).is_integer() and float(left).is_integer():
            return self.image.crop((int(left), int(top), int(left) + int(width), int(top) + int(height)))
        if filter == "nearest":
            # The same pixels as for masks, so that both agree everywhere.
            picked = np.asarray(self.image)[np.ix_(*nearest_pixels(self._size, move))]
            return Pillow.fromarray(np.ascontiguousarray(picked))
        down, across = (1.0, 1.0)
        if self._box is not None:
            down, across = self._box[3] / self._size[0], self._box[2] / self._size[1]
        box = (left * across, top * down, (left + width) * across, (top + height) * down)
        array = self._samples() if filter == "bilinear" else None
        if array is not None:
            out = np.empty((*move.inner, array.shape[2]), np.uint8)
            resize_pixels(array, _clip_box(box, array.shape[:2]), out)
            return out
        size = (self.image.height, self.image.width)
        return self.image.resize((move.inner[1], move.inner[0]), FILTERS[filter], box=_clip_box(box, size))

    def _samples(self) -> Array | None:
        """The pixels of 8-bit grey or RGB as an array; None for others."""
        if isinstance(self._pixels, np.ndarray):
            return self._pixels
        if self._pixels.mode not in ("L", "RGB"):
            return None
        samples: Array = np.asarray(self._pixels)
        return samples.reshape(*samples.shape[:2], -1)

    def grey(self) -> None:
        """Convert to grey; alpha is dropped."""
        self.image = convert_mode(self.image, "L") if self.image.mode != _WIDE_MODE else self.image

    def array(self, channels: int) -> Array:
        """The pixels as uint8, of shape (height, width, channels)."""
        if isinstance(self._pixels, np.ndarray) and self._pixels.shape[2] == channels:
            return self._pixels
        image = convert_mode(_to_8_bits(self.image), PILLOW_MODES[channels])
        return np.asarray(image).reshape(image.height, image.width, channels)

    def encoded(self, format: str, quality: int | None) -> bytes:
        """The image as the bytes of a file; WebP without a quality is lossless."""
        image = _convert_for_format(self.image, format)
        image.info = {}  # comments, profiles and colour keys of the original file
        file = io.BytesIO()
        options: dict[str, Any] = {}
        if format in ("jpeg", "webp"):
            options = {"quality": quality} if quality is not None else {"lossless": True}
        image.save(file, format, **options)
        return GeneratedBytes(file.getvalue())


def load_pixels(data: bytes, move: Placement | None, filter: str) -> ImagePixels:
    """The pixels of an encoded image, decoded for a first placement if there is one; raises InvalidImage."""
    facts = inspect_header(data)
    size = (facts.height, facts.width)
    wanted: Size | None = None
    if move is not None and filter in _AVERAGING_FILTERS and max(move.scale) < 1:
        wanted = (round(size[0] * move.scale[0]), round(size[1] * move.scale[1]))
    if filter == "bilinear":
        decoded = decode_jpeg(data, facts, facts.channels, wanted)
        if decoded is not None:
            pixels, box = decoded
            return ImagePixels(pixels, size, None if pixels.shape[:2] == size else box)

    def use(image: Any) -> ImagePixels:
        box = None if wanted is None else draft_jpeg(image, image.mode, wanted)
        image.load()
        return ImagePixels(_to_native_mode(image), size, box)

    return with_open_image(data, use, facts)


def _to_native_mode(image: Any) -> Any:
    """The image in a lossless mode: only what Pillow cannot resize is converted."""
    if image.mode.startswith("I"):
        return Pillow.fromarray(np.asarray(image).astype(np.float32))
    if image.mode == "CMYK":
        return convert_mode(image, "RGB")
    keyed = "transparency" in image.info
    if image.mode in ("1", "L"):
        return convert_mode(image, "LA") if keyed else image.convert("L")
    if image.mode in ("LA", "RGBA"):
        return image
    return image.convert("RGBA") if keyed or image.mode == "PA" else convert_mode(image, "RGB")


def _to_8_bits(image: Any) -> Any:
    if image.mode != _WIDE_MODE:
        return image
    return Pillow.fromarray((_to_uint16(image) >> 8).astype(np.uint8))


def _to_uint16(image: Any) -> Array:
    """The values of 16-bit grey, clipped: sharpening filters may leave the range."""
    values: Array = np.clip(np.rint(np.asarray(image)), 0, 65_535).astype(np.uint16)
    return values


def _convert_for_format(image: Any, format: str) -> Any:
    if image.mode == _WIDE_MODE and format == "png":
        return Pillow.fromarray(_to_uint16(image))
    image = _to_8_bits(image)
    if format in ("jpeg", "bmp"):
        return convert_mode(image, "L" if image.mode in ("L", "LA") else "RGB")
    if format == "webp":
        return convert_mode(image, "RGBA" if image.mode in ("LA", "RGBA") else "RGB")
    return image


def _clip_box(box: Box, size: Size) -> Box:
    """A box without the part that rounding has put outside an image of this size."""
    left, top, right, bottom = box
    return max(left, 0.0), max(top, 0.0), min(right, float(size[1])), min(bottom, float(size[0]))


def _fill_colour(mode: str, pad: tuple[int, ...]) -> Any:
    """A colour of one or three numbers in a mode; opaque if there is alpha."""
    colour = pad * 3 if len(pad) == 1 else pad
    grey = pad[0] if len(pad) == 1 else round(sum(a * b for a, b in zip(_GREY_WEIGHTS, pad, strict=True)))
    if mode == _WIDE_MODE:
        return float(grey * _WIDE_STEP)
    return {"L": grey, "LA": (grey, 255), "RGB": colour, "RGBA": (*colour, 255)}[mode]


class Placement(NamedTuple):
    """A part of an image is resized and placed on a background.

        part              inner, at       size
    ┌─────────────┐         ┌───────────────┐
    │   ┌─────┐   │         │    ┌──────┐   │
    │   │     │   │   ──▶   │    │      │   │
    │   └─────┘   │         │    └──────┘   │
    └─────────────┘         └───────────────┘
    """

    part: tuple[float, float, float, float]  # top, left, height and width, in pixels before
    inner: Size  # of the part afterwards
    size: Size  # of the whole afterwards
    at: Size  # row and column of the part's first pixel

    @property
    def pads(self) -> bool:
        """Whether there is background around the part."""
        return self.inner != self.size

    @property
    def scale(self) -> tuple[float, float]:
        """The factors by which heights and widths grow."""
        return self.inner[0] / self.part[2], self.inner[1] / self.part[3]


def place_ids(ids: Array, move: Placement, ground: int) -> Array:
    """Class ids after a placement: each pixel has the id of the nearest one before, for every image filter."""
    picked: Array = ids[np.ix_(*nearest_pixels(ids.shape, move))]
    if not move.pads:
        return picked
    out = np.full(move.size, ground, ids.dtype)
    (top, left), (height, width) = move.at, move.inner
    out[top : top + height, left : left + width] = picked
    return out


def nearest_pixels(before: tuple[int, ...], move: Placement) -> tuple[Array, Array]:
    """The rows and the columns of the nearest pixels."""
    top, left, height, width = move.part
    rows = _nearest_positions(before[0], top, height, move.inner[0])
    return rows, _nearest_positions(before[1], left, width, move.inner[1])


def _nearest_positions(before: int, begin: float, length: float, after: int) -> Array:
    if begin == 0 and length == before:
        return nearest_indices(before, after)
    middles = begin + (np.arange(after) + 0.5) * length / after
    return np.clip(np.floor(middles), 0, before - 1).astype(np.intp)


class CoordinateFrame:
    """The position of the original image in the result, to move coordinates with the pixels."""

    def __init__(self, size: Size, moves: Sequence[Placement] = ()) -> None:
        self._before = size
        self._after = size
        self._scale = np.ones(2)
        self._shift = np.zeros(2)
        self._seen = np.array([[0.0, 0.0], size])  # the first and the last corner of what was not cropped
        for move in moves:
            self._move(move)

    def _move(self, move: Placement) -> None:
        begin, scale, at = np.array(move.part[:2]), np.array(move.scale), np.array(move.at)
        self._scale = self._scale * scale
        self._shift = (self._shift - begin) * scale + at
        self._seen = np.clip((self._seen - begin) * scale + at, at, at + np.array(move.inner))
        self._after = move.size

    @property
    def area_scale(self) -> float:
        """The factor by which areas grow."""
        return float(self._scale.prod())

    def boxes(self, boxes: Array) -> tuple[Array, Array]:
        """Boxes (xmin, ymin, xmax, ymax as fractions), clipped where the image was cropped, and which of them remain:

        all except those that had an area and have none now.
        """
        sides = np.array(self._before, np.float64)
        corners = boxes.astype(np.float64).reshape(-1, 2, 2)[:, :, ::-1]
        moved = corners * sides * self._scale + self._shift
        # A box that already left the image may stay as far outside; only what was cropped ends at the crop.
        cut = np.clip(moved, *self._seen) if self._is_cropped else moved
        had_area = np.all(corners[:, 1] > corners[:, 0], axis=1)
        kept = np.all(cut[:, 1] > cut[:, 0], axis=1) | ~had_area
        fractions: Array = (cut / np.array(self._after, np.float64))[:, :, ::-1].reshape(-1, 4)
        return fractions.astype(np.float32), kept

    @property
    def _is_cropped(self) -> bool:
        whole = np.array([np.zeros(2), self._before]) * self._scale + self._shift
        return bool((np.abs(whole - self._seen) > 1e-9).any())


OutputForm: TypeAlias = Literal["encoded", "pixels", "floats"]

JPEG_QUALITY = 95
"""The default for encoding a JPEG again, the same as in tf.io.encode_jpeg and OpenCV."""

ANY_IMAGE = Image()
OUTLINE_MASK = Mask(classes=256)
_COLOUR_SPACES = {1: "Grayscale", 3: "RGB", 4: "RGBA"}
_MAX_BOX_OVERSHOOT = 1.0
"""How far outside its image a box may be, in image sizes; beyond that it is not given in fractions."""


class PixelOperation(Protocol):
    """An operation on the pixels of an image."""

    def move(self, size: Size) -> Placement | None:
        """Where the pixels of an image of this size go; None if they stay. Raises InvalidValue."""

    def apply_to_pixels(self, pixels: ImagePixels, move: Placement | None) -> None:
        """Change the pixels."""

    def changes(self, move: Placement | None) -> bool:
        """Whether it changes this image."""

    @property
    def filter(self) -> str: ...


_PlannedOperation: TypeAlias = tuple[PixelOperation, "Placement | None"]


@dataclass(frozen=True, kw_only=True)
class ImageOutput:
    """The form in which the pixels are stored."""

    form: OutputForm = "encoded"
    format: str | None = None  # requested; None: that of the image
    quality: int | None = None  # requested or declared
    channels: int | None = None  # if known
    table: Array | None = field(default=None, compare=False)  # the float for each value of each channel


@dataclass(frozen=True, kw_only=True)
class ImageColumns:
    """The columns that belong to an image."""

    image: str
    masks: Mapping[str, Mask] = field(default_factory=dict)
    boxes: tuple[str, ...] = ()
    per_box: tuple[str, ...] = ()  # with one value per box
    areas: tuple[str, ...] = ()  # among these, areas in pixels
    outlines: tuple[str, ...] = ()  # among these, masks as large as the image
    metadata_columns: Mapping[str, str] = field(default_factory=dict)  # height, width, format, … → column
    mask_formats: tuple[str, ...] = ()

    def names(self) -> frozenset[str]:
        """All of them."""
        descriptive = (*self.metadata_columns.values(), *self.mask_formats)
        return frozenset([self.image, *self.masks, *self.boxes, *self.per_box, *descriptive])


@dataclass(frozen=True)
class ImagePipeline:
    """All operations on one image column."""

    layers: ImageColumns
    feature: Image
    steps: tuple[PixelOperation, ...]
    output: ImageOutput

    def __call__(self, row: Row) -> Row:
        name = self.layers.image
        value = row.get(name)
        if value is None and self.feature.has_default:
            value = self.feature.default
        if value is None:
            for mask in self.layers.masks:
                self._mask(row, mask, None, [])
            return row
        with column_errors(name):
            # Arrays and files are accepted, as by the encoder; the declared format is not checked yet.
            data = value if isinstance(value, bytes) else store_image(value, ANY_IMAGE)
            size, moves = self._render_image(row, data)
        for mask in self.layers.masks:
            self._mask(row, mask, size, moves)
        if moves and self.layers.boxes:
            self._boxes(row, CoordinateFrame(size, moves))
            self._outlines(row, size, moves)
        return row

    def _render_image(self, row: Row, data: bytes) -> tuple[Size, list[Placement]]:
        """Transform the image itself; returns its original size, and where its pixels went."""
        facts = _core.inspect_image(data, False)
        before = (facts.height, facts.width)
        planned, size = self._plan_operations(before)
        format = FORMAT_NAMES.get(facts.format, "png")
        new_format = self._format(format)
        # Unchanged pixels keep their bytes.
        kept = not planned and new_format == format and (self.output.format in (None, "png"))
        if self.output.form == "encoded" and kept and facts.fault == _core.ImageFault.NONE:
            row[self.layers.image] = data
            return before, []
        first = planned[0] if planned else None
        pixels = load_pixels(data, first[1] if first else None, first[0].filter if first else "nearest")
        for step, move in planned:
            step.apply_to_pixels(pixels, move)
        self._store(row, pixels, size, data, format, new_format)
        return before, _collect_placements(planned)

    def _plan_operations(self, size: Size) -> tuple[list[_PlannedOperation], Size]:
        """The operations on an image of this size, and its size afterwards."""
        planned: list[_PlannedOperation] = []
        for step in self.steps if 0 not in size else ():
            move = step.move(size)
            if step.changes(move):
                planned.append((step, move))
            if move is not None:
                size = move.size
        return planned, size

    def _format(self, own: str) -> str:
        format = self.output.format or own
        return "png" if format == "gif" else format  # a transformed image has more colours than a GIF

    def _store(self, row: Row, pixels: ImagePixels, size: Size, data: bytes, format: str, new_format: str) -> None:
        name, columns = self.layers.image, self.layers.metadata_columns
        channels = self.output.channels
        if self.output.form == "encoded":
            row[name] = pixels.encoded(new_format, self._quality(new_format, data))
        else:
            assert channels is not None
            array = pixels.array(channels)
            row[name] = array if self.output.table is None else _look_up_floats(self.output.table, array)
        metadata: dict[str, Any] = {"height": size[0], "width": size[1]}
        if new_format != format:
            is_upper = str(row.get(columns.get("format", ""))).isupper()
            metadata["format"] = new_format.upper() if is_upper else new_format
        if self.output.form == "encoded" and "digest" in columns:
            metadata["digest"] = hashlib.sha256(row[name]).hexdigest()
        if channels is not None:
            metadata |= {"channels": channels, "colorspace": _COLOUR_SPACES.get(channels)}
        for what, value in metadata.items():
            if what in columns and value is not None and row.get(columns[what]) is not None:
                row[columns[what]] = value

    def _quality(self, format: str, data: bytes) -> int | None:
        if self.output.quality is not None or self.output.format is not None:
            return self.output.quality
        if format == "webp":
            return None if _is_lossless_webp(data) else JPEG_QUALITY
        return JPEG_QUALITY if format == "jpeg" else None

    # Masks and boxes.

    def _mask(self, row: Row, name: str, size: Size | None, moves: list[Placement]) -> None:
        """Transform the mask of an image of this size; if the image is missing, by the mask's own size."""
        mask = self.layers.masks[name]
        data = row.get(name)
        if data is None and mask.has_default:
            data = row[name] = mask.default
        if data is None:
            return
        if size is None:
            with column_errors(name):
                data = data if isinstance(data, bytes) else store_mask(data, mask)
                facts = _core.inspect_image(data, False)
                size = (facts.height, facts.width)
                moves = _collect_placements(self._plan_operations(size)[0])
        encoded = self.output.form == "encoded"
        if encoded and not moves:
            return
        ids = decode_ids(data, mask, size, name)
        for move in moves:
            ids = place_ids(ids, move, mask.ignore or 0)
        row[name] = GeneratedMask(encode_grey_png(ids)) if encoded else ids

    def _boxes(self, row: Row, frame: CoordinateFrame) -> None:
        kept: Array | None = None
        count = None
        for name in self.layers.boxes:
            if row.get(name) is None:
                continue
            given = _to_boxes(row[name], name)
            if count is not None and len(given) != count:
                raise _count_error(name, count, len(given))
            boxes, here = frame.boxes(given)
            kept = here if kept is None else kept & here
            count = len(given)
            row[name] = boxes
        if kept is None:
            return
        for name in self.layers.per_box:
            if row.get(name) is not None:
                if len(row[name]) != count:
                    raise _count_error(name, int(count or 0), len(row[name]))
                if name in self.layers.areas:
                    row[name] = np.asarray(row[name], np.float32) * np.float32(frame.area_scale)
        if not kept.all():
            for name in (*self.layers.boxes, *self.layers.per_box):
                if row.get(name) is not None:
                    row[name] = _select_values(row[name], kept)

    def _outlines(self, row: Row, size: Size, moves: list[Placement]) -> None:
        for name in self.layers.outlines:
            if row.get(name) is None:
                continue
            made = []
            for data in row[name]:
                ids = decode_ids(bytes(data), OUTLINE_MASK, size, name)
                for move in moves:
                    ids = place_ids(ids, move, 0)
                made.append(encode_grey_png(ids))
            row[name] = made


def _collect_placements(planned: Sequence[_PlannedOperation]) -> list[Placement]:
    return [move for _, move in planned if move is not None]


def decode_ids(value: Any, mask: Mask, size: Size, name: str) -> Array:
    """The class ids of a mask of this size."""
    with column_errors(name):
        data = value if isinstance(value, bytes) else store_mask(value, mask)
        facts = _core.inspect_image(data, False)
        # Before it is inflated: a record may have thousands, each of a few bytes that claim millions of pixels.
        if facts.fault == _core.ImageFault.NONE:
            image = EncodedImage(b"", "", size[1], size[0], 0, 8)
            check_mask_size(image, EncodedImage(b"", "png", facts.width, facts.height, 1, 8), name=name)
        return decode_mask(data, MaskIds(mask.classes, mask.ignore), None)


def _look_up_floats(table: Array, pixels: Array) -> Array:
    """The float of each pixel. A channel has only 256 values, so they are computed once."""
    out: Array = np.empty(pixels.shape, np.float32)
    if (table == table[0]).all():
        np.take(table[0], pixels, out=out)
        return out
    for channel, floats in enumerate(table):
        out[..., channel] = floats[pixels[..., channel]]
    return out


def _select_values(values: Any, kept: Array) -> Any:
    if isinstance(values, np.ndarray):
        return values[kept]
    return [value for value, keep in zip(values, kept.tolist(), strict=True) if keep]


def _to_boxes(value: Any, name: str) -> Array:
    """Boxes as fractions of their image."""
    try:
        boxes = np.asarray(value, np.float32)
        boxes = boxes.reshape(-1, 4) if boxes.size == 0 else boxes
    except (TypeError, ValueError, OverflowError):
        boxes = np.zeros(1, np.float32)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise error(
            "E306",
            f"`{name}` is not a list of boxes",
            location=Location(feature=name),
            expected="shape (n, 4): xmin, ymin, xmax, ymax",
            found=describe_value(value),
            do="pass four numbers per box",
        )
    sound = np.isfinite(boxes) & (boxes >= -_MAX_BOX_OVERSHOOT) & (boxes <= 1 + _MAX_BOX_OVERSHOOT)
    if not sound.all():
        in_pixels = np.isfinite(boxes).all() and boxes.max() > 1 + _MAX_BOX_OVERSHOOT
        raise error(
            "E383",
            f"`{name}` has a box that is not in fractions of its image",
            location=Location(feature=name),
            expected="xmin, ymin, xmax, ymax from 0 to 1",
            found=f"{boxes[~sound][0]:.6g} in box {int(np.argmin(sound.all(axis=1))):,}",
            likely="the boxes are in pixels" if in_pixels else None,
            do="divide them by the width and height of the image before storing them",
        )
    return boxes


def _count_error(name: str, expected: int, found: int) -> RekordError:
    return error(
        "E307",
        f"`{name}` has a different length than the boxes",
        location=Location(feature=name),
        expected=f"{expected:,} values, one per box",
        found=f"{found:,}",
        do=f"pass one value per box in `{name}`, or remove it from per_box=",
    )


def _is_lossless_webp(data: bytes) -> bool:
    """Whether the first image in a WebP file is lossless, found chunk by chunk: others may contain any bytes."""
    at = 12
    while at + 8 <= len(data):
        name, length = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name in (b"VP8L", b"VP8 "):
            return name == b"VP8L"
        # The chunks of a frame begin after its 16 bytes.
        at += 8 + (16 if name == b"ANMF" else length + (length & 1))
    return False
