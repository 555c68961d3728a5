"""Publishing is atomic: die or fail at every step, and the target is old or new, never between."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from faulty_storage import Crash, Fault, FaultyStorage

from rekord.errors import DatasetError
from rekord.storage.local import LOCAL
from rekord.storage.publication import STAGED_PREFIX
from rekord.storage.transaction import publish

PIECES = (b"first piece,", b" second piece,", b" third")
NEW = b"".join(PIECES)
OLD = b"what was here before"
NAMES = ["create", "write", "write", "write", "fsync", "rename", "sync_folder"]
STEPS = range(1, len(NAMES) + 1)
RENAME = NAMES.index("rename") + 1


def write_new(target: Path, storage: FaultyStorage) -> None:
    with publish(target, storage) as staged:
        for piece in PIECES:
            staged.write(piece)


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


def test_a_clean_end_publishes_in_this_order(target: Path) -> None:
    storage = FaultyStorage()
    before = content(target)
    with publish(target, storage) as staged:
        assert len(strays(target.parent)) == 1
        for piece in PIECES:
            assert staged.write(piece) == len(piece)
        assert content(target) == before
    assert [operation.name for operation in storage.operations] == NAMES
    assert storage.operations[-2].path == os.path.realpath(target)
    assert content(target) == NEW
    assert os.listdir(target.parent) == [target.name]


@pytest.mark.parametrize("fault", ["crash", "short write then crash", "power loss"])
@pytest.mark.parametrize("step", STEPS)
def test_dying_at_any_step_leaves_the_old_or_the_whole_new_file(target: Path, step: int, fault: Fault) -> None:
    before = content(target)
    storage = FaultyStorage(fail_at=step, fault=fault)
    with pytest.raises(Crash):
        write_new(target, storage)
    assert storage.dead
    assert len(storage.operations) == step, "a dead process does nothing more"
    assert content(target) == (before if step <= RENAME else NEW)
    # What a dead process leaves behind is hidden, and the next attempt does not mind it.
    assert len(os.listdir(target.parent)) == len(strays(target.parent)) + (content(target) is not None)
    write_new(target, FaultyStorage())
    assert content(target) == NEW


@pytest.mark.parametrize(("fault", "number"), [("enospc", errno.ENOSPC), ("eio", errno.EIO)])
@pytest.mark.parametrize("step", STEPS)
def test_an_error_at_any_step_is_x504_and_leaves_no_stray(target: Path, step: int, fault: Fault, number: int) -> None:
    before = content(target)
    storage = FaultyStorage(fail_at=step, fault=fault)
    with pytest.raises(DatasetError) as caught:
        write_new(target, storage)
    assert (caught.value.code, caught.value.location.path) == ("X504", str(target))
    assert caught.value.found == os.strerror(number)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == number
    assert STAGED_PREFIX not in str(caught.value), "a staged name means nothing to a user"
    assert strays(target.parent) == []
    assert content(target) == (before if step <= RENAME else NEW)


def test_a_full_disk_says_how_many_bytes_were_left_to_write(target: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        write_new(target, FaultyStorage(fail_at=2, fault="enospc"))
    folder = os.path.realpath(target.parent)
    assert caught.value.do == f"free at least 6 bytes on the disk that holds {folder}, or write to another disk"


@pytest.mark.parametrize("failure", [RuntimeError("no"), KeyboardInterrupt(), SystemExit(1)])
def test_when_the_block_raises_nothing_appears(target: Path, failure: BaseException) -> None:
    before = content(target)
    storage = FaultyStorage()

    def work() -> None:
        with publish(target, storage) as staged:
            staged.write(b"half")
            raise failure

    with pytest.raises(type(failure)) as caught:
        work()
    assert caught.value is failure
    assert [operation.name for operation in storage.operations] == ["create", "write", "remove"]
    assert content(target) == before
    assert strays(target.parent) == []


def test_the_first_error_is_told_even_if_cleaning_up_fails_too(tmp_path: Path) -> None:
    storage = FaultyStorage(fail_at=2, fault="eio")
    with pytest.raises(ZeroDivisionError), publish(tmp_path / "x", storage):
        raise ZeroDivisionError
    assert [operation.name for operation in storage.operations] == ["create", "remove"]
    assert not (tmp_path / "x").exists()


def test_an_interrupt_while_creating_or_completing_leaves_no_stray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in ("create", "rename"):
        storage = FaultyStorage()
        real = getattr(LOCAL, step)

        def interrupted(*paths: str, real: object = real, step: str = step) -> None:
            if step == "create":
                real(*paths).close()  # type: ignore[operator]
            raise KeyboardInterrupt

        monkeypatch.setattr(storage, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_new(tmp_path / "x", storage)
        assert os.listdir(tmp_path) == []


def test_a_link_stays_a_link_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "real").write_bytes(OLD)
    (tmp_path / "link").symlink_to("big/real")
    write_new(tmp_path / "link", FaultyStorage())
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "big" / "real").read_bytes() == NEW


def test_a_relative_path_is_published_where_it_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_new(Path("x"), FaultyStorage())
    assert (tmp_path / "x").read_bytes() == NEW


@pytest.mark.parametrize(("make", "found"), [(os.mkdir, "a folder"), (os.mkfifo, "a pipe, a socket or a device")])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, make: Callable[[Path], None], found: str) -> None:
    make(tmp_path / "x")
    storage = FaultyStorage()
    with pytest.raises(DatasetError) as caught:
        write_new(tmp_path / "x", storage)
    assert (caught.value.code, caught.value.location.path) == ("X504", str(tmp_path / "x"))
    assert caught.value.found == found
    assert storage.operations == []


@pytest.mark.parametrize(("name", "do"), [("gone/x", "mkdir -p"), ("file/x", "write to another folder:")])
def test_a_place_that_cannot_hold_it_is_x504_before_any_work(tmp_path: Path, name: str, do: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError) as caught, publish(tmp_path / name):
        raise AssertionError("the block must not begin")
    assert (caught.value.code, caught.value.location.path) == ("X504", str(tmp_path / name))
    assert caught.value.do is not None
    assert caught.value.do.startswith(do)


def test_two_at_once_both_complete_and_the_last_one_counts(tmp_path: Path) -> None:
    with publish(tmp_path / "x") as slow:
        slow.write(b"slow")
        with publish(tmp_path / "x") as quick:
            quick.write(b"quick")
        assert (tmp_path / "x").read_bytes() == b"quick"
    assert (tmp_path / "x").read_bytes() == b"slow"


def test_a_name_of_the_greatest_length_can_be_published(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 255)
    write_new(target, FaultyStorage())
    assert target.read_bytes() == NEW


def test_a_power_loss_takes_what_was_not_synced(tmp_path: Path) -> None:
    """Proves that the fault is real: renamed without an fsync, the new name has no bytes."""
    storage = FaultyStorage(fail_at=4, fault="power loss")
    file = storage.create(str(tmp_path / "staged"))
    file.write(b"abc")
    file.close()
    storage.rename(str(tmp_path / "staged"), str(tmp_path / "final"))
    with pytest.raises(Crash):
        storage.sync_folder(str(tmp_path))
    assert (tmp_path / "final").read_bytes() == b""


def test_a_dead_storage_does_nothing_any_more(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    storage = FaultyStorage(fail_at=2)
    file = storage.create(path)
    with pytest.raises(Crash):
        file.write(b"abc")
    for attempt in (
        storage.open_read,
        storage.stat,
        storage.list,
        storage.real,
        storage.remove,
        storage.create,
    ):
        with pytest.raises(Crash):
            attempt(path)
    with pytest.raises(Crash):
        file.fsync()
    assert (tmp_path / "x").read_bytes() == b""


def test_a_short_write_leaves_half_of_the_bytes(tmp_path: Path) -> None:
    file = FaultyStorage(fail_at=2, fault="short write then crash").create(str(tmp_path / "x"))
    with pytest.raises(Crash):
        file.write(b"abcdef")
    assert (tmp_path / "x").read_bytes() == b"abc"


def test_reads_can_fail_and_can_be_short(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abcdefg")
    storage = FaultyStorage(fail_read_at=3, read_at_most_bytes=2)
    with storage.open_read(str(path)) as file:
        buffer = bytearray(7)
        assert file.size_bytes == 7
        assert (file.readinto(buffer), bytes(buffer[:2])) == (2, b"ab")
        assert (file.readinto(buffer), bytes(buffer[:2])) == (2, b"cd")
        with pytest.raises(DatasetError) as caught:
            file.readinto(buffer)
        assert (caught.value.code, caught.value.location.path) == ("X503", str(path))
        assert caught.value.found == os.strerror(errno.EIO)
        assert file.seek(6) == 6
        assert (file.readinto(buffer), bytes(buffer[:1])) == (1, b"g")
    assert storage.reads == 4
    assert storage.operations == []
