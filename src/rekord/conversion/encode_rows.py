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

from rekord.codec.columns import column_to_arrow
from rekord.codec.decode import assemble, new_batch
from rekord.codec.encode import pool, row_encoder
from rekord.codec.encode_columns import encoded_batches
from rekord.codec.images.inspect import Made
from rekord.codec.plan import CodecPlan, compile_plan
from rekord.conversion.plan import Job, OnBadRow
from rekord.conversion.spill import HOLE_BYTES, Encoded, Ints, Passed, cut_out
from rekord.conversion.splits import (
    SPLIT,
    Hashes,
    column_to_split_by,
    own_split,
    own_splits,
    row_hashes,
    text_hash,
    value_hashes,
    value_to_split_by,
)
from rekord.errors import DataError, RekordError, error
from rekord.layouts.base import Derived, Layout, Remark, Verify
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.messages import shown
from rekord.sources.base import Chunk, Columns, Row, full_path
from rekord.transforms.base import Bound
from rekord.transforms.chain import Chain, described


class BadRows:
    """What was wrong in one part, in the order of its rows."""

    def __init__(self, on_bad_row: OnBadRow) -> None:
        self.rejecting = on_bad_row == "reject"
        self._rejects: list[bytes] = []
        self._remarks: list[bytes] = []
        self.remark_counts: Counter[str] = Counter()

    @property
    def rejected(self) -> int:
        return len(self._rejects)

    @property
    def remarked(self) -> int:
        return len(self._remarks)

    def refuse(self, failure: RekordError, place: Location) -> None:
        """Note a bad row, or raise it."""
        known = failure.location
        # An image's own file says more than the list that names it; else the place of the row is what to look at.
        if known.path is None or place.path is None or known.path == place.path:
            row = known.row if place.row is None else place.row
            line = place.line if known.line is None else known.line
            failure.location = replace(known, path=known.path or place.path, row=row, line=line)
        if not self.rejecting:
            raise failure
        self._rejects.append(_line({"origin": failure.location.to_dict(), **_said(failure)}))

    def remark(self, remark: Remark, place: Location) -> None:
        """Note something that is no error."""
        self.remark_counts[remark.code] += 1
        document = {
            "origin": {**place.to_dict(), "feature": remark.feature},
            "code": remark.code,
            "what": remark.what,
        }
        self._remarks.append(_line(document))

    def rejects_file(self) -> bytes:
        return b"".join([line + b"\n" for line in self._rejects])

    def remarks_file(self) -> bytes:
        return b"".join([line + b"\n" for line in self._remarks])


def _said(failure: RekordError) -> dict[str, Any]:
    told = failure.to_dict()
    return {name: told[name] for name in ("error", "code", "what", "expected", "found", "likely", "do")}


def _line(document: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return msgspec.json.encode(_as_utf8(document))


def _as_utf8(value: Any) -> Any:
    """A document whose texts JSON can hold: a name on the disk need not be UTF-8."""
    if isinstance(value, dict):
        return {name: _as_utf8(inner) for name, inner in value.items()}
    if not isinstance(value, str):
        return value
    with suppress(UnicodeEncodeError):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return value.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True)
class Shaped:
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
    def looks(self) -> bool:
        """Always: each row is made anew."""
        return True

    @property
    def class_names(self) -> Any:
        """Those of the layout within, which may have some for its companions."""
        return getattr(self.layout, "class_names", None)

    def options(self) -> Mapping[str, Any]:
        return {**self.layout.options(), "transforms": [described(step) for step in self.chain.steps]}

    def derive(self, row: Mapping[str, Any], verify: Verify) -> Derived:
        derived = self.layout.derive(row, verify)
        return Derived(self._bound.apply(dict(derived.values)), derived.remarks)


_PIECE_BYTES = 8 << 20
"""How many bytes of frames are handed on at once."""

_HEAR_SECONDS = 0.2


