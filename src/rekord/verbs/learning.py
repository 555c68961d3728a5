"""What is learned from the rows of a source before they are written: classes of labels, and fitted transforms."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import cloudpickle
import numpy as np
import pyarrow as pa

from rekord.conversion.class_ids import ClassCollector, class_name, not_a_label_error
from rekord.conversion.encode_rows import RowEncoding
from rekord.conversion.mapped_rows import MappedOutputs, call_function, iter_rows, pack_task, run_on_rows
from rekord.conversion.plan import ConversionJob, RowFunction
from rekord.conversion.splits import (
    hash_rows,
    hash_text,
    parse_split_value,
    select_split_value,
)
from rekord.conversion.tasks import without_source
from rekord.conversion.workers import WorkerPool
from rekord.errors import RekordError, error
from rekord.sources.base import PART_BYTES, Chunk, Source, SourcePart, SourceRow, is_partitioned, read_part
from rekord.sources.wrapped import SpooledSource
from rekord.transforms.base import Bound, FitState, Learning, Transform
from rekord.transforms.chain import Chain
from rekord.verbs.forecast import SilentBadRows
from rekord.verbs.progress import print_line

_MIN_PART_BYTES = 1 << 20
_LINE_SECONDS = 10.0
_BLOCK_ROWS = 1024


class _LearningTask(Protocol):
    """Learns from rows. It is pickled once for all workers."""

    @property
    def source(self) -> Any: ...

    def __call__(self, chunks: Iterable[Chunk]) -> tuple[Any, int]:
        """What consecutive rows teach, and 0: results are small."""


def _iter_learned(
    task: _LearningTask,
    rowwise: _LearningTask,
    *,
    workers: int,
    source_bytes: int,
    sent: tuple[str, str],
    patient: bool,
    report: Callable[[int, int], None] = lambda done, parts: None,
) -> Iterator[Any]:
    """What the task learns from each part of its source, in any order.

    If the source has no parts, `rowwise` learns from its consecutive rows. `sent` names what is pickled of
    either, for errors; `report` is called with the number of finished parts.
    """
    source = task.source
    with WorkerPool(workers) as pool:
        if not is_partitioned(source):
            yield from run_on_rows(pool, rowwise, source.rows(), sent=sent[1])
            return
        part_bytes = min(PART_BYTES, max(_MIN_PART_BYTES, source_bytes // (4 * workers)))
        packed = b"" if workers == 1 else pack_task(task, sent[0])
        calls = [(i, (packed, part)) for i, part in enumerate(source.parts(part_bytes))]
        results = pool.run(learn_in_worker, lambda _, part: _learn_from_part(task, part), calls, patient=patient)
        for done, (_, result) in enumerate(results, 1):
            if isinstance(result, Exception):
                raise result
            yield result
            report(done, len(calls))


def learn_in_worker(packed: bytes, part: SourcePart) -> Any:
    """What a part of the source teaches, in another process."""
    return _learn_from_part(_unpickle_task(packed), part)


def _learn_from_part(task: _LearningTask, part: SourcePart) -> Any:
    return task(read_part(task.source, part))[0]


@lru_cache(maxsize=1)
def _unpickle_task(packed: bytes) -> _LearningTask:
    task: _LearningTask = cloudpickle.loads(packed)
    return task


# Classes.


@dataclass(frozen=True, slots=True)
class _CollectTask:
    source: Any
    columns: tuple[str, ...]
    function: RowFunction | None

    def __call__(self, chunks: Iterable[Chunk]) -> tuple[dict[str, ClassCollector], int]:
        return _collect(self, chunks), 0


def learn_classes(
    source: Source, columns: Sequence[str], function: RowFunction | None, *, workers: int, source_bytes: int
) -> dict[str, ClassCollector]:
    """The distinct values of each column of the rows that are written. Bad rows are skipped: writing reports them."""
    task = _CollectTask(source, tuple(columns), function)
    if not is_partitioned(source) and function is None:
        return _collect(task, task.source.rows())
    total = {name: ClassCollector(name) for name in columns}
    for found in _iter_learned(
        task,
        replace(task, source=None),
        workers=workers,
        source_bytes=source_bytes,
        sent=("source or map function", "map function"),
        patient=function is None,
    ):
        for name, collector in total.items():
            collector.merge(found[name])
    return total


def _collect(task: _CollectTask, chunks: Iterable[Chunk]) -> dict[str, ClassCollector]:
    found = {name: ClassCollector(name) for name in task.columns}
    for chunk in chunks:
        if isinstance(chunk, SourceRow):
            if not isinstance(chunk.values, RekordError):
                _collect_row(task, chunk.values, found)
        elif task.function is None:
            names = chunk.values.schema.names if isinstance(chunk.values, pa.RecordBatch) else chunk.values
            for name, collector in found.items():
                if name in names:
                    collector.add_column(chunk.values[name])
        else:
            for row in iter_rows(chunk):
                _collect_row(task, row.values, found)
    return found


def _collect_row(task: _CollectTask, values: Any, found: Mapping[str, ClassCollector]) -> None:
    made: Any = [values]
    if isinstance(values, MappedOutputs):
        made = values
    elif task.function is not None:
        try:
            made = call_function(task.function, values)
        except RekordError:  # the conversion reports it, with the row
            return
    for row in made:
        for name, collector in found.items():
            collector.add(row.get(name))


def _unwrap(source: Any) -> Any:
    while hasattr(source, "source"):
        source = source.source
    return source


def spool_if_once(source: Source, out: str, staging: object) -> Source:
    """The source, or a copy of its rows on disk if they can be read only once."""
    if not getattr(_unwrap(source), "_once", False):
        return source
    folder = os.fspath(staging) if isinstance(staging, (str, os.PathLike)) else os.path.dirname(os.path.abspath(out))
    return SpooledSource(source, folder if os.path.isdir(folder) else None)


def find_own_order(source: Source, column: str) -> list[str] | None:
    """The classes of a column in its own order, if its type has one: a pandas Categorical."""
    frame: Any = getattr(_unwrap(source), "frame", None)
    if not hasattr(frame, "iloc") or column not in list(frame.columns):
        return None
    categories = getattr(frame[column].dtype, "categories", None)
    if categories is None:
        return None
    names = [name for name in map(class_name, categories.tolist()) if name is not None]
    return names or None


def require_classes(collector: ClassCollector) -> None:
    """Raise S148 for a column without a single class."""
    if not collector.names:
        invalid = collector.first_invalid
        found = "no values" if invalid is None else (invalid.found or "other values")
        raise not_a_label_error(collector.column, found, None)


# Transforms.


def fit_chain(chain: Chain, job: ConversionJob, *, workers: int, source_bytes: int, verbose: bool) -> Chain:
    """The chain with all transforms fitted to the rows of a job, whose layout is the one before the chain.

    Invalid rows are skipped: the conversion reports them.
    """
    job = replace(job, inferred=False, verify="headers", on_bad_row="reject")
    steps: list[Transform] = []
    for step in chain.steps:
        if isinstance(step, Learning):
            before = Chain(tuple(steps)).bind(job.schema) if steps else None
            task = _FitTask(job, before, step, _find_training_split(step, job))
            step = _run_fit(task, workers, source_bytes, _FitProgress(task, verbose=verbose)).learned()
        steps.append(step)
    return Chain(tuple(steps))


@dataclass(frozen=True)
class _FitTask:
    """The rows, the transforms before the step, the step that is fitted, and the split that it is fitted on."""

    job: ConversionJob
    before: Bound | None  # the transforms that come first
    step: Learning
    split_number: int | None  # None: all rows

    @property
    def source(self) -> Any:
        return self.job.source

    def __call__(self, chunks: Iterable[Chunk]) -> tuple[tuple[FitState, int], int]:
        """The state after these rows, and the number of rows that were skipped."""
        state = self.begin()
        return (state, _fit_chunks(self, chunks, state)), 0

    def begin(self) -> FitState:
        return self.step.begin(self.job.layout.schema if self.before is None else self.before.schema)

    def row(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A row as the step will get it. Earlier transforms are skipped if they only concern other columns."""
        before, column = self.before, getattr(self.step, "column", None)
        row = dict(values)
        if before is None or (before.touches is not None and column and column not in before.touches):
            return row
        return before.apply(row)


