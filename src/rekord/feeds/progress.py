"""Feeds: loaders that hand out batches as the tensors of a framework."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from rekord.dataset.batches import Request, read_batches
from rekord.dataset.finish import Batch
from rekord.dataset.loader import Loader, Reading

Tensors: TypeAlias = "dict[str, Any]"


class Feed(Loader[Tensors]):
    """Batches of tensors, `{column: tensor}` each, in the order of `split.batches`: every `iter()` is a whole epoch.

    `state_dict()` counts what was delivered, never what was only prefetched. It has the form of those of
    `split.batches`, and one can load the other's.
    """

    def __init__(self, request: Request, convert: Callable[[Batch], Tensors]) -> None:
        super().__init__(request)
        self._convert = convert

    def _read(self, request: Request, epoch: int, consumed: int) -> Reading[Tensors]:
        return _Converted(read_batches(request, epoch, consumed), self._convert)


class _Converted:
    def __init__(self, reading: Reading[Batch], convert: Callable[[Batch], Tensors]) -> None:
        self._reading = reading
        self._convert = convert

    def __next__(self) -> tuple[Tensors, int]:
        batch, after = next(self._reading)
        return self._convert(batch), after

    def close(self) -> None:
        self._reading.close()
