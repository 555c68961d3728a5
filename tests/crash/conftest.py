"""Where the tests of crashes work: they make and remove thousands of folders, most of them in memory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM_BYTES = 1 << 30


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where the system offers one with room, else on the disk.

    No test here depends on a disk: a process that dies leaves what it wrote in the page cache, and what a loss of
    power takes is taken by `FaultyStorage`. On a disk, most of the time of these tests is that of its journal.
    """
    if not _has_room():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="rekord-crash-", dir=MEMORY))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _has_room() -> bool:
    if not os.access(MEMORY, os.W_OK):
        return False
    room = os.statvfs(MEMORY)
    return room.f_bavail * room.f_frsize >= ROOM_BYTES
