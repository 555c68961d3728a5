"""An export appears whole or not at all, wherever it dies, and takes the place of nothing that it may not."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from faulty_storage import Crash, FaultyStorage

import rekord as rk
from rekord.storage import transaction
from rekord.verbs.export.export import export_dataset
from rekord.verbs.options import ExportOptions

SCHEMA = rk.Schema({"id": rk.Int64(), "image": rk.Bytes()})
PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR\0\0\0\2\0\0\0\2\x08\0\0\0\0" + bytes(300)
KINDS: dict[str, dict[str, object]] = {
    "out.parquet": {},
    "out.jsonl": {},
    "out.csv": {"columns": ["id"]},
    "out.tar": {"shard_size": 2048},
    "deep/er/out.arrow": {},
    "folder": {"format": "parquet"},
    "pictures": {"format": "images"},
}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(transaction, "_MOST_WAITING", 4)  # so that images go to the disk in more than one go
    folder = tmp_path / "in"
    rk.write([{"id": i, "image": PNG} for i in range(9)], folder, schema=SCHEMA, progress=False)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    files = [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]
    return {os.path.relpath(path, folder): Path(path).read_bytes() for path in sorted(files)}


def run(source: Path, place: Path, name: str, storage: FaultyStorage) -> None:
    export_dataset(source, place / name, ExportOptions(**KINDS[name]), storage=storage)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *[(name, "crash") for name in KINDS],
        *[
            (name, fault)
            for name in ("out.jsonl", "folder", "pictures")
            for fault in ("short write then crash", "power loss")
        ],
    ],
)
def test_wherever_an_export_dies_there_is_nothing_or_all_of_it(
    source: Path, tmp_path: Path, name: str, fault: str
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    counted = FaultyStorage()
    run(source, whole, name, counted)
    expected = tree(whole)
    assert expected
    for step in range(1, len(counted.operations) + 1):
        place = tmp_path / f"{step}"
        place.mkdir()
        storage = FaultyStorage(fail_at=step, fault=fault)  # type: ignore[arg-type]
        with pytest.raises(Crash):
            run(source, place, name, storage)
        visible = {path: data for path, data in tree(place).items() if not any(p[0] == "." for p in path.split("/"))}
        if name == "out.tar":
            assert all(data == expected[path] for path, data in visible.items())
        else:
            assert visible in ({}, expected), step
        # The next run finds nothing in its way but what it may take away.
        if not visible:
            run(source, place, name, FaultyStorage())
            assert tree(place) == expected


@pytest.mark.parametrize("name", KINDS)
def test_a_full_disk_leaves_nothing(source: Path, tmp_path: Path, name: str) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    counted = FaultyStorage()
    run(source, whole, name, counted)
    first_rename = next(i for i, one in enumerate(counted.operations, 1) if one.name == "rename")
    for step in range(1, first_rename + 1):
        place = tmp_path / f"{step}"
        place.mkdir()
        with pytest.raises(rk.DatasetError) as caught:
            run(source, place, name, FaultyStorage(fail_at=step, fault="enospc"))
        assert caught.value.code == "X504"
        assert ".rekord-export" not in str(caught.value)
        assert list(place.iterdir()) == []


def test_an_interrupt_leaves_nothing(source: Path, tmp_path: Path) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    place = tmp_path / "place"
    with pytest.raises(KeyboardInterrupt):
        rk.export(source, place / "deep" / "out.parquet", on_records=interrupt)
    assert not place.exists()


def test_a_file_is_replaced_only_when_that_is_asked_for(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    out.write_bytes(b"mine")
    with pytest.raises(rk.UsageError) as caught:
        rk.export(source, out)
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U618",
        "output already exists",
        str(out),
    )
    assert out.read_bytes() == b"mine"
    rk.export(source, out, overwrite=True)
    assert pq.read_table(out).num_rows == 9


def test_a_replaced_file_stays_as_it_was_when_the_export_fails(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    out.write_bytes(b"mine")
    counted = FaultyStorage()
    export_dataset(source, tmp_path / "other.parquet", ExportOptions(), storage=counted)
    for step in range(1, len(counted.operations) - 2):
        with pytest.raises(rk.DatasetError):
            export_dataset(
                source,
                out,
                ExportOptions(overwrite=True),
                storage=FaultyStorage(fail_at=step, fault="enospc"),
            )
        assert out.read_bytes() == b"mine"


def test_a_link_stays_a_link(source: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.parquet").symlink_to(tmp_path / "real" / "data.parquet")
    rk.export(source, tmp_path / "link.parquet")
    assert (tmp_path / "link.parquet").is_symlink()
    assert pq.read_table(tmp_path / "real" / "data.parquet").num_rows == 9


def test_a_folder_is_never_replaced(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_bytes(b"mine")
    for overwrite in (False, True):
        with pytest.raises(rk.UsageError) as caught:
            rk.export(source, out, format="parquet", overwrite=overwrite)
        assert (caught.value.code, caught.value.what, caught.value.location.path) == (
            "U618",
            "output already exists",
            str(out),
        )
    assert (out / "mine").read_bytes() == b"mine"


def test_old_shards_are_not_mixed_with_new_ones(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out-000007.tar").write_bytes(b"mine")
    with pytest.raises(rk.UsageError) as caught:
        rk.export(source, tmp_path / "out.tar", shard_size="1MB", overwrite=True)
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U618",
        "output already exists",
        str(tmp_path / "out-000007.tar"),
    )


def test_the_dataset_itself_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    with rk.Writer(path, SCHEMA) as writer:
        writer.write({"id": 1, "image": b""})
    before = path.read_bytes()
    with pytest.raises(rk.UsageError) as caught:
        rk.export(path, path, overwrite=True)
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U631",
        "export would replace the dataset that it reads",
        str(path),
    )
    with pytest.raises(rk.UsageError) as caught:
        rk.export(path, tmp_path, format="parquet", overwrite=True)
    assert (caught.value.code, caught.value.what) == (
        "U631",
        "export would replace the dataset that it reads",
    )
    assert path.read_bytes() == before


def test_remote_places_that_are_not_object_storage_are_only_read(source: Path) -> None:
    with pytest.raises(rk.DatasetError) as caught:
        rk.export(source, "memory://bucket/out.parquet")
    assert caught.value.code == "X504"


def test_a_killed_run_leaves_a_staging_folder_that_the_next_one_takes_away(source: Path, tmp_path: Path) -> None:
    stale = tmp_path / ".out.parquet.rekord-export"
    stale.mkdir()
    (stale / "out.parquet").write_bytes(b"half")
    rk.export(source, tmp_path / "out.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.parquet"]
