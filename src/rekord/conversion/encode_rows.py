"""The chunks of a source as encoded rows: mapped, derived, validated, framed, each with its split and key."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from rekord.codec.encode import new_row_encoder
from rekord.codec.encode_columns import encode_batches, written_columns
from rekord.codec.images.inspect import GeneratedBytes
from rekord.codec.plan import compile_plan
from rekord.conversion.plan import ConversionJob, OnBadRow
from rekord.conversion.spill import MIN_DEFERRED_BYTES, BlobInFile, EncodedRows, IntArray, defer_blobs
from rekord.conversion.splits import (
    SPLIT_COLUMN,
    HashArray,
    hash_rows,
    hash_text,
    hash_values,
    parse_split_column,
    parse_split_value,
    select_split_column,
    select_split_value,
)
from rekord.errors import DataError, RekordError, error, preview
from rekord.layouts.base import DerivedRow, Layout, RowRemark, Verify
from rekord.location import Location
from rekord.schema import Schema
from rekord.sources.base import Chunk, ColumnChunk, SourceRow, full_path
from rekord.transforms.base import Bound
from rekord.transforms.chain import Chain, serialize_transform


class BadRows:
    """What was wrong in one part, in the order of its rows."""

    def __init__(self, on_bad_row: OnBadRow) -> None:
        self.is_rejecting = on_bad_row == "reject"
        self._rejects: list[bytes] = []
        self._remarks: list[bytes] = []
        self.remark_counts: Counter[str] = Counter()

    @property
    def rejected(self) -> int:
        return len(self._rejects)

    @property
    def remarked(self) -> int:
        return len(self._remarks)

    def reject(self, failure: RekordError, place: Location) -> None:
        """Note a bad row, or raise it."""
        known = failure.location
        # An image's own file says more than the list that names it; else the place of the row is what to look at.
        if known.path is None or place.path is None or known.path == place.path:
            row = known.row if place.row is None else place.row
            line = place.line if known.line is None else known.line
            failure.location = replace(known, path=known.path or place.path, row=row, line=line)
        if not self.is_rejecting:
            raise failure
        self._rejects.append(_encode_json_line({"origin": failure.location.to_dict(), **_error_to_dict(failure)}))

    def add_remark(self, remark: RowRemark, place: Location) -> None:
        """Note something that is no error."""
        self.remark_counts[remark.code] += 1
        document = {
            "origin": {**place.to_dict(), "feature": remark.feature},
            "code": remark.code,
            "what": remark.what,
        }
        self._remarks.append(_encode_json_line(document))

    def rejects_file(self) -> bytes:
        return b"".join([line + b"\n" for line in self._rejects])

    def remarks_file(self) -> bytes:
        return b"".join([line + b"\n" for line in self._remarks])


def _error_to_dict(failure: RekordError) -> dict[str, Any]:
    told = failure.to_dict()
    return {name: told[name] for name in ("error", "code", "what", "expected", "found", "likely", "do")}


def _encode_json_line(document: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return msgspec.json.encode(_sanitize_text(document))


def _sanitize_text(value: Any) -> Any:
    """A document whose texts JSON can hold: a name on the disk need not be UTF-8."""
    if isinstance(value, dict):
        return {name: _sanitize_text(inner) for name, inner in value.items()}
    if not isinstance(value, str):
        return value
    with suppress(UnicodeEncodeError):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return value.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True)
class TransformedLayout:
    """The layout of rows that are transformed. It goes by the name of the one within."""

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
        """Always: each row is made anew."""
        return True

    @property
    def class_names(self) -> Any:
        """Those of the layout within, which may have some for its companions."""
        return getattr(self.layout, "class_names", None)

    def options(self) -> Mapping[str, Any]:
        return {
            **self.layout.options(),
            "transforms": [serialize_transform(step) for step in self.chain.steps],
        }

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        derived = self.layout.derive(row, verify)
        return DerivedRow(self._bound.apply(dict(derived.values)), derived.remarks)


_PIECE_BYTES = 8 << 20
"""How many bytes of frames are handed on at once."""

_PROGRESS_SECONDS = 0.2


class RowEncoding:
    """Encodes the rows of one part. What is wrong with a row goes to `bad`, which decides what follows from it."""

    def __init__(self, job: ConversionJob, bad: BadRows) -> None:
        self._job = job
        self.bad = bad
        self._encoder = new_row_encoder(job.schema)
        self._index = compile_plan(job.schema, job.index) if job.index else None
        if self._index is not None:
            self._encoder.keep(self._index.context.reading)
        self._pending = _PendingRows()
        self._waiting_bytes = 0
        self._columns_as_rows = job.layout.needs_derive or job.function is not None
        self.rows = 0
        self.on_progress: Callable[[], None] | None = None  # called now and then while rows wait for their piece
        self._next_progress_at = 0.0

    def pieces(self, chunks: Iterable[Chunk]) -> Iterator[EncodedRows]:
        """The rows of all chunks, in order."""
        for chunk in chunks:
            if isinstance(chunk, SourceRow):
                self._row(chunk)
            elif self._columns_as_rows:
                for row in _iter_rows(chunk):
                    self._row(row)
                    if self._waiting_bytes >= _PIECE_BYTES:
                        yield self._taken()
            else:
                if self._waiting_bytes:
                    yield self._taken()
                self.rows += chunk.rows
                yield from self._columns(chunk, 0, chunk.rows)
            if self._waiting_bytes >= _PIECE_BYTES:
                yield self._taken()
        if self._waiting_bytes:
            yield self._taken()

    # Rows.

    def _row(self, row: SourceRow) -> None:
        self.rows += 1
        # A function of the user may be slow, and a piece of small rows then takes minutes.
        if self.on_progress is not None and (now := time.monotonic()) >= self._next_progress_at:
            self._next_progress_at = now + _PROGRESS_SECONDS
            self.on_progress()
        if isinstance(row.values, RekordError):
            self.bad.reject(row.values, self._place(row))
            return
        try:
            mapped = [row.values] if self._job.function is None else self._mapped(row.values)
        except DataError as failure:
            self.bad.reject(failure, self._place(row))
            return
        for copy, values in enumerate(mapped):
            try:
                self._append(row, copy, values)
            except DataError as failure:
                self._explain_map_columns(failure)
                self.bad.reject(failure, self._place(row))

    def _explain_map_columns(self, failure: DataError) -> None:
        """A column that only the function knows can be declared nowhere but in a schema."""
        hinted = (failure.do or "").startswith("did you mean")
        if failure.code == "E309" and self._job.function is not None and self._job.inferred and not hinted:
            failure.do = (
                "say what `map=` returns with schema= (--schema FILE): "
                "without it, the columns are those of the rows before"
            )

    def _append(self, row: SourceRow, copy: int, values: Mapping[str, Any]) -> None:
        job = self._job
        rule = job.splits
        # All that may refuse the row comes before the encoder takes it.
        split = rule.names.index(parse_split_value(values, rule.names)) if rule.from_source else 0
        group = rule.by or job.key
        by = select_split_value(values, group) if group else None
        stratum = select_split_value(values, rule.stratify) if rule.stratify else None
        if rule.from_source and SPLIT_COLUMN not in job.schema:
            values = {name: value for name, value in values.items() if name != SPLIT_COLUMN}
        if job.select is not None:
            given = values
            values = {name: given[name] for name in job.select if name in given}
            if job.inferred and job.function is not None:
                # What it adds is refused further on, not lost here.
                values |= {
                    name: one for name, one in given.items() if name not in job.schema and name != SPLIT_COLUMN
                }
        passed = None
        if job.layout.needs_derive:
            derived = job.layout.derive(values, job.verify)
            passed = _find_passthrough_file(values, derived.values)
            values = derived.values
            for remark in derived.remarks:
                self.bad.add_remark(remark, self._place(row))
        before, blob = self._waiting_bytes, None
        if passed is None:
            self._waiting_bytes = self._encoder.append(values)
        else:
            path, data = passed
            self._waiting_bytes, offset = self._encoder.append_blob(values, data)
            blob = None if offset is None else BlobInFile(path, offset, len(data))
        self._pending.add(row, copy, self._waiting_bytes - before, split, by, stratum)
        self._pending.blobs.append(blob)

    def _mapped(self, values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        assert self._job.function is not None
        try:
            made = self._job.function(values)
            if isinstance(made, Iterable) and not isinstance(made, (Mapping, str, bytes)):
                made = list(made)  # here, since a generator fails only when it is asked
        except RekordError:
            raise
        except Exception as failure:
            said = f"{type(failure).__name__}: {failure}"
            raise error(
                "E380",
                expected="a row, several rows, or None",
                found=said[:60],
                do="fix the function, or have it return None for rows to leave out",
            ) from failure
        if made is None:
            return []
        if isinstance(made, Mapping):
            return [made]
        rows = made if isinstance(made, list) else [made]
        wrong = next((row for row in rows if not isinstance(row, Mapping)), None)
        if wrong is not None:
            raise error(
                "E380",
                "the map function returned something else than rows",
                expected="a row, several rows, or None",
                found=preview(wrong),
                do='return {"label": 1, ...}',
            )
        return rows

    def _taken(self) -> EncodedRows:
        frames: Any = self._encoder.take()
        self._waiting_bytes = 0
        pending, self._pending = self._pending, _PendingRows()
        job = self._job
        seed = job.seed
        positions = np.array(pending.positions, np.int64)
        copies = np.array(pending.copies, np.int64) if any(pending.copies) else None
        keys = None
        if job.shuffle:
            keys = hash_rows(_compute_path_hashes(seed, "order", pending.paths), positions, copies)
        hashes = None
        if len(job.splits.names) > 1 and not job.splits.from_source:
            if pending.by:
                hashes = np.array([hash_text(seed, "split", value) for value in pending.by], np.uint64)
            else:
                # All copies of a row go to one split: what a model has seen in another form it has seen.
                hashes = hash_rows(_compute_path_hashes(seed, "split", pending.paths), positions, None)
        strata = None
        if pending.strata:
            strata = np.array([hash_text(0, "split", value) for value in pending.strata], np.uint64)
        splits = np.array(pending.splits, np.uint8)
        index = None
        if self._index is not None:
            index = written_columns(self._index, self._encoder.take_kept(), len(positions))
        lengths = np.array(pending.lengths, np.int64)
        encoded = self._encoded(frames, lengths, splits, keys, hashes, strata, index)
        if any(pending.blobs):
            defer_blobs(encoded, pending.blobs)
        return encoded

    # Columns.

    def _columns(self, chunk: ColumnChunk, begin: int, end: int) -> Iterator[EncodedRows]:
        """Rows `begin` to `end` of a chunk; where they cannot be encoded together, the halves of them."""
        if begin == end:
            return
        try:
            values, facts = self._prepared(chunk, begin, end)
            batches = encode_batches(values, self._job.schema, enough_bytes=_PIECE_BYTES)
        except DataError as failure:
            whole_column = failure.location.row is None and end - begin > 1
            if end - begin == 1 or (whole_column and begin == 0 and end == chunk.rows and not self.bad.is_rejecting):
                self.bad.reject(failure, self._locate_chunk_row(chunk, begin + (failure.location.row or 0)))
                return
            middle = (begin + end) // 2
            yield from self._columns(chunk, begin, middle)
            yield from self._columns(chunk, middle, end)
            return
        done = 0
        for frames, ends, index in batches.iter_with_index(self._index):
            part = [None if fact is None else fact[done : done + len(ends)] for fact in facts]
            splits, keys, hashes, strata = part
            assert splits is not None
            yield self._encoded(frames, np.diff(ends, prepend=0), splits, keys, hashes, strata, index)
            done += len(ends)

    def _prepared(self, chunk: ColumnChunk, begin: int, end: int) -> tuple[Any, tuple[Any, ...]]:
        """What is to be stored of these rows, and (splits, keys, hashes, strata) of them."""
        job, rule = self._job, self._job.splits
        rows = end - begin
        values = _slice_columns(chunk.values, begin, end)
        names = set(_column_names(values))
        positions = np.arange(chunk.first + begin, chunk.first + end, dtype=np.int64)
        splits = np.zeros(rows, np.uint8)
        keys = hashes = strata = None
        if job.shuffle:
            keys = hash_rows(_compute_path_hashes(job.seed, "order", [chunk.path]).repeat(rows), positions, None)
        if rule.from_source:
            splits = parse_split_column(select_split_column(values, SPLIT_COLUMN, names), rule.names)
        elif len(rule.names) > 1:
            by = rule.by or job.key
            if by:
                hashes = hash_values(job.seed, select_split_column(values, by, names))
            else:
                hashes = hash_rows(
                    _compute_path_hashes(job.seed, "split", [chunk.path]).repeat(rows), positions, None
                )
        if rule.stratify:
            strata = hash_values(0, select_split_column(values, rule.stratify, names))
        wanted = [name for name in _column_names(values) if job.select is None or name in job.select]
        if rule.from_source and SPLIT_COLUMN not in job.schema:
            wanted = [name for name in wanted if name != SPLIT_COLUMN]
        return _select_columns(values, wanted), (splits, keys, hashes, strata)

    def _encoded(
        self,
        frames: Any,
        lengths: IntArray,
        splits: Any,
        keys: HashArray | None,
        hashes: HashArray | None,
        strata: HashArray | None,
        index: dict[str, Any] | None,
    ) -> EncodedRows:
        if hashes is not None and strata is None:
            splits = self._job.splits.assign_splits(hashes)
            hashes = None
        return EncodedRows(
            frames=frames,
            lengths=lengths,
            splits=splits,
            keys=keys,
            strata=strata,
            hashes=hashes,
            index=index,
        )

    # Places.

    def _place(self, row: SourceRow) -> Location:
        path = full_path(self._job.source, row.path)
        # A file that is one row has no row numbers.
        counted = not row.path or row.line is not None or row.position > 0
        return Location(path=path or None, row=row.position if counted else None, line=row.line)

    def _locate_chunk_row(self, chunk: ColumnChunk, row: int) -> Location:
        path = full_path(self._job.source, chunk.path)
        return Location(path=path or None, row=chunk.first + row, line=chunk.line_of(row))


class _PendingRows:
    """What is known of the rows that wait in the encoder, besides their bytes."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.positions: list[int] = []
        self.copies: list[int] = []
        self.lengths: list[int] = []
        self.splits: list[int] = []
        self.blobs: list[BlobInFile | None] = []
        self.by: list[bytes] = []
        self.strata: list[bytes] = []

    def add(
        self, row: SourceRow, copy: int, length: int, split: int, by: bytes | None, stratum: bytes | None
    ) -> None:
        self.paths.append(row.path)
        self.positions.append(row.position)
        self.copies.append(copy)
        self.lengths.append(length)
        self.splits.append(split)
        if by is not None:
            self.by.append(by)
        if stratum is not None:
            self.strata.append(stratum)


