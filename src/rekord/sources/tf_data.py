"""Rows from a tf.data pipeline: in columns if TensorFlow can batch them, else one by one."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from time import monotonic
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from rekord.arguments import check_keywords, invalid, tuple_names
from rekord.codec.columns import Ragged, Strings
from rekord.errors import RekordError, error, schema_error
from rekord.location import Location
from rekord.schema import Bytes, Feature, Float32, Image, Int64, Schema, Sparse, Tensor, Text
from rekord.schema.base import FLOAT_DTYPES, INTEGER_DTYPES, TENSOR_DTYPES
from rekord.schema.interop.tfds import FLAT_VALUES, ROW_LENGTHS
from rekord.schema.row_adapters import flatten_row
from rekord.sources.base import Chunk, ColumnChunk, SourceFacts, SourceRow
from rekord.sources.rows import PEEK_BYTES, PEEK_ROWS, drain_rows

Dims: TypeAlias = "tuple[int | None, ...]"

_MAX_INDICES = 2**63 - 1
_IMAGE_CHANNELS = (1, 3, 4)
_PIXEL_DTYPES = ("uint8", "uint16", *FLOAT_DTYPES, "float64")
_MAP_HINT = "map the dataset to dicts of tensors: dataset.map(lambda …: {…})"


@dataclass(frozen=True, slots=True)
class TensorLeaf:
    """One tensor of an element, as its spec declares it; `dims` is None if even the rank is unknown."""

    name: str
    form: Literal["dense", "ragged", "sparse"]
    dtype: str
    dims: Dims | None
    levels: int = 0  # the ragged dimensions after the first, of a ragged tensor
    inspected: bool = False  # whether the first rows were used for what the spec lacks

    @property
    def has_unknown_channels(self) -> bool:
        """Whether these may be images with the channels of their files, which TensorFlow does not know."""
        dims = self.dims or ()
        known = self.inspected or self.form != "dense" or self.dtype not in _PIXEL_DTYPES or 0 in dims
        return not known and len(dims) == 3 and dims[2] is None

    def seen(self, tensor: Any) -> TensorLeaf:
        """This leaf with the dimensions of its first tensor, or with its channels only."""
        sizes = _tensor_sizes(self, tensor)
        if self.has_unknown_channels:
            assert self.dims is not None
            sizes = (*self.dims[:2], sizes[2] if sizes[2] in _IMAGE_CHANNELS else None)
        return replace(self, dims=sizes, inspected=True)

    def merged(self, tensor: Any) -> TensorLeaf:
        """This leaf with None for each dimension in which a further tensor differs."""
        assert self.dims is not None
        sizes = _tensor_sizes(self, tensor)
        if len(sizes) != len(self.dims):
            counts = sorted({len(sizes), len(self.dims)})
            raise schema_error(
                "S131",
                f"`{self.name}` has values of different rank",
                column=self.name,
                expected="the same number of dimensions in all values",
                found=" and ".join([f"{n} dimension" + "s" * (n != 1) for n in counts]),
                do="fix the rank in the pipeline: tf.ensure_shape(value, [None, 3])",
            )
        both = zip(sizes, self.dims, strict=True)
        return replace(self, dims=tuple([new if new == old else None for new, old in both]))


def _tensor_sizes(leaf: TensorLeaf, tensor: Any) -> Dims:
    # Without a spec, the dense shape of a sparse tensor may differ from row to row.
    if leaf.form == "sparse":
        return (None,) * int(tensor.indices.shape[1])
    return tuple([None if size is None else int(size) for size in tensor.shape])


def flatten_element(element: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """The tensors of an element, or their specs, by column name.

    Names of nested dicts and named tuples are joined with `/`; the parts of a nested tuple are numbered.
    """
    if not isinstance(element, (Mapping, tuple, list)):
        element = (element,)
    is_tuple = not isinstance(element, Mapping) and (names is not None or not hasattr(element, "_fields"))
    row = tuple([_name_by_position(part) for part in element]) if is_tuple else _name_by_position(element)
    try:
        return flatten_row(row, 0, names)
    except RekordError as failure:
        counts = (failure.found or "").endswith(" values")
        raise element_error(
            None, failure.expected or "", failure.found or "", (failure.do or "") if counts else _MAP_HINT
        ) from None


def _name_by_position(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _name_by_position(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        names = getattr(value, "_fields", [str(i) for i in range(len(value))])
        return {name: _name_by_position(part) for name, part in zip(names, value, strict=True)}
    return value


def parse_tensor_spec(name: str, spec: Any) -> TensorLeaf:
    """The leaf that a spec declares. Raises for anything but a tensor, and for unsupported dtypes."""
    kind = type(spec).__name__
    if not hasattr(spec, "dtype") or not hasattr(spec, "shape") or kind == "TensorArraySpec":
        do = _MAP_HINT
        if kind == "OptionalSpec":
            do = "extract the values: dataset.map(lambda x: x.get_value())"
        elif kind == "NoneTensorSpec":
            do = "remove the None from the elements: dataset.map(lambda x, _: x)"
        raise element_error(name, "tensors, in a dict or a tuple", f"{spec!r}"[:60], do)
    dtype = str(spec.dtype.name)
    if dtype not in TENSOR_DTYPES and dtype != "string":
        raise element_error(
            name,
            "numbers, bools or strings",
            f"a tensor of {dtype}"[:60],
            "convert it in the pipeline: tf.cast(value, tf.int32), or tf.io.serialize_tensor(value)",
        )
    dims = None if spec.shape.rank is None else tuple(spec.shape.as_list())
    if kind == "SparseTensorSpec":
        return TensorLeaf(name, "sparse", dtype, dims)
    levels = int(getattr(spec, "ragged_rank", 0))
    return TensorLeaf(name, "ragged" if levels else "dense", dtype, dims, levels)


def build_leaf_features(leaf: TensorLeaf) -> dict[str, Feature] | None:
    """The columns of a tensor, usually one; None if rows must be inspected for its dimensions."""
    if leaf.dims is None or leaf.has_unknown_channels:
        return None
    if leaf.form == "sparse":
        return _build_sparse_features(leaf)
    if leaf.dims.count(None) > 1 or leaf.levels:
        return {leaf.name: _build_ragged_feature(leaf)}
    if 0 in leaf.dims and None in leaf.dims:
        return None  # without stored values, any size would fit
    return {leaf.name: _build_feature(leaf.dtype, leaf.dims)}


def convert_tensor(leaf: TensorLeaf, tensor: Any) -> dict[str, Any]:
    """The values of `build_leaf_features`, from the tensor of one element."""
    if leaf.form == "ragged":
        return {leaf.name: tensor.to_list()}
    if leaf.form == "dense":
        value = tensor.numpy()
        return {leaf.name: value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value}
    indices, values = tensor.indices.numpy(), tensor.values.numpy()
    size = _sparse_size(leaf)
    if size is not None:
        assert leaf.dims is not None
        flat = indices @ np.array([prod(leaf.dims[i + 1 :]) for i in range(len(leaf.dims))], np.int64)  # type: ignore[arg-type]
        return {leaf.name: (flat, values)}
    return dict(zip(_leaf_columns(leaf), (indices, values, tensor.dense_shape.numpy()), strict=True))


def _leaf_columns(leaf: TensorLeaf) -> tuple[str, ...]:
    """The columns of `build_leaf_features`."""
    if leaf.form != "sparse" or _sparse_size(leaf) is not None:
        return (leaf.name,)
    return f"{leaf.name}/indices", f"{leaf.name}/values", f"{leaf.name}/dense_shape"


def _build_feature(dtype: str, dims: Dims) -> Feature:
    if dtype == "string":
        return Bytes(dims)
    if dtype in INTEGER_DTYPES and not (dims and dtype in ("uint8", "uint16")):
        return Int64(dims, dtype=dtype)
    return Float32(dims, dtype=dtype) if dtype in FLOAT_DTYPES else Tensor(dtype, dims)


def _is_image(leaf: TensorLeaf) -> bool:
    """Whether these are decoded images of any size: PNG keeps every pixel, and the size."""
    dims = leaf.dims or ()
    return leaf.form == "dense" and leaf.dtype == "uint8" and len(dims) == 3 and dims[2] in _IMAGE_CHANNELS


def _build_ragged_feature(leaf: TensorLeaf) -> Feature:
    name, dtype, dims = leaf.name, leaf.dtype, leaf.dims or ()
    if _is_image(leaf):
        return Image(format="png", channels=dims[2])
    varying = [at for at, size in enumerate(dims) if size is None]
    levels = max(leaf.levels, *varying)
    shape = (None,) * (levels + 1) + dims[levels + 1 :]
    feature = nested_feature(name, dtype, shape, levels, strings=Bytes)
    if feature is not None:
        return feature
    cast = "" if dtype.startswith("complex") else ", or tf.cast(value, tf.float32)"
    raise element_error(
        name,
        f"at most one variable dimension for {dtype}",
        f"shape {dims}"[:60],
        f"pad the values to one size in the pipeline{cast}",
    )


def nested_feature(
    name: str, dtype: str, shape: Dims, levels: int, *, strings: type[Bytes] | type[Text]
) -> Feature | None:
    """Lists of lists of any length, as flat values and row lengths; None for a dtype that cannot be nested."""
    key = f"{name}/{FLAT_VALUES}"
    lengths = tuple([f"{name}/{ROW_LENGTHS}{level}" for level in range(levels)])
    if dtype in ("string", "large_string"):
        return strings(shape, key=key, partitions=lengths)
    if dtype in INTEGER_DTYPES:
        return Int64(shape, dtype=dtype, key=key, partitions=lengths)
    return Float32(shape, dtype=dtype, key=key, partitions=lengths) if dtype in FLOAT_DTYPES else None


def _sparse_size(leaf: TensorLeaf) -> int | None:
    """The number of values in a sparse tensor, if one `Sparse` can hold it: its dimensions are flattened."""
    if not leaf.dims or None in leaf.dims or leaf.dtype not in (*INTEGER_DTYPES, *FLOAT_DTYPES):
        return None
    size = prod(leaf.dims)  # type: ignore[arg-type]
    return size if 1 <= size <= _MAX_INDICES else None


def _build_sparse_features(leaf: TensorLeaf) -> dict[str, Feature]:
    size = _sparse_size(leaf)
    if size is not None:
        return {leaf.name: Sparse(leaf.dtype, size)}
    rank = len(leaf.dims or ())
    return {
        f"{leaf.name}/indices": Int64((None, rank)),
        f"{leaf.name}/values": _build_feature(leaf.dtype, (None,)),
        f"{leaf.name}/dense_shape": Int64((rank,)),
    }


def element_error(column: str | None, expected: str, found: str, do: str = _MAP_HINT) -> RekordError:
    """The error for elements that cannot become rows."""
    return error("X539", location=Location(feature=column), expected=expected, found=found, do=do)


_BATCH_BYTES = 4 << 20
_MAX_BATCH_ROWS = 4096
_STRING_BATCH_ROWS = 64  # their length is unknown before they are read, and images are strings too

_MAX_REPLAY_SECONDS = 10.0
"""If reading took less, it is repeated to find the row that failed."""

# Transformations after `batch` that keep elements batched.
_AFTER_BATCH_PATTERN = re.compile(r"_?(Parallel)?(Prefetch|Options|Cache|Take|Skip|Shuffle|Repeat|Shard|Map)Dataset")
_BATCH_PATTERN = re.compile(r"_?((Parallel|Padded)?Batch|Rebatch)Dataset")


class TensorFlowDataset(Protocol):
    """The part of a tf.data.Dataset that is used; TensorFlow need not be installed."""

    @property
    def element_spec(self) -> object: ...
    def __iter__(self) -> Iterator[object]: ...


@check_keywords
def tf_data(dataset: TensorFlowDataset, *, names: Sequence[str] | None = None) -> TfDataSource:
    """The elements of a tf.data.Dataset, one row each; it should not be batched.

    Nested names are joined with `/`; the parts of a tuple are named `names` (default: x, y and weight), a single
    tensor x, and the parts of a nested tuple are numbered.
    """
    if not hasattr(dataset, "element_spec"):
        raise invalid("dataset", dataset, "a tf.data.Dataset", "rk.sources.tf_data(dataset)")
    tuple_names(names)
    return TfDataSource(dataset, names)


class TfDataSource:
    kind = "tf_data"

    def __init__(self, dataset: Any, names: Sequence[str] | None) -> None:
        self._dataset = dataset
        self._names = None if names is None else tuple(names)
        self._specs = flatten_element(dataset.element_spec, self._names)
        self._leaves = {name: parse_tensor_spec(name, spec) for name, spec in self._specs.items()}
        # TensorFlow cannot batch tensors of unknown rank.
        self._in_columns = all(_is_batchable(leaf) for leaf in self._leaves.values())
        self._waiting: list[SourceRow] = []  # rows that `peek_schema` took from the running iterator
        self._running: Iterator[SourceRow] | None = None
        if _is_batched(dataset, list(self._leaves.values())):
            warnings.warn(
                "elements of this tf.data pipeline are batches, and each becomes one row; "
                "for one row per sample pass dataset.unbatch()",
                stacklevel=_count_own_stack_frames(),
            )

    def options(self) -> Mapping[str, Any]:
        return {"names": None if self._names is None else list(self._names)}

    def facts(self) -> SourceFacts:
        """The schema is that of the element specs; None if these are incomplete."""
        count = int(self._dataset.cardinality())
        known = count if count >= 0 else None
        extra = {"infinite": True} if count == -1 else {}
        try:
            schema = self._schema()
        except RekordError:  # `peek_schema` raises it, unless a schema is declared
            schema = None
        return SourceFacts(layout="table", schema=schema, rows=known, extra=extra)

    def peek_columns(self, limit_rows: int = PEEK_ROWS) -> tuple[list[str], bool]:
        """The columns of the elements, which all have the same ones."""
        return [name for leaf in self._leaves.values() for name in _leaf_columns(leaf)], True

    def peek_schema(self, limit_rows: int = PEEK_ROWS, limit_bytes: int = PEEK_BYTES) -> Schema:
        """The schema of the element specs, completed from the first rows, which are not lost."""
        schema = self._schema()
        if schema is not None:
            return schema
        unknown = [name for name, leaf in self._leaves.items() if build_leaf_features(leaf) is None]
        known: dict[str, TensorLeaf] = {}
        elements: list[dict[str, Any]] = []
        running = self._elements()
        taken_bytes = 0
        while len(elements) < limit_rows and taken_bytes < limit_bytes:
            element = next(running, None)
            if element is None:
                break
            for name in unknown:
                leaf = known.get(name)
                tensor = element[name]
                known[name] = self._leaves[name].seen(tensor) if leaf is None else leaf.merged(tensor)
            elements.append(element)
            taken_bytes += sum(map(_tensor_bytes, element.values()))
        for name in unknown:
            # Without rows, nothing can contradict.
            self._leaves[name] = known.get(name, TensorLeaf(name, "dense", self._leaves[name].dtype, ()))
        self._waiting = [self._row(i, element) for i, element in enumerate(elements)]
        self._running = (self._row(i, one) for i, one in enumerate(running, len(elements)))
        schema = self._schema()
        if schema is None:  # a size of 0 and a variable one
            raise element_error(None, "values whose sizes can be restored", "empty values of different sizes")
        return schema

    def rows(self) -> Iterator[Chunk]:
        """All rows, in order."""
        waiting, running = self._waiting, self._running
        self._waiting, self._running = [], None
        if running is not None:
            return chain(drain_rows(waiting), running)
        if self._in_columns:
            return self._iter_batches()
        return (self._row(i, element) for i, element in enumerate(self._elements()))

    def _schema(self) -> Schema | None:
        features = {}
        for leaf in self._leaves.values():
            columns = build_leaf_features(leaf)
            if columns is None:
                return None
            twice = next((name for name in columns if name in features), None)
            if twice is not None:
                raise element_error(
                    twice, "columns with unique names", "a part of a sparse tensor with the same name"
                )
            features.update(columns)
        return Schema(features)

    def _iter_batches(self) -> Iterator[ColumnChunk]:
        varies = any(None in (leaf.dims or ()) for leaf in self._leaves.values())
        size = _batch_rows(self._leaves, self._specs)
        batches = self._dataset.ragged_batch(size) if varies else self._dataset.batch(size)
        for place, batch in enumerate(self._iter_elements(batches.prefetch(2), rows_each=size)):
            columns = {name: _to_column(tensor) for name, tensor in flatten_element(batch, self._names).items()}
            rows = len(next(iter(columns.values()))) if columns else 0
            yield ColumnChunk("", place * size, columns, rows)

    def _elements(self) -> Iterator[dict[str, Any]]:
        for element in self._iter_elements(self._dataset, rows_each=1):
            yield flatten_element(element, self._names)

    def _row(self, position: int, element: Mapping[str, Any]) -> SourceRow:
        values: dict[str, Any] = {}
        for name, tensor in element.items():
            values.update(convert_tensor(self._leaves[name], tensor))
        return SourceRow("", position, values)

    def _iter_elements(self, dataset: Any, *, rows_each: int) -> Iterator[Any]:
        """The elements; if the pipeline fails, the error has the row."""
        begun = monotonic()
        elements = iter(dataset)
        position = 0
        while True:
            try:
                element = next(elements)
            except StopIteration:
                return
            except Exception as failure:
                row: int | None = position
                if rows_each > 1:
                    quick = monotonic() - begun < _MAX_REPLAY_SECONDS
                    row = self._failing_row(position, rows_each) if quick else None
                raise _pipeline_error(failure, row, position, rows_each) from failure
            yield element
            position += rows_each

    def _failing_row(self, position: int, rows_each: int) -> int | None:
        """The row that fails, if it fails again: a batch does not identify it.

        If a pipeline shuffles, it is another row each time, and none is reported.
        """
        first, second = (self._rows_before_failure(position + rows_each) for _ in range(2))
        return first if first == second and first is not None and first >= position else None

    def _rows_before_failure(self, most_rows: int) -> int | None:
        rows = 0
        try:
            for _ in self._dataset.take(most_rows):
                rows += 1
        except Exception:  # any exception: it was raised before
            return rows
        return None


def _pipeline_error(failure: Exception, row: int | None, position: int, rows_each: int) -> RekordError:
    within = f"rows {position:,} to {position + rows_each - 1:,}"
    return error(
        "X538",
        None if row is not None else f"tf.data pipeline failed in {within}",
        location=Location(row=row),
        expected="every element of the pipeline",
        found=_first_line(failure)[:60],
        do="fix the pipeline, or skip such elements: dataset.ignore_errors(log_warning=True)",
    )


def _first_line(failure: Exception) -> str:
    """The first line of TensorFlow's message, without the names of its nodes."""
    text = re.sub(r"\{\{[^{}]*\}\}\s*", "", str(failure)).strip()
    return text.split("\n", 1)[0].strip() or type(failure).__name__


