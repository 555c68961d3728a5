"""For training loops in PyTorch: rows to write in other formats, and the loop itself."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from workloads import Lists, Workload

from peers.serve import Task


def training_rows(workload: Workload) -> Iterator[dict[str, Any]]:
    """Rows of NumPy values, with images as encoded bytes."""
    from PIL import Image  # noqa: F401  (generates the images; in every environment that trains)

    for chunk in range(workload.chunks()):
        values = workload.rows(chunk)
        columns = {name: _listed(column) for name, column in values.items()}
        for row in zip(*columns.values(), strict=True):
            yield dict(zip(columns, row, strict=True))


def _listed(column: Any) -> list[Any]:
    if not isinstance(column, Lists):
        return list(column)
    flat = column.values.tobytes()
    spans = zip(column.starts.tolist(), column.lengths.tolist(), strict=True)
    return [flat[start : start + length] for start, length in spans]


def decode_image(encoded: bytes) -> torch.Tensor:
    """A JPEG as a uint8 tensor (height, width, channels)."""
    from PIL import Image

    return torch.from_numpy(np.array(Image.open(io.BytesIO(encoded))))


def tensor_loop(epoch: Callable[[], Iterable[Mapping[str, Any]]]) -> Task:
    """Epochs in which the loop sums up every tensor. The digest has the labels and the number of values."""

    def once() -> Iterator[int]:
        for batch in epoch():
            for tensor in batch.values():
                tensor.sum()
            yield len(batch["label"])

    digest: dict[str, float] = {"rows": 0.0, "labels": 0.0, "values": 0.0}
    for batch in epoch():
        digest["rows"] += len(batch["label"])
        digest["labels"] += float(batch["label"].sum())
        digest["values"] += sum(tensor.numel() for tensor in batch.values())
    return Task(once, digest=digest)
