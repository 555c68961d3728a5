"""`rk.write`: the same bytes whatever the workers, and what it does where something is already."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from faulty_storage import Crash, FaultyStorage
from pages import example
from sample_conversions import (
    NumberedFilesSource,
    disable_fsync,
    execute_conversion,
    find_leftovers,
    numbered_lines,
    read_tree,
    use_small_parts,
)

import rekord as rk
from rekord.conversion import driver
from rekord.errors import RekordError
from rekord.schema import Int64, Label, Schema, Text
from rekord.storage.transaction import Transaction

RATIOS = {"train": 0.7, "val": 0.3}
SCHEMA = Schema({"line": Int64(), "label": Label(4), "text": Text()})
SPLITS: dict[str, dict[str, Any]] = {
    "one split": {},
    "ratios": {"split": RATIOS},
    "stratify": {"split": RATIOS, "stratify": "label"},
    "split_by": {"split": RATIOS, "split_by": "label"},
    "source": {"split": "source"},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A source of five files in two folders, of very different sizes."""
    return _source(tmp_path / "source", (70, 3, 40, 30, 1))


def _source(folder: Path, sizes: tuple[int, ...]) -> Path:
    """Five files in two folders, of so many rows."""
    for i, (name, rows) in enumerate(
        zip(("train/a", "train/b", "train/sub/c", "val/d", "val/e"), sizes, strict=True)
    ):
        path = folder / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(numbered_lines(rows, start=1000 * i))
        os.utime(path, ns=(i, i))
    return folder


def refused(call: Any) -> RekordError:
    with pytest.raises(RekordError) as caught:
        call()
    return caught.value


# The same bytes.


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize("split", SPLITS)
def test_any_number_of_workers_gives_the_same_bytes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str, shuffle: bool
) -> None:
    disable_fsync(monkeypatch)
    source = NumberedFilesSource(str(root), folders=split == "source")
    options = {"shuffle": shuffle, "shard_size": 1500, "index": ["text"], **SPLITS[split]}
    whole = tmp_path / "whole"
    execute_conversion(source, whole, options)
    use_small_parts(monkeypatch, part_bytes=400, run_bytes=900)
    assert len(source.parts(400)) > 7
    trees = {}
    for workers in (1, 2, 3, 7):
        out = tmp_path / str(workers)
        execute_conversion(source, out, {**options, "workers": workers})
        trees[workers] = read_tree(out)
        assert find_leftovers(out) == []
    assert sum(name.endswith(".tfrecord") for name in trees[1]) >= 6
    # And the parts of the usual size, which hold everything here, give them too.
    assert all(trees[workers] == read_tree(whole) for workers in trees)


