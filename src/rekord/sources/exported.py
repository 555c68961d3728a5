"""Tables that carry the schema of the records that they were exported from, and their way back to columns."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from rekord import _core
from rekord.codec.arrow import column_to_arrow
from rekord.codec.assemble import assemble
from rekord.codec.columns import Optional, Ragged, SparseColumn
from rekord.codec.decode import new_batch
from rekord.codec.plan import compile_plan
from rekord.errors import RekordError
from rekord.schema import Feature, Float32, Int64, Label, Schema, Sparse, Tensor

_KEY = b"rekord.schema"
_MOST_BYTES = 16 << 20


def with_schema(arrow: Any, schema: Schema) -> Any:
    """An Arrow schema that says of which records it is."""
    text = json.dumps(schema.to_dict(evidence=False), separators=(",", ":")).encode()
    return arrow.with_metadata({**(arrow.metadata or {}), _KEY: text})


def exported_schema(arrow: Any, keep: Iterable[str] | None = None) -> Schema | None:
    """The schema that a table carries; None where it has none, or one that its columns are not of any more."""
    text = (arrow.metadata or {}).get(_KEY)
    if text is None or len(text) > _MOST_BYTES:
        return None
    try:
        schema = Schema.from_dict(json.loads(text))
        if len(set(arrow.names)) < len(arrow.names) or set(arrow.names) != set(schema):
            return None
        plan = compile_plan(schema)
        columns = assemble(plan, new_batch(plan, _core.Pool(0)).take(), 0)
        forms = {name: _form(column_to_arrow(column).type) for name, column in columns.items()}
        if any(_form(arrow.field(name).type) != form for name, form in forms.items()):
            return None
        return schema if keep is None else _part(schema, tuple(keep))
    except (RekordError, ValueError, RecursionError):
        return None


def one_schema(found: Iterable[Schema | None]) -> Schema | None:
    """The schema that all files of a source carry, if it is the same."""
    schemas = list(found)
    first = schemas[0] if schemas else None
    return first if first is not None and all(schema == first for schema in schemas) else None


def restored(batch: Any, schema: Schema) -> dict[str, Any]:
    """The columns of a table as records are encoded from them."""
    columns: dict[str, Any] = {}
    for name, feature in schema.context.items():
        columns[name] = _restored(batch.column(name), feature)
    for name, feature in schema.steps.items():
        columns[name] = _steps(batch.column(name), feature)
    return columns


def _steps(array: Any, feature: Feature) -> list[Any]:
    """The steps of each row, None where it has none at all."""
    inner = _restored(array.flatten(), feature)
    values = inner.to_pylist() if hasattr(inner, "to_pylist") else list(inner)
    rows: list[Any] = []
    begin = 0
    for length in _lengths(array):
        rows.append(None if length is None else values[begin : begin + length])
        begin += length or 0
    return rows


def _part(schema: Schema, names: tuple[str, ...]) -> Schema | None:
    if any(name not in schema for name in names):
        return None
    if not schema.is_sequence:
        return Schema({name: schema[name] for name in names})
    return Schema(
        context={name: schema[name] for name in names if name in schema.context},
        steps={name: schema[name] for name in names if name in schema.steps},
    )


def _form(kind: Any) -> Any:
    """What an Arrow type holds, in lists of how many levels: list types differ from writer to writer."""
    import pyarrow as pa

    levels = 0
    while (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ) and levels < 32:
        levels, kind = levels + 1, kind.value_type
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return levels, tuple((field.name, _form(field.type)) for field in fields)
    return levels, str(kind).removeprefix("large_")


def _restored(array: Any, feature: Feature) -> Any:
    import pyarrow as pa

    if isinstance(feature, Sparse) and pa.types.is_struct(array.type) and not array.null_count:
        indices, values = [array.field(name) for name in ("indices", "values")]
        if not any(part.null_count or part.flatten().null_count for part in (indices, values)):
            return SparseColumn(_ragged(indices), _ragged(values), feature.size)
    if isinstance(feature, Sparse):
        rows = array.to_pylist()
        return [None if row is None else (row["indices"], row["values"]) for row in rows]
    if isinstance(feature, Tensor) and isinstance(feature.dtype, str):
        return array.to_pylist()  # bfloat16, without NumPy's help
    listed = isinstance(feature, (Int64, Float32, Label)) and feature.shape
    if isinstance(feature, Tensor) or (listed and not getattr(feature, "partitions", ())):
        return _numbers(array, feature)
    if feature.shape == () or feature.shape == (None,):
        return array  # strings and single numbers: the encoder takes them from Arrow as they lie
    return _rows(array, feature)


def _rows(array: Any, feature: Feature) -> list[Any]:
    rows: list[Any] = array.to_pylist()
    if None in feature.shape[1:] and not getattr(feature, "partitions", ()):
        return [None if row is None else _shaped(row, feature.shape) for row in rows]
    return rows


def _shaped(values: list[Any], shape: tuple[int | None, ...]) -> Any:
    """Values that are flat in a table, because not the first of their dimensions is the one that varies."""
    out = np.empty(len(values), object)
    out[:] = values
    try:
        return out.reshape([-1 if size is None else size for size in shape])
    except ValueError:
        return values  # somebody changed the table: the row will say so


def _numbers(array: Any, feature: Feature) -> Any:
    """Numbers of one shape, or of one with a dimension that varies, as arrays."""
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    dtype = getattr(feature, "dtype", None)
    pairs = isinstance(dtype, np.dtype) and dtype.kind == "c"  # in tables, complex numbers are pairs
    flat = _flat(array, _list_sizes(feature.shape, pairs=pairs))
    if flat is None:
        return _rows(array, feature)  # somebody changed the table: the row that does not fit says so
    if pairs:
        flat = flat.view(dtype)
    elif isinstance(dtype, np.dtype) and dtype.name == "bfloat16":
        flat = flat.astype(dtype)  # in tables, float32
    if None in feature.shape:
        return _varying(array, flat, feature.shape, valid)
    there = len(array) if valid is None else int(valid.sum())
    dense = flat.reshape(there, *feature.shape)
    if valid is None:
        return dense
    spread = np.zeros((len(array), *dense.shape[1:]), dense.dtype)
    spread[valid] = dense
    return Optional(spread, valid)


class _Size(NamedTuple):
    """How long the lists of one level are: exactly so long, or a multiple of it."""

    size: int
    exact: bool


def _list_sizes(shape: tuple[int | None, ...], *, pairs: bool) -> list[_Size]:
    """The lists that values of a shape are in a table, from the outermost one on."""
    if None in shape[1:]:
        levels = [_Size(math.prod(size for size in shape if size is not None), exact=False)]  # flat
    else:
        levels = [_Size(1, exact=False) if size is None else _Size(size, exact=True) for size in shape]
    return [*levels, _Size(2, exact=True)] if pairs else levels


def _flat(array: Any, levels: list[_Size]) -> Any:
    """The numbers of nested lists, one behind the other; None where a list is not as long as it should be."""
    for depth, level in enumerate(levels):
        if (depth and array.null_count) or not _are(array, level):
            return None
        array = array.flatten()  # leaves out what is behind a hole
    return None if array.null_count else array.to_numpy(zero_copy_only=False)


def _are(array: Any, level: _Size) -> bool:
    from pyarrow import compute

    lengths = compute.list_value_length(array).drop_null().to_numpy(zero_copy_only=False)
    if level.exact or not level.size:
        return bool((lengths == level.size).all())
    return not (lengths % level.size).any()


def _varying(outer: Any, flat: Any, shape: tuple[int | None, ...], valid: Any) -> Any:
    lengths = [0 if row is None else row for row in _lengths(outer)]
    inner = [size for size in shape[1:] if size is not None]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    if shape[0] is None:
        return Ragged(flat.reshape(-1, *inner), offsets, valid=valid)
    return Ragged(flat, offsets, valid=valid, row_shape=tuple(-1 if size is None else size for size in shape))


def _lengths(array: Any) -> list[int | None]:
    from pyarrow import compute

    return compute.list_value_length(array).to_pylist()  # type: ignore[no-any-return]


def _ragged(array: Any) -> Ragged:
    lengths = [0 if row is None else row for row in _lengths(array)]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Ragged(array.flatten().to_numpy(zero_copy_only=False), offsets)
