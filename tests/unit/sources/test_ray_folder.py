"""A folder as Ray's `write_tfrecords` leaves it: record files that are called `.tar`, read by every verb."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zlib
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.testing import example_bytes, frames

UUID = "2f9c1e0b7d5a4c3e8b6f0a1d2c3b4a59"
NAMES = [f"{UUID}_{block:06}_000000.tar" for block in range(3)]
ROWS = 4


def block(number: int) -> bytes:
    """What Ray writes for a block: Examples in frames with both checksums, and nothing else."""
    rows = range(number * ROWS, (number + 1) * ROWS)
    return frames(example_bytes({"label": [i % 2], "n": [i], "name": [b"row %d" % i]}) for i in rows)


def archive() -> bytes:
    """A real tar."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo("sample.txt")
        member.size = 5
        tar.addfile(member, io.BytesIO(b"hello"))
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "ray"
    data.mkdir()
    for number, name in enumerate(NAMES):
        (data / name).write_bytes(block(number))
    return data


def numbers(path: Path) -> list[int]:
    return sorted(n for batch in rk.open(path).batches(5) for n in batch["n"].tolist())


ALL = list(range(3 * ROWS))


def test_a_folder_of_rays_files_is_a_dataset(folder: Path) -> None:
    ds = rk.open(folder)
    assert list(ds.splits) == ["all"]
    assert [os.path.basename(path) for path in ds["all"].paths] == NAMES
    assert numbers(folder) == ALL
    assert len(list(rk.records(folder))) == 3 * ROWS
    report = rk.check(folder)
    assert (report.ok, report.files, report.records, report.findings) == (True, 3, 3 * ROWS, [])


@pytest.mark.parametrize("packed", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
def test_compressed_files_are_recognised_by_the_record_inside(folder: Path, packed: object) -> None:
    for name in NAMES:
        (folder / name).write_bytes(packed((folder / name).read_bytes()))  # type: ignore[operator]
    assert numbers(folder) == ALL


def test_what_is_no_record_file_is_left_alone(folder: Path) -> None:
    (folder / "samples.tar").write_bytes(archive())
    (folder / "samples.tar.gz").write_bytes(gzip.compress(archive()))
    (folder / "info.json").write_text("{}")
    (folder / "notes.txt").write_bytes(block(0))  # whatever is in it
    (folder / "weights").write_bytes(bytes(1000))
    (folder / "empty.tar").write_bytes(b"")
    (folder / "ckpt.data-00000-of-00001").write_bytes(bytes(100))
    (folder / "ckpt.index").write_bytes(bytes(100))
    assert numbers(folder) == ALL
    assert rk.check(folder).files == 3


def test_a_damaged_file_is_not_recognised_unless_it_is_named(folder: Path) -> None:
    damaged = bytearray(block(1))
    damaged[8] ^= 1
    (folder / NAMES[1]).write_bytes(damaged)
    assert rk.check(folder).files == 2
    assert [one.code for one in rk.check(folder / NAMES[1]).findings] == ["F101"]


def test_only_tars_are_no_record_files(tmp_path: Path) -> None:
    (tmp_path / "train-00000-of-00001.tar").write_bytes(archive())
    with pytest.raises(rk.DatasetError) as caught:
        rk.open(tmp_path)
    assert (caught.value.code, caught.value.location.path) == ("X502", str(tmp_path))
    assert caught.value.found == "1 skipped file: 1 .tar"


def test_names_of_record_files_win_and_check_says_what_was_skipped(folder: Path) -> None:
    (folder / "x.tfrecord").write_bytes(block(7))
    assert numbers(folder) == list(range(28, 32))
    report = rk.check(folder)
    assert (report.ok, report.files) == (True, 1)
    (one,) = report.findings
    assert (one.code, one.severity, one.path) == ("H790", "note", str(folder / NAMES[0]))
    assert one.found == f"{NAMES[0]}, and 2 more"
    (same,) = rk.doctor(folder).diagnoses
    assert (same.code, same.severity) == ("H790", "note")


def test_splits_are_told_by_folder_and_stem_as_ever(folder: Path, tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / "by_folder" / split).mkdir(parents=True)
        (tmp_path / "by_folder" / split / NAMES[0]).write_bytes(block(0))
    assert sorted(rk.open(tmp_path / "by_folder").splits) == ["test", "train"]
    (tmp_path / "by_stem").mkdir()
    for name in ("train.tar", "val.bin", "train-00000-of-00001.tar", "other.bin"):
        (tmp_path / "by_stem" / name).write_bytes(block(0))
    splits = rk.open(tmp_path / "by_stem").splits
    assert {name: len(split.paths) for name, split in splits.items()} == {"train": 2, "val": 1, "all": 1}


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "ray"],
        ["check", "ray/*.tar"],
        ["doctor", "ray"],
        ["show", "ray"],
        ["stats", "ray"],
        ["infer", "ray"],
        ["salvage", "ray", "out"],
        ["rewrite", "ray", "out"],
        ["write", "ray", "out"],
        ["write", "ray/*.tar", "out"],
        ["write", f"ray/{NAMES[0]}", "out"],
        ["split", "ray", "out", "--split", "train=0.5,val=0.5"],
        ["index", "ray"],
        ["index", "ray", "--format", "dali"],
        ["query", "ray", "select count(*) from records"],
        ["export", "ray", "out.parquet"],
        ["diff", "ray", "ray"],
        ["reader", "ray", "--for", "tensorflow"],
    ],
    ids=" ".join,
)
def test_every_verb_takes_the_folder(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    assert run_command_line(arguments) == 0, capsys.readouterr().err
    if arguments[0] in ("salvage", "rewrite", "split"):
        assert numbers_of_all(tmp_path / "out") == ALL
    if arguments[0] == "query":
        assert "12" in capsys.readouterr().out


def numbers_of_all(path: Path) -> list[int]:
    splits = rk.open(path).splits.values()
    return sorted(n for split in splits for batch in split.batches(5) for n in batch["n"].tolist())


def test_json_of_salvage_counts_all_of_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["salvage", str(folder), str(folder.parent / "out"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == 3 * ROWS
