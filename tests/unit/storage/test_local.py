"""The local storage: what it does, and what it says when the system refuses."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import threading
import warnings
from pathlib import Path

import pytest

from rekord.errors import DatasetError, UsageError
from rekord.storage.local import LOCAL, DirectoryEntry, LocalStorage, Writable, read_error, write_error


def test_a_file_is_read_in_pieces_from_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    with LOCAL.open_read(str(path)) as file:
        buffer = bytearray(4)
        assert (file.path, file.size_bytes) == (str(path), 10)
        assert (file.readinto(buffer), bytes(buffer)) == (4, b"0123")
        assert file.seek(8) == 8
        assert (file.readinto(buffer), bytes(buffer[:2])) == (2, b"89")
        assert file.readinto(buffer) == 0


def test_the_size_of_a_file_that_grows_is_the_size_now(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"01")
    with LOCAL.open_read(str(path)) as file:
        with path.open("ab") as more:
            more.write(b"2345")
        assert file.size_bytes == 6


@pytest.mark.concurrency
def test_a_pipe_is_read_to_its_end_and_has_no_size(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"abc",))
    writer.start()
    with LOCAL.open_read(str(path)) as file:
        buffer = bytearray(8)
        assert file.readinto(buffer) == 3
        assert file.readinto(buffer) == 0
        assert (file.size_bytes, LOCAL.stat(str(path)).kind) == (0, "other")
    writer.join()


def test_what_is_created_holds_every_byte_that_was_written(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    file = LOCAL.create(path)
    assert file.write(b"ab") == 2
    assert file.write(memoryview(b"cdef")[1:]) == 3
    assert file.write(b"") == 0
    file.fsync()
    file.close()
    assert Path(path).read_bytes() == b"abdef"


def test_a_write_that_the_system_takes_in_pieces_is_carried_on(tmp_path: Path) -> None:
    file = LOCAL.create(str(tmp_path / "a"))
    taken: list[bytes] = []

    class Reluctant:
        def write(self, data: memoryview) -> int:
            taken.append(bytes(data[:3]))
            return len(taken[-1])

    inner, file._file = file._file, Reluctant()  # type: ignore[attr-defined]
    assert file.write(b"01234567") == 8
    assert taken == [b"012", b"345", b"67"]
    inner.close()


def test_an_existing_file_is_not_created_again(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(DatasetError) as caught:
        LOCAL.create(str(path))
    assert (caught.value.code, caught.value.location.path) == ("X504", str(path))
    assert caught.value.do == f"choose another name, or first: rm {path}"
    assert path.read_bytes() == b"old"


def test_a_rename_replaces_the_file_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "b").write_bytes(b"old")
    LOCAL.rename(str(tmp_path / "a"), str(tmp_path / "b"))
    LOCAL.sync_folder(str(tmp_path))
    assert os.listdir(tmp_path) == ["b"]
    assert (tmp_path / "b").read_bytes() == b"new"


def test_removing_removes_and_says_when_there_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    LOCAL.remove(str(path))
    assert not path.exists()
    with pytest.raises(DatasetError) as caught:
        LOCAL.remove(str(path))
    assert (caught.value.code, caught.value.location.path) == ("X501", str(path))


def test_a_folder_is_made_with_its_parents_and_may_be_there_already(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    LOCAL.make_folder(str(path))
    LOCAL.make_folder(str(path))
    assert LOCAL.stat(str(path)).kind == "folder"


def test_a_listing_is_in_byte_order_and_tells_links_from_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "Z").touch()
    (tmp_path / "é").touch()
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "nowhere").symlink_to("gone")
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "pipe")
    assert LOCAL.list(str(tmp_path)) == [
        DirectoryEntry(name="Z", kind="file", link=False),
        DirectoryEntry(name="a", kind="folder", link=False),
        DirectoryEntry(name="b", kind="file", link=False),
        DirectoryEntry(name="circle", kind="unreachable", link=True),
        DirectoryEntry(name="link", kind="folder", link=True),
        DirectoryEntry(name="nowhere", kind="unreachable", link=True),
        DirectoryEntry(name="pipe", kind="other", link=False),
        DirectoryEntry(name="é", kind="file", link=False),
    ]


def test_stat_follows_links_and_gives_one_identity_to_one_thing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a")
    direct, linked = LOCAL.stat(str(tmp_path / "a")), LOCAL.stat(str(tmp_path / "link"))
    assert direct == linked
    assert (direct.kind, direct.size_bytes) == ("file", 3)
    assert direct.mtime_ns == (tmp_path / "a").stat().st_mtime_ns
    assert LOCAL.real(str(tmp_path / "link")) == os.path.realpath(tmp_path / "a")


@pytest.mark.parametrize("below", ["gone", "gone/too", "file/below", "n" * 300])
def test_what_is_missing_is_x501(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    path = str(tmp_path / below)
    for attempt in (LOCAL.open_read, LOCAL.stat, LOCAL.list):
        with pytest.raises(DatasetError) as caught:
            attempt(path)
        assert (caught.value.code, caught.value.location.path) == ("X501", path)
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.do == f"ls {os.path.dirname(path)}"


def test_a_folder_cannot_be_read_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        LOCAL.open_read(str(tmp_path))
    assert (caught.value.code, caught.value.location.path) == ("X503", str(tmp_path))
    assert (caught.value.found, caught.value.do) == ("Is a directory", "use a file in this folder")


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_can_be_no_path_is_a_usage_error(path: str) -> None:
    attempts = (LOCAL.open_read, LOCAL.stat, LOCAL.list, LOCAL.create, LOCAL.remove, LOCAL.make_folder)
    for attempt in attempts:
        with pytest.raises(UsageError) as caught:
            attempt(path)
        assert (caught.value.code, caught.value.location.path) == ("U605", path)


def test_a_file_in_a_missing_folder_cannot_be_written(tmp_path: Path) -> None:
    path = str(tmp_path / "gone" / "a b")
    with pytest.raises(DatasetError) as caught:
        LOCAL.create(path)
    assert (caught.value.code, caught.value.location.path) == ("X504", path)
    assert caught.value.do == f"mkdir -p {tmp_path / 'gone'}"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device that is always full")
def test_a_full_disk_says_how_much_is_missing() -> None:
    import io

    from rekord.storage.local import _LocalWritable

    file: Writable = _LocalWritable("out/x.tfrecord", io.FileIO("/dev/full", "w"))
    with pytest.raises(DatasetError) as caught:
        file.write(bytes(12_345))
    file.close()
    assert (caught.value.code, caught.value.location.path) == ("X504", "out/x.tfrecord")
    assert caught.value.found == "No space left on device"
    assert caught.value.do == ("free at least 12,345 bytes on the disk that holds out, or write to another disk")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_permissions_are_told_for_reading_and_writing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    path.chmod(0)
    with pytest.raises(DatasetError) as caught:
        LOCAL.open_read(str(path))
    assert (caught.value.code, caught.value.found) == ("X503", "Permission denied")
    tmp_path.chmod(0o500)
    with pytest.raises(DatasetError) as caught:
        LOCAL.create(str(tmp_path / "b"))
    tmp_path.chmod(0o700)
    assert (caught.value.code, caught.value.found) == ("X504", "Permission denied")


@pytest.mark.parametrize(
    ("number", "code", "do"),
    [
        (errno.ENOENT, "X501", "ls d"),
        (errno.EACCES, "X503", "chmod u+rX 'd/a b'      (or run as a user who may read it)"),
        (
            errno.EIO,
            "X503",
            "copy 'd/a b' again from its origin: the disk or network that holds it reports an error",
        ),
        (errno.ELOOP, "X503", "ls -l 'd/a b'      (its links form a loop)"),
        (errno.EMFILE, "X503", "ulimit -n 4096      (too many files are open at once)"),
        (errno.ESTALE, "X503", "mount the network folder again, then run the same command"),
        (errno.ENODEV, "X503", "check that 'd/a b' can be read: head -c 1 'd/a b'"),
    ],
)
def test_a_read_error_says_what_fits_its_cause(number: int, code: str, do: str) -> None:
    told = read_error("d/a b", OSError(number, os.strerror(number)))
    assert isinstance(told, DatasetError)
    assert (told.code, told.location.path) == (code, "d/a b")
    assert (told.found, told.do) == (os.strerror(number), do)


@pytest.mark.parametrize(
    ("number", "do"),
    [
        (errno.ENOSPC, "free space on the disk that holds d, or write to another disk"),
        (errno.EDQUOT, "free space of your quota on the disk that holds d, or write to another disk"),
        (errno.EROFS, "write to another folder: d is mounted read-only"),
        (errno.EACCES, "chmod u+wx d      (or write to another folder)"),
        (errno.ENOENT, "mkdir -p d"),
        (errno.ENOTDIR, "write to another folder: part of d is a file"),
        (errno.EEXIST, "choose another name, or first: rm d/a"),
        (errno.EISDIR, "choose another name: d/a is a folder"),
        (errno.EFBIG, "write smaller files: this is the largest that the disk or `ulimit -f` allows"),
        (errno.ENAMETOOLONG, "choose a shorter name"),
        (errno.EXDEV, "use two paths on one disk: a rename cannot cross disks"),
        (errno.EMFILE, "ulimit -n 4096      (too many files are open at once)"),
        (errno.EIO, "write to another disk: the one that holds d reports an error"),
        (errno.ENODEV, "write to another folder"),
    ],
)
def test_a_write_error_says_what_fits_its_cause(number: int, do: str) -> None:
    told = write_error("d/a", OSError(number, os.strerror(number)))
    assert isinstance(told, DatasetError)
    assert (told.code, told.location.path) == ("X504", "d/a")
    assert (told.found, told.do) == (os.strerror(number), do)


def test_a_local_storage_goes_to_another_process() -> None:
    assert isinstance(pickle.loads(pickle.dumps(LOCAL)), LocalStorage)


@pytest.mark.concurrency
def test_a_file_that_is_left_behind_in_a_cycle_is_closed_without_a_warning(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    holder = {"file": LOCAL.open_read(str(tmp_path / "a"))}
    holder["self"] = holder
    del holder
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        gc.collect()
    assert said == []
    if before is not None:
        assert set(os.listdir("/proc/self/fd")) <= before
