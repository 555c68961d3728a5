"""Fitting of transforms before rows are written: one pass over the source per transform that learns."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import cloudpickle
import numpy as np

from rekord.conversion.class_ids import ColumnConversions
from rekord.conversion.encode_rows import RowEncoding
from rekord.conversion.engines.local import WorkerPool
from rekord.conversion.mapped_rows import pack_task, run_on_rows
from rekord.conversion.plan import ConversionJob, ShardingRule
from rekord.conversion.splits import (
    SPLIT_COLUMN,
    SplitRule,
    hash_rows,
    hash_text,
    parse_split_value,
    select_split_value,
)
from rekord.conversion.tasks import without_source
from rekord.errors import error
from rekord.layouts.base import Layout
from rekord.sources.base import PART_BYTES, Chunk, Source, SourcePart, SourceRow, is_partitioned
from rekord.sources.wrapped import SpooledSource
from rekord.transforms.base import Bound, FitState, Learning, Transform
from rekord.transforms.chain import Chain
from rekord.verbs.forecast import SilentBadRows
from rekord.verbs.progress import print_line

_LINE_SECONDS = 10.0
_BLOCK_ROWS = 1024
_MIN_PART_BYTES = 1 << 20


def fit_chain(
    chain: Chain,
    source: Source,
    layout: Layout,
    *,
    requested: FitOptions,
    workers: int,
    source_bytes: int,
    verbose: bool,
) -> Chain:
    """The chain with all transforms fitted. Invalid rows are skipped: the conversion reports them."""
    steps: list[Transform] = []
    for step in chain.steps:
        if isinstance(step, Learning):
            job = requested.job(source, layout)
            before = Chain(tuple(steps)).bind(layout.schema) if steps else None
            task = _FitTask(job, before, step, _find_training_split(step, job))
            step = _run_fit(task, workers, source_bytes, _FitProgress(task, verbose=verbose)).learned()
        steps.append(step)
    return Chain(tuple(steps))


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options of a conversion that determine its rows, and which of them are for training."""

    function: Any
    select: tuple[str, ...] | None
    columns: ColumnConversions | None
    splits: SplitRule
    key: str | None
    seed: int

    def job(self, source: Source, layout: Layout) -> ConversionJob:
        return ConversionJob(
            source=source,
            layout=layout,
            splits=self.splits,
            cut=ShardingRule(),
            template="",
            function=self.function,
            key=self.key,
            select=self.select,
            columns=self.columns,
            seed=self.seed,
            verify="headers",
            on_bad_row="reject",
        )


@dataclass(frozen=True)
class _FitTask:
    """The rows, the transforms before the step, the step that is fitted, and the split that it is fitted on."""

    job: ConversionJob
    before: Bound | None  # the transforms that come first
    step: Learning
    split_number: int | None  # None: all rows

    def __call__(self, chunks: list[Chunk]) -> tuple[tuple[FitState, int], int]:
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
    source: Any = task.job.source
    if not is_partitioned(source):
        _reject_single_pass_source(source, task.step)
    total = task.begin()
    reporter.begin()
    if not is_partitioned(source):
        skipped = 0
        if task.job.is_costly_per_row:
            bare = replace(task, job=without_source(task.job))
            with WorkerPool(workers) as pool:
                for state, bad in run_on_rows(pool, bare, source.rows(), sent="layout, map function or transform"):
                    total.merge(state)
                    skipped += bad
        else:
            skipped = _fit_chunks(task, source.rows(), total)
        reporter.end(total, skipped)
        return total
    part_bytes = min(PART_BYTES, max(_MIN_PART_BYTES, source_bytes // (4 * workers)))
    packed = b"" if workers == 1 else pack_task(task, "source, layout, map function or transform")
    calls = [(i, (packed, part)) for i, part in enumerate(source.parts(part_bytes))]
    skipped = 0
    with WorkerPool(workers) as pool:
        inline = partial(_fit_part, task)
        results = pool.run(fit_part_in_worker, lambda _, part: inline(part), calls, patient=task.job.function is None)
        for done, (_, result) in enumerate(results, 1):
            if isinstance(result, Exception):
                raise result
            total.merge(result[0])
            skipped += result[1]
            reporter.report_progress(done, len(calls))
    reporter.end(total, skipped)
    return total


def fit_part_in_worker(packed: bytes, part: SourcePart) -> tuple[FitState, int]:
    """Fit on a part of the source, in another process."""
    return _fit_part(_unpickle_task(packed), part)


def _fit_part(task: _FitTask, part: SourcePart) -> tuple[FitState, int]:
    """The state after a part of the source, and the number of rows that were skipped."""
    source: Any = task.job.source
    state = task.begin()
    return state, _fit_chunks(task, source.read(part), state)


@lru_cache(maxsize=1)
def _unpickle_task(packed: bytes) -> _FitTask:
    task: _FitTask = cloudpickle.loads(packed)
    return task


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
        if job.splits.from_source and SPLIT_COLUMN not in job.schema:
            values = {name: value for name, value in values.items() if name != SPLIT_COLUMN}
        if job.select is not None:
            values = {name: values[name] for name in job.select if name in values}
        if job.columns is not None:
            values = job.columns.convert_row(values)
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
