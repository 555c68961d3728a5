"""WebDataset tars as rows: members with the same name up to the first dot are one sample.

    000017.jpg   image      the bytes unchanged; `.png` next to a `.jpg`, `.seg.png` and `.mask.png` are the mask
    000017.cls   label      an integer
    000017.txt   text
    000017.json  …          each member of the object, nested names joined with `/`
    000017.npy   npy        an array

Any other extension is a column of bytes with that name. Of two extensions the first names the column:
`000017.left.jpg` is `left`. `filename` is the name up to the dot, unless the JSON has one.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from lzma import LZMAError
from typing import Any, NamedTuple

import numpy as np

from rekord.arguments import check_keywords, is_utf8_encodable
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema import Image, Schema
from rekord.schema.row_adapters import flatten_row
from rekord.sources import base
from rekord.sources.arrays import parse_npy_header
from rekord.sources.base import PART_BYTES, FileListing, SizeCheckedFile, SourceFacts, SourceFile, SourcePart
from rekord.sources.image_folder import to_printable_path
from rekord.sources.rows import PEEK_BYTES, estimate_row_bytes, infer_row_schema

EXTENSIONS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

_MEMBER_PATTERN = re.compile(r"^(?P<key>(?:.*/|)[^./][^/.]*)\.(?P<extension>[^/]*)$", re.DOTALL)
_IMAGE_EXTENSIONS = frozenset(("jpg", "jpeg", "png", "gif", "bmp", "webp", "ppm", "pgm", "pnm", "tif", "tiff"))
_TEXT_EXTENSIONS = frozenset(("txt", "text", "transcript"))
_MASK_EXTENSIONS = ("seg", "mask")
_MAX_MEMBER_BYTES = (1 << 31) - 1  # of a sample: the limit of a record
_READ_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_PEEK_ROWS = 1000
_TAR_ERRORS = (tarfile.TarError, EOFError, zlib.error, LZMAError, OSError, ValueError, OverflowError)


@check_keywords
def webdataset(path: str | os.PathLike[str]) -> WebDatasetSource:
    """Samples of WebDataset tars: a tar, a folder of tars, or a pattern; compressed or not."""
    return WebDatasetSource(base.source_path(path, "webdataset"))


@dataclass(frozen=True)
class WebDatasetSource:
    """WebDataset tars. A part is one tar or several small ones."""

    path: str

    kind = "webdataset"

    @property
    def root(self) -> str:
        return self._listing().root

    def options(self) -> Mapping[str, Any]:
        return {}

    def facts(self) -> SourceFacts:
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
        return SourceFacts(layout=layout, schema=schema, source_bytes=listing.source_bytes, files=listing.files)

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        listing = self._listing()
        sized = ((file, file.size_bytes) for file in listing.files)
        return [SourcePart((listing.root, files), cost) for files, cost in base.group_by_bytes(sized, part_bytes)]

    def read(self, part: SourcePart) -> Iterator[base.SourceRow]:
        root, files = part.content
        for file in files:
            for row, _ in _read_samples(FileListing(root, ()).full(file), file):
                yield row

    def _listing(self) -> FileListing:
        return base.list_files(self.path, EXTENSIONS)

    def _schema(self, listing: FileListing) -> Schema:
        rows: list[base.SourceRow] = []
        images: set[str] = set()
        taken_bytes = 0
        for file in listing.files:
            for row, found in _read_samples(listing.full(file), file):
                rows.append(row)
                images |= found
                taken_bytes += 0 if isinstance(row.values, RekordError) else estimate_row_bytes(row.values)
                if len(rows) >= _PEEK_ROWS or taken_bytes >= PEEK_BYTES:
                    break
            if rows:
                break
        if not rows:
            path = listing.full(listing.files[0])
            raise base.empty_file_error(
                path, "a tar without samples", expected="members such as 000017.jpg and 000017.cls"
            )
        schema = infer_row_schema(rows, complete=False)
        features = {
            name: Image(optional=feature.optional) if name in images else feature for name, feature in schema.items()
        }
        return Schema(features, evidence=schema.evidence)


class _SampleMember(NamedTuple):
    """A file in a tar that belongs to a sample: its bytes, or its error."""

    key: str
    extension: str
    data: bytes | RekordError


def _read_samples(path: str, file: SourceFile) -> Iterator[tuple[base.SourceRow, set[str]]]:
    """The samples of a tar with their image columns; then a bad row, if the tar is corrupt."""
    position = 0
    sample: list[_SampleMember] = []
    sample_bytes = 0
    try:
        for member in _read_members(path, file):
            if sample and member.key != sample[0].key:
                yield _build_row(path, file, position, sample)
                position, sample, sample_bytes = position + 1, [], 0
            if isinstance(member.data, bytes):
                sample_bytes += len(member.data)
                if sample_bytes > _MAX_MEMBER_BYTES:
                    sample = [one._replace(data=_too_large_error(path, member.key, position)) for one in sample]
                    member = member._replace(data=_too_large_error(path, member.key, position))
            sample.append(member)
    except _CorruptTar as damage:
        # The current sample may continue after the corruption, so it is not complete.
        key = sample[0].key if sample else None
        yield (
            base.SourceRow(to_printable_path(file.path), position, damage.to_error(path, position, key)),
            set(),
        )
        return
    if sample:
        yield _build_row(path, file, position, sample)


class _CorruptTar(Exception):
    """Why the rest of a tar cannot be read."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def to_error(self, path: str, position: int, key: str | None) -> RekordError:
        return error(
            "E376",
            location=Location(path=to_printable_path(path), row=position),
            expected="a complete tar, up to the empty blocks at its end",
            found=f"{self.found[:60]}, in or after sample {preview(key)}" if key else self.found[:60],
            do="copy the tar again from its origin; the samples before this one are intact",
        )


