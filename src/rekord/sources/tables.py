"""Arrow's types as features: which column of a table becomes which column of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Feature, Float32, Image, Int64, Schema, Tensor, Text
from rekord.schema.defaults import is_unicode
from rekord.schema.merging import float32_loses
from rekord.schema.refuse import near_miss, shown

BATCH_BYTES = 4 << 20
BATCH_ROWS = 65_536
"""How much of a table comes at once."""

SAMPLED_ROWS = 10_000
"""Of a column of doubles, looked at to see whether float32 can hold them."""

_MOST_LEVELS = 32


class TableColumn(NamedTuple):
    """A column of records, and where its values are in a table."""

    name: str  # parted by "/" where it comes from a struct
    path: tuple[str, ...]
    feature: Feature  # as if every row had a value
    convert: Any  # the Arrow type to read it as, None for its own


def table_columns(schema: Any, keep: Sequence[str] | None, path: str | None) -> tuple[TableColumn, ...]:
    """The columns of records that an Arrow schema gives; `keep` names those that are wanted, in order."""
    found: dict[str, TableColumn] = {}
    wanted = None if keep is None else tuple(keep)
    for field in schema:
        for name, places, kind in _leaves(field.name, (field.name,), field.type):
            if wanted is not None and not any(_is_below(name, one) for one in wanted):
                continue
            if name in found or not name or not is_unicode(name):
                raise _no_name(name, path, twice=name in found)
            feature, convert = _feature(name, kind, path)
            found[name] = TableColumn(name, places, feature, convert)
    if wanted is not None:
        for one in wanted:
            if not any(_is_below(name, one) for name in found):
                raise _no_column(one, [field.name for field in schema], path)
        ordered = [name for one in wanted for name in found if _is_below(name, one)]
        return tuple(found[name] for name in dict.fromkeys(ordered))
    if not found:
        raise _no_name("", path, twice=False)
    return tuple(found.values())


def schema_of(columns: Iterable[TableColumn], optional: Iterable[str]) -> Schema:
    """The schema of these columns, of which `optional` have holes."""
    holes = frozenset(optional)
    return Schema({c.name: _with_holes(c.feature) if c.name in holes else c.feature for c in columns})


def without_merging(columns: Sequence[TableColumn], batch: Any) -> tuple[TableColumn, ...]:
    """The columns, with doubles as they are where float32 would not tell the first of them apart.

    Nobody declared float32 for them: digits may go, as everywhere in training, but no value becomes another one.
    """
    import pyarrow as pa

    out = []
    for column in columns:
        if (
            isinstance(column.feature, Float32)
            and not column.feature.shape
            and column.path[0] in batch.schema.names
        ):
            values = column_of(batch.slice(0, SAMPLED_ROWS), column)
            if values.type == pa.float64() and float32_loses(values.drop_null().to_numpy()):
                column = column._replace(feature=Tensor("float64"))
        out.append(column)
    return tuple(out)


def has_doubles(columns: Sequence[TableColumn], schema: Any) -> list[str]:
    """The names of the top columns in which doubles may be."""
    names = {
        column.path[0]
        for column in columns
        if isinstance(column.feature, Float32) and not column.feature.shape
    }
    return [name for name in schema.names if name in names and "double" in str(schema.field(name).type)]


def to_batch(batch: Any, columns: Sequence[TableColumn]) -> Any:
    """A RecordBatch of these columns, as `rk.Writer.write_columns` takes it."""
    import pyarrow as pa

    arrays = [column_of(batch, column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def column_of(batch: Any, column: TableColumn) -> Any:
    """The values of one column."""
    import pyarrow as pa

    array = batch.column(batch.schema.get_field_index(column.path[0]))
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    for name in column.path[1:]:
        # Flattened, a hole in the struct is one in each of its parts.
        array = array.flatten()[array.type.get_field_index(name)]
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
    if _is_list_view(array.type):
        array = _in_order(array)
    return array if column.convert is None else array.cast(column.convert)


def _in_order(views: Any) -> Any:
    """Lists that may lie in any order, as lists one after another; Arrow's own cast gets their offsets wrong."""
    import pyarrow as pa
    from pyarrow import compute

    lengths = compute.list_value_length(views).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    return pa.LargeListArray.from_arrays(pa.array(offsets), views.flatten(), mask=views.is_null())


