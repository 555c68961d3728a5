"""What all feeds share: the loader that converts batches to tensors, ranks, rows by number, forms of columns."""

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
from rekord.codec.columns import Batch, Optional, Ragged, SparseColumn
from rekord.dataset.batches import BatchReader, BatchRequest, Loader, read_batches
from rekord.dataset.options import BatchOptions, validate_ranks
from rekord.dataset.readers.pipeline import BatchDecoder, IdlePool
from rekord.dataset.samplers import Ids
from rekord.dataset.shards import RecordIndexError
from rekord.errors import error

Array: TypeAlias = "np.ndarray[Any, Any]"

_NUMERIC_KINDS = "biufc"


class RaggedTensors(NamedTuple):
    """Rows of different lengths: row i is `values[offsets[i]:offsets[i + 1]]`; `valid` is None where none is missing.

    Where not the first dimension of a row varies, a row is to be reshaped as the schema declares it.
    """

    values: Any
    offsets: Any
    valid: Any = None


class MaskedTensors(NamedTuple):
    """Rows of one shape, of which only those are there that `valid` is True of."""

    values: Any
    valid: Any


class SparseTensors(NamedTuple):
    """Sparse vectors: those of row i are `indices` and `values` from `offsets[i]` to `offsets[i + 1]`."""

    indices: Any
    values: Any
    offsets: Any
    valid: Any = None


def convert_column(column: Any, tensor: Callable[[Array], Any]) -> Any:
    """A column with tensors in place of its arrays of numbers; of images of different sizes, a list of tensors.

    Strings, and what is no column, stay as they are.
    """
    column = without_times(column)
    if isinstance(column, np.ndarray):
        return _convert_array(column, tensor)
    if isinstance(column, Optional):
        return MaskedTensors(tensor(column.values), tensor(column.valid))
    if isinstance(column, Ragged):
        valid = None if column.valid is None else tensor(column.valid)
        return RaggedTensors(convert_column(column.values, tensor), tensor(column.offsets), valid)
    if isinstance(column, SparseColumn):
        valid = None if column.valid is None else tensor(column.valid)
        indices, values = column.indices.values, column.values.values
        return SparseTensors(
            convert_column(indices, tensor),
            convert_column(values, tensor),
            tensor(column.values.offsets),
            valid,
        )
    return column


def without_times(column: Any) -> Any:
    """A column with numbers in place of datetime64, which no framework has: as they are stored."""
    if isinstance(column, np.ndarray) and column.dtype.kind == "M":
        return column.view(np.int64)
    if isinstance(column, Optional) and column.values.dtype.kind == "M":
        return Optional(without_times(column.values), column.valid)
    if isinstance(column, Ragged) and isinstance(column.values, (np.ndarray, Ragged)):
        values = without_times(column.values)
        if values is not column.values:
            return Ragged(values, column.offsets, valid=column.valid, row_shape=column.row_shape)
    return column


def _convert_array(array: Array, tensor: Callable[[Array], Any]) -> Any:
    if is_numeric(array):
        return tensor(array)
    return [tensor(value) for value in array] if is_image_column(array) else array


def is_image_column(column: Any) -> bool:
    """Whether these are images of different sizes: an array of numbers for each row."""
    if not isinstance(column, np.ndarray) or column.dtype != object or column.ndim != 1:
        return False
    return all(isinstance(value, np.ndarray) and is_numeric(value) for value in column)


def is_numeric(array: Array) -> bool:
    """Whether these are numbers or truth values, and no objects, texts or times."""
    # bfloat16 is of kind V for NumPy, which does not know it.
    return array.dtype.kind in _NUMERIC_KINDS or array.dtype.name == "bfloat16"


def import_framework(name: str, call: str, extra: str) -> Any:
    """A framework's module, imported now; its absence names the extra to install."""
    try:
        return import_module(name)
    except ImportError as failure:
        raise error(
            "U602",
            f"{call} needs {name}, which is not installed",
            expected=f"the package {name}",
            found=str(failure)[:60],
            do=f"pip install 'rekord[{extra}]'",
        ) from failure


RankLookup: TypeAlias = "Callable[[], tuple[int, int] | None]"
"""Gives the rank of this process and how many there are; None where the framework does not know yet."""


def with_ranks(options: BatchOptions, group: RankLookup, *, start: str) -> BatchOptions:
    """The options with the rank that the framework says for "auto"; a world of several needs a `remainder`.

    `start` is the call that makes the framework know its ranks.
    """
    rank, world, remainder = options.get("rank", 0), options.get("world", 1), options.get("remainder")
    if rank == "auto":
        rank, world = _detect_ranks(world, group, start)
    number, size, checked = validate_ranks(rank, world, "keep" if remainder is None else remainder)
    if remainder is None and size > 1:
        raise error(
            "U605",
            f"`remainder` must be chosen for a world of {size}",
            expected='remainder="drop", "pad" or "keep"',
            found="none given",
            do='remainder="drop", or "pad" to leave no record out',
        )
    return {**options, "rank": number, "world": size, "remainder": checked}


def _detect_ranks(world: int, group: RankLookup, start: str) -> tuple[int, int]:
    found = group()
    if found is None:
        raise error(
            "U605",
            'rank="auto" finds no ranks',
            expected=f"{start} before this call",
            found="a process that belongs to no group",
            do=f"{start} first, or rank=0 for a process on its own",
        )
    if world not in (1, found[1]):
        raise error(
            "U605",
            f"`world` is {repr(world)[:60]}, and the group of this process has {found[1]}",
            expected=f"world={found[1]}",
            found=f"world={repr(world)[:60]}",
            do='leave `world` out beside rank="auto"',
        )
    return found


TensorBatch: TypeAlias = "dict[str, Any]"


class Feed(Loader[TensorBatch]):
    """Batches of tensors, `{column: tensor}` each, in the order of `split.batches`: every `iter()` is a whole epoch.

    `state_dict()` counts what was delivered, never what was only prefetched. It has the form of those of
    `split.batches`, and one can load the other's.
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
    """The rows that a request asks for, by position. For any number of threads, and to be pickled or forked."""

    def __init__(self, request: BatchRequest) -> None:
        self.request = request
        self._process = os.getpid()
        self._decoders = IdlePool(self._decoder)

    def __reduce__(self) -> tuple[Any, ...]:
        return RowReader, (self.request,)  # decoders stay here

    def __len__(self) -> int:
        return self.request.sampler.size

    def batch(self, numbers: Sequence[int]) -> Batch:
        """These rows as a batch, in the form that was asked for."""
        if self._process != os.getpid():
            # Locks and buffers of the process that forked are not ours to use.
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
            try:
                position = _to_int(number)
            except TypeError:
                raise RecordIndexError(number, "a whole number, or a list of them") from None
            if not -size <= position < size:
                raise RecordIndexError(
                    position, f"a number from {-size:,} to {size - 1:,}" if size else "no records at all"
                )
            out[i] = position + size if position < 0 else position
        return out


def _to_int(number: Any) -> int:
    if isinstance(number, bool):
        raise TypeError
    return index(number)
