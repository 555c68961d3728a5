"""Timing: each contender in a process of its own, all of them in turn, again and again.

A machine that is busy for a moment then slows every contender alike, and a ratio is taken within a round.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from environments import OWN, NotInstallableError, python_of
from workloads import Workload

_HERE = Path(__file__).parent
_LONGEST_SECONDS = 300.0  # until a process that says nothing is given up
_LAST_SECONDS = 20.0  # for a process to end by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How thorough a run is."""

    repeats: int = 5
    min_seconds: float = 0.5
    max_seconds: float = 3.0
    shrink: int = 1  # divides the number of records

    def sized(self, workload: Workload) -> Workload:
        """The workload as this run uses it."""
        return workload.scaled(min(workload.records, max(workload.records // self.shrink, workload.fewest)))

    @property
    def limits(self) -> dict[str, float]:
        return {"min_seconds": self.min_seconds, "max_seconds": self.max_seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way of doing the work."""

    label: str
    peer: str
    task: str
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: str = OWN


@dataclass(frozen=True, slots=True)
class Sample:
    """One timing."""

    units: float
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.units / self.seconds

    @property
    def cpu_rate(self) -> float:
        return self.units / self.cpu_seconds


@dataclass(slots=True)
class Result:
    """All timings of a contender, or why there are none."""

    label: str
    samples: list[Sample] = field(default_factory=list)
    version: str | None = None
    failure: str | None = None
    digest: dict[str, float] | None = None
    peak_bytes: list[int] = field(default_factory=list)

    def ratio(self, other: Result, *, cpu: bool = False) -> float | None:
        """How many times the rate of another contender, round by round; the median."""
        if self.failure or other.failure:
            return None
        rates = [sample.cpu_rate if cpu else sample.rate for sample in self.samples]
        others = [sample.cpu_rate if cpu else sample.rate for sample in other.samples]
        return median(mine / theirs for mine, theirs in zip(rates, others, strict=True))


class PeerError(Exception):
    """A peer could not do its work."""


class Process:
    """A contender's process, from the job to the end of its last timing."""

    def __init__(self, contender: Contender, workload: Workload) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the process)
        self._process = subprocess.Popen(
            [python_of(contender.environment), "-m", f"peers.{contender.peer}"],
            cwd=_HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        job = {
            "workload": workload.name,
            "records": workload.records,
            "task": contender.task,
            "options": dict(contender.options),
        }
        self._send(job)
        try:
            self.greeting = self._receive()
        except PeerError:
            self.close()
            raise
        self.peak_bytes = 0

    def run(self, limits: dict[str, float], *, watch: bool = False) -> Sample:
        """Time the task once; `watch` its anonymous memory meanwhile."""
        self._send(limits)
        return Sample(**self._receive(watch=watch))

    def close(self) -> None:
        """Let it clean up after itself; end it if it does not."""
        try:
            self._process.communicate(timeout=_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._log.close()

    def _send(self, fields: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(fields) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _receive(self, *, watch: bool = False) -> dict[str, Any]:
        pipe = self._process.stdout
        assert pipe is not None
        deadline = time.monotonic() + _LONGEST_SECONDS
        while not select.select([pipe], [], [], 0.002 if watch else 1.0)[0]:
            if watch:
                self.peak_bytes = max(self.peak_bytes, _anonymous_bytes(self._process.pid))
            if time.monotonic() > deadline:
                raise PeerError(f"no answer within {_LONGEST_SECONDS:.0f} s")
        line = pipe.readline()
        if not line:
            raise self._ended()
        fields: dict[str, Any] = json.loads(line)
        if "failure" in fields:
            raise PeerError(fields["failure"])
        return fields

    def _ended(self) -> PeerError:
        self._process.wait()
        self._log.seek(0)
        last = self._log.read().strip().splitlines()[-1:] or [f"ended with code {self._process.returncode}"]
        return PeerError(last[0])


def race(workload: Workload, contenders: list[Contender], settings: Settings, *, reference: str) -> list[Result]:
    """Every contender's timings, taken in turn. What the reference reads is what all must read."""
    results = [Result(contender.label) for contender in contenders]
    running: list[tuple[Result, Process]] = []
    try:
        for contender, result in zip(contenders, results, strict=True):
            try:
                process = Process(contender, workload)
            except (PeerError, NotInstallableError) as failure:
                result.failure = str(failure)
                continue
            running.append((result, process))
            result.version = process.greeting["version"]
            result.digest = process.greeting["digest"]
        _compare(results, reference)
        for turn in range(settings.repeats + 1):
            for result, process in running:
                if result.failure is None:
                    _take(result, process, settings, warm_up=turn == 0)
            _progress(f"{workload.name}: round {turn} of {settings.repeats}")
    finally:
        _progress("")
        for _, process in running:
            process.close()
    return results


def peak_memory(workload: Workload, contender: Contender, settings: Settings) -> Result:
    """Peak anonymous memory of one whole pass, in a fresh process each time."""
    result = Result(contender.label)
    one_pass = {"min_seconds": 1e-9, "max_seconds": _LONGEST_SECONDS}
    for _ in range(settings.repeats):
        try:
            process = Process(contender, workload)
        except PeerError as failure:
            result.failure = str(failure)
            break
        try:
            result.samples.append(process.run(one_pass, watch=True))
            result.peak_bytes.append(process.peak_bytes)
            result.version = process.greeting["version"]
        except PeerError as failure:
            result.failure = str(failure)
            break
        finally:
            process.close()
    return result


_IMPORT = """
import sys, time
begin = time.perf_counter()
import {module}
seconds = time.perf_counter() - begin
loaded = sorted({{"tensorflow", "torch", "jax", "keras", "ray", "pandas"}} & set(sys.modules))
print(seconds, time.process_time(), *loaded)
"""


def import_time(modules: list[str], settings: Settings) -> tuple[list[Result], dict[str, list[str]]]:
    """How long imports take in fresh processes, and which frameworks they load."""
    results = {module: Result(f"import {module}") for module in modules}
    loaded: dict[str, list[str]] = {}
    for turn in range(settings.repeats + 1):
        for module, result in results.items():
            done = subprocess.run(
                [sys.executable, "-c", _IMPORT.format(module=module)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                result.failure = (done.stderr.strip().splitlines() or ["failed"])[-1]
            elif turn:
                seconds, cpu_seconds, *frameworks = done.stdout.split()
                result.samples.append(Sample(1, float(seconds), float(cpu_seconds)))
                loaded[module] = frameworks
    return list(results.values()), loaded


def _take(result: Result, process: Process, settings: Settings, *, warm_up: bool) -> None:
    try:
        sample = process.run(settings.limits)
    except PeerError as failure:
        result.failure = str(failure)
        return
    if not warm_up:
        result.samples.append(sample)


def _progress(text: str) -> None:
    """A line that the next one overwrites; nothing where nobody looks."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _compare(results: list[Result], reference: str) -> None:
    expected = next((result.digest for result in results if result.label == reference), None)
    for result in results:
        if expected and result.digest and not _agree(result.digest, expected):
            result.failure = f"read other values than {reference}"


def _agree(one: dict[str, float], other: dict[str, float]) -> bool:
    return one.keys() == other.keys() and all(
        abs(one[key] - other[key]) <= 1e-5 * max(1.0, abs(other[key])) for key in one
    )


def _anonymous_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
