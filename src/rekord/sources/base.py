"""What a source is: rows of raw data, each of which knows where it came from.

Most sources are *parted*: they know their files, so that tasks on several cores can each read a part. A *serial*
source can only be read from its beginning, by the process that has it: a generator, a tf.data pipeline.

A row's identity is `(path, position)`: the file below the source's root, and the row's number in that file, 0
where the file is the row. Order, shuffling and splits are made from it and from nothing else, so that they do not
change with the number of workers or parts.

Image sources yield canonical rows, with these names where they know them:

    image      a pathlib.Path or the encoded bytes
    filename   a str: the path below the root
    label      a class, by name or id
    mask       a pathlib.Path or the encoded bytes
    boxes      float32 (n, 4) of pixels: x0, y0, x1, y1
    labels     the classes of the boxes, by id
    split      a str, where folders or lists say it
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from rekord.errors import RekordError
from rekord.schema import Schema

PART_BYTES = 64 << 20
"""About how much of a source one task reads."""


class Row(NamedTuple):
    """One row, or why there is none."""

    path: str  # below the source's root, parted by "/"; "" where there are no files
    position: int
    values: Mapping[str, Any] | RekordError
    line: int | None = None  # in a text file, from 1


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Many rows of one file, side by side: row `i` has the position `first + i`."""

    path: str
    first: int
    values: Any  # a pyarrow RecordBatch, or a dict of columns as `rk.Writer.write_columns` takes
    rows: int
    first_line: int | None = None
    lines: Sequence[int] | None = None  # of each row, where rows are not one line each

    def line_of(self, row: int) -> int | None:
        """The line in a text file of this chunk's row `row`."""
        if self.lines is not None:
            return self.lines[row]
        return None if self.first_line is None else self.first_line + row


Chunk: TypeAlias = "Row | Columns"


class SourceFile(NamedTuple):
    """A file that rows come from, as it was when the conversion was planned."""

    path: str  # below the root
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reads. It is pickled, so it says which rows and holds none."""

    content: Any  # the source's own: paths, byte ranges, row groups
    source_bytes: int  # about how much reading it costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a source knows before its rows are read."""

    layout: str  # the one that fits: "classification", "deeplab", "detection", "text" or "table"
    schema: Schema | None = None  # of the rows as they come; None where the layout alone decides
    classes: tuple[str, ...] | None = None  # names by id, where labels are classes
    class_ids: tuple[int, ...] | None = None  # the ids that a label map gives them, where not 0, 1, 2, …
    rows: int | None = None  # how many, where that is known
    source_bytes: int = 0  # of all files
    splits: tuple[str, ...] | None = None  # where folders or lists say them
    files: tuple[SourceFile, ...] = ()  # sorted by path; what the fingerprint is made of
    extra: Mapping[str, Any] = field(default_factory=dict)  # hints of one source to one layout


class PartedSource(Protocol):
    """A source of files. It is pickled to other processes: small, and without open handles."""

    @property
    def kind(self) -> str:
        """Its name in `rk.sources`."""

    @property
    def root(self) -> str:
        """The folder that paths of rows are below; "" where they stand for themselves."""

    def options(self) -> Mapping[str, Any]:
        """What was asked for, as JSON holds it; without the root, so that a moved source is the same source."""

    def facts(self) -> Facts:
        """Look at the files, without reading all rows. Raises where there is nothing to read."""

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[Part]:
        """The whole source, cut up in order: the files by path, and each file from its beginning."""

    def read(self, part: Part) -> Iterator[Chunk]:
        """The rows of a part, in order. A row that cannot be made is a Row with its error, not an exception."""


class SerialSource(Protocol):
    """A source that is read once, from its beginning."""

    @property
    def kind(self) -> str: ...

    def options(self) -> Mapping[str, Any]: ...

    def facts(self) -> Facts: ...

    def rows(self) -> Iterator[Chunk]:
        """All rows, in order, from the first one. Positions count from 0, the path is "" unless files are known."""


Source: TypeAlias = "PartedSource | SerialSource"


def is_parted(source: Source) -> bool:
    """Whether tasks can read parts of it."""
    return hasattr(source, "parts")


def full_path(source: Source, path: str) -> str:
    """A row's file, as a person finds it."""
    root = getattr(source, "root", "")
    return os.path.join(root, *path.split("/")) if root and path else path
