"""What `rk.write` expects to write, before it does."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.verbs.forecast import SAMPLE_ROWS, Forecast, check_free_space, forecast, is_complete
from rekord.verbs.options import WriteOptions
from rekord.verbs.write import prepare_conversion, run_conversion


def prepared(rows: Any, out: Path, **options: Any) -> Any:
    return prepare_conversion(rows, out, WriteOptions(**{"workers": 1, **options}))


def expected(rows: Any, out: Path, **options: Any) -> Forecast:
    return forecast(prepared(rows, out, **options))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(7)
    for name in ("cat", "dog"):
        for i in range(10):
            path = tmp_path / "photos" / name / f"{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (4, 4, 3), np.uint8)).resize((64, 64)).save(path)
    return tmp_path / "photos"


def written_bytes(out: Path) -> int:
    return sum(path.stat().st_size for path in out.glob("*.tfrecord*"))


def test_a_forecast_of_all_rows_is_what_is_written(photos: Path, tmp_path: Path) -> None:
    conversion = prepared(photos, tmp_path / "out")
    told = forecast(conversion)
    run_conversion(conversion, progress=False)
    assert (told.records, told.exact, told.shards) == (20, True, {"train": 1})
    assert told.file_bytes == written_bytes(tmp_path / "out")
    assert told.shares[0][0] == "image/encoded"
    assert sum(share for _, share in told.shares) == pytest.approx(1)


def test_a_forecast_from_some_rows_is_near_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,t\n" + "".join([f"{i},{'a' * (i % 50)}\n" for i in range(5000)]))
    conversion = prepared(tmp_path / "a.csv", tmp_path / "out", shard_size="50kB")
    told = forecast(conversion)
    run_conversion(conversion, progress=False)
    assert (told.records, told.sampled_rows) == (5000, SAMPLE_ROWS)
    assert told.file_bytes == pytest.approx(written_bytes(tmp_path / "out"), rel=0.2)
    assert told.shards["train"] == pytest.approx(len(list((tmp_path / "out").glob("train-*"))), abs=2)


def test_compression_is_tried_on_the_sample(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the same line again and again\n" * 3000)
    plain = expected(tmp_path / "a.txt", tmp_path / "out")
    packed = expected(tmp_path / "a.txt", tmp_path / "out", compression="gzip")
    assert packed.framed_bytes == plain.framed_bytes
    assert packed.file_bytes is not None
    assert plain.file_bytes is not None
    assert packed.file_bytes < plain.file_bytes / 3


def test_shards_are_forecast_for_each_split(photos: Path, tmp_path: Path) -> None:
    halves = {"train": 0.5, "val": 0.5}
    told = expected(photos, tmp_path / "out", split=halves, shards=3)
    assert told.shards == {"train": 3, "val": 3}
    assert "6 shards (train 3, val 3)" in next(told.lines())


def test_the_splits_of_the_source_are_only_named(tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / "p" / split / "a").mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "p" / split / "a" / "1.jpg")
    told = expected(tmp_path / "p", tmp_path / "out", split="source")
    assert told.shards == {}
    assert next(told.lines()).endswith("splits of the source: train, val")


def decoded(row: Any) -> dict[str, Any]:
    pixels = np.asarray(Image.open(row["image"]), np.float32) / 255
    return {"image": pixels, "label": 0}


def test_raw_pixels_are_compared_with_the_images_that_they_came_from(photos: Path, tmp_path: Path) -> None:
    schema = rk.Schema({"image": rk.Float32(shape=(64, 64, 3)), "label": rk.Int64()})
    told = expected(photos, tmp_path / "out", schema=schema, map=decoded)
    jpeg_bytes = sum(path.stat().st_size for path in photos.rglob("*.jpg")) / 20
    ratio = 64 * 64 * 3 * 4 / jpeg_bytes
    assert told.advice == (
        f"`image`: raw float32 pixels are {ratio:.1f}× the size of the JPEGs; store the JPEGs instead",
    )
    assert f"  {told.advice[0]}" in list(told.lines())


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_raw_pixels_without_images_are_compared_with_png(tmp_path: Path, dtype: str) -> None:
    pixels = np.zeros((5, 64, 64, 3), dtype)
    (advice,) = expected({"x": pixels, "y": np.arange(5)}, tmp_path / "out").advice
    assert advice.startswith(f"`x`: raw {dtype} pixels are ")
    assert advice.endswith('× the size of PNG; declare rk.Image(format="png")')


def test_numbers_that_are_no_pixels_are_left_in_peace(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).normal(size=(5, 64, 64, 3)).astype("float32")
    assert expected({"x": noise}, tmp_path / "out").advice == ()
    assert expected({"x": np.zeros((5, 8, 8), "float32")}, tmp_path / "out").advice == ()


def test_bad_rows_of_the_sample_are_counted(photos: Path, tmp_path: Path) -> None:
    (photos / "cat" / "3.jpg").write_bytes(b"")
    told = expected(photos, tmp_path / "out")
    assert (told.records, told.exact, told.bad_rows, told.sampled_rows) == (19, False, 1, 20)
    assert "  bad rows: 1 of 20 sampled, first error E330" in list(told.lines())
    for path in photos.rglob("*.jpg"):
        path.write_bytes(b"")
    nothing = expected(photos, tmp_path / "out")
    assert nothing.records is None
    assert next(nothing.lines()).startswith("forecast: unknown number of records")


def test_an_iterator_loses_no_row_to_the_forecast(tmp_path: Path) -> None:
    requested: list[int] = []

    def rows() -> Iterator[dict[str, Any]]:
        for i in range(5):
            requested.append(i)
            yield {"x": i}

    schema = rk.Schema({"x": rk.Int64()})
    conversion = prepared(rows(), tmp_path / "out", schema=schema)
    told = forecast(conversion)
    # The first row is compared with the schema, and kept.
    assert (requested, told.records, told.sampled_rows) == ([0], None, 0)
    run_conversion(conversion, progress=False)
    assert rk.open(tmp_path / "out")["train"].to_arrow()["x"].to_pylist() == list(range(5))


def test_the_schema_alone_can_tell_the_size(tmp_path: Path) -> None:
    rows = [{"x": np.zeros(1000, "float32")} for _ in range(50)]
    conversion = prepared(rows, tmp_path / "out", schema=rk.Schema({"x": rk.Float32(shape=(1000,))}))
    told = forecast(conversion)
    run_conversion(conversion, progress=False)
    assert (told.records, told.sampled_rows) == (50, 0)
    assert told.file_bytes == pytest.approx(written_bytes(tmp_path / "out"), rel=0.01)


def test_the_number_of_records_is_reckoned_from_the_bytes_where_nobody_counted(tmp_path: Path) -> None:
    with rk.Writer(tmp_path / "a.tfrecord", rk.Schema({"x": rk.Int64()})) as writer:
        for _ in range(500):
            writer.write({"x": 1})
    told = expected(tmp_path / "a.tfrecord", tmp_path / "out")
    assert (told.records, told.exact) == (500, False)
    assert next(told.lines()).startswith("forecast: about 500 records · about ")


def test_nothing_is_written_by_a_forecast(photos: Path, tmp_path: Path) -> None:
    before = sorted(os.listdir(tmp_path))
    expected(photos, tmp_path / "new" / "out")
    assert sorted(os.listdir(tmp_path)) == before


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Any:
    def set_free(n_bytes: int) -> None:
        monkeypatch.setattr("rekord.verbs.forecast.get_free_bytes", lambda out: n_bytes)

    return set_free


def test_an_output_that_cannot_fit_is_refused(photos: Path, tmp_path: Path, free: Any) -> None:
    free(1000)
    conversion = prepared(photos, tmp_path / "out")
    with pytest.raises(rk.DatasetError) as caught:
        check_free_space(conversion, forecast(conversion))
    assert (caught.value.code, caught.value.location.path) == ("X519", str(tmp_path / "out"))
    with pytest.raises(rk.DatasetError) as caught:
        rk.write(photos, tmp_path / "out", workers=1)
    assert caught.value.code == "X519"
    assert not (tmp_path / "out").exists()


def test_an_output_that_may_not_fit_is_a_warning(photos: Path, tmp_path: Path, free: Any) -> None:
    conversion = prepared(photos, tmp_path / "out")
    needed = forecast(conversion).needed_bytes
    assert needed is not None
    free(needed - 1)
    told = forecast(conversion)
    check_free_space(conversion, told)
    assert any(line.startswith("  disk space may run out: ") for line in told.lines())
    free(needed)
    assert not any("disk" in line for line in forecast(conversion).lines())


def test_there_is_nothing_to_expect_where_the_dataset_is_complete(photos: Path, tmp_path: Path) -> None:
    conversion = prepared(photos, tmp_path / "out")
    assert not is_complete(conversion)
    run_conversion(conversion, progress=False)
    assert is_complete(conversion)
    assert not is_complete(prepared(photos, tmp_path / "out", shuffle=True))


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("name", ["t.csv.gz", "t.jsonl.gz", "t.txt.gz"])
def test_compressed_files_are_forecast_from_what_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, compression: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"{i},word{i % 13}" for i in range(20_000)]
    if name == "t.csv.gz":
        lines = ["a,b", *lines]
    if name == "t.jsonl.gz":
        lines = [f'{{"a": {i}, "b": "word{i % 13}"}}' for i in range(20_000)]
    Path(name).write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    told = expected(name, "out", compression=compression)
    dataset = rk.write(name, "out", compression=compression, progress=False)
    stored = sum(path.stat().st_size for path in Path("out").glob("train*"))
    assert told.records == dataset.records == 20_000
    assert told.file_bytes is not None
    assert abs(told.file_bytes / stored - 1) < 0.15


def test_lists_are_not_advised_to_be_images(tmp_path: Path) -> None:
    points = np.zeros((4, 500, 3), np.int64)
    assert expected({"points": points}, tmp_path / "out").advice == ()
    schema = rk.Schema({"grid": rk.Float32(shape=(64, 64))})
    assert expected({"grid": np.zeros((4, 64, 64), np.float32)}, tmp_path / "out", schema=schema).advice == ()
