"""One transaction for everything that is published, on any storage that has the few steps it asks for."""

from __future__ import annotations

import ast
import inspect
import os.path
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from rekord.errors import DatasetError, error
from rekord.location import Location
from rekord.storage import transaction
from rekord.storage.local import LOCAL, DirectoryEntry, Readable, Stat, Writable
from rekord.storage.publication import remove_tree
from rekord.storage.replacement import Replacement, SwapRecord
from rekord.storage.transaction import Output, Transaction, publish


class Memory:
    """A storage without an operating system: contents by path, as in a store of objects. A lock is an entry."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.folders = {"/"}

    def open_read(self, path: str) -> Readable:
        return _Reading(path, self.files[path])  # type: ignore[return-value]

    def create(self, path: str) -> Writable:
        assert path not in self.files
        assert os.path.dirname(path) in self.folders
        self.files[path] = b""
        return _Writing(self, path)

    def rename(self, source: str, target: str) -> None:
        assert not [path for path in self.files if path.startswith(target + "/")]
        moved = [path for path in [*self.files, *self.folders] if f"{path}/".startswith(source + "/")]
        assert moved
        for path in moved:
            new = target + path[len(source) :]
            if path in self.files:
                self.files[new] = self.files.pop(path)
            else:
                self.folders.remove(path)
                self.folders.add(new)

    def exchange(self, one: str, other: str) -> bool:
        return False

    def link(self, source: str, target: str) -> bool:
        return False

    def remove(self, path: str) -> None:
        if path not in self.files:
            raise error("X501", location=Location(path=path))
        del self.files[path]

    def make_folder(self, path: str) -> None:
        while path not in self.folders:
            self.folders.add(path)
            path = os.path.dirname(path)

    def remove_folder(self, path: str) -> None:
        assert not self.list(path)
        self.folders.remove(path)

    def sync_folder(self, path: str) -> None:
        assert path in self.folders

    def list(self, folder: str) -> Sequence[DirectoryEntry]:
        below = folder.rstrip("/") + "/"
        known = {path[len(below) :] for path in [*self.files, *self.folders] if path.startswith(below)}
        return [
            DirectoryEntry(name=name, kind="file" if below + name in self.files else "folder", link=False)
            for name in sorted(known)
            if name and "/" not in name
        ]

    def stat(self, path: str) -> Stat:
        if path not in self.files and path not in self.folders:
            raise error("X501", location=Location(path=path))
        size_bytes = len(self.files.get(path, b""))
        kind = "file" if path in self.files else "folder"
        return Stat(kind=kind, size_bytes=size_bytes, mtime_ns=0, identity=(0, hash(path)))  # type: ignore[arg-type]

    def real(self, path: str) -> str:
        return path

    @contextmanager
    def lock(self, path: str) -> Iterator[None]:
        if path in self.files:
            raise error("X512", location=Location(path=path))
        self.files[path] = b"lease"
        try:
            yield
        finally:
            del self.files[path]


class _Reading:
    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self._left = data

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count

    def __enter__(self) -> _Reading:
        return self

    def __exit__(self, *failure: object) -> None:
        pass


class _Writing:
    def __init__(self, storage: Memory, path: str) -> None:
        self.path = path
        self._storage = storage

    def write(self, data: object) -> int:
        self._storage.files[self.path] += bytes(data)  # type: ignore[call-overload]
        return len(bytes(data))  # type: ignore[call-overload]

    def fsync(self) -> None:
        pass

    def close(self) -> None:
        pass

    abort = close


@pytest.fixture
def memory() -> Memory:
    storage = Memory()
    storage.make_folder("/data")
    return storage


def test_the_transaction_asks_the_storage_and_never_the_operating_system() -> None:
    """`os.path` takes names apart; nothing else of `os` is used."""
    tree = ast.parse(inspect.getsource(transaction))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
    }
    paths = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "path"
        and isinstance(node.value.value, ast.Name)
        and node.value.value.id == "os"
    }
    calls = {
        node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert used == {"path", "fspath"}
    assert paths == {"join", "split", "dirname", "basename"}
    assert "open" not in calls


def test_a_file_is_published_on_any_storage(memory: Memory) -> None:
    with publish("/data/x", memory) as file:
        file.write(b"content")
        assert "/data/x" not in memory.files
    assert memory.files == {"/data/x": b"content"}
    with pytest.raises(ZeroDivisionError), publish("/data/x", memory) as file:
        file.write(b"other" * (1 // 0))
    assert memory.files == {"/data/x": b"content"}


def test_small_pieces_are_gathered_and_arrive_before_the_file_does(memory: Memory) -> None:
    with publish("/data/x", memory) as file, Output(file) as output:
        output.write(b"one ")
        output.write(b"two")
        assert [*memory.files.values()] == [b""]
    assert memory.files == {"/data/x": b"one two"}


@pytest.mark.parametrize("as_files", [False, True])
def test_a_folder_appears_at_once_or_not_at_all(memory: Memory, as_files: bool) -> None:
    with Transaction("/data/new", memory).folder("export", as_files=as_files) as staged:
        staged.put("a/one" if not as_files else "one", b"1")
        output = staged.output("two")
        output.write(b"2")
        staged.finish(output)
        assert not [path for path in memory.files if "/data/new" in path]
    below = "/data/new/a/" if not as_files else "/data/"
    assert memory.files == {f"{below}one": b"1", f"{'/data/' if as_files else '/data/new/'}two": b"2"}
    assert (staged.files, staged.n_bytes, staged.name) == (2, 2, "new")
    with pytest.raises(ZeroDivisionError), Transaction("/data/deep/er/x", memory).folder("export") as staged:
        staged.put("one", b"1" * (1 // 0))
    assert "/data/deep" not in memory.folders


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_one_writer_at_a_time_and_the_error_names_the_place(memory: Memory, tmp_path: Path, kind: str) -> None:
    storage, path = (memory, "/data/x") if kind == "memory" else (LOCAL, str(tmp_path / "x"))
    with Transaction(path, storage).lock():
        with (
            pytest.raises(DatasetError) as caught,
            Transaction(path, storage, shown="as given").lock(),
        ):
            raise AssertionError("two at once")
        assert (caught.value.code, caught.value.location.path) == ("X512", "as given")
    with Transaction(path, storage).lock():
        pass


class Done(msgspec.Struct):
    records: int


def test_tasks_that_are_done_are_found_again_and_what_they_made_is_committed(memory: Memory) -> None:
    place = Transaction("/data/new", memory)
    staging = place.staging("0123456789abcdef01")
    staging.prepare(b'{"plan": 1}', "index")
    assert not staging.has_finished_tasks()
    staging.write(f"{staging.out}/shard", b"records")
    staging.write_done(staging.shard_done_path("train", 0), Done(records=7))
    staging.create(f"{staging.out}/half").write(b"ha")  # of a task that was killed
    (found,) = place.stagings()
    assert (found.folder, found.plan()) == (staging.folder, {"plan": 1})
    assert found.has_finished_tasks()
    found.prepare(b'{"plan": 1}', "index")
    assert found.read_done(found.shard_done_path("train", 0), Done) == Done(records=7)
    assert [path for path in memory.files if "half" in path] == []
    place.commit(found, ("manifest", b"{}"))
    found.remove()
    assert memory.files == {"/data/new/shard": b"records", "/data/new/manifest": b"{}"}
    assert memory.folders == {"/", "/data", "/data/new"}  # without the empty one


def test_what_is_replaced_waits_under_a_hidden_name_until_it_is_removed(memory: Memory) -> None:
    place = Transaction("/data/set", memory)
    for content in (b"old", b"new"):
        staging = place.staging("0123456789abcdef01")
        memory.make_folder(staging.out)
        place.commit(staging, ("file", content))
        staging.remove()
    assert memory.files["/data/set/file"] == b"new"
    removed: list[str] = []
    assert place.remove_replaced(lambda folder: removed.append(folder) or folder) == removed[0]  # type: ignore[func-returns-value]
    assert memory.files[f"{removed[0]}/file"] == b"old"
    place.remove_replaced(lambda folder: remove_tree(memory, folder))  # type: ignore[arg-type,func-returns-value]
    assert memory.files == {"/data/set/file": b"new"}


class Dead(BaseException):
    """The process dies."""


@pytest.mark.parametrize("dies_at", [None, *range(1, 5)])
def test_a_replacement_is_finished_or_undone_by_the_next_run(memory: Memory, dies_at: int | None) -> None:
    def replacement() -> Replacement:
        def remove(folder: str) -> None:
            remove_tree(memory, folder)

        def digest(folder: str) -> str | None:
            return memory.files.get(f"{folder}/file", b"").decode() or None

        return Replacement("/data/set", memory, digest=digest, remove=remove)  # type: ignore[arg-type]

    memory.make_folder("/data/set")
    memory.files["/data/set/file"] = b"old"
    place = replacement()
    memory.make_folder(place.data)
    memory.files[f"{place.data}/file"] = b"new"
    rename, renames = memory.rename, 0

    def dying(source: str, target: str) -> None:
        nonlocal renames
        renames += 1
        if renames == dies_at:
            raise Dead
        rename(source, target)

    memory.rename = dying  # type: ignore[method-assign]
    try:
        with place.lock_work():
            place.swap(SwapRecord(old="old", new="new"), lambda: None)
    except Dead:
        pass
    memory.rename = rename  # type: ignore[method-assign]
    with replacement().lock_work() as again:
        swap = again.recover(SwapRecord)
        again.clear()
    is_new = dies_at is None or dies_at == 4
    assert memory.files == {"/data/set/file": b"new" if is_new else b"old"}
    assert (swap is not None) == (dies_at == 4)
    assert [path for path in memory.folders if ".rekord" in path] == []


def test_a_lock_of_a_process_that_died_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".x.rekord.lock").write_text("123")
    with Transaction(tmp_path / "x").lock():
        assert (tmp_path / ".x.rekord.lock").exists()
    assert list(tmp_path.iterdir()) == []
