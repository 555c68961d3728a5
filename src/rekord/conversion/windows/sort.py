"""Runs of sorted rows: each part of a source is checked and sorted by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pyarrow as pa
from pyarrow import compute

from rekord.conversion.windows.columns import SeriesColumn, column_error, feature_of
from rekord.conversion.windows.files import BATCH_ROWS, PickleFile, new_arrow_file, save_array
from rekord.conversion.windows.values import (
    concat_row_tables,
    has_lines,
    iter_row_tables,
    number_groups,
    preview_value,
    read_time,
)
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.sources.base import (
    Chunk,
    ColumnChunk,
    SourcePart,
    SourceRow,
    full_path,
    read_part,
)
from rekord.transforms.windows import Window

RUN_BYTES = 64 << 20
"""Bytes of rows that are sorted in memory at a time."""


class SortedRun(NamedTuple):
    """A file of sorted rows. Groups and paths are numbered by these lists, which are sorted."""

    path: str
    rows: int
    groups: list[bytes]
    paths: list[bytes]


class SortedPart(NamedTuple):
    runs: list[SortedRun]
    bad: int


@dataclass(frozen=True)
class SortTask:
    source: Any
    window: Window
    folder: str
    columns: tuple[SeriesColumn, ...]
    time_unit: str | None

    def __call__(self, number: int, chunks: Iterable[Chunk]) -> SortedPart:
        """Sort the rows of a part."""
        runs: list[SortedRun] = []
        waiting: list[KeyedRows] = []
        waiting_bytes = bad = 0
        with PickleFile(os.path.join(self.folder, f"part-{number}.bad")) as rejects:
            for piece in iter_row_tables(chunks, [*self._names, *([self.window.time] if self.window.time else [])]):
                if isinstance(piece, SourceRow):
                    rejects.add(piece)
                    bad += 1
                    continue
                rows, refused = self._check(*piece)
                for one in refused:
                    rejects.add(one)
                bad += len(refused)
                waiting.append(rows)
                waiting_bytes += rows.table.nbytes + 40 * len(rows.time)
                if waiting_bytes >= RUN_BYTES:
                    runs.append(self._write(f"{number}-{len(runs)}", waiting))
                    waiting, waiting_bytes = [], 0
            if waiting:
                runs.append(self._write(f"{number}-{len(runs)}", waiting))
        return SortedPart(runs, bad)

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self.columns]

    def _check(self, chunk: ColumnChunk, table: pa.Table) -> tuple[KeyedRows, list[SourceRow]]:
        """The rows of a chunk, and the errors of bad ones. Bad rows with a known place break their series."""
        window, rows = self.window, chunk.rows
        problems: dict[int, RekordError] = {}
        bad = np.zeros(rows, bool)

        def refuse(
            numbers: Any, code: str, what: str, column: str, expected: str, found: Callable[[int], str]
        ) -> None:
            for row in numbers.tolist():
                if bad[row]:
                    continue
                bad[row] = True
                where = Location(
                    path=full_path(self.source, chunk.path) or None,
                    row=chunk.first + row,
                    line=chunk.line_of(row),
                    feature=column,
                )
                do = 'fix the row, or leave bad rows out: on_bad_row="reject"'
                problems[row] = error(code, what, location=where, expected=expected, found=found(row), do=do)

        time, missing = read_time(None if window.time is None else table[window.time], rows, self.time_unit)
        unplaced = np.zeros(rows, bool)
        if window.time is not None:
            unplaced |= missing
            texts = table[window.time]
            found = partial(preview_value, texts)
            refuse(np.flatnonzero(missing), "E349", f"row has no valid `{window.time}`", window.time, "a time", found)
        for name in self._names:
            column = table[name]
            lacks = compute.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
            if lacks.any():
                refuse(
                    np.flatnonzero(lacks),
                    "E349",
                    f"`{name}` has no value",
                    name,
                    "a value in every row",
                    lambda _: "none",
                )
                if window.by is not None and name in window.by:
                    unplaced |= lacks
        for name, least, most in window.ranges:
            values = table[name].to_numpy(zero_copy_only=False)
            outside = np.zeros(rows, bool)
            with np.errstate(invalid="ignore"):
                try:
                    outside |= False if least is None else values < least
                    outside |= False if most is None else values > most
                except TypeError:
                    raise column_error(name, feature_of(self.columns, name), "numbers, for a range") from None
            shown = f"{'' if least is None else f'{least:g} ≤ '}`{name}`{'' if most is None else f' ≤ {most:g}'}"
            refuse(
                np.flatnonzero(outside & ~bad), "E351", f"`{name}` is outside of its range", name, shown,
                partial(preview_value, table[name]),
            )  # fmt: skip
        groups, group = number_groups(table, window.by, chunk.path)
        keep = ~unplaced
        positions = chunk.first + np.arange(rows, dtype=np.int64)
        lines = np.array([chunk.line_of(row) or 0 for row in range(rows)], np.int64) if has_lines(chunk) else None
        kept = KeyedRows(
            groups,
            group[keep],
            time[keep],
            os.fsencode(chunk.path),
            positions[keep],
            (np.zeros(rows, np.int64) if lines is None else lines)[keep],
            bad[keep],
            table.select(self._names).filter(pa.array(keep)),
        )
        return kept, [
            SourceRow(chunk.path, chunk.first + row, problems[row], chunk.line_of(row)) for row in sorted(problems)
        ]

    def _write(self, name: str, waiting: list[KeyedRows]) -> SortedRun:
        groups = sorted({one for rows in waiting for one in rows.groups})
        paths = sorted({rows.path for rows in waiting})
        places = {one: i for i, one in enumerate(groups)}
        which = {one: i for i, one in enumerate(paths)}
        group = np.concatenate(
            [np.array([places[one] for one in rows.groups] or [0], np.uint32)[rows.group] for rows in waiting]
        )
        path = np.concatenate([np.full(len(rows.time), which[rows.path], np.uint32) for rows in waiting])
        keys = {"group": group, "path": path}
        for key, field in (("time", "time"), ("position", "position"), ("line", "line"), ("bad", "bad")):
            keys[key] = np.concatenate([getattr(rows, field) for rows in waiting])
        table = concat_row_tables([rows.table for rows in waiting])
        order = np.lexsort((keys["position"], keys["path"], keys["time"], keys["group"]))
        place = os.path.join(self.folder, f"run-{name}")
        for key, values in keys.items():
            save_array(f"{place}.{key}", values[order])
        with new_arrow_file(f"{place}.rows", table.schema) as file:
            for begin in range(0, len(order), BATCH_ROWS):
                file.write(table.take(pa.array(order[begin : begin + BATCH_ROWS])))
        return SortedRun(place, len(order), groups, paths)


class KeyedRows(NamedTuple):
    """Rows of one chunk, with their keys."""

    groups: list[bytes]
    group: Any  # number in `groups`
    time: Any
    path: bytes
    position: Any
    line: Any
    bad: Any
    table: pa.Table


def sort_in_worker(packed: bytes, number: int, part: SourcePart) -> SortedPart:
    """Sort the rows of a part, in another process."""
    task = _unpickle_task(packed)
    return task(number, read_part(task.source, part))


@lru_cache(maxsize=1)
def _unpickle_task(packed: bytes) -> SortTask:
    task: SortTask = cloudpickle.loads(packed)
    return task
