"""What transforms have to learn before rows are written: one pass over the source for each that learns."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cloudpickle
import numpy as np

from rekord.conversion.encode_rows import BadRows, RowEncoding
from rekord.conversion.engines.local import WorkerPool
from rekord.conversion.plan import ConversionJob, ShardingRule
from rekord.conversion.splits import (
    SPLIT_COLUMN,
    SplitRule,
    hash_rows,
    hash_text,
    parse_split_value,
    select_split_value,
)
from rekord.errors import RekordError, error
from rekord.layouts.base import Layout, RowRemark
from rekord.location import Location
from rekord.sources.base import PART_BYTES, Chunk, Source, SourcePart, SourceRow, is_partitioned
from rekord.transforms.base import Bound, FitState, Learning, Transform
from rekord.transforms.chain import Chain

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
    aloud: bool,
) -> Chain:
    """The chain with everything learned. Rows that do not fit are passed over: the conversion will judge them."""
    steps: list[Transform] = []
    for step in chain.steps:
        if isinstance(step, Learning):
            job = requested.job(source, layout)
            before = Chain(tuple(steps)).bind(layout.schema) if steps else None
            task = _FitTask(job, before, step, _find_training_split(step, job))
            lesson = _run_fit(task, workers, source_bytes, _FitProgress(task, aloud=aloud))
            step = lesson.learned()
        steps.append(step)
    return Chain(tuple(steps))


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What a conversion is asked for that decides which rows there are, and which of them are for training."""

    function: Any
    select: tuple[str, ...] | None
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
            seed=self.seed,
            verify="headers",
            on_bad_row="reject",
        )


