"""Stored results: one JSON file per group, stamped with the commit, date and load of its measurement."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from measure import Result, Sample

FOLDER = Path(__file__).parent / "results"
_ROOT = Path(__file__).parents[1]
_SOURCES = ("src", "core", "CMakeLists.txt", "pyproject.toml")


class Table(msgspec.Struct, kw_only=True):
    """The timings of all contenders for one kind of work."""

    title: str
    unit: str  # MB and seconds: less is better; anything else is a rate
    results: list[Result]
    reference: str | None = None  # the contender whose ratio is 1
    note: str = ""

    def result(self, label: str) -> Result | None:
        return next((result for result in self.results if result.label == label), None)

    def values(self, result: Result) -> list[float]:
        """The measured values in the unit of the table."""
        if self.unit == "MB":
            return [peak / 1e6 for peak in result.peak_bytes]
        if self.unit == "seconds":
            return [sample.seconds for sample in result.samples]
        scale = 1e-9 if self.unit == "GB/s" else 1.0
        return [sample.rate * scale for sample in result.samples]


class Stamp(msgspec.Struct, kw_only=True):
    """When, on what and from which source a group was measured."""

    commit: str
    dirty: bool  # src or core differed from the commit
    source: str  # hash of the measured source, which survives a rebase
    measured: str
    seconds: float
    repeats: int
    load: tuple[float, float]  # one-minute average before and after
    machine: str
    python: str

    @property
    def line(self) -> str:
        """The stamp in one line of text."""
        commit = self.commit[:10] + (" with uncommitted changes" if self.dirty else "")
        return (
            f"Measured {self.measured} at commit {commit}; {self.repeats} repeats; "
            f"load {self.load[0]:.1f} before, {self.load[1]:.1f} after."
        )


class Group(msgspec.Struct, kw_only=True):
    """The results of one group."""

    name: str
    stamp: Stamp
    tables: list[Table]


class StampTimer:
    """Takes the load, time and source at the start of a group, and the stamp at its end."""

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._load = os.getloadavg()[0]
        self._begin = datetime.now(UTC)

    def stamp(self) -> Stamp:
        end = datetime.now(UTC)
        return Stamp(
            commit=_git("rev-parse", "HEAD"),
            dirty=bool(_git("status", "--porcelain", "--", *_SOURCES)),
            source=source_hash(),
            measured=f"{self._begin:%Y-%m-%d %H:%M} UTC",
            seconds=round((end - self._begin).total_seconds(), 1),
            repeats=self._repeats,
            load=(round(self._load, 2), round(os.getloadavg()[0], 2)),
            machine=_machine(),
            python=platform.python_version(),
        )


def source_hash() -> str:
    """The hashes of src and core at HEAD, in short."""
    return "-".join(_git("rev-parse", f"HEAD:{name}")[:12] for name in ("src", "core"))


def save(group: Group, folder: Path = FOLDER) -> None:
    folder.mkdir(exist_ok=True)
    rounded = msgspec.structs.replace(group, tables=[_rounded(table) for table in group.tables])
    encoded = msgspec.json.format(msgspec.json.encode(rounded), indent=1)
    # Each sample on its own line, not each number.
    text = re.sub(r"\[\s+([\d.e+-]+),\s+([\d.e+-]+),\s+([\d.e+-]+)\s+\]", r"[\1, \2, \3]", encoded.decode())
    (folder / f"{group.name}.json").write_text(text + "\n", encoding="utf-8")


def load(order: Iterable[str], folder: Path = FOLDER) -> list[Group]:
    """The stored groups, in the given order; groups that were never measured are left out."""
    paths = [folder / f"{name}.json" for name in order]
    return [msgspec.json.decode(path.read_bytes(), type=Group) for path in paths if path.exists()]


def stale(groups: Sequence[Group]) -> list[str]:
    """The groups that were measured on other source than HEAD's, or on uncommitted changes."""
    current = source_hash()
    return [group.name for group in groups if group.stamp.dirty or group.stamp.source != current]


def _rounded(table: Table) -> Table:
    results = [
        msgspec.structs.replace(
            result,
            samples=[
                Sample(sample.units, round(sample.seconds, 6), round(sample.cpu_seconds, 6))
                for sample in result.samples
            ],
        )
        for result in table.results
    ]
    return msgspec.structs.replace(table, results=results)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _machine() -> str:
    cpu = re.search(r"model name\s*: (.*)", _read("/proc/cpuinfo"))
    memory = re.search(r"MemTotal:\s*(\d+)", _read("/proc/meminfo"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parts = [cpu[1] if cpu else platform.machine(), f"{cores} cores"]
    if memory:
        parts.append(f"{int(memory[1]) / 2**20:.0f} GiB")
    return ", ".join(parts)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
