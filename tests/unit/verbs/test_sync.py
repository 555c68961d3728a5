"""`rk.sync`: the bytes are those of a fresh conversion, and only changed files are read again."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tifffile
from media_files import put_audio, put_video
from PIL import Image
from sample_conversions import disable_fsync, read_tree

import rekord as rk
from rekord.conversion import driver, reuse
from rekord.errors import RekordError
from rekord.sources.csv import CsvSource
from rekord.verbs.sync import SyncResult, sync_dataset

sync_module = import_module("rekord.verbs.sync")

Options = dict[str, Any]


def make_csv(root: Path) -> None:
    for number in range(5):
        lines = [f"{i},{i / 2},t{i % 7}" for i in range(40 * number + 10)]
        (root / f"{number}.csv").write_text("\n".join(["a,b,c", *lines]) + "\n")


def change_csv(root: Path) -> None:
    with (root / "2.csv").open("a") as file:
        file.write("777,1.5,t1\n")
    (root / "1.csv").unlink()
    (root / "10.csv").write_text("a,b,c\n1,2.5,t2\n")


def draw(path: Path, seed: int, height: int = 20) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (height, 24, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def make_images(root: Path) -> None:
    for i in range(16):
        draw(root / ["cat", "dog"][i % 2] / f"{i}.png", i, 20 + 40 * (i % 3))  # some are too large to be spilled


def change_images(root: Path) -> None:
    (root / "cat" / "4.png").unlink()
    draw(root / "cat" / "6.png", 100)
    draw(root / "dog" / "99.png", 101)


def make_parquet(root: Path) -> None:
    for number in range(3):
        pq.write_table(pa.table({"x": np.arange(50) + number, "s": ["a", "b"] * 25}), root / f"{number}.parquet")


def change_parquet(root: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2], "s": ["c", "a"]}), root / "1.parquet")


def make_audio(root: Path) -> None:
    for i, name in enumerate(("1.wav", "2.flac", "3.ogg", "4.wav", "5.wav")):
        put_audio(root / ("cat", "dog")[i % 2] / name, 400 + i)


def change_audio(root: Path) -> None:
    (root / "dog" / "2.flac").unlink()
    put_audio(root / "cat" / "1.wav", 800)
    put_audio(root / "cat" / "6.wav", 500)


def make_video(root: Path) -> None:
    for i in range(4):
        put_video(root / ("run", "walk")[i % 2] / f"{i}.mp4", 3 + i)


def change_video(root: Path) -> None:
    (root / "run" / "0.mp4").unlink()
    put_video(root / "walk" / "3.mp4", 9)
    put_video(root / "walk" / "5.mp4", 5)


def make_arrays(root: Path) -> None:
    for i in range(6):
        path = root / ("a", "b")[i % 2] / f"{i}.npy"
        path.parent.mkdir(exist_ok=True)
        np.save(path, np.full((4, 5), i, np.float32))


def change_arrays(root: Path) -> None:
    (root / "a" / "2.npy").unlink()
    np.save(root / "b" / "1.npy", np.full((4, 5), 91, np.float32))
    np.save(root / "b" / "90.npy", np.full((4, 5), 90, np.float32))


def make_tiffs(root: Path) -> None:
    for i in range(5):
        tifffile.imwrite(root / f"{i}.tif", np.full((2 + i % 2, 6, 7), i, np.uint16), photometric="minisblack")


def change_tiffs(root: Path) -> None:
    (root / "0.tif").unlink()
    tifffile.imwrite(root / "3.tif", np.full((2, 6, 7), 33, np.uint16), photometric="minisblack")


SOURCES: dict[str, tuple[Callable[[Path], None], Callable[[Path], None]]] = {
    "csv": (make_csv, change_csv),
    "images": (make_images, change_images),
    "parquet": (make_parquet, change_parquet),
    "audio": (make_audio, change_audio),
    "video": (make_video, change_video),
    "arrays": (make_arrays, change_arrays),
}
CASES: list[tuple[str, Options]] = [
    ("csv", {}),
    ("csv", {"shuffle": True, "split": {"train": 0.8, "val": 0.2}, "workers": 2}),
    ("csv", {"split": {"train": 0.8, "val": 0.2}, "stratify": "c", "shards": 3}),
    (
        "csv",
        {"split": {"train": 0.8, "val": 0.2}, "stratify": "c", "key": "a", "shuffle": True, "compression": "gzip"},
    ),
    ("csv", {"split": {"train": 0.5, "val": 0.5}, "split_by": "c", "index": ["c", "a"], "shuffle": True, "seed": 3}),
    ("csv", {"drop": ["b"], "label": "c", "shard_size": 1000}),
    ("csv", {"on_bad_row": "reject", "columns": {"b": rk.Float32(range=(0, 60))}, "max_rejects": 1000}),
    ("images", {"shuffle": True, "split": {"train": 0.6, "val": 0.4}, "stratify": "label"}),
    ("images", {"transforms": rk.transforms.resize(8, 8), "shards": 2}),
    ("parquet", {"split": {"train": 0.6, "val": 0.4}, "workers": 2}),
    ("audio", {"shuffle": True, "split": {"train": 0.6, "val": 0.4}}),
    ("video", {}),
    ("arrays", {"split": {"train": 0.6, "val": 0.4}, "shards": 2}),
]


def sync(root: Path, out: Path, to: Path | None = None, **given: Any) -> SyncResult:
    workers = given.pop("workers", 1)
    return sync_dataset(root, out, to, given, workers=workers, progress=False)


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_the_bytes_are_those_of_a_fresh_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, options: Options
) -> None:
    disable_fsync(monkeypatch)
    make, change = SOURCES[kind]
    root, out = tmp_path / "source", tmp_path / "out" / "data"
    root.mkdir()
    make(root)
    rk.write(root, out, progress=False, **{"workers": 1, **options})
    change(root)
    done = sync(root, out, workers=options.get("workers", 1))
    rk.write(root, tmp_path / "fresh" / "data", progress=False, **{**options, "workers": 1})
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "fresh")
    assert done.everything is None
    assert done.reused.copied
    assert 0 < done.reused.records < sum(part.records for part in done.manifest.splits.values())
    assert sync(root, out).nothing_to_do


@pytest.mark.parametrize(
    ("make", "change", "read", "converted"),
    [
        (make_video, change_video, partial(rk.sources.video_folder, clips=2), 2),
        (make_tiffs, change_tiffs, partial(rk.sources.tiff, pages=True), 1),
    ],
)
def test_all_rows_of_a_changed_file_are_read_again(
    tmp_path: Path, make: Any, change: Any, read: Any, converted: int
) -> None:
    root, moved = tmp_path / "source", tmp_path / "moved"
    root.mkdir()
    make(root)
    rk.write(read(root), tmp_path / "out" / "data", progress=False, workers=1)
    change(root)
    root.rename(moved)
    done = sync_dataset(read(moved), tmp_path / "out" / "data", None, {}, workers=1, progress=False)
    rk.write(read(moved), tmp_path / "fresh" / "data", progress=False, workers=1)
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "fresh")
    assert done.everything is None
    assert (done.reused.converted, done.reused.copied > 1) == (converted, True)


def test_only_changed_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_csv(tmp_path)
    out = tmp_path / "out"
    rk.write(tmp_path / "*.csv", out, progress=False)
    change_csv(tmp_path)
    read: list[str] = []
    before = CsvSource.read

    def noted(self: CsvSource, part: Any) -> Any:
        read.extend(span.file.path for span in part.content[-1])
        return before(self, part)

    monkeypatch.setattr(CsvSource, "read", noted)
    done = sync(tmp_path / "*.csv", out)
    assert read == ["10.csv", "2.csv"]
    assert (done.reused.copied, done.reused.converted) == (3, 2)


def test_small_parts_and_a_file_in_several_of_them_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "source"
    root.mkdir()
    make_csv(root)
    (root / "3.csv").write_text("a,b,c\n" + "".join(f"{i},{i / 2},t{i % 7}\n" for i in range(9000)))
    monkeypatch.setattr(driver, "_choose_part_bytes", lambda _: 2000)
    monkeypatch.setattr(reuse, "_PART_ROWS", 700)
    options: Options = {"shuffle": True, "split": {"train": 0.8, "val": 0.2}, "progress": False, "workers": 1}
    rk.write(root, tmp_path / "out" / "data", **options)
    change_csv(root)
    sync(root, tmp_path / "out" / "data")
    rk.write(root, tmp_path / "fresh" / "data", **options)
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "fresh")


def test_files_with_bad_rows_are_read_again(tmp_path: Path) -> None:
    root, out = tmp_path / "source", tmp_path / "out"
    root.mkdir()
    make_csv(root)
    (root / "3.csv").write_text("a,b,c\n1,x,t1\n2,2.5,t2\n")
    options: Options = {"columns": {"b": rk.Float32()}, "on_bad_row": "reject", "max_rejects": 5, "progress": False}
    rk.write(root, out, **options)
    change_csv(root)
    done = sync(root, out)
    assert done.reused.copied == 2
    listed = [json.loads(line) for line in (out / ".rekord" / "rejects.jsonl").read_text().splitlines()]
    assert [one["origin"]["line"] for one in listed] == [2]


def test_a_new_class_converts_everything_and_says_so(tmp_path: Path) -> None:
    root, out = tmp_path / "source", tmp_path / "out"
    make_images(root)
    rk.write(root, out, progress=False)
    draw(root / "cow" / "1.png", 7)
    done = sync(root, out)
    assert done.everything is not None
    assert "schema" in done.everything
    rk.write(root, tmp_path / "fresh", progress=False)
    assert read_tree(out) == read_tree(tmp_path / "fresh")


def test_it_can_write_elsewhere(tmp_path: Path) -> None:
    make_csv(tmp_path)
    rk.write(tmp_path / "*.csv", tmp_path / "out", progress=False)
    old = read_tree(tmp_path / "out")
    change_csv(tmp_path)
    new = rk.sync(tmp_path / "*.csv", tmp_path / "out", tmp_path / "new", progress=False)
    assert new.records == sum(len(path.read_text().splitlines()) - 1 for path in tmp_path.glob("*.csv"))
    assert read_tree(tmp_path / "out") == old


def test_a_second_sync_is_refused_while_one_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, out = tmp_path / "source", tmp_path / "out" / "data"
    root.mkdir()
    make_csv(root)
    rk.write(root, out, progress=False)
    change_csv(root)
    arguments = ["sync", str(root), str(out)]
    command = f"from rekord.cli.main import run_command_line as run; raise SystemExit(run({arguments!r}))"
    seen: list[tuple[int, str]] = []
    before = sync_module.run_conversion

    def run_both(*given: Any, **options: Any) -> Any:
        other = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
        seen.append((other.returncode, other.stderr.splitlines()[0]))
        return before(*given, **options)

    monkeypatch.setattr(sync_module, "run_conversion", run_both)
    sync(root, out)
    assert seen == [(3, "DatasetError X512: another process is writing here")]
    rk.write(root, tmp_path / "fresh" / "data", progress=False)
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "fresh")


def test_files_with_other_names_and_times_give_the_bytes_of_a_fresh_conversion(tmp_path: Path) -> None:
    root, out = tmp_path / "source", tmp_path / "out" / "data"
    root.mkdir()
    make_csv(root)
    options: Options = {"shuffle": True, "split": {"train": 0.6, "val": 0.4}, "shards": 2}
    rk.write(root, out, progress=False, **options)
    os.utime(root / "0.csv")
    (root / "1.csv").rename(root / "z.csv")
    (root / "below").mkdir()
    (root / "2.csv").rename(root / "below" / "2.csv")
    shutil.copy(root / "3.csv", root / "copy.csv")
    done = sync(root, out)
    assert done.everything is None
    rk.write(root, tmp_path / "fresh" / "data", progress=False, **options)
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "fresh")


def keep_even(row: Any) -> Any:
    return row if row["a"] % 2 == 0 else None


def test_a_function_has_to_be_given_again_and_its_files_are_read_again(tmp_path: Path) -> None:
    make_csv(tmp_path)
    source = tmp_path / "*.csv"
    rk.write(source, tmp_path / "out", map=keep_even, progress=False)
    change_csv(tmp_path)
    with pytest.raises(RekordError) as caught:
        sync(source, tmp_path / "out")
    assert caught.value.code == "X559"
    assert "`map`" in str(caught.value)
    done = sync(source, tmp_path / "out", map=keep_even)
    rk.write(source, tmp_path / "fresh", map=keep_even, progress=False)
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "fresh")
    assert done.reused.copied == 0  # rows that it left out are not in the dataset


def test_foreign_files_in_the_dataset_are_not_removed(tmp_path: Path) -> None:
    make_csv(tmp_path)
    rk.write(tmp_path / "*.csv", tmp_path / "out", progress=False)
    change_csv(tmp_path)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(RekordError) as caught:
        sync(tmp_path / "*.csv", tmp_path / "out")
    assert (caught.value.code, caught.value.location.path) == ("U618", str(tmp_path / "out" / "notes.txt"))


@pytest.mark.parametrize("damage", ["origins", "source.json", "no origins"])
def test_without_intact_origins_everything_is_converted(tmp_path: Path, damage: str) -> None:
    make_csv(tmp_path)
    out = tmp_path / "out"
    rk.write(tmp_path / "*.csv", out, progress=False)
    change_csv(tmp_path)
    if damage == "no origins":
        shutil.rmtree(out / ".rekord" / "origins")
    else:
        path = next((out / ".rekord").rglob(f"*{damage}"), None) if damage == "source.json" else None
        path = path or next((out / ".rekord" / "origins").iterdir())
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert sync(tmp_path / "*.csv", out).reused.copied == 0
    rk.write(tmp_path / "*.csv", tmp_path / "fresh", progress=False)
    assert read_tree(out) == read_tree(tmp_path / "fresh")


def test_only_a_dataset_of_write_with_its_options_can_be_synced(tmp_path: Path) -> None:
    make_csv(tmp_path)
    source = tmp_path / "*.csv"
    rk.write(source, tmp_path / "out", progress=False)
    rk.rewrite(tmp_path / "out", tmp_path / "derived", shards=2, progress=False)
    with pytest.raises(RekordError) as caught:
        sync(source, tmp_path / "derived")
    assert (caught.value.code, caught.value.location.path) == ("U651", str(tmp_path / "derived"))
    recorded = tmp_path / "out" / ".rekord" / "write.json"
    for content in (
        b"{",
        b'{"options": {"map": 1}}',
        b'{"options": {"zzz": 1}, "missing": [], "overrides": {}}',
        None,
    ):
        if content is None:
            recorded.unlink()
        else:
            recorded.write_bytes(content)
        with pytest.raises(RekordError) as caught:
            sync(source, tmp_path / "out")
        assert caught.value.code == "X559"
    with pytest.raises(RekordError) as caught:
        sync(source, tmp_path / "nothing")
    assert caught.value.code == "X501"


def test_what_is_recorded_has_no_absolute_paths(tmp_path: Path) -> None:
    make_csv(tmp_path)
    rk.write(tmp_path / "*.csv", tmp_path / "out", progress=False, shuffle=True)
    for path in (tmp_path / "out" / ".rekord").rglob("*"):
        if path.is_file():
            assert os.fsencode(tmp_path.name) not in path.read_bytes()
