"""The doctor on features of the wrong kind, shape or presence, with a spec and without."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.health.doctor.diagnosis import Diagnoses, Diagnosis
from rekord.testing import damage, wire

Row = Mapping[str, Any]


def write(path: Path, rows: list[Row], *, packed: bool = False) -> Path:
    data = damage.frames([wire.example_bytes(row) for row in rows])
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


def spec_file(tmp_path: Path, **features: str) -> str:
    lines = [f'    "{name}": tf.io.{text},' for name, text in features.items()]
    (tmp_path / "reader.py").write_text("\n".join(["import tensorflow as tf", "SPEC = {", *lines, "}"]))
    return f"{tmp_path / 'reader.py'}:SPEC"


def of(found: Diagnoses, code: str) -> Diagnosis:
    return next(each for each in found.diagnoses if each.code == code)


def codes(found: Diagnoses) -> list[str]:
    return [each.code for each in found.diagnoses]


@pytest.mark.parametrize("packed", [False, True])
def test_float_labels_that_are_whole_are_seen_in_the_file_alone(tmp_path: Path, packed: bool) -> None:
    rows: list[Row] = [{"label": [float(i % 5)], "score": [i / 7]} for i in range(100)]
    found = rk.doctor(write(tmp_path / ("a.gz" if packed else "a.tfrecord"), rows, packed=packed))
    assert codes(found) == ["H814"]
    diagnosis = found.diagnoses[0]
    assert (diagnosis.feature, diagnosis.severity, diagnosis.records_affected) == ("label", "warning", 100)
    assert diagnosis.tensorflow_error is None
    assert diagnosis.do.startswith("rekord rewrite IN OUT --cast label=int64; or ")
    assert "float_list; all 100 values are integers, from 0 to 4" in diagnosis.evidence


CONCLUSIONS: dict[str, tuple[Row, str]] = {
    "whole floats": ({"label": [3.0]}, "H814"),
    "a height": ({"height": [180.0]}, "H815"),
    "digits": ({"count": [b"17"]}, "H817"),
    "a square": ({"image": list(range(64))}, "H827"),
}


@pytest.mark.parametrize("case", CONCLUSIONS)
def test_what_no_record_contradicts_is_concluded_from_enough_records(tmp_path: Path, case: str) -> None:
    row, code = CONCLUSIONS[case]
    for records in (1, 19):
        few = rk.doctor(write(tmp_path / f"{records}.tfrecord", [{**row, "id": [i]} for i in range(records)]))
        assert (codes(few), few.ok) == ([], True)
    assert codes(rk.doctor(write(tmp_path / "b.tfrecord", [{**row, "id": [i]} for i in range(20)]))) == [code]


def test_the_height_of_an_image_is_known_by_its_key(tmp_path: Path) -> None:
    assert codes(rk.doctor(write(tmp_path / "a.tfrecord", [{"image/height": [480.0]}]))) == ["H815"]


def test_that_ids_count_from_1_is_concluded_from_enough_records(tmp_path: Path) -> None:
    schema = rk.Schema({"label": rk.Label(3), "id": rk.Int64()})
    for records, code in ((3, "H752"), (30, "H830")):
        rows: list[Row] = [{"label": [3 - i % 3], "id": [i]} for i in range(records)]
        found = rk.doctor(write(tmp_path / f"{records}.tfrecord", rows), schema=schema)
        assert [(each.code, each.severity) for each in found.diagnoses] == [(code, "error")]


@pytest.mark.parametrize("labels", [[0.0, 1.0, 1.0], [4.0, 2.0]], ids=["several classes", "relevance"])
def test_several_whole_floats_a_record_are_targets_and_no_classes(tmp_path: Path, labels: list[float]) -> None:
    rows: list[Row] = [{"label": labels, "id": [i]} for i in range(40)]
    assert codes(rk.doctor(write(tmp_path / "a.tfrecord", rows))) == []


def test_the_classes_of_boxes_as_floats_are_seen(tmp_path: Path) -> None:
    rows: list[Row] = [{"image/object/class/label": [1.0, 2.0], "id": [i]} for i in range(40)]
    assert codes(rk.doctor(write(tmp_path / "a.tfrecord", rows))) == ["H814"]


@pytest.mark.parametrize(("key", "severity"), [("content-length", "note"), ("label", "warning")])
def test_numbers_as_text_are_a_note_unless_they_are_labels(tmp_path: Path, key: str, severity: str) -> None:
    rows: list[Row] = [{key: [b"%d" % i], "id": [i]} for i in range(40)]
    (only,) = rk.doctor(write(tmp_path / "a.tfrecord", rows)).diagnoses
    assert (only.code, only.severity) == ("H817", severity)


@pytest.mark.parametrize("place", [0, 50, 99])
def test_a_label_with_a_fraction_is_no_class(tmp_path: Path, place: int) -> None:
    rows: list[Row] = [{"label": [0.5 if i == place else 1.0]} for i in range(100)]
    assert codes(rk.doctor(write(tmp_path / "a.tfrecord", rows))) == []


def test_a_float_label_that_is_read_as_int_has_tensorflows_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"label": [float(i)]} for i in range(30)])
    found = rk.doctor(path, spec=spec_file(tmp_path, label="FixedLenFeature([], tf.int64)"))
    diagnosis = of(found, "H814")
    assert (diagnosis.severity, diagnosis.records[0].record) == ("error", 0)
    assert diagnosis.tensorflow_error == (
        "Name: <unknown>, Key: label, Index: 0.  Data types don't match. Data type: float but expected type: int64"
    )
    assert found.spec == '{\n    "label": tf.io.FixedLenFeature([], tf.float32),\n}'


def test_a_float_label_that_is_read_as_float_is_what_was_meant(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"label": [float(i)]} for i in range(30)])
    found = rk.doctor(path, spec=spec_file(tmp_path, label="FixedLenFeature([], tf.float32)"))
    assert found.ok
    assert [(each.feature, each.ok) for each in found.features] == [("label", True)]


def test_a_height_of_480_point_0_is_a_size_stored_as_a_float(tmp_path: Path) -> None:
    rows: list[Row] = [{"image/height": [480.0], "image/width": [640]} for _ in range(30)]
    diagnosis = of(rk.doctor(write(tmp_path / "a.tfrecord", rows)), "H815")
    assert (diagnosis.feature, diagnosis.records_affected) == ("image/height", 30)
    assert "480.0" in diagnosis.evidence[1]
    assert diagnosis.do.startswith("rekord rewrite IN OUT --cast image/height=int64; or ")


def test_ints_that_are_read_as_floats(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"x": [1, 2, 3]} for _ in range(30)])
    found = rk.doctor(path, spec=spec_file(tmp_path, x="FixedLenFeature([3], tf.float32)"))
    diagnosis = of(found, "H816")
    assert (diagnosis.feature, diagnosis.records_affected) == ("x", 30)
    assert "Data type: int64 but expected type: float" in (diagnosis.tensorflow_error or "")
    assert found.features[0].works == "tf.io.FixedLenFeature([3], tf.int64)"


@pytest.mark.parametrize("values", [[b"3", b"14"], [b"0.5", b"-1e3"]])
def test_texts_that_are_numbers(tmp_path: Path, values: list[bytes]) -> None:
    rows: list[Row] = [{"age": [values[i % 2]], "zip": [b"01234"], "id": [b"17"]} for i in range(40)]
    found = rk.doctor(write(tmp_path / "a.tfrecord", rows))
    assert codes(found) == ["H817"]
    assert (found.diagnoses[0].feature, found.diagnoses[0].records_affected) == ("age", 40)
    assert "to_number" in found.diagnoses[0].do


@pytest.mark.parametrize("place", [0, 20, 39])
def test_one_text_that_is_no_number_makes_them_texts(tmp_path: Path, place: int) -> None:
    rows: list[Row] = [{"age": [b"old" if i == place else b"3"]} for i in range(40)]
    assert codes(rk.doctor(write(tmp_path / "a.tfrecord", rows))) == []


def test_a_label_by_its_name_is_worth_a_note_in_the_file_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"label": [[b"cat", b"dog"][i % 2]]} for i in range(30)])
    found = rk.doctor(path)
    assert [(each.code, each.severity, each.feature) for each in found.diagnoses] == [("H818", "note", "label")]
    assert found.ok


def test_a_label_that_a_schema_declares_as_text_is_meant(tmp_path: Path) -> None:
    rows = [{"label": ["cat", "dog"][i % 2], "class": float(i)} for i in range(30)]
    schema = rk.Schema({"label": rk.Text(), "class": rk.Float32()})
    rk.write(rows, tmp_path / "data", schema=schema, progress=False)
    assert rk.doctor(tmp_path / "data").diagnoses == ()


def test_a_label_by_its_name_where_a_number_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"label": [[b"cat", b"dog"][i % 2]]} for i in range(30)])
    found = rk.doctor(path, spec=spec_file(tmp_path, label="FixedLenFeature([], tf.int64)"))
    diagnosis = of(found, "H818")
    assert "bytes_list: 'cat', 'dog'" in diagnosis.evidence
    assert diagnosis.likely == "the class name was written instead of the class id"
    assert "Data type: string but expected type: int64" in (diagnosis.tensorflow_error or "")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("place", [0, 25, 49])
def test_a_label_that_was_none_is_a_key_without_a_kind(tmp_path: Path, place: int, packed: bool) -> None:
    rows: list[Row] = [{"label": None if i == place else [i], "x": [1.5]} for i in range(50)]
    path = write(tmp_path / ("a.gz" if packed else "a.tfrecord"), rows, packed=packed)
    diagnosis = of(rk.doctor(path), "H819")
    assert (diagnosis.feature, diagnosis.records_affected, diagnosis.severity) == ("label", 1, "warning")
    assert diagnosis.records[0].record == place
    assert diagnosis.likely == "the value was None when the Feature was created"
    found = rk.doctor(path, spec=spec_file(tmp_path, label="FixedLenFeature([], tf.int64)"))
    assert of(found, "H819").tensorflow_error == (
        "Name: <unknown>, Feature: label (data type: int64) is required but could not be found."
    )


def test_a_label_that_was_none_everywhere_is_seen_too(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"label": None, "x": [1.5]} for _ in range(5)])
    assert of(rk.doctor(path), "H819").records_affected == 5


def test_a_key_that_is_left_out_has_no_diagnosis_without_a_spec(tmp_path: Path) -> None:
    rows: list[Row] = [{"x": [1.5]} | ({"label": [1]} if i % 2 else {}) for i in range(50)]
    assert codes(rk.doctor(write(tmp_path / "a.tfrecord", rows))) == []


@pytest.mark.parametrize("place", [0, 25, 49])
def test_one_record_of_another_kind(tmp_path: Path, place: int) -> None:
    rows: list[Row] = [{"label": [1.0] if i == place else [1]} for i in range(50)]
    diagnosis = of(rk.doctor(write(tmp_path / "a.tfrecord", rows)), "H820")
    assert (diagnosis.records_affected, diagnosis.records[0].record, diagnosis.severity) == (
        1,
        place,
        "error",
    )
    assert "all floats are integers" in diagnosis.evidence
    assert diagnosis.do.startswith("rekord rewrite IN OUT --cast label=int64; and ")


@pytest.mark.parametrize(
    ("most", "odd", "dtype"),
    [
        ([1], [1.5], "float32"),
        ([1.5], [2], "float32"),
        ([7], [b"8"], "int64"),
        ([7], [b"8.5"], None),
        ([7], [b"cat"], None),
        ([0.5], [b"8.5"], "float32"),
        ([b"cat"], [8], None),
    ],
)
def test_a_cast_is_named_for_kinds_that_it_can_join(
    tmp_path: Path, most: list[Any], odd: list[Any], dtype: str | None
) -> None:
    path = write(tmp_path / "a.tfrecord", [{"x": odd if i == 3 else most} for i in range(30)])
    do = of(rk.doctor(path), "H820").do
    assert ("rekord rewrite" in do) == (dtype is not None)
    if dtype is not None:
        assert do.startswith(f"rekord rewrite IN OUT --cast x={dtype}; and ")
        new = rk.rewrite(path, tmp_path / "new", cast={"x": dtype}, progress=False)
        assert rk.doctor(tmp_path / "new").ok
        assert new.records == 30


def test_one_shard_of_another_kind_is_named_and_the_others_agree(tmp_path: Path) -> None:
    for shard in range(13):
        value: list[Any] = [1.0] if shard == 9 else [1]
        write(tmp_path / f"train-{shard:05d}-of-00013.tfrecord", [{"label": value}] * 30)
    found = rk.doctor(tmp_path)
    assert codes(found) == ["H820"]
    diagnosis = found.diagnoses[0]
    assert (diagnosis.records_affected, diagnosis.files) == (30, 1)
    assert diagnosis.path == str(tmp_path / "train-00009-of-00013.tfrecord")
    assert diagnosis.evidence[0] == ("30 records, in train-00009-of-00013.tfrecord only; the other 12 are consistent")
    assert diagnosis.likely == "these files come from a different pipeline"


def test_all_shards_of_one_kind_are_counted(tmp_path: Path) -> None:
    for shard in range(13):
        write(tmp_path / f"train-{shard:05d}-of-00013.tfrecord", [{"label": [2.0]}] * 30)
    diagnosis = of(rk.doctor(tmp_path), "H814")
    assert (diagnosis.records_affected, diagnosis.files, diagnosis.path) == (390, 13, str(tmp_path))
    assert diagnosis.evidence[0] == "390 records, in 13 of 13 files"


@pytest.mark.parametrize(
    ("values", "requested", "works"),
    [
        ([1, 2, 3], "FixedLenFeature([], tf.int64)", "tf.io.FixedLenFeature([3], tf.int64)"),
        ([7], "FixedLenFeature([4], tf.int64)", "tf.io.FixedLenFeature([], tf.int64)"),
    ],
)
def test_one_value_against_a_list(tmp_path: Path, values: list[int], requested: str, works: str) -> None:
    path = write(tmp_path / "a.tfrecord", [{"x": values}] * 30)
    found = rk.doctor(path, spec=spec_file(tmp_path, x=requested))
    diagnosis = of(found, "H821")
    assert diagnosis.records_affected == 30
    assert diagnosis.do == f'"x": {works}'
    assert "Number of int64 values != expected" in (diagnosis.tensorflow_error or "")


def test_ragged_lists_read_as_fixed(tmp_path: Path) -> None:
    rows: list[Row] = [{"tokens": [1] * (5 if i % 2 else 3)} for i in range(30)]
    found = rk.doctor(
        write(tmp_path / "a.tfrecord", rows),
        spec=spec_file(tmp_path, tokens="FixedLenFeature([5], tf.int64)"),
    )
    diagnosis = of(found, "H822")
    assert (diagnosis.records_affected, diagnosis.records[0].record) == (15, 0)
    assert diagnosis.tensorflow_error == (
        "Name: <unknown>, Key: tokens, Index: 0.  "
        "Number of int64 values != expected.  Values size: 3 but output shape: [5]"
    )
    assert diagnosis.do == '"tokens": tf.io.RaggedFeature(tf.int64)'


def test_a_key_under_almost_the_same_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"image_encoded": [b"x"]}] * 30)
    found = rk.doctor(path, spec=spec_file(tmp_path, **{"image/encoded": "FixedLenFeature([], tf.string)"}))
    diagnosis = of(found, "H823")
    assert diagnosis.likely == "`image_encoded` was meant"
    assert diagnosis.do == (
        'read "image_encoded" instead; or rekord rewrite IN OUT --rename image_encoded=image/encoded'
    )
    assert "is required but could not be found" in (diagnosis.tensorflow_error or "")
    assert found.spec is not None
    assert '"image_encoded": tf.io.FixedLenFeature([], tf.string)' in found.spec


@pytest.mark.parametrize("place", [0, 15, 29])
def test_a_key_that_one_record_lacks(tmp_path: Path, place: int) -> None:
    rows: list[Row] = [{"y": [1]} | ({} if i == place else {"label": [1]}) for i in range(30)]
    found = rk.doctor(
        write(tmp_path / "a.tfrecord", rows), spec=spec_file(tmp_path, label="FixedLenFeature([], tf.int64)")
    )
    diagnosis = of(found, "H823")
    assert (diagnosis.records_affected, diagnosis.records[0].record) == (1, place)
    assert found.features[0].works == "tf.io.VarLenFeature(tf.int64)"


def test_a_default_in_the_spec_is_enough(tmp_path: Path) -> None:
    rows: list[Row] = [{"y": [1]} | ({"label": [1]} if i else {}) for i in range(30)]
    spec = spec_file(tmp_path, label="FixedLenFeature([], tf.int64, default_value=-1)")
    assert rk.doctor(write(tmp_path / "a.tfrecord", rows), spec=spec).ok


def test_numbers_that_are_read_as_bytes_have_no_better_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"x": [0.5, 1.5]}] * 30)
    found = rk.doctor(path, spec=spec_file(tmp_path, x="FixedLenFeature([], tf.string)"))
    diagnosis = of(found, "H824")
    assert diagnosis.do == '"x": tf.io.FixedLenFeature([2], tf.float32)'


def test_the_schema_is_a_spec_too(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"label": [1.0]}] * 30)
    schema = rk.Schema({"label": rk.Label(5)})
    found = rk.doctor(path, schema=schema)
    assert codes(found) == ["H814"]
    schema.save(tmp_path / "schema.json")
    assert rk.doctor(path, schema=tmp_path / "schema.json").to_dict() == found.to_dict()


def test_sequences_are_held_against_a_pair_of_specs(tmp_path: Path) -> None:
    payload = wire.sequence_bytes({"id": [1]}, {"words": [[1], [2], [3]]})
    (tmp_path / "a.tfrecord").write_bytes(damage.frames([payload] * 5))
    (tmp_path / "reader.py").write_text(
        "import tensorflow as tf\n"
        'C = {"id": tf.io.FixedLenFeature([], tf.int64)}\n'
        'S = {"words": tf.io.FixedLenSequenceFeature([], tf.float32)}\n'
    )
    found = rk.doctor(tmp_path / "a.tfrecord", spec=f"{tmp_path / 'reader.py'}:C,S")
    assert [(each.feature, each.ok) for each in found.features] == [("id", True), ("words", False)]
    assert found.features[1].works == "tf.io.FixedLenSequenceFeature([], tf.int64)"
    assert found.features[1].records_affected == 5


def test_a_report_is_json(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"label": [1.0]}] * 30)
    document = json.loads(json.dumps(rk.doctor(path).to_dict()))
    assert document["ok"] is False
    (diagnosis,) = document["diagnoses"]
    assert set(diagnosis) >= {"code", "title", "path", "records_affected", "evidence", "likely", "do"}
    assert diagnosis["tensorflow_error"] is None
    assert diagnosis["records"][0] == {"path": str(path), "record": 0, "offset": 0}
