"""Splits as polars DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rekord.errors import error
from rekord.feeds.arrow import split_to_arrow

if TYPE_CHECKING:
    from rekord.dataset.split import Split


def split_to_polars(split: Split, columns: Sequence[str] | None) -> Any:
    """All records of a split as a DataFrame, in memory that polars shares with Arrow where it can."""
    try:
        import polars as pl
    except ImportError as failure:
        raise error(
            "U602",
            "`to_polars` needs polars, which is not installed",
            expected="the package polars",
            found=str(failure)[:60],
            do="pip install polars",
        ) from failure
    return pl.from_arrow(split_to_arrow(split, columns))
