"""A map-style torch Dataset: rows by number, for samplers such as DistributedSampler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from rekord.dataset.batches import Request
from rekord.errors import RekordError
from rekord.feeds.rows import Rows
from rekord.feeds.tensors import is_number
from rekord.feeds.torch import no_tensor, tensor, tensors

T = TypeVar("T")


def map_dataset(request: Request) -> Any:
    """The rows of a split as a torch Dataset."""
    return _rebuilt(Rows(request))


def _rebuilt(rows: Rows) -> Any:
    return _dataset_class()(rows)


@lru_cache(maxsize=1)
def _dataset_class() -> Any:
    data = import_module("torch.utils.data")

    class MapDataset(data.Dataset):  # type: ignore[misc, name-defined]
        """Rows of a split: `[i]` is one as a dict of tensors, `[[3, 1]]` a batch of them, stacked.

        What is missing is None, which torch's usual collate function does not take: fill it with `fill=`.
        """

        def __init__(self, rows: Rows) -> None:
            self._rows = rows

        def __len__(self) -> int:
            return len(self._rows)

        def __getitem__(self, which: Any) -> dict[str, Any]:
            if isinstance(which, (list, tuple)) or getattr(which, "ndim", 0) == 1:
                return _said(lambda: tensors(self._rows.batch(list(which))))
            return _said(lambda: _row(self._rows.row(which)))

        def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
            return _said(lambda: [_row(row) for row in self._rows.rows(numbers)])

        def __reduce__(self) -> tuple[Any, ...]:
            # The class was made in a function, and cannot be found by its name.
            return _rebuilt, (self._rows,)

        def __repr__(self) -> str:
            return f"MapDataset({self._rows.request.split!r}, {len(self):,} rows)"

    return MapDataset


def _row(row: dict[str, Any]) -> dict[str, Any]:
    out = {}
    for name, value in row.items():
        try:
            out[name] = _value(value)
        except TypeError as failure:
            raise no_tensor(name, failure) from None
    return out


def _value(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_value(part) for part in value])
    if isinstance(value, (np.ndarray, np.generic)) and is_number(np.asarray(value)):
        return tensor(np.asarray(value))
    return value


def _said(call: Callable[[], T]) -> T:
    from torch.utils.data import get_worker_info

    try:
        return call()
    except RekordError as failure:
        if get_worker_info() is None:
            raise
        raise told_by_worker(failure) from None


def told_by_worker(failure: RekordError) -> Exception:
    """The failure as torch carries it out of a worker: it makes exceptions anew, from a text alone."""
    return RuntimeError(failure.message)
