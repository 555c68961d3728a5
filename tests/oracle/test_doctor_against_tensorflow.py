"""The errors that the doctor predicts are those that TensorFlow raises, and the specs that it prints parse."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rekord as rk
from rekord.testing import damage, wire

PAYLOADS = [wire.example_bytes({"id": [i], "name": [b"row %04d" % i]}) for i in range(300)]
GOOD = damage.frames(PAYLOADS)
OFFSETS = damage.frame_offsets(GOOD)
PACKED = gzip.compress(GOOD, 1)


def message_of(failure: Exception) -> str:
    """What TensorFlow says, without what it puts around it, and without the place in the batch."""
    text = re.sub(r"^\{\{.*?\}\} ", "", str(getattr(failure, "message", failure)))
    text = re.sub(r" \[Op:\w+\].*$", "", text, flags=re.DOTALL)
    return re.sub(r" Index: \d+\.", "", text)


def without_index(text: str | None) -> str | None:
    return None if text is None else re.sub(r" Index: \d+\.", "", text)


FILES = {
    "a length changed at the start": (damage.corrupt_length(GOOD, 0), ""),
    "a length changed in the middle": (damage.corrupt_length(GOOD, 150), ""),
    "a payload changed at the start": (damage.corrupt_payload(GOOD, 0), ""),
    "a payload changed in the middle": (damage.corrupt_payload(GOOD, 150), ""),
    "a payload changed at the end": (damage.corrupt_payload(GOOD, 299), ""),
    "a payload changed inside gzip": (gzip.compress(damage.corrupt_payload(GOOD, 150)), "GZIP"),
    "cut in a payload": (GOOD[: OFFSETS[200] + 20], ""),
    "cut in a header": (GOOD[: OFFSETS[200] + 6], ""),
    "cut at a block": (GOOD[:4096], ""),
    "cut in a payload before gzip": (gzip.compress(GOOD[: OFFSETS[200] + 20]), "GZIP"),
    "cut in a header before gzip": (gzip.compress(GOOD[: OFFSETS[200] + 6]), "GZIP"),
    "zeros at the end before gzip": (gzip.compress(GOOD + bytes(4000)), "GZIP"),
    "random bytes": (bytes(range(1, 251)) * 20, ""),
    "a few bytes": (b"hello", ""),
    "gzip cut": (PACKED[: len(PACKED) // 2], "GZIP"),
    "gzip without its end": (PACKED[:-6], "GZIP"),
    "gzip with another checksum": (PACKED[:-8] + b"abcd" + PACKED[-4:], "GZIP"),
    "gzip and something behind it": (PACKED + b"junk junk", "GZIP"),
    "zeros at the end": (GOOD + bytes(4000), ""),
    "gzip read as plain": (PACKED, ""),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 1\n", ""),
    "a web page": (b"<!DOCTYPE html><html>no</html>", ""),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(99), ""),
}


@pytest.mark.parametrize("case", FILES)
def test_the_error_of_a_broken_file_is_tensorflows(tf: ModuleType, tmp_path: Path, case: str) -> None:
    data, compression = FILES[case]
    path = tmp_path / ("a.tfrecord.gz" if compression else "a.tfrecord")
    path.write_bytes(data)
    predicted = [each.tensorflow_error for each in rk.doctor(path).diagnoses]
    assert len(predicted) == 1
    try:
        for _ in tf.data.TFRecordDataset(str(path), compression_type=compression):
            pass
        said = None
    except tf.errors.OpError as failure:
        said = message_of(failure)
    assert predicted == [said]


def test_a_plain_file_read_as_gzip_fails_as_predicted(tf: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(GOOD)
    (diagnosis,) = rk.doctor(path).diagnoses
    with pytest.raises(tf.errors.DataLossError) as caught:
        list(tf.data.TFRecordDataset(str(path), compression_type="GZIP"))
    assert message_of(caught.value) == diagnosis.tensorflow_error


Case = tuple[Any, Any, str, str]
GOOD_ROW = {"y": [1]}

# What most records have, what the bad one has, what the spec says of it, and the diagnosis.
FEATURES: dict[str, Case] = {
    "a float label": ([1.0], [2.0], "FixedLenFeature([], tf.int64)", "H814"),
    "a float label, ragged": ([1.0], [2.0], "VarLenFeature(tf.int64)", "H814"),
    "ints read as floats": ([1, 2], [3, 4], "FixedLenFeature([2], tf.float32)", "H816"),
    "ints read as ragged floats": ([1, 2], [3], "RaggedFeature(tf.float32)", "H816"),
    "numbers as text": ([b"3"], [b"4"], "FixedLenFeature([], tf.int64)", "H817"),
    "a label by its name": ([b"cat"], [b"dog"], "FixedLenFeature([], tf.int64)", "H818"),
    "a name read as a float": ([b"cat"], [b"dog"], "FixedLenFeature([], tf.float32)", "H818"),
    "a label that was None": ([1], None, "FixedLenFeature([], tf.int64)", "H819"),
    "one float among ints": ([1], [1.0], "FixedLenFeature([], tf.int64)", "H820"),
    "one text among ints": ([1], [b"1"], "VarLenFeature(tf.int64)", "H820"),
    "a list for one value": ([1, 2, 3], [4, 5, 6], "FixedLenFeature([], tf.int64)", "H821"),
    "one value for a list": ([1.5], [2.5], "FixedLenFeature([4], tf.float32)", "H821"),
    "a ragged list": ([1, 2, 3, 4, 5], [1, 2, 3], "FixedLenFeature([5], tf.int64)", "H822"),
    "ragged texts": ([b"a", b"b"], [b"c"], "FixedLenFeature([2], tf.string)", "H822"),
    "a key that is missing": ([1], ..., "FixedLenFeature([], tf.int64)", "H823"),
    "numbers read as bytes": ([0.5, 1.5], [0.5, 2.5], "FixedLenFeature([], tf.string)", "H824"),
    "a stride that does not fit": (
        [1, 2, 3, 4],
        [1, 2, 3],
        "FixedLenSequenceFeature([2], tf.int64, allow_missing=True)",
        "H824",
    ),
}


@pytest.mark.parametrize("place", [0, 20, 39])
@pytest.mark.parametrize("case", FEATURES)
def test_the_error_of_a_feature_is_tensorflows(tf: ModuleType, tmp_path: Path, case: str, place: int) -> None:
    usual, bad, text, code = FEATURES[case]
    rows = [{**GOOD_ROW, "x": bad if i == place else usual} for i in range(40)]
    rows = [{key: value for key, value in row.items() if value is not ...} for row in rows]
    payloads = [wire.example_bytes(row) for row in rows]
    (tmp_path / "a.tfrecord").write_bytes(damage.frames(payloads))
    source = f'{{"x": tf.io.{text}, "y": tf.io.FixedLenFeature([], tf.int64)}}'
    (tmp_path / "reader.py").write_text(f"import tensorflow as tf\nSPEC = {source}\n")
    spec = eval(source, {"tf": tf})

    found = rk.doctor(tmp_path / "a.tfrecord", spec=f"{tmp_path / 'reader.py'}:SPEC")
    diagnosis = next(each for each in found.diagnoses if each.feature == "x")
    assert (diagnosis.code, diagnosis.severity) == (code, "error")
    failures = {}
    for i, payload in enumerate(payloads):
        try:
            tf.io.parse_example([payload], spec)
        except tf.errors.OpError as failure:
            failures[i] = message_of(failure)
    verdict = next(each for each in found.features if each.feature == "x")
    assert verdict.records_affected == len(failures)
    assert without_index(diagnosis.tensorflow_error) == failures[min(failures)]
    assert without_index(verdict.tensorflow_error) == failures[min(failures)]
    assert rk.doctor(tmp_path / "a.tfrecord", spec=spec).to_dict() == found.to_dict()

    assert found.spec is not None
    working = eval(found.spec, {"tf": tf})
    assert set(working) == ({"y"} if code == "H820" else {"x", "y"})
    tf.io.parse_example(payloads, working)
    if verdict.works is not None and code != "H820":
        assert rk.doctor(tmp_path / "a.tfrecord", spec=working).features[0].ok


@pytest.mark.parametrize("payload", [b"no message at all", b"\x0a\x7fabc"])
def test_the_error_of_a_payload_that_is_no_example_is_tensorflows(
    tf: ModuleType, tmp_path: Path, payload: bytes
) -> None:
    (tmp_path / "a.tfrecord").write_bytes(damage.frames([payload] * 5))
    spec = {"x": tf.io.FixedLenFeature([], tf.int64)}
    found = rk.doctor(tmp_path / "a.tfrecord", spec=spec)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf.io.parse_example([payload], spec)
    assert found.diagnoses[0].code in ("H811", "H813")
    assert found.diagnoses[0].tensorflow_error == message_of(caught.value)
