"""Rows from torch and Hugging Face datasets, recognised without importing their libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

from rekord.arguments import check_keywords, invalid, tuple_names
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema import Bytes, Feature, Float32, Image, Int64, Label, Schema, Tensor, Text
from rekord.schema.base import FLOAT_DTYPES, INTEGER_DTYPES, TENSOR_DTYPES, Shape
from rekord.schema.column_evidence import Float32CollisionDetector
from rekord.sources.base import ColumnChunk, IndexedRows, SourceFacts, SourceRow
from rekord.sources.rows import PEEK_ROWS, RowsSource, infer_row_schema, to_pixels
from rekord.sources.tf_data import element_error, nested_feature, tf_data

_HUGGING_FACE_CLASSES = ("Dataset", "IterableDataset", "DatasetDict", "IterableDatasetDict")


def find_framework_source(value: object) -> Callable[..., Any] | None:
    """The source function for a dataset of another library; that library is not imported."""
    classes = [(cls.__module__.split(".")[0], cls.__name__) for cls in type(value).__mro__]
    # Before torch: datasets' streams are also torch's.
    if any(module == "datasets" and name in _HUGGING_FACE_CLASSES for module, name in classes):
        return huggingface
    if ("tensorflow", "DatasetV2") in classes:
        return tf_data
    if any(module == "torch" and name in ("Dataset", "IterableDataset") for module, name in classes):
        return torch_dataset
    return None


@check_keywords
def torch_dataset(dataset: IndexedRows | Iterable[object], *, names: Sequence[str] | None = None) -> RowsSource:
    """The items of a torch Dataset or IterableDataset, one row each: dicts, tuples or single values.

    The parts of a tuple are named `names` (default: x, y and weight), a single value x.
    """
    tuple_names(names)
    given: Any = dataset
    is_iterable = hasattr(type(dataset), "__iter__")
    count = None
    if not is_iterable or hasattr(type(dataset), "__len__"):
        try:
            count = len(given)
        except TypeError:
            if is_iterable:
                raise
            expected = "a torch dataset with __len__, or an IterableDataset"
            raise element_error(None, expected, preview(type(dataset).__name__)) from None

    def begin() -> Iterator[Any]:
        return iter(given) if is_iterable else (given[i] for i in range(count or 0))

    return RowsSource("torch_dataset", begin, names=names, known_rows=count, convert=_convert_torch_row)


def _convert_torch_row(item: Any) -> Any:
    if isinstance(item, Mapping):
        return _convert_torch_values(item)
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*[_convert_torch_value(part) for part in item])
    parts = item if isinstance(item, (tuple, list)) else (item,)
    return tuple([_convert_torch_value(part) for part in parts])


def _convert_torch_values(row: Mapping[Any, Any]) -> dict[Any, Any]:
    return {name: _convert_torch_value(value) for name, value in row.items()}


def _convert_torch_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _convert_torch_values(value)
    if not (hasattr(value, "detach") and hasattr(value, "cpu")):
        return to_pixels(value)
    try:
        tensor = value.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":
            tensor = tensor.float()  # NumPy has no bfloat16; every value survives
        array = tensor.numpy()
    except (TypeError, RuntimeError) as failure:  # sparse and quantised tensors, and those without values
        raise error(
            "E302",
            "tensor cannot be converted to an array",
            expected="a dense tensor with values",
            found=str(failure).split("\n", 1)[0][:60],
            do="tensor.to_dense(), if it is sparse",
        ) from None
    return array[()] if array.ndim == 0 else array


_BATCH_ROWS = 1024
_FILE_FEATURES = ("Image", "Audio", "Video", "Pdf")
_NUMBER_DTYPES = {"float": "float32", "double": "float64"}
_ARRAY_FEATURES = ("Array2D", "Array3D", "Array4D", "Array5D")


@check_keywords
def huggingface(dataset: Iterable[object] | Mapping[str, Iterable[object]]) -> HuggingFaceSource | RowsSource:
    """Rows of a `datasets` Dataset or IterableDataset, or of all in a dict of them, with a `split`."""
    splits = dict(dataset) if isinstance(dataset, Mapping) else None
    parts: list[Any] = [dataset] if splits is None else list(splits.values())
    names = None if splits is None else tuple(splits)
    if not parts or not all(hasattr(part, "features") for part in parts):
        expected = "a Dataset or IterableDataset of the library `datasets`, or a dict of them"
        raise invalid("dataset", dataset, expected, 'rk.sources.huggingface(datasets.load_dataset("…"))')
    if names is not None and any("split" in (part.features or ()) for part in parts):
        raise error(
            "X539",
            "dict of datasets has a column `split`",
            location=Location(feature="split"),
            expected="another name: `split` is the dataset that a row comes from",
            found="a column with that name",
            do='rename it: dataset.rename_column("split", "part")',
        )
    if all(hasattr(part, "with_format") and hasattr(part, "data") for part in parts):
        return HuggingFaceSource(parts, names)
    return RowsSource("huggingface", lambda: _iter_stream(parts, names), splits=names)


class HuggingFaceSource:
    """Hugging Face datasets stored in Arrow."""

    kind = "huggingface"

    def __init__(self, parts: list[Any], splits: tuple[str, ...] | None) -> None:
        self._parts = parts
        self._splits = splits
        self._schema: Schema | None = None

    def options(self) -> Mapping[str, Any]:
        return {}

    def facts(self) -> SourceFacts:
        """The schema of the dataset's features; None if these have no equivalent, and rows must be inspected."""
        rows = sum(len(part) for part in self._parts)
        schema = self._schema or _build_schema(self._parts)
        return SourceFacts(layout="table", schema=schema, rows=rows, splits=self._splits)

    def peek_schema(self, limit_rows: int = PEEK_ROWS) -> Schema:
        """The schema of the features, or of the first rows if these have no equivalent."""
        if self._schema is None:
            self._schema = _build_schema(self._parts)
        if self._schema is None:
            rows: list[SourceRow] = []
            for chunk in self.rows():
                names = list(chunk.values)
                for i in range(min(chunk.rows, limit_rows - len(rows))):
                    values = {name: _get_item(chunk.values[name], i) for name in names}
                    rows.append(SourceRow("", chunk.first + i, values))
                if len(rows) >= limit_rows:
                    break
            complete = len(rows) < limit_rows
            skip = ("split",) if self._splits is not None else ()
            self._schema = infer_row_schema(rows, complete=complete, skip=skip)
        return self._schema

    def rows(self) -> Iterator[ColumnChunk]:
        """All rows, a batch of Arrow columns at a time."""
        first = 0
        for place, part in enumerate(self._parts):
            features = part.features
            for table in part.with_format("arrow").iter(batch_size=_BATCH_ROWS):
                columns: dict[str, Any] = {}
                for name in table.column_names:
                    column = table.column(name).combine_chunks()
                    found = _flatten_column(name, column, features.get(name))
                    twice = next((one for one in found if one in columns), None)
                    if twice is not None:
                        raise error(
                            "X539",
                            f"two columns are named `{twice[:60]}`",
                            location=Location(feature=twice[:60]),
                            expected="unique names after nested names are joined with `/`",
                            found="the same name twice",
                            do=f"rename one of them: dataset.rename_column({twice[:60]!r}, …)",
                        )
                    columns |= found
                if self._splits is not None:
                    columns["split"] = [self._splits[place]] * table.num_rows
                yield ColumnChunk("", first, columns, table.num_rows)
                first += table.num_rows