@pytest.mark.parametrize("part_bytes", [1, 333, 5000])
@pytest.mark.parametrize("run_bytes", [1, 700])
@pytest.mark.slow
def test_any_size_of_parts_and_runs_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int, run_bytes: int
) -> None:
    disable_fsync(monkeypatch)
    # Few rows: at a byte each, every one is a part and a run of its own.
    source = NumberedFilesSource(str(_source(tmp_path / "source", (40, 3, 12, 9, 1))))
    for name, options in SPLITS.items():
        if name == "source":
            continue
        more = {"shuffle": True, "shards": 3, **options}
        with monkeypatch.context() as small:
            use_small_parts(small, part_bytes=part_bytes, run_bytes=run_bytes, piece_bytes=run_bytes)
            execute_conversion(source, tmp_path / "small" / name, more)
        execute_conversion(source, tmp_path / "usual" / name, more)
    assert read_tree(tmp_path / "small") == read_tree(tmp_path / "usual")


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("split", ["one split", "ratios", "split_by", "stratify", "source"])
def test_rows_and_columns_of_the_same_data_give_the_same_bytes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str, shuffle: bool
) -> None:
    disable_fsync(monkeypatch)
    use_small_parts(monkeypatch, part_bytes=600, run_bytes=500)
    options = {"shuffle": shuffle, "shards": 2, **SPLITS[split]}
    for columns in (False, True):
        source = NumberedFilesSource(str(root), columns=columns, folders=split == "source")
        execute_conversion(source, tmp_path / str(columns) / "data", options)
    assert read_tree(tmp_path / "True") == read_tree(tmp_path / "False")


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_shards_are_the_same_bytes_too_and_hold_the_same_records(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    source = NumberedFilesSource(str(root))
    options = {"shuffle": True, "shards": 2}
    execute_conversion(source, tmp_path / "plain", options)
    execute_conversion(source, tmp_path / "one" / "data", {**options, "compression": compression})
    use_small_parts(monkeypatch)
    execute_conversion(source, tmp_path / "two" / "data", {**options, "compression": compression, "workers": 2})
    assert read_tree(tmp_path / "one") == read_tree(tmp_path / "two")
    plain = [list(rk.records(path)) for path in sorted((tmp_path / "plain").glob("*.tfrecord"))]
    packed = [list(rk.records(path)) for path in sorted((tmp_path / "one" / "data").glob("*.tfrecord.*"))]
    assert packed == plain


def test_every_row_is_there_once_and_in_the_order_of_the_files(root: Path, tmp_path: Path) -> None:
    dataset = rk.write(NumberedFilesSource(str(root)), tmp_path / "data", shards=3, progress=False)
    numbers = [int(text.split()[1]) for text in dataset.to_arrow()["text"].to_pylist()]
    assert numbers == [1000 * i + j for i, rows in enumerate([70, 3, 40, 30, 1]) for j in range(rows)]
    shuffled = rk.write(NumberedFilesSource(str(root)), tmp_path / "mixed", shuffle=True, progress=False)
    mixed = [int(text.split()[1]) for text in shuffled.to_arrow()["text"].to_pylist()]
    assert sorted(mixed) == numbers
    assert mixed != numbers
    other = rk.write(NumberedFilesSource(str(root)), tmp_path / "other", shuffle=True, seed=1, progress=False)
    assert [int(text.split()[1]) for text in other.to_arrow()["text"].to_pylist()] not in (mixed, numbers)


def test_a_source_that_moved_gives_the_same_bytes(root: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "deep"
    shutil.copytree(root, moved)  # with its times
    for number, place in enumerate((root, moved)):
        rk.write(NumberedFilesSource(str(place)), tmp_path / str(number) / "data", progress=False)
    assert read_tree(tmp_path / "0") == read_tree(tmp_path / "1")
    manifest = (tmp_path / "0" / "data" / "rekord.json").read_text()
    assert str(tmp_path) not in manifest
    assert str(root) not in manifest


@pytest.mark.concurrency
def test_rows_of_a_list_a_generator_columns_and_a_table_are_the_same_records(tmp_path: Path) -> None:
    rows = [{"line": i, "label": i % 4, "text": f"row {i}"} for i in range(50)]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    forms = {
        "list": rows,
        "generator": (row for row in rows),
        "columns": columns,
        "table": pa.Table.from_pylist(rows),
    }
    shards = {}
    for name, form in forms.items():
        out = tmp_path / name
        rk.write(form, out, schema=SCHEMA, shuffle=True, shards=2, workers=2, progress=False)
        shards[name] = {file: data for file, data in read_tree(out).items() if file.endswith(".tfrecord")}
    assert len(shards["list"]) == 2
    assert all(shards[name] == shards["list"] for name in forms)


@pytest.mark.concurrency
def test_what_cannot_be_sent_to_other_processes_is_said(root: Path, tmp_path: Path) -> None:
    lock = threading.Lock()
    failure = refused(
        lambda: rk.write(
            NumberedFilesSource(str(root)),
            tmp_path / "data",
            map=lambda row: {**row, "text": str(lock.locked())},
            workers=2,
            progress=False,
        )
    )
    assert failure.code == "U605"
    assert failure.do is not None
    assert failure.do.startswith("workers=1")
    assert not (tmp_path / "data").exists()


# What is there already.


def test_the_same_again_has_nothing_to_do_and_touches_nothing(root: Path, tmp_path: Path) -> None:
    for source in (NumberedFilesSource(str(root)), [{"a": 1}, {"a": 2}]):
        out = tmp_path / type(source).__name__
        execute_conversion(source, out, {"shuffle": True})
        before = {path: os.stat(path).st_mtime_ns for path in out.rglob("*")}
        outcome = execute_conversion(source, out, {"shuffle": True, "workers": 2})
        assert outcome.nothing_to_do
        assert {path: os.stat(path).st_mtime_ns for path in out.rglob("*")} == before
        assert find_leftovers(out) == []


def interrupted(root: Path, out: Path, options: dict[str, Any]) -> None:
    """A conversion that died when its first part was finished."""
    storage = FaultyStorage()
    execute_conversion(NumberedFilesSource(str(root)), out.parent / "counted", options, storage)
    shutil.rmtree(out.parent / "counted")
    steps = [i for i, step in enumerate(storage.operations, 1) if step.path.endswith("00000.done")]
    with pytest.raises(Crash):
        execute_conversion(NumberedFilesSource(str(root)), out, options, FaultyStorage(fail_at=steps[0] + 1))


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "an option": ({"seed": 3}, "`seed`"),
    "a schema": ({"schema": Schema({"line": Int64(), "label": Int64(), "text": Text()})}, "the schema"),
    "a split": ({"split": RATIOS}, "`split`"),
    "a function": ({"map": lambda row: row}, "`map`"),
    "a file": ({}, "the files of the source"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_plan_does_not_go_on_with_an_unfinished_one(root: Path, tmp_path: Path, change: str) -> None:
    options, told = CHANGES[change]
    out = tmp_path / "out" / "data"
    interrupted(root, out, {"shuffle": True})
    if change == "a file":
        (root / "val" / "e.txt").write_text("1 another text\n")
    before = read_tree(out.parent)
    failure = refused(lambda: execute_conversion(NumberedFilesSource(str(root)), out, {"shuffle": True, **options}))
    assert (failure.code, failure.what, failure.location.path) == (
        "U609",
        "unfinished conversion had a different plan",
        str(out),
    )
    assert told in str(failure.found)
    assert read_tree(out.parent) == before
    execute_conversion(NumberedFilesSource(str(root)), out, {"shuffle": True, **options, "fresh": True})
    assert find_leftovers(out) == []
    execute_conversion(NumberedFilesSource(str(root)), tmp_path / "again" / "data", {"shuffle": True, **options})
    assert read_tree(out) == read_tree(tmp_path / "again" / "data")


@pytest.mark.parametrize("change", CHANGES)
def test_another_plan_does_not_replace_a_dataset(root: Path, tmp_path: Path, change: str) -> None:
    options, told = CHANGES[change]
    out = tmp_path / "data"
    execute_conversion(NumberedFilesSource(str(root)), out, {"shuffle": True})
    if change == "a file":
        (root / "val" / "e.txt").write_text("1 another text\n")
    before = read_tree(out)
    failure = refused(lambda: execute_conversion(NumberedFilesSource(str(root)), out, {"shuffle": True, **options}))
    assert (failure.code, failure.what, failure.location.path) == ("U618", "output already exists", str(out))
    assert told in str(failure.found)
    assert str(failure.found).endswith(" differs") == (change not in ("a file", "a schema"))
    assert read_tree(out) == before
    assert find_leftovers(out) == []


def test_other_rows_of_a_list_do_not_replace_a_dataset(tmp_path: Path) -> None:
    out = tmp_path / "data"
    execute_conversion([{"a": 1}, {"a": 2}], out, {})
    failure = refused(lambda: execute_conversion([{"a": 1}, {"a": 3}], out, {}))
    assert (failure.code, failure.what, failure.location.path) == ("U618", "output already exists", str(out))
    assert failure.found == "a dataset with the same options from different rows"


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("there", ["a file", "a folder"])
def test_what_is_not_ours_is_left_alone(tmp_path: Path, there: str, fresh: bool) -> None:
    out = tmp_path / "data"
    if there == "a file":
        out.write_text("precious")
    else:
        out.mkdir()
        (out / "precious.txt").write_text("precious")
    before = read_tree(tmp_path)
    failure = refused(lambda: execute_conversion([{"a": 1}], out, {"fresh": fresh}))
    assert (failure.code, failure.what, failure.location.path) == ("U618", "output already exists", str(out))
    assert str(failure.found).startswith(there)
    assert read_tree(tmp_path) == before


def test_an_empty_folder_and_missing_parents_are_fine(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "new" / "deep" / "data"):
        dataset = rk.write([{"a": 1}], out, progress=False)
        assert dataset.to_arrow().to_pylist() == [{"a": 1}]


def test_a_link_stays_a_link_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "disk" / "real").mkdir(parents=True)
    (tmp_path / "link").symlink_to("disk/real")
    (tmp_path / "dangling").symlink_to("disk/new")
    for name, target in (("link", "real"), ("dangling", "new")):
        rk.write([{"a": 1}], tmp_path / name, progress=False)
        assert rk.write([{"a": 2}], tmp_path / name, fresh=True, progress=False).to_arrow().to_pylist() == [{"a": 2}]
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "disk" / target / "rekord.json").is_file()
    assert sorted(os.listdir(tmp_path)) == ["dangling", "disk", "link"]
    assert sorted(os.listdir(tmp_path / "disk")) == ["new", "real"]


def test_a_relative_place_is_below_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rk.write([{"a": 1}], "data/", progress=False)
    assert sorted(os.listdir(tmp_path)) == ["data"]


def test_a_serial_source_that_changed_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_parts(monkeypatch)
    rows = [{"a": i, "text": "x" * i} for i in range(40)]
    storage = FaultyStorage()
    execute_conversion(rows, tmp_path / "whole", {}, storage)
    finished = [i for i, step in enumerate(storage.operations, 1) if step.path.endswith("00001.done")]
    out = tmp_path / "data"
    with pytest.raises(Crash):
        execute_conversion(rows, out, {}, FaultyStorage(fail_at=finished[0] + 1))
    changed = [{"a": 1 if i == 3 else i, "text": "x" * i} for i in range(40)]
    failure = refused(lambda: execute_conversion(changed, out, {}))
    assert failure.code == "X513"
    assert str(failure.found).startswith("different rows in part 1, which has ")
    assert not out.exists()
    execute_conversion(rows, out, {})
    assert read_tree(out) == read_tree(tmp_path / "whole")


def test_a_second_writer_is_refused_and_a_lock_of_the_dead_is_no_obstacle(tmp_path: Path) -> None:
    out = tmp_path / "data"
    with Transaction(out).lock():
        failure = refused(lambda: execute_conversion([{"a": 1}], out, {}))
        assert (failure.code, failure.location.path) == ("X512", str(out))
        assert failure.found == f"process {os.getpid()} is writing to it"
        assert not out.exists()
    (tmp_path / ".data.rekord.lock").write_text("12345")
    execute_conversion([{"a": 1}], out, {})
    assert sorted(os.listdir(tmp_path)) == ["data"]


def test_an_interrupt_keeps_what_is_finished(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_parts(monkeypatch, part_bytes=600)
    execute_conversion(NumberedFilesSource(str(root)), tmp_path / "whole" / "data", {"shuffle": True})
    real, done = driver.write_shard, []

    def interrupting(*arguments: Any) -> Any:
        if done:
            raise KeyboardInterrupt
        done.append(real(*arguments))
        return done[0]

    out = tmp_path / "data"
    options = {"shuffle": True, "shards": 3}
    with monkeypatch.context() as patch:
        patch.setattr(driver, "write_shard", interrupting)
        with pytest.raises(KeyboardInterrupt):
            execute_conversion(NumberedFilesSource(str(root)), out, options)
    assert not out.exists()
    assert len(find_leftovers(out)) == 1
    outcome = execute_conversion(NumberedFilesSource(str(root)), out, options)
    assert outcome.resumed_shards == 1
    assert find_leftovers(out) == []


def test_a_limit_asks_for_no_row_beyond_it(tmp_path: Path) -> None:
    def rows() -> Any:
        yield from ({"a": i} for i in range(3))
        raise AssertionError("asked for a fourth row")

    dataset = rk.write(rows(), tmp_path / "out", schema=Schema({"a": Int64()}), limit=3, workers=1, progress=False)
    assert dataset["train"].to_arrow()["a"].to_pylist() == [0, 1, 2]


# Room.


@pytest.mark.parametrize("kind", ["spill", "tfrecord"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_full_disk_is_not_kept_full_of_what_is_half_done(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, shuffle: bool
) -> None:
    use_small_parts(monkeypatch)
    disable_fsync(monkeypatch)
    options = {"shuffle": shuffle, "shards": 2}
    storage = FaultyStorage()
    execute_conversion(NumberedFilesSource(str(root)), tmp_path / "whole" / "data", options, storage)
    writes = [
        i
        for i, step in enumerate(storage.operations, 1)
        if step.name == "write" and f".{kind}." in os.path.basename(step.path)
    ]
    out = tmp_path / "out" / "data"
    full = FaultyStorage(fail_at=writes[-1], fault="enospc")
    failure = refused(lambda: execute_conversion(NumberedFilesSource(str(root)), out, options, full))
    assert failure.code == "X504"
    assert [path for path in out.parent.rglob("*") if path.suffix == ".tmp"] == []
    execute_conversion(NumberedFilesSource(str(root)), out, options)
    assert read_tree(out) == read_tree(tmp_path / "whole" / "data")


@pytest.mark.parametrize("then", ["the same place", "another place", "no place"])
def test_spills_elsewhere_go_when_their_conversion_does(root: Path, tmp_path: Path, then: str) -> None:
    spills, other = tmp_path / "spills", tmp_path / "other"
    out = tmp_path / "out" / "data"
    interrupted(root, out, {"staging": spills})
    assert len(os.listdir(spills)) == 1
    places = {"the same place": spills, "another place": other, "no place": None}
    options = {"staging": places[then], "seed": 3}
    failure = refused(lambda: execute_conversion(NumberedFilesSource(str(root)), out, options))
    assert (failure.code, failure.what, failure.location.path) == (
        "U609",
        "unfinished conversion had a different plan",
        str(out),
    )
    assert "`seed`" in str(failure.found)
    execute_conversion(NumberedFilesSource(str(root)), out, {**options, "fresh": True})
    assert [path for place in (spills, other) if place.exists() for path in place.iterdir()] == []
    assert find_leftovers(out) == []


def test_a_note_of_spills_elsewhere_that_names_a_folder_of_somebody_is_not_believed(
    root: Path, tmp_path: Path
) -> None:
    out, precious = tmp_path / "out" / "data", tmp_path / "precious"
    interrupted(root, out, {})
    precious.mkdir()
    (precious / "file").write_text("mine")
    (out.parent / find_leftovers(out)[0] / "spills").write_text(str(precious))
    execute_conversion(NumberedFilesSource(str(root)), out, {"fresh": True})
    assert (precious / "file").read_text() == "mine"


# The pages of what is refused.


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("X510", ""),
        ("X515", ""),
        ("X516", ""),
        ("U605", "`split` cannot be"),
        ("U618", "output already exists\n  where     data/flowers"),
        ("U609", "unfinished conversion"),
        ("U676", "rows source does not fit"),
        ("E380", ""),
        ("E381", ""),
    ],
)
def test_the_example_of_a_page_is_what_is_said(
    code: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    program, message = example(code, what)
    failure = refused(lambda: exec(program, {"rk": rk, "np": np}))
    assert failure.code == code
    assert failure.message == message
