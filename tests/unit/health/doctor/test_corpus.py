"""One bad record at the start, in the middle or at the end of a file, plain and gzip: code, place and remedy."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.testing import damage, wire

RECORDS = 40
GOOD: Mapping[str, str] = {
    "label": "tf.io.FixedLenFeature([], tf.int64)",
    "vector": "tf.io.FixedLenFeature([5], tf.float32)",
    "name": "tf.io.FixedLenFeature([], tf.string)",
}


def row(number: int) -> dict[str, Any]:
    return {"label": [number % 3], "vector": [number + 0.5] * 5, "name": [b"row %d" % number]}


CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    # what the bad record has instead: the diagnosis, its feature, a word of the remedy
    "a label by its name": ({"label": [b"cat"]}, "H820", "label", "int64"),
    "a label that is a number in letters": ({"label": [b"3"]}, "H820", "label", "int64"),
    "a float label": ({"label": [2.0]}, "H820", "label", "int64"),
    "ints where floats are read": ({"vector": [1, 2, 3, 4, 5]}, "H820", "vector", "float"),
    "a list that is too short": ({"vector": [0.5] * 3}, "H822", "vector", "tf.io."),
    "one value against a vector": ({"vector": [0.5]}, "H822", "vector", "tf.io."),
    "a label that was None": ({"label": None}, "H819", "label", "default_value"),
    "a key that is not there": ({"name": ...}, "H823", "name", "tf.io.VarLenFeature"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("place", [0, RECORDS // 2, RECORDS - 1])
@pytest.mark.parametrize("case", CASES)
def test_one_bad_record_is_diagnosed_against_a_spec(tmp_path: Path, case: str, place: int, packed: bool) -> None:
    changed, code, feature, word = CASES[case]
    rows = [row(number) for number in range(RECORDS)]
    rows[place] = {key: value for key, value in {**rows[place], **changed}.items() if value is not ...}
    data = damage.frames(map(wire.example_bytes, rows))
    path = tmp_path / ("a.tfrecord.gz" if packed else "a.tfrecord")
    path.write_bytes(gzip.compress(data) if packed else data)
    lines = ["import tensorflow as tf", "SPEC = {", *(f'    "{key}": {one},' for key, one in GOOD.items())]
    (tmp_path / "reader.py").write_text("\n".join([*lines, "}"]))
    found = rk.doctor(path, spec=f"{tmp_path / 'reader.py'}:SPEC")
    diagnosis = found.diagnoses[0]
    assert (diagnosis.code, diagnosis.feature, diagnosis.severity) == (code, feature, "error")
    assert diagnosis.records_affected == 1
    assert [(each.record, each.offset) for each in diagnosis.records] == [(place, damage.frame_offsets(data)[place])]
    assert word in diagnosis.do
    assert diagnosis.tensorflow_error is not None
    assert feature in diagnosis.tensorflow_error


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("place", [0, RECORDS // 2, RECORDS - 1])
@pytest.mark.parametrize(("broken", "code"), [(damage.corrupt_payload, "H804"), (damage.corrupt_length, "H804")])
def test_one_changed_record_is_found_in_its_place(
    tmp_path: Path, broken: Any, code: str, place: int, packed: bool
) -> None:
    data = damage.frames(wire.example_bytes(row(number)) for number in range(RECORDS))
    bad = broken(data, place)
    path = tmp_path / ("a.tfrecord.gz" if packed else "a.tfrecord")
    path.write_bytes(gzip.compress(bad) if packed else bad)
    diagnosis = rk.doctor(path).diagnoses[0]
    assert diagnosis.severity == "error"
    assert (diagnosis.records[0].record, diagnosis.records[0].offset) == (
        place,
        damage.frame_offsets(data)[place],
    )
    assert "salvage" in diagnosis.do
    if not (place == RECORDS - 1 and broken is damage.corrupt_length):  # nothing behind it tells
        assert diagnosis.code == code
