"""The layout of images without labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rekord.arguments import check_keywords
from rekord.layouts.base import DerivedRow, Verify, inspect_row_image
from rekord.schema import Image, Int64, Schema, Text

_SCHEMA = Schema(
    {
        "image": Image(key="image/encoded"),
        "format": Text(key="image/format"),
        "filename": Text(key="image/filename"),
        "height": Int64(key="image/height"),
        "width": Int64(key="image/width"),
        "channels": Int64(key="image/channels"),
    }
)


@check_keywords
def images() -> ImagesLayout:
    """Images without labels, under the keys that the layouts of labelled images share."""
    return ImagesLayout()


@dataclass(frozen=True, slots=True)
class ImagesLayout:
    schema: Schema = _SCHEMA

    name = "images"
    needs_derive = True

    def options(self) -> Mapping[str, Any]:
        return {}

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        image, remarks = inspect_row_image(row, verify, readers="readers of this layout")
        values = {
            "image": image.data,
            "format": image.format,
            "filename": row.get("filename", ""),
            "height": image.height,
            "width": image.width,
            "channels": 3,
        }
        return DerivedRow(values, tuple(remarks))
