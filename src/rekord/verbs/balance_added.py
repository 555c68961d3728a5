"""Shards of records as they are, in which those that were added are made while it is written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rekord import _core
from rekord.codec.decode import decode
from rekord.codec.encode import row_encoder
from rekord.codec.plan import compile_plan
from rekord.dataset.order import Order
from rekord.engines.copied import Buffers, Copying, Stretch
from rekord.engines.encoding import decoded_columns
from rekord.engines.remake import Piece
from rekord.errors import RekordError, UsageError
from rekord.location import Location
from rekord.schema import Schema
from rekord.transforms.augment import Augmentation, roll_of
from rekord.transforms.base import Row

_FOOTER_BYTES = 4

MakeRow: TypeAlias = "Callable[[int, Callable[[], Row]], Row]"
"""The row that is added under a number, given what decodes the record that it goes back to."""


@dataclass(frozen=True, eq=False)
class WithAdded:
    """Frames of records in an order: the first `kept` as they are, those behind them made by a function of a row."""

    order: Order
    kept: int
    make: MakeRow
    touches: frozenset[str]  # the columns that differ from those of the record that a row goes back to

    def __call__(self, stretch: Stretch, schema: Schema, index: tuple[str, ...]) -> Iterator[Piece]:
        """The frames of a stretch, with their lengths and lines of the index."""
        encoder = row_encoder(schema)  # of its own: another thread writes another shard
        touched = [name for name in index if name in self.touches]
        position = stretch.begin
        with Copying(stretch.records, schema, index, Buffers()) as copying:
            for frames, lengths, lines in copying.windows(stretch):
                positions = np.arange(position, position + len(lengths), dtype=np.int64)
                position += len(lengths)
                numbers = self.order.records(0, positions)
                new = np.flatnonzero(numbers >= self.kept)
                if not len(new):
                    yield frames, lengths, lines
                    continue
                made = [
                    self._made(int(numbers[at]), payload, stretch, positions[at], schema, encoder)
                    for at, payload in _payloads(frames, lengths, new)
                ]
                if touched:
                    lines = _with_lines(lines, new, made, schema, index)
                yield *_with_frames(frames, lengths, new, made), lines

    def _made(
        self, number: int, payload: bytes, stretch: Stretch, position: Any, schema: Schema, encoder: Any
    ) -> bytes:
        try:
            encoder.append(self.make(number - self.kept, lambda: decode(payload, schema)))
            return bytes(encoder.take())
        except RekordError as failure:
            if isinstance(failure, UsageError) or failure.location.record is not None:
                raise  # about all records, or one that it names
            source = stretch.records.recipe.records(0, np.array([position], np.int64))
            where = stretch.records.shards.where(int(source[0]))
            failure.location = Location(feature=failure.location.feature).within(**where.to_dict())
            raise


def _payloads(frames: Any, lengths: Any, chosen: Any) -> Iterator[tuple[int, bytes]]:
    ends = np.cumsum(lengths)
    for at in chosen.tolist():
        begin, end = int(ends[at] - lengths[at]), int(ends[at])
        yield at, bytes(frames[begin + _core.HEADER_BYTES : end - _FOOTER_BYTES])


def _with_frames(frames: Any, lengths: Any, new: Any, made: Sequence[bytes]) -> tuple[bytes, Any]:
    """Frames, some of them replaced."""
    ends = np.cumsum(lengths)
    sizes = np.array(lengths, np.int64)
    parts: list[Any] = []
    done = 0
    for at, frame in zip(new.tolist(), made, strict=True):
        parts += [frames[done : int(ends[at] - lengths[at])], frame]
        done, sizes[at] = int(ends[at]), len(frame)
    return b"".join([*parts, frames[done:]]), sizes


def _with_lines(
    lines: pa.Table, new: Any, made: Sequence[bytes], schema: Schema, index: tuple[str, ...]
) -> pa.Table:
    """Lines of the index, some of them replaced."""
    columns = decoded_columns(compile_plan(schema, index), b"".join(made), len(made))
    replaced = pa.table({f"index:{name}": column for name, column in columns.items()})
    places = np.arange(lines.num_rows)
    places[new] = lines.num_rows + np.arange(len(made))
    return pa.concat_tables([lines, replaced], promote_options="permissive").take(pa.array(places))


@dataclass(frozen=True, eq=False)
class Varied:
    """Added rows are their records, augmented: each copy of a record in another way, and the same in every run."""

    augmentation: Augmentation
    seed: int
    split: str
    sources: Any  # of each added row, the number of its record
    copies: Any  # and which copy of it that is

    def __call__(self, number: int, record: Callable[[], Row]) -> Row:
        """The row."""
        roll = roll_of(self.seed, self.split, int(self.sources[number]), int(self.copies[number]))
        return self.augmentation(record(), roll)


@dataclass(frozen=True, eq=False)
class Synthesised:
    """Added rows come from a function that makes all of them at once, the first time that one is needed."""

    synthesise: Callable[[], Mapping[str, Any]]  # columns of all added rows
    _lock: Any = field(default_factory=threading.Lock, init=False)
    _columns: dict[str, Any] = field(default_factory=dict, init=False)

    def __call__(self, number: int, record: Callable[[], Row]) -> Row:
        """The row."""
        with self._lock:
            if not self._columns:
                self._columns.update(self.synthesise())
        return {name: values[number] for name, values in self._columns.items()}
