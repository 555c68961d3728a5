"""Reads several batches at a time: assembling and passing a small batch costs more than decoding it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from rekord.codec.columns import Batch
from rekord.dataset.batches import BatchRequest, read_batches
from rekord.dataset.samplers import Remainder
from rekord.errors import RekordError
from rekord.feeds.tensorflow.packing import BatchPacking, count_bytes

_MAX_GROUP_BYTES = 1 << 20
_SHRINK_FACTOR = 4
"""A group is about as large as the limit by the size of the first batch; if it is that many times larger, the
following ones have fewer batches."""


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive batches of an epoch, converted on the threads that decode."""

    pieces: list[Any]
    batch_bytes: int  # on average


@dataclass(frozen=True, slots=True)
class GroupReader:
    """Reads an epoch in groups of at most `most` batches. The first batch is a group of its own.

    `convert` receives the arrays of all parts, the number of batches, the rows of each, and the first row of the
    first one; a short last batch comes separately. `validate` checks each batch before that.
    """

    packing: BatchPacking
    convert: Callable[..., Any]
    validate: Callable[[Batch], None] | None = None
    most: int = 1

    def read(self, request: BatchRequest, epoch: int, consumed: int) -> Iterator[Group]:
        """The groups of an epoch from a position on; an error comes after all batches before it.

        Like other readers, it does not wait for its threads if it is abandoned.
        """
        most, size, is_first = self.most, 1, self.most > 1
        # An iteration that takes only the first batch should not read others in the background.
        alone = replace(request, threads=1, prefetch=0) if is_first else request
        reading = read_batches(self._group_request(alone, size), epoch, consumed)
        while True:
            try:
                group, consumed = next(reading)
            except StopIteration:
                if size == 1 or request.streams:
                    return
                wanted = size  # there may be batches left that do not fill a group
            except RekordError:
                if size == 1 or request.streams:
                    raise
                most = wanted = 1  # delivers the batches of the group that come before the error
            else:
                yield group  # type: ignore[misc]
                wanted = min(most, max(1, _MAX_GROUP_BYTES // max(1, group.batch_bytes)))  # type: ignore[attr-defined]
                if not is_first and size < _SHRINK_FACTOR * wanted:
                    continue
            reading.close()
            is_first = False
            size = wanted if request.streams else max(1, min(wanted, _count_whole_steps(request, consumed)))
            reading = read_batches(self._group_request(request, size), epoch, consumed)

    def _group_request(self, request: BatchRequest, size: int) -> BatchRequest:
        """A request whose batches are groups of `size` batches."""
        finish = request.finish

        def to_group(batch: Batch) -> Any:
            batch = batch if finish is None else finish(batch)
            if self.validate is not None:
                self.validate(batch)
            return self._to_group(batch, request.batch_size if size > 1 else None, request.remainder == "drop")

        if size == 1:
            return replace(request, finish=to_group)
        # The end of a stream is not known: its batches are cut. Otherwise groups have whole batches only.
        remainder: Remainder = "keep" if request.streams else "drop"
        return replace(request, batch_size=size * request.batch_size, remainder=remainder, finish=to_group)

    def _to_group(self, batch: Batch, batch_rows: int | None, is_whole: bool) -> Group:
        arrays, rows = self.packing.put(batch), len(next(iter(batch.values())))
        n_bytes = count_bytes(arrays)
        if batch_rows is None:
            return Group([self.convert(arrays, 1, rows)], n_bytes)
        count, rest = divmod(rows, batch_rows)
        pieces = [self.convert(arrays, count, batch_rows)] if count else []
        if rest and not is_whole:
            pieces.append(self.convert(arrays, 1, rest, count * batch_rows))
        return Group(pieces, n_bytes // max(1, count))


def _count_whole_steps(request: BatchRequest, consumed: int) -> int:
    steps = request.steps(consumed)
    return max(0, steps.n - consumed) // steps.step_positions
