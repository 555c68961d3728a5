"""Label maps: class ids by name, in the format of TensorFlow's object detection (label_map.pbtxt), JSON or text.

item {
  id: 1                 from 1 for detection, where 0 is the background; otherwise from 0
  name: 'cat'
  display_name: 'Cat'   optional; the name where `name` is missing
}

JSON is {"cat": 1}, {"1": "cat"} or ["cat"]. Any other text has one name per line, in the order of the ids.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from rekord.arguments import is_utf8_encodable
from rekord.errors import RekordError, SchemaError, error, open_error, preview
from rekord.location import Location
from rekord.schema.interop.textproto import TextprotoMessage, build_message, format_message, parse_textproto

_MAX_FILE_BYTES = 16 << 20
_MAX_ID = 2**31 - 1  # the ids of a label map are int32
_MAX_LISTED_ID = (1 << 16) - 1  # in a list of names, which has one for every id
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


def read_label_items(path: str | os.PathLike[str], *, least_id: int = 1) -> tuple[LabelItem, ...]:
    """The classes of a label map, in the order of the file."""
    place = os.fsdecode(path)
    text = _read_text(place)
    kind = _detect_format(place, text)
    if kind == "json":
        items = tuple(_parse_json(text, place, least_id))
    elif kind == "lines":
        names = [line.strip() for line in text.rstrip().splitlines()]
        items = tuple([_check_item(number, name, place, least_id) for number, name in enumerate(names, least_id)])
    else:
        message = _parse_message(text, place)
        parsed = [_parse_item(one, number, place, least_id) for number, one in enumerate(message.messages("item"), 1)]
        items = tuple([item for item in parsed if item is not None])
    if not items:
        raise _label_map_error(place, "label map has no classes", "item { id: 1 name: 'cat' }", "no item")
    for what, values in (("id", [item.id for item in items]), ("name", [item.name for item in items])):
        if len(set(values)) < len(values):
            duplicate = Counter(values).most_common(1)[0][0]
            raise _label_map_error(place, f"label map has a duplicate {what}", f"unique {what}s", preview(duplicate))
    return items


def read_class_names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The class names by id, from 0. An id without a class has a name in brackets; a missing 0 is the background."""
    items = read_label_items(path, least_id=0)
    names = {item.id: item.name for item in items}
    most = max(names)
    if most > _MAX_LISTED_ID:
        expected = f"ids up to {_MAX_LISTED_ID:,}"
        raise _label_map_error(os.fsdecode(path), "label map has an id that is too large", expected, f"{most:,}")
    taken = set(names.values())
    for number in range(most + 1):
        if number not in names:
            name = _BACKGROUND if number == 0 else f"(unused {number})"
            while name in taken:
                name = f"({name})"
            names[number] = name
    return tuple([names[number] for number in range(most + 1)])


def _detect_format(place: str, text: str) -> str:
    extension = os.path.splitext(place)[1].lower()
    if extension in (".pbtxt", ".textproto", ".prototxt"):
        return "pbtxt"
    start = text.lstrip()
    if extension == ".json" or start.startswith(("{", "[")):
        return "json"
    return "pbtxt" if re.match(r"(?:#[^\n]*\n\s*)*item\s*:?\s*\{", start) else "lines"


def _parse_json(text: str, place: str, least_id: int) -> list[LabelItem]:
    expected = '{"cat": 1, "dog": 2}, or a list of names'
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as failure:
        found = str(failure)[:60] or "too much nesting"
        raise _label_map_error(place, "label map is not valid JSON", expected, found) from None
    if isinstance(document, list):
        return [_check_item(number, name, place, least_id) for number, name in enumerate(document, least_id)]
    if not isinstance(document, dict):
        raise _label_map_error(place, "label map has no classes", expected, f"a {type(document).__name__}")
    if all(isinstance(name, str) for name in document.values()):
        pairs = [(int(key) if re.fullmatch(r"[0-9]{1,10}", key) else key, name) for key, name in document.items()]
    else:
        pairs = [(number, name) for name, number in document.items()]
    return [_check_item(number, name, place, least_id) for number, name in pairs]


def _check_item(number: object, name: object, place: str, least_id: int) -> LabelItem:
    if not isinstance(name, str) or not name or not is_utf8_encodable(name):
        raise _label_map_error(
            place, "label map has an invalid name", "names of at least one character", preview(name)
        )
    if isinstance(number, bool) or not isinstance(number, int) or not least_id <= number <= _MAX_ID:
        what = f"{preview(name)} of the label map has no valid id"
        raise _label_map_error(place, what, f"an integer ≥ {least_id}", preview(number))
    return LabelItem(number, name)


def format_label_map(classes: Mapping[int, str]) -> str:
    """The text of a label map, in the order of the ids."""
    whole = TextprotoMessage()
    for number, name in sorted(classes.items()):
        whole.add("item", build_message(id=int(number), name=name))
    return format_message(whole)


def _read_text(place: str) -> str:
    try:
        with open(place, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as failure:
        raise open_error(place, failure, expected="a label map") from failure
    if len(content) > _MAX_FILE_BYTES:
        raise _label_map_error(place, "label map is too large", f"at most {_MAX_FILE_BYTES:,} bytes", "more")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
        found = content[failure.start : failure.start + 8].hex(" ")
        raise _label_map_error(place, "label map is not valid UTF-8", "UTF-8", found, line=line) from None


def _parse_message(text: str, place: str) -> TextprotoMessage:
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


def _parse_item(item: TextprotoMessage, number: int, place: str, least_id: int) -> LabelItem | None:
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
    if label == 0 and least_id and _BACKGROUND in (name, display_name):
        return None
    if isinstance(label, bool) or not isinstance(label, int) or not least_id <= label <= _MAX_ID:
        found = "no id" if label is None else preview(label)
        if label == 0:
            found = "0, which is reserved for the background"
        raise _label_map_error(place, f"{whose} of the label map has no valid id", f"an integer ≥ {least_id}", found)
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
