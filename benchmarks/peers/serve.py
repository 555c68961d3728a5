"""The process of a peer: it builds a task from its job, and times the task on request.

Job and answers are lines of JSON. Imports and set-up are not timed.
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
"""One pass over the data, which yields the number of units after every piece of work."""


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement of one peer."""

    workload: Workload
    task: str
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """What is timed, and what removes its files afterwards, which is not timed.

    The digest summarises the first batch or the first rows: it must be equal for all peers.
    """

    once: Pass
    digest: dict[str, float] | None = None
    clean: Callable[[], None] | None = None


def serve(tasks: Mapping[str, Callable[[Job], Task]], version: str) -> None:
    """Answer the harness until it closes the pipe."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not look like an answer
    job = _job(json.loads(sys.stdin.readline()))
    try:
        task = tasks[job.task](job)
    except Exception as failure:  # a failure is a result, not the end of the run
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
    """Counts of at most a batch, for peers that yield single records."""
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
    """Whole passes until `min_seconds`; a pass is cut off after `max_seconds`."""
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
            seconds = time.perf_counter() - begin  # work after the last batch counts as well
    return {"units": units, "seconds": seconds, "cpu_seconds": _cpu_seconds() - cpu}


def _cpu_seconds() -> float:
    """Of this process and of its workers that have exited."""
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + workers.ru_utime + workers.ru_stime