def _find_training_split(step: Learning, job: ConversionJob) -> int | None:
    """The training split, unless all rows are requested, or splits are unknown until all rows are counted."""
    rule = job.splits
    if getattr(step, "learn_from", "train") == "all" or len(rule.names) == 1 or rule.stratify is not None:
        return None
    return rule.names.index("train") if "train" in rule.names else 0


def _run_fit(task: _FitTask, workers: int, source_bytes: int, reporter: _FitProgress) -> FitState:
    partitioned = is_partitioned(task.source)
    if not partitioned:
        _reject_single_pass_source(task.source, task.step)
    total = task.begin()
    reporter.begin()
    skipped = 0
    if not partitioned and not task.job.is_costly_per_row:
        skipped = _fit_chunks(task, task.source.rows(), total)
    else:
        for state, bad in _iter_learned(
            task,
            replace(task, job=without_source(task.job)),
            workers=workers,
            source_bytes=source_bytes,
            sent=("source, layout, map function or transform", "layout, map function or transform"),
            patient=task.job.function is None,
            report=reporter.report_progress,
        ):
            total.merge(state)
            skipped += bad
    reporter.end(total, skipped)
    return total


def _reject_single_pass_source(source: Any, step: Learning) -> None:
    inner = getattr(source, "source", source)
    if not isinstance(source, SpooledSource) and getattr(inner, "_once", False):
        raise error(
            "U616",
            f"`{step.name}` needs all rows first, but these can be read only once",
            expected="rows that can be read twice: files, a list, or an object whose iter() starts over",
            found="an iterator",
            do="pass list(rows)",
        )


