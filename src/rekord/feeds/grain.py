"""A data source for Grain, which shuffles, shares and batches rows itself."""

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


_OF_GRAIN = ("shuffle", "seed", "epoch", "rank", "world", "remainder", "prefetch", "threads")
"""Options of `batches` that Grain decides."""


@partial(accepts_batch_options, without=_OF_GRAIN)
def make_data_source(split: Split, **options: Unpack[BatchOptions]) -> GrainDataSource:
    """The rows of a split for `grain.DataLoader` and `grain.MapDataset.source`; the arguments are those of `batches`.

    `map` is given batches, here those of the rows that Grain asks for at once.
    """
    return GrainDataSource(split.request(1, **options))


class GrainDataSource:
    """Rows by number, `{column: value}` each: what Grain calls a RandomAccessDataSource. It imports no Grain."""

    def __init__(self, request: BatchRequest) -> None:
        self._rows = RowReader(request)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self._rows.row(number)

    def _getitems(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        # By this name Grain asks for several rows at once.
        return self._rows.rows(numbers)

    def __repr__(self) -> str:
        # Grain keeps it in its checkpoints, and compares: no address, the same in every process.
        request = self._rows.request
        return f"DataSource({request.split!r}, {len(self)} rows, {request.dataset()[:_DIGITS]})"
