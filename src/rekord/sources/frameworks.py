"""Rows from the datasets of other libraries, which are known by their classes and not imported for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from rekord.codec.columns import Ragged, Strings
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Feature, Float32, Image, Int64, Schema, Sparse, Tensor
from rekord.schema.dtypes import FLOATS, INTEGERS, TENSORS
from rekord.schema.refuse import shown
from rekord.schema.rowforms import flat_row
from rekord.schema.tfds_features import FLAT_VALUES, ROW_LENGTHS
from rekord.sources.base import Chunk, Columns, Facts, Row
from rekord.sources.huggingface import huggingface
from rekord.sources.rows import PEEKED_ROWS, RowsSource, as_pixels, inferred, noted

_BATCH_BYTES = 4 << 20
_MOST_BATCH_ROWS = 4096
_STRING_BATCH_ROWS = 64  # their length is not known before they are read, and images are strings too

_HUGGING_FACE = ("Dataset", "IterableDataset", "DatasetDict", "IterableDatasetDict")


def framework_of(value: object) -> Callable[..., Any] | None:
    """What makes a source of this object, where it is a dataset of another library; that library is not imported."""
    classes = [(cls.__module__.split(".")[0], cls.__name__) for cls in type(value).__mro__]
    # Before torch: datasets' streams are also torch's.
    if any(module == "datasets" and name in _HUGGING_FACE for module, name in classes):
        return huggingface
    if ("tensorflow", "DatasetV2") in classes:
        return tf_data
    if any(module == "torch" and name in ("Dataset", "IterableDataset") for module, name in classes):
        return torch_dataset
    return None


def tf_data(dataset: Any, *, names: Sequence[str] | None = None) -> TfData:
    """The elements of a tf.data.Dataset, one row each; it should not be batched.

    Nested dicts join their names with `/`; the parts of a tuple are called `names` (x, y and weight unless told),
    a single tensor x.
    """
    if not hasattr(dataset, "element_spec"):
        raise error(
            "U605",
            f"`tf_data` cannot read from a {type(dataset).__name__}",
            expected="a tf.data.Dataset",
            found=shown(dataset),
            do="rk.sources.tf_data(dataset)",
        )
    return TfData(dataset, names)


class TfData:
    """The source that `tf_data` makes."""

    kind = "tf_data"

    def __init__(self, dataset: Any, names: Sequence[str] | None) -> None:
        self._dataset = dataset
        self._names = None if names is None else tuple(names)
        self._specs = self._flat(dataset.element_spec)
        for name, spec in self._specs.items():
            if not hasattr(spec, "dtype") or not hasattr(spec, "shape"):
                raise _no_rows(name, "tensors, in a dict or a tuple", f"{spec!r}"[:60])
        self._schema = _tf_schema(self._specs)

    def options(self) -> Mapping[str, Any]:
        return {"names": None if self._names is None else list(self._names)}

    def facts(self) -> Facts:
        """The schema is that of the element specs; None where these do not tell enough."""
        count = int(self._dataset.cardinality())
        known = count if count >= 0 else None
        return Facts(
            layout="table", schema=self._schema, rows=known, extra={"infinite": True} if count == -1 else {}
        )

    def peeked(self, limit_rows: int = PEEKED_ROWS) -> Schema:
        """The schema of the element specs, or of the first rows where these do not tell enough."""
        if self._schema is None:
            rows = list(islice(self._single_rows(), limit_rows + 1))
            self._schema = inferred(rows[:limit_rows], complete=len(rows) <= limit_rows)
        return self._schema

    def rows(self) -> Iterator[Chunk]:
        """All rows: in columns where TensorFlow can batch them, one by one where it cannot."""
        if all(_batches(spec) for spec in self._specs.values()):
            return self._batched()
        return self._single_rows()

    def _batched(self) -> Iterator[Columns]:
        varies = any(None in spec.shape.as_list() for spec in self._specs.values())
        size = _batch_rows(self._specs)
        batches = self._dataset.ragged_batch(size) if varies else self._dataset.batch(size)
        for place, batch in enumerate(_watched(batches.prefetch(2), rows_each=size)):
            columns = {name: _column(tensor) for name, tensor in self._flat(batch).items()}
            rows = len(next(iter(columns.values()))) if columns else 0
            yield Columns("", place * size, columns, rows)

    def _single_rows(self) -> Iterator[Row]:
        for position, element in enumerate(_watched(self._dataset, rows_each=1)):
            values = {name: _tf_value(tensor) for name, tensor in self._flat(element).items()}
            yield Row("", position, values)

    def _flat(self, structure: Any) -> dict[str, Any]:
        single = not isinstance(structure, (Mapping, tuple, list))
        try:
            return flat_row((structure,) if single else structure, 0, self._names)
        except RekordError as failure:
            raise _no_rows(None, failure.expected or "", failure.found or "") from None


def _watched(dataset: Any, *, rows_each: int) -> Iterator[Any]:
    """The elements; a failure of the pipeline's own passes through with the row in its notes."""
    elements = iter(dataset)
    position = 0
    while True:
        try:
            element = next(elements)
        except StopIteration:
            return
        except Exception as failure:
            noted(failure, position)
            raise
        yield element
        position += rows_each


def _is_sparse(spec: Any) -> bool:
    return type(spec).__name__ == "SparseTensorSpec"


def _ragged_rank(spec: Any) -> int:
    return int(getattr(spec, "ragged_rank", 0))


def _dims(spec: Any) -> tuple[int | None, ...] | None:
    return None if spec.shape.rank is None else tuple(spec.shape.as_list())


