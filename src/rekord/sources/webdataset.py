"""WebDataset tars as rows: members that share a name up to its first dot are one sample.

    000017.jpg   image      the bytes as they are; `.png` beside a `.jpg`, `.seg.png` and `.mask.png` are the mask
    000017.cls   label      a whole number
    000017.txt   text
    000017.json  …          each member of the object, nested names joined with `/`
    000017.npy   npy        an array

Another extension is a column of that name that holds bytes. Of two extensions the first names the column:
`000017.left.jpg` is `left`. `filename` is the name up to the dot, unless JSON says it.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from lzma import LZMAError
from typing import Any, NamedTuple

import numpy as np

from rekord.arguments import is_unicode
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Image, Schema
from rekord.schema.messages import shown
from rekord.schema.row_adapters import flat_row
from rekord.sources.base import (
    PART_BYTES,
    Facts,
    Listing,
    Part,
    Row,
    SourceFile,
    Unchanged,
    empty,
    listed,
    source_path,
)
from rekord.sources.image_folder import groups, printable
from rekord.sources.rows import PEEKED_BYTES, inferred, size_bytes

EXTENSIONS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

_NAME = re.compile(r"^(?P<key>(?:.*/|)[^./][^/.]*)\.(?P<extension>[^/]*)$", re.DOTALL)
_PICTURES = frozenset(("jpg", "jpeg", "png", "gif", "bmp", "webp", "ppm", "pgm", "pnm", "tif", "tiff"))
_TEXTS = frozenset(("txt", "text", "transcript"))
_MASKS = ("seg", "mask")
_MOST_BYTES = (1 << 31) - 1  # of a sample: no record can hold more
_MOST_HEADER_BYTES = 10_000  # of an array, as NumPy has it
_READ_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"
_PEEKED_ROWS = 1000
_BROKEN = (tarfile.TarError, EOFError, zlib.error, LZMAError, OSError, ValueError, OverflowError)


def webdataset(path: str | os.PathLike[str]) -> WebDataset:
    """The samples of WebDataset tars: a tar, a folder of them, or a pattern; compressed or not."""
    return WebDataset(source_path(path, "webdataset"))


@dataclass(frozen=True)
class WebDataset:
    """The source that `webdataset` makes. A part is one tar or several small ones."""

    path: str

    @property
    def kind(self) -> str:
        return "webdataset"

    @property
    def root(self) -> str:
        return self._listing().root

    def options(self) -> Mapping[str, Any]:
        return {}

    def facts(self) -> Facts:
        """The files, and the schema of the first samples of the first tar."""
        listing = self._listing()
        schema = self._schema(listing)
        columns = set(schema)
        layout = "table"
        if {"image", "mask"} <= columns:
            layout = "deeplab"
        elif {"image", "label"} <= columns:
            layout = "classification"
        elif columns == {"filename", "text"}:
            layout = "text"
        return Facts(layout=layout, schema=schema, source_bytes=listing.source_bytes, files=listing.files)

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[Part]:
        listing = self._listing()
        sized = ((file, file.size_bytes) for file in listing.files)
        return [Part((listing.root, files), cost) for files, cost in groups(sized, part_bytes)]

    def read(self, part: Part) -> Iterator[Row]:
        root, files = part.content
        for file in files:
            for row, _ in _samples(Listing(root, ()).full(file), file):
                yield row

    def _listing(self) -> Listing:
        return listed(self.path, EXTENSIONS)

    def _schema(self, listing: Listing) -> Schema:
        rows: list[Row] = []
        pictures: set[str] = set()
        taken_bytes = 0
        for file in listing.files:
            for row, found in _samples(listing.full(file), file):
                rows.append(row)
                pictures |= found
                taken_bytes += 0 if isinstance(row.values, RekordError) else size_bytes(row.values)
                if len(rows) >= _PEEKED_ROWS or taken_bytes >= PEEKED_BYTES:
                    break
            if rows:
                break
        if not rows:
            path = listing.full(listing.files[0])
            raise empty(path, "a tar without samples", expected="members such as 000017.jpg and 000017.cls")
        schema = inferred(rows, complete=False)
        features = {
            name: Image(optional=feature.optional) if name in pictures else feature
            for name, feature in schema.items()
        }
        return Schema(features, evidence=schema.evidence)


class _Member(NamedTuple):
    """A file in a tar that belongs to a sample, and its bytes, or why there are none."""

    key: str
    extension: str
    data: bytes | RekordError


def _samples(path: str, file: SourceFile) -> Iterator[tuple[Row, set[str]]]:
    """The samples of a tar with the columns that hold pictures; last a bad row, where the tar is damaged."""
    position = 0
    sample: list[_Member] = []
    sample_bytes = 0
    try:
        for member in _members(path, file):
            if sample and member.key != sample[0].key:
                yield _row(path, file, position, sample)
                position, sample, sample_bytes = position + 1, [], 0
            if isinstance(member.data, bytes):
                sample_bytes += len(member.data)
                if sample_bytes > _MOST_BYTES:
                    sample = [one._replace(data=_too_large(path, member.key, position)) for one in sample]
                    member = member._replace(data=_too_large(path, member.key, position))
            sample.append(member)
    except _Damage as damage:
        # The members of the sample that was being read may go on behind the damage, so it is not one.
        key = sample[0].key if sample else None
        yield Row(printable(file.path), position, damage.told(path, position, key)), set()
        return
    if sample:
        yield _row(path, file, position, sample)


class _Damage(Exception):
    """What keeps the rest of a tar from being read."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def told(self, path: str, position: int, key: str | None) -> RekordError:
        return error(
            "E376",
            location=Location(path=printable(path), row=position),
            expected="a whole tar, up to the empty blocks at its end",
            found=f"{self.found[:60]}, in or after sample {shown(key)}" if key else self.found[:60],
            do="fetch the tar again from its origin; the samples before this one are good",
        )


