"""Transforms of images when writing: workers, resume, bad rows, the command line and the forecast."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_storage import Crash, FaultyStorage
from PIL import Image
from sample_conversions import build_conversion, execute_conversion, use_small_parts

import rekord as rk
from rekord import transforms as T
from rekord.cli.main import run_command_line
from rekord.dataset.manifest import read_manifest
from rekord.verbs.forecast import forecast


def noise(height: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Images that are large enough to be left out of the spill when they are stored as they are."""
    for number in range(12):
        path = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(150 + number, 200, number)).save(path, quality=95)
    return tmp_path / "photos"


def shards(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(place.glob("*.tfrecord"))}


STEPS = [T.resize(120, 130, fit="pad"), T.encode("png")]


def test_workers_change_nothing(photos, tmp_path):
    made = []
    for workers in (1, 3):
        place = tmp_path / f"out{workers}"
        rk.write(photos, place, transforms=STEPS, shards=3, workers=workers, shuffle=True, progress=False)
        made.append(shards(place))
    assert made[0] == made[1]
    assert len(made[0]) == 3
    for row in rk.open(tmp_path / "out3")["train"]:
        assert Image.open(io.BytesIO(row["image"])).size == (130, 120)
        assert (row["height"], row["width"], row["format"]) == (120, 130, "PNG")
        assert len(row["image"]) > 16 << 10


def test_a_conversion_with_transforms_is_gone_on_with(photos, tmp_path, monkeypatch):
    use_small_parts(monkeypatch)
    options = {"transforms": STEPS, "shards": 3}
    execute_conversion(photos, tmp_path / "whole", options)
    for step in (25, 60):
        with pytest.raises(Crash):
            execute_conversion(photos, tmp_path / "out", options, FaultyStorage(fail_at=step))
    execute_conversion(photos, tmp_path / "out", options)
    assert shards(tmp_path / "out") == shards(tmp_path / "whole")
    assert execute_conversion(photos, tmp_path / "out", options).nothing_to_do
    with pytest.raises(rk.UsageError):
        execute_conversion(photos, tmp_path / "out", {**options, "transforms": T.resize(9, 9)})


def test_the_manifest_says_what_was_done(photos, tmp_path):
    rk.write(photos, tmp_path / "out", transforms=T.resize(9, 8, fit="crop"), workers=1, progress=False)
    told = read_manifest(str(tmp_path / "out")).options["layout"]["transforms"]
    assert told == [
        {
            "name": "resize",
            "height": 9,
            "width": 8,
            "filter": "bilinear",
            "fit": "crop",
            "pad": [0],
            "columns": None,
            "per_box": None,
        }
    ]


def test_an_image_that_cannot_be_decoded_is_a_bad_row_and_names_its_file(photos, tmp_path):
    # Its header says another mode than its scan has: only decoding shows it.
    bad = photos / "cat" / "02.jpg"
    data = bytearray(bad.read_bytes())
    frame = data.index(b"\xff\xc0")
    data[frame + 11] = 0x55  # sampling factors that no decoder takes
    bad.write_bytes(bytes(data))
    with pytest.raises(rk.DataError) as caught:
        rk.write(photos, tmp_path / "out", transforms=T.resize(9, 9), workers=1, progress=False)
    assert caught.value.code in ("D409", "E332")
    assert (caught.value.location.path, caught.value.location.feature) == (str(bad), "image")
    rejecting = rk.write(
        photos,
        tmp_path / "some",
        transforms=T.resize(9, 9),
        on_bad_row="reject",
        max_rejects=1,
        workers=1,
        progress=False,
    )
    assert len(rejecting["train"]) == 11


def test_an_image_that_is_too_small_is_a_bad_row_and_names_its_file(photos, tmp_path):
    small = photos / "cat" / "02.jpg"
    Image.fromarray(noise(20, 200, 1)).save(small)
    with pytest.raises(rk.EncodeError) as caught:
        rk.write(photos, tmp_path / "out", transforms=T.crop(40, 40), workers=1, progress=False)
    assert (caught.value.code, caught.value.location.path) == ("E384", str(small))


def test_a_large_mask_that_is_made_anew_is_not_looked_for_in_its_file(tmp_path):
    ids = np.random.default_rng(1).integers(0, 21, (200, 200)).astype(np.uint8)
    palette = Image.fromarray(ids)
    palette.putpalette(bytes(range(256)) * 3)
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for number in range(3):
        Image.new("RGB", (200, 200)).save(tmp_path / "images" / f"{number}.jpg")
        palette.save(tmp_path / "masks" / f"{number}.png")
    source = rk.sources.segmentation(tmp_path / "images", tmp_path / "masks")
    made = rk.write(source, tmp_path / "out", layout="deeplab", workers=1, progress=False)
    assert np.array_equal(next(iter(made["train"].batches(3, decode=True)))["mask"], [ids] * 3)


# The command line.


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run_command_line(["write", *arguments, "--json", "--workers", "1"]) == 0
    return json.loads(capsys.readouterr().out)


