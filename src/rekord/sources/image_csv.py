"""A CSV of images as rows: each line has a file and its class, and optionally its split."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from rekord.arguments import as_path, check_keywords, invalid, is_utf8_encodable
from rekord.errors import RekordError, closest_match, error, preview
from rekord.location import Location
from rekord.sources.base import PART_BYTES, SourceFacts, SourceFile, SourcePart, SourceRow, group_by_bytes
from rekord.sources.image_folder import (
    SPLIT_NAMES,
    ListingSource,
    class_names,
    fingerprint,
    is_image_name,
    join_path,
    sort_splits,
    stat_file,
    to_printable_path,
)
from rekord.storage.local import read_error

# As compared: in lower case, without spaces, hyphens and underscores.
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
    """The positions of the columns."""

    image: int
    label: int
    split: int | None
    width: int
    rows: Iterator[tuple[int, list[str]]]  # after the header


class ImageCsvReader:
    """An open CSV: the file as it is now, and its rows, each with its first line."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.ended = False

    def __enter__(self) -> tuple[SourceFile, Iterator[tuple[int, list[str]]]]:
        try:
            # Bytes that are not UTF-8 are kept, so that their line can be reported.
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
                    self.path, "is not a valid CSV", found=str(failure)[:60], line=reader.line_num
                ) from failure
            if fields is None:
                return
            if self.ended:  # the reader reads more lines only while a quote is open
                raise unreadable_csv_error(
                    self.path,
                    "has an unclosed quote",
                    expected='a closing " at the end of the field',
                    found="the end of the file",
                    do=f"close the quote in the row that begins at line {number:,}",
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
                raise unreadable_csv_error(self.path, "is not text", found="a zero byte", line=number)
            if not line:
                self.ended = True
                return
            yield line


def find_columns(
    path: str, requested: Mapping[str, str | None], rows: Iterator[tuple[int, list[str]]]
) -> ImageCsvColumns:
    first = next(rows, None)
    head = first[1] if first else []
    at: dict[str, int | None] = {}
    for role, column in requested.items():
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
                do=f'{role}="{meant}"' if meant else f'name one of these columns: {role}="…"',
            )
    image, label = at["image"], at["label"]
    if image is not None and label is not None:
        return ImageCsvColumns(image, label, at["split"], len(head), rows)
    images = [i for i, field in enumerate(head) if is_image_name(field)]
    if image is None and label is None and len(images) == 1 and first:
        # No header: the image in the first line shows which column is which.
        splits = [i for i, field in enumerate(head) if field.lower() in SPLIT_NAMES]
        others = [i for i in range(len(head)) if i not in (*images, *splits[:1])]
        if len(others) == 1:
            whole = chain([first], rows)
            return ImageCsvColumns(images[0], others[0], splits[0] if splits else None, len(head), whole)
    missing = "image" if image is None else "label"
    raise unreadable_csv_error(
        path,
        f"has no {missing} column",
        expected=f"a header with {' or '.join(_COLUMN_ALIASES[missing][:2])}",
        found=_preview_header(head),
        do=f'name the column of the {missing}s: {missing}="…"',
    )


def _preview_header(head: list[str]) -> str:
    return "the columns " + preview(", ".join([to_printable_path(name) for name in head])) if head else "no header"


