"""What all tests share: Hypothesis settings, files made of bytes, and ways to read them to the end."""

from __future__ import annotations

import ast
import gc
import gzip
import os
import shutil
import signal
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import rekord as rk
from rekord.errors import RekordError
from rekord.framing.frames import SLAB_BYTES, FrameReader
from rekord.health.finding import Report
from rekord.storage.local import LOCAL, Storage
from rekord.testing import frames

# No timing, no files outside tmp_path; a failure prints what reproduces it.
settings.register_profile(
    "rekord",
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("rekord")

_FRAMEWORKS = {
    *(
        "cv2",
        "datasets",
        "grain",
        "imblearn",
        "jax",
        "keras",
        "moto",
        "scipy",
        "sklearn",
        "tensorflow",
    ),
    *("tensorflow_datasets", "tensorflow_metadata", "tfrecord", "tokenizers", "torch", "zensical"),
}
"""Packages that the dependency group `dev` leaves out."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--frameworks=none`: leave out the files that import what the dependency group `dev` does not have."""
    parser.addoption("--frameworks", choices=["all", "none"], default="all")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether a file imports a framework where there is none."""
    if config.getoption("--frameworks") == "all" or collection_path.suffix != ".py":
        return None
    return True if _imports(collection_path) & _FRAMEWORKS else None


def _imports(path: Path) -> set[str]:
    """The packages that a file imports, anywhere in it."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return {name.partition(".")[0] for name in names}


_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 << 30
_temporary = pytest.StashKey[Path]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hear interrupts, and work in memory where the system offers room.

    A shell starts background jobs with SIGINT ignored, and children inherit that: tests of Ctrl-C would wait for
    ever. On a disk, its journal takes longer than many of the tests; not where long tests may run, which write tens
    of GB. Nothing depends on a disk: see `no_fsync`.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput") or config.option.basetemp or "not long" not in config.option.markexpr:
        return
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES:
        config.stash[_temporary] = Path(tempfile.mkdtemp(prefix="rekord-tests-", dir=_MEMORY))
        config.option.basetemp = str(config.stash[_temporary] / "base")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the memory back."""
    if _temporary in config.stash:
        shutil.rmtree(config.stash[_temporary], ignore_errors=True)


def pytest_collection_finish() -> None:
    """Leave out of garbage collection what was imported: with every framework that takes half a second."""
    gc.collect()
    gc.freeze()


PutFile = Callable[..., Path]
Place = tuple[str, int | None, int | None]
"""A code, a record and an offset."""


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indexes of foreign files are kept below the tests' own folder, not in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REKORD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_fsync() -> Iterator[None]:
    """No test loses power: files need not reach the disk. Crash tests lose what was not synced by themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@pytest.fixture
def put_file(tmp_path: Path) -> PutFile:
    """Writes bytes to a file of the test's own folder."""

    def put(data: bytes, name: str = "x.tfrecord") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    return put


@pytest.fixture
def put_records(put_file: PutFile) -> PutFile:
    """Writes a record file of these payloads."""

    def put(payloads: Iterable[bytes], name: str = "x.tfrecord") -> Path:
        return put_file(frames(payloads), name)

    return put


@pytest.fixture(scope="session")
def compress() -> Callable[[bytes, str], bytes]:
    """Bytes as a file of the given compression holds them."""

    def compressed(data: bytes, compression: str) -> bytes:
        if compression == "gzip":
            return gzip.compress(data, mtime=0)
        return zlib.compress(data) if compression == "zlib" else data

    return compressed


@pytest.fixture(scope="session")
def told() -> Callable[[Report], list[Place]]:
    """The errors of a report as (code, record, offset)."""
    return lambda report: [
        (finding.code, finding.record, finding.offset) for finding in report.findings if finding.severity == "error"
    ]


@pytest.fixture(scope="session")
def read() -> Callable[[Path], tuple[list[bytes], RekordError | None]]:
    """The records up to the first failure, and that failure. Any other exception is one of ours."""

    def records(path: Path) -> tuple[list[bytes], RekordError | None]:
        delivered: list[bytes] = []
        try:
            delivered.extend(rk.records(path))
        except RekordError as failure:
            return delivered, failure
        return delivered, None

    return records


@pytest.fixture(scope="session")
def read_on() -> Callable[..., tuple[list[bytes], list[Place]]]:
    """Reads a file to its end, past all damage: the payloads, and what was wrong where."""

    def read(
        path: Path, *, storage: Storage = LOCAL, slab_bytes: int = SLAB_BYTES, sized: bool = True
    ) -> tuple[list[bytes], list[Place]]:
        payloads: list[bytes] = []
        failures: list[Place] = []
        file = storage.open_read(str(path))
        with FrameReader(file, path=str(path), sized=sized, slab_bytes=slab_bytes) as reader:
            goes_on = True
            while goes_on:
                try:
                    for stretch in reader.iter_verified_frames():
                        payloads += stretch.payloads()
                    goes_on = False
                except RekordError as failure:
                    told, goes_on = reader.recover(failure)
                    assert told.location.path == str(path)
                    failures.append((told.code, told.location.record, told.location.offset))
        return payloads, failures

    return read


@pytest.fixture(scope="session")
def drain() -> Callable[[Iterable[Any]], tuple[list[Any], RekordError | None]]:
    """Takes an iterator to its end: what it gave, and the failure that ended it, if one did."""

    def taken(batches: Iterable[Any]) -> tuple[list[Any], RekordError | None]:
        given = []
        try:
            for batch in batches:
                given.append(batch)
        except RekordError as failure:
            return given, failure
        return given, None

    return taken
