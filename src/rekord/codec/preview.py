"""A few rows as an HTML table: thumbnails of images, with their masks on top, and short texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rekord.codec.columns import Column, Optional, Ragged
from rekord.codec.images.thumbnail import (
    ThumbnailBudget,
    is_image,
    make_mask_thumbnail,
    make_thumbnail,
    pixels_to_thumbnail,
    read_mask_ids,
)
from rekord.report.gallery import Thumbnail
from rekord.report.notebook import Cell, image_cell, note_cell, render_table
from rekord.schema import Feature, Mask, of_type
from rekord.schema.schema import shorten_name, summarize_feature

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
