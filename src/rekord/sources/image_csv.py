"""A CSV of images as rows: each line names a file and its class, and perhaps its split."""

from __future__ import annotations

import csv
import os
import re
import stat as modes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from rekord.arguments import as_path, check_keywords, invalid, is_utf8_encodable
from rekord.errors import RekordError, closest_match, error, preview
from rekord.location import Location
from rekord.sources.base import PART_BYTES, SourceFacts, SourceFile, SourcePart, SourceRow
from rekord.sources.image_folder import (
    SPLIT_NAMES,
    ListingSource,
    class_names,
    fingerprint,
    group_by_bytes,
    is_image_name,
    join_path,
    to_printable_path,
)
from rekord.storage.local import read_error

# As they are compared: in small letters, without spaces, hyphens and underscores.
_COLUMN_ALIASES = {
    "image": (
        *("image", "imagepath", "imagefile", "imagename", "imageuri", "imageurl", "img"),
        *("path", "file", "filename", "filepath", "uri"),
    ),
    "label": ("label", "class", "classname", "category", "labelname", "target"),
    "split": ("split", "set", "subset", "partition"),
}
_MAX_LINE_CHARACTERS = 1 << 20


class ImageCsvColumns(NamedTuple):
    """Which field of a row is what."""

    image: int
    label: int
    split: int | None
    width: int
    rows: Iterator[tuple[int, list[str]]]  # that follow the header


