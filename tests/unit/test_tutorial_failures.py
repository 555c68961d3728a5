"""The failing examples that tutorials show: each is diagnosed from the file alone, or refused with the row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.testing import example_bytes

PutFile = Callable[..., Path]
SCHEMA = rk.Schema({"label": rk.Int64(), "tokens": rk.Float32(shape=(None,)), "name": rk.Bytes()})
GOOD_ROW: dict[str, Any] = {"label": 1, "tokens": [1.0, 2.0], "name": b"cat"}


@pytest.mark.parametrize(
    ("row", "code", "feature"),
    [
        ({"label": "cat"}, "E303", "label"),  # a string label that was not encoded as a number
        ({"label": None}, "E301", "label"),
        ({"label": 1.5}, "E304", "label"),
        ({"name": 3}, "E305", "name"),
    ],
)
def test_a_row_of_a_tutorial_is_refused_with_its_feature(row: dict[str, Any], code: str, feature: str) -> None:
    with pytest.raises(rk.EncodeError) as caught:
        rk.encode({**GOOD_ROW, **row}, SCHEMA)
    assert (caught.value.code, caught.value.location.feature) == (code, feature)
    assert caught.value.do


def spec(folder: Path, text: str) -> str:
    place = folder / "reader.py"
    place.write_text(f"import tensorflow as tf\nSPEC = {text}\n")
    return f"{place}:SPEC"


def told(path: Path, reader: str | None = None) -> list[tuple[str, str | None]]:
    found = rk.doctor(path, spec=reader).diagnoses
    assert all(one.do for one in found)
    return [(one.code, one.feature) for one in found if one.severity != "note"]


def test_a_string_label_is_seen_where_a_number_is_read(put_records: PutFile, tmp_path: Path) -> None:
    path = put_records([example_bytes({"label": [b"cat"], "n": [i]}) for i in range(8)])
    reader = spec(tmp_path, "{'label': tf.io.FixedLenFeature([], tf.int64)}")
    (found,) = [one for one in rk.doctor(path, spec=reader).diagnoses if one.feature == "label"]
    assert found.records_affected == 8
    assert found.tensorflow_error is not None
    assert "Data types don't match. Data type: string but expected type: int64" in found.tensorflow_error


def test_an_int_list_that_is_read_as_floats(put_records: PutFile, tmp_path: Path) -> None:
    path = put_records([example_bytes({"x": [1, 2, i]}) for i in range(8)])
    reader = spec(tmp_path, "{'x': tf.io.FixedLenFeature([3], tf.float32)}")
    (found,) = [one for one in rk.doctor(path, spec=reader).diagnoses if one.feature == "x"]
    assert "Data type: int64 but expected type: float" in str(found.tensorflow_error)


def test_a_ragged_list_that_is_read_as_five_values(put_records: PutFile, tmp_path: Path) -> None:
    path = put_records([example_bytes({"x": list(range(1 + i % 6))}) for i in range(12)])
    reader = spec(tmp_path, "{'x': tf.io.FixedLenFeature([5], tf.int64)}")
    (found,) = [one for one in rk.doctor(path, spec=reader).diagnoses if one.feature == "x"]
    assert found.records_affected == 10
    assert "Number of int64 values != expected.  Values size: 1 but output shape: [5]" in str(found.tensorflow_error)


def test_a_float_label_under_deeplabs_keys_is_seen_in_the_file_alone(put_records: PutFile) -> None:
    path = put_records(
        [example_bytes({"image/filename": [b"%d" % i], "image/class/label": [float(i % 3)]}) for i in range(30)]
    )
    assert ("H814", "image/class/label") in told(path)


def test_a_label_without_a_value_is_seen_in_the_file_alone(put_records: PutFile) -> None:
    payloads = [example_bytes({"label": [i % 3], "n": [i]}) for i in range(9)]
    payloads[4] = example_bytes({"label": None, "n": [4]})
    found = rk.doctor(put_records(payloads)).diagnoses
    assert [(one.feature, one.records_affected) for one in found if one.feature == "label"] == [("label", 1)]


@pytest.mark.slow
def test_a_finding_is_given_out_before_the_pass_has_ended(put_file: PutFile, tmp_path: Path) -> None:
    from rekord.health.check.run import iter_findings
    from rekord.health.dataset_files import find_dataset_files
    from rekord.health.finding import Report
    from rekord.testing import corrupt_payload, frames

    for shard in range(40):
        rows = [example_bytes({"n": [shard * 100 + i], "blob": [bytes(50_000)]}) for i in range(20)]
        data = frames(rows)
        put_file(corrupt_payload(data, 3) if shard == 0 else data, f"data/train-{shard:05}-of-00040.tfrecord")
    report = Report()
    findings = iter_findings(find_dataset_files(tmp_path / "data"), report)
    assert next(findings).code == "F102"
    assert report.files < 40
    findings.close()


def test_71_of_100_shards_are_told_as_such(put_records: PutFile, tmp_path: Path) -> None:
    for shard in range(71):
        put_records([example_bytes({"n": [shard]})], f"data/train-{shard:05}-of-00100.tfrecord")
    (found,) = [one for one in rk.check(tmp_path / "data").findings if one.code == "X505"]
    assert (found.severity, found.message) == ("error", "only 71 of 100 shards exist")
    assert "71–99" in str(found.found)