class Encoding:
    """Encodes the rows of one part. What is wrong with a row goes to `bad`, which decides what follows from it."""

    def __init__(self, job: Job, bad: BadRows) -> None:
        self._job = job
        self.bad = bad
        self._encoder = row_encoder(job.schema)
        self._index = compile_plan(job.schema, job.index) if job.index else None
        self._pending = _Pending()
        self._waiting_bytes = 0
        self._columns_as_rows = job.layout.looks or job.function is not None
        self.rows = 0
        self.heard: Callable[[], None] | None = None  # called now and then while rows wait for their piece
        self._hears_at = 0.0

    def pieces(self, chunks: Iterable[Chunk]) -> Iterator[Encoded]:
        """The rows of all chunks, in order."""
        for chunk in chunks:
            if isinstance(chunk, Row):
                self._row(chunk)
            elif self._columns_as_rows:
                for row in _rows_of(chunk):
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

    def _row(self, row: Row) -> None:
        self.rows += 1
        # A function of the user may be slow, and a piece of small rows then takes minutes.
        if self.heard is not None and (now := time.monotonic()) >= self._hears_at:
            self._hears_at = now + _HEAR_SECONDS
            self.heard()
        if isinstance(row.values, RekordError):
            self.bad.refuse(row.values, self._place(row))
            return
        try:
            mapped = [row.values] if self._job.function is None else self._mapped(row.values)
        except DataError as failure:
            self.bad.refuse(failure, self._place(row))
            return
        for copy, values in enumerate(mapped):
            try:
                self._append(row, copy, values)
            except DataError as failure:
                self._say_what_map_needs(failure)
                self.bad.refuse(failure, self._place(row))

    def _say_what_map_needs(self, failure: DataError) -> None:
        """A column that only the function knows can be declared nowhere but in a schema."""
        hinted = (failure.do or "").startswith("did you mean")
        if failure.code == "E309" and self._job.function is not None and self._job.inferred and not hinted:
            failure.do = (
                "say what `map=` returns with schema= (--schema FILE): "
                "without it, the columns are those of the rows before"
            )

    def _append(self, row: Row, copy: int, values: Mapping[str, Any]) -> None:
        job = self._job
        rule = job.splits
        # All that may refuse the row comes before the encoder takes it.
        split = rule.names.index(own_split(values, rule.names)) if rule.from_source else 0
        group = rule.by or job.key
        by = value_to_split_by(values, group) if group else None
        stratum = value_to_split_by(values, rule.stratify) if rule.stratify else None
        if rule.from_source and SPLIT not in job.schema:
            values = {name: value for name, value in values.items() if name != SPLIT}
        if job.select is not None:
            given = values
            values = {name: given[name] for name in job.select if name in given}
            if job.inferred and job.function is not None:
                # What it adds is refused further on, not lost here.
                values |= {
                    name: one for name, one in given.items() if name not in job.schema and name != SPLIT
                }
        passed = None
        if job.layout.looks:
            derived = job.layout.derive(values, job.verify)
            passed = _passed_through(values, derived.values)
            values = derived.values
            for remark in derived.remarks:
                self.bad.remark(remark, self._place(row))
        before = self._waiting_bytes
        self._waiting_bytes = self._encoder.append(values)
        self._pending.add(row, copy, self._waiting_bytes - before, split, by, stratum)
        self._pending.passed.append(passed)

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
                do="mend the function, or have it return None for rows to leave out",
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
                found=shown(wrong),
                do='return {"label": 1, ...}',
            )
        return rows

    def _taken(self) -> Encoded:
        frames: Any = self._encoder.take()
        self._waiting_bytes = 0
        pending, self._pending = self._pending, _Pending()
        job = self._job
        seed = job.seed
        positions = np.array(pending.positions, np.int64)
        copies = np.array(pending.copies, np.int64) if any(pending.copies) else None
        keys = None
        if job.shuffle:
            keys = row_hashes(_bases(seed, "order", pending.paths), positions, copies)
        hashes = None
        if len(job.splits.names) > 1 and not job.splits.from_source:
            if pending.by:
                hashes = np.array([text_hash(seed, "split", value) for value in pending.by], np.uint64)
            else:
                # All copies of a row go to one split: what a model has seen in another form it has seen.
                hashes = row_hashes(_bases(seed, "split", pending.paths), positions, None)
        strata = None
        if pending.strata:
            strata = np.array([text_hash(0, "split", value) for value in pending.strata], np.uint64)
        splits = np.array(pending.splits, np.uint8)
        encoded = self._encoded(frames, np.array(pending.lengths, np.int64), splits, keys, hashes, strata)
        if any(pending.passed):
            cut_out(encoded, pending.passed)
        return encoded

    # Columns.

    def _columns(self, chunk: Columns, begin: int, end: int) -> Iterator[Encoded]:
        """Rows `begin` to `end` of a chunk; where they cannot be encoded together, the halves of them."""
        if begin == end:
            return
        try:
            values, facts = self._prepared(chunk, begin, end)
            batches = encoded_batches(values, self._job.schema, enough_bytes=_PIECE_BYTES)
        except DataError as failure:
            whole_column = failure.location.row is None and end - begin > 1
            if end - begin == 1 or (
                whole_column and begin == 0 and end == chunk.rows and not self.bad.rejecting
            ):
                self.bad.refuse(failure, self._chunk_place(chunk, begin + (failure.location.row or 0)))
                return
            middle = (begin + end) // 2
            yield from self._columns(chunk, begin, middle)
            yield from self._columns(chunk, middle, end)
            return
        done = 0
        for frames, rows, ends in batches.with_ends():
            lengths = np.diff(ends, prepend=0)
            part = [None if fact is None else fact[done : done + rows] for fact in facts]
            splits, keys, hashes, strata = part
            assert splits is not None
            yield self._encoded(frames, lengths, splits, keys, hashes, strata)
            done += rows

    def _prepared(self, chunk: Columns, begin: int, end: int) -> tuple[Any, tuple[Any, ...]]:
        """What is to be stored of these rows, and (splits, keys, hashes, strata) of them."""
        job, rule = self._job, self._job.splits
        rows = end - begin
        values = _slice(chunk.values, begin, end)
        names = set(_names(values))
        positions = np.arange(chunk.first + begin, chunk.first + end, dtype=np.int64)
        splits = np.zeros(rows, np.uint8)
        keys = hashes = strata = None
        if job.shuffle:
            keys = row_hashes(_bases(job.seed, "order", [chunk.path]).repeat(rows), positions, None)
        if rule.from_source:
            splits = own_splits(column_to_split_by(values, SPLIT, names), rule.names)
        elif len(rule.names) > 1:
            by = rule.by or job.key
            if by:
                hashes = value_hashes(job.seed, column_to_split_by(values, by, names))
            else:
                hashes = row_hashes(_bases(job.seed, "split", [chunk.path]).repeat(rows), positions, None)
        if rule.stratify:
            strata = value_hashes(0, column_to_split_by(values, rule.stratify, names))
        wanted = [name for name in _names(values) if job.select is None or name in job.select]
        if rule.from_source and SPLIT not in job.schema:
            wanted = [name for name in wanted if name != SPLIT]
        return _selected(values, wanted), (splits, keys, hashes, strata)

    def _encoded(
        self,
        frames: Any,
        lengths: Ints,
        splits: Any,
        keys: Hashes | None,
        hashes: Hashes | None,
        strata: Hashes | None,
    ) -> Encoded:
        if hashes is not None and strata is None:
            splits = self._job.splits.of_hashes(hashes)
            hashes = None
        index = None if self._index is None else decoded_columns(self._index, frames, len(lengths))
        return Encoded(
            frames=frames,
            lengths=lengths,
            splits=splits,
            keys=keys,
            strata=strata,
            hashes=hashes,
            index=index,
        )

    # Places.

    def _place(self, row: Row) -> Location:
        path = full_path(self._job.source, row.path)
        # A file that is one row has no row numbers.
        counted = not row.path or row.line is not None or row.position > 0
        return Location(path=path or None, row=row.position if counted else None, line=row.line)

    def _chunk_place(self, chunk: Columns, row: int) -> Location:
        path = full_path(self._job.source, chunk.path)
        return Location(path=path or None, row=chunk.first + row, line=chunk.line_of(row))


