"""Tables as rows: Arrow types as features, the schemas that exports carry, and the columns restored with them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from rekord import _core
from rekord.arguments import is_utf8_encodable
from rekord.codec.columns import Optional, Ragged, SparseColumn, column_to_arrow
from rekord.codec.decode import assemble_columns, new_batch
from rekord.codec.plan import compile_plan
from rekord.errors import RekordError, closest_match, error, preview
from rekord.location import Location
from rekord.schema import Bytes, Feature, Float32, Image, Int64, Schema, Sparse, Tensor, Text, Timestamp
from rekord.schema.column_evidence import is_lossy_in_float32
from rekord.schema.timestamp import TICKS_PER_SECOND
from rekord.sources.base import (
    FileListing,
    SourceFacts,
    SourceFile,
    SourceGuess,
    list_values,
    split_rows,
)


def build_facts(
    schema: Schema, rows: int, listing: FileListing, guesses: tuple[SourceGuess, ...] = ()
) -> SourceFacts:
    """The facts of table files after all of them were inspected."""
    return SourceFacts(
        layout="table",
        schema=schema,
        rows=rows,
        source_bytes=listing.source_bytes,
        files=listing.files,
        guesses=guesses,
    )


def inconsistent_file_error(
    listing: FileListing, file: SourceFile, column: str, *, expected: str, found: str
) -> RekordError:
    """The error for a file with other columns than the first one."""
    return error(
        "X523",
        f"`{column[:60]}` differs between files",
        location=Location(path=listing.full(file), feature=column[:60]),
        expected=f"{expected[:80]}, as in {listing.files[0].path}",
        found=found[:80],
        do="write the files of each kind to their own dataset: select them with a pattern",
    )


BATCH_BYTES = 4 << 20
BATCH_ROWS = 65_536
"""The most of a table in one chunk."""

SAMPLE_ROWS = 10_000
"""Rows of a column of doubles that are checked for loss in float32."""

_MAX_LEVELS = 32
_DOUBLES = re.compile("double|decimal|duration|time32|time64")


class TableColumn(NamedTuple):
    """A column of records, and the position of its values in a table."""

    name: str  # joined with "/" if it comes from a struct
    path: tuple[str, ...]
    feature: Feature  # as if every row had a value
    convert: Any  # the Arrow type to cast it to, None for its own
    note: str | None = None  # how its values are stored, if another way is possible


def find_table_columns(schema: Any, keep: Sequence[str] | None, path: str | None) -> tuple[TableColumn, ...]:
    """The columns of records for an Arrow schema; `keep` selects some, in order."""
    found: dict[str, TableColumn] = {}
    wanted = None if keep is None else tuple(keep)
    for top in schema:
        for name, places, kind in _iter_leaves(top.name, (top.name,), top.type):
            if wanted is not None and not any(_is_nested_in(name, one) for one in wanted):
                continue
            if name in found or not name or not is_utf8_encodable(name):
                raise _column_name_error(name, path, twice=name in found)
            feature, convert = _feature_for_arrow_type(name, kind, path)
            found[name] = TableColumn(name, places, feature, convert, _describe_conversion(kind))
    if wanted is not None:
        for one in wanted:
            if not any(_is_nested_in(name, one) for name in found):
                raise missing_column_error(one, schema.names, path)
        ordered = [name for one in wanted for name in found if _is_nested_in(name, one)]
        return tuple(found[name] for name in dict.fromkeys(ordered))
    if not found:
        raise _column_name_error("", path, twice=False)
    return tuple(found.values())


def _describe_conversion(kind: Any) -> str | None:
    import pyarrow as pa

    if kind is _IMAGE_STRUCT:
        return None
    if pa.types.is_decimal(kind) and kind.scale:
        return f"{kind} as floats"
    if pa.types.is_duration(kind):
        return f"{kind} in seconds"
    return f"{kind} in seconds since midnight" if pa.types.is_time(kind) else None


def guess_conversions(columns: Iterable[TableColumn]) -> tuple[SourceGuess, ...]:
    """What was decided about columns whose type no feature has."""
    return tuple(
        SourceGuess(one.name, f"`{one.name[:60]}` is stored from {one.note}")
        for one in columns
        if one.note is not None
    )


def build_table_schema(columns: Iterable[TableColumn], optional: Iterable[str]) -> Schema:
    """The schema of these columns, of which `optional` have nulls."""
    nullable = frozenset(optional)
    return Schema({c.name: _make_optional(c.feature) if c.name in nullable else c.feature for c in columns})


def widen_lossy_floats(columns: Sequence[TableColumn], batch: Any) -> tuple[TableColumn, ...]:
    """The columns, with float64 kept where float32 would merge different values among the first.

    Nobody declared float32 for them: losing digits is usual in training, but no value may become another one.
    """
    import pyarrow as pa

    out = []
    for column in columns:
        if column.feature.value_kind == "float" and not column.feature.shape and column.path[0] in batch.schema.names:
            values = read_column(batch.slice(0, SAMPLE_ROWS), column)
            if values.type == pa.float64() and is_lossy_in_float32(values.drop_null().to_numpy()):
                column = column._replace(feature=Tensor("float64"))
        out.append(column)
    return tuple(out)


def find_double_columns(columns: Sequence[TableColumn], schema: Any) -> list[str]:
    """The names of the top-level columns that may become doubles."""
    names = {
        column.path[0] for column in columns if column.feature.value_kind == "float" and not column.feature.shape
    }
    return [name for name in schema.names if name in names and _DOUBLES.search(str(schema.field(name).type))]


def read_batch(batch: Any, columns: tuple[TableColumn, ...] | Schema) -> Any:
    """The values of a batch for a chunk; `columns` is a schema if the files were exported."""
    if isinstance(columns, Schema):
        return restore_columns(batch, columns)
    return to_record_batch(batch, columns)


def to_record_batch(batch: Any, columns: Sequence[TableColumn]) -> Any:
    """A RecordBatch of these columns, as `rk.Writer.write_columns` accepts it."""
    import pyarrow as pa

    arrays = [read_column(batch, column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def read_column(batch: Any, column: TableColumn) -> Any:
    """The values of one column."""
    import pyarrow as pa

    array = batch.column(batch.schema.get_field_index(column.path[0]))
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    for name in column.path[1:]:
        # Flattened, a null struct is a null in each of its fields.
        array = array.flatten()[array.type.get_field_index(name)]
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
    if _is_list_view(array.type):
        array = _reorder_list_view(array)
    return array if column.convert is None else _cast_values(array, column.convert)


def _cast_values(array: Any, kind: Any) -> Any:
    """Values of another type; durations and times of day in seconds."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if not pa.types.is_duration(array.type) and not pa.types.is_time(array.type):
        return array.cast(kind)
    ticks = array.cast(pa.int32()) if array.type.bit_width == 32 else array
    return compute.divide(ticks.cast(pa.int64()).cast(kind, safe=False), float(TICKS_PER_SECOND[array.type.unit]))


