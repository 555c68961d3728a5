"""The layout of object detection: the record keys that TensorFlow Object Detection (TFOD) reads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rekord.arguments import check_keywords, invalid, one_of
from rekord.codec.images.inspect import EncodedImage, inspect_image
from rekord.codec.images.store import check_mask_size
from rekord.errors import RekordError, error, preview
from rekord.layouts.base import DerivedRow, RowRemark, Verify, check_decodable, inspect_or_encode_image
from rekord.location import Location
from rekord.schema import Boxes, Bytes, Feature, Float32, Image, Int64, Schema, Text

# Columns of a box that only some sources have.
_EXTRA_COLUMNS: dict[str, Feature] = {
    "is_crowd": Int64(shape=(None,), key="image/object/is_crowd"),
    "area": Float32(shape=(None,), key="image/object/area"),
    "difficult": Int64(shape=(None,), key="image/object/difficult"),
    "truncated": Int64(shape=(None,), key="image/object/truncated"),
    "occluded": Int64(shape=(None,), key="image/object/occluded"),
    "group_of": Int64(shape=(None,), key="image/object/group_of"),
    "view": Text(shape=(None,), key="image/object/view"),
    "corners": Float32(shape=(None, 8), key="image/object/bbox/corners"),
}
_KEYPOINT_COLUMNS: dict[str, Feature] = {
    "keypoint_counts": Int64(shape=(None,), key="image/object/keypoint/num"),
    "keypoint_x": Float32(shape=(None,), key="image/object/keypoint/x"),
    "keypoint_y": Float32(shape=(None,), key="image/object/keypoint/y"),
    "keypoint_visibility": Int64(shape=(None,), key="image/object/keypoint/visibility"),
}
"""Keypoints of all boxes, one after the other, as TFOD stores them; the counts say how many each box has."""
_MAX_ID = 2**31 - 1
_ROUNDING_TOLERANCE = 1e-6


@check_keywords
def detection(
    *,
    classes: Mapping[int, str] | Sequence[str],
    masks: bool = False,
    has: Sequence[str] = (),
    bad_boxes: Literal["skip", "refuse"] = "skip",
) -> DetectionLayout:
    """Images with boxes, under the keys of TensorFlow Object Detection (TFOD).

    `classes` maps ids to names, or is a list of names with the ids 1, 2, …; id 0 is the background. `has` names the
    other columns of every box: is_crowd, area, difficult, truncated, occluded, group_of, view, corners, keypoints.
    `masks` adds a PNG per box, of the size of the image.

    `corners` are those of a rotated box: x0, y0, … x3, y3. `keypoints` are an array of x, y and visibility (0 absent,
    1 hidden, 2 visible) per box, and are stored in four columns. Both are pixels, stored as fractions of the image.

    Boxes are divided by the actual size of the image, whatever the annotations say, and nothing is clipped beyond a
    rounding of one millionth. A box without area, or outside its image, is skipped, as TFOD's own converters do, and
    a remark (H741) counts them; `bad_boxes="refuse"` makes the row a bad row instead.
    """
    return DetectionLayout(
        _class_items(classes), bool(masks), _extras(has), one_of("bad_boxes", bad_boxes, ("skip", "refuse"))
    )


@dataclass(frozen=True)
class DetectionLayout:
    classes: tuple[tuple[int, str], ...]
    masks: bool
    has: tuple[str, ...]
    bad_boxes: Literal["skip", "refuse"]
    schema: Schema = field(init=False, compare=False, repr=False)
    names: dict[int, str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        most = max([number for number, _ in self.classes], default=_MAX_ID)
        columns: dict[str, Feature] = {
            "image": Image(key="image/encoded"),
            "format": Text(key="image/format"),
            "filename": Text(key="image/filename"),
            "source_id": Text(key="image/source_id"),
            "sha256": Text(key="image/key/sha256"),
            "height": Int64(key="image/height"),
            "width": Int64(key="image/width"),
            "boxes": Boxes(),
            "class_names": Text(shape=(None,), key="image/object/class/text"),
            "labels": Int64(shape=(None,), key="image/object/class/label", range=(1, most)),
        }
        columns.update({name: _EXTRA_COLUMNS[name] for name in self.has if name != "keypoints"})
        if "keypoints" in self.has:
            columns.update(_KEYPOINT_COLUMNS)
        if self.masks:
            columns["masks"] = Bytes(shape=(None,), key="image/object/mask")
        object.__setattr__(self, "schema", Schema(columns))
        object.__setattr__(self, "names", dict(self.classes))

    @property
    def class_names(self) -> dict[int, str]:
        """The classes by id, for the label map next to the shards."""
        return self.names

    name = "detection"
    needs_derive = True

    def options(self) -> Mapping[str, Any]:
        return {
            "classes": [[number, name] for number, name in self.classes],
            "masks": self.masks,
            "has": list(self.has),
            "bad_boxes": self.bad_boxes,
        }

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        """The stored row of an image with its boxes."""
        image = inspect_or_encode_image(_require_column(row, "image"), Image(), name="image", verify=verify)
        # TensorFlow decodes a GIF or a WebP to four dimensions, which readers of these records do not accept.
        check_decodable(image, ("jpeg", "png", "bmp"), "readers of TFOD's records")
        remarks = [RowRemark(code, "image", what) for code, what in image.remarks]
        boxes = _normalize_boxes(row, image)
        labels = self._ids(row, len(boxes))
        kept = _find_valid_boxes(boxes)
        skipped = int((~kept).sum())
        if skipped and self.bad_boxes == "refuse":
            raise _box_error(row, image, boxes, int(np.argmin(kept)))
        remarks += _collect_remarks(row, image, skipped)
        filename = _require_column(row, "filename")
        values: dict[str, Any] = {
            "image": image.data,
            "format": image.format,
            "filename": filename,
            "source_id": row.get("source_id", filename),
            "sha256": hashlib.sha256(image.data).hexdigest(),
            "height": image.height,
            "width": image.width,
            "boxes": _to_stored_boxes(boxes[kept]),
            "labels": labels[kept],
        }
        values["class_names"] = [self.names[number] for number in values["labels"].tolist()]
        for column in (*self.has, "masks") if self.masks else self.has:
            values[column] = _select_values(row, column, kept)
        sides = np.array([image.width, image.height], np.float64)
        if "corners" in self.has:
            values["corners"] = _to_fractions(values["corners"], np.tile(sides, 4))
        if "keypoints" in self.has:
            values |= _flatten_keypoints(values.pop("keypoints"), sides)
        if self.masks:
            _check_mask_sizes(image, values["masks"])
        return DerivedRow(values, tuple(remarks))

    def _ids(self, row: Mapping[str, Any], count: int) -> np.ndarray[Any, Any]:
        """The ids of a row's labels, which may be given by name."""
        labels = _require_column(row, "labels")
        if isinstance(labels, str) or not np.iterable(labels):
            raise self._no_class("E317", "is not a list of class ids", labels)
        given = list(labels)
        if len(given) != count:
            raise _count_error("labels", count, len(given))
        of_name = {name: number for number, name in self.classes}
        ids = []
        for label in given:
            if isinstance(label, str):
                if label not in of_name:
                    raise self._no_class("E316", "is not a class", label)
                ids.append(of_name[label])
            else:
                number = label.item() if isinstance(label, np.generic) else label
                if isinstance(number, bool) or not isinstance(number, (int, float)) or number not in self.names:
                    raise self._no_class("E317", "is not a class id", number)
                ids.append(int(number))
        return np.array(ids, np.int64)

    def _no_class(self, code: str, what: str, label: object) -> RekordError:
        some = ", ".join([f"{number} ({name!r})" for number, name in self.classes[:3]])
        return error(
            code,
            f"label {what} of the layout",
            location=Location(feature="labels"),
            expected=f"one of {len(self.classes):,} classes: {some[:80]}"
            if some
            else "no label: the layout has no classes",
            found=preview(label),
            do='fix the label, or add the class: classes={1: "cat", …}',
        )