def rows_at_once(rows: int, size_bytes: int) -> int:
    """How many rows make a piece of a good size."""
    return max(1, min(BATCH_ROWS, BATCH_BYTES * max(rows, 1) // max(size_bytes, 1)))


def _leaves(name: str, path: tuple[str, ...], kind: Any) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if not pa.types.is_struct(kind) or len(path) > _MOST_LEVELS:
        yield name, path, kind
        return
    fields = [kind.field(i) for i in range(kind.num_fields)]
    if {field.name for field in fields} == {"bytes", "path"} and _is_bytes(kind.field("bytes").type):
        yield name, (*path, "bytes"), _IMAGE
        return
    for field in fields:
        yield from _leaves(f"{name}/{field.name}", (*path, field.name), field.type)


_IMAGE = object()
"""Stands for the type of a column that Hugging Face stores as bytes beside a path."""


def _feature(name: str, kind: Any, path: str | None) -> tuple[Feature, Any]:
    import pyarrow as pa

    if kind is _IMAGE:
        return Image(), None
    if pa.types.is_dictionary(kind):
        feature, convert = _feature(name, kind.value_type, path)
        return feature, convert or kind.value_type
    if pa.types.is_null(kind):
        return Text(), pa.large_string()
    if _is_text(kind):
        return Text(), pa.large_string() if str(kind) == "string_view" else None
    if _is_bytes(kind):
        return Bytes(), None if str(kind) in ("binary", "large_binary") else pa.large_binary()
    if _is_number(kind):
        return _number(kind, ()), None
    shape, inner = _list_shape(kind)
    if shape and (_is_number(inner) or ((len(shape) == 1 and _is_text(inner)) or _is_bytes(inner))):
        convert = None
        if str(inner).endswith("_view") or pa.types.is_fixed_size_binary(inner):
            convert = pa.large_string() if _is_text(inner) else pa.large_binary()
            for dimension in reversed(shape):
                convert = pa.large_list(convert) if dimension is None else pa.list_(convert, dimension)
        if _is_number(inner):
            return _number(inner, shape), convert
        return (Text(shape=shape) if _is_text(inner) else Bytes(shape=shape)), convert
    raise error(
        "X525",
        f"`{name[:60]}` is of the type {str(kind)[:60]}",
        location=Location(path=path, feature=name[:60]),
        expected="numbers, bools, texts, bytes, or lists of them with one dimension that varies at most",
        found=str(kind)[:60],
        do="cast the column to numbers or text where the table is made, or leave it out: columns=[...]",
    )


def _list_shape(kind: Any) -> tuple[tuple[int | None, ...], Any]:
    """The shape that lists in lists have, () where no feature has it, and what they are lists of."""
    import pyarrow as pa

    shape: list[int | None] = []
    while len(shape) < _MOST_LEVELS:
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


def _number(kind: Any, shape: tuple[int | None, ...]) -> Feature:
    import pyarrow as pa

    if pa.types.is_floating(kind):
        return Float32(shape=shape, dtype="float16" if str(kind) == "halffloat" else "float32")
    return Int64(shape=shape, dtype=str(kind))


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_list_view(kind: Any) -> bool:
    return "list_view" in str(kind)[:16]


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _is_bytes(kind: Any) -> bool:
    import pyarrow as pa

    return str(kind) in ("binary", "large_binary", "binary_view") or pa.types.is_fixed_size_binary(kind)


def _with_holes(feature: Feature) -> Feature:
    return type(feature)(**{**feature.declared(), "optional": True})


def _is_below(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(f"{wanted}/")


def _no_name(name: str, path: str | None, *, twice: bool) -> RekordError:
    return error(
        "X522",
        f"two columns are called `{name[:60]}`" if twice else "a column has no name",
        location=Location(path=path, feature=name[:60] or None),
        expected="columns of which each has a name of its own",
        found="two of this name" if twice else "none, or one that is not Unicode",
        do="rename the columns where the table is made",
    )


def _no_column(name: str, names: list[str], path: str | None) -> RekordError:
    near = near_miss(name, names)
    return error(
        "X522",
        f"there is no column `{name[:60]}`",
        location=Location(path=path, feature=name[:60]),
        expected=f"one of {shown(names)}",
        found=shown(name),
        do=f"did you mean `{near}`?" if near else "name columns as the table does",
    )


def checked_keep(columns: object) -> tuple[str, ...] | None:
    """`columns=` of a table: names, each once."""
    if columns is None:
        return None
    names = tuple(columns) if isinstance(columns, (list, tuple)) else ()
    if names and all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
        return names
    raise error(
        "U605",
        f"`columns` cannot be {shown(columns)}",
        expected="a list of names, each once",
        found=shown(columns),
        do='columns=["image", "label"]',
    )
