"""The layout of segmentation that DeepLab's readers accept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekord.arguments import check_keywords
from rekord.codec.images.store import check_mask_size, inspect_mask
from rekord.errors import RekordError, error, preview
from rekord.layouts.base import IMAGE_COLUMNS, DerivedRow, RowRemark, Verify, derive_image, missing_value_error
from rekord.schema import Mask, Schema, Text

Colour = tuple[int, int, int]

_EXTENSION_PATTERN = re.compile(r"\.(jpe?g|jpe|jfif|png)$", re.IGNORECASE)


@check_keywords
def deeplab(
    classes: int | Sequence[str] = 21,
    ignore: int | None = 255,
    *,
    colours: Mapping[Colour, int] | None = None,
    optional_masks: bool = False,
) -> DeepLabLayout:
    """Images with a mask of class ids each, under the keys of DeepLab's records.

    `classes` is the number of classes (or their names), `ignore` the id of pixels without a class. `colours` maps the
    colours of RGB masks to ids; a map of greys also maps the levels of 8-bit grey masks, as
    `{(0, 0, 0): 0, (255, 255, 255): 1}` does for masks of 0 and 255. The filename is stored without its extension, as
    DeepLab's builders do. An image without a mask is a bad row, unless `optional_masks` is set.
    """
    count = len(classes) if isinstance(classes, (list, tuple)) else classes
    mask = Mask(
        classes=count,  # type: ignore[arg-type]
        ignore=ignore,
        of="image",
        key="image/segmentation/class/encoded",
        optional=optional_masks,
    )
    schema = Schema(
        {
            **IMAGE_COLUMNS,
            "mask": mask,
            "mask_format": Text(key="image/segmentation/class/format", optional=optional_masks),
        }
    )
    return DeepLabLayout(
        schema=schema,
        classes=mask.classes,
        ignore=mask.ignore,
        colours=None if colours is None else tuple(sorted(_validate_colours(colours, mask).items())),
        optional_masks=optional_masks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepLabLayout:
    schema: Schema
    classes: int
    ignore: int | None
    colours: tuple[tuple[Colour, int], ...] | None
    optional_masks: bool

    name = "deeplab"
    needs_derive = True

    def options(self) -> Mapping[str, Any]:
        colours = None if self.colours is None else [[*colour, class_id] for colour, class_id in self.colours]
        return {
            "classes": self.classes,
            "ignore": self.ignore,
            "colours": colours,
            "optional_masks": self.optional_masks,
        }

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        image, values, remarks = derive_image(row, verify, readers="DeepLab's readers")
        values["filename"] = _strip_extension(values["filename"])
        if row.get("mask") is not None:
            mask = inspect_mask(
                row["mask"],
                name="mask",
                classes=self.classes,
                ignore=self.ignore,
                colours=None if self.colours is None else dict(self.colours),
                verify=verify,
            )
            check_mask_size(image, mask, name="mask")
            values["mask"] = mask.data
            values["mask_format"] = "png"
            remarks += [RowRemark(code, "mask", what) for code, what in mask.remarks]
        elif not self.optional_masks:
            # Checked here, so that the mask is reported, and not its format.
            raise missing_value_error("mask", "Mask", "add a mask to the row, or optional_masks=True")
        return DerivedRow(values, tuple(remarks))


def _strip_extension(filename: Any) -> Any:
    return _EXTENSION_PATTERN.sub("", filename) if isinstance(filename, str) else filename


def _validate_colours(colours: object, mask: Mask) -> dict[Colour, int]:
    if not isinstance(colours, Mapping) or not colours:
        raise _colour_map_error(
            "`colours` is not a colour map", "{(red, green, blue): class id, …}", preview(colours)
        )
    checked = {}
    for colour, class_id in colours.items():
        sound = isinstance(colour, tuple) and len(colour) == 3
        if not sound or not all(type(part) is int and 0 <= part <= 255 for part in colour):
            raise _colour_map_error(
                "key of a colour map is not a colour", "three integers from 0 to 255", preview(colour)
            )
        known = type(class_id) is int and (0 <= class_id < mask.classes or class_id == mask.ignore)
        if not known:
            also = "" if mask.ignore is None else f", or {mask.ignore} (ignore)"
            expected = f"an id from 0 to {mask.classes - 1}{also}"
            raise _colour_map_error(
                "colour is mapped to an unknown class id", expected, f"{colour}: {preview(class_id)}"
            )
        checked[colour] = class_id
    return checked


def _colour_map_error(what: str, expected: str, found: str) -> RekordError:
    return error("U605", what, expected=expected, found=found, do="colours={(0, 0, 0): 0, (128, 0, 0): 1}")
