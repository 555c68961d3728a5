"""Columns in memory: dicts of arrays, and pandas DataFrames; and every other source of arrays by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rekord.errors import RekordError, error
from rekord.schema import Schema
from rekord.schema.infer_rows import infer_rows
from rekord.schema.refuse import shown
from rekord.schema.rowforms import column_batches
from rekord.sources.arrow import polars
from rekord.sources.base import Chunk, Columns, Facts
from rekord.sources.numpy_files import npy, npz

__all__ = ["FrameSource", "columns", "npy", "npz", "pandas", "polars"]


_UNTYPED = ("S129", "S130", "S131")  # values of several types, or of one that only a declared feature takes


@dataclass(frozen=True, slots=True, eq=False)
class FrameSource:
    """Rows of columns in memory."""

    frame: Any = field(repr=False)
    kind: str

    def options(self) -> Mapping[str, Any]:
        return {}

    def facts(self) -> Facts:
        """The schema is None where none can be inferred: one that is declared may still hold the values."""
        try:
            schema = self.peeked()
        except RekordError as failure:
            if failure.code not in _UNTYPED:
                raise
            return Facts(layout="table", source_bytes=self._size())
        return Facts(layout="table", schema=schema, rows=schema.evidence["rows"], source_bytes=self._size())

    def peeked(self) -> Schema:
        """The schema of the columns, or why there is none."""
        return infer_rows(self.frame)

    def rows(self) -> Iterator[Chunk]:
        first = 0
        for rows, columns in column_batches(self.frame):
            yield Columns("", first, columns, rows)
            first += rows

    def _size(self) -> int:
        if isinstance(self.frame, Mapping):
            return sum(_bytes_of(column) for column in self.frame.values())
        return int(self.frame.memory_usage(index=False).sum())


def _bytes_of(column: Any) -> int:
    if hasattr(column, "nbytes"):
        return int(column.nbytes)
    return 8 * len(column) if hasattr(column, "__len__") else 8


def columns(arrays: Mapping[str, Any]) -> FrameSource:
    """Rows of a dict of columns: arrays with the rows first, or lists. Types are those that `rk.infer` gives."""
    if not isinstance(arrays, Mapping):
        raise _no_frame("columns", arrays, "a dict of columns", 'rk.sources.columns({"label": array})')
    return FrameSource(arrays, "columns")


def pandas(frame: Any) -> FrameSource:
    """Rows of a pandas DataFrame, without its index. Types are those that `rk.infer` gives."""
    if not all(hasattr(frame, name) for name in ("iloc", "dtypes", "columns", "itertuples")):
        raise _no_frame("pandas", frame, "a pandas DataFrame", "rk.sources.pandas(frame)")
    return FrameSource(frame, "pandas")


def _no_frame(kind: str, given: object, expected: str, do: str) -> RekordError:
    what = f"`{kind}` cannot read from a {type(given).__name__}"
    return error("U605", what, expected=expected, found=shown(given), do=do)