def _get_item(column: Any, row: int) -> Any:
    value = column[row]
    return value.as_py() if hasattr(value, "as_py") else value


def _flatten_column(name: str, column: Any, feature: Any) -> dict[str, Any]:
    """A column, or the fields of a struct, named with `/`."""
    if type(feature).__name__ in _FILE_FEATURES:
        return {name: _read_encoded_files(column)}
    if hasattr(column.type, "num_fields") and str(column.type).startswith("struct"):
        out: dict[str, Any] = {}
        for inner, child in zip(column.type, column.flatten(), strict=True):
            below = feature.get(inner.name) if isinstance(feature, Mapping) else None
            out |= _flatten_column(f"{name}/{inner.name}", child, below)
        return out
    return {name: column}


def _read_encoded_files(column: Any) -> Any:
    """Encoded files: their bytes, or the paths of files whose bytes are not stored."""
    if not str(column.type).startswith("struct"):
        return column
    names = [field.name for field in column.type]
    fields = dict(zip(names, column.flatten(), strict=True))
    encoded = fields["bytes"]
    if not encoded.null_count:
        return encoded
    paths = fields["path"].to_pylist() if "path" in fields else [None] * len(column)
    pairs = zip(encoded.to_pylist(), paths, strict=True)
    return [Path(path) if data is None and path is not None else data for data, path in pairs]


def _iter_stream(parts: list[Any], splits: tuple[str, ...] | None) -> Iterator[Any]:
    for place, part in enumerate(parts):
        stream, files = _disable_decoding(part)
        for item in stream:
            row = {
                name: _read_encoded_file(value) if name in files else to_pixels(value) for name, value in item.items()
            }
            yield row if splits is None else {**row, "split": splits[place]}


