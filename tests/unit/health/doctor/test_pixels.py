"""The doctor on pixels: raw bytes, lists, strings of one byte, masks, and what they would take otherwise."""

from __future__ import annotations

import base64
import gzip
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
SIDE = 32


def write(path: Path, rows: list[Row], *, packed: bool = False) -> Path:
    data = damage.frames([wire.example_bytes(row) for row in rows])
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


def of(found: Diagnoses, code: str) -> Diagnosis:
    return next(each for each in found.diagnoses if each.code == code)


def codes(found: Diagnoses) -> set[str]:
    return {each.code for each in found.diagnoses}


def noise(number: int, channels: int = 3) -> Any:
    return np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, channels), np.uint8)


def smooth(number: int) -> Any:
    ramp = np.add.outer(np.arange(SIDE), np.arange(SIDE)).astype(np.uint8) + np.uint8(number)
    return np.stack([ramp, ramp, ramp], axis=-1)


def sized(data: Any, **more: Any) -> Row:
    return {"image": data, "height": [SIDE], "width": [SIDE], **more}


def test_raw_masks_that_were_floats_are_not_scaled(tmp_path: Path) -> None:
    rows = [sized([(noise(i) % 2).astype("float32").tobytes()], channels=[3]) for i in range(12)]
    diagnosis = of(rk.doctor(write(tmp_path / "a.tfrecord", rows)), "H825")
    assert diagnosis.do == 'array.astype("uint8").tobytes() when writing; or tf.io.decode_raw(x, tf.float32)'


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("dtype", "item"), [("float32", 4), ("float64", 8)])
@pytest.mark.parametrize("said", [{"channels": [3]}, {}])
def test_raw_pixels_that_were_floats_are_told_by_their_length(
    tmp_path: Path, dtype: str, item: int, said: Row, packed: bool
) -> None:
    rows = [sized([(noise(i) / 255).astype(dtype).tobytes()], **said) for i in range(12)]
    found = rk.doctor(write(tmp_path / ("a.gz" if packed else "a.tfrecord"), rows, packed=packed))
    diagnosis = of(found, "H825")
    assert (diagnosis.feature, diagnosis.records_affected) == ("image", 12)
    assert diagnosis.title == f"`image` has {item} bytes per value: its bytes are {dtype}, not uint8"
    assert diagnosis.do == (
        '(array * 255).round().astype("uint8").tobytes() when writing; ' + f"or tf.io.decode_raw(x, tf.{dtype})"
    )
    if said:
        reshape = f"Input to reshape is a tensor with {3072 * item} values, but the requested shape has 3072"
        assert any(reshape in line for line in diagnosis.evidence)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_raw_uint8_pixels_are_fine(tmp_path: Path, channels: int) -> None:
    rows = [sized([noise(i, channels).tobytes()], depth=[channels]) for i in range(12)]
    assert codes(rk.doctor(write(tmp_path / "a.tfrecord", rows))) == set()
    rows = [sized([noise(i, channels).tobytes()]) for i in range(12)]
    assert codes(rk.doctor(write(tmp_path / "a.tfrecord", rows))) == set()


@pytest.mark.parametrize("place", [0, 6, 11])
def test_one_record_of_floats_among_uint8(tmp_path: Path, place: int) -> None:
    rows = [
        sized([(noise(i).astype("float32") if i == place else noise(i)).tobytes()], channels=[3]) for i in range(12)
    ]
    diagnosis = of(rk.doctor(write(tmp_path / "a.tfrecord", rows)), "H825")
    assert (diagnosis.records_affected, diagnosis.records[0].record) == (1, place)


def test_raw_pixels_of_another_shape(tmp_path: Path) -> None:
    rows = [sized([noise(i, 1).tobytes()], channels=[3]) for i in range(12)]
    diagnosis = of(rk.doctor(write(tmp_path / "a.tfrecord", rows)), "H826")
    assert diagnosis.likely == "1 channel stored, but the record gives 3"


