"""Rows of a split by number, for loaders that choose the order themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from operator import index
from typing import Any

import numpy as np

from rekord import _core
from rekord.dataset.batches import Request
from rekord.dataset.finish import Batch
from rekord.dataset.indexed import IndexedDecoder
from rekord.dataset.no_record import NoRecord
from rekord.dataset.order import Ids


class Rows:
    """The rows that a request asks for, by position. For any number of threads, and to be pickled or forked."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._process = os.getpid()
        self._idle: list[IndexedDecoder] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Rows, (self.request,)  # decoders stay here

    def __len__(self) -> int:
        return self.request.recipe.size

    def batch(self, numbers: Sequence[int]) -> Batch:
        """These rows as a batch, in the form that was asked for."""
        if self._process != os.getpid():
            # Locks and buffers of the process that forked are not ours to use.
            self.__init__(replace(self.request, shards=copy(self.request.shards)))  # type: ignore[misc]
        request = self.request
        ids = request.recipe.records(request.epoch, self._positions(numbers))
        try:
            decoder = self._idle.pop()
        except IndexError:
            plan, pictures = request.decoding()
            decoder = IndexedDecoder(request.shards, plan, _core.Pool(0), pictures)
        batch = decoder.decode(ids)
        self._idle.append(decoder)  # not after a failure: it may hold half a batch
        return request.finish(batch) if request.finish else batch

    def row(self, number: int) -> dict[str, Any]:
        """One row."""
        return {name: column[0] for name, column in self.batch([number]).items()}

    def rows(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """These rows one by one, read together."""
        batch = self.batch(numbers)
        columns = [list(column) for column in batch.values()]
        return [dict(zip(batch, values, strict=True)) for values in zip(*columns, strict=True)]

    def _positions(self, numbers: Sequence[int]) -> Ids:
        size = len(self)
        out = np.empty(len(numbers), np.int64)
        for i, number in enumerate(numbers):
            try:
                position = _whole(number)
            except TypeError:
                raise NoRecord(number, "a whole number, or a list of them") from None
            if not -size <= position < size:
                raise NoRecord(
                    position, f"a number from {-size:,} to {size - 1:,}" if size else "no records at all"
                )
            out[i] = position + size if position < 0 else position
        return out


def _whole(number: Any) -> int:
    if isinstance(number, bool):
        raise TypeError
    return index(number)
