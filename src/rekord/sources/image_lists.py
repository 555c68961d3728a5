"""Reading the CSV of an image list: its rows with their lines, and which column is which."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import near_miss, shown
from rekord.sources.base import SourceFile
from rekord.sources.trees import SPLITS, is_picture, joined, printable
from rekord.storage.files import read_error

# As they are compared: in small letters, without spaces, hyphens and underscores.
_NAMES = {
    "image": (
        *("image", "imagepath", "imagefile", "imagename", "imageuri", "imageurl", "img"),
        *("path", "file", "filename", "filepath", "uri"),
    ),
    "label": ("label", "class", "classname", "category", "labelname", "target"),
    "split": ("split", "set", "subset", "partition"),
}
_LONGEST_LINE = 1 << 20


class Columns(NamedTuple):
    """Which field of a row is what."""

    image: int
    label: int
    split: int | None
    width: int
    rows: Iterator[tuple[int, list[str]]]  # that follow the header


class OpenList:
    """A CSV being read: the file as it is now, and its rows, each with the line that it begins on."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.ended = False

    def __enter__(self) -> tuple[SourceFile, Iterator[tuple[int, list[str]]]]:
        try:
            # What is not UTF-8 is kept, so that its line can be named.
            self.file = open(self.path, encoding="utf-8-sig", errors="surrogateescape", newline="")
            facts = os.fstat(self.file.fileno())
        except OSError as failure:
            raise read_error(self.path, failure) from failure
        own = SourceFile(os.path.basename(self.path), facts.st_size, facts.st_mtime_ns)
        return own, self._rows()

    def __exit__(self, *failure: object) -> None:
        self.file.close()

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        lines = self._lines()
        head = next(lines, "")
        if not head.strip():
            raise unreadable(self.path, "is empty", found="no first line")
        reader = csv.reader(chain([head], lines), delimiter=max(",;\t|", key=head.count))
        number = 1
        while True:
            try:
                fields = next(reader, None)
            except csv.Error as failure:
                raise unreadable(
                    self.path, "is no CSV", found=str(failure)[:60], line=reader.line_num
                ) from failure
            if fields is None:
                return
            if self.ended:  # the reader asks for more lines only while a quote is open
                raise unreadable(
                    self.path,
                    "has a quote that is not closed",
                    expected='a second " that ends the field',
                    found="the end of the file",
                    do="close the quote in the row that begins at this line",
                    line=number,
                )
            if any(field.strip() for field in fields):
                yield number, [field.strip() for field in fields]
            number = reader.line_num + 1

    def _lines(self) -> Iterator[str]:
        number = 0
        while True:
            try:
                line = self.file.readline(_LONGEST_LINE + 1)
            except OSError as failure:
                raise read_error(self.path, failure) from failure
            number += 1
            if len(line) > _LONGEST_LINE:
                found = f"a line of more than {_LONGEST_LINE:,} characters"
                raise unreadable(self.path, "has a line that is too long", found=found, line=number)
            if "\0" in line:
                raise unreadable(self.path, "is no text", found="a zero byte", line=number)
            if not line:
                self.ended = True
                return
            yield line


def columns_of(path: str, asked: Mapping[str, str | None], rows: Iterator[tuple[int, list[str]]]) -> Columns:
    first = next(rows, None)
    head = first[1] if first else []
    at: dict[str, int | None] = {}
    for role, column in asked.items():
        if column is None:
            plain = [re.sub(r"[\s_-]", "", name).lower() for name in head]
            at[role] = next((plain.index(name) for name in _NAMES[role] if name in plain), None)
        elif column in head:
            at[role] = head.index(column)
        else:
            meant = near_miss(column, head)
            raise unreadable(
                path,
                f"has no column {shown(column)}",
                expected="a header with this column",
                found=_shown_header(head),
                do=f'{role}="{meant}"' if meant else f"{role}= as the header has it",
            )
    image, label = at["image"], at["label"]
    if image is not None and label is not None:
        return Columns(image, label, at["split"], len(head), rows)
    pictures = [i for i, field in enumerate(head) if is_picture(field)]
    if image is None and label is None and len(pictures) == 1 and first:
        # A first line like the others: its picture says which column is which.
        splits = [i for i, field in enumerate(head) if field.lower() in SPLITS]
        others = [i for i in range(len(head)) if i not in (*pictures, *splits[:1])]
        if len(others) == 1:
            whole = chain([first], rows)
            return Columns(pictures[0], others[0], splits[0] if splits else None, len(head), whole)
    missing = "image" if image is None else "label"
    raise unreadable(
        path,
        f"has no column of {missing}s",
        expected=f"a header with {' or '.join(_NAMES[missing][:2])}",
        found=_shown_header(head),
        do=f'{missing}="…", the name of the column that holds the {missing}s',
    )


def _shown_header(head: list[str]) -> str:
    return "the columns " + shown(", ".join([printable(name) for name in head])) if head else "no header"


def unreadable(
    path: str,
    what: str,
    *,
    found: str,
    expected: str = "a CSV with a header, one line an image",
    do: str = "save it as CSV in UTF-8, with the columns image and label",
    line: int | None = None,
) -> RekordError:
    name = joined("", path)
    return error(
        "X528",
        f"the list of images {what}",
        location=Location(path=name, line=line),
        expected=expected,
        found=found,
        do=do,
    )
