"""Records of some shards by number, and views of some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from rekord import _core
from rekord.codec.columns import Column
from rekord.dataset.batches import checked_count
from rekord.dataset.finish import Batch, Map, composed, finisher
from rekord.dataset.indexed import IndexedDecoder
from rekord.dataset.lazy_schema import LazySchema
from rekord.dataset.no_record import NoRecord
from rekord.dataset.order import Ids
from rekord.dataset.selection import Selection, cut, numbers_at, selected
from rekord.dataset.shards import Shards
from rekord.dataset.transformed import Transforms
from rekord.schema import Schema

Self = TypeVar("Self", bound="Numbered")


class Numbered:
    """Records, each with a number. A view has some of them, in an order of its own."""

    def __init__(
        self,
        name: str,
        shards: Shards,
        schema: LazySchema,
        *,
        ids: Selection | None = None,
        map: Map = None,
        transforms: Transforms | None = None,
        block_records: int | None = None,
        digest: str | None = None,
    ) -> None:
        self._name = name
        self._shards = shards
        self._schema = schema
        self._ids = ids
        self._map = map
        self._transforms = transforms
        self._block_records = block_records
        self._digest = digest

    @property
    def name(self) -> str:
        """What the dataset calls it."""
        return self._name

    @property
    def paths(self) -> tuple[str, ...]:
        """The record files."""
        return tuple(self._shards.paths)

    @property
    def schema(self) -> Schema:
        """The declared schema, or the one inferred from the first records; that of what transforms make of them."""
        return self._schema.get() if self._transforms is None else self._transforms.schema

    def __len__(self) -> int:
        return len(self._shards) if self._ids is None else len(self._ids)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return self._view(cut(self._all_ids(), _checked_slice(which, len(self))))
        self._shards.check_any_order()
        if isinstance(which, (list, tuple, np.ndarray, range)):
            return self._mapped(self._at(self._checked_ids(which)))
        number = _checked_number(which, len(self))
        batch = self._mapped(self._at(self._numbered(np.array([number], np.int64))))
        return {name: column[0] for name, column in batch.items()}

    def take(self: Self, count: int) -> Self:
        """A view of the first records."""
        return self._view(cut(self._all_ids(), slice(checked_count("count", count, least=0))))

    def select(self: Self, numbers: Sequence[int]) -> Self:
        """A view of these records, in this order; one that is named twice comes twice."""
        return self._view(selected(self._checked_ids(numbers)))

    def map(self: Self, function: Callable[[Batch], Any]) -> Self:
        """The same records with a function applied to every batch, after those that were applied before."""
        return self._copy(ids=self._ids, map=composed(self._map, function))

    def _at(self, ids: Ids) -> dict[str, Column]:
        if self._transforms is None:
            return IndexedDecoder(self._shards, self._schema.plan(None), _core.Pool(0)).decode(ids)
        made = self._transforms.of(None)
        return IndexedDecoder(self._shards, made.reading(), _core.Pool(0), made.then(None)).decode(ids)

    def _mapped(self, batch: Batch) -> Batch:
        finish = finisher((), fill=None, ragged="ragged", pad=None, map=self._map)
        return batch if finish is None else finish(batch)

    def _all_ids(self) -> Selection:
        return range(len(self._shards)) if self._ids is None else self._ids

    def _numbered(self, numbers: Ids) -> Ids:
        return numbers if self._ids is None else numbers_at(self._ids, numbers)

    def _checked_ids(self, numbers: Any) -> Ids:
        size = len(self)
        given = np.asarray(numbers)
        if given.dtype == np.bool_ and given.shape == (size,):
            given = np.flatnonzero(given)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise _no_records(numbers, "a list of whole numbers")
        outside = (given < -size) | (given >= size)  # before they are int64: of 2^64 - 1 that makes -1
        if outside.any():
            raise _no_records(int(given[outside][0]), f"numbers from {-size:,} to {size - 1:,}")
        ids = given.astype(np.int64)
        return self._numbered(np.where(ids < 0, ids + size, ids))

    def _view(self: Self, ids: Selection) -> Self:
        return self._copy(ids=ids, map=self._map)

    def _copy(self: Self, *, ids: Selection | None, map: Map) -> Self:
        return type(self)(
            self.name,
            self._shards,
            self._schema,
            ids=ids,
            map=map,
            transforms=self._transforms,
            block_records=self._block_records,
            digest=self._digest,
        )

    def __repr__(self) -> str:
        if self._ids is not None:
            return f"Split({self.name!r}, {len(self):,} of its records)"
        files = len(self._shards.paths)
        return f"Split({self.name!r}, {files} file{'s' if files != 1 else ''})"


def _checked_slice(which: slice, size: int) -> slice:
    try:
        which.indices(size)
    except (TypeError, ValueError):
        raise _no_records(which, "a slice of whole numbers, whose step is not 0") from None
    return which


def _checked_number(which: object, size: int) -> int:
    if isinstance(which, bool) or not hasattr(which, "__index__"):
        raise _no_records(which, "a whole number, a list of them, or a slice")
    number = int(which.__index__())
    if not -size <= number < size:
        raise _no_records(number, f"a number from {-size:,} to {size - 1:,}" if size else "no records at all")
    return number + size if number < 0 else number


def _no_records(found: object, expected: str) -> Exception:
    # An IndexError too: that is what ends a loop over `split[0]`, `split[1]`, … in Python.
    return NoRecord(found, expected)