@dataclass(frozen=True)
class _FitTask:
    """One lesson: the rows, what is done to them before, and who learns from which of them."""

    job: ConversionJob
    before: Bound | None  # the transforms that come first
    step: Learning
    split_number: int | None  # the split that is learned from; None: all rows

    def begin(self) -> FitState:
        return self.step.begin(self.job.layout.schema if self.before is None else self.before.schema)

    def row(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A row as the step will see it. What comes first is left out where it has to do with other columns."""
        before, column = self.before, getattr(self.step, "column", None)
        row = dict(values)
        if before is None or (before.touches is not None and column and column not in before.touches):
            return row
        return before.apply(row)


def _find_training_split(step: Learning, job: ConversionJob) -> int | None:
    """The split for training, unless all rows are asked for, or nobody can tell before all are counted."""
    rule = job.splits
    if getattr(step, "learn_from", "train") == "all" or len(rule.names) == 1 or rule.stratify is not None:
        return None
    return rule.names.index("train") if "train" in rule.names else 0


def _run_fit(task: _FitTask, workers: int, source_bytes: int, voice: _FitProgress) -> FitState:
    source: Any = task.job.source
    if not is_partitioned(source):
        _reject_single_pass_source(source, task.step)
    total = task.begin()
    voice.begin()
    if not is_partitioned(source):
        passed = _fit_chunks(task, source.rows(), total)
        voice.end(total, passed)
        return total
    part_bytes = min(PART_BYTES, max(_MIN_PART_BYTES, source_bytes // (4 * workers)))
    packed = b"" if workers == 1 else _pickle_task(task)
    calls = [(i, (packed, part)) for i, part in enumerate(source.parts(part_bytes))]
    passed = 0

    def inline(_packed: bytes, part: SourcePart) -> tuple[FitState, int]:
        lesson = task.begin()
        return lesson, _fit_chunks(task, source.read(part), lesson)

    with WorkerPool(workers) as pool:
        results = pool.run(fit_part_in_worker, inline, calls, patient=task.job.function is None)
        for done, (_, result) in enumerate(results, 1):
            if isinstance(result, Exception):
                raise result
            total.merge(result[0])
            passed += result[1]
            voice.report_progress(done, len(calls))
    voice.end(total, passed)
    return total


def fit_part_in_worker(packed: bytes, part: SourcePart) -> tuple[FitState, int]:
    """What a part of the source teaches, in another process."""
    task = _unpickle_task(packed)
    source: Any = task.job.source
    lesson = task.begin()
    return lesson, _fit_chunks(task, source.read(part), lesson)


@lru_cache(maxsize=1)
def _unpickle_task(packed: bytes) -> _FitTask:
    task: _FitTask = cloudpickle.loads(packed)
    return task


def _pickle_task(task: _FitTask) -> bytes:
    try:
        packed: bytes = cloudpickle.dumps(task)
    except Exception as failure:
        raise error(
            "U605",
            "the source, the layout, the map function or a transform cannot be sent to other processes",
            expected="objects that can be pickled",
            found=f"{type(failure).__name__}: {failure}"[:60],
            do="workers=1, or make what they hold (files, locks, connections) where it is used",
        ) from failure
    return packed


def _reject_single_pass_source(source: Any, step: Learning) -> None:
    inner = getattr(source, "source", source)
    if getattr(inner, "_once", False):
        raise error(
            "U616",
            f"`{step.name}` has to see all rows first, and these can be read only once",
            expected="rows that can be read twice: files, a list, an object whose iter() begins anew",
            found="an iterator",
            do="give a list, or what is to be learned: vocabulary=, or mean= and std=",
        )


def _fit_chunks(task: _FitTask, chunks: Iterable[Chunk], lesson: FitState) -> int:
    """Let a lesson see rows; how many of them did not fit."""
    seeing = _FitEncoding(task, lesson)
    for _ in seeing.pieces(chunks):
        pass  # nothing is encoded
    return seeing.passed.count


class _SkippedRows(BadRows):
    """Bad rows are counted, and nothing is said."""

    def __init__(self) -> None:
        super().__init__("reject")
        self.count = 0

    def reject(self, failure: RekordError, place: Location) -> None:
        self.count += 1

    def add_remark(self, remark: RowRemark, place: Location) -> None:
        pass


class _FitEncoding(RowEncoding):
    """Rows as they are encoded, up to where they would be: there a lesson sees them."""

    def __init__(self, task: _FitTask, lesson: FitState) -> None:
        self.passed = _SkippedRows()
        super().__init__(task.job, self.passed)
        self._columns_as_rows = True
        self._task = task
        self._lesson = lesson
        self._splits_of = lru_cache(maxsize=64)(self._splits_of_block)

    def _append(self, row: SourceRow, copy: int, values: Mapping[str, Any]) -> None:
        job = self._task.job
        if self._task.split_number is not None and self._split(row, values) != self._task.split_number:
            return
        if job.splits.from_source and SPLIT_COLUMN not in job.schema:
            values = {name: value for name, value in values.items() if name != SPLIT_COLUMN}
        if job.select is not None:
            values = {name: values[name] for name in job.select if name in values}
        if job.layout.needs_derive:
            values = job.layout.derive(values, job.verify).values
        self._lesson.update(self._task.row(values))

    def _split(self, row: SourceRow, values: Mapping[str, Any]) -> int:
        """The number of a row's split, as the conversion will find it."""
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
        """The splits of the rows of a file in some places that lie together."""
        job = self._task.job
        base = hash_text(job.seed, "split", path.encode("utf-8", "surrogateescape"))
        positions = np.arange(block * _BLOCK_ROWS, (block + 1) * _BLOCK_ROWS, dtype=np.int64)
        hashes = hash_rows(np.full(_BLOCK_ROWS, base, np.uint64), positions, None)
        splits: list[int] = job.splits.assign_splits(hashes).tolist()
        return splits


class _FitProgress:
    """Says on stderr what is learned, where somebody wants to know."""

    def __init__(self, task: _FitTask, *, aloud: bool) -> None:
        self._is_verbose = aloud
        self._task = task
        self._reported_at = time.monotonic()

    def begin(self) -> None:
        rule, step = self._task.job.splits, self._task.step
        rows = "all rows"
        if self._task.split_number is not None:
            rows = f"the split {rule.names[self._task.split_number]}"
        elif rule.stratify is not None and getattr(step, "learn_from", "all") == "train":
            rows = "all rows, since stratified splits are known only when all rows are counted"
        self._print(f"learning {step.name} of {getattr(step, 'column', 'rows')} from {rows}")

    def report_progress(self, done: int, parts: int) -> None:
        if time.monotonic() - self._reported_at >= _LINE_SECONDS:
            self._print(f"learning: {done:,} of {parts:,} parts")

    def end(self, lesson: Any, passed: int) -> None:
        told = f"learned: {lesson.describe()}" if hasattr(lesson, "describe") else "learned"
        self._print(told + (f", {passed:,} rows passed over" if passed else ""))

    def _print(self, line: str) -> None:
        self._reported_at = time.monotonic()
        if self._is_verbose and sys.stderr is not None:
            with suppress(Exception):  # whoever listens may be gone, and learning goes on
                print("".join([one if one.isprintable() else "\ufffd" for one in line]), file=sys.stderr)
