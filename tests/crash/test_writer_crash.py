"""A writer that dies, or fails, at any step leaves the old file or the whole new one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from faulty_storage import Crash, Fault, FaultyStorage

from rekord.codec.encode import encode
from rekord.dataset.read import records
from rekord.dataset.writer import Writer
from rekord.errors import DatasetError
from rekord.schema import Bytes, Int64, Schema
from rekord.storage.publication import STAGED_PREFIX
from rekord.testing import frames

OLD = b"what was here before"
SCHEMA = Schema({"i": Int64(), "blob": Bytes()})
# Large enough for several blocks of four MiB, and hardly compressible.
ROWS = [{"i": i, "blob": bytes((i * j * 31 + j // 7) % 251 for j in range(1000)) * 1400} for i in range(8)]
PAYLOADS = [encode(row, SCHEMA) for row in ROWS]
NAMES = {
    None: ["create", "write", "write", "write", "fsync", "rename", "sync_folder"],
    "gzip": ["create", *["write"] * 9, "fsync", "rename", "sync_folder"],
}


def write_new(target: Path, storage: FaultyStorage, compression: str | None) -> None:
    with Writer(target, SCHEMA, compression=compression, storage=storage) as writer:
        for row in ROWS[:6]:
            writer.write(row)
        writer.write_columns({name: [row[name] for row in ROWS[6:]] for name in SCHEMA})


def steps() -> list[tuple[str | None, int]]:
    return [(compression, step) for compression in NAMES for step in range(1, len(NAMES[compression]) + 1)]


def strays(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(STAGED_PREFIX)]


@pytest.fixture(params=[None, OLD], ids=["new target", "replacement"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "x.tfrecord"
    if request.param is not None:
        path.write_bytes(request.param)
    return path


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


@pytest.mark.parametrize("compression", NAMES)
def test_these_are_all_steps_there_are(target: Path, compression: str | None) -> None:
    storage = FaultyStorage()
    write_new(target, storage, compression)
    assert [operation.name for operation in storage.operations] == NAMES[compression]
    assert list(records(target)) == PAYLOADS
    if compression is None:
        assert target.read_bytes() == frames(PAYLOADS)


@pytest.mark.parametrize("fault", ["crash", "short write then crash", "power loss"])
@pytest.mark.parametrize(("compression", "step"), steps())
def test_dying_at_any_step_leaves_the_old_or_the_whole_new_file(
    target: Path, compression: str | None, step: int, fault: Fault
) -> None:
    before = content(target)
    storage = FaultyStorage(fail_at=step, fault=fault)
    with pytest.raises(Crash):
        write_new(target, storage, compression)
    assert len(storage.operations) == step, "a dead process does nothing more"
    if step <= NAMES[compression].index("rename") + 1:
        assert content(target) == before
    else:
        assert list(records(target)) == PAYLOADS
    assert len(os.listdir(target.parent)) == len(strays(target.parent)) + target.exists()


@pytest.mark.parametrize(("fault", "number"), [("enospc", errno.ENOSPC), ("eio", errno.EIO)])
@pytest.mark.parametrize(("compression", "step"), steps())
def test_an_error_at_any_step_is_told_and_leaves_no_stray(
    target: Path, compression: str | None, step: int, fault: Fault, number: int
) -> None:
    before = content(target)
    with pytest.raises(DatasetError) as caught:
        write_new(target, FaultyStorage(fail_at=step, fault=fault), compression)
    assert (caught.value.code, caught.value.location.path) == ("X504", str(target))
    assert caught.value.found == os.strerror(number)
    assert strays(target.parent) == []
    if step <= NAMES[compression].index("rename") + 1:
        assert content(target) == before
    else:
        assert list(records(target)) == PAYLOADS
