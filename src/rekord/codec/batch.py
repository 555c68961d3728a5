"""A batch of columns as users get it: a dict that shows itself.

Libraries that map functions over nested values (jax, torch, optree for Keras) know dicts by their exact type, so the
class is registered with those that are loaded: a batch stays as usable as a plain dict there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rekord.codec.columns import Batch, Column, Optional, Ragged, SparseColumn, Strings
from rekord.report.formatting import format_count
from rekord.report.notebook import never_raises, render_fragment
from rekord.schema import Feature
from rekord.schema.schema import shorten_name

_MAX_COLUMNS = 12
_PREVIEW_ROWS = 4


class ColumnBatch(dict[str, Column]):
    """`{column: values}`; `features` are those of the schema, if they are known."""

    __slots__ = ("features",)

    def __init__(self, columns: Any = (), features: Mapping[str, Feature] | None = None) -> None:
        super().__init__(columns)
        self.features = features

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnBatch, (dict(self),)

    def __repr__(self) -> str:
        names = {name: shorten_name(name) for name in list(self)[:_MAX_COLUMNS]}
        width = max(map(len, names.values()), default=0)
        lines = [f"  {shown:<{width}}  {_describe_column(self[name])}" for name, shown in names.items()]
        if len(self) > len(names):
            lines.append(f"  … {len(self) - len(names):,} more")
        return "\n".join([f"Batch: {', '.join(self._facts())}", *lines])

    @never_raises
    def _repr_html_(self) -> str:
        from rekord.codec.preview import render_rows

        return render_fragment("Batch", self._facts(), render_rows(self, self.features, _PREVIEW_ROWS))

    def _facts(self) -> list[str]:
        rows = [len(next(iter(self.values())))] if self else []
        return [*[format_count(count, "row") for count in rows], format_count(len(self), "column")]


def to_batch(columns: Batch, features: Mapping[str, Feature] | None) -> Batch:
    """A dict of columns as a batch; what a function of the user returned in another class stays as it is."""
    return ColumnBatch(columns, features) if type(columns) is dict else columns


def _describe_column(column: Any) -> str:
    """`uint8 (32, 224, 224, 3)`, or what a column says of itself."""
    if isinstance(column, np.ndarray):
        kind = "images of different sizes" if column.dtype == object else str(column.dtype)
        return f"{kind} {column.shape}"
    if isinstance(column, (Ragged, Strings, Optional, SparseColumn)):
        return repr(column)
    return type(column).__name__


_registered: set[str] = set()


def register_batches() -> None:
    """Register the class with the libraries that are loaded and know dicts only by their exact type."""
    for name, register in _LIBRARIES.items():
        module = sys.modules.get(name)
        if module is None or name in _registered:
            continue
        try:
            register(module)
        except (AttributeError, ValueError, TypeError):  # half imported, registered by another copy, or too old
            continue
        _registered.add(name)


def _flatten(batch: ColumnBatch) -> tuple[list[Column], tuple[str, ...]]:
    names = tuple(sorted(batch))
    return [batch[name] for name in names], names


def _unflatten(names: tuple[str, ...], values: Any) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


_LIBRARIES: dict[str, Callable[[Any], object]] = {
    "jax": lambda jax: jax.tree_util.register_pytree_node(ColumnBatch, _flatten, _unflatten),
    "optree": lambda optree: optree.register_pytree_node(
        ColumnBatch, _flatten, _unflatten, namespace=vars(optree.registry)["__GLOBAL_NAMESPACE"]
    ),
    "torch": lambda torch: torch.utils._pytree.register_pytree_node(
        ColumnBatch, _flatten, lambda values, names: _unflatten(names, values)
    ),
}