def _count_own_stack_frames() -> int:
    """The number of stack frames of rekord, decorators included: a warning points at the caller's line."""
    count, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("rekord.", "contextlib")):
        count, frame = count + 1, frame.f_back
    return count


def _is_batched(dataset: Any, leaves: Sequence[TensorLeaf]) -> bool:
    """Whether elements are batches: `batch` is near the end, and all tensors have the same first dimension."""
    if any(leaf.dims == () for leaf in leaves) or len({(leaf.dims or (None,))[0] for leaf in leaves}) != 1:
        return False
    while dataset is not None and not _BATCH_PATTERN.fullmatch(type(dataset).__name__):
        passes = _AFTER_BATCH_PATTERN.fullmatch(type(dataset).__name__)
        dataset = getattr(dataset, "_input_dataset", None) if passes else None
    return dataset is not None


def _is_batchable(leaf: TensorLeaf) -> bool:
    """Whether a batch of these is a column: only the first dimension may be variable."""
    dims = leaf.dims
    if dims is None or leaf.form != "dense" or None in dims[1:]:
        return False
    return leaf.dtype != "string" or dims in ((), (None,))


def _batch_rows(leaves: Mapping[str, TensorLeaf], specs: Mapping[str, Any]) -> int:
    row_bytes = 0
    for name, leaf in leaves.items():
        if leaf.dtype == "string":
            return _STRING_BATCH_ROWS
        sizes = [64 if size is None else size for size in leaf.dims or ()]
        row_bytes += int(np.prod(sizes, dtype=np.int64)) * int(specs[name].dtype.size)
    return min(max(_BATCH_BYTES // max(row_bytes, 1), 1), _MAX_BATCH_ROWS)


def _to_column(tensor: Any) -> Any:
    if not hasattr(tensor, "row_splits"):
        return tensor.numpy()
    values = tensor.values.numpy()
    strings = Strings.of(values.tolist()) if values.dtype == object else None
    return Ragged(values if strings is None else strings, tensor.row_splits.numpy().astype(np.int64))


def _tensor_bytes(tensor: Any) -> int:
    """The approximate size of a tensor in memory."""
    array = np.asarray(getattr(tensor, "flat_values", getattr(tensor, "values", tensor)).numpy())
    return sum(map(len, array.ravel().tolist())) if array.dtype == object else array.nbytes
