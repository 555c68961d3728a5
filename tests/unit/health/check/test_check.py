"""`rk.check`: what a report says of good files, odd files and bad files."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from record_strategies import ints

import rekord as rk
from rekord.codes import CODES
from rekord.testing import (
    corrupt_payload,
    entry,
    example,
    example_bytes,
    feature,
    feature_list,
    float_list,
    frame_offsets,
    frames,
    length_delimited,
    sequence_bytes,
    sequence_example,
    tag,
    unknown,
)
from rekord.testing.wire import I64

PutFile = Callable[..., Path]

EXAMPLE = example_bytes({"label": [3], "name": [b"cat"]})
SEQUENCE = sequence_bytes({"id": [b"x"]}, {"frames": [[1.0], [2.0]]})
LIST_WITH_CONTEXT = length_delimited(1, EXAMPLE) * 2 + length_delimited(2, EXAMPLE)
EVENT = tag(1, I64) + bytes(8) + length_delimited(3, b"brain.Event:2")
TEXT = b"one line of text\n"
PROTO = tag(1, 0) + b"\x96\x01" + length_delimited(2, b"testing")
OTHER = b"\xff\xd8\xff\xe0 an image"


SPLIT = example(entry("pieces", ints(1, 2, chunks=[1, 1])))
TWO_KINDS = example(entry("both", feature(("float", float_list([0.5]))) + ints(2)))
NO_VALUE = example(entry("label", ints(3)) + entry("half", None))
TWICE = example(entry("twice", ints(1)) + entry("twice", ints(2)))
STRANGER = example(entry("label", unknown(9, 0) + ints(3)))
SWAPPED = example(entry("swapped", ints(1), swap=True))
BROKEN = example(entry("label", feature(("float", length_delimited(1, b"abc")))))


def said(report: rk.Report) -> list[tuple[str, str, int | None, str | None]]:
    """All findings but that the same record stands there several times, which most of these files are made of."""
    return [(f.code, f.severity, f.record, f.feature) for f in report.findings if f.code != "H789"]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (EXAMPLE, None),
        (b"", None),
        (SEQUENCE, None),
        (LIST_WITH_CONTEXT, "H711"),
        (EVENT, "H712"),
        (TEXT, "H713"),
        (PROTO, "H714"),
        (OTHER, "H715"),
    ],
    ids=["Example", "empty", "SequenceExample", "ELWC", "Event", "text", "proto", "unknown"],
)
def test_payloads_that_are_no_examples_are_noted_once(put_records: PutFile, payload: bytes, code: str | None) -> None:
    report = rk.check(put_records([payload] * 5))
    assert said(report) == ([] if code is None else [(code, "note", None, None)])
    assert (report.ok, report.records, report.payload_bytes) == (True, 5, 5 * len(payload))


@pytest.mark.parametrize("told", ["named", "manifest"])
def test_payloads_that_are_no_examples_are_an_error_where_a_schema_says_what_they_are(
    tmp_path: Path, told: str
) -> None:
    schema = rk.Schema({"a": rk.Int64()})
    rk.write([{"a": i} for i in range(5)], tmp_path / "data", schema=schema, progress=False)
    (shard,) = (tmp_path / "data").glob("*-of-*")
    shard.write_bytes(frames([b"hello %d" % i for i in range(5)]))
    report = rk.check(shard, schema) if told == "named" else rk.check(tmp_path / "data")
    (finding,) = [each for each in report.findings if each.code == "H713"]
    assert not report.ok
    assert (finding.severity, finding.path) == ("error", str(shard))
    assert finding.expected == "tf.train.Example, as declared in the schema"
    assert finding.do is not None


def test_a_good_report_has_all_its_fields(put_records: PutFile) -> None:
    report = rk.check(put_records([EXAMPLE, b""]))
    assert report.to_dict() == {
        "ok": True,
        "files": 1,
        "records": 2,
        "payload_bytes": len(EXAMPLE),
        "errors": 0,
        "unreadable": 0,
        "not_listed": 0,
        "findings": [],
    }


def test_a_finding_has_all_its_fields_and_is_json(put_file: PutFile) -> None:
    data = frames(example_bytes({"label": [i]}) for i in range(3))
    path = put_file(corrupt_payload(data, 1))
    at = frame_offsets(data)
    report = rk.check(path)
    (found,) = json.loads(json.dumps(report.to_dict()))["findings"]
    assert found["code"] == "F102"
    assert found["severity"] == "error"
    assert found["path"] == str(path)
    assert (found["record"], found["offset"], found["feature"], found["count"]) == (1, at[1], None, 1)
    assert found["message"] == CODES["F102"] == "payload checksum does not match"
    assert found["likely"] == f"bytes changed after writing: the next frame, at byte {at[2]}, is intact"
    assert report.findings[0].do
    assert (report.ok, report.errors, report.records) == (False, 1, 2)


def test_a_payload_that_protobuf_refuses_is_an_error_at_its_record(put_records: PutFile) -> None:
    payloads = [EXAMPLE, BROKEN, EXAMPLE]
    report = rk.check(put_records(payloads))
    assert said(report) == [("W206", "error", 1, None)]
    assert report.findings[0].offset == frame_offsets(frames(payloads))[1]
    assert (report.ok, report.records) == (False, 3)


@pytest.mark.parametrize(
    ("payload", "code", "feature_name"),
    [
        (SPLIT, "H721", "pieces"),
        (TWO_KINDS, "H722", "both"),
        (NO_VALUE, "H723", "half"),
        (TWICE, "H724", "twice"),
        (STRANGER, "H725", "label"),
        (SWAPPED, None, None),
    ],
)
def test_what_tensorflow_reads_otherwise_is_one_warning_a_feature(
    put_records: PutFile, payload: bytes, code: str | None, feature_name: str | None
) -> None:
    report = rk.check(put_records([EXAMPLE, payload, EXAMPLE, payload, payload]))
    assert report.ok
    assert said(report) == ([] if code is None else [(code, "warning", 1, feature_name)])
    if code is not None:
        assert report.findings[0].count == 3
        assert report.findings[0].offset == len(EXAMPLE) + 16


def test_a_swapped_entry_matters_in_a_sequence(put_records: PutFile) -> None:
    steps = feature_list([ints(1)])
    swapped = sequence_example(None, entry("s", steps, swap=True))
    report = rk.check(put_records([SEQUENCE, swapped]))
    assert [(f.code, f.severity, f.record) for f in report.findings] == [("H723", "warning", 1)]


def test_examples_without_steps_among_sequences_are_sequences(put_records: PutFile) -> None:
    assert said(rk.check(put_records([EXAMPLE, SEQUENCE, b"", EXAMPLE]))) == []


def test_a_payload_of_another_kind_than_the_rest_is_named(put_records: PutFile) -> None:
    payloads = [EXAMPLE, EXAMPLE, EVENT, EXAMPLE]
    report = rk.check(put_records(payloads))
    assert said(report) == [("H716", "warning", 2, None)]
    assert report.findings[0].offset == frame_offsets(frames(payloads))[2]
    assert report.findings[0].found == "event"
    assert report.ok


def test_empty_payloads_do_not_say_what_a_file_holds(put_records: PutFile) -> None:
    assert said(rk.check(put_records([b""] * 10 + [TEXT]))) == [("H713", "note", None, None)]


@pytest.mark.parametrize(
    "name",
    [
        "x.tfrecord.gz",
        "x.tfrecord.zz",
        "X.TFRECORD.GZ",
        "x.tfrecord.gz-00000-of-00003",
        "x.tfrecord.zlib-00000-of-00003",
        "x-00000-of-00003.tfrecord.gz",
        "x.gz.tfrecord",
    ],
)
def test_a_name_that_says_compression_is_believed_and_a_false_one_is_a_warning(put_file: PutFile, name: str) -> None:
    data = frames([EXAMPLE])
    report = rk.check(put_file(data, name))
    assert (said(report), report.ok) == ([("H701", "warning", None, None)], True)
    assert said(rk.check(put_file(gzip.compress(data), name))) == []


@pytest.mark.parametrize("name", ["gz.tfrecord", "x-00000-of-00003", "x.tfrecord-00000-of-00003", "x.gz.old"])
def test_a_name_that_does_not_say_compression_is_a_note(put_file: PutFile, name: str) -> None:
    data = frames([EXAMPLE])
    assert said(rk.check(put_file(gzip.compress(data), name))) == [("H702", "note", None, None)]
    assert said(rk.check(put_file(data, name))) == []


def test_compression_that_the_name_does_not_tell_is_noted_with_what_to_do(put_file: PutFile) -> None:
    data = frames([EXAMPLE])
    for compressed, name in ((gzip.compress(data), "GZIP"), (zlib.compress(data), "ZLIB")):
        report = rk.check(put_file(compressed))
        assert said(report) == [("H702", "note", None, None)]
        assert report.findings[0].do == f'tf.data.TFRecordDataset(files, compression_type="{name}")'
        assert said(rk.check(put_file(compressed, "x.tfrecord.gz"))) == []


def test_a_file_without_records_is_noted(put_file: PutFile) -> None:
    for data, name in ((b"", "x.tfrecord"), (b"", "x.tfrecord.gz"), (gzip.compress(b""), "y.tfrecord.gz")):
        report = rk.check(put_file(data, name))
        assert said(report) == [("H703", "note", None, None)]
        assert (report.ok, report.files, report.records) == (True, 1, 0)


def test_findings_beyond_the_limit_are_counted_and_still_decide(put_records: PutFile) -> None:
    path = put_records([*(example_bytes({"label": [i]}) for i in range(10)), *[BROKEN] * 9])
    report = rk.check(path, max_findings=4)
    assert (len(report.findings), report.not_listed, report.errors) == (4, 5, 9)
    assert [finding.record for finding in report.findings] == [10, 11, 12, 13]
    assert not report.ok
    none = rk.check(path, max_findings=0)
    assert (none.findings, none.not_listed, none.ok) == ([], 9, False)
    everything = rk.check(path, max_findings=None)
    assert (len(everything.findings), everything.not_listed) == (9, 0)


def test_every_file_of_a_folder_is_checked_and_named(put_file: PutFile, tmp_path: Path) -> None:
    data = [frames(example_bytes({"label": [i]}) for i in range(first, first + 3)) for first in (0, 3, 6)]
    put_file(data[0], "a.tfrecord")
    bad = put_file(corrupt_payload(data[1], 0), "b.tfrecord")
    put_file(data[2], "c.tfrecord")
    page = put_file(b"<!DOCTYPE html><html></html>", "d.tfrecord")
    report = rk.check(tmp_path)
    assert (report.files, report.records, report.errors) == (4, 8, 2)
    assert [(f.code, f.path) for f in report.findings] == [("F102", str(bad)), ("F111", str(page))]
    assert rk.check(tmp_path / "[ac]*").ok
    assert rk.check([tmp_path / "a.tfrecord", tmp_path / "c.tfrecord"]).files == 2


def test_a_missing_path_is_an_error_and_not_a_finding(tmp_path: Path) -> None:
    with pytest.raises(rk.DatasetError) as caught:
        rk.check(tmp_path / "nothing")
    assert (caught.value.code, caught.value.location.path) == ("X501", str(tmp_path / "nothing"))


def test_a_file_that_cannot_be_read_is_a_finding_among_others(
    put_file: PutFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from faulty_storage import FaultyStorage

    from rekord.storage import local

    put_file(frames([EXAMPLE]), "a.tfrecord")
    broken = put_file(frames([EXAMPLE]), "b.tfrecord")
    real = local.LocalStorage.open_read

    class RealStorage(local.LocalStorage):
        open_read = real

    def open_read(self: local.LocalStorage, path: str) -> local.Readable:
        if path != str(broken):
            return real(self, path)
        return FaultyStorage(RealStorage(), fail_read_at=1).open_read(path)

    monkeypatch.setattr(local.LocalStorage, "open_read", open_read)
    report = rk.check(tmp_path)
    assert [(f.code, f.severity, f.path) for f in report.findings] == [("X503", "error", str(broken))]
    assert (report.files, report.records) == (2, 1)