def _reorder_list_view(views: Any) -> Any:
    """A list view as consecutive lists; Arrow's own cast gets the offsets wrong."""
    import pyarrow as pa

    return pa.LargeListArray.from_arrays(pa.array(_list_offsets(views)), views.flatten(), mask=views.is_null())


def _list_offsets(array: Any) -> Any:
    """The offsets of the lists in their flattened values; a null has no length."""
    from pyarrow import compute

    lengths = compute.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def choose_batch_rows(rows: int, size_bytes: int) -> int:
    """The number of rows for a chunk of a good size."""
    return max(1, min(BATCH_ROWS, BATCH_BYTES * max(rows, 1) // max(size_bytes, 1)))


def _iter_leaves(name: str, path: tuple[str, ...], kind: Any) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if not pa.types.is_struct(kind) or len(path) > _MAX_LEVELS:
        yield name, path, kind
        return
    fields = [kind.field(i) for i in range(kind.num_fields)]
    if {field.name for field in fields} == {"bytes", "path"} and _is_bytes(kind.field("bytes").type):
        yield name, (*path, "bytes"), _IMAGE_STRUCT
        return
    for inner in fields:
        yield from _iter_leaves(f"{name}/{inner.name}", (*path, inner.name), inner.type)


_IMAGE_STRUCT = object()
"""Stands for the type of a column that Hugging Face stores as bytes and path."""


def _feature_for_arrow_type(name: str, kind: Any, path: str | None) -> tuple[Feature, Any]:
    import pyarrow as pa

    if kind is _IMAGE_STRUCT:
        return Image(), None
    if pa.types.is_dictionary(kind):
        feature, convert = _feature_for_arrow_type(name, kind.value_type, path)
        return feature, convert or kind.value_type
    if pa.types.is_date(kind):
        return Timestamp("s"), pa.timestamp("s")
    if pa.types.is_decimal(kind) and kind.scale == 0:
        return Int64(), pa.int64()
    if pa.types.is_decimal(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind):
        return Float32(), pa.float64()
    if pa.types.is_null(kind):
        return Text(), pa.large_string()
    if _is_text(kind):
        return Text(), pa.large_string() if str(kind) == "string_view" else None
    if _is_bytes(kind):
        return Bytes(), None if str(kind) in ("binary", "large_binary") else pa.large_binary()
    if _is_number(kind):
        return _number_feature(kind, ()), None
    shape, inner = _list_shape(kind)
    if shape and (_is_number(inner) or ((len(shape) == 1 and _is_text(inner)) or _is_bytes(inner))):
        convert = None
        if str(inner).endswith("_view") or pa.types.is_fixed_size_binary(inner):
            convert = pa.large_string() if _is_text(inner) else pa.large_binary()
            for dimension in reversed(shape):
                convert = pa.large_list(convert) if dimension is None else pa.list_(convert, dimension)
        if _is_number(inner):
            return _number_feature(inner, shape), convert
        return (Text(shape=shape) if _is_text(inner) else Bytes(shape=shape)), convert
    raise error(
        "X525",
        f"`{name[:60]}` has unsupported type {str(kind)[:60]}",
        location=Location(path=path, feature=name[:60]),
        expected="numbers, bools, text, bytes, times, or lists of these with at most one variable dimension",
        found=str(kind)[:60],
        do="cast the column to numbers or text before writing the table, or skip it: columns=[…]",
    )


def _list_shape(kind: Any) -> tuple[tuple[int | None, ...], Any]:
    """The shape of nested lists, () if no feature can have it, and the type of their values."""
    import pyarrow as pa

    shape: list[int | None] = []
    while len(shape) < _MAX_LEVELS:
        if pa.types.is_fixed_size_list(kind):
            shape.append(kind.list_size)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or _is_list_view(kind):
            shape.append(None)
        else:
            break
        kind = kind.value_type
    if None in shape[1:] or 0 in shape:
        return (), kind
    return tuple(shape), kind


def _number_feature(kind: Any, shape: tuple[int | None, ...]) -> Feature:
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return Timestamp(kind.unit, shape, tz=kind.tz)
    if pa.types.is_floating(kind):
        return Float32(shape=shape, dtype="float16" if str(kind) == "halffloat" else "float32")
    return Int64(shape=shape, dtype=str(kind))


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return bool(number or pa.types.is_timestamp(kind))


def _is_list_view(kind: Any) -> bool:
    return "list_view" in str(kind)[:16]


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _is_bytes(kind: Any) -> bool:
    import pyarrow as pa

    return str(kind) in ("binary", "large_binary", "binary_view") or pa.types.is_fixed_size_binary(kind)


def _make_optional(feature: Feature) -> Feature:
    return type(feature)(**{**feature.declared(), "optional": True})


def _is_nested_in(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(f"{wanted}/")


def _column_name_error(name: str, path: str | None, *, twice: bool) -> RekordError:
    return error(
        "X522",
        f"two columns are named `{name[:60]}`" if twice else "column has no name",
        location=Location(path=path, feature=name[:60] or None),
        expected="columns with unique names",
        found="two columns of this name" if twice else "no name, or one that is not Unicode",
        do="rename the columns before writing the table",
    )


def missing_column_error(name: str, names: Sequence[str], path: str | None, line: int | None = None) -> RekordError:
    """The error for a column that a table lacks."""
    near = closest_match(name, names)
    return error(
        "X522",
        f"column `{name[:60]}` does not exist",
        location=Location(path=path, line=line, feature=name[:60]),
        expected=f"one of {preview(list(names))}",
        found=preview(name),
        do=f"did you mean `{near}`?" if near else "use the column names of the table",
    )


_METADATA_KEY = b"rekord.schema"
_MAX_SCHEMA_BYTES = 16 << 20


def attach_schema(arrow: Any, schema: Schema) -> Any:
    """An Arrow schema that carries the schema of its records."""
    text = json.dumps(schema.to_dict(evidence=False), separators=(",", ":")).encode()
    return arrow.with_metadata({**(arrow.metadata or {}), _METADATA_KEY: text})


def read_exported_schema(arrow: Any, keep: Iterable[str] | None = None) -> Schema | None:
    """The schema that a table carries; None if it has none, or its columns no longer match."""
    text = (arrow.metadata or {}).get(_METADATA_KEY)
    if text is None or len(text) > _MAX_SCHEMA_BYTES:
        return None
    try:
        schema = Schema.from_dict(json.loads(text))
        if len(set(arrow.names)) < len(arrow.names) or set(arrow.names) != set(schema):
            return None
        plan = compile_plan(schema)
        columns = assemble_columns(plan, new_batch(plan, _core.Pool(0)).take(), 0)
        forms = {
            name: _normalize_arrow_type(column_to_arrow(column, schema[name]).type)
            for name, column in columns.items()
        }
        if any(_normalize_arrow_type(arrow.field(name).type) != form for name, form in forms.items()):
            return None
        return schema if keep is None else _select_columns(schema, tuple(keep))
    except (RekordError, ValueError, RecursionError):
        return None


def restore_columns(batch: Any, schema: Schema) -> dict[str, Any]:
    """The columns of a table as the encoder accepts them."""
    columns: dict[str, Any] = {}
    for name, feature in schema.context.items():
        columns[name] = restored_column(feature, batch.column(name))
    for name, feature in schema.steps.items():
        columns[name] = _restore_steps(batch.column(name), feature)
    return columns


def _restore_steps(array: Any, feature: Feature) -> list[Any]:
    """The steps of each row, None for a row without steps."""
    inner = restored_column(feature, array.flatten())
    return split_rows(list_values(inner) if hasattr(inner, "to_pylist") else list(inner), array)


def _select_columns(schema: Schema, names: tuple[str, ...]) -> Schema | None:
    if any(name not in schema for name in names):
        return None
    if not schema.is_sequence:
        return Schema({name: schema[name] for name in names})
    return Schema(
        context={name: schema[name] for name in names if name in schema.context},
        steps={name: schema[name] for name in names if name in schema.steps},
    )


def _normalize_arrow_type(kind: Any) -> Any:
    """The value type of an Arrow type, and its list levels: list types differ between writers."""
    import pyarrow as pa

    levels = 0
    while (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ) and levels < 32:
        levels, kind = levels + 1, kind.value_type
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return levels, tuple((field.name, _normalize_arrow_type(field.type)) for field in fields)
    # Parquet has no seconds: a column of them is read back in milliseconds.
    name = f"timestamp[{kind.tz}]" if pa.types.is_timestamp(kind) else str(kind)
    return levels, name.removeprefix("large_")


@singledispatch
def restored_column(feature: Feature, array: Any) -> Any:
    """A column of an exported table, as the encoder accepts it."""
    listed = feature.kind != "bytes" and feature.storage == "list" and feature.shape
    if listed and len(feature.record_keys("x")) == 1:
        return _restore_numbers(array, feature)
    if feature.shape == () or feature.shape == (None,):
        return array  # strings and single numbers: the encoder accepts them as Arrow stores them
    return _restore_rows(array, feature)


@restored_column.register(Sparse)
def _(feature: Sparse, array: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_struct(array.type) and not array.null_count:
        indices, values = [array.field(name) for name in ("indices", "values")]
        if not any(part.null_count or part.flatten().null_count for part in (indices, values)):
            return SparseColumn(_restore_ragged(indices), _restore_ragged(values), feature.size)
    return [None if row is None else (row["indices"], row["values"]) for row in array.to_pylist()]


@restored_column.register(Tensor)
def _(feature: Tensor, array: Any) -> Any:
    # bfloat16 without NumPy's help is a list of numbers.
    return array.to_pylist() if isinstance(feature.dtype, str) else _restore_numbers(array, feature)


def _restore_rows(array: Any, feature: Feature) -> list[Any]:
    rows = list_values(array)
    if None in feature.shape[1:] and not getattr(feature, "partitions", ()):
        return [None if row is None else _reshape(row, feature.shape) for row in rows]
    return rows


def _reshape(values: list[Any], shape: tuple[int | None, ...]) -> Any:
    """Values that are flat in a table, because another dimension than the first varies."""
    out = np.empty(len(values), object)
    out[:] = values
    try:
        return out.reshape([-1 if size is None else size for size in shape])
    except ValueError:
        return values  # the table was changed: its row reports it


def _restore_numbers(array: Any, feature: Feature) -> Any:
    """Numbers of a fixed shape, or with one variable dimension, as arrays."""
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    dtype = getattr(feature, "dtype", None)
    pairs = isinstance(dtype, np.dtype) and dtype.kind == "c"  # in tables, complex numbers are pairs
    flat = _flatten_lists(array, _list_sizes(feature.shape, pairs=pairs))
    if flat is None:
        return _restore_rows(array, feature)  # the table was changed: the row that does not fit reports it
    if pairs:
        flat = flat.view(dtype)
    elif isinstance(dtype, np.dtype) and dtype.name == "bfloat16":
        flat = flat.astype(dtype)  # in tables, float32
    if None in feature.shape:
        return _restore_varying(array, flat, feature.shape, valid)
    there = len(array) if valid is None else int(valid.sum())
    dense = flat.reshape(there, *feature.shape)
    if valid is None:
        return dense
    spread = np.zeros((len(array), *dense.shape[1:]), dense.dtype)
    spread[valid] = dense
    return Optional(spread, valid)


class _ListSize(NamedTuple):
    """The length of the lists of one level: exactly `size`, or a multiple of it."""

    size: int
    exact: bool


def _list_sizes(shape: tuple[int | None, ...], *, pairs: bool) -> list[_ListSize]:
    """The nested lists of a shape in a table, from the outermost."""
    if None in shape[1:]:
        levels = [_ListSize(math.prod(size for size in shape if size is not None), exact=False)]  # flat
    else:
        levels = [_ListSize(1, exact=False) if size is None else _ListSize(size, exact=True) for size in shape]
    return [*levels, _ListSize(2, exact=True)] if pairs else levels


def _flatten_lists(array: Any, levels: list[_ListSize]) -> Any:
    """The numbers of nested lists, one after another; None if a list has the wrong length."""
    for depth, level in enumerate(levels):
        if (depth and array.null_count) or not _has_list_size(array, level):
            return None
        array = array.flatten()  # skips what is below a null
    return None if array.null_count else array.to_numpy(zero_copy_only=False)


def _has_list_size(array: Any, level: _ListSize) -> bool:
    from pyarrow import compute

    lengths = compute.list_value_length(array).drop_null().to_numpy(zero_copy_only=False)
    if level.exact or not level.size:
        return bool((lengths == level.size).all())
    return not (lengths % level.size).any()


def _restore_varying(outer: Any, flat: Any, shape: tuple[int | None, ...], valid: Any) -> Any:
    offsets = _list_offsets(outer)
    inner = [size for size in shape[1:] if size is not None]
    if shape[0] is None:
        return Ragged(flat.reshape(-1, *inner), offsets, valid=valid)
    return Ragged(flat, offsets, valid=valid, row_shape=tuple(-1 if size is None else size for size in shape))


def _restore_ragged(array: Any) -> Ragged:
    return Ragged(array.flatten().to_numpy(zero_copy_only=False), _list_offsets(array))