def _disable_decoding(part: Any) -> tuple[Any, set[str]]:
    """A stream that yields files as bytes, and the columns of files."""
    files = set()
    for name, feature in (part.features or {}).items():
        if type(feature).__name__ in _FILE_FEATURES and is_dataclass(feature) and hasattr(feature, "decode"):
            part = part.cast_column(name, replace(feature, decode=False))  # type: ignore[type-var]
            files.add(name)
    return part, files


def _read_encoded_file(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    data, path = value.get("bytes"), value.get("path")
    return Path(path) if data is None and path is not None else data


def _build_schema(parts: list[Any]) -> Schema | None:
    columns: dict[str, Feature] = {}
    features = parts[0].features if parts else {}
    if any(part.features != features for part in parts):
        return None
    for name, feature in features.items():
        arrays = [chunk for part in parts for chunk in part.data.column(name).chunks]
        try:
            found = _convert_features(name, feature, arrays)
        except RekordError:
            return None
        if found is None:
            return None
        columns |= found
    return Schema(columns) if columns else None


def _convert_features(name: str, feature: Any, arrays: list[Any]) -> dict[str, Feature] | None:
    """The columns of a feature; `arrays` hold its values."""
    optional = any(array.null_count for array in arrays)
    if type(feature).__name__ == "Translation":
        return {f"{name}/{language}": Text(optional=optional) for language in feature.languages}
    if not isinstance(feature, Mapping):
        one = _convert_feature(name, feature, (), optional, arrays)
        return None if one is None else {name: one}
    out: dict[str, Feature] = {}
    for key, inner in feature.items():
        children = [array.flatten()[array.type.get_field_index(key)] for array in arrays]
        found = _convert_features(f"{name}/{key}", inner, children)
        if found is None:
            return None
        out |= found
    return out


def _convert_feature(name: str, feature: Any, above: Shape, optional: bool, arrays: list[Any]) -> Feature | None:
    kind = type(feature).__name__
    if kind in _ARRAY_FEATURES:
        shape = tuple(feature.shape)
        return None if above else _convert_number(name, feature.dtype, shape, optional, arrays)
    if kind in ("List", "LargeList", "Sequence"):
        length = getattr(feature, "length", -1)
        return _convert_feature(name, feature.feature, (*above, None if length < 0 else length), optional, arrays)
    if isinstance(feature, list) and len(feature) == 1:
        return _convert_feature(name, feature[0], (*above, None), optional, arrays)
    if kind == "ClassLabel":
        if len(above) > 1:
            return None
        if not feature.names:
            return Int64(above, optional=optional)
        return Label(feature.names, shape=above, optional=optional)
    if kind in _FILE_FEATURES:
        scalar = Image(optional=optional) if kind == "Image" else Bytes(optional=optional)
        return None if above else scalar
    return _convert_number(name, feature.dtype, above, optional, arrays) if kind == "Value" else None


def _convert_number(name: str, dtype: str, shape: Shape, optional: bool, arrays: list[Any]) -> Feature | None:
    if shape.count(None) > 1:
        # Lists of lists of any length: a fixed dimension among them is not supported.
        nested = not optional and shape == (None,) * len(shape)
        return nested_feature(name, dtype, shape, len(shape) - 1, strings=Text) if nested else None
    if dtype in ("string", "large_string"):
        return Text(shape, optional=optional)
    if dtype in ("binary", "large_binary"):
        return Bytes(shape, optional=optional)
    dtype = _NUMBER_DTYPES.get(dtype, dtype)
    if dtype in INTEGER_DTYPES:
        raw = dtype in ("uint8", "uint16") and len(shape) > 1
        return Tensor(dtype, shape, optional=optional) if raw else Int64(shape, dtype=dtype, optional=optional)
    if dtype == "float64":
        merges = _is_lossy_in_float32(arrays)
        return Tensor(dtype, shape, optional=optional) if merges else Float32(shape, optional=optional)
    if dtype in FLOAT_DTYPES:
        return Float32(shape, dtype=dtype, optional=optional)
    return Tensor(dtype, shape, optional=optional) if dtype in TENSOR_DTYPES else None


def _is_lossy_in_float32(arrays: list[Any]) -> bool:
    """Whether float32 would merge different numbers among the first rows."""
    merging = Float32CollisionDetector()
    left = PEEK_ROWS
    for array in arrays:
        flat = array.slice(0, left)
        left -= len(flat)
        flat = getattr(flat, "storage", flat)
        while hasattr(flat.type, "value_type"):
            flat = flat.flatten()
        merging.add(flat.drop_null().to_numpy(zero_copy_only=False))
        if not left:
            break
    return merging.merges()
