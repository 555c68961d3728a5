"""TIFF and GeoTIFF files as arrays, equal to what tifffile reads."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import imagecodecs  # noqa: F401  (the compressions below need it)
import numpy as np
import pytest
import tifffile

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.sources.base import SourceRow
from rekord.sources.detect import identify_source

RANDOM = np.random.default_rng(7)


def save(path: Path, array: np.ndarray, **options: Any) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    tifffile.imwrite(path, array, **{"photometric": "minisblack", **options})
    return array


def random(dtype: str, *shape: int) -> np.ndarray:
    return (RANDOM.random(shape) * 200).astype(dtype)


def rows(source: Any) -> list[SourceRow]:
    return [row for part in source.parts() for row in source.read(part)]


def only_error(source: Any) -> rk.RekordError:
    (row,) = rows(source)
    assert isinstance(row.values, rk.RekordError)
    return row.values


def first_error(source: Any) -> rk.RekordError | None:
    """The error of the listing or of the only row, if there is one."""
    try:
        (row,) = rows(source)
    except rk.RekordError as failure:
        return failure
    return row.values if isinstance(row.values, rk.RekordError) else None


@pytest.mark.parametrize(
    "dtype", ["uint8", "uint16", "int16", "uint32", "float16", "float32", "float64", "complex64"]
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zlib", "predictor": True, "tile": (16, 32)},
        {"compression": "lzw"},
        {"compression": "zstd", "bigtiff": True, "byteorder": ">"},
        {"planarconfig": "separate", "compression": "lzma"},
    ],
)
def test_an_array_has_the_values_and_dtype_of_the_file(dtype: str, options: dict[str, Any], tmp_path: Path) -> None:
    if dtype in ("complex64", "float16") and options.get("predictor"):
        options = {name: value for name, value in options.items() if name != "predictor"}
    separate = options.get("planarconfig") == "separate"
    planar = {} if separate else {"planarconfig": "contig"}
    array = save(tmp_path / "x.tif", random(dtype, *((5, 33, 47) if separate else (33, 47, 5))), **options, **planar)
    expected = np.moveaxis(array, 0, -1) if separate else array
    source = rk.sources.tiff(tmp_path / "x.tif")
    (row,) = rows(source)
    assert np.array_equal(row.values["image"], expected)  # type: ignore[index]
    assert np.array_equal(tifffile.imread(tmp_path / "x.tif"), array)
    schema = source.facts().schema
    assert schema is not None
    assert schema["image"] == rk.Tensor(dtype, expected.shape)


def test_a_folder_of_classes_and_splits_becomes_labelled_arrays_of_any_size(tmp_path: Path) -> None:
    arrays = {
        f"{split}/{name}/{i}.tif": save(tmp_path / "in" / split / name / f"{i}.tif", random("uint16", 8 + i, 9, 4))
        for split in ("train", "val")
        for name in ("forest", "water")
        for i in range(2)
    }
    ds = rk.write(tmp_path / "in", tmp_path / "out", split="source", progress=False)
    assert list(ds) == ["train", "val"]
    assert ds.schema["image"] == rk.Tensor("uint16", (None, 9, 4))
    assert ds.schema["label"] == rk.Label(["forest", "water"])
    found = {row["filename"]: row for split in ds for row in ds[split]}
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert np.array_equal(found[name]["image"], array)
        assert found[name]["label"] == ["forest", "water"].index(name.split("/")[1])


def test_detection_prefers_arrays_for_tiff_and_images_on_request(tmp_path: Path) -> None:
    for name in ("a/1.tif", "a/2.tif", "b/3.tif", "b/4.TIF"):
        save(tmp_path / name, random("uint8", 6, 7, 3), photometric="rgb")
    found = identify_source(tmp_path)
    assert (found.kind, found.labelled) == ("tiff", True)
    assert found.guesses[-1].do == 'images_as="png" to store images'
    assert identify_source(tmp_path / "a" / "1.tif").kind == "tiff"
    facts = rk.sources.tiff(tmp_path, images_as="png").facts()
    assert (facts.layout, facts.classes) == ("classification", ("a", "b"))


def test_pages_are_one_array_or_one_row_each(tmp_path: Path) -> None:
    array = save(tmp_path / "x.tif", random("uint8", 3, 20, 30))
    (row,) = rows(rk.sources.tiff(tmp_path / "x.tif"))
    assert np.array_equal(row.values["image"], array)  # type: ignore[index]
    source = rk.sources.tiff(tmp_path / "x.tif", pages=True)
    found = rows(source)
    assert [row.position for row in found] == [0, 1, 2]
    assert all(np.array_equal(row.values["image"], array[i]) for i, row in enumerate(found))  # type: ignore[index]
    assert source.facts().rows == 3


def test_overviews_are_not_pages(tmp_path: Path) -> None:
    array = random("uint8", 64, 64)
    with tifffile.TiffWriter(tmp_path / "x.tif") as writer:
        writer.write(array, photometric="minisblack", tile=(16, 16), subifds=1)
        writer.write(array[::2, ::2], photometric="minisblack", tile=(16, 16), subfiletype=1)
    (row,) = rows(rk.sources.tiff(tmp_path / "x.tif"))
    assert np.array_equal(row.values["image"], array)  # type: ignore[index]


def geotiff(path: Path) -> None:
    tags = [
        (33550, "d", 3, (10.0, 10.0, 0.0), True),  # the size of a pixel
        (33922, "d", 6, (0.0, 0.0, 0.0, 500_000.0, 4_600_000.0, 0.0), True),
        (34735, "H", 8, (1, 1, 0, 1, 3072, 0, 1, 32633), True),
        (42113, "s", 0, "-9999", True),
    ]
    save(path, random("float32", 4, 5, 2), planarconfig="contig", extratags=tags)


def test_georeferencing_is_kept_on_request_and_reported_otherwise(tmp_path: Path) -> None:
    geotiff(tmp_path / "x.tif")
    unused = rk.sources.tiff(tmp_path / "x.tif").facts().unused
    assert [(one.kind, one.name) for one in unused] == [("column", "georeferencing")]
    source = rk.sources.tiff(tmp_path / "x.tif", georeference=True)
    assert source.facts().unused == ()
    ds = rk.write(source, tmp_path / "out", progress=False)
    row = ds["train"][0]
    assert row["crs"] == 32633
    assert row["transform"].tolist() == [10.0, 0.0, 500_000.0, 0.0, -10.0, 4_600_000.0]
    assert row["nodata"] == -9999.0


def test_a_palette_and_white_as_zero_are_colours_of_an_image_and_values_of_an_array(tmp_path: Path) -> None:
    ids = random("uint8", 5, 6)
    colours = RANDOM.integers(0, 256, (3, 256)).astype(np.uint16) * 257
    save(tmp_path / "p.tif", ids, photometric="palette", colormap=colours)
    save(tmp_path / "w.tif", ids, photometric="miniswhite")
    arrays = [row.values["image"] for row in rows(rk.sources.tiff(tmp_path))]  # type: ignore[index]
    assert all(np.array_equal(one, ids) for one in arrays)
    schema = rk.Schema({"image": rk.Image(), "filename": rk.Text()})
    source = rk.sources.tiff(tmp_path, images_as="png")
    ds = rk.write(source, tmp_path / "out", schema=schema, progress=False)
    first, second = ds.batches(2, decode=True).peek()["image"]
    assert np.array_equal(first, np.moveaxis((colours >> 8)[:, ids], 0, -1))
    assert np.array_equal(second[..., 0], 255 - ids)


def test_16_bit_tiffs_become_16_bit_pngs(tmp_path: Path) -> None:
    array = save(tmp_path / "x.tif", random("uint16", 5, 6, 3) * 300, photometric="rgb")
    ds = rk.write(rk.sources.tiff(tmp_path, images_as="png"), tmp_path / "out", progress=False)
    assert ds.schema["image"] == rk.Image(format="png", bits=16)
    assert np.array_equal(ds.batches(1, decode=True).peek()["image"][0], array)


def test_floats_cannot_become_images(tmp_path: Path) -> None:
    save(tmp_path / "x.tif", random("float32", 5, 6))
    failure = only_error(rk.sources.tiff(tmp_path / "x.tif", images_as="png"))
    assert failure.code == "E396"
    assert failure.location.path == str(tmp_path / "x.tif")


def test_files_of_different_dtypes_or_dimensions_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "a.tif", random("uint8", 5, 6))
    save(tmp_path / "b.tif", random("uint16", 5, 6))
    with pytest.raises(rk.DatasetError) as caught:
        rk.sources.tiff(tmp_path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X594", str(tmp_path / "b.tif"))
    save(tmp_path / "b.tif", random("uint8", 4, 5, 6))
    with pytest.raises(rk.DatasetError) as caught:
        rk.sources.tiff(tmp_path).facts()
    assert caught.value.code == "X594"
    assert caught.value.do is not None
    assert "pages=True" in caught.value.do


def bomb(width: int, height: int) -> bytes:
    """A TIFF of a few bytes that declares a huge deflated image."""
    entries = [
        (256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 16), (259, 3, 1, 8), (262, 3, 1, 1),
        (273, 4, 1, 8), (277, 3, 1, 1), (278, 4, 1, height), (279, 4, 1, 16),
    ]  # fmt: skip
    body = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<I", 8) + body + bytes(4)


@pytest.mark.parametrize("size", [(10**6, 10**6), (20_000, 20_000)])
def test_a_bomb_is_refused_before_its_pixels_are_read(size: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "x.tif").write_bytes(bomb(*size))
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.tiff(tmp_path / "x.tif").facts()
    assert (caught.value.code, caught.value.location.path) == ("E393", str(tmp_path / "x.tif"))


@pytest.mark.parametrize(
    ("compression", "mark", "at"), [("jpeg", b"\xff\xc0", 5), ("jpeg2000", b"\xff\x4f\xff\x51", 8)]
)
def test_a_tile_that_is_a_bomb_is_refused_before_it_is_decoded(
    compression: str, mark: bytes, at: int, tmp_path: Path
) -> None:
    path = tmp_path / "in/x.tif"
    array = save(path, random("uint8", 64, 48, 3), photometric="rgb", compression=compression)
    (row,) = rows(rk.sources.tiff(tmp_path / "in"))
    assert row.values["image"].shape == array.shape  # type: ignore[index]
    data = bytearray(path.read_bytes())
    begin = data.index(mark) + at
    size = (65_000).to_bytes(2 if compression == "jpeg" else 4, "big")
    data[begin : begin + 2 * len(size)] = size * 2
    path.write_bytes(data)
    failure = only_error(rk.sources.tiff(tmp_path / "in"))
    assert (failure.code, failure.location.path) == ("E394", str(path))
    assert failure.found == "an encoded part of 65,000 × 65,000 for 64 × 48 pixels"


def test_a_truncated_file_is_a_bad_row_wherever_it_ends(tmp_path: Path) -> None:
    save(tmp_path / "good.tif", random("uint8", 16, 16), compression="zlib")
    data = (tmp_path / "good.tif").read_bytes()
    for end in range(0, len(data), 17):
        (tmp_path / "good.tif").write_bytes(data[:end])
        failure = first_error(rk.sources.tiff(tmp_path / "good.tif"))
        if failure is not None:
            assert failure.code in ("E393", "E394")
            assert failure.location.path == str(tmp_path / "good.tif")


def test_a_bad_file_does_not_stop_the_others(tmp_path: Path) -> None:
    good = save(tmp_path / "in" / "a.tif", random("uint8", 8, 8))
    (tmp_path / "in" / "b.tif").write_bytes(b"II*\0nonsense")
    with pytest.raises(rk.RekordError) as caught:
        rk.write(tmp_path / "in", tmp_path / "out", progress=False)
    assert (caught.value.code, caught.value.location.path) == ("E394", str(tmp_path / "in" / "b.tif"))
    ds = rk.write(tmp_path / "in", tmp_path / "out", on_bad_row="reject", max_rejects=1, progress=False)
    assert np.array_equal(ds["train"][0]["image"], good)


def test_a_folder_without_tiffs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(rk.DatasetError) as caught:
        rk.sources.tiff(tmp_path).facts()
    assert caught.value.code == "X527"


@pytest.mark.parametrize("options", [{"pages": 1}, {"georeference": "yes"}, {"images_as": "gif"}, {"classes": "ab"}])
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.sources.tiff("x", **options)
    assert caught.value.code == "U605"


def test_images_of_many_bands_and_their_masks_are_one_row_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bands = np.random.default_rng(0).random((2, 8, 9, 6)).astype(np.float32)
    ids = np.arange(2 * 72, dtype=np.uint8).reshape(2, 8, 9) % 3
    for folder in ("images", "masks"):
        (tmp_path / "in" / folder).mkdir(parents=True)
    for i in range(2):
        tifffile.imwrite(tmp_path / f"in/images/{i}.tif", bands[i], photometric="minisblack", planarconfig="contig")
        tifffile.imwrite(tmp_path / f"in/masks/{i}.tiff", ids[i])
    found = identify_source(tmp_path / "in")
    assert (found.kind, found.masks) == ("tiff", str(tmp_path / "in/masks"))
    folders = ["--images", str(tmp_path / "in/images"), "--masks", str(tmp_path / "in/masks")]
    for arguments in ([str(tmp_path / "in")], folders):
        out = tmp_path / str(len(arguments))
        assert run_command_line(["write", *arguments, str(out), "--no-config", "-q"]) == 0
        ds = rk.open(out)
        assert (ds.schema["image"], ds.schema["mask"]) == (
            rk.Tensor("float32", (8, 9, 6)),
            rk.Tensor("uint8", (8, 9)),
        )
        assert [np.array_equal(row["mask"], ids[i]) for i, row in enumerate(ds["train"])] == [True, True]
        assert [np.array_equal(row["image"], bands[i]) for i, row in enumerate(ds["train"])] == [True, True]


def test_images_that_png_can_hold_stay_images_with_masks(tmp_path: Path) -> None:
    save(tmp_path / "images/0.tif", random("uint16", 8, 9, 3), photometric="rgb")
    save(tmp_path / "masks/0.tif", random("uint8", 8, 9))
    assert identify_source(tmp_path).kind == "segmentation"


def test_masks_exclude_pages_and_encoded_images(tmp_path: Path) -> None:
    for options in ({"pages": True}, {"images_as": "png"}):
        with pytest.raises(rk.UsageError) as caught:
            rk.sources.tiff(tmp_path, masks=tmp_path / "masks", **options)
        assert caught.value.code == "U605"
