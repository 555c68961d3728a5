"""Rows from the datasets of other libraries, which are known by their classes and not imported for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rekord.errors import error
from rekord.schema.refuse import shown
from rekord.sources.huggingface import huggingface
from rekord.sources.rows import RowsSource, as_pixels, check_names
from rekord.sources.tf_columns import no_rows
from rekord.sources.tf_data import tf_data

__all__ = ["framework_of", "tf_data", "torch_dataset"]

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


def torch_dataset(dataset: Any, *, names: Sequence[str] | None = None) -> RowsSource:
    """The items of a torch Dataset or IterableDataset, one row each: dicts, tuples or single values.

    The parts of a tuple are called `names` (x, y and weight unless told), a single value x.
    """
    check_names(names)
    if hasattr(type(dataset), "__iter__"):
        known = len(dataset) if hasattr(type(dataset), "__len__") else None
        return RowsSource(
            "torch_dataset", lambda: iter(dataset), names=names, known_rows=known, convert=_torch_row
        )
    try:
        count = len(dataset)
    except TypeError:
        raise no_rows(
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