class _Info(tarfile.TarInfo):
    """A header that remembers why there is no next one: to tarfile itself a broken header is just the end."""

    @classmethod
    def fromtarfile(cls, tarfile: Any) -> Any:
        try:
            return super().fromtarfile(tarfile)
        except Exception as failure:
            tarfile.ended_by = failure
            raise


def _members(path: str, file: SourceFile) -> Iterator[_Member]:
    try:
        with Unchanged(path, file) as probe:
            gzipped = probe.read(2) == _GZIP
        with Unchanged(path, file) as stream:
            # tarfile's own gzip reader leaves the checksum at the end unread.
            raw: Any = stream
            content: Any = gzip.GzipFile(fileobj=raw, mode="rb") if gzipped else raw
            yield from _walked(path, content, "r|" if gzipped else "r|*")
            while gzipped and content.read(_READ_BYTES):
                pass
    except _BROKEN as failure:
        raise _Damage(_words(failure)) from None


def _walked(path: str, content: Any, mode: str) -> Iterator[_Member]:
    opening: Any = tarfile.open
    with opening(fileobj=content, mode=mode, tarinfo=_Info, bufsize=_READ_BYTES) as archive:
        while (info := archive.next()) is not None:
            archive.members = []  # it would keep them all
            member = _member(path, archive, info)
            if member is not None:
                yield member
        ended_by = getattr(archive, "ended_by", None)
    if not isinstance(ended_by, tarfile.EOFHeaderError):  # type: ignore[attr-defined]
        raise _Damage(_words(ended_by))


def _words(failure: Exception | None) -> str:
    if failure is None or isinstance(failure, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]
        return "an end without empty blocks"
    if isinstance(failure, EOFError):
        return "compressed data that ends early"
    if isinstance(failure, tarfile.InvalidHeaderError):  # type: ignore[attr-defined]
        return "a header that is none"
    if isinstance(failure, (zlib.error, LZMAError)):
        return "compressed data that is damaged"
    return str(failure) or "no end"


def _member(path: str, archive: Any, info: tarfile.TarInfo) -> _Member | None:
    name = _NAME.match(info.name.removeprefix("./"))
    if name is None or info.isdir():
        return None
    key, extension = name["key"], name["extension"].lower()
    refused = None
    if not is_unicode(info.name):
        refused = "a name that is UTF-8", shown(os.fsencode(info.name)[:16])
    elif not info.isreg() or info.issparse():
        refused = "a plain file", "a link, a device or a file with holes"
    elif info.size > _MOST_BYTES:
        refused = f"at most {_MOST_BYTES:,} bytes", f"{info.size:,} bytes"
    if refused is not None:
        return _Member(key, extension, _unfit(path, key, extension, *refused))
    content = archive.extractfile(info).read()
    if len(content) < info.size:
        raise EOFError
    return _Member(key, extension, content)


