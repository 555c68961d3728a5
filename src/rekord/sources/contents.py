"""What a file holds, as far as its first bytes tell."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator

from rekord.errors import RekordError
from rekord.records.compression import begins_with_a_record, read_head
from rekord.sources.image_lists import OpenList, columns_of
from rekord.sources.trees import is_picture
from rekord.storage.files import LOCAL

_HEAD_BYTES = 256 * 1024
_ROWS = 20
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:]', re.DOTALL)
_COCO = {b'"images"', b'"annotations"'}
_MAGIC = ((b"PAR1", "parquet"), (b"ARROW1", "arrow"), (b"\x93NUMPY", "npy"))
_TAR_AT = 257
# As they are compared: in small letters, letters and digits alone.
_SIDES = (
    ("xmin", "x1", "x0", "left", "bboxxmin", "bboxx1", "minx"),
    ("ymin", "y1", "y0", "top", "bboxymin", "bboxy1", "miny"),
    ("xmax", "x2", "right", "bboxxmax", "bboxx2", "maxx"),
    ("ymax", "y2", "bottom", "bboxymax", "bboxy2", "maxy"),
)


def content_kind(path: str) -> str | None:
    """The source for a file whose name does not say it."""
    head = _head(path)
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[_TAR_AT : _TAR_AT + 5] == b"ustar":
        return "webdataset"
    return "records" if head and begins_with_a_record(head) else None


def is_coco(path: str) -> bool:
    """Whether a json file is one of COCO's: an object with the members `images` and `annotations`.

    One of the two is enough where the head of the file ends before the object does.
    """
    head = _head(path).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not head.startswith(b"{"):
        return False
    members: set[bytes] = set()
    depth = 0
    last: bytes | None = None
    for match in _TOKEN.finditer(head):
        token = match[0]
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if not depth:
                return members >= _COCO
        elif token == b":" and depth == 1 and last in _COCO and head[match.end() :].lstrip()[:1] == b"[":
            members.add(last)
        last = token
    return bool(members)


def is_image_list(path: str) -> bool:
    """Whether a CSV has a column of pictures and one of their classes."""
    try:
        with OpenList(path) as (_, rows):
            columns = columns_of(path, {"image": None, "label": None, "split": None}, rows)
            fields = [row for _, row in zip(range(_ROWS), columns.rows, strict=False)]
    except RekordError:
        return False
    named = [row[columns.image] for _, row in fields if len(row) > columns.image and row[columns.image]]
    return bool(named) and all(is_picture(name) for name in named)


def is_boxes(path: str) -> bool:
    """Whether a CSV has pictures with the sides of boxes; without a header, `path,x1,y1,x2,y2,class`."""
    rows = list(_csv_rows(path))
    if not rows:
        return False
    header = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in rows[0]]
    if all(any(one in header for one in names) for names in _SIDES):
        return len(rows) == 1 or any(is_picture(field) for field in rows[1]) or "filename" in header
    return len(rows[0]) == 6 and is_picture(rows[0][0]) and all(_is_number(one) for one in rows[0][1:5])


def is_yolo_label(path: str) -> bool:
    """Whether a text file begins like the label file of an image: a class, then four numbers or more."""
    line = next((line for line in _head(path, 4096).splitlines() if line.strip()), b"")
    words = line.decode("utf-8", "replace").split()
    return len(words) >= 5 and words[0].isdigit() and all(_is_number(word) for word in words[1:])


def _csv_rows(path: str) -> Iterator[list[str]]:
    text = _head(path, 64 * 1024).decode("utf-8-sig", "replace")
    lines = [line for line in text.splitlines() if line.strip()][:2]
    if lines:
        try:
            yield from csv.reader(lines, delimiter=max(",;\t|", key=lines[0].count))
        except csv.Error:
            return


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _head(path: str, most_bytes: int = _HEAD_BYTES) -> bytes:
    """The first bytes of a file; none where it cannot be read, which whoever reads it will say."""
    if not os.path.isfile(path):
        return b""
    try:
        with LOCAL.open_read(path) as file:
            return read_head(file, most_bytes)
    except RekordError:
        return b""
