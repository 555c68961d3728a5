"""Changes of columns, and the source that applies them to stored records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rekord import _core
from rekord.arguments import conflicting_options, one_of
from rekord.codec.columns import Optional, Ragged, Strings
from rekord.codec.decode import SequenceExample, assemble_columns, decode, new_batch, row_error
from rekord.codec.plan import CodecPlan, compile_plan
from rekord.dataset.read import explain_frame_error, next_frames, open_slabs
from rekord.dataset.samplers import Ids
from rekord.errors import RekordError, closest_match, error, preview
from rekord.faults import frame_error
from rekord.framing.frames import FrameSegment
from rekord.layouts.base import DerivedRow, Verify
from rekord.location import Location
from rekord.schema import Bytes, Feature, Float32, Int64, Label, Mask, Schema, Tensor, Text
from rekord.schema.base import ABSENT, FLOAT_DTYPES, INTEGER_DTYPES, dtype_name
from rekord.sources.base import (
    PART_BYTES,
    Chunk,
    ColumnChunk,
    SourceFacts,
    SourceFile,
    SourcePart,
    SourceRow,
    group_by_bytes,
)
from rekord.sources.image_folder import to_printable_path
from rekord.storage.router import ROUTED_STORAGE
from rekord.transforms.base import is_numeric, is_tensor, is_text_feature, rebuild_schema
from rekord.transforms.numeric import CAST_TARGETS
from rekord.transforms.numeric import cast as cast_transform

_ALIASES = {"int": "int64", "float": "float32", "str": "text", "string": "text"}
_CASTABLE = {*INTEGER_DTYPES, *FLOAT_DTYPES, "float64", "text", "bytes"}


@dataclass(frozen=True)
class ColumnRewrite:
    """One column before and after."""

    old: str
    new: str
    read: Feature
    made: Feature
    cast: bool = False  # records may hold another kind than declared, and all become `made`


@dataclass(frozen=True)
class SchemaChange:
    """All columns before and after."""

    before: Schema
    columns: tuple[ColumnRewrite, ...]
    schema: Schema  # of the new records
    lossy: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple([one.old for one in self.columns])

    @property
    def cast(self) -> tuple[ColumnRewrite, ...]:
        """The columns that are cast."""
        return tuple([one for one in self.columns if one.cast])

    def reading(self, kinds: Mapping[str, str]) -> Schema:
        """The schema to read records with, if the cast columns have these kinds."""
        read = {one.old: _adapt_to_kind(one.read, kinds.get(one.old)) for one in self.columns}
        return rebuild_schema(self.before, {name: read.get(name, one) for name, one in self.before.items()})

    def applied(self, columns: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, Any]:
        """Columns that were read with `reading(kinds)`, as they will be stored."""
        made: dict[str, Any] = {}
        for one in self.columns:
            column = columns[one.old]
            if one.cast:
                read = _adapt_to_kind(one.read, kinds.get(one.old))
                column = cast_column(column, one.old, read, one.made, lossy=self.lossy)
            made[one.new] = column
        return made

    def options(self) -> dict[str, Any]:
        """The entry in the manifest, which also contains the new schema."""
        return {
            "renamed": {one.old: one.new for one in self.columns if one.old != one.new},
            "kept": list(self.names),
            "cast": [one.old for one in self.cast],
            "before": self.before.to_dict(evidence=False),
            "lossy": self.lossy,
        }


def plan_schema_change(
    before: Schema,
    *,
    schema: Schema | None,
    cast: Mapping[str, Any] | None,
    rename: Mapping[str, str] | None,
    drop: Sequence[str] | None,
    keep: Sequence[str] | None,
    fill: Mapping[str, Any] | None,
    lossy: bool,
) -> SchemaChange:
    """The requested changes to records of the schema `before`. Names are those of its columns or keys."""
    casts, renames = _validate_mapping("cast", cast, before), _validate_mapping("rename", rename, before)
    fills = _validate_mapping("fill", fill, before)
    kept = _select_columns(
        before,
        _validate_names("drop", drop, before),
        None if keep is None else _validate_names("keep", keep, before),
    )
    if schema is not None:
        if kept != list(before) or renames:
            raise _rewrite_option_error(
                "schema", "it cannot be combined with drop, keep or rename", "leave out drop=, keep= and rename="
            )
        kept, casts = _match_schema(before, schema, casts, fills)
    for what, names in (("cast", casts), ("rename", renames), ("fill", fills)):
        for name in names:
            before[name]  # raises for an unknown column, with near misses
            if name not in kept:
                raise _rewrite_option_error(what, f"`{name[:60]}` is dropped", f"leave it out of {what}=")
    columns = []
    for name in kept:
        read = made = before[name]
        if name in casts:
            made = _cast_feature(name, read, casts[name])
        if name in fills:
            read = replace(read, optional=True, default=ABSENT)
            made = replace(made, optional=False, default=_broadcast_fill_value(made, fills[name]))
        new = renames.get(name, name)
        columns.append(ColumnRewrite(name, new, read, made, cast=name in casts))
    _check_names(columns)
    made_by_old = {one.old: one for one in columns}
    for i, one in enumerate(columns):
        if isinstance(one.made, Mask) and one.made.of in made_by_old:
            columns[i] = replace(one, made=replace(one.made, of=made_by_old[one.made.of].new))
    steps = {one.new for one in columns if one.old in before.steps}
    after = schema or rebuild_schema(before, {one.new: one.made for one in columns}, steps)
    return SchemaChange(before, tuple(columns), after, lossy=bool(lossy))


def cast_column(column: Any, name: str, read: Feature, made: Feature, *, lossy: bool) -> Any:
    """A column of one feature as values for another."""
    if _is_time(read) != _is_time(made) and read.family == made.family and read.family:
        # Integers and timestamps are stored in the same way: the schema declares the unit of timestamps.
        ticks = np.dtype(np.int64) if _is_time(read) else made.dtype
        return _map_values(column, lambda values: values.astype(np.int64).view(ticks))
    if is_text_feature(read) and (is_text_feature(made) or made.class_count is not None):
        return column if made.value_kind == "bytes" else _decode_texts(column, lossy=lossy)
    if not (is_numeric(read) or is_text_feature(read)) or not (is_numeric(made) or is_text_feature(made)):
        return column  # the encoder reports what does not fit
    dtype = _get_cast_dtype(made)
    if dtype == _get_cast_dtype(read) or not {dtype, _get_cast_dtype(read)} <= _CASTABLE:
        return column
    if is_numeric(read) and is_numeric(made):
        apply = cast_transform(name, dtype, lossy=lossy).bind(Schema({name: _flatten_feature(read)})).apply
        return _map_values(column, lambda values: apply({name: values})[name])
    apply = cast_transform(name, dtype, lossy=lossy).bind(Schema({name: read})).apply
    return [apply({name: column[row]})[name] for row in range(len(column))]


def _is_time(feature: Feature) -> bool:
    return getattr(feature.dtype, "kind", "") == "M"


def _get_cast_dtype(feature: Feature) -> str:
    """The type of a column of numbers or text, as casts name it."""
    named: dict[type[Feature], str] = {Label: "int64", Text: "text", Bytes: "bytes"}
    return named.get(type(feature)) or get_dtype_name(feature) or ""


def _flatten_feature(feature: Feature) -> Feature:
    """The feature for all values of a numeric column as one list."""
    if feature.class_count is not None:
        return Int64((None,))
    if is_tensor(feature):
        return Tensor(feature.dtype, (None,))
    made = Int64 if feature.kind == "int64" else Float32
    return made((None,), dtype=get_dtype_name(feature))


def _map_values(column: Any, function: Any) -> Any:
    """Apply a function to all values of a numeric column, whatever its form."""
    if isinstance(column, Ragged):
        return Ragged(_map_values(column.values, function), column.offsets, valid=column.valid)
    if isinstance(column, Optional):
        present = column.values[column.valid]
        made = _map_values(present, function)
        values = np.zeros(column.values.shape, made.dtype)
        values[column.valid] = made
        return Optional(values, column.valid)
    return function(column.reshape(-1)).reshape(column.shape)


def _decode_texts(column: Any, *, lossy: bool) -> Any:
    """Byte strings as text if they are UTF-8; the encoder reports the others."""
    if isinstance(column, Strings) and column.text:
        return column
    return [_decode_text(value, lossy=lossy) for value in column.tolist()]


def _decode_text(value: Any, *, lossy: bool) -> Any:
    if isinstance(value, list):
        return [_decode_text(one, lossy=lossy) for one in value]
    try:
        return value.decode("utf-8", "replace" if lossy else "strict") if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def _adapt_to_kind(feature: Feature, kind: str | None) -> Feature:
    """The feature to read a key with that holds another kind of list than declared."""
    if kind is None or kind == feature.kind:
        return feature
    made: Any = {"int64": Int64, "float": Float32, "bytes": Bytes}[kind]
    read: Feature = made(feature.shape, key=feature.key, optional=feature.optional)
    return read


def _cast_feature(name: str, feature: Feature, wanted: Any) -> Feature:
    if isinstance(wanted, Feature):
        return wanted
    if not isinstance(wanted, str):
        raise _rewrite_option_error(
            "cast", f"{preview(wanted)} is not a type", f'cast={{"{name[:40]}": "int64"}}', feature=name
        )
    dtype = _ALIASES.get(wanted, wanted)
    one_of("cast", dtype, CAST_TARGETS, do=f'cast={{"{name[:40]}": "int64"}}')
    if feature.class_count is not None and dtype == "int64":
        return feature  # a Label is stored as int64
    made: Feature = cast_transform(name, dtype, lossy=True).bind(Schema({name: feature})).schema[name]
    same = type(made) is type(feature) and get_dtype_name(made) == get_dtype_name(feature)
    return feature if same else made


def get_dtype_name(feature: Feature) -> str | None:
    """The name of a feature's dtype, if it has one."""
    dtype = getattr(feature, "dtype", None)
    return None if dtype is None else dtype_name(dtype)


