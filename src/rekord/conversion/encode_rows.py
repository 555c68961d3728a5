"""Encodes the chunks of a source: rows are mapped, derived, validated and framed, each with its split and key."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from rekord.codec.encode import new_row_encoder
from rekord.codec.encode_columns import encode_batches, written_columns
from rekord.codec.images.inspect import GeneratedBytes, reads_itself
from rekord.codec.plan import compile_plan
from rekord.conversion.mapped_rows import MappedOutputs, call_function, iter_rows, locate_row
from rekord.conversion.plan import ConversionJob, OnBadRow
from rekord.conversion.spill import MIN_DEFERRED_BYTES, BlobInFile, EncodedRows, defer_blobs
from rekord.conversion.splits import (
    SPLIT_COLUMN,
    HashArray,
    Salt,
    hash_rows,
    hash_text,
    hash_values,
    parse_split_column,
    parse_split_value,
    select_split_column,
    select_split_value,
)
from rekord.dataset.origins import RowOrigins, to_plain_text
from rekord.errors import DataError, RekordError
from rekord.layouts.base import DerivedRow, Layout, PlainLayout, RowRemark, Verify
from rekord.location import Location
from rekord.schema import Schema
from rekord.sources.base import Chunk, ColumnChunk, SourceRow
from rekord.transforms.base import Bound
from rekord.transforms.chain import Chain, serialize_transform


class BadRows:
    """Rejected rows and remarks of one part, in row order."""

    def __init__(self, on_bad_row: OnBadRow) -> None:
        self.is_rejecting = on_bad_row == "reject"
        self._rejects: list[bytes] = []
        self._remarks: list[bytes] = []
        self.remark_counts: Counter[str] = Counter()
        self.flagged: set[str] = set()  # the files with rows that are not simply one record each

    def flag(self, path: str) -> None:
        """Note a file whose records do not say everything about its rows."""
        self.flagged.add(to_plain_text(path))

    @property
    def rejected(self) -> int:
        return len(self._rejects)

    @property
    def remarked(self) -> int:
        return len(self._remarks)

    def reject(self, failure: RekordError, place: Location) -> None:
        """Record a bad row, or raise its error."""
        known = failure.location
        # An image's own file is more specific than the list that names it; otherwise the location is that of the row.
        if known.path is None or place.path is None or known.path == place.path:
            row = known.row if place.row is None else place.row
            line = place.line if known.line is None else known.line
            failure.location = replace(known, path=known.path or place.path, row=row, line=line)
        if not self.is_rejecting:
            raise failure
        fields = failure.to_dict()
        reported = {name: fields[name] for name in _REPORTED_FIELDS if name in fields}
        self._rejects.append(_encode_json_line({"origin": failure.location.to_dict(), **reported}))

    def add_remark(self, remark: RowRemark, place: Location) -> None:
        """Record a remark, which is not an error."""
        self.remark_counts[remark.code] += 1
        origin = {**place.to_dict(), "feature": remark.feature}
        self._remarks.append(_encode_json_line({"origin": origin, "code": remark.code, "what": remark.what}))

    def merge(self, other: BadRows) -> None:
        """Add those of rows that come after these."""
        self._rejects += other._rejects
        self._remarks += other._remarks
        self.remark_counts.update(other.remark_counts)
        self.flagged |= other.flagged

    def rejects_file(self) -> bytes:
        return b"".join(self._rejects)

    def remarks_file(self) -> bytes:
        return b"".join(self._remarks)


_REPORTED_FIELDS = ("error", "code", "what", "expected", "found", "likely", "do", "notes")


def _encode_json_line(document: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(document) + b"\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(_sanitize_text(document)) + b"\n"


def _sanitize_text(value: Any) -> Any:
    """A document whose texts JSON can hold: a file name need not be UTF-8."""
    if isinstance(value, dict):
        return {name: _sanitize_text(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_sanitize_text(inner) for inner in value]
    if not isinstance(value, str):
        return value
    with suppress(UnicodeEncodeError):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return value.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True)
class TransformedLayout:
    """A layout whose rows are transformed. It has the name of the inner layout."""

    layout: Layout
    chain: Chain

    @property
    def name(self) -> str:
        return self.layout.name

    @cached_property
    def _bound(self) -> Bound:
        return self.chain.bind(self.layout.schema)

    @property
    def schema(self) -> Schema:
        return self._bound.schema

    @property
    def needs_derive(self) -> bool:
        """Always: transforms build new rows."""
        return True

    @property
    def class_names(self) -> Any:
        """Those of the inner layout, which may need them for its companions."""
        return getattr(self.layout, "class_names", None)

    def options(self) -> Mapping[str, Any]:
        return {**self.layout.options(), "transforms": [serialize_transform(step) for step in self.chain.steps]}

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        derived = self.layout.derive(row, verify)
        settled = self._bound.settles
        remarks = tuple([one for one in derived.remarks if (one.code, one.feature) not in settled])
        return DerivedRow(self._bound.apply(dict(derived.values)), remarks)


_PIECE_BYTES = 8 << 20
"""Bytes of frames that are passed on together."""

_PROGRESS_SECONDS = 0.2


class RowEncoding:
    """Encodes the rows of one part. Errors of rows go to `bad`, which rejects the row or raises."""

    def __init__(self, job: ConversionJob, bad: BadRows) -> None:
        self._job = job
        self.bad = bad
        self._encoder = new_row_encoder(job.schema)
        self._index = compile_plan(job.schema, job.index) if job.index else None
        if self._index is not None:
            self._encoder.keep(self._index.context.reading)
        self._pending: list[_PendingRow] = []
        self._waiting_bytes = 0
        self._columns_as_rows = job.layout.needs_derive or job.function is not None
        self._columns_as_rows |= job.columns is not None and job.columns.needs_rows
        self.rows = 0
        self.on_progress: Callable[[], None] | None = None  # called now and then while rows wait to be taken
        self._next_progress_at = 0.0

    def pieces(self, chunks: Iterable[Chunk]) -> Iterator[EncodedRows]:
        """The rows of all chunks, in order."""
        for chunk in chunks:
            if isinstance(chunk, SourceRow):
                self._row(chunk)
            elif self._columns_as_rows:
                for row in iter_rows(chunk):
                    self._row(row)
                    if self._waiting_bytes >= _PIECE_BYTES:
                        yield self._taken()
            else:
                if self._waiting_bytes:
                    yield self._taken()
                yield from self._columns(chunk, 0, chunk.rows)
            if self._waiting_bytes >= _PIECE_BYTES:
                yield self._taken()
        if self._waiting_bytes:
            yield self._taken()

    # Rows.

    def _row(self, row: SourceRow) -> None:
        self.rows += 1
        # With a slow user function, a piece of small rows takes minutes.
        if self.on_progress is not None and (now := time.monotonic()) >= self._next_progress_at:
            self._next_progress_at = now + _PROGRESS_SECONDS
            self.on_progress()
        if isinstance(row.values, RekordError):
            self._reject(row.values, row)
            return
        try:
            mapped = self._map(row.values)
        except DataError as failure:
            self._reject(failure, row)
            return
        if len(mapped) != 1:
            self.bad.flag(row.path)
        for copy, values in enumerate(mapped):
            try:
                self._append(row, copy, values)
            except DataError as failure:
                self._explain_map_columns(failure)
                self._reject(failure, row)

    def _reject(self, failure: RekordError, chunk: Chunk, number: int = 0) -> None:
        self.bad.reject(failure, locate_row(self._job.source, chunk, number))
        self.bad.flag(chunk.path)

    def _map(self, values: Any) -> Sequence[Mapping[str, Any]]:
        if isinstance(values, MappedOutputs):
            return values
        return [values] if self._job.function is None else call_function(self._job.function, values)

    def _explain_map_columns(self, failure: DataError) -> None:
        """Point to `schema=`: a column that only the function adds can be declared nowhere else."""
        hinted = (failure.do or "").startswith("did you mean")
        if failure.code != "E309" or hinted:
            return
        if self._job.function is not None and self._job.inferred:
            failure.do = "declare the columns that `map=` returns: schema=rk.Schema({…})"
        elif self._job.function is None and isinstance(self._job.layout, PlainLayout):
            name = failure.location.feature
            declare = f"declare it: columns={{{name!r}: rk.Text(optional=True)}}"
            failure.do = f"drop=[{name!r}], or {declare if self._job.inferred else 'declare it in the schema'}"

    def _append(self, row: SourceRow, copy: int, values: Mapping[str, Any]) -> None:
        job = self._job
        rule = job.splits
        # Everything that may reject the row comes before the encoder takes it.
        split = rule.names.index(parse_split_value(values, rule.names)) if rule.from_source else 0
        group = rule.by or job.key
        by = select_split_value(values, group) if group else None
        stratum = select_split_value(values, rule.stratify) if rule.stratify else None
        values = self._select_values(values)
        passed = None
        if job.layout.needs_derive:
            derived = job.layout.derive(values, job.verify)
            passed = _find_passthrough_file(values, derived.values)
            values = derived.values
            for remark in derived.remarks:
                self.bad.add_remark(remark, locate_row(self._job.source, row))
                self.bad.flag(row.path)
        before, blob = self._waiting_bytes, None
        if passed is None:
            self._waiting_bytes = self._encoder.append(values)
        else:
            path, data = passed
            self._waiting_bytes, offset = self._encoder.append_blob(values, data)
            blob = None if offset is None else BlobInFile(path, offset, len(data))
        length = self._waiting_bytes - before
        line = row.line or 0
        self._pending.append(_PendingRow(row.path, row.position, line, copy, length, split, by, stratum, blob))

    def _select_values(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row as the layout gets it: the selected columns, with class ids."""
        job = self._job
        if job.splits.from_source and SPLIT_COLUMN not in job.schema:
            values = {name: value for name, value in values.items() if name != SPLIT_COLUMN}
        if job.select is not None:
            given = values
            values = {name: given[name] for name in job.select if name in given}
            if job.inferred and job.function is not None:
                # Columns that it adds are reported later, not dropped here.
                values |= {
                    name: one for name, one in given.items() if name not in job.schema and name != SPLIT_COLUMN
                }
        return values if job.columns is None else job.columns.convert_row(values)

    def _taken(self) -> EncodedRows:
        frames: Any = self._encoder.take()
        self._waiting_bytes = 0
        pending, self._pending = self._pending, []
        paths, positions, lines, copies, lengths, splits, by, strata, blobs = zip(*pending, strict=True)
        job, seed = self._job, self._job.seed
        numbers = np.array(positions, np.int64)
        encoded = EncodedRows(frames, np.array(lengths, np.int64), np.array(splits, np.uint8))
        known: dict[str, int] = {}
        which = np.array([known.setdefault(path, len(known)) for path in paths], np.uint32)
        encoded.origins = RowOrigins(
            [os.fsencode(path) for path in known],
            which,
            numbers,
            np.array(lines, np.int64),
            np.array(copies, np.int64),
        )
        if job.shuffle:
            copy_numbers = np.array(copies, np.int64) if any(copies) else None
            encoded.keys = hash_rows(hash_paths(seed, "order", paths), numbers, copy_numbers)
        if len(job.splits.names) > 1 and not job.splits.from_source:
            if by[0] is not None:
                encoded.hashes = np.array([hash_text(seed, "split", value) for value in by], np.uint64)
            else:
                # All copies of a row go to one split: a model must not see one of them in training.
                encoded.hashes = hash_rows(hash_paths(seed, "split", paths), numbers, None)
        if strata[0] is not None:
            encoded.strata = np.array([hash_text(0, "split", value) for value in strata], np.uint64)
        if self._index is not None:
            encoded.index = written_columns(self._index, self._encoder.take_kept(), len(pending))
        if any(blobs):
            defer_blobs(encoded, blobs)
        return self._with_splits(encoded)

    # Columns.

    def _columns(self, chunk: ColumnChunk, begin: int, end: int) -> Iterator[EncodedRows]:
        """Rows `begin` to `end` of a chunk; if they cannot be encoded together, each half separately."""
        if begin == end:
            return
        try:
            values, facts = self._prepared(chunk, begin, end)
            batches = encode_batches(values, self._job.schema, enough_bytes=_PIECE_BYTES)
        except DataError as failure:
            whole_column = failure.location.row is None and end - begin > 1
            if end - begin == 1 or (whole_column and begin == 0 and end == chunk.rows and not self.bad.is_rejecting):
                self.rows += 1
                number = begin + (failure.location.row or 0)
                self._reject(failure, chunk, number)
                return
            middle = (begin + end) // 2
            yield from self._columns(chunk, begin, middle)
            yield from self._columns(chunk, middle, end)
            return
        done = 0
        for frames, ends, index in batches.iter_with_index(self._index):
            part = {name: fact[done : done + len(ends)] for name, fact in facts.items()}
            self.rows += len(ends)  # of this piece: a part may end with it
            yield self._with_splits(EncodedRows(frames, np.diff(ends, prepend=0), **part, index=index))
            done += len(ends)

    def _prepared(self, chunk: ColumnChunk, begin: int, end: int) -> tuple[Any, dict[str, Any]]:
        """What to store of these rows, and their splits, keys, hashes and strata."""
        job, rule = self._job, self._job.splits
        rows = end - begin
        values = _slice_columns(chunk.values, begin, end)
        names = set(_column_names(values))
        positions = np.arange(chunk.first + begin, chunk.first + end, dtype=np.int64)
        if chunk.positions is not None:
            positions = np.asarray(chunk.positions[begin:end], np.int64)
        facts: dict[str, Any] = {
            "splits": np.zeros(rows, np.uint8),
            "origins": _column_origins(chunk, begin, positions),
        }

        def hash_positions(salt: Salt) -> HashArray:
            return hash_rows(hash_paths(job.seed, salt, [chunk.path]).repeat(rows), positions, None)

        if job.shuffle:
            facts["keys"] = hash_positions("order")
        if rule.from_source:
            facts["splits"] = parse_split_column(select_split_column(values, SPLIT_COLUMN, names), rule.names)
        elif len(rule.names) > 1:
            by = rule.by or job.key
            facts["hashes"] = (
                hash_values(job.seed, select_split_column(values, by, names)) if by else hash_positions("split")
            )
        if rule.stratify:
            facts["strata"] = hash_values(0, select_split_column(values, rule.stratify, names))
        wanted = [name for name in _column_names(values) if job.select is None or name in job.select]
        if rule.from_source and SPLIT_COLUMN not in job.schema:
            wanted = [name for name in wanted if name != SPLIT_COLUMN]
        chosen = _select_columns(values, wanted)
        if job.columns is not None:
            chosen = job.columns.convert_columns({name: chosen[name] for name in wanted})
        return chosen, facts

    def _with_splits(self, encoded: EncodedRows) -> EncodedRows:
        """The rows with their splits, unless these depend on all rows of a class."""
        if encoded.hashes is not None and encoded.strata is None:
            encoded.splits = self._job.splits.assign_splits(encoded.hashes)
            encoded.hashes = None
        return encoded