class _CheckedTarInfo(tarfile.TarInfo):
    """A header that records why there is no next one: tarfile treats a corrupt header as the end."""

    @classmethod
    def fromtarfile(cls, tarfile: Any) -> Any:
        try:
            return super().fromtarfile(tarfile)
        except Exception as failure:
            tarfile.ended_by = failure
            raise


def _read_members(path: str, file: SourceFile) -> Iterator[_SampleMember]:
    try:
        with SizeCheckedFile(path, file) as probe:
            gzipped = probe.read(2) == _GZIP_MAGIC
        with SizeCheckedFile(path, file) as stream:
            # tarfile's own gzip reader does not verify the checksum at the end.
            raw: Any = stream
            content: Any = gzip.GzipFile(fileobj=raw, mode="rb") if gzipped else raw
            yield from _walk_members(path, content, "r|" if gzipped else "r|*")
            while gzipped and content.read(_READ_BYTES):
                pass
    except _TAR_ERRORS as failure:
        raise _CorruptTar(_describe_failure(failure)) from None


def _walk_members(path: str, content: Any, mode: str) -> Iterator[_SampleMember]:
    opening: Any = tarfile.open
    with opening(fileobj=content, mode=mode, tarinfo=_CheckedTarInfo, bufsize=_READ_BYTES) as archive:
        while (info := archive.next()) is not None:
            archive.members = []  # it would keep them all
            member = _read_member(path, archive, info)
            if member is not None:
                yield member
        ended_by = getattr(archive, "ended_by", None)
    if not isinstance(ended_by, tarfile.EOFHeaderError):  # type: ignore[attr-defined]
        raise _CorruptTar(_describe_failure(ended_by))


def _describe_failure(failure: Exception | None) -> str:
    if failure is None or isinstance(failure, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]
        return "no empty blocks at the end"
    if isinstance(failure, EOFError):
        return "truncated compressed data"
    if isinstance(failure, tarfile.InvalidHeaderError):  # type: ignore[attr-defined]
        return "an invalid header"
    if isinstance(failure, (zlib.error, LZMAError)):
        return "corrupt compressed data"
    return str(failure) or "no end"


def _read_member(path: str, archive: Any, info: tarfile.TarInfo) -> _SampleMember | None:
    name = _MEMBER_PATTERN.match(info.name.removeprefix("./"))
    if name is None or info.isdir():
        return None
    key, extension = name["key"], name["extension"].lower()
    refused = None
    if not is_utf8_encodable(info.name):
        refused = "a name in UTF-8", preview(os.fsencode(info.name)[:16])
    elif not info.isreg() or info.issparse():
        refused = "a regular file", "a link, a device or a sparse file"
    elif info.size > _MAX_MEMBER_BYTES:
        refused = f"at most {_MAX_MEMBER_BYTES:,} bytes", f"{info.size:,} bytes"
    if refused is not None:
        return _SampleMember(key, extension, _member_error(path, key, extension, *refused))
    content = archive.extractfile(info).read()
    if len(content) < info.size:
        raise EOFError
    return _SampleMember(key, extension, content)


