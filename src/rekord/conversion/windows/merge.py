"""Sorted runs as one file of good rows, in ranges of keys that fit in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from rekord.conversion.windows.columns import to_ticks
from rekord.conversion.windows.files import (
    BATCH_ROWS,
    EXTRA_KEYS,
    KEYS,
    MERGE_ROWS,
    PickleFile,
    load_array,
    new_arrow_file,
)
from rekord.conversion.windows.sort import SortedRun, SortTask
from rekord.conversion.windows.values import concat_row_tables, format_time, parse_time
from rekord.errors import error, preview
from rekord.location import Location
from rekord.sources.base import (
    SourceRow,
    full_path,
)


class RunMerge:
    """Merges runs into one file of good rows, and notes where series begin."""

    def __init__(self, task: SortTask, runs: Sequence[SortedRun]) -> None:
        self._task = task
        self._runs = runs
        self.groups = sorted({one for run in runs for one in run.groups})
        self.paths = sorted({one for run in runs for one in run.paths})
        group_of = {one: i for i, one in enumerate(self.groups)}
        path_of = {one: i for i, one in enumerate(self.paths)}
        self._group_of = [np.array([group_of[one] for one in run.groups], np.uint32) for run in runs]
        self._path_of = [np.array([path_of[one] for one in run.paths], np.uint32) for run in runs]
        self._keys = [{key: load_array(f"{run.path}.{key}") for key in (*KEYS, *EXTRA_KEYS)} for run in runs]
        self._tables = [pa.ipc.open_file(pa.memory_map(f"{run.path}.rows")).read_all() for run in runs]
        window = task.window
        is_float = any(one["time"].dtype.kind == "f" for one in self._keys)
        self._dtype = np.dtype(np.float64 if is_float else np.int64)
        self._gap = to_ticks("max_gap", window.max_gap, task.time_unit or "us")
        self.borders = find_borders(task, self._keys)
        self.rows = self.bad = self.unordered = self.gaps = 0
        self._previous: tuple[Any, ...] | None = None  # the keys of the last row, good or bad
        self._last_good: tuple[Any, ...] | None = None
        self._is_broken = True

    def run(self) -> None:
        """Write the merged rows."""
        folder = self._task.folder
        with open(os.path.join(folder, "time.dtype"), "w", encoding="ascii") as text:
            text.write(self._dtype.str)
        for name, values in (("groups", self.groups), ("paths", self.paths)):
            with PickleFile(os.path.join(folder, name)) as list_file:
                list_file.add(values)
        names = [*KEYS, "line", "series"]
        files = {name: open(os.path.join(folder, name), "wb") for name in names}  # noqa: SIM115
        rows_file = None
        try:
            with PickleFile(os.path.join(folder, "merge.bad")) as rejects:
                for keys, table in self._ranges():
                    good, starts = self._examine(keys, rejects)
                    for name in (*KEYS, "line"):
                        keys[name][good].tofile(files[name])
                    (self.rows + starts).astype(np.int64).tofile(files["series"])
                    if rows_file is None:
                        rows_file = new_arrow_file(os.path.join(folder, "rows"), table.schema)
                    kept = table if good.all() else table.filter(pa.array(good))
                    for begin in range(0, len(kept), BATCH_ROWS):
                        rows_file.write(kept.slice(begin, BATCH_ROWS).combine_chunks())
                    self.rows += int(good.sum())
                if rows_file is None:
                    rows_file = new_arrow_file(os.path.join(folder, "rows"), pa.schema([]))
        finally:
            for file in files.values():
                file.close()
            if rows_file is not None:
                rows_file.close()
        self._keys, self._tables = [], []
        for run in self._runs:
            for key in (*KEYS, *EXTRA_KEYS, "rows"):
                os.unlink(f"{run.path}.{key}")

    def _ranges(self) -> Iterator[tuple[dict[str, Any], pa.Table]]:
        """The rows of all runs in order, a range of keys at a time."""
        if not self._runs:
            return
        every = max(256, MERGE_ROWS // len(self._runs))
        samples = sorted(
            self._key(run, row) for run in range(len(self._runs)) for row in range(0, self._runs[run].rows, every)
        )
        step = max(len(self._runs), MERGE_ROWS // every)
        splitters = samples[step::step]
        begins = [0] * len(self._runs)
        for splitter in [*splitters, None]:
            pieces = []
            for run, known in enumerate(self._runs):
                end = known.rows if splitter is None else self._lower_bound(run, splitter, begins[run])
                if end > begins[run]:
                    pieces.append((run, begins[run], end))
                begins[run] = end
            if pieces:
                yield self._join(pieces)

    def _key(self, run: int, row: int) -> tuple[Any, ...]:
        keys = self._keys[run]
        return (
            int(self._group_of[run][keys["group"][row]]),
            keys["time"][row].item(),
            int(self._path_of[run][keys["path"][row]]),
            int(keys["position"][row]),
        )

    def _lower_bound(self, run: int, key: tuple[Any, ...], low: int) -> int:
        """The first row of a run, from `low` on, whose key is not before this one."""
        high = self._runs[run].rows
        while low < high:
            middle = (low + high) // 2
            if self._key(run, middle) < key:
                low = middle + 1
            else:
                high = middle
        return low

    def _join(self, pieces: list[tuple[int, int, int]]) -> tuple[dict[str, Any], pa.Table]:
        keys = {
            key: np.concatenate([self._keys[run][key][begin:end] for run, begin, end in pieces])
            for key in ("time", "position", *EXTRA_KEYS)
        }
        keys["time"] = keys["time"].astype(self._dtype, copy=False)
        keys["group"] = np.concatenate([self._group_of[run][self._keys[run]["group"][b:e]] for run, b, e in pieces])
        keys["path"] = np.concatenate([self._path_of[run][self._keys[run]["path"][b:e]] for run, b, e in pieces])
        table = concat_row_tables([self._tables[run].slice(begin, end - begin) for run, begin, end in pieces])
        if len(pieces) > 1:
            order = np.lexsort((keys["position"], keys["path"], keys["time"], keys["group"]))
            keys = {key: values[order] for key, values in keys.items()}
            table = table.take(pa.array(order))
        return keys, table

    def _examine(self, keys: dict[str, Any], rejects: PickleFile) -> tuple[Any, Any]:
        """Which rows are good, and where among these a series begins."""
        window = self._task.window
        rows = len(keys["time"])
        before = [keys[key][0] if self._previous is None else self._previous[i] for i, key in enumerate(KEYS)]
        shifted = {key: np.concatenate([[before[i]], keys[key][:-1]]) for i, key in enumerate(KEYS)}
        same = keys["group"] == shifted["group"]
        if self._previous is None:
            same[0] = False
        bad = keys["bad"].astype(bool)
        if window.time is not None:
            repeated = same & (keys["time"] == shifted["time"]) & ~bad
            self._refuse(keys, np.flatnonzero(repeated), rejects, "row repeats the time of another row of its group")
            bad |= repeated
            late = same & (keys["path"] == shifted["path"]) & (keys["position"] < shifted["position"])
            self.unordered += int(late.sum())
            if window.monotonic:
                late &= ~bad
                self._refuse(keys, np.flatnonzero(late), rejects, "row comes before an earlier one in its file")
                bad |= late
        good = ~bad
        self._previous = tuple(keys[key][-1] for key in KEYS)
        chosen = np.flatnonzero(good)
        starts = np.zeros(0, np.int64)
        if len(chosen):
            broken = np.concatenate([[self._is_broken], np.diff(chosen) > 1])
            broken[0] |= int(chosen[0]) > 0
            group, time = keys["group"][chosen], keys["time"][chosen]
            last = self._last_good or (group[0], time[0])
            earlier = np.concatenate([[last[1]], time[:-1]])
            broken |= group != np.concatenate([[last[0]], group[:-1]])
            if self._gap is not None:
                far = ~broken & (_subtract(time, earlier) > self._gap)
                self.gaps += int(far.sum())
                broken |= far
            starts = np.flatnonzero(broken)
            self._last_good = group[-1], time[-1]
            self._is_broken = int(chosen[-1]) < rows - 1
        else:
            self._is_broken = True
        return good, starts

    def _refuse(self, keys: dict[str, Any], rows: Any, rejects: PickleFile, what: str) -> None:
        for row in rows.tolist():
            path = os.fsdecode(self.paths[int(keys["path"][row])])
            position, line = int(keys["position"][row]), int(keys["line"][row]) or None
            where = Location(
                path=full_path(self._task.source, path) or None,
                row=position,
                line=line,
                feature=self._task.window.time,
            )
            failure = error(
                "E352",
                what,
                location=where,
                expected="times that increase within a group",
                found=format_time(keys["time"][row], self._task.time_unit),
                do='fix the row, or leave bad rows out: on_bad_row="reject"',
            )
            rejects.add(SourceRow(path, position, failure, line))
            self.bad += 1


def _subtract(time: Any, earlier: Any) -> Any:
    """Differences of sorted times; as floats, which do not overflow."""
    if time.dtype.kind == "f":
        return time - earlier
    return time.astype(np.float64) - earlier.astype(np.float64)


def find_borders(task: SortTask, keys: Sequence[Mapping[str, Any]]) -> list[Any] | None:
    """The first time of each split after the first."""
    given = task.window.split_by_time
    if not given:
        return None
    if given[0][1] is None:
        borders = [_parse_border(value, task.time_unit) for _, value in given[1:]]
        if any(later <= earlier for earlier, later in pairwise(borders)):
            shown = str([value for _, value in given[1:]])[:60]
            raise error(
                "U605",
                "`split_by_time` must name times in order",
                expected="a later time for each split",
                found=shown,
                do='split_by_time={"train": None, "val": "2024-06-01", "test": "2024-07-01"}',
            )
        return borders
    times = [np.asarray(one["time"]) if len(one["time"]) < MERGE_ROWS else one["time"] for one in keys]
    rows = sum(map(len, times))
    shares = np.cumsum([ratio for _, ratio in given])[:-1]
    return [_select_time(times, min(max(round(share * rows), 0), rows - 1)) for share in shares.tolist()]


def _parse_border(value: Any, unit: str | None) -> Any:
    try:
        if unit is None:
            return float(value) if isinstance(value, (float, int)) else float(str(value))
        parsed = parse_time(str(value))
        if parsed is None:
            raise ValueError(value)
        return int(np.array([parsed], f"M8[{unit or 'us'}]").astype(np.int64)[0])
    except ValueError:
        raise error(
            "U605",
            f"`split_by_time` cannot be {preview(value)}",
            expected="a time such as 2024-06-01" if unit is not None else "a number in units of the time",
            found=preview(value),
            do='split_by_time={"train": None, "val": "2024-06-01"}',
        ) from None


def _select_time(times: Sequence[Any], rank: int) -> Any:
    """The time of this rank among all: found bit by bit, in passes over the columns on disk."""
    if not times:
        return 0
    is_float = times[0].dtype.kind == "f"
    prefix, rest = 0, rank
    for shift in range(48, -1, -16):
        counts = np.zeros(1 << 16, np.int64)
        for column in times:
            for begin in range(0, len(column), 1 << 20):
                ordered = _ordered_bits(np.asarray(column[begin : begin + (1 << 20)]))
                if shift < 48:
                    ordered = ordered[(ordered >> np.uint64(shift + 16)) == np.uint64(prefix)]
                counts += np.bincount(
                    ((ordered >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.int64), minlength=1 << 16
                )
        ends = np.cumsum(counts)
        bucket = int(np.searchsorted(ends, rest, side="right"))
        rest -= int(ends[bucket] - counts[bucket])
        prefix = prefix << 16 | bucket
    bits = np.array([prefix], np.uint64)
    if not is_float:
        return int((bits ^ np.uint64(1 << 63)).view(np.int64)[0])
    negative = not prefix >> 63
    return float((~bits if negative else bits ^ np.uint64(1 << 63)).view(np.float64)[0])


def _ordered_bits(values: Any) -> Any:
    """Numbers as unsigned integers in the same order."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    if values.dtype.kind == "f":
        return np.where(bits >> np.uint64(63), ~bits, bits ^ np.uint64(1 << 63))
    return bits ^ np.uint64(1 << 63)
