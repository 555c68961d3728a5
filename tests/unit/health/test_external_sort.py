"""Places sorted by digest: in memory, on disk, and the same in both cases."""

from __future__ import annotations

import errno
import gc
import os
import tempfile
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.health.duplicates import PLACE_DTYPE, ExternalSort, find_cell_starts, find_group_starts


def _places(digests: Any, *, split: Any = 0, file: int = 0, low: Any = 7) -> Any:
    rows = np.zeros(len(digests), PLACE_DTYPE)
    rows["high"], rows["low"], rows["split"], rows["file"] = digests, low, split, file
    rows["record"] = np.arange(len(digests))
    rows["offset"] = rows["record"] * 100
    rows["count"] = 1
    return rows


def _sorted(chunks: list[Any], memory_bytes: int) -> tuple[list[Any], bool]:
    with ExternalSort(memory_bytes) as sort:
        for chunk in chunks:
            sort.add(chunk)
        parts = [part.copy() for part in sort.parts()]
        return parts, sort.spilled


LITTLE = 2000 * PLACE_DTYPE.itemsize


def test_nothing_in_gives_nothing_out():
    parts, spilled = _sorted([], LITTLE)
    assert (sum(map(len, parts)), spilled) == (0, False)


def test_places_come_by_digest_then_split_then_place():
    rows = _places([5, 1, 5, 5, 1], split=[1, 0, 0, 1, 0], low=[7, 7, 7, 6, 7])
    [part], _ = _sorted([rows], LITTLE)
    found = [(row["high"], row["low"], row["split"], row["record"]) for row in part]
    assert found == [(1, 7, 0, 1), (1, 7, 0, 4), (5, 6, 1, 3), (5, 7, 0, 2), (5, 7, 1, 0)]


@pytest.mark.parametrize("memory_bytes", [LITTLE, 64 << 20])
@pytest.mark.parametrize("distinct", [3, 5000, 1 << 62])
def test_digests_with_one_place_can_be_left_out(distinct, memory_bytes):
    print("seed 12")
    random = np.random.default_rng(12)
    chunks = [_places(random.integers(0, distinct, 700), file=number) for number in range(9)]
    everything = np.concatenate(_sorted(chunks, memory_bytes)[0])
    starts = np.flatnonzero(find_group_starts(everything))
    repeated = np.repeat(np.diff(starts, append=len(everything)) > 1, np.diff(starts, append=len(everything)))
    with ExternalSort(memory_bytes) as sort:
        for chunk in chunks:
            sort.add(chunk)
        found = np.concatenate([part.copy() for part in sort.parts(repeated_only=True)])
    assert found.tobytes() == everything[repeated].tobytes()


@pytest.mark.parametrize("distinct", [3, 120, 10**6])
@pytest.mark.parametrize("narrow", [False, True])  # digests that share all their leading bits
def test_what_went_to_disk_comes_back_as_if_it_had_not(distinct, narrow):
    print("seed 11")
    random = np.random.default_rng(11)
    kinds = random.integers(0, 1 << 64, distinct, dtype=np.uint64)
    if narrow:
        kinds = kinds >> np.uint64(44)
    chunks = [
        _places(random.choice(kinds, 700), split=random.integers(0, 3, 700), file=number) for number in range(9)
    ]
    in_memory, spilled = _sorted(chunks, 64 << 20)
    assert (len(in_memory), spilled) == (1, False)
    on_disk, spilled = _sorted(chunks, LITTLE)
    assert spilled is (distinct > 3)
    together = np.concatenate(on_disk)
    # Each part begins with another digest than the one before it ended with.
    assert find_group_starts(together)[np.cumsum([0, *map(len, on_disk)])[:-1]].all()
    # After a part has been read, more than two places of a digest in a split are one place with a count.
    assert together.tobytes() == in_memory[0].tobytes()
    assert together["count"].sum() == 9 * 700


def test_of_many_equal_places_the_first_two_and_the_count_of_all_remain():
    chunks = [_places([42] * 500, file=number) for number in range(40)]
    for memory_bytes in (LITTLE, 64 << 20):
        [part], spilled = _sorted(chunks, memory_bytes)
        assert not spilled  # they fold up, and need no disk
        assert part[["file", "record", "offset", "count"]].tolist() == [(0, 0, 0, 1), (0, 1, 100, 19_999)]


def test_cells_are_digests_in_a_split():
    [part], _ = _sorted([_places([5, 1, 5, 5], split=[1, 0, 0, 1])], LITTLE)
    assert find_group_starts(part).tolist() == [True, True, False, False]
    assert find_cell_starts(part).tolist() == [True, True, True, False]


@pytest.mark.parametrize("equal", [False, True])
def test_memory_stays_below_what_was_allowed(equal):
    memory_bytes = 4 << 20
    random = np.random.default_rng(3)
    peaks = []
    for chunks in (30, 120):  # 6 and 24 MB of places
        tracemalloc.start()
        with ExternalSort(memory_bytes) as sort:
            for number in range(chunks):
                digests = random.integers(0, 1 << 64, 4096, dtype=np.uint64)
                sort.add(_places(digests if not equal else digests >> np.uint64(52), file=number))
            rows = sum(int(part["count"].sum()) for part in sort.parts())
            assert sort.spilled is not equal
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert rows == chunks * 4096
    assert max(peaks) < memory_bytes + (1 << 20)


_DESCRIPTORS = "/proc/self/fd"


def _open_in(folder: Path) -> list[str]:
    """The files of a folder that this process has open, those without a name too, where the system tells."""
    names = os.listdir(_DESCRIPTORS) if os.path.isdir(_DESCRIPTORS) else []
    leads: list[str] = []
    for name in names:
        with suppress(OSError):  # that of the listing itself is closed again
            leads.append(os.readlink(f"{_DESCRIPTORS}/{name}"))
    return [lead for lead in leads if lead.startswith(f"{folder}/")]


@pytest.mark.concurrency
def test_nothing_is_left_in_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sort = ExternalSort(LITTLE)
    sort.add(_places(np.arange(5000)))
    assert sort.spilled
    assert os.listdir(tmp_path) == []  # not even meanwhile
    assert len(_open_in(tmp_path)) == (1 if os.path.isdir(_DESCRIPTORS) else 0)
    del sort  # whoever is interrupted does not close
    gc.collect()
    assert _open_in(tmp_path) == []


def test_a_full_disk_names_the_variable_that_chooses_another(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    class Full:
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None: ...

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **options: Full())
    with ExternalSort(LITTLE) as sort, pytest.raises(rk.DatasetError) as caught:
        sort.add(_places(np.arange(5000)))
    assert (caught.value.code, caught.value.location.path) == ("X546", str(tmp_path))
    assert caught.value.found == "No space left on device"
    assert "TMPDIR" in caught.value.do


def test_no_temporary_folder_at_all_is_said_likewise(monkeypatch):
    def refused(**options: Any) -> Any:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    with ExternalSort(LITTLE) as sort, pytest.raises(rk.DatasetError) as caught:
        sort.add(_places(np.arange(5000)))
    assert caught.value.code == "X546"
