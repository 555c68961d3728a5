"""A data source for Grain, which shuffles, shares and batches rows itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rekord.dataset.batches import Request
from rekord.dataset.postprocess import Batch
from rekord.feeds.feed import Rows

if TYPE_CHECKING:
    from rekord.dataset.split import Split

_DIGITS = 16


def data_source(
    split: Split,
    *,
    columns: Sequence[str] | None = None,
    fill: Mapping[str, Any] | None = None,
    ragged: Literal["ragged", "pad"] = "ragged",
    pad: Mapping[str, Any] | None = None,
    decode: bool = False,
    resize: tuple[int, int] | None = None,
    map: Callable[[Batch], Any] | None = None,
) -> DataSource:
    """The rows of a split for `grain.DataLoader` and `grain.MapDataset.source`; the arguments are those of `batches`.

    `map` is given batches, here those of the rows that Grain asks for at once.
    """
    return DataSource(
        split.request(
            1,
            columns=columns,
            fill=fill,
            ragged=ragged,
            pad=pad,
            decode=decode,
            resize=resize,
            map=map,
        )
    )


class DataSource:
    """Rows by number, `{column: value}` each: what Grain calls a RandomAccessDataSource. It imports no Grain."""

    def __init__(self, request: Request) -> None:
        self._rows = Rows(request)

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
