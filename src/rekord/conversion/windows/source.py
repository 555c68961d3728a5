"""Windows of time series: rows are sorted by (group, time) on disk, and ranges of them become rows of a dataset.

The sort is external: runs of sorted rows, one after another from each part of the source, are merged in ranges of
keys that fit in memory. A key is (group, time, file, position), which no two rows share, so the result depends
neither on workers nor on parts. docs/decisions/0048 describes the choices.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rekord.codec.columns import Ragged
from rekord.conversion.mapped_rows import pack_task
from rekord.conversion.splits import SPLIT_COLUMN, SplitRule, hash_text
from rekord.conversion.windows.columns import SeriesColumn, column_error, find_time_unit, plan_window_schema
from rekord.conversion.windows.extents import find_windows
from rekord.conversion.windows.files import (
    KEYS,
    TemporaryFolder,
    digest_files,
    load_array,
    load_time_dtype,
    read_pickles,
    remove_abandoned,
)
from rekord.conversion.windows.merge import RunMerge
from rekord.conversion.windows.sort import SortedPart, SortTask, sort_in_worker
from rekord.conversion.windows.values import to_time_column, to_values
from rekord.conversion.workers import WorkerPool
from rekord.errors import error, schema_error
from rekord.location import Location
from rekord.schema import Feature, Schema, Text
from rekord.sources.base import (
    PART_BYTES,
    Chunk,
    ColumnChunk,
    SourceFacts,
    SourcePart,
    is_partitioned,
    read_part,
)
from rekord.storage.local import LOCAL, write_error
from rekord.storage.publication import remove_tree
from rekord.storage.router import is_remote
from rekord.transforms.windows import Window

_CHUNK_BYTES = 4 << 20


class SeriesCounts(NamedTuple):
    """What the sort found."""

    rows: int = 0
    bad: int = 0
    unordered: int = 0  # rows that come after a later row in their file
    gaps: int = 0
    left_over: int = 0  # rows in no window
    crossing: int = 0  # windows across the border of two splits


@dataclass(frozen=True)
class WindowedSource:
    """The windows of the rows of a source. Its sorted rows are in a temporary folder."""

    source: Any
    window: Window
    owner: TemporaryFolder
    schema: Schema
    columns: tuple[SeriesColumn, ...]
    time_unit: str | None  # of timestamps; "" for text
    digest: str  # of the sorted rows, if no files identify them
    counts: SeriesCounts
    windows: int
    bad_files: tuple[str, ...]  # with the errors of bad rows
    group_splits: SplitRule | None = None  # ratios of the groups of each split
    seed: int = 0

    @property
    def folder(self) -> str:
        return self.owner.path

    @property
    def kind(self) -> str:
        return str(self.source.kind)

    @property
    def root(self) -> str:
        return str(getattr(self.source, "root", ""))

    def options(self) -> Mapping[str, Any]:
        given = {**self.source.options(), "window": self.window.options()}
        if self.group_splits is not None:
            given["groups"] = {"split": self.group_splits.options(), "seed": self.seed}
        return {**given, "rows": self.digest} if self.digest else given

    def facts(self) -> SourceFacts:
        inner: SourceFacts = self.source.facts()
        return SourceFacts(
            layout="table",
            schema=self.schema,
            rows=self.windows + self.counts.bad,
            source_bytes=inner.source_bytes,
            splits=self._splits,
            files=inner.files,
            unused=inner.unused,
            guesses=tuple([one for one in inner.guesses if one.column is None or one.column != self.window.time]),
            notes=(*inner.notes, *_describe(self)),
        )

    def release(self) -> None:
        """Remove the sorted rows."""
        self.owner.remove()

    @property
    def source_rows(self) -> int:
        """The rows that windows are made of, with bad ones."""
        return self.counts.rows + self.counts.bad

    @property
    def _splits(self) -> tuple[str, ...] | None:
        if self.group_splits is not None:
            return self.group_splits.names
        return tuple([name for name, _ in self.window.split_by_time]) or None

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        """Bad rows first, in the order in which they were found, then the windows."""
        made = [SourcePart(("bad", number, 0), 0) for number in range(len(self.bad_files))]
        row_bytes = max(8, os.path.getsize(self._path("rows")) // max(self.counts.rows, 1))
        size = self.window.size if isinstance(self.window.size, int) else 64
        step = max(1, min(1 << 20, part_bytes // (row_bytes * size)))
        for begin in range(0, self.windows, step):
            end = min(begin + step, self.windows)
            made.append(SourcePart(("windows", begin, end), (end - begin) * row_bytes * size))
        return made

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        """The windows of a part, in order."""
        kind, begin, end = part.content
        if kind == "bad":
            yield from read_pickles(self._path(self.bad_files[begin]))
            return
        yield from WindowReader(self).chunks(begin, end)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)


def _describe(source: WindowedSource) -> Iterator[str]:
    """What the sort found, for the summary."""
    counts, window = source.counts, source.window
    for found, what in (
        (counts.bad, "bad rows: {:,}, in no window"),
        (0 if window.monotonic else counts.unordered, "rows out of order: {:,}, sorted"),
        (counts.gaps, "pauses longer than max_gap: {:,}, no window spans them"),
        (counts.crossing, "windows across the border of two splits: {:,}, dropped"),
        (counts.left_over, f"rows in no complete window: {{:,}} of {counts.rows:,}"),
    ):
        if found:
            yield what.format(found)


def window_source(
    source: Any,
    window: Window,
    *,
    out: str,
    staging: str | None,
    workers: int,
    group_splits: SplitRule | None = None,
    seed: int = 0,
) -> WindowedSource:
    """Sort the rows of a source, and find its windows. With `group_splits` each group gets one of these splits."""
    facts = source.facts()
    schema = facts.schema if facts.schema is not None or not hasattr(source, "peek_schema") else source.peek_schema()
    if schema is None or schema.is_sequence:
        raise schema_error(
            "S155",
            "windows need rows of a table",
            column=None,
            expected="rows with columns, such as those of CSV or Parquet files",
            found=f"a {source.kind} source",
            do="pass a table, and make windows of that",
        )
    columns, stored = plan_window_schema(window, schema)
    parent, name = os.path.split(os.path.abspath(out))
    base = (tempfile.gettempdir() if is_remote(out) else parent) if staging is None else staging
    try:
        os.makedirs(base, exist_ok=True)
        remove_abandoned(base, f".{name}.rekord-series-")
        folder = tempfile.mkdtemp(prefix=f".{name}.rekord-series-{os.getpid()}-", dir=base)
    except OSError as failure:
        raise write_error(base, failure) from failure
    try:
        sort = SortTask(source, window, folder, columns, find_time_unit(window, schema))
        result = _sort(sort, facts.source_bytes, workers)
        made = WindowedSource(
            source=source,
            window=window,
            owner=TemporaryFolder(folder, is_owned=True),
            schema=stored,
            columns=columns,
            time_unit=sort.time_unit,
            digest="" if facts.files else digest_files(folder, ("rows", "windows", *KEYS)),
            group_splits=group_splits,
            seed=seed,
            **result,
        )
        # Bad rows are reported by the conversion.
        if not made.windows and not made.counts.bad:
            raise error(
                "X563",
                location=Location(path=made.root or None),
                expected=f"a series of at least {window.size} {'of time' if window.is_timed else 'rows'}"
                + (f" and {window.horizon} more" if window.horizon else ""),
                found=f"{made.counts.rows:,} rows in shorter series",
                likely=f"{made.counts.gaps:,} pauses longer than max_gap: a series ends at each"
                if made.counts.gaps
                else None,
                do='choose smaller windows, or pad incomplete ones: incomplete="pad" (--pad)'
                if not window.is_timed
                else "choose smaller windows",
            )
    except BaseException:
        remove_tree(LOCAL, folder)
        raise
    return made


def _sort(task: SortTask, source_bytes: int, workers: int) -> dict[str, Any]:
    """Sort all rows, and write what the windows are read from."""
    source = task.source
    try:
        if is_partitioned(source):
            parts = source.parts(min(PART_BYTES, max(4 << 20, source_bytes // 16)))
            found: dict[int, SortedPart] = {}
            with WorkerPool(workers) as pool:
                packed = b"" if workers == 1 else pack_task(task, "source")
                calls = [(i, (packed, i, part)) for i, part in enumerate(parts)]
                inline: Any = lambda _, number, part: task(number, read_part(source, part))  # noqa: E731
                for i, result in pool.run(sort_in_worker, inline, calls, patient=True):
                    if isinstance(result, Exception):
                        raise result
                    found[i] = result
            sorted_parts = [found[i] for i in range(len(parts))]
        else:
            sorted_parts = [task(0, source.rows())]
        merge = RunMerge(task, [run for part in sorted_parts for run in part.runs])
        merge.run()
        bad_files = [f"part-{number}.bad" for number, part in enumerate(sorted_parts) if part.bad]
        if merge.bad:
            bad_files.append("merge.bad")
        windows, left_over, crossing = find_windows(task, merge)
    except OSError as failure:
        raise write_error(task.folder, failure) from failure
    counts = SeriesCounts(
        rows=merge.rows,
        bad=sum(part.bad for part in sorted_parts) + merge.bad,
        unordered=merge.unordered,
        gaps=merge.gaps,
        left_over=left_over,
        crossing=crossing,
    )
    return {"counts": counts, "windows": windows, "bad_files": tuple(bad_files)}


class WindowReader:
    """Builds the rows of windows from the sorted rows."""

    def __init__(self, source: WindowedSource) -> None:
        self._source = source
        folder = source.folder
        self._table = pa.ipc.open_file(pa.memory_map(os.path.join(folder, "rows"))).read_all()
        self._windows = load_array(os.path.join(folder, "windows"), np.int64).reshape(-1, 3)
        self._keys = {
            "time": load_array(os.path.join(folder, "time"), load_time_dtype(folder)),
            "group": load_array(os.path.join(folder, "group"), np.uint32),
            "position": load_array(os.path.join(folder, "position"), np.int64),
            "line": load_array(os.path.join(folder, "line"), np.int64),
            "path": load_array(os.path.join(folder, "path"), np.uint32),
        }
        self._paths, self._groups = [next(read_pickles(os.path.join(folder, name))) for name in ("paths", "groups")]
        self._splits: dict[int, str] = {}  # by group

    def chunks(self, begin: int, end: int) -> Iterator[ColumnChunk]:
        """The windows of a range, a few at a time, and those that begin in one file together."""
        window = self._source.window
        row_bytes = max(8, self._table.nbytes // max(len(self._table), 1))
        at = begin
        while at < end:
            few = np.asarray(self._windows[at : min(end, at + 4096)])
            sizes = np.cumsum((few[:, 1] - few[:, 0] + window.horizon) * row_bytes)
            count = max(1, int(np.searchsorted(sizes, _CHUNK_BYTES, side="right")))
            few = few[:count]
            path = self._keys["path"][few[:, 0]]
            same = np.flatnonzero(np.append(path[1:] != path[:-1], True))
            few = few[: int(same[0]) + 1]
            yield self._chunk(few, os.fsdecode(self._paths[int(path[0])]))
            at += len(few)

    def _chunk(self, windows: Any, path: str) -> ColumnChunk:
        source, window = self._source, self._source.window
        low, high = int(windows[0, 0]), int(windows[:, 1].max()) + window.horizon
        table = self._table.slice(low, high - low)
        first, stop = windows[:, 0] - low, windows[:, 1] - low
        values: dict[str, Any] = {}
        for name, feature in source.schema.items():
            if name == window.time:
                values[name] = to_time_column(self._keys["time"][windows[:, 0]], source.time_unit)
            elif name == "length" and window.incomplete == "pad":
                values[name] = stop - first
            elif name not in table.column_names:
                column = to_values(table[name.removesuffix("_target")])
                rows = stop[:, None] + np.arange(window.horizon)
                values[name] = _take(column, rows)
            elif name in window.label:
                values[name] = _aggregate(to_values(table[name]), first, stop, window.label_from)
            elif window.by is not None and name in window.by:
                values[name] = _take(to_values(table[name]), first)
            else:
                values[name] = self._series(table[name], first, stop, feature)
        if window.split_by_time:
            names = [name for name, _ in window.split_by_time]
            values[SPLIT_COLUMN] = [names[number] for number in windows[:, 2].tolist()]
        elif source.group_splits is not None:
            values[SPLIT_COLUMN] = [self._split_of(group) for group in self._keys["group"][windows[:, 0]].tolist()]
        positions = np.asarray(self._keys["position"][windows[:, 0]])
        lines = np.asarray(self._keys["line"][windows[:, 0]])
        return ColumnChunk(
            path,
            int(positions[0]),
            values,
            len(windows),
            lines=lines.tolist() if lines.any() else None,
            positions=positions,
        )

    def _split_of(self, group: int) -> str:
        """The split of all windows of a group."""
        rule, seed = self._source.group_splits, self._source.seed
        if group not in self._splits:
            assert rule is not None
            hashed = np.array([hash_text(seed, "split", self._groups[group])], np.uint64)
            self._splits[group] = rule.names[int(rule.assign_splits(hashed)[0])]
        return self._splits[group]

    def _series(self, array: Any, first: Any, stop: Any, feature: Feature) -> Any:
        """The values of the rows of each window."""
        column = to_values(array)
        window = self._source.window
        if window.is_timed or window.steps:
            if isinstance(column, list) or window.steps:
                return [
                    list(column[a:b]) if isinstance(column, list) else column[a:b]
                    for a, b in zip(first.tolist(), stop.tolist(), strict=True)
                ]
            lengths = stop - first
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            rows = np.repeat(first - offsets[:-1], lengths) + np.arange(int(offsets[-1]))
            return Ragged(column[rows], offsets)
        size = int(window.size)
        rows = first[:, None] + np.arange(size)
        beyond = rows >= stop[:, None]
        if not beyond.any():
            return _take(column, rows)
        taken = _take(column, np.minimum(rows, (stop - 1)[:, None]))
        if isinstance(taken, list):
            empty = b"" if feature.value_kind == "bytes" else ""
            return [
                [empty if out else one for one, out in zip(row, gone, strict=True)]
                for row, gone in zip(taken, beyond.tolist(), strict=True)
            ]
        taken[beyond] = np.zeros(1, taken.dtype)[0]
        return taken


def _take(column: Any, rows: Any) -> Any:
    """Values by number; nested lists of texts."""
    if not isinstance(column, list):
        return column[rows]
    if rows.ndim == 1:
        return [column[row] for row in rows.tolist()]
    return [[column[row] for row in several] for several in rows.tolist()]


def _aggregate(column: Any, first: Any, stop: Any, rule: str) -> Any:
    """One value per window."""
    if rule in ("first", "last"):
        return _take(column, first if rule == "first" else stop - 1)
    if rule == "any":
        flags = np.asarray(column)
        if flags.dtype.kind not in "iufb":
            raise column_error("label", Text(), 'numbers, for label_from="any"')
        return np.array([int((flags[a:b] != 0).any()) for a, b in zip(first.tolist(), stop.tolist(), strict=True)])
    names, codes = np.unique(np.asarray(column), return_inverse=True)
    # Of equally frequent values the one that comes first in the window.
    chosen = []
    for a, b in zip(first.tolist(), stop.tolist(), strict=True):
        own = codes[a:b]
        counts = np.bincount(own)
        chosen.append(int(own[np.flatnonzero(counts[own] == counts.max())[0]]))
    picked = names[chosen]
    return [str(one) for one in picked] if isinstance(column, list) else picked