class _Pending:
    """What is known of the rows that wait in the encoder, besides their bytes."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.positions: list[int] = []
        self.copies: list[int] = []
        self.lengths: list[int] = []
        self.splits: list[int] = []
        self.passed: list[Passed | None] = []
        self.by: list[bytes] = []
        self.strata: list[bytes] = []

    def add(
        self, row: Row, copy: int, length: int, split: int, by: bytes | None, stratum: bytes | None
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


def _passed_through(row: Mapping[str, Any], stored: Mapping[str, Any]) -> Passed | None:
    """The first file whose bytes are stored as they are, where it is large enough to be read twice."""
    for name, value in row.items():
        if isinstance(value, PurePath):
            data = stored.get(name)
            if isinstance(data, bytes) and len(data) >= HOLE_BYTES and not isinstance(data, Made):
                return Passed(str(value), data)
    return None


def decoded_columns(plan: CodecPlan, frames: Any, rows: int) -> dict[str, Any]:
    """The columns of a plan, as Arrow arrays, from frames that were just encoded."""
    view = memoryview(frames).cast("B")
    slab = pool().slab(len(view))
    slab.view()[: len(view)] = view
    batch = new_batch(plan, pool())
    batch.feed(slab, 0, len(view), len(view), rows)
    columns = assemble(plan, batch.take(), rows)
    return {name: column_to_arrow(column) for name, column in columns.items()}


def _bases(seed: int, salt: Any, paths: list[str]) -> Hashes:
    known: dict[str, int] = {}
    for path in paths:
        if path not in known:
            known[path] = text_hash(seed, salt, path.encode("utf-8", "surrogateescape"))
    return np.array([known[path] for path in paths], np.uint64)


def _rows_of(chunk: Columns) -> Iterator[Row]:
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
        yield Row(chunk.path, chunk.first + i, row, chunk.line_of(i))


def _names(values: Any) -> list[str]:
    return list(values.schema.names) if isinstance(values, pa.RecordBatch) else list(values)


def _slice(values: Any, begin: int, end: int) -> Any:
    if isinstance(values, pa.RecordBatch):
        return values.slice(begin, end - begin)
    return {name: column[begin:end] for name, column in values.items()}


def _selected(values: Any, names: list[str]) -> Any:
    if isinstance(values, pa.RecordBatch):
        return values.select(names)
    return {name: values[name] for name in names}
