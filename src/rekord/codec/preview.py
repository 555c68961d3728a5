"""Small copies of images and masks, of bounded cost whatever the bytes are; and rows as an HTML table of them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image as Pillow

from rekord import _core
from rekord._core import ImageFault, ImageFormat
from rekord.codec.columns import Array, Column, Optional, Ragged
from rekord.codec.images.decode import convert_mode, decode_mask, draft_jpeg, nearest_indices, with_open_image
from rekord.codec.images.inspect import InvalidImage
from rekord.codec.images.store import MaskIds
from rekord.report.notebook import Cell, Thumbnail, image_cell, note_cell, render_table
from rekord.schema import Feature, Mask, of_type
from rekord.schema.schema import shorten_name, summarize_feature

SIDE = 96
"""Pixels of the longer side of a thumbnail."""

_MAX_ENCODED_BYTES = 32 << 20
_MAX_PIXELS = 40_000_000
_OPACITY = 0.55
_QUALITY = 75
_MAX_PNG_SIDE = 48  # an image this small is shown enlarged, where the artefacts of JPEG are visible
# Colours that differ on light and dark images; class 0 is usually the background and stays clear.
_COLOURS = np.array(
    [
        (230, 57, 70), (42, 157, 143), (244, 162, 97), (69, 123, 157), (233, 196, 106),
        (155, 93, 229), (0, 187, 249), (241, 91, 181), (106, 153, 78), (188, 108, 37),
    ],
    np.float32,
)  # fmt: skip


@dataclass(slots=True)
class ThumbnailBudget:
    """What the thumbnails of one page may cost, in decoded pixels and bytes of HTML; and their longer side."""

    pixels: int = 40_000_000
    n_bytes: int = 180_000
    side: int = SIDE

    def allows(self, data: bytes) -> bool:
        """Whether an image may be decoded; if so, its pixels are counted."""
        if len(data) > _MAX_ENCODED_BYTES or self.n_bytes <= 0:
            return False
        facts = _core.inspect_image(data, False)
        pixels = int(facts.width) * int(facts.height)
        if facts.format == ImageFormat.JPEG:
            pixels //= 4  # it is decoded at a smaller scale
        if facts.fault != ImageFault.NONE or facts.format == ImageFormat.NONE:
            return False
        if pixels > min(self.pixels, _MAX_PIXELS):
            return False
        self.pixels -= pixels
        return True

    def fit(self, width: int, height: int) -> tuple[int, int]:
        """The width and height of the thumbnail of an image."""
        scale = min(1.0, self.side / max(width, height, 1))
        return max(1, round(width * scale)), max(1, round(height * scale))


def is_image(data: bytes) -> bool:
    """Whether some bytes begin like an image."""
    return bool(_core.inspect_image(data[: 1 << 16], False).format != ImageFormat.NONE)


def class_colour(number: int) -> str:
    """The colour of a class id in masks and boxes, for CSS; none for class 0, which stays clear in masks."""
    if number == 0:
        return "transparent"
    red, green, blue = _COLOURS[(number - 1) % len(_COLOURS)].astype(int).tolist()
    return f"#{red:02x}{green:02x}{blue:02x}"


def make_thumbnail(
    data: bytes, budget: ThumbnailBudget, *, ids: Array | None = None, ignore: int | None = None
) -> Thumbnail | None:
    """A small copy of an image, with the class ids of a mask on top; None if it cannot be shown."""
    pixels = draw_image(data, budget)
    if pixels is None:
        return None
    return _encode(pixels if ids is None else _overlay(pixels, ids, ignore), budget)


def draw_image(data: bytes, budget: ThumbnailBudget) -> Array | None:
    """The pixels of a small copy of an image; None if it cannot be shown."""
    if not budget.allows(data):
        return None
    try:
        return with_open_image(data, lambda image: _shrink(image, budget))
    except (InvalidImage, MemoryError, ValueError):
        return None


def make_mask_thumbnail(data: bytes, declared: Mask, budget: ThumbnailBudget) -> Thumbnail | None:
    """A mask in colours."""
    pixels = draw_mask(data, declared, budget)
    return None if pixels is None else _encode(pixels, budget)


def draw_mask(data: bytes, declared: Mask | None, budget: ThumbnailBudget) -> Array | None:
    """The pixels of a small copy of a mask, in the colours of its classes; None if it cannot be shown."""
    ids = read_mask_ids(data, declared, budget)
    if ids is None:
        return None
    width, height = budget.fit(ids.shape[1], ids.shape[0])
    ignore = None if declared is None else declared.ignore
    return _overlay(np.full((height, width, 3), 245, np.uint8), ids, ignore, opacity=1.0)


def pixels_to_thumbnail(
    pixels: Array, budget: ThumbnailBudget, *, ids: Array | None = None, ignore: int | None = None
) -> Thumbnail | None:
    """A thumbnail of decoded pixels of shape (height, width, channels), with class ids on top."""
    if budget.n_bytes <= 0 or pixels.dtype != np.uint8 or pixels.ndim != 3 or not pixels.size:
        return None
    if pixels.shape[2] not in (1, 3, 4):
        return None
    # Every n-th pixel first: the rest is cheap, however large the image is.
    step = max(1, max(pixels.shape[:2]) // (4 * budget.side))
    small = np.ascontiguousarray(pixels[::step, ::step, :3])
    image = Pillow.fromarray(small[:, :, 0] if small.shape[2] == 1 else small).convert("RGB")
    made = _shrink(image, budget)
    return _encode(made if ids is None else _overlay(made, ids, ignore), budget)


def read_mask_ids(data: bytes, declared: Mask | None, budget: ThumbnailBudget) -> Array | None:
    """The class ids of a mask in its own size; None if it cannot be shown."""
    if not budget.allows(data):
        return None
    ids = MaskIds(1 << 16, None) if declared is None else MaskIds(declared.classes, declared.ignore)
    try:
        return decode_mask(data, ids, None)
    except (InvalidImage, MemoryError, ValueError):
        return None


def _shrink(image: Any, budget: ThumbnailBudget) -> Array:
    size = budget.fit(*image.size)
    box = draft_jpeg(image, image.mode, (size[1], size[0]))
    image.load()
    colours = convert_mode(image, "RGB")
    return np.array(colours.resize(size, Pillow.Resampling.BILINEAR, box=box))


def _overlay(pixels: Array, ids: Array, ignore: int | None, *, opacity: float = _OPACITY) -> Array:
    ids = ids[np.ix_(*map(nearest_indices, ids.shape, pixels.shape[:2]))]
    clear = ids == 0
    if ignore is not None:
        clear |= ids == ignore
    colours = _COLOURS[(ids.astype(np.int64) - 1) % len(_COLOURS)]
    mixed = (1 - opacity) * pixels + opacity * colours
    return np.where(clear[:, :, None], pixels, mixed).astype(np.uint8)


def _encode(pixels: Array, budget: ThumbnailBudget) -> Thumbnail | None:
    file, kind = io.BytesIO(), "png" if max(pixels.shape[:2]) <= _MAX_PNG_SIDE else "jpeg"
    Pillow.fromarray(pixels).save(file, kind, quality=_QUALITY)
    data = file.getvalue()
    budget.n_bytes -= len(data) * 4 // 3
    return (data, kind) if budget.n_bytes >= 0 else None


_MAX_COLUMNS = 16
_MAX_VALUES = 6
_MAX_CHARACTERS = 60


def render_rows(batch: Mapping[str, Column], features: Mapping[str, Feature] | None, rows: int) -> str:
    """The first rows of a batch."""
    count = min([rows, *[len(column) for column in list(batch.values())[:1]]])
    names = list(batch)[:_MAX_COLUMNS]
    budget = ThumbnailBudget()
    cells = [[_render_cell(name, batch, row, features or {}, budget) for name in names] for row in range(count)]
    head = [shorten_name(name) for name in names]
    if len(batch) > len(names):
        head.append(f"… {len(batch) - len(names):,} more")
        cells = [[*line, ""] for line in cells]
    return render_table(head, cells)


def render_columns(features: Mapping[str, Feature]) -> str:
    """A table of columns and their types."""
    rows = [
        (shorten_name(name), summarize_feature(feature), ", ".join(feature.record_keys(name)))
        for name, feature in features.items()
    ]
    if all(key == name for name, _, key in rows):
        return render_table(("column", "type"), [row[:2] for row in rows])
    return render_table(("column", "type", "record key"), rows)


def _render_cell(
    name: str, batch: Mapping[str, Column], row: int, features: Mapping[str, Feature], budget: ThumbnailBudget
) -> Any:
    value, feature = batch[name][row], features.get(name)
    if value is None:
        return note_cell("missing")
    masks = of_type(features, Mask)
    if isinstance(value, bytes) and (is_image(value) or (feature is not None and feature.is_image)):
        if name in masks:
            made = make_mask_thumbnail(value, masks[name], budget)
        else:
            over = next((one for one, mask in masks.items() if mask.of in (None, name) and one in batch), None)
            on_top = None if over is None else batch[over][row]
            declared = masks.get(over or "")
            ids = read_mask_ids(on_top, declared, budget) if isinstance(on_top, bytes) else None
            made = make_thumbnail(value, budget, ids=ids, ignore=None if declared is None else declared.ignore)
        return _image_or_note(made, name, f"{len(value):,} bytes, not shown")
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3:
        made = pixels_to_thumbnail(value, budget)
        return _image_or_note(made, name, f"uint8 {value.shape}")
    return describe_cell(value, feature)


def _image_or_note(made: Thumbnail | None, name: str, otherwise: str) -> Cell:
    return note_cell(otherwise) if made is None else image_cell(made, name)


def describe_cell(value: Any, feature: Feature | None) -> str:
    """A value in one short line; a class with its name."""
    if isinstance(value, (bytes, str)):
        shown = repr(value[: _MAX_CHARACTERS + 1])
        return shown if len(value) <= _MAX_CHARACTERS else f"{shown[:_MAX_CHARACTERS]}… ({len(value):,})"
    names = None if feature is None else feature.class_names
    if names is not None and isinstance(value, (int, np.integer)) and 0 <= value < len(names):
        return f"{int(value)} ({names[int(value)]})"
    if isinstance(value, np.ndarray):
        few = ", ".join(str(one) for one in value.reshape(-1)[:_MAX_VALUES].tolist())
        return f"[{few}{', …' if value.size > _MAX_VALUES else ''}] {value.dtype} {value.shape}"
    if isinstance(value, (list, tuple)):
        few = ", ".join(describe_cell(one, None) for one in value[:_MAX_VALUES])
        return f"[{few}{', …' if len(value) > _MAX_VALUES else ''}]"
    if isinstance(value, (Ragged, Optional)):
        return repr(value)
    return str(value)[:_MAX_CHARACTERS]