def test_options_of_images_make_transforms_in_their_order(photos, tmp_path, capsys):
    out = tmp_path / "out"
    command(
        capsys,
        *[str(photos), str(out), "--resize", "60x80", "--resize-filter", "lanczos", "--resize-fit", "pad"],
        *["--crop", "50x40", "--encode", "webp:80"],
    )
    wanted = T.chain(T.resize(60, 80, filter="lanczos", fit="pad"), T.crop(50, 40), T.encode("webp", 80))
    assert rk.open(out).transforms == wanted
    assert rk.open(out).schema["image"].format == "webp"


@pytest.mark.parametrize(
    ("options", "last"),
    [
        (["--normalize"], T.normalize()),
        (["--normalize", "--mean", "imagenet"], T.normalize("imagenet")),
        (["--normalize", "--mean", "0.5,0.4,0.3", "--std", "0.2"], T.normalize((0.5, 0.4, 0.3), 0.2)),
        (["--decode"], T.decode()),
        (["--encode", "jpg"], T.encode("jpeg")),
        (["--encode", "png"], T.encode("png")),
    ],
)
def test_each_form_has_an_option(photos, tmp_path, capsys, options, last):
    command(capsys, str(photos), str(tmp_path / "out"), "--resize", "8X9", *options)
    assert rk.open(tmp_path / "out").transforms == T.chain(T.resize(8, 9), last)


@pytest.mark.parametrize(
    "options",
    [
        ["--resize", "224"],
        ["--resize", "0x9"],
        ["--resize", "axb"],
        ["--resize", "9x9", "--resize-filter", "cubic"],
        ["--resize-fit", "pad"],
        ["--crop", "-1x4"],
        ["--encode", "gif"],
        ["--encode", "png:9"],
        ["--encode", "jpeg:200"],
        ["--mean", "0.5"],
        ["--resize", "9x9", "--normalize", "--std", "a,b"],
        ["--resize", "9x9", "--normalize", "--decode"],
    ],
)
def test_options_that_cannot_be_meant_are_refused(photos, tmp_path, capsys, options):
    assert run_command_line(["write", str(photos), str(tmp_path / "out"), *options]) == 2
    said = capsys.readouterr().err
    assert said.startswith("UsageError U605")
    assert "  do  " in said
    assert not (tmp_path / "out").exists()


def test_normalize_without_a_size_is_refused_before_a_row_is_read(photos, tmp_path, capsys):
    assert run_command_line(["write", str(photos), str(tmp_path / "out"), "--normalize"]) == 3
    assert capsys.readouterr().err.startswith("SchemaError S139")


# The forecast.


def foretold(rows: Any, out: Path, **options: Any) -> Any:
    return forecast(build_conversion(rows, out, options))


def test_the_forecast_is_that_of_transformed_rows(photos, tmp_path):
    expected = foretold(photos, tmp_path / "out", transforms=STEPS)
    written = rk.write(photos, tmp_path / "out", transforms=STEPS, workers=1, progress=False)
    size = sum(Path(path).stat().st_size for path in written["train"].paths)
    assert expected.records == 12
    assert abs(expected.file_bytes - size) < 0.05 * size


def test_the_forecast_warns_of_raw_pixels(photos, tmp_path):
    encoded = foretold(photos, tmp_path / "a", transforms=T.resize(64, 64))
    expected = foretold(photos, tmp_path / "b", transforms=[T.resize(64, 64), T.normalize()])
    assert encoded.advice == ()
    (line,) = expected.advice
    factor = float(re.search(r"\(([\d.]+)×\)", line)[1])
    stored = dict(encoded.shares)["image/encoded"] * encoded.framed_bytes
    assert factor == pytest.approx(64 * 64 * 3 * 4 * 12 / stored, rel=0.1)
    assert line.startswith("`image`: raw float32 pixels take about 590 kB, JPEG would take about ")
    assert line.endswith("store JPEG and apply `normalize` when reading: split.transform(…)")


def test_the_forecast_warns_of_images_that_grow(photos, tmp_path):
    given = sum(path.stat().st_size for path in photos.rglob("*.jpg"))
    (line,) = foretold(photos, tmp_path / "a", transforms=T.resize(400, 400)).advice
    written = rk.write(photos, tmp_path / "a", transforms=T.resize(400, 400), workers=1, progress=False)
    stored = sum(len(row["image"]) for row in written["train"])
    assert float(re.search(r"\(([\d.]+)×\)", line)[1]) == pytest.approx(stored / given, abs=0.06)
    assert "of JPEG to about" in line


def test_the_command_line_shows_the_warning(photos, tmp_path, capsys):
    assert (
        run_command_line(["write", str(photos), str(tmp_path / "out"), "--resize", "64x64", "--decode", "--dry-run"])
        == 0
    )
    assert "`image`: raw uint8 pixels take about 147 kB, JPEG would take about" in capsys.readouterr().out