class EncodedChunk(NamedTuple):
    """Consecutive rows of a source, encoded."""

    pieces: list[EncodedRows]
    rows: int  # read, including rejected ones
    bad: BadRows

    @property
    def framed_bytes(self) -> int:
        return sum(int(piece.lengths.sum()) for piece in self.pieces)


@dataclass(frozen=True)
class EncodeTask:
    """Encodes chunks of rows, independently of each other."""

    job: ConversionJob

    @property
    def function(self) -> Any:
        return self.job.function

    def __call__(self, chunks: list[Chunk]) -> tuple[EncodedChunk, int]:
        encoding = RowEncoding(self.job, BadRows(self.job.on_bad_row))
        made = EncodedChunk(list(encoding.pieces(chunks)), encoding.rows, encoding.bad)
        return made, made.framed_bytes


class _PendingRow(NamedTuple):
    """A row that waits in the encoder."""

    path: str
    position: int
    line: int  # 0 if unknown
    copy: int
    length: int
    split: int
    by: bytes | None
    stratum: bytes | None
    blob: BlobInFile | None


def _column_origins(chunk: ColumnChunk, begin: int, positions: Any) -> RowOrigins:
    """The origins of the rows of a chunk from `begin` on, which have these positions."""
    rows = len(positions)
    zeros = np.zeros(rows, np.int64)
    if chunk.lines is not None:
        lines = np.asarray(chunk.lines[begin : begin + rows], np.int64)
    else:
        lines = zeros if chunk.first_line is None else chunk.first_line + np.arange(begin, begin + rows)
    return RowOrigins([os.fsencode(chunk.path)], np.zeros(rows, np.uint32), positions, lines, zeros)


