"""SQL over the records of a split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from rekord.errors import RekordError, error
from rekord.feeds.sql_answer import Answer

if TYPE_CHECKING:
    from rekord.dataset.split import Split


def split_sql(split: Split, query: str) -> pa.Table:
    """What a query says of the table `records`. Only columns that it needs are decoded."""
    try:
        with Answer([split], query) as answer:
            return answer.table()
    except RekordError as failure:
        if failure.code in ("U680", "U682"):
            raise _said(failure) from None
        if failure.code == "U681":
            failure.do = "select what is wanted; the answer is a pyarrow.Table, which other tools take on"
        raise


def _said(failure: RekordError) -> RekordError:
    """What is wrong with a query, as splits say it: what to do is in Python there."""
    return error(
        "U669",
        expected=failure.expected,
        found=failure.found,
        likely=failure.likely,
        do='split.sql("select label, count(*) from records group by 1")',
    )