def _batches(spec: Any) -> bool:
    """Whether a batch of these is a column: only the first dimension may vary."""
    dims = _dims(spec)
    if dims is None or _is_sparse(spec) or _ragged_rank(spec) or None in dims[1:]:
        return False
    return spec.dtype.name in TENSORS or (spec.dtype.name == "string" and dims in ((), (None,)))


def _batch_rows(specs: Mapping[str, Any]) -> int:
    row_bytes = 0
    for spec in specs.values():
        if spec.dtype.name == "string":
            return _STRING_BATCH_ROWS
        sizes = [64 if size is None else size for size in spec.shape.as_list()]
        row_bytes += int(np.prod(sizes, dtype=np.int64)) * int(spec.dtype.size)
    return min(max(_BATCH_BYTES // max(row_bytes, 1), 1), _MOST_BATCH_ROWS)


def _column(tensor: Any) -> Any:
    if not hasattr(tensor, "row_splits"):
        return tensor.numpy()
    values = tensor.values.numpy()
    strings = Strings.of(values.tolist()) if values.dtype == object else None
    return Ragged(values if strings is None else strings, tensor.row_splits.numpy().astype(np.int64))


def _tf_value(tensor: Any) -> Any:
    if hasattr(tensor, "row_splits"):
        return tensor.to_list()
    if hasattr(tensor, "dense_shape"):
        indices, values = tensor.indices.numpy(), tensor.values.numpy()
        return (indices[:, 0], values) if indices.shape[1] == 1 else indices
    value = tensor.numpy()
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _tf_schema(specs: Mapping[str, Any]) -> Schema | None:
    features = {}
    for name, spec in specs.items():
        try:
            feature = _tf_feature(name, spec)
        except RekordError:  # a shape that no feature has: what the rows hold will tell
            feature = None
        if feature is None:
            return None
        features[name] = feature
    return Schema(features)


def _tf_feature(name: str, spec: Any) -> Feature | None:
    dims, dtype = _dims(spec), spec.dtype.name
    if dims is None:
        return None
    if _is_sparse(spec):
        if len(dims) != 1 or dims[0] is None or dtype not in (*INTEGERS, *FLOATS):
            return None
        return Sparse(dtype, dims[0])
    if _ragged_rank(spec):
        return _tf_ragged(name, dims, dtype, _ragged_rank(spec))
    if dims.count(None) > 1:
        # Decoded images of any size: PNG keeps every pixel, and its own size.
        is_image = dtype == "uint8" and len(dims) == 3 and dims[2] in (1, 3, 4)
        return Image(format="png") if is_image else None
    if dtype == "string":
        return Bytes(dims)
    if dtype in INTEGERS and not (dims and dtype in ("uint8", "uint16")):
        return Int64(dims, dtype=dtype)
    if dtype in FLOATS:
        return Float32(dims, dtype=dtype)
    return Tensor(dtype, dims) if dtype in TENSORS else None


def _tf_ragged(name: str, dims: tuple[int | None, ...], dtype: str, levels: int) -> Feature | None:
    shape = (None,) * (levels + 1) + dims[levels + 1 :]
    key = f"{name}/{FLAT_VALUES}"
    lengths = tuple(f"{name}/{ROW_LENGTHS}{level}" for level in range(levels))
    if dtype == "string":
        return Bytes(shape, key=key, partitions=lengths)
    if dtype in INTEGERS:
        return Int64(shape, dtype=dtype, key=key, partitions=lengths)
    return Float32(shape, dtype=dtype, key=key, partitions=lengths) if dtype in FLOATS else None


def torch_dataset(dataset: Any, *, names: Sequence[str] | None = None) -> RowsSource:
    """The items of a torch Dataset or IterableDataset, one row each: dicts, tuples or single values.

    The parts of a tuple are called `names` (x, y and weight unless told), a single value x.
    """
    if hasattr(type(dataset), "__iter__"):
        known = len(dataset) if hasattr(type(dataset), "__len__") else None
        return RowsSource(
            "torch_dataset", lambda: iter(dataset), names=names, known_rows=known, convert=_torch_row
        )
    try:
        count = len(dataset)
    except TypeError:
        raise _no_rows(
            None, "a torch dataset with __len__, or an IterableDataset", shown(type(dataset).__name__)
        ) from None
    return RowsSource(
        "torch_dataset",
        lambda: (dataset[i] for i in range(count)),
        names=names,
        known_rows=count,
        convert=_torch_row,
    )


def _torch_row(item: Any) -> Any:
    if isinstance(item, Mapping):
        return _torch_values(item)
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*[_torch_value(part) for part in item])
    parts = item if isinstance(item, (tuple, list)) else (item,)
    return tuple([_torch_value(part) for part in parts])


def _torch_values(row: Mapping[Any, Any]) -> dict[Any, Any]:
    return {name: _torch_value(value) for name, value in row.items()}


def _torch_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _torch_values(value)
    if not (hasattr(value, "detach") and hasattr(value, "cpu")):
        return as_pixels(value)
    try:
        tensor = value.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":
            tensor = tensor.float()  # NumPy has no bfloat16; every value survives
        array = tensor.numpy()
    except (TypeError, RuntimeError) as failure:  # sparse and quantised tensors, and those without values
        raise error(
            "E302",
            "a tensor cannot become an array",
            expected="a dense tensor with values",
            found=str(failure).split("\n", 1)[0][:60],
            do="tensor.to_dense() for one that is sparse",
        ) from None
    return array[()] if array.ndim == 0 else array


def _no_rows(column: str | None, expected: str, found: str) -> RekordError:
    return error(
        "X539",
        location=Location(feature=column),
        expected=expected,
        found=found,
        do="map the dataset to dicts of tensors: dataset.map(lambda …: {…})",
    )