def _find_passthrough_file(row: Mapping[str, Any], stored: Mapping[str, Any]) -> tuple[str, bytes] | None:
    """The first file whose bytes are stored as they are, where it is large enough to be read twice."""
    for name, value in row.items():
        if isinstance(value, PurePath):
            data = stored.get(name)
            if isinstance(data, bytes) and len(data) >= MIN_DEFERRED_BYTES and not isinstance(data, GeneratedBytes):
                return str(value), data
    return None


def _compute_path_hashes(seed: int, salt: Any, paths: list[str]) -> HashArray:
    known: dict[str, int] = {}
    for path in paths:
        if path not in known:
            known[path] = hash_text(seed, salt, path.encode("utf-8", "surrogateescape"))
    return np.array([known[path] for path in paths], np.uint64)


def _iter_rows(chunk: ColumnChunk) -> Iterator[SourceRow]:
    """The rows of a chunk one by one, for what must look at each."""
    values = chunk.values
    if isinstance(values, pa.RecordBatch):
        dicts = values.to_pylist()
    else:
        columns = {
            name: column.to_pylist() if isinstance(column, (pa.Array, pa.ChunkedArray)) else column
            for name, column in values.items()
        }
        dicts = [{name: column[i] for name, column in columns.items()} for i in range(chunk.rows)]
    for i, row in enumerate(dicts):
        yield SourceRow(chunk.path, chunk.first + i, row, chunk.line_of(i))


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