def _fit_chunks(task: _FitTask, chunks: Iterable[Chunk], state: FitState) -> int:
    """Update the state with rows; returns the number of invalid ones."""
    encoding = _FitEncoding(task, state)
    for _ in encoding.pieces(chunks):
        pass  # nothing is encoded
    return encoding.skipped.count


class _FitEncoding(RowEncoding):
    """The conversion of rows up to their encoding, where the state is updated instead."""

    def __init__(self, task: _FitTask, state: FitState) -> None:
        self.skipped = SilentBadRows()
        super().__init__(task.job, self.skipped)
        self._columns_as_rows = True
        self._task = task
        self._state = state
        self._splits_of = lru_cache(maxsize=64)(self._splits_of_block)

    def _append(self, row: SourceRow, copy: int, values: Mapping[str, Any]) -> None:
        job = self._task.job
        if self._task.split_number is not None and self._split(row, values) != self._task.split_number:
            return
        values = self._select_values(values)
        if job.layout.needs_derive:
            values = job.layout.derive(values, job.verify).values
        self._state.update(self._task.row(values))

    def _split(self, row: SourceRow, values: Mapping[str, Any]) -> int:
        """The number of a row's split, as the conversion will assign it."""
        job, rule = self._task.job, self._task.job.splits
        if rule.from_source:
            return rule.names.index(parse_split_value(values, rule.names))
        group = rule.by or job.key
        if group:
            hashed = hash_text(job.seed, "split", select_split_value(values, group))
            return int(rule.assign_splits(np.array([hashed], np.uint64))[0])
        block, place = divmod(row.position, _BLOCK_ROWS)
        return self._splits_of(row.path, block)[place]

    def _splits_of_block(self, path: str, block: int) -> list[int]:
        """The splits of a block of consecutive rows of a file."""
        job = self._task.job
        base = hash_text(job.seed, "split", path.encode("utf-8", "surrogateescape"))
        positions = np.arange(block * _BLOCK_ROWS, (block + 1) * _BLOCK_ROWS, dtype=np.int64)
        hashes = hash_rows(np.full(_BLOCK_ROWS, base, np.uint64), positions, None)
        splits: list[int] = job.splits.assign_splits(hashes).tolist()
        return splits


class _FitProgress:
    """Reports on stderr what is fitted, if wanted."""

    def __init__(self, task: _FitTask, *, verbose: bool) -> None:
        self._is_verbose = verbose
        self._task = task
        self._reported_at = time.monotonic()

    def begin(self) -> None:
        rule, step = self._task.job.splits, self._task.step
        rows = "all rows"
        if self._task.split_number is not None:
            rows = f"split {rule.names[self._task.split_number]}"
        elif rule.stratify is not None and getattr(step, "learn_from", "all") == "train":
            rows = "all rows (stratified splits are not known yet)"
        self._print(f"fitting {step.name} of {getattr(step, 'column', 'rows')} on {rows}")

    def report_progress(self, done: int, parts: int) -> None:
        if time.monotonic() - self._reported_at >= _LINE_SECONDS:
            self._print(f"fitting: {done:,} of {parts:,} parts")

    def end(self, state: Any, skipped: int) -> None:
        summary = f"fitted: {state.describe()}" if hasattr(state, "describe") else "fitted"
        self._print(summary + (f", {skipped:,} rows skipped" if skipped else ""))

    def _print(self, line: str) -> None:
        self._reported_at = time.monotonic()
        if self._is_verbose:
            with suppress(Exception):  # stderr may be closed
                print_line(sys.stderr, line)