def _normalize_boxes(row: Mapping[str, Any], image: EncodedImage) -> np.ndarray[Any, Any]:
    """Boxes as fractions of the image's sides."""
    given = row.get("boxes_normalised")
    if given is None:
        given = _require_column(row, "boxes")
        sides = np.array([image.width, image.height] * 2, np.float64)
    else:
        sides = np.ones(4)
    try:
        boxes = np.asarray(given, np.float64)
        boxes = boxes.reshape(-1, 4) if boxes.size == 0 else boxes
    except (TypeError, ValueError):
        boxes = np.zeros(1)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise error(
            "E306",
            "`boxes` is not a list of boxes",
            location=Location(feature="boxes"),
            expected="shape (n, 4): x0, y0, x1, y1",
            found=f"shape {np.shape(given)}"[:60],
            do="pass four numbers per box",
        )
    normalised: np.ndarray[Any, Any] = boxes / sides
    return normalised


def _check_mask_sizes(image: EncodedImage, masks: Sequence[Any]) -> None:
    """Each mask must have the actual size of the image, whatever the annotations say."""
    for mask in masks:
        if isinstance(mask, (bytes, bytearray, memoryview)):
            check_mask_size(image, inspect_image(mask, name="masks", verify="headers"), name="masks")


def _find_valid_boxes(boxes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which boxes are inside their image and have an area as stored; a box with a NaN does not."""
    stored = _to_stored_boxes(boxes)
    kept: np.ndarray[Any, Any] = _is_inside_image(boxes) & (stored[:, 2:] > stored[:, :2]).all(axis=1)
    return kept


def _is_inside_image(boxes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    within: np.ndarray[Any, Any] = np.all(
        (boxes >= -_ROUNDING_TOLERANCE) & (boxes <= 1 + _ROUNDING_TOLERANCE), axis=1
    )
    return within


def _to_stored_boxes(boxes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    stored: np.ndarray[Any, Any] = np.clip(boxes, 0, 1).astype(np.float32)
    return stored


def _box_error(row: Mapping[str, Any], image: EncodedImage, boxes: np.ndarray[Any, Any], at: int) -> RekordError:
    names = row.get("box_names")
    whose = f"box {at}" if names is None else str(names[at])[:60]
    # A box that is inside and was skipped has lost its area in float32.
    flat = boxes[at, 2] <= boxes[at, 0] or boxes[at, 3] <= boxes[at, 1] or _is_inside_image(boxes)[at]
    x0, y0, x1, y1 = _to_pixels(boxes[at], image)
    return error(
        "E368",
        f"{whose} has no area" if flat else f"{whose} is not inside its image",
        location=Location(path=_row_path(row), feature="boxes"),
        expected=f"0 ≤ x0 < x1 ≤ {image.width}, 0 ≤ y0 < y1 ≤ {image.height}",
        found=f"x0 {x0:.6g}, y0 {y0:.6g}, x1 {x1:.6g}, y1 {y1:.6g}",
        likely=_guess_cause(row, image),
        do='fix the box, or skip such boxes: bad_boxes="skip"',
    )


def _to_pixels(box: np.ndarray[Any, Any], image: EncodedImage) -> list[float]:
    sides = (image.width, image.height) * 2
    return [float(value * side) for value, side in zip(box, sides, strict=True)]


def _guess_cause(row: Mapping[str, Any], image: EncodedImage) -> str | None:
    stated = row.get("width"), row.get("height")
    if None in stated or stated == (image.width, image.height):
        return None
    return f"the boxes belong to an image of another size: the annotation has {stated[0]} × {stated[1]}"


def _collect_remarks(row: Mapping[str, Any], image: EncodedImage, skipped: int) -> list[RowRemark]:
    found = []
    if skipped:
        what = "1 box without area or outside the image was skipped"
        if skipped > 1:
            what = f"{skipped:,} boxes without area or outside the image were skipped"
        found.append(RowRemark("H741", "boxes", what))
    stated = row.get("width"), row.get("height")
    if None not in stated and stated != (image.width, image.height):
        what = f"annotation has size {stated[0]} × {stated[1]}, image has {image.width} × {image.height}"
        found.append(RowRemark("H742", "boxes", what))
    unboxed = row.get("skipped_annotations", 0)
    if unboxed:
        what = "1 annotation without a box was skipped"
        if unboxed > 1:
            what = f"{unboxed:,} annotations without a box were skipped"
        found.append(RowRemark("H743", "boxes", what))
    return found


def _select_values(row: Mapping[str, Any], column: str, kept: np.ndarray[Any, Any]) -> Any:
    values = _require_column(row, column)
    if len(values) != len(kept):
        raise _count_error(column, len(kept), len(values))
    if isinstance(values, np.ndarray):
        return values[kept]
    return [value for value, keep in zip(values, kept, strict=True) if keep]


def _to_fractions(pixels: Any, sides: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Coordinates as fractions of the image; they may be outside of it."""
    fractions: np.ndarray[Any, Any] = (np.asarray(pixels, np.float64).reshape(-1, len(sides)) / sides).astype(
        np.float32
    )
    return fractions


def _flatten_keypoints(keypoints: Sequence[Any], sides: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The columns of all keypoints of an image."""
    points = [np.asarray(one, np.float64).reshape(-1, 3) for one in keypoints]
    joined = np.concatenate(points) if points else np.zeros((0, 3))
    xy = _to_fractions(joined[:, :2], sides)
    return {
        "keypoint_counts": np.array([len(one) for one in points], np.int64),
        "keypoint_x": xy[:, 0],
        "keypoint_y": xy[:, 1],
        "keypoint_visibility": joined[:, 2].astype(np.int64),
    }


def _require_column(row: Mapping[str, Any], column: str) -> Any:
    value = row.get(column)
    if value is None:
        raise error(
            "E301",
            f"`{column}` has no value, but detection requires it",
            location=Location(feature=column),
            expected=f"a row with `{column}`",
            found="None, or no such key",
            do="add a value; [] for an image without boxes",
        )
    return value


def _count_error(column: str, expected: int, found: int) -> RekordError:
    return error(
        "E307",
        f"`{column}` and `boxes` have different lengths",
        location=Location(feature=column),
        expected=f"{expected:,}, one per box",
        found=f"{found:,}",
        do=f"pass `{column}` and `boxes` in the same order",
    )


def _row_path(row: Mapping[str, Any]) -> str | None:
    image = row.get("image")
    return None if isinstance(image, (bytes, bytearray, memoryview, np.ndarray)) else str(image)


_EXAMPLE = 'detection(classes={1: "cat", 2: "dog"}, has=["area"])'


def _class_items(classes: Any) -> tuple[tuple[int, str], ...]:
    if isinstance(classes, Mapping):
        pairs = list(classes.items())
    elif isinstance(classes, (list, tuple)):
        pairs = list(enumerate(classes, 1))
    else:
        raise invalid("classes", classes, "names by id, or a list of names", _EXAMPLE)
    for number, name in pairs:
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _MAX_ID:
            raise invalid("classes", number, "ids ≥ 1: 0 is the background", _EXAMPLE)
        if not isinstance(name, str) or not name:
            raise invalid("classes", name, "a name per id", _EXAMPLE)
    names = [name for _, name in pairs]
    if len(set(names)) < len(names):
        raise invalid("classes", next(name for name in names if names.count(name) > 1), "unique names", _EXAMPLE)
    return tuple(sorted(pairs))


def _extras(has: Any) -> tuple[str, ...]:
    known = (*_EXTRA_COLUMNS, "keypoints")
    if isinstance(has, str) or not all(name in known for name in has):
        wrong = has if isinstance(has, str) else next(name for name in has if name not in known)
        raise invalid("has", wrong, "any of " + ", ".join(known), _EXAMPLE)
    return tuple([name for name in known if name in has])
