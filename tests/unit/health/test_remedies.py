"""What errors and diagnoses tell people to do about records does what they say."""

from __future__ import annotations

import io
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.testing import example_bytes, frames, sequence_bytes

FOUR_BYTES = 2_100_000
"""Ints from here take as many bytes as a float, so that a shard of floats has the size that its manifest says."""

HEIGHTS = rk.Schema({"height": rk.Int64(key="image/height"), "name": rk.Text()})


def put(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(frames([example_bytes(row) for row in rows]))
    return path


def command(do: str, data: Path, out: Path) -> list[str]:
    """The arguments of the first `rekord rewrite IN OUT …` in a remedy."""
    begin = do.index("rekord rewrite IN OUT")
    words = shlex.split(do[begin:].split("; ")[0])
    return [str({"IN": data, "OUT": out}.get(word, word)) for word in words[1:]]


def refusal(path: Path, schema: rk.Schema) -> rk.RekordError:
    with pytest.raises(rk.DecodeError) as caught:
        list(rk.open(path, schema=schema).batches(100))
    return caught.value


@pytest.fixture
def one_shard_of_floats(tmp_path: Path) -> Path:
    """A dataset with a manifest: of its four shards one holds floats."""
    folder = tmp_path / "data"
    rows = [{"height": FOUR_BYTES + i, "name": str(i % 10)} for i in range(40)]
    rk.write(rows, folder, schema=HEIGHTS, shards=4, progress=False)
    shard = folder / "train-00002-of-00004.tfrecord"
    stored = [rk.decode(payload) for payload in rk.records(shard)]
    before = shard.stat().st_size
    put(
        shard,
        [{"image/height": [float(row["image/height"][0])], "name": list(row["name"])} for row in stored],
    )
    assert shard.stat().st_size == before
    return folder


# The doctor.


def test_a_shard_of_floats_is_one_diagnosis_though_a_schema_names_the_column_otherwise(
    one_shard_of_floats: Path,
) -> None:
    found = rk.doctor(one_shard_of_floats).diagnoses
    about_it = [(each.code, each.feature) for each in found if each.feature is not None]
    assert about_it == [("H820", "image/height")]


def test_a_column_of_a_manifest_is_cast_by_its_name(one_shard_of_floats: Path, tmp_path: Path) -> None:
    (diagnosis,) = [each for each in rk.doctor(one_shard_of_floats).diagnoses if each.code == "H820"]
    assert diagnosis.do.startswith("rekord rewrite IN OUT --cast height=int64; ")
    assert run_command_line(command(diagnosis.do, one_shard_of_floats, tmp_path / "out")) == 0
    assert rk.doctor(tmp_path / "out").ok
    assert rk.open(tmp_path / "out").schema == HEIGHTS


def test_files_without_a_schema_are_cast_by_the_key(one_shard_of_floats: Path, tmp_path: Path) -> None:
    shard = one_shard_of_floats / "train-00002-of-00004.tfrecord"
    (diagnosis,) = [each for each in rk.doctor(shard).diagnoses if each.feature is not None]
    assert (diagnosis.code, diagnosis.feature) == ("H815", "image/height")
    assert diagnosis.do.startswith("rekord rewrite IN OUT --cast image/height=int64; ")
    assert run_command_line(command(diagnosis.do, shard, tmp_path / "out")) == 0
    assert rk.doctor(tmp_path / "out").ok


def test_where_most_records_are_not_what_the_schema_says_the_schema_is_right(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tfrecord", [{"x": [i] if i % 5 == 0 else [float(i)]} for i in range(30)])
    schema = rk.Schema({"x": rk.Int64()})
    (diagnosis,) = [each for each in rk.doctor(path, schema=schema).diagnoses if each.code == "H820"]
    assert diagnosis.records_affected == 24
    assert diagnosis.do.startswith("rekord rewrite IN OUT --cast x=int64; ")
    assert run_command_line(command(diagnosis.do, path, tmp_path / "out")) == 0
    assert rk.doctor(tmp_path / "out", schema=schema).ok


def test_ints_that_are_read_as_floats_are_cast(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tfrecord", [{"x": [i, i + 1]} for i in range(30)])
    schema = rk.Schema({"x": rk.Float32((2,))})
    (diagnosis,) = rk.doctor(path, schema=schema).diagnoses
    assert (diagnosis.code, diagnosis.do) == (
        "H816",
        "rekord rewrite IN OUT --cast x=float32; or read `x` as tf.int64 and cast with tf.cast(x, tf.float32)",
    )
    assert run_command_line(command(diagnosis.do, path, tmp_path / "out")) == 0
    assert rk.doctor(tmp_path / "out", schema=schema).ok


def test_a_key_that_a_manifest_declares_is_not_renamed_by_renaming_its_column(tmp_path: Path) -> None:
    rk.write([{"height": 3, "name": "a"}], tmp_path / "data", schema=HEIGHTS, progress=False)
    asked = rk.Schema({"image_height": rk.Int64()})
    (diagnosis,) = [each for each in rk.doctor(tmp_path / "data", schema=asked).diagnoses if each.code == "H823"]
    assert diagnosis.do == 'read "image/height" instead'


def test_the_name_that_works_is_shown_beside_the_one_that_was_asked_for(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tfrecord", [{"lable": [i], "x": [i]} for i in range(5)])
    asked = rk.Schema({"label": rk.Int64(), "x": rk.Int64()})
    label, x = rk.doctor(path, schema=asked).features
    assert (label.spec, label.works) == (
        "tf.io.FixedLenFeature([], tf.int64)",
        '"lable": tf.io.FixedLenFeature([], tf.int64)',
    )
    assert (x.works, x.ok) == ("tf.io.FixedLenFeature([], tf.int64)", True)


def png(pixels: list[list[int]], palette: bool = False) -> bytes:
    image = Image.fromarray(np.array(pixels, np.uint8))
    if palette:
        image.putpalette([0, 0, 0, 255, 0, 0])
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize(
    ("feature", "stored", "code"),
    [
        (rk.Label(5), [[1], [2], [5]] * 10, "H830"),
        (rk.Label(5), [[1], [0], [255]], "H831"),
        (rk.Mask(classes=3), [[png([[0, 1], [2, 255]])]], "H831"),
        (rk.Mask(classes=3), [[png([[0, 1], [1, 0]], palette=True)]], "H829"),
        (rk.Tensor("uint8", (4,)), [[bytes(16)]], "H825"),
    ],
)
@pytest.mark.parametrize("key", ["x", "image/x"])
def test_what_is_explained_by_its_key_is_not_said_again_of_its_column(
    tmp_path: Path, feature: Any, stored: list[Any], code: str, key: str
) -> None:
    image = png([[0, 1], [1, 0]])
    path = put(tmp_path / "a.tfrecord", [{key: value, "photo": [image]} for value in stored])
    schema = rk.Schema({"x": replace(feature, key=key), "photo": rk.Image()})
    found = rk.doctor(path, schema=schema).diagnoses
    assert [each.code for each in found if each.severity == "error"] == [code]


# Reading.


def test_a_missing_key_names_those_that_are_nearly_the_same(tmp_path: Path) -> None:
    path = put(tmp_path / "a.tfrecord", [{"lable": [i], "lables": [i], "x": [i]} for i in range(5)])
    schema = rk.Schema({"label": rk.Int64()})
    failure = refusal(path, schema)
    assert (failure.code, failure.location.record, failure.location.feature) == ("D401", 0, "label")
    assert failure.found == "no such key, but `lable` and `lables`"
    assert failure.do == "declare `label` with key='lable'; or rekord rewrite IN OUT --rename lable=label"
    assert run_command_line(command(failure.do, path, tmp_path / "out")) == 0
    assert [row["label"] for row in rk.open(tmp_path / "out" / "all-00000-of-00001.tfrecord", schema)[:]] == [
        *range(5)
    ]


def test_a_near_key_is_found_by_index_and_behind_other_records_too(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"image/height": [1]}, {"image_height": [2]}, {"image/height": [3]}]
    path = put(tmp_path / "a.tfrecord", rows)
    dataset = rk.open(path, schema=rk.Schema({"height": rk.Int64(key="image/height")}))
    for read in (lambda: dataset[1], lambda: list(dataset.batches(10)), lambda: dataset[[0, 1, 2]]):
        with pytest.raises(rk.DecodeError) as caught:
            read()
        assert (caught.value.code, caught.value.location.record) == ("D401", 1)
        assert caught.value.found == "no such key, but `image_height`"


def test_a_key_that_another_column_declares_is_no_near_miss() -> None:
    schema = rk.Schema({"label1": rk.Int64(), "label2": rk.Int64()})
    with pytest.raises(rk.DecodeError) as caught:
        rk.decode(example_bytes({"label1": [1]}), schema)
    assert (caught.value.code, caught.value.location.feature) == ("D401", "label2")
    assert caught.value.found == "no such key, or one without a kind"


def test_a_step_that_is_missing_names_the_near_one() -> None:
    schema = rk.Schema(context={"id": rk.Int64()}, steps={"frames": rk.Int64()})
    with pytest.raises(rk.DecodeError) as caught:
        rk.decode(sequence_bytes({"id": [1]}, {"frame": [[1]]}), schema)
    assert (caught.value.code, caught.value.location.feature) == ("D401", "frames")
    assert caught.value.found == "no such key, but `frame`"
    assert caught.value.do == "declare `frames` with key='frame'; or rekord rewrite IN OUT --rename frame=frames"


def test_names_of_any_length_and_number_do_not_make_a_message_long() -> None:
    stored = {f"{'k' * 150}{i}": [1] for i in range(10)}
    with pytest.raises(rk.DecodeError) as caught:
        rk.decode(example_bytes(stored), rk.Schema({"k" * 150: rk.Int64()}))
    assert len(caught.value.found or "") < 160
    assert len(caught.value.do or "") < 310


@pytest.mark.parametrize(
    ("declared", "stored", "cast"),
    [
        (rk.Int64(), [1.0], "int64"),
        (rk.Int64(), [1.5], None),
        (rk.Int64(), [float("nan")], None),
        (rk.Int64(), [1e30], None),
        (rk.Label(9), [8.0], "int64"),
        (rk.Int64(shape=(None,)), [1.0, 2.0], "int64"),
        (rk.Int64(), [b"-12"], "int64"),
        (rk.Int64(), [b"cat"], None),
        (rk.Float32(), [7], "float32"),
        (rk.Float32(), [2**24 + 1], None),
        (rk.Float32(), [b"0.5"], "float32"),
        (rk.Float32(), [b"cat"], None),
        (rk.Text(), [7], None),
        (rk.Image(), [7], None),
    ],
)
def test_another_kind_is_cast_where_the_values_would_survive(
    tmp_path: Path, declared: Any, stored: list[Any], cast: str | None
) -> None:
    path = put(tmp_path / "a.tfrecord", [{"image/x": stored}] * 3)
    schema = rk.Schema({"x": replace(declared, key="image/x")})
    failure = refusal(path, schema)
    assert (failure.code, failure.location.feature) == ("D403", "x")
    (finding, *_) = rk.check(path, schema=schema).findings
    assert (finding.code, finding.do) == ("D403", failure.do)
    if cast is None:
        assert "rekord rewrite" not in (failure.do or "")
        return
    assert (failure.do or "").startswith(f"rekord rewrite IN OUT --cast image/x={cast}; or declare `x` as rk.")
    assert run_command_line(command(failure.do or "", path, tmp_path / "out")) == 0
    (made,) = (tmp_path / "out").glob("*-of-*")
    assert rk.check(made, schema=schema).ok


def test_steps_of_another_kind_are_not_cast() -> None:
    schema = rk.Schema(context={}, steps={"x": rk.Int64()})
    with pytest.raises(rk.DecodeError) as caught:
        rk.decode(sequence_bytes({}, {"x": [[1.0]]}), schema)
    assert (caught.value.code, "rewrite" in (caught.value.do or "")) == ("D403", False)


# Names that `rewrite` takes.


def test_a_column_may_be_named_by_its_key(one_shard_of_floats: Path, tmp_path: Path) -> None:
    failure = refusal(one_shard_of_floats, HEIGHTS)
    assert (failure.code, failure.location.record) == ("D403", 0)
    assert run_command_line(command(failure.do or "", one_shard_of_floats, tmp_path / "out")) == 0
    assert rk.open(tmp_path / "out").schema == HEIGHTS
    new = rk.rewrite(tmp_path / "out", tmp_path / "fewer", drop=["image/height"], progress=False)
    assert list(new.schema) == ["name"]


def test_a_name_is_that_of_a_column_before_it_is_that_of_a_key(tmp_path: Path) -> None:
    schema = rk.Schema({"a": rk.Int64(key="b"), "b": rk.Int64(key="c")})
    rk.write([{"a": 1, "b": 2}], tmp_path / "data", schema=schema, progress=False)
    new = rk.rewrite(tmp_path / "data", tmp_path / "out", drop=["b"], progress=False)
    assert list(new.schema) == ["a"]


def test_a_key_of_several_names_no_column(tmp_path: Path) -> None:
    schema = rk.Schema({"boxes": rk.Boxes(), "x": rk.Int64()})
    rk.write([{"boxes": [[0, 0, 1, 1]], "x": 2}], tmp_path / "data", schema=schema, progress=False)
    with pytest.raises(rk.SchemaError) as caught:
        rk.rewrite(tmp_path / "data", tmp_path / "out", drop=["image/object/bbox/xmin"], progress=False)
    assert (caught.value.code, caught.value.location.feature) == ("S116", "image/object/bbox/xmin")
