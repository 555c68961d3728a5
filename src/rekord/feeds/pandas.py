"""Splits as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rekord.errors import error
from rekord.feeds.arrow import split_to_arrow

if TYPE_CHECKING:
    from rekord.dataset.split import Split


def split_to_pandas(split: Split, columns: Sequence[str] | None) -> Any:
    """All records of a split as a DataFrame.

    Whole numbers and truth values with holes have pandas' own types for that (Int64, boolean): as floats, large
    numbers would change.
    """
    try:
        import pandas as pd
    except ImportError as failure:
        raise error(
            "U602",
            "`to_pandas` needs pandas, which is not installed",
            expected="the package pandas",
            found=str(failure)[:60],
            do="pip install pandas",
        ) from failure
    table = split_to_arrow(split, columns)
    with_holes = {
        pa.bool_(): pd.BooleanDtype(),
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint8(): pd.UInt8Dtype(),
        pa.uint16(): pd.UInt16Dtype(),
        pa.uint32(): pd.UInt32Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
    }
    series = {
        name: table[name].to_pandas(types_mapper=with_holes.get if table[name].null_count else None)
        for name in table.column_names
    }
    return pd.DataFrame(series, index=pd.RangeIndex(len(table)))