def unreadable_csv_error(
    path: str,
    what: str,
    *,
    found: str,
    expected: str = "a CSV with a header, and a line per image",
    do: str = "save it as CSV in UTF-8, with the columns image and label",
    line: int | None = None,
) -> RekordError:
    name = join_path("", path)
    return error(
        "X528",
        f"list of images {what}",
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
    """Images listed in a CSV, one row per line, with their class and optionally their split.

    `image`, `label` and `split` name columns; by default the header is searched for the usual names (image, path,
    filename, …; label, class, …; split, set, subset). A file without a header is accepted if its first line has the
    name of an image, one other field, and optionally a split. Paths are relative to `root`, or to the folder of the
    CSV. If none of them exists, leading folders that all of them share are dropped, as many as needed.

    Class ids follow the byte order of the names. Labels that are all integers, starting at 0 or 1, keep their order,
    and integers between that no line has are classes too. `classes` gives the names by id instead.
    """
    columns = {"image": image, "label": label, "split": split}
    for name, column in columns.items():
        if column is not None and not isinstance(column, str):
            raise invalid(name, column, "a column name", f'{name}="…"')
    return ImageCsvSource(
        as_path("path", path),
        tuple(columns.items()),
        None if root is None else as_path("root", root),
        class_names(classes),
    )


class _ImageCsvLine(NamedTuple):
    """A row of the CSV; `code` is the error of a bad one, `detail` a value in its message."""

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
            splits=sort_splits(splits) or None,
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
        """Read the CSV, and look up every file."""
        base = self.images or self.root
        with ImageCsvReader(self.path) as (own, rows):
            columns = find_columns(self.path, dict(self.columns), rows)
            lines = [
                _parse_line(position, number, fields, columns)
                for position, (number, fields) in enumerate(columns.rows)
            ]
        if not lines:
            raise unreadable_csv_error(self.path, "has no rows", found="only a header")
        left_off = _count_leading_folders([line.image for line in lines if line.code is None], base)
        sizes, files = [], [own]
        first: dict[str, int] = {}
        for i, line in enumerate(lines):
            if line.code is not None:
                sizes.append(0)
                continue
            path = _strip_folders(line.image, left_off)
            facts = stat_file(os.path.join(base, path))
            lines[i] = line = line._replace(image=path)
            if facts is None:
                lines[i] = line._replace(code="E360")
            elif (earlier := first.setdefault(os.path.normpath(path), line.line)) != line.line:
                lines[i] = line._replace(code="E362", detail=f"{earlier:,}")
            else:
                files.append(SourceFile(path, facts.st_size, facts.st_mtime_ns))
            sizes.append(0 if facts is None else facts.st_size)
        return _ImageCsvListing(lines, sizes, fingerprint(files))

    def _row_error(self, line: _ImageCsvLine) -> RekordError:
        below = "the folder of the list" if self.images is None else "root="
        what, feature, expected, found, do = {
            "no image": ("line has no image", "image", "a path", "nothing", "fix or remove the line"),
            "E360": (
                "listed image does not exist",
                "image",
                f"a file below {below}",
                f"no file {preview(line.image)}",
                "fix the path, or pass the folder that the paths are relative to: root=…",
            ),
            "E361": ("line has no label", "label", "a class", line.detail, "add a label to the line, or remove it"),
            "E362": (
                f"lines {line.detail} and {line.line:,} list the same image",
                "image",
                "each image once",
                preview(line.image),
                "remove one of the two lines: the image would be in the dataset twice",
            ),
            "E318": ("line is not UTF-8", line.detail, "UTF-8", "other bytes", "save the file as UTF-8"),
        }["no image" if line.code == "E360" and not line.image else line.code or ""]
        where = Location(path=to_printable_path(self.path), line=line.line, feature=feature)
        return error(line.code or "", what, location=where, expected=expected, found=found, do=do)


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
        # Usually a comma in a path: the label would be in another field.
        found = f"{len(fields)} fields; the first line has {columns.width}"
        return _ImageCsvLine(position, line, image, None, None, "E361", found)
    if not image:
        return _ImageCsvLine(position, line, "", None, None, "E360")
    if not label:
        return _ImageCsvLine(position, line, image, None, None, "E361", "nothing")
    if "\\" in image and "/" not in image:
        image = image.replace("\\", "/")
    return _ImageCsvLine(position, line, image, label, split or None)


def _strip_folders(path: str, left_off: int) -> str:
    return path.split("/", left_off)[left_off] if left_off else path


def _count_leading_folders(paths: list[str], base: str) -> int:
    """The number of leading folders to drop so that paths are found: only folders that all share, and only if no path
    exists as it is, so that no path can lead to another one's file."""
    if not paths or any(stat_file(os.path.join(base, path)) for path in paths):
        return 0
    shortest, longest = min(paths), max(paths)
    pairs = zip(shortest.split("/")[:-1], longest.split("/")[:-1], strict=False)
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    for count in range(1, min(shared, 64) + 1):
        if any(stat_file(os.path.join(base, _strip_folders(path, count))) for path in paths[:_SAMPLE_LINES]):
            return count
    return 0


def _order_classes(labels: set[str]) -> tuple[str, ...]:
    """Classes by id. Integers that start at 0 or 1 are the ids."""
    if labels and all(_INTEGER_PATTERN.fullmatch(label) for label in labels):
        numbers = sorted(map(int, labels))
        if numbers[0] <= 1 and numbers[-1] < _MAX_NUMERIC_CLASSES:
            return tuple([str(number) for number in range(numbers[0], numbers[-1] + 1)])
        return tuple(map(str, numbers))
    return tuple(sorted(labels, key=os.fsencode))
