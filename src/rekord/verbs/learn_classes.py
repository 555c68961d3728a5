"""The classes of label columns, learned from the data in one pass before the conversion."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import cloudpickle
import pyarrow as pa

from rekord.conversion.class_ids import ClassCollector, class_name, not_a_label_error
from rekord.conversion.engines.local import WorkerPool
from rekord.conversion.mapped_rows import MappedOutputs, call_function, iter_rows, pack_task, run_on_rows
from rekord.conversion.plan import RowFunction
from rekord.errors import RekordError
from rekord.sources.base import PART_BYTES, Chunk, Source, SourcePart, SourceRow, is_partitioned
from rekord.sources.wrapped import SpooledSource

_MIN_PART_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _CollectTask:
    source: Any
    columns: tuple[str, ...]
    function: RowFunction | None

    def __call__(self, chunks: list[Chunk]) -> tuple[dict[str, ClassCollector], int]:
        return _collect(self, chunks), 0


def learn_classes(
    source: Source, columns: Sequence[str], function: RowFunction | None, *, workers: int, source_bytes: int
) -> dict[str, ClassCollector]:
    """The distinct values of each column of the rows that are written. Bad rows are skipped: writing reports them."""
    task = _CollectTask(source, tuple(columns), function)
    total = {name: ClassCollector(name) for name in columns}
    if not is_partitioned(source):
        rows: Any = source
        if function is None:
            return _collect(task, rows.rows())
        with WorkerPool(workers) as pool:
            for some in run_on_rows(pool, replace(task, source=None), rows.rows(), sent="map function"):
                for name in columns:
                    total[name].merge(some[name])
        return total
    partitioned: Any = source
    part_bytes = min(PART_BYTES, max(_MIN_PART_BYTES, source_bytes // (4 * workers)))
    packed = b"" if workers == 1 else pack_task(task, "source or map function")
    calls = [(i, (packed, part)) for i, part in enumerate(partitioned.parts(part_bytes))]
    failures: dict[int, Exception] = {}
    with WorkerPool(workers) as pool:
        inline = partial(_collect_part, task)
        results = pool.run(collect_in_worker, lambda _, part: inline(part), calls, patient=function is None)
        for number, result in results:
            if isinstance(result, Exception):
                failures[number] = result
                break
            for name, found in result.items():
                total[name].merge(found)
    if failures:
        raise failures[min(failures)]
    return total


def collect_in_worker(packed: bytes, part: SourcePart) -> dict[str, ClassCollector]:
    """The values in a part of the source, in another process."""
    return _collect_part(_unpickle_task(packed), part)


def _collect_part(task: _CollectTask, part: SourcePart) -> dict[str, ClassCollector]:
    return _collect(task, task.source.read(part))


@lru_cache(maxsize=1)
def _unpickle_task(packed: bytes) -> _CollectTask:
    task: _CollectTask = cloudpickle.loads(packed)
    return task


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
