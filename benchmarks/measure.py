"""Timing: each contender runs in its own process, and all of them take turns.

Other load on the machine then slows every contender down, and ratios are computed within a round.
"""

from __future__ import annotations

import json
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from environments import OWN, NotInstallableError, python_of
from workloads import Workload

_HERE = Path(__file__).parent
_TIMEOUT_SECONDS = 300.0
_EXIT_SECONDS = 20.0  # for a process to clean up and exit


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How thorough a run is."""

    repeats: int = 5
    min_seconds: float = 0.5
    max_seconds: float = 1.5
    shrink: int = 1  # divides the number of records

    def at_most(self, repeats: int) -> Settings:
        return replace(self, repeats=min(self.repeats, repeats))

    def sized(self, workload: Workload) -> Workload:
        """The workload with the number of records of this run."""
        return workload.scaled(min(workload.records, max(workload.records // self.shrink, workload.min_records)))

    @property
    def limits(self) -> dict[str, float]:
        return {"min_seconds": self.min_seconds, "max_seconds": self.max_seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One way of doing the work: a task of a module in `peers`."""

    label: str
    peer: str
    task: str
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: str = OWN
    records: int | None = None  # another number than the workload's
    max_repeats: int | None = None  # for slow ones, whose spread decides no floor


class Sample(msgspec.Struct, frozen=True, array_like=True):
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