def _match_schema(
    before: Schema, schema: Schema, casts: Mapping[str, Any], fills: Mapping[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """The columns that a schema keeps of another, and the types that they are cast to."""
    if casts or fills:
        raise _rewrite_option_error("schema", "it cannot be combined with cast or fill", "leave out cast= and fill=")
    if not isinstance(schema, Schema):
        raise _rewrite_option_error("schema", f"{preview(schema)} is not a schema", "schema=rk.Schema.load(path)")
    if schema.kind != before.kind:
        why = f"it is for records of kind {schema.kind}, and these are of kind {before.kind}"
        raise _rewrite_option_error("schema", why, f"use a schema for records of kind {before.kind}")
    for name, feature in schema.items():
        if name not in before and not feature.optional and feature.default is ABSENT:
            near = closest_match(name, list(before))
            raise error(
                "U605",
                f"`schema` cannot be used: records have no column `{name[:60]}`",
                location=Location(feature=name),
                expected="columns of the records, optional columns, or columns with a default",
                found=f"a required column `{name[:60]}`",
                do=f"did you mean `{near}`?" if near else "declare it with optional=True",
            )
    return [name for name in before if name in schema], {
        name: schema[name] for name in before if name in schema and schema[name] != before[name]
    }


def _select_columns(before: Schema, drop: list[str], keep: list[str] | None) -> list[str]:
    for name in [*drop, *(keep or ())]:
        before[name]
    if drop and keep is not None:
        raise conflicting_options("drop", "keep")
    kept = [name for name in before if name not in drop and (keep is None or name in keep)]
    if not kept:
        raise _rewrite_option_error("drop", "no column would be left", "keep at least one column")
    return kept


def _check_names(columns: Sequence[ColumnRewrite]) -> None:
    seen: dict[str, str] = {}
    for one in columns:
        if not isinstance(one.new, str) or not one.new:
            do = f'rename={{"{one.old[:40]}": "other"}}'
            raise _rewrite_option_error("rename", f"{preview(one.new)} is not a valid name", do)
        if one.new in seen:
            raise _rewrite_option_error(
                "rename",
                f"`{seen[one.new][:60]}` and `{one.old[:60]}` would both be named `{one.new[:60]}`",
                f'rename={{"{one.old[:40]}": "other"}}',
                feature=one.old,
            )
        seen[one.new] = one.old


def _broadcast_fill_value(feature: Feature, value: Any) -> Any:
    """The fill value of a column; a scalar fills a fixed shape."""
    shape = feature.shape
    scalar = not isinstance(value, (list, tuple, np.ndarray))
    if not shape or not scalar or None in shape:
        return value
    filled: Any = value
    for size in reversed(shape):
        filled = [filled] * (size or 0)
    return filled


def _resolve_column(name: str, before: Schema) -> str:
    """The column with this name, or with this record key."""
    stored = [column for column, feature in before.items() if feature.record_keys(column) == (name,)]
    return stored[0] if name not in before and len(stored) == 1 else name


def _validate_mapping(name: str, given: Any, before: Schema) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(column, str) for column in given):
        raise _rewrite_option_error(name, f"{preview(given)} is not a mapping of columns", f'{name}={{"column": …}}')
    return {_resolve_column(column, before): value for column, value in given.items()}


def _validate_names(name: str, given: Any, before: Schema) -> list[str]:
    if given is None:
        return []
    if isinstance(given, (str, bytes)) or not all(isinstance(column, str) for column in given):
        raise _rewrite_option_error(name, f"{preview(given)} is not a list of columns", f'{name}=["column"]')
    return [_resolve_column(column, before) for column in given]


def _rewrite_option_error(name: str, why: str, do: str, *, feature: str | None = None) -> RekordError:
    return error(
        "U605",
        f"`{name}` cannot be used: {why}",
        location=Location(feature=feature),
        expected="a valid change of columns",
        found=why,
        do=do,
    )


_MAX_ROWS = 8192
_IDLE_BYTES = 16 << 20


@dataclass(frozen=True)
class StoredRecordLayout:
    """The layout of stored records: their images were validated when they were written."""

    schema: Schema

    @property
    def name(self) -> str:
        return "plain"

    @property
    def needs_derive(self) -> bool:
        """Never."""
        return False

    def options(self) -> Mapping[str, Any]:
        return {}

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        """The row unchanged: only transforms follow."""
        return DerivedRow(dict(row), ())


@dataclass(frozen=True)
class RewriteInputFile:
    """A record file, its split, and its selected records in order (None: all)."""

    path: str
    split: str
    size_bytes: int
    mtime_ns: int
    chosen: Ids | None = field(default=None, compare=False)


@dataclass(frozen=True)
class RewriteSource:
    """The source of records to change. A part is one file or several small ones."""

    files: tuple[RewriteInputFile, ...]
    change: SchemaChange
    strict: bool  # whether a key that is not in the schema makes a record invalid
    splits: tuple[str, ...] | None  # None if all records go to one
    extra: Mapping[str, Any]  # for the manifest: what else determines the records
    rows: int | None = None

    @property
    def kind(self) -> str:
        return "records"

    @property
    def root(self) -> str:
        """No common root: the files may belong to several datasets."""
        return ""

    def options(self) -> Mapping[str, Any]:
        return {"change": self.change.options(), "strict": self.strict, **self.extra}

    def facts(self) -> SourceFacts:
        return SourceFacts(
            layout="table",
            schema=self.change.schema,
            rows=self.rows,
            source_bytes=sum(file.size_bytes for file in self.files),
            splits=self.splits,
            files=tuple(
                SourceFile(to_printable_path(os.path.basename(one.path)), one.size_bytes, one.mtime_ns)
                for one in self.files
            ),
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        sized = ((i, file.size_bytes) for i, file in enumerate(self.files))
        return [SourcePart(numbers, cost) for numbers, cost in group_by_bytes(sized, part_bytes)]

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        """The rows of a part; a file is not read beyond a corrupt record."""
        for number in part.content:
            file = self.files[number]
            now = ROUTED_STORAGE.stat(file.path)
            if (now.size_bytes, now.mtime_ns) != (file.size_bytes, file.mtime_ns):
                raise error(
                    "X548",
                    location=Location(path=file.path),
                    expected="the same file as at the start",
                    found="another file",
                    do="run it again when the file is no longer written to",
                )
            yield from _RewriteFileReader(self, number).chunks()

    def name_of(self, number: int) -> str:
        """The path of a file's rows, numbered because files of two datasets may share a name."""
        return f"{number:06d}/{to_printable_path(os.path.basename(self.files[number].path))}"

    def locate_records(self, path: str, positions: Any) -> tuple[str, Any]:
        """The file of rows, and their records in it."""
        file = self.files[int(path[:6])]
        return file.path, positions if file.chosen is None else np.asarray(file.chosen)[positions]

    def place(self, where: Location) -> Location:
        """The location of a row as that of its record: the file, and the number in it."""
        if where.record is not None or where.row is None or where.path is None or not where.path[:6].isdigit():
            return replace(where, row=None)
        file = self.files[int(where.path[:6])]
        record = where.row if file.chosen is None else int(file.chosen[where.row])
        return replace(where, path=to_printable_path(file.path), row=None, record=record)


class _RewriteFileReader:
    """Reads one file. The kinds of cast columns are assumed to be those of the previous record."""

    def __init__(self, source: RewriteSource, number: int) -> None:
        self._source = source
        self._change = source.change
        self._file = source.files[number]
        self._name = source.name_of(number)
        self._kinds: dict[str, str] = {}
        self._plans: dict[tuple[tuple[str, str], ...], CodecPlan] = {}
        self._pool = _core.Pool(_IDLE_BYTES)
        self._done = 0  # rows that were yielded

    def chunks(self) -> Iterator[Chunk]:
        with open_slabs(self._file.path, self._pool, reuse=False) as reader:
            while True:
                try:
                    segment = next_frames(reader, _MAX_ROWS)
                except RekordError as failure:
                    yield SourceRow(self._name, self._done, failure)
                    return
                if segment is None:
                    return
                for chunk in self._segment(segment):
                    yield chunk
                    if isinstance(chunk, SourceRow) and isinstance(chunk.values, RekordError):
                        return

    def _segment(self, segment: FrameSegment) -> Iterator[Chunk]:
        if self._file.chosen is None:
            batch = new_batch(self._plan(self._kinds), self._pool)
            size = segment.end - segment.begin
            consumed, _, frame, row = batch.feed(segment.slab, segment.begin, segment.end, size, segment.frames)
            if frame is None and row is None and consumed == size:
                try:
                    yield self._columns(batch, segment.frames, self._kinds)
                except RekordError:
                    pass  # the record is identified below
                else:
                    return
        yield from self._one_by_one(segment)

    def _columns(self, batch: Any, rows: int, kinds: Mapping[str, str]) -> ColumnChunk:
        read = assemble_columns(self._plan(kinds), batch.take(), rows)
        made = self._change.applied(read, kinds)
        if self._source.splits is not None:
            made["split"] = [self._file.split] * rows
        columns = ColumnChunk(self._name, self._done, made, rows)
        self._done += rows
        return columns

    def _one_by_one(self, segment: FrameSegment) -> Iterator[Chunk]:
        """Records that do not all have the same kinds: consecutive ones that do form a chunk."""
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
                if isinstance(here, SourceRow):
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
            yield SourceRow(self._name, self._done, explain_frame_error(failure))

    def _kinds_of(self, payload: bytes, record: int, offset: int) -> dict[str, str] | SourceRow:
        """The kinds of the cast columns in a record; a bad row if it cannot be read or changed."""
        try:
            kinds = dict(self._kinds)
            if self._change.cast:
                found = decode(payload, kind="sequence" if self._change.before.is_sequence else None)
                context = found.context if isinstance(found, SequenceExample) else found
                for one in self._change.cast:
                    kind = _detect_kind(context.get(one.read.key or one.old))
                    if kind is not None:
                        kinds[one.old] = kind
            batch = new_batch(self._plan(kinds), self._pool)
            refusal = batch.add(payload)
            if refusal is not None:
                raise row_error(self._plan(kinds), *refusal, payload)
            self._change.applied(assemble_columns(self._plan(kinds), batch.take(), 1), kinds)
        except RekordError as failure:
            where = replace(failure.location, row=None)
            failure.location = where.within(path=self._file.path, record=record, offset=offset)
            return SourceRow(self._name, self._done, failure)
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


def _detect_kind(values: Any) -> str | None:
    """The kind of a decoded list; None if it is missing or empty."""
    if values is None or not len(values):
        return None
    if isinstance(values, list):
        return "bytes"
    return "int64" if values.dtype.kind == "i" else "float"