def test_pixels_as_base64_are_text(tmp_path: Path) -> None:
    rows = [sized([base64.b64encode(noise(i).tobytes())], channels=[3]) for i in range(12)]
    diagnosis = of(rk.doctor(write(tmp_path / "a.tfrecord", rows)), "H826")
    assert diagnosis.title == "`image` is text: its pixels are base64-encoded"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bytes_of_another_dtype_than_the_schema_declares(tmp_path: Path, dtype: str) -> None:
    rows: list[Row] = [{"cube": [(noise(i) / 255).astype(dtype).tobytes()]} for i in range(12)]
    schema = rk.Schema({"cube": rk.Tensor("uint8", shape=(SIDE, SIDE, 3))})
    found = rk.doctor(write(tmp_path / "a.tfrecord", rows), schema=schema)
    assert codes(found) == {"H825"}
    diagnosis = found.diagnoses[0]
    assert diagnosis.title == f"`cube` is declared as uint8, but its bytes are {dtype}"
    assert diagnosis.records_affected == 12


def test_bytes_of_another_shape_than_the_schema_declares(tmp_path: Path) -> None:
    rows: list[Row] = [{"cube": [bytes(range(i, i + 100))]} for i in range(12)]
    schema = rk.Schema({"cube": rk.Tensor("uint8", shape=(SIDE, SIDE, 3))})
    found = rk.doctor(write(tmp_path / "a.tfrecord", rows), schema=schema)
    assert codes(found) == {"H826"}


def test_float64_bytes_are_known_by_their_looks(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=(20, 128))
    rows: list[Row] = [{"vector": [row.tobytes()]} for row in values]
    found = rk.doctor(write(tmp_path / "a.tfrecord", rows))
    assert [(each.code, each.severity, each.records_affected) for each in found.diagnoses] == [("H835", "note", 20)]
    assert found.ok


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int16"])
def test_other_raw_bytes_are_not_taken_for_float64(tmp_path: Path, dtype: str) -> None:
    values = (np.random.default_rng(1).normal(size=(20, 1024)) * 50).astype(dtype)
    rows: list[Row] = [{"vector": [row.tobytes()]} for row in values]
    assert codes(rk.doctor(write(tmp_path / "a.tfrecord", rows))) == set()


@pytest.mark.parametrize("with_size", [False, True])
def test_an_image_as_a_list_of_ints(tmp_path: Path, with_size: bool) -> None:
    rows = [
        sized(smooth(i).ravel().tolist(), channels=[3]) if with_size else {"image": smooth(i).ravel().tolist()}
        for i in range(20)
    ]
    diagnosis = of(rk.doctor(write(tmp_path / "a.tfrecord", rows)), "H827")
    assert (diagnosis.feature, diagnosis.records_affected) == ("image", 20)
    assert any("as PNG" in line and "estimated from 4 samples" in line for line in diagnosis.evidence)


def test_an_image_as_a_list_of_floats(tmp_path: Path) -> None:
    rows = [sized((noise(i) / 255).ravel().tolist(), channels=[3]) for i in range(12)]
    diagnosis = of(rk.doctor(write(tmp_path / "a.tfrecord", rows)), "H827")
    assert diagnosis.title == "`image` is an image stored as a list of floats"


def test_a_list_of_ids_is_no_image(tmp_path: Path) -> None:
    rows = [sized([b"\xff\xd8\xff"], tokens=list(range(900)), digits=[3] * 784) for _ in range(12)]
    assert "H827" not in codes(rk.doctor(write(tmp_path / "a.tfrecord", rows)))


def test_an_image_as_a_list_that_is_read_as_bytes(tmp_path: Path) -> None:
    rows = [sized(smooth(i).ravel().tolist(), channels=[3]) for i in range(12)]
    (tmp_path / "reader.py").write_text(
        "import tensorflow as tf\n" + 'SPEC = {"image": tf.io.FixedLenFeature([], tf.string)}\n'
    )
    path = write(tmp_path / "a.tfrecord", rows)
    diagnosis = of(rk.doctor(path, spec=f"{tmp_path / 'reader.py'}:SPEC"), "H827")
    assert diagnosis.severity == "error"
    assert "Data type: int64 but expected type: string" in (diagnosis.tensorflow_error or "")


