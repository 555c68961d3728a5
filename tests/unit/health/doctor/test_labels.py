"""The doctor on classes: counted from elsewhere, unnamed ignores, names with whitespace; and on good datasets."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.health.doctor.diagnosis import Diagnoses, Diagnosis
from rekord.testing import damage, wire

Row = Mapping[str, Any]


def write(path: Path, rows: list[Row]) -> Path:
    path.write_bytes(damage.frames([wire.example_bytes(row) for row in rows]))
    return path


def of(found: Diagnoses, code: str) -> Diagnosis:
    return next(each for each in found.diagnoses if each.code == code)


def codes(found: Diagnoses) -> set[str]:
    return {each.code for each in found.diagnoses}


def test_labels_from_1_under_a_schema_from_0(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"label": [1 + i % 5]} for i in range(50)])
    found = rk.doctor(path, schema=rk.Schema({"label": rk.Label(5)}))
    assert codes(found) == {"H830"}
    diagnosis = found.diagnoses[0]
    assert (diagnosis.feature, diagnosis.records_affected, diagnosis.severity) == ("label", 50, "error")
    assert "values from 1 to 5, classes from 0 to 4" in diagnosis.evidence
    assert "id - 1" in diagnosis.do


def test_labels_from_0_are_fine(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"label": [i % 5]} for i in range(50)])
    assert rk.doctor(path, schema=rk.Schema({"label": rk.Label(5)})).diagnoses == ()


@pytest.mark.parametrize("place", [0, 25, 49])
def test_a_label_beyond_the_classes_is_no_shift(tmp_path: Path, place: int) -> None:
    path = write(tmp_path / "a.tfrecord", [{"label": [7 if i == place else i % 5]} for i in range(50)])
    found = rk.doctor(path, schema=rk.Schema({"label": rk.Label(5)}))
    assert codes(found) == {"H752"}
    assert (found.diagnoses[0].records_affected, found.diagnoses[0].records[0].record) == (1, place)


def test_boxes_whose_classes_count_from_0(tmp_path: Path) -> None:
    corners = {"xmin": 0.1, "xmax": 0.5, "ymin": 0.1, "ymax": 0.5}
    sides = {f"image/object/bbox/{side}": [value] for side, value in corners.items()}
    rows = [{**sides, "image/object/class/label": [i % 3]} for i in range(30)]
    diagnosis = of(rk.doctor(write(tmp_path / "a.tfrecord", rows)), "H830")
    assert (diagnosis.feature, diagnosis.severity) == ("image/object/class/label", "warning")
    assert diagnosis.records_affected == 10
    assert "id + 1" in diagnosis.do


def test_labels_of_255_are_an_ignore_that_was_not_declared(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"label": [255 if i % 10 == 0 else i % 5]} for i in range(50)])
    found = rk.doctor(path, schema=rk.Schema({"label": rk.Label(5)}))
    assert codes(found) == {"H831"}
    assert found.diagnoses[0].records_affected == 5


def grey(value: int, corner: int = 0) -> bytes:
    out = io.BytesIO()
    pixels = np.zeros((16, 16), np.uint8)
    pixels[3, 4] = value
    pixels[0, 0] = corner
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("place", [0, 5, 9])
def test_masks_with_255_want_an_ignore(tmp_path: Path, place: int) -> None:
    rows: list[Row] = [{"image": [grey(0, i)], "mask": [grey(255 if i == place else 2)]} for i in range(10)]
    path = write(tmp_path / "a.tfrecord", rows)
    columns = {"image": rk.Image(), "mask": rk.Mask(classes=3)}
    found = rk.doctor(path, schema=rk.Schema(columns))
    assert codes(found) == {"H831"}
    diagnosis = found.diagnoses[0]
    assert (diagnosis.records_affected, diagnosis.records[0].record) == (1, place)
    assert "Mask(classes=3, ignore=255)" in diagnosis.do
    declared = rk.Schema({**columns, "mask": rk.Mask(classes=3, ignore=255)})
    assert rk.doctor(path, schema=declared).diagnoses == ()


@pytest.mark.parametrize(
    ("names", "odd", "remedy"),
    [
        ([b"cat", b"cat ", b"dog"], 10, "strip()"),
        ([b"cat", b"Cat", b"dog"], 10, "in one case"),
        ([b"traffic light", b"traffic  light", b"dog"], 10, "strip()"),
        ([b"dog\n", b"cat", b"bird"], 10, "strip()"),
    ],
)
def test_names_that_differ_by_white_space_or_case(tmp_path: Path, names: list[bytes], odd: int, remedy: str) -> None:
    rows: list[Row] = [{"image/class/text": [names[i % 3]]} for i in range(30)]
    diagnosis = of(rk.doctor(write(tmp_path / "a.tfrecord", rows)), "H832")
    assert (diagnosis.feature, diagnosis.records_affected) == ("image/class/text", odd)
    assert remedy in diagnosis.do


def test_different_names_and_captions_are_left_alone(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"class/text": [[b"cat", b"dog"][i % 2]], "caption": [[b"a cat ", b"A cat"][i % 2]]} for i in range(30)
    ]
    assert rk.doctor(write(tmp_path / "a.tfrecord", rows)).diagnoses == ()


# Good datasets, as rekord writes them.


def jpeg(number: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 255, (24, 32, 3), np.uint8)).save(out, "JPEG")
    return out.getvalue()


TABLE = rk.Schema(
    {
        "label": rk.Label(["cat", "dog"]),
        "price": rk.Float32(),
        "tokens": rk.Int64(shape=(None,)),
        "vector": rk.Float32(shape=(8,)),
        "cube": rk.Tensor("float64", shape=(4, 4)),
        "caption": rk.Text(optional=True),
    }
)


def table_row(i: int) -> dict[str, Any]:
    return {
        "label": i % 2,
        "price": float(i),
        "tokens": list(range(i % 7)),
        "vector": np.arange(8) / 3,
        "cube": np.random.default_rng(i).normal(size=(4, 4)),
        "caption": "some words" if i % 3 else None,
    }


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_table_that_rekord_wrote_has_no_diagnosis(tmp_path: Path, compression: str | None) -> None:
    out = tmp_path / "data"
    rows = [table_row(i) for i in range(100)]
    rk.write(rows, out, schema=TABLE, compression=compression, split={"train": 0.8, "val": 0.2}, progress=False)
    assert rk.doctor(out).diagnoses == ()
    found = rk.doctor(out, schema=TABLE)
    assert found.diagnoses == ()
    assert all(feature.ok for feature in found.features)


def test_images_and_masks_that_rekord_wrote_have_no_diagnosis(tmp_path: Path) -> None:
    schema = rk.Schema({"image": rk.Image(format="jpeg"), "mask": rk.Mask(classes=3), "label": rk.Label(2)})
    rows = [{"image": jpeg(i), "mask": np.full((24, 32), i % 3, np.uint8), "label": i % 2} for i in range(12)]
    rk.write(rows, tmp_path / "data", schema=schema, progress=False)
    assert rk.doctor(tmp_path / "data").diagnoses == ()
    assert rk.doctor(tmp_path / "data", schema=schema).diagnoses == ()


@pytest.mark.parametrize("layout", ["classification", "deeplab"])
def test_layouts_that_rekord_wrote_have_no_diagnosis(tmp_path: Path, layout: str) -> None:
    images = tmp_path / "images"
    for i in range(6):
        folder = images / ("cat" if i % 2 else "dog") if layout == "classification" else images
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i}.jpg").write_bytes(jpeg(i))
    if layout == "classification":
        source = rk.sources.image_folder(images)
        rk.write(
            source,
            tmp_path / "data",
            layout=rk.layouts.classification(classes=["cat", "dog"]),
            progress=False,
        )
    else:
        (tmp_path / "masks").mkdir()
        for i in range(6):
            Image.fromarray(np.full((24, 32), i % 3, np.uint8)).save(tmp_path / "masks" / f"{i}.png")
        source = rk.sources.segmentation(images, tmp_path / "masks")
        rk.write(source, tmp_path / "data", layout=rk.layouts.deeplab(classes=3), progress=False)
    assert rk.doctor(tmp_path / "data").diagnoses == ()
    for shard in (tmp_path / "data").glob("*.tfrecord"):
        shard.rename(tmp_path / "alone.tfrecord")
    assert rk.doctor(tmp_path / "alone.tfrecord").diagnoses == ()


def test_sequences_that_rekord_wrote_have_no_diagnosis(tmp_path: Path) -> None:
    schema = rk.Schema(context={"id": rk.Int64()}, steps={"words": rk.Int64(), "scores": rk.Float32()})
    with rk.Writer(tmp_path / "a.tfrecord", schema) as writer:
        for i in range(30):
            writer.write({"id": i, "words": list(range(i % 5)), "scores": [0.5] * (i % 5)})
    assert rk.doctor(tmp_path / "a.tfrecord").diagnoses == ()
    assert rk.doctor(tmp_path / "a.tfrecord", schema=schema).diagnoses == ()