def _find_passthrough_file(row: Mapping[str, Any], stored: Mapping[str, Any]) -> tuple[str, bytes] | None:
    """The first file whose bytes are stored unchanged, if it is large enough to be worth reading twice."""
    for name, value in row.items():
        if isinstance(value, PurePath) and not reads_itself(value):
            data = stored.get(name)
            if isinstance(data, bytes) and len(data) >= MIN_DEFERRED_BYTES and not isinstance(data, GeneratedBytes):
                return str(value), data
    return None


def hash_paths(seed: int, salt: Salt, paths: Sequence[str]) -> HashArray:
    """The `hash_text` of each path."""
    known: dict[str, int] = {}
    for path in paths:
        if path not in known:
            known[path] = hash_text(seed, salt, path.encode("utf-8", "surrogateescape"))
    return np.array([known[path] for path in paths], np.uint64)


def _column_names(values: Any) -> list[str]:
    return list(values.schema.names) if isinstance(values, pa.RecordBatch) else list(values)


def _slice_columns(values: Any, begin: int, end: int) -> Any:
    if isinstance(values, pa.RecordBatch):
        return values.slice(begin, end - begin)
    return {name: column[begin:end] for name, column in values.items()}


def _select_columns(values: Any, names: list[str]) -> Any:
    if isinstance(values, pa.RecordBatch):
        return values.select(names)
    return {name: values[name] for name in names}
