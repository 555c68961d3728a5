"""Files that pass through a conversion: read again for the shard, and noticed where they are not what they were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sample_conversions import read_tree

import rekord as rk
from rekord.conversion import driver
from rekord.conversion.spill import MIN_DEFERRED_BYTES


def noise(path: Path, seed: int, side: int = 100) -> None:
    """A PNG that is larger than what a spill takes in."""
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    assert path.stat().st_size > MIN_DEFERRED_BYTES


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for i in range(6):
        noise(tmp_path / "photos" / ("cat" if i % 2 else "dog") / f"{i}.png", i)
    return tmp_path / "photos"


def write(photos: Path, out: Path, **options: Any) -> Any:
    return rk.write(rk.sources.image_folder(photos), out, progress=False, workers=1, **options)


def before_the_shards(monkeypatch: pytest.MonkeyPatch, do: Any) -> None:
    """Run `do(staging)` when all rows were read and no shard is written."""
    real = driver._ConversionRun._check_rejects

    def checked(self: Any, done: Any) -> None:
        real(self, done)
        do(self.staging)

    monkeypatch.setattr(driver._ConversionRun, "_check_rejects", checked)


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_bytes_are_those_of_a_run_that_spills_everything(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: bool
) -> None:
    spilled: list[int] = []

    def look(staging: Any) -> None:
        spilled.append(sum(file.stat().st_size for file in Path(staging.spills).glob("*.spill")))

    before_the_shards(monkeypatch, look)
    write(photos, tmp_path / "one" / "data", shuffle=shuffle, shards=2)
    monkeypatch.setattr("rekord.conversion.encode_rows.MIN_DEFERRED_BYTES", 1 << 40)
    write(photos, tmp_path / "two" / "data", shuffle=shuffle, shards=2)
    assert read_tree(tmp_path / "one") == read_tree(tmp_path / "two")
    stored = sum(file.stat().st_size for file in photos.rglob("*.png"))
    assert spilled[0] < MIN_DEFERRED_BYTES  # only what is around the images
    assert spilled[1] > stored


@pytest.mark.parametrize("side", [100, 80], ids=["as long", "shorter"])
def test_a_file_that_changed_between_the_two_readings_ends_the_conversion(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: int
) -> None:
    before_the_shards(monkeypatch, lambda staging: noise(photos / "cat" / "3.png", 99, side))
    with pytest.raises(rk.DatasetError) as caught:
        write(photos, tmp_path / "data")
    assert (caught.value.code, caught.value.location.path) == ("X513", str(photos))
    assert not (tmp_path / "data").exists()


def test_a_file_that_is_gone_at_the_second_reading_is_named(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = photos / "cat" / "3.png"
    before_the_shards(monkeypatch, lambda staging: os.unlink(gone))
    with pytest.raises(rk.RekordError) as caught:
        write(photos, tmp_path / "data")
    assert (caught.value.code, caught.value.location.path) == ("E329", str(gone))
    assert not (tmp_path / "data").exists()


def test_after_a_bad_row_was_mended_the_same_command_works(photos: Path, tmp_path: Path) -> None:
    """Nothing was finished, so there is nothing that another plan could be confused with."""
    whole = (photos / "cat" / "1.png").read_bytes()
    (photos / "cat" / "1.png").write_bytes(whole[:-50])
    with pytest.raises(rk.EncodeError) as caught:
        write(photos, tmp_path / "data")
    assert caught.value.code == "E331"
    (photos / "cat" / "1.png").write_bytes(whole)
    assert write(photos, tmp_path / "data").to_arrow().num_rows == 6
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


@pytest.mark.parametrize(("shuffle", "left"), [(False, 0), (True, 1)])
def test_a_spill_goes_when_the_shards_that_need_it_are_done(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: bool, left: int
) -> None:
    real, spills = driver.write_companions, []

    def written(staging: Any, *rest: Any) -> Any:
        spills.append(len(list(Path(staging.spills).glob("*.spill"))))
        return real(staging, *rest)

    monkeypatch.setattr(driver, "write_companions", written)
    write(photos, tmp_path / "data", shuffle=shuffle, shards=2)
    assert spills == [left]
