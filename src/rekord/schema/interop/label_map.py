"""Label maps (label_map.pbtxt): the ids and names of classes as TensorFlow's object detection keeps them.

item {
  id: 1                 from 1; 0 is the background's
  name: 'cat'
  display_name: 'Cat'   optional; the name where `name` is missing
}
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from rekord.errors import RekordError, SchemaError, error, preview
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
    """The names of classes by id, in the order of the file; `display_name` where an item has no `name`.

    An item `background` with the id 0 is left out; any other use of the id 0 is refused.
    """
    return {item.id: item.name for item in read_label_items(path)}


def read_label_items(path: str | os.PathLike[str]) -> tuple[LabelItem, ...]:
    """The classes of a label map, in the order of the file."""
    place = os.fsdecode(path)
    message = _parse_file(place)
    items: list[LabelItem] = []
    for number, one in enumerate(message.messages("item"), 1):
        item = _parse_item(one, number, place)
        if item is not None:
            items.append(item)
    if not items:
        _raise_label_map_error(place, "a label map without classes", "item { id: 1 name: 'cat' }", "no item")
    for what, values in (("id", [item.id for item in items]), ("name", [item.name for item in items])):
        if len(set(values)) < len(values):
            twice = Counter(values).most_common(1)[0][0]
            text = f"a label map has one {what} twice"
            _raise_label_map_error(place, text, f"each {what} once", preview(twice))
    return tuple(items)


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
        missing = isinstance(failure, FileNotFoundError)
        raise error(
            "X501" if missing else "X503",
            f"{place} does not exist" if missing else f"{place} cannot be read",
            location=Location(path=place),
            expected="a label map",
            found=getattr(failure, "strerror", None) or str(failure)[:60],
            do="check the path",
        ) from failure
    if len(content) > _MAX_FILE_BYTES:
        _raise_label_map_error(
            place, "a label map is too large to be one", f"at most {_MAX_FILE_BYTES:,} bytes", "more"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
        found = content[failure.start : failure.start + 8].hex(" ")
        _raise_label_map_error(place, "a label map is not UTF-8", "a text in UTF-8", found, line=line)
    try:
        return parse_textproto(text)
    except SchemaError as failure:
        at = _POSITION_PATTERN.search(failure.what)
        where = f" at {at[0]}" if at else ""
        raise _label_map_error(
            place,
            f"a label map cannot be parsed{where}",
            failure.expected or "protobuf's text format",
            failure.found or "something else",
            line=int(at[1]) if at else None,
        ) from failure


def _parse_item(item: TextprotoMessage, number: int, place: str) -> LabelItem | None:
    name, display_name = item.text("name"), item.text("display_name")
    label = item.number("id")
    whose = f"item {number}" + (f", {preview(name or display_name)}," if name or display_name else "")
    if not name and not display_name:
        _raise_label_map_error(
            place, f"{whose} of a label map has no name", "name: 'cat'", "no `name`, no `display_name`"
        )
    try:
        (name + display_name).encode("utf-8")
    except UnicodeEncodeError:
        _raise_label_map_error(
            place, f"item {number} of a label map has a name that is not UTF-8", "UTF-8", "other bytes"
        )
    if label == 0 and _BACKGROUND in (name, display_name):
        return None
    if isinstance(label, bool) or not isinstance(label, int) or not 1 <= label <= _MAX_ID:
        found = "no id" if label is None else preview(label)
        if label == 0:
            found = "0, which is reserved for the background"
        _raise_label_map_error(
            place, f"{whose} of a label map has no id that a class can have", "a whole number from 1", found
        )
    return LabelItem(label, name or display_name, display_name or None)


def _raise_label_map_error(place: str, what: str, expected: str, found: str, line: int | None = None) -> NoReturn:
    raise _label_map_error(place, what, expected, found, line)


def _label_map_error(place: str, what: str, expected: str, found: str, line: int | None = None) -> RekordError:
    return error(
        "X533",
        what,
        location=Location(path=place, line=line),
        expected=expected,
        found=found,
        do=f"fix line {line:,} of the label map" if line else "fix the label map: ids from 1, each name once",
    )
