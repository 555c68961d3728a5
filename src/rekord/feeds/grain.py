"""A data source for Grain, which shuffles, shards and batches rows itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from rekord.dataset.batches import BatchRequest
from rekord.dataset.options import BatchOptions, accepts_batch_options
from rekord.feeds.feed import RowReader

if TYPE_CHECKING:
    from rekord.dataset.split import Split

_DIGITS = 16

_OF_GRAIN = ("shuffle", "seed", "epoch", "rank", "world", "nodes", "remainder", "prefetch", "threads")
"""Options of `batches` that are Grain's to decide."""


@partial(accepts_batch_options, without=_OF_GRAIN)
def make_data_source(split: Split, **options: Unpack[BatchOptions]) -> GrainDataSource:
    """The rows of a split for `grain.DataLoader` and `grain.MapDataset.source`; takes the arguments of `batches`.

    `map` receives batches: the rows that Grain reads at once.
    """
    return GrainDataSource(split.request(1, **options))


class GrainDataSource:
    """Rows by number, `{column: value}` each: Grain's RandomAccessDataSource, without importing Grain."""

    def __init__(self, request: BatchRequest) -> None:
        self._rows = RowReader(request)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self._rows.row(number)

    def _getitems(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        # The method by which Grain reads several rows at once.
        return self._rows.rows(numbers)

    def __repr__(self) -> str:
        # Grain stores and compares it in checkpoints, so it has no address and is the same in every process.
        request = self._rows.request
        return f"DataSource({request.split!r}, {len(self)} rows, {request.dataset()[:_DIGITS]})"
