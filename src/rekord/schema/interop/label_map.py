"""Label maps (label_map.pbtxt): class ids and names for TensorFlow's object detection.

item {
  id: 1                 from 1; 0 is the background
  name: 'cat'
  display_name: 'Cat'   optional; the name where `name` is missing
}
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from rekord.errors import RekordError, SchemaError, error, open_error, preview
from rekord.location import Location
from rekord.schema.interop.textproto import TextprotoMessage, format_message, parse_textproto

_MAX_FILE_BYTES = 16 << 20
_MAX_ID = 2**31 - 1  # the ids of a label map are int32
_BACKGROUND = "background"
_POSITION_PATTERN = re.compile(r"line (\d+), column (\d+)$")


class LabelItem(NamedTuple):
    """One class of a label map."""

    id: int
    name: str
    display_name: str | None = None


def read_label_map(path: str | os.PathLike[str]) -> dict[int, str]:
    """The class names by id, in the order of the file; `display_name` if an item has no `name`.

    An item `background` with id 0 is skipped; any other use of id 0 is an error.
    """
    return {item.id: item.name for item in read_label_items(path)}


def read_label_items(path: str | os.PathLike[str]) -> tuple[LabelItem, ...]:
    """The classes of a label map, in the order of the file."""
    place = os.fsdecode(path)
    message = _parse_file(place)
    parsed = [_parse_item(item, number, place) for number, item in enumerate(message.messages("item"), 1)]
    items = tuple([item for item in parsed if item is not None])
    if not items:
        raise _label_map_error(place, "label map has no classes", "item { id: 1 name: 'cat' }", "no item")
    for what, values in (("id", [item.id for item in items]), ("name", [item.name for item in items])):
        if len(set(values)) < len(values):
            duplicate = Counter(values).most_common(1)[0][0]
            raise _label_map_error(place, f"label map has a duplicate {what}", f"unique {what}s", preview(duplicate))
    return items


def format_label_map(classes: Mapping[int, str]) -> str:
    """The text of a label map, in the order of the ids."""
    whole = TextprotoMessage()
    for number, name in sorted(classes.items()):
        item = TextprotoMessage()
        item.add("id", int(number))
        item.add("name", name)
        whole.add("item", item)
    return format_message(whole)


def _parse_file(place: str) -> TextprotoMessage:
    try:
        with open(place, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as failure:
        raise open_error(place, failure, expected="a label map") from failure
    if len(content) > _MAX_FILE_BYTES:
        raise _label_map_error(place, "label map is too large", f"at most {_MAX_FILE_BYTES:,} bytes", "more")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
        found = content[failure.start : failure.start + 8].hex(" ")
        raise _label_map_error(place, "label map is not valid UTF-8", "UTF-8", found, line=line) from None
    try:
        return parse_textproto(text)
    except SchemaError as failure:
        at = _POSITION_PATTERN.search(failure.what)
        where = f" at {at[0]}" if at else ""
        raise _label_map_error(
            place,
            f"label map cannot be parsed{where}",
            failure.expected or "protobuf's text format",
            failure.found or "something else",
            line=int(at[1]) if at else None,
        ) from failure


def _parse_item(item: TextprotoMessage, number: int, place: str) -> LabelItem | None:
    name, display_name = item.text("name"), item.text("display_name")
    label = item.number("id")
    whose = f"item {number}" + (f", {preview(name or display_name)}," if name or display_name else "")
    if not name and not display_name:
        raise _label_map_error(
            place, f"{whose} of the label map has no name", "name: 'cat'", "no `name`, no `display_name`"
        )
    try:
        (name + display_name).encode("utf-8")
    except UnicodeEncodeError:
        what = f"item {number} of the label map has a name that is not valid UTF-8"
        raise _label_map_error(place, what, "UTF-8", "other bytes") from None
    if label == 0 and _BACKGROUND in (name, display_name):
        return None
    if isinstance(label, bool) or not isinstance(label, int) or not 1 <= label <= _MAX_ID:
        found = "no id" if label is None else preview(label)
        if label == 0:
            found = "0, which is reserved for the background"
        raise _label_map_error(place, f"{whose} of the label map has no valid id", "an integer ≥ 1", found)
    return LabelItem(label, name or display_name, display_name or None)


def _label_map_error(place: str, what: str, expected: str, found: str, line: int | None = None) -> RekordError:
    return error(
        "X533",
        what,
        location=Location(path=place, line=line),
        expected=expected,
        found=found,
        do=f"fix line {line:,} of the label map" if line else "fix the label map: ids from 1, unique names",
    )