def _build_row(
    path: str, file: SourceFile, position: int, sample: list[_SampleMember]
) -> tuple[base.SourceRow, set[str]]:
    try:
        values, images = _build_values(path, sample)
    except RekordError as failure:
        failure.location = failure.location.within(path=to_printable_path(path), row=position)
        return base.SourceRow(to_printable_path(file.path), position, failure), set()
    return base.SourceRow(to_printable_path(file.path), position, values), images


def _build_values(path: str, sample: list[_SampleMember]) -> tuple[dict[str, Any], set[str]]:
    values: dict[str, Any] = {}
    images: set[str] = set()
    kinds = {member.extension for member in sample}
    for member in sample:
        if isinstance(member.data, RekordError):
            raise member.data
        *names, kind = member.extension.split(".")
        column = ".".join(names)
        found = _decode_member(path, member, kind, column)
        if kind in _IMAGE_EXTENSIONS:
            masked = column in _MASK_EXTENSIONS or (column == "" and kind == "png" and {"jpg", "jpeg"} & kinds)
            name = "mask" if masked else column or "image"
            found = {name: member.data}
            images.add(name)
        for name, value in found.items():
            # A text may be the full file name; other values of `filename` are not names.
            if name in values or (name == "filename" and not isinstance(value, (str, type(None)))):
                raise error(
                    "E378",
                    f"sample {preview(member.key)} has two values for `{name[:60]}`",
                    location=Location(path=to_printable_path(path), feature=name),
                    expected="unique columns",
                    found=f"another in .{member.extension[:40]}",
                    do="rename one of the members, such as to .other.json",
                )
            values[name] = value
    return {"filename": sample[0].key, **values}, images


def _decode_member(path: str, member: _SampleMember, kind: str, column: str) -> dict[str, Any]:
    """The columns of a member by its extension."""
    assert isinstance(member.data, bytes)
    try:
        if kind == "cls":
            return {column or "label": _parse_integer(member.data)}
        if kind in _TEXT_EXTENSIONS:
            return {column or "text": member.data.decode("utf-8")}
        if kind == "npy":
            return {column or "npy": _parse_array(member.data)}
        if kind == "json":
            document = json.loads(member.data, object_pairs_hook=_reject_duplicate_keys)
            if not isinstance(document, dict):
                return {column or "json": document}
            return flatten_row({column: document} if column else document, 0, None)
    except UnicodeDecodeError:
        raise _member_error(path, *member[:2], "UTF-8", "other bytes") from None
    except (ValueError, RecursionError, RekordError) as failure:
        expected = {"cls": "an integer", "npy": "a NumPy array of numbers"}.get(kind, "JSON")
        what = failure.what if isinstance(failure, RekordError) else str(failure)
        raise _member_error(path, *member[:2], expected, what[:60] or "something else") from None
    return {column or kind: member.data}


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object with a duplicate name")
    return found


def _parse_integer(data: bytes) -> int:
    text = data[:64].decode("utf-8").strip()
    try:
        if len(data) > 64 or "_" in text:  # Python reads 1_0 as ten
            raise ValueError
        return int(text)
    except ValueError:
        raise ValueError(preview(text)) from None


def _parse_array(data: bytes) -> Any:
    """An array, if the size in its header is that of its bytes."""
    header = parse_npy_header(io.BytesIO(data))
    if header is None:
        raise ValueError("an invalid header")
    dtype, fortran, shape, offset = header
    if dtype.hasobject or dtype.kind not in "biufc":
        raise ValueError(f"dtype {dtype}")
    if math.prod(shape) * dtype.itemsize != len(data) - offset:
        raise ValueError(f"{len(data) - offset:,} bytes for shape {shape}")
    array = np.frombuffer(data, dtype, offset=offset)
    native = array.astype(dtype.newbyteorder("="), copy=False)
    return native.reshape(shape, order="F" if fortran else "C")


def _member_error(path: str, key: str, extension: str, expected: str, found: str) -> RekordError:
    name = to_printable_path(f"{key}.{extension}")
    return error(
        "E377",
        f"member `{name[-60:]}` does not match its extension",
        location=Location(path=to_printable_path(path)),
        expected=expected,
        found=found,
        do="fix the member and pack the tar again, or remove the sample",
    )


def _too_large_error(path: str, key: str, position: int) -> RekordError:
    return error(
        "E327",
        f"sample {preview(key)} is larger than protobuf's 2 GiB",
        location=Location(path=to_printable_path(path), row=position),
        expected="at most 2,147,483,647 bytes",
        found="more",
        do="split the sample into several",
    )