class Result(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All timings of a contender, or the reason why there are none."""

    label: str
    samples: list[Sample] = []
    peak_bytes: list[int] = []
    version: str | None = None  # library and version
    failure: str | None = None

    def ratio(self, other: Result, *, cpu: bool = False) -> float | None:
        """The median over all rounds of this rate divided by the rate of another contender."""
        if self.failure or other.failure:
            return None
        rates = [sample.cpu_rate if cpu else sample.rate for sample in self.samples]
        others = [sample.cpu_rate if cpu else sample.rate for sample in other.samples]
        return median(rate / base for rate, base in zip(rates, others, strict=False))


class PeerError(Exception):
    """A peer could not do its work."""


class Process:
    """The process of a contender, from its job to the end of its last timing."""

    def __init__(self, contender: Contender, workload: Workload) -> None:
        self.peak_bytes = 0
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the process)
        self._process = subprocess.Popen(
            [python_of(contender.environment), "-m", f"peers.{contender.peer}"],
            cwd=_HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._send(
            {
                "workload": workload.name,
                "records": contender.records or workload.records,
                "task": contender.task,
                "options": dict(contender.options),
            }
        )

    def ready(self) -> dict[str, Any]:
        """Wait until everything is imported and set up: the version and the digest."""
        return self._receive()

    def run(self, limits: dict[str, float], *, watch: bool = False) -> Sample:
        """Time the task once; `watch` records the peak of its anonymous memory."""
        self._send(limits)
        return Sample(**self._receive(watch=watch))

    def close(self) -> None:
        """Let the process clean up; kill it if it does not exit."""
        try:
            self._process.communicate(timeout=_EXIT_SECONDS)
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
            raise self._exited() from None

    def _receive(self, *, watch: bool = False) -> dict[str, Any]:
        pipe = self._process.stdout
        assert pipe is not None
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not select.select([pipe], [], [], 0.002 if watch else 1.0)[0]:
            if watch:
                self.peak_bytes = max(self.peak_bytes, _anonymous_bytes(self._process.pid))
            if time.monotonic() > deadline:
                raise PeerError(f"no answer within {_TIMEOUT_SECONDS:.0f} s")
        line = pipe.readline()
        if not line:
            raise self._exited()
        fields: dict[str, Any] = json.loads(line)
        if "failure" in fields:
            raise PeerError(fields["failure"])
        return fields

    def _exited(self) -> PeerError:
        self._process.wait()
        self._log.seek(0)
        last = self._log.read().strip().splitlines()[-1:] or [f"exited with code {self._process.returncode}"]
        return PeerError(last[0])


def race(
    workload: Workload, contenders: Sequence[Contender], settings: Settings, *, reference: str | None
) -> list[Result]:
    """The timings of all contenders, taken in turn. All must produce the same digest as the reference."""
    results = [Result(label=contender.label) for contender in contenders]
    running: list[tuple[Contender, Result, Process]] = []
    try:
        for contender, result in zip(contenders, results, strict=True):
            try:
                running.append((contender, result, Process(contender, workload)))
            except (PeerError, NotInstallableError) as failure:
                result.failure = str(failure)
        _compare({result.label: _ready(result, process) for _, result, process in running}, results, reference)
        for turn in range(settings.repeats + 1):  # the first one warms up
            for contender, result, process in running:
                if result.failure is None and turn <= (contender.max_repeats or settings.repeats):
                    _take(result, process, settings, warm_up=turn == 0)
            _progress(f"{workload.name}: round {turn} of {settings.repeats}")
    finally:
        _progress("")
        for _, _, process in running:
            process.close()
    return results


def fresh_processes(workload: Workload, contender: Contender, settings: Settings, *, watch: bool = False) -> Result:
    """One whole pass per process, without a warm-up; `watch` records peak memory."""
    result = Result(label=contender.label)
    one_pass = {"min_seconds": 1e-9, "max_seconds": _TIMEOUT_SECONDS}
    try:
        for _ in range(settings.repeats):
            process = Process(contender, workload)
            try:
                result.version = process.ready()["version"]
                result.samples.append(process.run(one_pass, watch=watch))
                if watch:
                    result.peak_bytes.append(process.peak_bytes)
            finally:
                process.close()
    except (PeerError, NotInstallableError) as failure:
        result.failure = str(failure)
    return result


_FRAMEWORKS = {"tensorflow", "torch", "jax", "keras", "ray", "pandas"}
_IMPORT = """
import sys, time
begin = time.perf_counter()
import {module}
print(time.perf_counter() - begin, time.process_time(), *sorted({frameworks} & set(sys.modules)))
"""


def import_times(modules: Sequence[str], settings: Settings) -> list[Result]:
    """The time of an import in fresh processes. `import rekord` fails if it loads a framework."""
    results = {module: Result(label=f"import {module}") for module in modules}
    for turn in range(settings.repeats + 1):
        for module, result in results.items():
            code = _IMPORT.format(module=module, frameworks=_FRAMEWORKS)
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            seconds, cpu_seconds, *frameworks = done.stdout.split()
            if turn:
                result.samples.append(Sample(1, float(seconds), float(cpu_seconds)))
            if module == "rekord" and frameworks:
                result.failure = f"loads {', '.join(frameworks)}"
    return list(results.values())


def command_times(label: str, arguments: Sequence[str], settings: Settings) -> Result:
    """The time of a Python command from start to exit."""
    result = Result(label=label)
    for turn in range(settings.repeats + 1):
        begin, cpu_begin = time.perf_counter(), _children_cpu_seconds()
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        seconds, cpu_seconds = time.perf_counter() - begin, _children_cpu_seconds() - cpu_begin
        if turn:
            result.samples.append(Sample(1, seconds, cpu_seconds))
    return result


def _children_cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def _ready(result: Result, process: Process) -> dict[str, float] | None:
    try:
        greeting = process.ready()
    except PeerError as failure:
        result.failure = str(failure)
        return None
    result.version = greeting["version"]
    digest: dict[str, float] | None = greeting["digest"]
    return digest


def _take(result: Result, process: Process, settings: Settings, *, warm_up: bool) -> None:
    try:
        sample = process.run(settings.limits)
    except PeerError as failure:
        result.failure = str(failure)
        return
    if not warm_up:
        result.samples.append(sample)


def _progress(text: str) -> None:
    """Status line on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _compare(digests: dict[str, dict[str, float] | None], results: list[Result], reference: str | None) -> None:
    expected = digests.get(reference) if reference else None
    for result in results:
        digest = digests.get(result.label)
        if expected and digest and not _agree(digest, expected):
            result.failure = f"values differ from those of {reference}"


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
