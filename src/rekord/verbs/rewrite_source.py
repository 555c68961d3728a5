"""The records of datasets as rows that are changed on their way: columns in, columns out, of whatever kinds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rekord import _core
from rekord.codec.assemble import assemble
from rekord.codec.decode import decode, new_batch, row_error
from rekord.codec.plan import CodecPlan, compile_plan
from rekord.dataset.order import Ids
from rekord.dataset.read import explain, open_slabs
from rekord.errors import RekordError, error
from rekord.faults import frame_error
from rekord.layouts.base import Derived, Verify
from rekord.location import Location
from rekord.records.slabs import Segment
from rekord.schema import Schema
from rekord.sources.base import PART_BYTES, Chunk, Columns, Facts, Part, Row, SourceFile
from rekord.sources.trees import groups, printable
from rekord.storage.anywhere import ANYWHERE
from rekord.verbs.rewrite_change import Change

_MOST_ROWS = 8192
_IDLE_BYTES = 16 << 20


@dataclass(frozen=True)
class Stored:
    """The layout of records that were stored before: their pictures were looked at then."""

    schema: Schema

    @property
    def name(self) -> str:
        return "plain"

    @property
    def looks(self) -> bool:
        """Never."""
        return False

    def options(self) -> Mapping[str, Any]:
        return {}

    def derive(self, row: Mapping[str, Any], verify: Verify) -> Derived:
        """The row as it is: only what transforms do comes behind it."""
        return Derived(dict(row), ())


@dataclass(frozen=True)
class OldFile:
    """A record file, its split, and which of its records are wanted: all, or these, in order."""

    path: str
    split: str
    size_bytes: int
    mtime_ns: int
    chosen: Ids | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Rewritten:
    """The source of records that are to be changed. A part is one file or several small ones."""

    files: tuple[OldFile, ...]
    change: Change
    strict: bool  # whether a key that the schema lacks makes a record bad
    splits: tuple[str, ...] | None  # None where all records go to one
    told: Mapping[str, Any]  # what else decides the records, as the manifest holds it
    rows: int | None = None

    @property
    def kind(self) -> str:
        return "records"

    @property
    def root(self) -> str:
        """None that all files are below: several datasets may be among them."""
        return ""

    def options(self) -> Mapping[str, Any]:
        return {"change": self.change.options(), "strict": self.strict, **self.told}

    def facts(self) -> Facts:
        return Facts(
            layout="table",
            schema=self.change.schema,
            rows=self.rows,
            source_bytes=sum(file.size_bytes for file in self.files),
            splits=self.splits,
            files=tuple(
                SourceFile(printable(os.path.basename(one.path)), one.size_bytes, one.mtime_ns)
                for one in self.files
            ),
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[Part]:
        sized = ((i, file.size_bytes) for i, file in enumerate(self.files))
        return [Part(numbers, cost) for numbers, cost in groups(sized, part_bytes)]

    def read(self, part: Part) -> Iterator[Chunk]:
        """The rows of a part; behind a damaged record nothing more is read of its file."""
        for number in part.content:
            file = self.files[number]
            now = ANYWHERE.stat(file.path)
            if (now.size_bytes, now.mtime_ns) != (file.size_bytes, file.mtime_ns):
                raise _changed(file.path)
            yield from _Reading(self, number).chunks()

    def name_of(self, number: int) -> str:
        """What rows of a file have for a path: files of two datasets may have one name."""
        return f"{number:06d}/{printable(os.path.basename(self.files[number].path))}"

    def place(self, where: Location) -> Location:
        """The place of a row as its record: the file, and the number there."""
        if (
            where.record is not None
            or where.row is None
            or where.path is None
            or not where.path[:6].isdigit()
        ):
            return replace(where, row=None)
        file = self.files[int(where.path[:6])]
        record = where.row if file.chosen is None else int(file.chosen[where.row])
        return replace(where, path=printable(file.path), row=None, record=record)


class _Reading:
    """One file on its way. The kinds of the columns to be cast are those of the records before, until they differ."""

    def __init__(self, source: Rewritten, number: int) -> None:
        self._source = source
        self._change = source.change
        self._file = source.files[number]
        self._name = source.name_of(number)
        self._kinds: dict[str, str] = {}
        self._plans: dict[tuple[tuple[str, str], ...], CodecPlan] = {}
        self._pool = _core.Pool(_IDLE_BYTES)
        self._done = 0  # rows that were given

    def chunks(self) -> Iterator[Chunk]:
        path = self._file.path
        with open_slabs(path, self._pool, reuse=False) as reader:
            while True:
                try:
                    segment = reader.next(_MOST_ROWS)
                except RekordError as failure:
                    failure.location = failure.location.within(
                        path=path, record=reader.record, offset=reader.offset
                    )
                    yield Row(self._name, self._done, _explained(failure))
                    return
                if segment is None:
                    return
                for chunk in self._segment(segment):
                    yield chunk
                    if isinstance(chunk, Row) and isinstance(chunk.values, RekordError):
                        return

    def _segment(self, segment: Segment) -> Iterator[Chunk]:
        if self._file.chosen is None:
            batch = new_batch(self._plan(self._kinds), self._pool)
            size = segment.end - segment.begin
            consumed, _, frame, row = batch.feed(
                segment.slab, segment.begin, segment.end, size, segment.frames
            )
            if frame is None and row is None and consumed == size:
                try:
                    yield self._columns(batch, segment.frames, self._kinds)
                except RekordError:
                    pass  # which record it is, is found out below
                else:
                    return
        yield from self._one_by_one(segment)

    def _columns(self, batch: Any, rows: int, kinds: Mapping[str, str]) -> Columns:
        read = assemble(self._plan(kinds), batch.take(), rows)
        made = self._change.applied(read, kinds)
        if self._source.splits is not None:
            made["split"] = [self._file.split] * rows
        columns = Columns(self._name, self._done, made, rows)
        self._done += rows
        return columns

    def _one_by_one(self, segment: Segment) -> Iterator[Chunk]:
        """Records that do not all fit together: those that do follow each other in one chunk each."""
        frames = bytearray(segment.slab.view()[segment.begin : segment.end])
        extents, _, _, problem = _core.scan(frames, 0, len(frames), len(frames))
        payloads = _core.payloads(frames, extents)
        waiting: list[bytes] = []
        kinds = self._kinds
        offset = segment.offset
        for i, payload in enumerate(payloads):
            record = segment.first_record + i
            if self._is_chosen(record):
                here = self._kinds_of(payload, record, offset)
                if isinstance(here, Row):
                    yield from self._together(waiting, kinds)
                    yield here
                    return
                if here != kinds:
                    yield from self._together(waiting, kinds)
                    waiting, kinds = [], here
                waiting.append(payload)
            offset += len(payload) + _core.FRAMING_BYTES
        yield from self._together(waiting, kinds)
        self._kinds = kinds
        if problem is not None:
            record = segment.first_record + len(payloads)
            failure = frame_error(problem, record=record, offset=offset)
            failure.location = failure.location.within(path=self._file.path)
            yield Row(self._name, self._done, _explained(failure))

    def _kinds_of(self, payload: bytes, record: int, offset: int) -> dict[str, str] | Row:
        """The kinds that a record has of the columns to be cast; a bad row where it cannot be read or changed."""
        try:
            kinds = dict(self._kinds)
            if self._change.cast:
                found = decode(payload, kind="sequence" if self._change.before.is_sequence else None)
                context = getattr(found, "context", found)
                for one in self._change.cast:
                    kind = _kind(context.get(one.read.key or one.old))
                    if kind is not None:
                        kinds[one.old] = kind
            batch = new_batch(self._plan(kinds), self._pool)
            refusal = batch.add(payload)
            if refusal is not None:
                raise row_error(self._plan(kinds), *refusal, payload)
            self._change.applied(assemble(self._plan(kinds), batch.take(), 1), kinds)
        except RekordError as failure:
            where = replace(failure.location, row=None)
            failure.location = where.within(path=self._file.path, record=record, offset=offset)
            failure.do = (
                None if failure.do is None else failure.do.replace("lossy=True", "--lossy (lossy=True)")
            )
            return Row(self._name, self._done, failure)
        return kinds

    def _together(self, payloads: list[bytes], kinds: Mapping[str, str]) -> Iterator[Chunk]:
        if payloads:
            batch = new_batch(self._plan(kinds), self._pool)
            for payload in payloads:
                batch.add(payload)
            yield self._columns(batch, len(payloads), kinds)

    def _is_chosen(self, record: int) -> bool:
        chosen = self._file.chosen
        if chosen is None:
            return True
        at = int(np.searchsorted(chosen, record))
        return at < len(chosen) and int(chosen[at]) == record

    def _plan(self, kinds: Mapping[str, str]) -> CodecPlan:
        key = tuple(sorted(kinds.items()))
        if key not in self._plans:
            schema = self._change.reading(kinds)
            self._plans[key] = compile_plan(schema, self._change.names, strict=self._source.strict)
        return self._plans[key]


def _kind(values: Any) -> str | None:
    """The kind of a list of a record, as `decode` gives it; None where there is none."""
    if values is None or not len(values):
        return None
    if isinstance(values, list):
        return "bytes"
    return "int64" if values.dtype.kind == "i" else "float"


def _explained(failure: RekordError) -> RekordError:
    try:
        return explain(failure)
    except RekordError:
        return failure


def _changed(path: str) -> RekordError:
    return error(
        "X548",
        location=Location(path=path),
        expected="the file as it was when this began",
        found="another one",
        do="run it again when nobody writes to it any more",
    )
