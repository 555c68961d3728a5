"""TFRecord files as rows of a schema, to be written again in another form."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rekord import _core
from rekord.arguments import check_keywords
from rekord.codec.decode import assemble_columns, new_batch, row_error
from rekord.codec.plan import CodecPlan, compile_plan
from rekord.errors import CompressionError, RekordError, error
from rekord.faults import frame_error
from rekord.framing.frames import FrameReader, FrameSegment, SlabReader, VerifiedFrames
from rekord.framing.inflate import starts_with_record
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.interop.tfds import TfdsFolder, read_tfds_folder
from rekord.sources.base import (
    PART_BYTES,
    Chunk,
    ColumnChunk,
    SourceFacts,
    SourceFile,
    SourcePart,
    SourceRow,
    check_unchanged,
    empty_file_error,
    group_by_bytes,
)
from rekord.sources.image_folder import to_printable_path
from rekord.storage import raw_files
from rekord.storage.find import resolve_record_files
from rekord.storage.local import PathLike
from rekord.storage.raw_files import RAW_FILES

_MAX_BATCH_ROWS = 8192  # in one chunk
_MAX_IDLE_BYTES = 16 << 20
_FRAMING_BYTES = _core.HEADER_BYTES + 4


@check_keywords
def records(
    path: PathLike | Iterable[PathLike],
    schema: Schema | None = None,
    *,
    splits: Mapping[str, str] | None = None,
    strict: bool = False,
) -> RecordsSource:
    """The records of a file, a folder, a pattern, or several of these, one row each.

    `schema` describes them; a TFDS folder has its own. `splits` gives the split of each file, by the path that it
    was found under; a TFDS folder has these too. With `strict` a key that the schema lacks makes a row bad: right
    for an inferred schema, which claims to be complete.
    """
    paths = resolve_record_files(path, starts_with_record, storage=RAW_FILES).paths
    root = _common_root(path, paths)
    tfds = read_tfds_folder(root) if root else None
    files = []
    for place in paths:
        facts = RAW_FILES.stat(place)
        below = raw_files.relpath(place, root) if root else place
        files.append(SourceFile(below.replace(os.sep, "/"), facts.size_bytes, facts.mtime_ns))
    if schema is None and tfds is not None:
        schema = tfds.schema
    known = _assign_splits(files, paths, splits, tfds)
    if known is not None and schema is not None and "split" in schema:
        if splits is not None:
            raise error(
                "U605",
                "`splits` conflicts with the column `split` of the records",
                location=Location(feature="split"),
                expected="a schema without this column, or no `splits`",
                found="both",
                do="splits=None, or remove the column from the schema",
            )
        known = None
    return RecordsSource(root, tuple(files), schema, known, strict, _count_tfds_records(tfds, known))


@dataclass(frozen=True)
class RecordsSource:
    """TFRecord files. A part is one file or several small ones."""

    root: str
    files: tuple[SourceFile, ...]
    schema: Schema | None = None
    splits: tuple[str | None, ...] | None = None  # of each file
    strict: bool = False
    known_rows: int | None = None

    kind = "records"

    def options(self) -> Mapping[str, Any]:
        return {
            "schema": None if self.schema is None else self.schema.to_dict(evidence=False),
            "splits": None if self.splits is None else list(self.splits),
            "strict": self.strict,
        }

    @property
    def paths(self) -> tuple[str, ...]:
        """The files as a user finds them, to infer a schema from."""
        return tuple(self._full(file) for file in self.files)

    def locate_records(self, path: str, positions: Any) -> tuple[str, Any]:
        """The file of rows, and their records in it."""
        return os.path.join(self.root, *path.split("/")) if self.root else path, positions

    def facts(self) -> SourceFacts:
        """The files, the schema if given or found, and the number of rows if TFDS has it."""
        if not any(file.size_bytes or not raw_files.isfile(self._full(file)) for file in self.files):
            raise empty_file_error(self._full(self.files[0]), "an empty file", expected="a file of records")
        names = dict.fromkeys(self.splits or ())
        return SourceFacts(
            layout="table",
            schema=self.schema,
            rows=self.known_rows,
            source_bytes=sum(file.size_bytes for file in self.files),
            splits=None if self.splits is None else tuple(name for name in names if name is not None),
            files=tuple(file._replace(path=to_printable_path(file.path)) for file in self.files),
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        sized = ((i, file.size_bytes) for i, file in enumerate(self.files))
        return [SourcePart(numbers, cost) for numbers, cost in group_by_bytes(sized, part_bytes)]

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        """The rows of a part. A corrupt record is a bad row; reading resumes at the next intact record."""
        if self.schema is None:
            raise error(
                "X535",
                location=Location(path=self._full(self.files[part.content[0]])),
                expected="a schema for the records",
                found="no schema, and no features.json next to the files",
                do="rk.sources.records(path, schema=rk.infer(path))",
            )
        plan = compile_plan(self.schema, None, strict=self.strict)
        for number in part.content:
            file = self.files[number]
            check_unchanged(self._full(file), file)
            split = None if self.splits is None else self.splits[number]
            yield from _RecordFileReader(self._full(file), to_printable_path(file.path), plan, split).chunks()

    def _full(self, file: SourceFile) -> str:
        return os.path.join(self.root, *file.path.split("/")) if self.root else file.path


class _RecordFileReader:
    """Reads the rows of one record file."""

    def __init__(self, path: str, below: str, plan: CodecPlan, split: str | None) -> None:
        self.path = path
        self.below = below
        self.plan = plan
        self.split = split
        self._pool = _core.Pool(_MAX_IDLE_BYTES)

    def chunks(self) -> Iterator[Chunk]:
        """Columns up to the first corrupt header; the rest record by record."""
        sized = RAW_FILES.stat(self.path).kind == "file"
        with SlabReader(
            RAW_FILES.open_read(self.path), path=self.path, sized=sized, pool=self._pool, reuse=False
        ) as reader:
            while True:
                try:
                    segment = reader.next(_MAX_BATCH_ROWS)
                except CompressionError as failure:
                    yield self._bad(reader.record, reader.offset, failure)
                    return  # nothing after it can be decompressed
                except RekordError:
                    break
                if segment is None:
                    return
                yield from self._segment(segment)
            offset, record = reader.offset, reader.record
        yield from self._searched(offset, record, sized=sized)

    def _segment(self, segment: FrameSegment) -> Iterator[Chunk]:
        batch = new_batch(self.plan, self._pool)
        size = segment.end - segment.begin
        consumed, _, frame, row = batch.feed(segment.slab, segment.begin, segment.end, size, segment.frames)
        if frame is None and row is None and consumed == size:
            try:
                values = assemble_columns(self.plan, batch.take(), segment.frames)
            except RekordError:
                pass  # the bad rows are found below
            else:
                yield self._columns(segment.first_record, values, segment.frames)
                return
        yield from self._one_by_one(segment)

    def _one_by_one(self, segment: FrameSegment) -> Iterator[SourceRow]:
        """The rows of a segment with some bad rows. Its headers are known to be good."""
        frames = bytearray(segment.slab.view()[segment.begin : segment.end])
        at, record = 0, segment.first_record
        while at < len(frames):
            payload_bytes = int.from_bytes(frames[at : at + 8], "little")
            end = at + payload_bytes + _FRAMING_BYTES
            extents, _, _, problem = _core.scan(frames, at, end, end - at)
            if problem is not None:
                failure = frame_error(problem, record=record, offset=segment.offset + at)
                if end < len(frames):
                    after = segment.offset + end
                    failure.likely = f"bytes changed after writing: the next frame, at byte {after:,}, is intact"
                yield self._bad(record, segment.offset + at, failure)
            else:
                yield self._row(record, segment.offset + at, _core.payloads(frames, extents)[0])
            at, record = end, record + 1

    def _searched(self, offset: int, record: int, *, sized: bool) -> Iterator[SourceRow]:
        """From a corrupt record on: the bad row, and then the intact records after it."""
        reader = FrameReader(RAW_FILES.open_read(self.path), path=self.path, sized=sized)
        with reader:
            begins_there = reader.start_at(offset=offset, record=record)
            while True:
                try:
                    for stretch in reader.iter_verified_frames():
                        yield from self._stretch(stretch, 0 if begins_there else offset)
                    return
                except RekordError as met:
                    failure, can_resume = reader.recover(met)
                    place, number = failure.location.offset or 0, failure.location.record or 0
                    if place >= offset or not can_resume:
                        yield self._bad(max(number, record), max(place, offset), failure)
                    if not can_resume:
                        return

    def _stretch(self, stretch: VerifiedFrames, least_offset: int) -> Iterator[SourceRow]:
        for i, payload in enumerate(stretch.payloads()):
            offset = stretch.offset(i)
            if offset >= least_offset:
                yield self._row(stretch.first_record + i, offset, payload)

    def _row(self, record: int, offset: int, payload: bytes) -> SourceRow:
        batch = new_batch(self.plan, self._pool)
        refusal = batch.add(payload)
        try:
            if refusal is not None:
                raise row_error(self.plan, *refusal, payload)
            columns = assemble_columns(self.plan, batch.take(), 1)
        except RekordError as failure:
            failure.location = replace(failure.location, row=None)
            return self._bad(record, offset, failure)
        values = {name: column[0] for name, column in columns.items()}
        return SourceRow(self.below, record, values if self.split is None else {**values, "split": self.split})

    def _bad(self, record: int, offset: int, failure: RekordError) -> SourceRow:
        failure.location = failure.location.within(path=to_printable_path(self.path), record=record, offset=offset)
        return SourceRow(self.below, record, failure)

    def _columns(self, first: int, values: dict[str, Any], rows: int) -> ColumnChunk:
        if self.split is not None:
            values = {**values, "split": [self.split] * rows}
        return ColumnChunk(self.below, first, values, rows)


def _common_root(path: PathLike | Iterable[PathLike], paths: Sequence[str]) -> str:
    if isinstance(path, (str, os.PathLike)):
        place = os.fsdecode(path)
        if raw_files.isdir(place):
            return place
    folders = {os.path.dirname(place) for place in paths}
    try:
        return folders.pop() if len(folders) == 1 else raw_files.commonpath(list(folders))
    except ValueError:  # absolute and relative paths
        return ""


def _assign_splits(
    files: Sequence[SourceFile],
    paths: Sequence[str],
    given: Mapping[str, str] | None,
    tfds: TfdsFolder | None,
) -> tuple[str | None, ...] | None:
    if given is not None:
        return tuple(given.get(place) for place in paths)
    if tfds is None:
        return None
    found = tuple(tfds.split_of(file.path) for file in files)
    return found if any(found) else None


def _count_tfds_records(tfds: TfdsFolder | None, splits: tuple[str | None, ...] | None) -> int | None:
    """The number of records according to TFDS, if all its files and no others are read."""
    if tfds is None or splits is None or None in splits:
        return None
    expected = sum(len(lengths) for lengths in tfds.shard_lengths.values())
    total = sum(sum(lengths) for lengths in tfds.shard_lengths.values())
    return total if expected == len(splits) else None