def test_bytes_as_strings_of_one_byte(tmp_path: Path) -> None:
    rows = [sized([bytes([each]) for each in noise(i).tobytes()], channels=[3]) for i in range(5)]
    diagnosis = of(rk.doctor(write(tmp_path / "a.tfrecord", rows)), "H828")
    assert (diagnosis.feature, diagnosis.records_affected) == ("image", 5)
    assert "BytesList(value=[data])" in diagnosis.do


def test_raw_pixels_say_what_they_would_take_as_png(tmp_path: Path) -> None:
    rows = [sized([smooth(i).tobytes()], channels=[3]) for i in range(40)]
    found = rk.doctor(write(tmp_path / "a.tfrecord", rows))
    assert [(each.code, each.severity) for each in found.diagnoses] == [("H833", "note")]
    assert found.ok
    sizes = []
    for i in range(4):
        out = io.BytesIO()
        Image.fromarray(smooth(i)).save(out, "PNG")
        sizes.append(len(out.getvalue()))
    factor = 4 * SIDE * SIDE * 3 / sum(sizes)
    assert f"about {factor:.1f} times smaller encoded" in found.diagnoses[0].title
    assert any("4 samples went from" in line for line in found.diagnoses[0].evidence)


def test_small_numbers_in_float_lists_say_what_they_would_take(tmp_path: Path) -> None:
    frames = np.random.default_rng(3).integers(0, 256, (40, 1000)).astype(float)
    rows: list[Row] = [{"audio": row.tolist()} for row in frames]
    found = rk.doctor(write(tmp_path / "a.tfrecord", rows))
    assert [(each.code, each.feature) for each in found.diagnoses] == [("H834", "audio")]
    assert "about 160 kB as stored, 40 kB as byte strings" in found.diagnoses[0].evidence[-1]


def png(mode: str, number: int = 0) -> bytes:
    out = io.BytesIO()
    pixels = np.arange(SIDE * SIDE, dtype=np.uint8).reshape(SIDE, SIDE) % 3
    pixels[0, 0] += number
    Image.fromarray(pixels).convert(mode).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("mode", "words"), [("P", "a palette PNG"), ("RGB", "a colour PNG (RGB)")])
def test_masks_of_colours_become_garbage(tmp_path: Path, mode: str, words: str, packed: bool) -> None:
    rows: list[Row] = [
        {
            "image/encoded": [png("RGB")],
            "image/height": [SIDE],
            "image/width": [SIDE],
            "image/segmentation/class/encoded": [png(mode)],
        }
        for _ in range(30)
    ]
    found = rk.doctor(write(tmp_path / ("a.gz" if packed else "a.tfrecord"), rows, packed=packed))
    assert codes(found) == {"H829"}
    diagnosis = found.diagnoses[0]
    assert diagnosis.title == f"the masks of `image/segmentation/class/encoded` are stored as {words}"
    assert (diagnosis.records_affected, diagnosis.severity) == (30, "error")


def test_masks_that_a_schema_declares_are_held_against_it(tmp_path: Path) -> None:
    rows: list[Row] = [{"image": [png("RGB", i)], "mask": [png("P")]} for i in range(5)]
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=3)})
    found = rk.doctor(write(tmp_path / "a.tfrecord", rows), schema=schema)
    assert [(each.code, each.feature, each.records_affected) for each in found.diagnoses] == [("H829", "mask", 5)]


@pytest.mark.parametrize("place", [0, 15, 29])
def test_one_mask_of_colours_among_others(tmp_path: Path, place: int) -> None:
    rows: list[Row] = [
        {"image/encoded": [png("RGB")], "image/segmentation/class/encoded": [png("P" if i == place else "L")]}
        for i in range(30)
    ]
    diagnosis = of(rk.doctor(write(tmp_path / "a.tfrecord", rows)), "H829")
    assert (diagnosis.records_affected, diagnosis.records[0].record) == (1, place)