class ImageCsvReader:
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
        return own, self.rows(self.file)

    def __exit__(self, *failure: object) -> None:
        self.file.close()

    def rows(self, file: TextIO) -> Iterator[tuple[int, list[str]]]:
        """The rows of an open file."""
        lines = self._lines(file)
        head = next(lines, "")
        if not head.strip():
            raise unreadable_csv_error(self.path, "is empty", found="no first line")
        reader = csv.reader(chain([head], lines), delimiter=max(",;\t|", key=head.count))
        number = 1
        while True:
            try:
                fields = next(reader, None)
            except csv.Error as failure:
                raise unreadable_csv_error(
                    self.path, "is no CSV", found=str(failure)[:60], line=reader.line_num
                ) from failure
            if fields is None:
                return
            if self.ended:  # the reader asks for more lines only while a quote is open
                raise unreadable_csv_error(
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

    def _lines(self, file: TextIO) -> Iterator[str]:
        number = 0
        while True:
            try:
                line = file.readline(_MAX_LINE_CHARACTERS + 1)
            except OSError as failure:
                raise read_error(self.path, failure) from failure
            number += 1
            if len(line) > _MAX_LINE_CHARACTERS:
                found = f"a line of more than {_MAX_LINE_CHARACTERS:,} characters"
                raise unreadable_csv_error(self.path, "has a line that is too long", found=found, line=number)
            if "\0" in line:
                raise unreadable_csv_error(self.path, "is no text", found="a zero byte", line=number)
            if not line:
                self.ended = True
                return
            yield line


def find_columns(
    path: str, asked: Mapping[str, str | None], rows: Iterator[tuple[int, list[str]]]
) -> ImageCsvColumns:
    first = next(rows, None)
    head = first[1] if first else []
    at: dict[str, int | None] = {}
    for role, column in asked.items():
        if column is None:
            plain = [re.sub(r"[\s_-]", "", name).lower() for name in head]
            at[role] = next((plain.index(name) for name in _COLUMN_ALIASES[role] if name in plain), None)
        elif column in head:
            at[role] = head.index(column)
        else:
            meant = closest_match(column, head)
            raise unreadable_csv_error(
                path,
                f"has no column {preview(column)}",
                expected="a header with this column",
                found=_preview_header(head),
                do=f'{role}="{meant}"' if meant else f"{role}= as the header has it",
            )
    image, label = at["image"], at["label"]
    if image is not None and label is not None:
        return ImageCsvColumns(image, label, at["split"], len(head), rows)
    pictures = [i for i, field in enumerate(head) if is_image_name(field)]
    if image is None and label is None and len(pictures) == 1 and first:
        # A first line like the others: its image says which column is which.
        splits = [i for i, field in enumerate(head) if field.lower() in SPLIT_NAMES]
        others = [i for i in range(len(head)) if i not in (*pictures, *splits[:1])]
        if len(others) == 1:
            whole = chain([first], rows)
            return ImageCsvColumns(pictures[0], others[0], splits[0] if splits else None, len(head), whole)
    missing = "image" if image is None else "label"
    raise unreadable_csv_error(
        path,
        f"has no column of {missing}s",
        expected=f"a header with {' or '.join(_COLUMN_ALIASES[missing][:2])}",
        found=_preview_header(head),
        do=f'{missing}="…", the name of the column that holds the {missing}s',
    )


def _preview_header(head: list[str]) -> str:
    return "the columns " + preview(", ".join([to_printable_path(name) for name in head])) if head else "no header"


def unreadable_csv_error(
    path: str,
    what: str,
    *,
    found: str,
    expected: str = "a CSV with a header, one line an image",
    do: str = "save it as CSV in UTF-8, with the columns image and label",
    line: int | None = None,
) -> RekordError:
    name = join_path("", path)
    return error(
        "X528",
        f"the list of images {what}",
        location=Location(path=name, line=line),
        expected=expected,
        found=found,
        do=do,
    )


_SAMPLE_LINES = 1000
_MAX_NUMERIC_CLASSES = 1 << 16
_INTEGER_PATTERN = re.compile(r"0|[1-9]\d{0,9}")


@check_keywords
def image_csv(
    path: str | os.PathLike[str],
    *,
    image: str | None = None,
    label: str | None = None,
    split: str | None = None,
    root: str | os.PathLike[str] | None = None,
    classes: Sequence[str] | None = None,
) -> ImageCsvSource:
    """The images that a CSV names, one row a line, with their class and perhaps their split.

    `image`, `label` and `split` name columns; where they are not given, the header is searched for usual names
    (image, path, filename, …; label, class, …; split, set, subset). A file without a header is taken where its
    first line holds the name of an image, one other field, and perhaps a split. Paths are below `root`, or the
    folder of the CSV. Where none of them is there, the leading folders that all of them share are left off, as
    many as needed.

    Classes get ids in the order of their names' bytes. Labels that are all whole numbers from 0 or 1 up keep
    their order, and numbers between that no line has count too. `classes` gives the names by id instead.
    """
    columns = {"image": image, "label": label, "split": split}
    for name, column in columns.items():
        if column is not None and not isinstance(column, str):
            raise invalid(name, column, "the name of a column", f'{name}="…"')
    return ImageCsvSource(
        as_path("path", path),
        tuple(columns.items()),
        None if root is None else as_path("root", root),
        class_names(classes),
    )


class _ImageCsvLine(NamedTuple):
    """What one row of the CSV says; `code` is that of what is wrong with it, `detail` what its message names."""

    position: int
    line: int
    image: str
    label: str | None
    split: str | None
    code: str | None = None
    detail: Any = None


class _ImageCsvListing(NamedTuple):
    lines: list[_ImageCsvLine]
    sizes: list[int]
    files: tuple[SourceFile, ...]


@dataclass(frozen=True)
class ImageCsvSource(ListingSource):
    path: str
    columns: tuple[tuple[str, str | None], ...]
    images: str | None
    classes: tuple[str, ...] | None

    kind = "image_csv"

    @property
    def root(self) -> str:
        return os.path.dirname(self.path) or "."

    def options(self) -> Mapping[str, Any]:
        return {
            **dict(self.columns),
            "rooted": self.images is not None,
            "classes": None if self.classes is None else list(self.classes),
        }

    def facts(self) -> SourceFacts:
        listing: _ImageCsvListing = self._refresh()
        labels = {line.label for line in listing.lines if line.label is not None}
        splits = {line.split for line in listing.lines if line.split is not None}
        return SourceFacts(
            layout="classification",
            classes=self.classes or _order_classes(labels) or None,
            rows=len(listing.lines),
            source_bytes=sum(listing.sizes),
            splits=tuple(sorted(splits, key=_split_sort_key)) or None,
            files=listing.files,
            extra={"labels": bool(labels)},
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        listing: _ImageCsvListing = self._last_listing()
        sized = zip(listing.lines, listing.sizes, strict=True)
        return [SourcePart(lines, size) for lines, size in group_by_bytes(sized, part_bytes)]

    def read(self, part: SourcePart) -> Iterator[SourceRow]:
        root = Path(self.images or self.root)
        name = to_printable_path(os.path.basename(self.path))
        for line in part.content:
            values: dict[str, Any] | RekordError
            if line.code is not None:
                values = self._row_error(line)
            else:
                values = {"image": root / line.image, "filename": line.image, "label": line.label}
                if line.split is not None:
                    values["split"] = line.split
            yield SourceRow(name, line.position, values, line.line)

    def _list(self) -> _ImageCsvListing:
        """Read the CSV now, and look for every file."""
        base = self.images or self.root
        with ImageCsvReader(self.path) as (own, rows):
            columns = find_columns(self.path, dict(self.columns), rows)
            lines = [
                _parse_line(position, number, fields, columns)
                for position, (number, fields) in enumerate(columns.rows)
            ]
        if not lines:
            raise unreadable_csv_error(self.path, "has no rows", found="a header alone")
        left_off = _count_leading_folders([line.image for line in lines if line.code is None], base)
        sizes, files = [], [own]
        first: dict[str, int] = {}
        for i, line in enumerate(lines):
            if line.code is not None:
                sizes.append(0)
                continue
            path = _strip_folders(line.image, left_off)
            facts = _stat_image(base, path)
            lines[i] = line = line._replace(image=path)
            if facts is None:
                lines[i] = line._replace(code="E360")
            elif (earlier := first.setdefault(os.path.normpath(path), line.line)) != line.line:
                lines[i] = line._replace(code="E362", detail=earlier)
            else:
                files.append(SourceFile(path, facts.st_size, facts.st_mtime_ns))
            sizes.append(0 if facts is None else facts.st_size)
        return _ImageCsvListing(lines, sizes, fingerprint(files))

    def _row_error(self, line: _ImageCsvLine) -> RekordError:
        def line_error(what: str, feature: str, expected: str, found: str, do: str) -> RekordError:
            where = Location(path=to_printable_path(self.path), line=line.line, feature=feature)
            return error(line.code or "", what, location=where, expected=expected, found=found, do=do)

        match line.code:
            case "E360" if not line.image:
                return line_error("a line names no image", "image", "a path", "nothing", "fix or remove the line")
            case "E360":
                return line_error(
                    "an image that a line names is missing",
                    "image",
                    "a file below " + ("the folder of the list" if self.images is None else "root="),
                    f"no file {preview(line.image)}",
                    "fix the path, or give root= as the folder that the paths are below",
                )
            case "E361":
                return line_error(
                    "a line has no label",
                    "label",
                    "a class",
                    line.detail,
                    "give the line a label, or remove it",
                )
            case "E362":
                return line_error(
                    f"lines {line.detail:,} and {line.line:,} name the same image",
                    "image",
                    "each image once",
                    preview(line.image),
                    "remove one of the two lines: the image would be in the dataset twice",
                )
        return line_error("a line is not UTF-8", line.detail, "UTF-8", "other bytes", "save the file as UTF-8")


def _parse_line(position: int, line: int, fields: list[str], columns: ImageCsvColumns) -> _ImageCsvLine:
    def field(at: int | None) -> str:
        return fields[at] if at is not None and at < len(fields) else ""

    image, label, split = field(columns.image), field(columns.label), field(columns.split)
    split = split.lower()
    odd = next(
        (n for n, v in (("image", image), ("label", label), ("split", split)) if not is_utf8_encodable(v)),
        None,
    )
    if odd is not None:
        return _ImageCsvLine(position, line, "", None, None, "E318", odd)
    if len(fields) > columns.width:
        # Most often a comma in a path: the label would be another field than it seems.
        found = f"{len(fields)} fields, where the first line has {columns.width}"
        return _ImageCsvLine(position, line, image, None, None, "E361", found)
    if not image:
        return _ImageCsvLine(position, line, "", None, None, "E360")
    if not label:
        return _ImageCsvLine(position, line, image, None, None, "E361", "nothing")
    if "\\" in image and "/" not in image:
        image = image.replace("\\", "/")
    return _ImageCsvLine(position, line, image, label, split or None)


def _stat_image(base: str, path: str) -> os.stat_result | None:
    try:
        facts = os.stat(os.path.join(base, path))
    except (OSError, ValueError):
        return None
    return facts if modes.S_ISREG(facts.st_mode) else None


def _strip_folders(path: str, left_off: int) -> str:
    return path.split("/", left_off)[left_off] if left_off else path


def _count_leading_folders(paths: list[str], base: str) -> int:
    """How many leading folders must go for the paths to be found: only ones that all share, and only if none is
    found as it is, so that no path can lead to another one's file."""
    if not paths or any(_stat_image(base, path) for path in paths):
        return 0
    shortest, longest = min(paths), max(paths)
    pairs = zip(shortest.split("/")[:-1], longest.split("/")[:-1], strict=False)
    shared = 0
    for one, other in pairs:
        if one != other:
            break
        shared += 1
    for count in range(1, min(shared, 64) + 1):
        if any(_stat_image(base, _strip_folders(path, count)) for path in paths[:_SAMPLE_LINES]):
            return count
    return 0


def _order_classes(labels: set[str]) -> tuple[str, ...]:
    """Classes by id. Numbers are ids already, as far as ids from 0 or 1 up can be."""
    if labels and all(_INTEGER_PATTERN.fullmatch(label) for label in labels):
        numbers = sorted(map(int, labels))
        if numbers[0] <= 1 and numbers[-1] < _MAX_NUMERIC_CLASSES:
            return tuple([str(number) for number in range(numbers[0], numbers[-1] + 1)])
        return tuple(map(str, numbers))
    return tuple(sorted(labels, key=os.fsencode))


def _split_sort_key(name: str) -> tuple[int, str]:
    return (SPLIT_NAMES.index(name) if name in SPLIT_NAMES else len(SPLIT_NAMES)), name
