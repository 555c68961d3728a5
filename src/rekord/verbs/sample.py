"""A few rows of a source, encoded: what a conversion is going to write, on a small scale."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa

from rekord import _core
from rekord.codec.decode import decode
from rekord.engines.bad_rows import BadRows
from rekord.engines.encoding import Encoding
from rekord.engines.job import Job
from rekord.errors import RekordError
from rekord.layouts.base import Remark
from rekord.location import Location
from rekord.sources.base import Chunk, Columns, is_parted
from rekord.sources.trees import is_picture

ROWS = 64
SAMPLE_BYTES = 16 << 20
PARTS = 8
"""So many rows are looked at, and no more than so many bytes of them, from so many places."""

_IN_MEMORY = ("columns", "pandas", "polars", "arrow")
_MOST_FILE_BYTES = 64 << 20
_COUNTED_VALUES = 4096
_MAGIC = ((b"\xff\xd8\xff", "JPEG"), (b"\x89PNG", "PNG"))


@dataclass(slots=True)
class Sample:
    """What the rows that were looked at came to."""

    rows: int = 0
    records: int = 0
    bad: int = 0
    first_bad: RekordError | None = None
    framed_bytes: int = 0
    key_bytes: Counter[str] = field(default_factory=Counter)  # of each record key
    payloads: list[bytes] = field(default_factory=list)
    picture_bytes: int = 0  # of the encoded pictures that rows had, masks aside
    pictures: Counter[str] = field(default_factory=Counter)  # by format


def can_be_sampled(job: Job) -> bool:
    """Whether looking at rows takes none away: files, and what lies in memory."""
    source: Any = job.source
    return is_parted(source) or bool(getattr(source, "root", "")) or source.kind in _IN_MEMORY


def sample_of(job: Job, known_rows: int | None) -> Sample:
    """Some rows from the beginnings of parts that lie evenly in the source; a source that fails is left to fail."""
    sample = Sample()
    quiet = replace(job, on_bad_row="reject", verify="headers", index=(), shuffle=False)
    bad = _Bad()
    try:
        for chunks, rows, most_bytes in _places(job, known_rows):
            encoding = Encoding(quiet, bad)
            taken = _taken(chunks, rows, most_bytes, sample, as_bytes=job.function is None)
            for piece in encoding.pieces(taken):
                sample.records += len(piece.lengths)
                sample.framed_bytes += int(piece.lengths.sum())
                if piece.holes is None and not job.schema.is_sequence:
                    _look(sample, piece.frames, piece.lengths)
            sample.rows += encoding.rows
    except RekordError as failure:
        sample.first_bad = failure
    sample.bad = bad.rejected
    sample.first_bad = bad.first or sample.first_bad
    return sample


class _Bad(BadRows):
    """Bad rows are kept in mind, and nothing is said."""

    def __init__(self) -> None:
        super().__init__("reject")
        self.first: RekordError | None = None

    def refuse(self, failure: RekordError, place: Location) -> None:
        super().refuse(failure, place)
        self.first = self.first or failure

    def remark(self, remark: Remark, place: Location) -> None:
        pass


def _places(job: Job, known_rows: int | None) -> Iterator[tuple[Iterator[Chunk], int, int]]:
    """Iterators over the source, with how many rows and bytes to take from each."""
    source: Any = job.source
    if not is_parted(source):
        yield source.rows(), ROWS, SAMPLE_BYTES
        return
    parts = source.parts()
    if known_rows is None or known_rows > ROWS:
        # Smaller parts begin in more places.
        parts = source.parts(max(1, sum(part.source_bytes for part in parts) // PARTS))
    chosen = parts if len(parts) <= PARTS else [parts[i * len(parts) // PARTS] for i in range(PARTS)]
    for part in chosen:
        yield source.read(part), max(1, ROWS // len(chosen)), SAMPLE_BYTES // len(chosen)


def _taken(
    chunks: Iterator[Chunk], rows: int, most_bytes: int, sample: Sample, *, as_bytes: bool
) -> Iterator[Chunk]:
    left_rows, left_bytes = rows, most_bytes
    for chunk in chunks:
        if isinstance(chunk, Columns):
            kept = min(chunk.rows, left_rows)
            left_rows -= kept
            yield _first(chunk, kept)
        else:
            left_rows -= 1
            if isinstance(chunk.values, RekordError):
                yield chunk
            else:
                left_bytes -= _count_pictures(chunk.values, sample)
                yield chunk._replace(values=_with_bytes(chunk.values)) if as_bytes else chunk
        if left_rows <= 0 or left_bytes <= 0:
            return


def _first(chunk: Columns, rows: int) -> Columns:
    values = chunk.values
    if isinstance(values, pa.RecordBatch):
        return replace(chunk, values=values.slice(0, rows), rows=rows)
    return replace(chunk, values={name: column[:rows] for name, column in values.items()}, rows=rows)


def _count_pictures(values: Mapping[str, Any], sample: Sample) -> int:
    """Note the encoded pictures of a row; how many bytes the row has."""
    total = 0
    for name, value in values.items():
        if isinstance(value, PurePath):
            size_bytes = _file_bytes(value)
            format = _named_format(value) if is_picture(value.name) else None
        elif isinstance(value, bytes):
            size_bytes = len(value)
            format = next((kind for magic, kind in _MAGIC if value.startswith(magic)), None)
        else:
            size_bytes, format = int(getattr(value, "nbytes", 8)), None
        total += size_bytes
        if format is not None and name != "mask":
            sample.pictures[format] += 1
            sample.picture_bytes += size_bytes
    return total


def _named_format(path: PurePath) -> str:
    ending = path.suffix[1:].upper()
    return "JPEG" if ending in ("JPG", "JPE", "JFIF") else ending


def _file_bytes(path: PurePath) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _with_bytes(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row whose files are read, so that its frame holds all of it; what cannot be read stays a path."""
    read = {}
    for name, value in values.items():
        read[name] = value
        if isinstance(value, PurePath) and 0 < _file_bytes(value) <= _MOST_FILE_BYTES:
            try:
                with open(value, "rb") as file:
                    read[name] = file.read(_MOST_FILE_BYTES)
            except OSError:
                pass
    return read


def _look(sample: Sample, frames: Any, lengths: Any) -> None:
    """Note how the bytes of records are shared by their keys."""
    view = memoryview(frames).cast("B")
    begin = 0
    for length in lengths.tolist():
        payload = bytes(view[begin + _core.HEADER_BYTES : begin + length - 4])
        begin += length
        if len(sample.payloads) < ROWS:
            sample.payloads.append(payload)
            for key, size_bytes in _sizes(payload):
                sample.key_bytes[key] += size_bytes


def _sizes(payload: bytes) -> Iterator[tuple[str, int]]:
    decoded: Any = decode(payload)
    if not isinstance(decoded, dict):
        return
    for key, value in decoded.items():
        if isinstance(value, list):
            yield key, sum(len(one) for one in value)
        elif value is not None and value.dtype == np.int64:
            yield key, _varint_bytes(value)
        elif value is not None:
            yield key, int(value.nbytes)


def _varint_bytes(values: Any) -> int:
    some = values.ravel()[:_COUNTED_VALUES].tolist()
    each = [10 if value < 0 else max(1, -(-value.bit_length() // 7)) for value in some]
    return sum(each) * len(values) // max(1, len(some))
