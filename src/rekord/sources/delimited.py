"""CSV and TSV files: rows in parts, the types of columns fixed before the first one is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rekord.errors import error
from rekord.schema import Bytes, Feature, Float32, Int64, Schema, Text
from rekord.schema.defaults import is_unicode
from rekord.schema.jsonform import feature_members
from rekord.schema.refuse import shown
from rekord.sources.base import PART_BYTES, Chunk, Facts, Part
from rekord.sources.delimited_rows import read_rows
from rekord.sources.delimited_survey import Asked, Survey, survey
from rekord.sources.files import Listing, checked_path, is_gzip_name, listed, opened
from rekord.sources.lines import Span, after_head, grouped, row_blocks, spans, text_head

EXTENSIONS = (".csv", ".tsv", ".tab", ".csv.gz", ".tsv.gz", ".tab.gz")
MISSING = ("", "NA", "N/A", "null", "NULL")
"""Fields that stand for no value. NaN does too, in columns of numbers."""

Chosen: TypeAlias = "Sequence[str] | Mapping[str, Feature] | None"


@dataclass(frozen=True, slots=True)
class DelimitedSource:
    """Rows of CSV or TSV files."""

    path: str
    asked: Asked

    @property
    def kind(self) -> str:
        return "csv"

    @property
    def root(self) -> str:
        return self._listing().root

    def options(self) -> Mapping[str, Any]:
        return _options(self.asked)

    def facts(self) -> Facts:
        return _facts(survey(self._listing(), self.asked, gzipped=False))

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[Part]:
        seen = survey(self._listing(), self.asked, gzipped=False)
        cut = grouped(spans(seen.indexes, part_bytes), part_bytes)
        return [Part((seen.table, seen.listing.root, part.content), part.source_bytes) for part in cut]

    def read(self, part: Part) -> Iterator[Chunk]:
        table, root, pieces = part.content
        for span in pieces:
            assert isinstance(span, Span)
            path = Listing(root, ()).full(span.file)
            with opened(path, span.file, span.begin.offset, span.end) as stream:
                blocks = row_blocks(stream, table.rules, span.begin)
                yield from read_rows(blocks, table, span.file.path, path)

    def _listing(self) -> Listing:
        return listed(self.path, EXTENSIONS)


@dataclass(frozen=True, slots=True)
class ZippedDelimitedSource:
    """Rows of CSV or TSV files that are compressed, and so can only be read from their beginning."""

    path: str
    asked: Asked

    @property
    def kind(self) -> str:
        return "csv"

    @property
    def root(self) -> str:
        return self._listing().root

    def options(self) -> Mapping[str, Any]:
        return _options(self.asked)

    def facts(self) -> Facts:
        return _facts(survey(self._listing(), self.asked, gzipped=True))

    def rows(self) -> Iterator[Chunk]:
        seen = survey(self._listing(), self.asked, gzipped=True)
        for index in seen.indexes:
            path = seen.listing.full(index.file)
            with opened(path, index.file, gzipped=True) as stream:
                head, offset = text_head(stream, path)
                rest = after_head(stream, head, offset, index.cuts[0])
                blocks = row_blocks(stream, seen.table.rules, index.cuts[0], head=rest)
                yield from read_rows(blocks, seen.table, index.file.path, path)

    def _listing(self) -> Listing:
        return listed(self.path, EXTENSIONS)


def csv(
    path: str | os.PathLike[str],
    *,
    delimiter: str | None = None,
    columns: Chosen = None,
    header: bool = True,
    na: Sequence[str] = MISSING,
) -> DelimitedSource | ZippedDelimitedSource:
    """Rows of CSV or TSV files: a file, a folder or a pattern.

    Whole numbers are Int64, other numbers Float32 (Tensor of float64 where float32 would not tell them apart), true
    and false Int64 of dtype bool, everything else Text as it is written: dates, digits after a leading zero,
    numbers beyond int64. A column in which a field is one of `na` is optional.

    `delimiter` is a tab for .tsv and .tab, else what the first line is parted by. `columns` is a list of the
    columns to keep, or a dict of the types that some have, such as {"zip": rk.Text()}. With `header=False` the
    first line is a row, and `columns` names all columns in order; without, they are column_0, column_1, ….
    """
    place = checked_path(path, "csv")
    asked = Asked(
        delimiter=_checked_delimiter(delimiter),
        keep=_checked_names(columns),
        types=_checked_types(columns),
        header=header,
        na=_checked_missing(na),
    )
    if is_gzip_name(place, EXTENSIONS):
        return ZippedDelimitedSource(place, asked)
    return DelimitedSource(place, asked)


def _facts(seen: Survey) -> Facts:
    return Facts(
        layout="table",
        schema=Schema({column.name: column.feature for column in seen.table.columns}),
        rows=seen.rows,
        source_bytes=seen.listing.source_bytes,
        files=seen.listing.files,
    )


def _options(asked: Asked) -> Mapping[str, Any]:
    return {
        "delimiter": asked.delimiter,
        "columns": None if asked.keep is None else list(asked.keep),
        "types": {name: feature_members(feature) for name, feature in asked.types},
        "header": asked.header,
        "na": list(asked.na),
    }


def _checked_delimiter(delimiter: object) -> str | None:
    if delimiter is None:
        return None
    if (
        isinstance(delimiter, str)
        and len(delimiter) == 1
        and delimiter.isascii()
        and delimiter not in '"\r\n\0'
    ):
        return delimiter
    raise error(
        "U605",
        f"`delimiter` cannot be {shown(delimiter)}",
        expected="one ASCII character that is no quote and no end of a line",
        found=shown(delimiter),
        do='delimiter=";"',
    )


def _checked_names(columns: object) -> tuple[str, ...] | None:
    if columns is None or isinstance(columns, Mapping):
        return None
    names = tuple(columns) if isinstance(columns, (list, tuple)) else ()
    good = all(isinstance(name, str) and name and is_unicode(name) for name in names)
    if names and good and len(set(names)) == len(names):
        return names
    raise error(
        "U605",
        f"`columns` cannot be {shown(columns)}",
        expected="a list of names, each once, or a dict of names and features",
        found=shown(columns),
        do='columns=["species", "year"]',
    )


def _checked_types(columns: object) -> tuple[tuple[str, Feature], ...]:
    if not isinstance(columns, Mapping):
        return ()
    for name, feature in columns.items():
        fits = isinstance(feature, (Int64, Float32, Text, Bytes)) and feature.shape == ()
        if not isinstance(name, str) or not fits:
            raise error(
                "U605",
                f"`columns` declares {shown(name)} as {shown(feature)}",
                expected="one of rk.Int64(), rk.Float32(), rk.Text(), rk.Bytes(), each of one value",
                found=shown(feature),
                do='columns={"zip": rk.Text()}',
            )
    return tuple(columns.items())


def _checked_missing(na: object) -> tuple[str, ...]:
    if isinstance(na, (list, tuple)) and all(isinstance(word, str) and is_unicode(word) for word in na):
        return tuple(na)
    raise error(
        "U605",
        f"`na` cannot be {shown(na)}",
        expected="a list of the texts that stand for no value",
        found=shown(na),
        do='na=["", "NA"]',
    )
