"""What a peer's process does: build a task from the job it is given, then time it whenever it is asked.

Job and answers are lines of JSON. The harness stays outside the clock, and so do imports and set-up.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from workloads import WORKLOADS, Workload

BATCH = 1024

Pass: TypeAlias = Callable[[], Iterator[int]]
"""Goes once over the data, and gives the number of units after every piece of work."""


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement of one peer."""

    workload: Workload
    task: str
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """What is timed, and what puts away its files afterwards, outside the clock.

    The digest is a summary of the first batch, or of the first rows: all peers must have read or written the same.
    """

    once: Pass
    digest: dict[str, float] | None = None
    clean: Callable[[], None] | None = None


def serve(tasks: Mapping[str, Callable[[Job], Task]], version: str) -> None:
    """Answer the harness until it closes the pipe."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer
    job = _job(json.loads(sys.stdin.readline()))
    try:
        task = tasks[job.task](job)
    except Exception as failure:  # whatever is missing or broken here is a result, not the end of the run
        _answer(answers, {"failure": f"{type(failure).__name__}: {failure}"})
        return
    _answer(answers, {"version": version, "digest": task.digest})
    for line in sys.stdin:
        try:
            answer = _timed(task.once, **json.loads(line))
            if task.clean is not None:
                task.clean()
            _answer(answers, answer)
        except Exception as failure:
            _answer(answers, {"failure": f"{type(failure).__name__}: {failure}"})
            return


def batches_of(stream: Iterable[object]) -> Iterator[int]:
    """Counts of at most a batch, for peers that give one record at a time."""
    count = 0
    for count, _record in enumerate(stream, 1):
        if count % BATCH == 0:
            yield BATCH
    yield count % BATCH


def _job(fields: dict[str, Any]) -> Job:
    return Job(
        workload=WORKLOADS[fields["workload"]].scaled(fields["records"]),
        task=fields["task"],
        options=fields["options"],
    )


def _answer(answers: Any, fields: dict[str, Any]) -> None:
    answers.write(json.dumps(fields) + "\n")
    answers.flush()


def _timed(once: Pass, *, min_seconds: float, max_seconds: float) -> dict[str, float]:
    """Whole passes until there is enough time to trust; a pass that takes too long is cut off."""
    units = 0
    cpu = _cpu_seconds()
    begin = time.perf_counter()
    seconds = 0.0
    while seconds < min_seconds:
        for count in once():
            units += count
            seconds = time.perf_counter() - begin
            if seconds > max_seconds:
                break
        else:
            seconds = time.perf_counter() - begin  # what a peer does after its last batch counts, too
    return {"units": units, "seconds": seconds, "cpu_seconds": _cpu_seconds() - cpu}


def _cpu_seconds() -> float:
    """Of this process, and of the workers that it started and that have ended."""
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + workers.ru_utime + workers.ru_stime
