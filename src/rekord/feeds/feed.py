"""Shared by all feeds: the loader that converts batches to tensors, ranks, rows by number, column types."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from importlib import import_module
from operator import index
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rekord import _core
from rekord.codec.columns import Batch, Column, Optional, Ragged, SparseColumn
from rekord.codec.decode import assemble_columns, new_batch
from rekord.codec.plan import CodecPlan
from rekord.dataset.batches import BatchReader, BatchRequest, Loader, read_batches
from rekord.dataset.options import BatchOptions, validate_ranks
from rekord.dataset.readers.pipeline import BatchDecoder, IdlePool
from rekord.dataset.samplers import Ids
from rekord.dataset.shards import RecordIndexError
from rekord.errors import error

Array: TypeAlias = "np.ndarray[Any, Any]"

_NUMERIC_KINDS = "biufc"


class RaggedTensors(NamedTuple):
    """Rows of different lengths: row i is `values[offsets[i]:offsets[i + 1]]`; `valid` is None if none is missing.

    If a dimension other than the first varies, reshape each row as the schema declares.
    """

    values: Any
    offsets: Any
    valid: Any = None


class MaskedTensors(NamedTuple):
    """Rows of one shape; a row is present where `valid` is True."""

    values: Any
    valid: Any


class SparseTensors(NamedTuple):
    """Sparse vectors: row i is `indices` and `values` from `offsets[i]` to `offsets[i + 1]`."""

    indices: Any
    values: Any
    offsets: Any
    valid: Any = None


def convert_column(column: Any, tensor: Callable[[Array], Any]) -> Any:
    """A column with tensors in place of its numeric arrays; a list of tensors for images of different sizes.

    Strings, and values that are not columns, stay as they are.
    """
    column = without_times(column)
    if isinstance(column, np.ndarray):
        if is_numeric(column):
            return tensor(column)
        return [tensor(image) for image in column] if is_image_column(column) else column
    if isinstance(column, Optional):
        return MaskedTensors(tensor(column.values), tensor(column.valid))
    if not isinstance(column, (Ragged, SparseColumn)):
        return column
    valid = None if column.valid is None else tensor(column.valid)
    if isinstance(column, Ragged):
        return RaggedTensors(convert_column(column.values, tensor), tensor(column.offsets), valid)
    indices, values = (convert_column(one.values, tensor) for one in (column.indices, column.values))
    return SparseTensors(indices, values, tensor(column.values.offsets), valid)


def without_times(column: Any) -> Any:
    """A column with datetime64, which no framework has, as the stored integers."""
    if isinstance(column, np.ndarray) and column.dtype.kind == "M":
        return column.view(np.int64)
    if isinstance(column, Optional) and column.values.dtype.kind == "M":
        return Optional(without_times(column.values), column.valid)
    if isinstance(column, Ragged) and isinstance(column.values, (np.ndarray, Ragged)):
        values = without_times(column.values)
        if values is not column.values:
            return Ragged(values, column.offsets, valid=column.valid, row_shape=column.row_shape)
    return column


def is_image_column(column: Any) -> bool:
    """Whether these are images of different sizes: one numeric array per row."""
    if not isinstance(column, np.ndarray) or column.dtype != object or column.ndim != 1:
        return False
    return all(isinstance(value, np.ndarray) and is_numeric(value) for value in column)


def is_numeric(array: Array) -> bool:
    """Whether these are numbers or booleans, not objects, strings or times."""
    # bfloat16 has kind V in NumPy, which does not know it.
    return array.dtype.kind in _NUMERIC_KINDS or array.dtype.name == "bfloat16"


def import_package(name: str, call: str, install: str) -> Any:
    """An optional package; the error for a missing one says what to install."""
    try:
        return import_module(name)
    except ImportError as failure:
        from rekord.storage.local import system_limit_error

        raise system_limit_error(failure) or error(
            "U602",
            f"{call} needs {name}, which is not installed",
            expected=f"the package {name}",
            found=str(failure)[:60],
            do=f"pip install {install}",
        ) from failure


def make_empty_batch(plan: CodecPlan) -> dict[str, Column]:
    """A batch of no records: the types of the columns, without reading any."""
    return assemble_columns(plan, new_batch(plan, _core.Pool(0)).take(), 0)


RankLookup: TypeAlias = "Callable[[], tuple[int, int] | None]"
"""Returns the rank of this process and the number of processes; None if the framework does not know yet."""


def with_ranks(options: BatchOptions, group: RankLookup, *, start: str) -> BatchOptions:
    """The options with `rank="auto"` resolved by the framework; several processes require `remainder`.

    `start` is the call that initialises the process group of the framework.
    """
    rank, world, remainder = options.get("rank", 0), options.get("world", 1), options.get("remainder")
    if rank == "auto":
        rank, world = _detect_ranks(world, group, start)
    number, size, checked = validate_ranks(rank, world, "keep" if remainder is None else remainder)
    if remainder is None and size > 1:
        raise error(
            "U605",
            f"`remainder` is required with world={size}",
            expected='remainder="drop", "pad" or "keep"',
            found="no `remainder`",
            do='remainder="drop", or remainder="pad" to keep every record',
        )
    return {**options, "rank": number, "world": size, "remainder": checked}


def _detect_ranks(world: int, group: RankLookup, start: str) -> tuple[int, int]:
    found = group()
    if found is None:
        raise error(
            "U605",
            'rank="auto" found no process group',
            expected=f"{start} before this call",
            found="a process that belongs to no group",
            do=f"call {start} first, or use rank=0 for a single process",
        )
    if world not in (1, found[1]):
        raise error(
            "U605",
            "`world` does not match the process group",
            expected=f"world={found[1]}",
            found=f"world={repr(world)[:60]}",
            do='omit `world` with rank="auto"',
        )
    return found


TensorBatch: TypeAlias = "dict[str, Any]"


class Feed(Loader[TensorBatch]):
    """Batches of tensors, `{column: tensor}` each, in the order of `split.batches`: every `iter()` is a whole epoch.

    `state_dict()` counts batches that were delivered, not those that were only prefetched. It is interchangeable with
    the state of `split.batches`.
    """

    def __init__(self, request: BatchRequest, convert: Callable[[Batch], TensorBatch]) -> None:
        super().__init__(request)
        self._convert = convert

    def _read(self, request: BatchRequest, epoch: int, consumed: int) -> BatchReader[TensorBatch]:
        return _ConvertingReader(read_batches(request, epoch, consumed), self._convert)


class _ConvertingReader:
    def __init__(self, reading: BatchReader[Batch], convert: Callable[[Batch], TensorBatch]) -> None:
        self._reading = reading
        self._convert = convert

    def __next__(self) -> tuple[TensorBatch, int]:
        batch, after = next(self._reading)
        return self._convert(batch), after

    def close(self) -> None:
        self._reading.close()


class RowReader:
    """The rows of a request by position; safe for threads, pickling and forking."""

    def __init__(self, request: BatchRequest) -> None:
        self.request = request
        self._process = os.getpid()
        self._decoders = IdlePool(self._decoder)

    def __reduce__(self) -> tuple[Any, ...]:
        return RowReader, (self.request,)  # decoders stay here

    def __len__(self) -> int:
        return self.request.sampler.size

    def batch(self, numbers: Sequence[int]) -> Batch:
        """These rows as a batch."""
        if self._process != os.getpid():
            # Locks and buffers of the parent process must not be used after a fork.
            self.__init__(replace(self.request, shards=copy(self.request.shards)))  # type: ignore[misc]
        request = self.request
        ids = request.sampler.records(request.epoch, self._positions(numbers))
        with self._decoders.borrow() as decoder:
            batch = decoder.decode(request.shards.gather(ids, decoder.pool))
        return request.finish(batch) if request.finish else batch

    def row(self, number: int) -> dict[str, Any]:
        """One row."""
        return {name: column[0] for name, column in self.batch([number]).items()}

    def rows(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """These rows one by one, read together."""
        batch = self.batch(numbers)
        columns = [list(column) for column in batch.values()]
        return [dict(zip(batch, values, strict=True)) for values in zip(*columns, strict=True)]

    def _decoder(self) -> BatchDecoder:
        plan, images = self.request.decoding()
        return BatchDecoder(plan, _core.Pool(0), images)

    def _positions(self, numbers: Sequence[int]) -> Ids:
        size = len(self)
        out = np.empty(len(numbers), np.int64)
        for i, number in enumerate(numbers):
            try:  # a tensor of floats has `__index__` too, and raises TypeError
                position = index(None if isinstance(number, bool) else number)  # type: ignore[arg-type]
            except TypeError:
                raise RecordIndexError(number, "an integer, or a list of integers") from None
            if not -size <= position < size:
                expected = f"an integer from {-size:,} to {size - 1:,}" if size else "no index: there are no records"
                raise RecordIndexError(position, expected)
            out[i] = position + size if position < 0 else position
        return out