def _row(path: str, file: SourceFile, position: int, sample: list[_Member]) -> tuple[Row, set[str]]:
    try:
        values, pictures = _values(path, sample)
    except RekordError as failure:
        failure.location = failure.location.within(path=printable(path), row=position)
        return Row(printable(file.path), position, failure), set()
    return Row(printable(file.path), position, values), pictures


def _values(path: str, sample: list[_Member]) -> tuple[dict[str, Any], set[str]]:
    values: dict[str, Any] = {}
    pictures: set[str] = set()
    kinds = {member.extension for member in sample}
    for member in sample:
        if isinstance(member.data, RekordError):
            raise member.data
        *names, kind = member.extension.split(".")
        column = ".".join(names)
        found = _decoded(path, member, kind, column)
        if kind in _PICTURES:
            masked = column in _MASKS or (column == "" and kind == "png" and {"jpg", "jpeg"} & kinds)
            name = "mask" if masked else column or "image"
            found = {name: member.data}
            pictures.add(name)
        for name, value in found.items():
            # A text can be the whole name that the key was made of; nothing else is a name.
            if name in values or (name == "filename" and not isinstance(value, (str, type(None)))):
                raise _twice(path, member, name)
            values[name] = value
    return {"filename": sample[0].key, **values}, pictures


def _decoded(path: str, member: _Member, kind: str, column: str) -> dict[str, Any]:
    """The columns of a member by its extension."""
    assert isinstance(member.data, bytes)
    try:
        if kind == "cls":
            return {column or "label": _whole(member.data)}
        if kind in _TEXTS:
            return {column or "text": member.data.decode("utf-8")}
        if kind == "npy":
            return {column or "npy": _array(member.data)}
        if kind == "json":
            document = json.loads(member.data, object_pairs_hook=_object)
            if not isinstance(document, dict):
                return {column or "json": document}
            return flat_row({column: document} if column else document, 0, None)
    except UnicodeDecodeError:
        raise _unfit(path, *member[:2], "UTF-8", "other bytes") from None
    except (ValueError, RecursionError, RekordError) as failure:
        expected = {"cls": "a whole number", "npy": "a NumPy array of numbers"}.get(kind, "JSON")
        what = failure.what if isinstance(failure, RekordError) else str(failure)
        raise _unfit(path, *member[:2], expected, what[:60] or "something else") from None
    return {column or kind: member.data}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object with the same name twice")
    return found


def _whole(data: bytes) -> int:
    text = data[:64].decode("utf-8").strip()
    try:
        if len(data) > 64 or "_" in text:  # to Python 1_0 is ten
            raise ValueError
        return int(text)
    except ValueError:
        raise ValueError(shown(text)) from None


def _array(data: bytes) -> Any:
    """An array whose header is believed only as far as there are bytes."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file, max_header_size=_MOST_HEADER_BYTES)
    count = 1
    for size in shape:
        count *= int(size)
    if dtype.hasobject or dtype.kind not in "biufc":
        raise ValueError(f"dtype {dtype}")
    if count < 0 or count * dtype.itemsize != len(data) - file.tell():
        raise ValueError(f"{len(data) - file.tell():,} bytes for shape {shape}")
    array = np.frombuffer(data, dtype, offset=file.tell())
    native = array.astype(dtype.newbyteorder("="), copy=False)
    return native.reshape(shape, order="F" if fortran else "C")


def _unfit(path: str, key: str, extension: str, expected: str, found: str) -> RekordError:
    name = printable(f"{key}.{extension}")
    return error(
        "E377",
        f"`{name[-60:]}` is not what its extension says",
        location=Location(path=printable(path)),
        expected=expected,
        found=found,
        do="mend the member and pack the tar again, or leave the sample out",
    )


def _twice(path: str, member: _Member, name: str) -> RekordError:
    return error(
        "E378",
        f"the sample {shown(member.key)} has two values for `{name[:60]}`",
        location=Location(path=printable(path), feature=name),
        expected="each column once",
        found=f"another in .{member.extension[:40]}",
        do="give one of them another extension, such as .other.json",
    )


def _too_large(path: str, key: str, position: int) -> RekordError:
    return error(
        "E327",
        f"the members of sample {shown(key)} are larger than protobuf's 2 GiB",
        location=Location(path=printable(path), row=position),
        expected="at most 2,147,483,647 bytes",
        found="more",
        do="split the sample into several",
    )
