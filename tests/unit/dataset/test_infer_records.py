"""`infer` from record files and payloads."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rekord import _core
from rekord.dataset import infer as module
from rekord.dataset.infer import infer, infer_files
from rekord.errors import FrameError, RekordError, SchemaError, UsageError, WireError
from rekord.schema import Bytes, Feature, Float32, Int64, Payload, Schema
from rekord.schema.infer import assign_step_columns
from rekord.testing import corrupt_payload, example_bytes, frame_offsets, frames, sequence_bytes, wire
from rekord.testing.wire import entry, example, feature, features, int64_list

PutFile = Callable[..., Path]

INTS = [example_bytes({"a": [i]}) for i in range(10)]
JPEG, PNG = b"\xff\xd8\xff\xe0 jpeg", b"\x89PNG\r\n\x1a\n png"


def empty(kind: Any) -> bytes:
    return example(features([entry("a", feature((kind, b"")))]))


def evidence_of(payloads: list[bytes], key: str = "a") -> dict[str, Any]:
    found: dict[str, Any] = infer(payloads).evidence["features"][key]
    return found


@pytest.mark.parametrize(
    ("payloads", "declared"),
    [
        ([{"a": [1]}, {"a": [2]}], Int64()),
        ([{"a": [1, 2]}, {"a": [3, 4]}], Int64(shape=(2,))),
        ([{"a": [1]}, {"a": [3, 4]}], Int64(shape=(None,))),
        ([{"a": [0.5]}], Float32()),
        ([{"a": [b"x"]}], Bytes()),
        ([{"a": ["text stays bytes"]}], Bytes()),
        ([{"a": [b"x", b"y", b"z"]}], Bytes(shape=(3,))),
        ([{"a": [1]}, {}], Int64(optional=True)),
        ([{"a": None}, {"a": [1]}], Int64(optional=True)),
        ([{"a": [1, 2]}, {"a": None}], Int64(shape=(2,), optional=True)),
        ([{"a": None}], Bytes(shape=(None,), optional=True)),
        ([{"a": None}, {}], Bytes(shape=(None,), optional=True)),
        ([{"a": [1]}, {"a": [0.5]}], Int64()),
        ([{"a": [0.5, 0.5]}, {"a": [1]}], Float32(shape=(2,))),
    ],
)
def test_a_key_is_declared_by_what_all_records_have_in_common(
    payloads: list[dict[str, Any]], declared: Feature
) -> None:
    assert infer([example_bytes(row) for row in payloads]) == Schema({"a": declared})


@pytest.mark.parametrize(("kind", "declared"), [("int64", Int64), ("float", Float32), ("bytes", Bytes)])
def test_a_list_that_is_always_empty_keeps_its_kind(kind: str, declared: Any) -> None:
    assert infer([empty(kind)]) == Schema({"a": declared(shape=(None,))})
    assert infer([empty(kind), b""]) == Schema({"a": declared(shape=(None,), optional=True)})


def test_an_empty_list_beside_full_ones_makes_the_length_vary() -> None:
    assert infer([example_bytes({"a": [1]}), empty("int64")]) == Schema({"a": Int64(shape=(None,))})


def test_columns_are_sorted_by_the_bytes_of_their_keys() -> None:
    schema = infer([example_bytes({"b": [1], "é": [1]}), example_bytes({"a/x": [1], "a": [1]})])
    assert list(schema) == ["a", "a/x", "b", "é"]


def test_the_empty_key_is_no_column_but_is_in_the_evidence() -> None:
    schema = infer([example_bytes({"": [1], "a": [1]})])
    assert list(schema) == ["a"]
    assert schema.evidence["features"][""]["present"] == 1


def test_records_without_any_key_have_a_schema_without_columns() -> None:
    assert infer([b"", b""]) == Schema({})


def test_evidence_says_what_the_values_were() -> None:
    rows: list[dict[str, Any]] = [
        {
            "i": [3, -7],
            "f": [0.1, float("nan")],
            "t": [b"caf\xc3\xa9"],
            "j": [JPEG],
            "p": [PNG],
            "x": [b"\xff"],
        },
        {"i": [5], "f": [float("inf"), 2.0], "t": [b""], "j": [JPEG], "p": [PNG], "x": [b"\xff\xff"]},
        {"i": None},
    ]
    schema = infer([example_bytes(row) for row in rows])
    assert schema.evidence == {
        "records": 3,
        "complete": True,
        "features": {
            "f": {
                "present": 2,
                "kind": "float",
                "values": [2, 2],
                "min": 0.1,
                "max": 2.0,
                "nan": 1,
                "infinite": 1,
            },
            "i": {"present": 2, "kind": "int64", "unset": 1, "values": [1, 2], "min": -7, "max": 5},
            "j": {
                "present": 2,
                "kind": "bytes",
                "values": [1, 1],
                "bytes": [9, 9],
                "utf8": False,
                "format": "jpeg",
            },
            "p": {
                "present": 2,
                "kind": "bytes",
                "values": [1, 1],
                "bytes": [12, 12],
                "utf8": False,
                "format": "png",
            },
            "t": {"present": 2, "kind": "bytes", "values": [1, 1], "bytes": [0, 5], "utf8": True},
            "x": {"present": 2, "kind": "bytes", "values": [1, 1], "bytes": [1, 2], "utf8": False},
        },
    }


def test_evidence_takes_no_part_in_equality_and_is_left_behind_by_load(tmp_path: Path) -> None:
    schema = infer(INTS)
    schema.save(tmp_path / "schema.json")
    again = Schema.load(tmp_path / "schema.json")
    assert again == schema == Schema({"a": Int64()})
    assert (again.evidence, '"evidence"' in schema.to_json()) == (None, True)


def test_floats_that_are_all_nan_have_no_least_value() -> None:
    assert evidence_of([example_bytes({"a": [float("nan")]})]) == {
        "present": 1,
        "kind": "float",
        "values": [1, 1],
        "nan": 1,
    }


def test_kinds_that_differ_are_counted_and_the_first_that_differs_is_named(put_records: PutFile) -> None:
    first = put_records(INTS[:4], "a.tfrecord")
    second = put_records([*INTS[:2], example_bytes({"a": [0.5]}), example_bytes({"a": [b"x"]})], "b.tfrecord")
    schema = infer(first.parent)
    assert schema == Schema({"a": Int64()})
    seen = schema.evidence["features"]["a"]
    assert seen["kinds"] == {"int64": 6, "float": 1, "bytes": 1}
    assert seen["differs"] == {"kind": "float", "record": 2, "path": str(second)}


def test_of_a_key_that_stands_twice_the_last_value_counts() -> None:
    twice = [entry("a", feature(("int64", int64_list(values)))) for values in ([1, 2, 3], [4])]
    assert infer([example(features(twice))]) == Schema({"a": Int64()})


def test_a_sequence_has_context_and_steps() -> None:
    payloads = [
        sequence_bytes({"id": [1]}, {"frame": [[b"a"], [b"b"]], "score": [[0.5, 0.5]]}),
        sequence_bytes({"id": [2]}, {"frame": []}),
    ]
    schema = infer(payloads)
    assert schema == Schema(
        context={"id": Int64()}, steps={"frame": Bytes(), "score": Float32(shape=(2,), optional=True)}
    )
    assert schema.evidence["steps"]["frame"] == {
        "present": 2,
        "kind": "bytes",
        "steps": [0, 2],
        "values": [1, 1],
        "bytes": [1, 1],
        "utf8": True,
    }


def test_a_step_without_a_kind_is_a_step_without_values() -> None:
    payloads = [sequence_bytes({}, {"s": [[1], None]})]
    assert infer(payloads) == Schema(context={}, steps={"s": Int64(shape=(None,))})


def test_lists_that_never_had_a_step_can_be_anything() -> None:
    payloads = [sequence_bytes({}, {"s": []}), sequence_bytes({"a": [1]}, {})]
    assert infer(payloads, kind="sequence") == Schema(
        context={"a": Int64(optional=True)}, steps={"s": Bytes(shape=(None,), optional=True)}
    )


def test_a_name_in_context_and_steps_becomes_two_columns() -> None:
    schema = infer([sequence_bytes({"a": [1]}, {"a": [[0.5]], "b": [[1]]})])
    assert schema == Schema(context={"a": Int64()}, steps={"steps/a": Float32(key="a"), "b": Int64()})


def test_the_name_for_steps_avoids_those_that_are_taken() -> None:
    assert assign_step_columns(["a", "steps/a"], ["a", "steps/steps/a"]) == {
        "a": "steps/steps/steps/a",
        "steps/steps/a": "steps/steps/a",
    }
    assert assign_step_columns(["a", "steps/a"], ["steps/a", "a"]) == {
        "steps/a": "steps/steps/a",
        "a": "steps/steps/steps/a",
    }
    assert assign_step_columns(["a"], ["b"]) == {"b": "b"}


def test_examples_beside_sequences_are_sequences_without_steps(put_records: PutFile) -> None:
    folder = put_records(INTS, "a.tfrecord").parent
    put_records([sequence_bytes({"a": [1]}, {"s": [[1]]})], "b.tfrecord")
    assert infer(folder) == Schema(context={"a": Int64()}, steps={"s": Int64(optional=True)})


@pytest.mark.parametrize("kind", ["example", "sequence"])
def test_kind_says_how_to_read(kind: Any) -> None:
    schema = infer(INTS, kind=kind)
    assert schema.is_sequence == (kind == "sequence")
    assert list(schema) == ["a"]


def test_a_path_a_folder_a_pattern_a_list_and_a_compressed_file_are_read(put_records: PutFile) -> None:
    one = put_records(INTS, "a.tfrecord")
    two = one.with_name("b.tfrecord.gz")
    two.write_bytes(gzip.compress(frames([example_bytes({"b": [1]})])))
    both = Schema({"a": Int64(optional=True), "b": Int64(optional=True)})
    assert infer(one) == infer(str(one)) == Schema({"a": Int64()})
    assert infer(one.parent) == infer(f"{one.parent}/*.tfrecord*") == infer([one, str(two)]) == both
    assert infer(str(each) for each in (one, two)) == both


def test_payloads_may_come_from_a_generator() -> None:
    assert infer(payload for payload in INTS) == infer(map(bytearray, INTS)) == Schema({"a": Int64()})
    assert infer(map(memoryview, INTS)) == Schema({"a": Int64()})


@pytest.mark.parametrize(("limit", "complete"), [(1, False), (9, False), (10, True), (11, True), (None, True)])
def test_the_limit_counts_records_and_says_whether_more_were_there(
    put_records: PutFile, limit: int | None, complete: bool
) -> None:
    read = 10 if limit is None else min(limit, 10)
    for source in (put_records(INTS), INTS, iter(INTS)):
        evidence = infer(source, limit=limit).evidence
        assert (evidence["records"], evidence["complete"]) == (read, complete)
        assert evidence["features"]["a"]["max"] == read - 1


def test_a_limit_that_ends_a_file_leaves_the_next_one_unread(put_records: PutFile) -> None:
    paths = [str(put_records(INTS[:5], "a.tfrecord")), str(put_records(INTS[5:], "b.tfrecord"))]
    schema, complete = infer_files(paths, limit_records=5, limit_bytes=None)
    assert (schema.evidence["records"], complete) == (5, False)
    schema, complete = infer_files(paths, limit_records=6, limit_bytes=None)
    assert (schema.evidence["records"], complete) == (6, False)
    schema, complete = infer_files(paths)
    assert (schema.evidence["records"], complete) == (10, True)


def test_the_limit_in_bytes_is_reached_by_the_record_that_completes_it(put_records: PutFile) -> None:
    path = str(put_records(INTS))
    size = len(INTS[0])
    for limit, read in ((1, 1), (size, 1), (size + 1, 2), (10 * size, 10), (11 * size, 10)):
        schema, complete = infer_files([path], limit_records=None, limit_bytes=limit)
        assert (schema.evidence["records"], complete) == (read, read == 10)


def test_files_without_records_have_no_columns_when_opened_and_are_refused_when_inferred(
    put_records: PutFile,
) -> None:
    path = put_records([])
    assert infer_files([str(path)]) == (Schema({}), True)
    with pytest.raises(SchemaError) as caught:
        infer(path)
    assert (caught.value.code, caught.value.location.path) == ("S126", str(path))


def test_damage_is_an_error_with_its_place_but_not_beyond_the_limit(put_file: PutFile) -> None:
    data = frames(INTS)
    path = put_file(corrupt_payload(data, 4))
    with pytest.raises(FrameError) as caught:
        infer(path)
    where = caught.value.location
    assert (caught.value.code, where.path, where.record) == ("F102", str(path), 4)
    assert where.offset == frame_offsets(data)[4]
    assert infer(path, limit=4).evidence["complete"] is False


def test_a_payload_that_protobuf_refuses_is_an_error_with_its_place(put_records: PutFile) -> None:
    bad = INTS[0][:-1]
    path = put_records([*INTS, bad, *INTS])
    with pytest.raises(WireError) as caught:
        infer(path)
    where = caught.value.location
    assert (caught.value.code, where.path, where.record) == ("W202", str(path), 10)
    assert where.offset == sum(len(frames([payload])) for payload in INTS)
    with pytest.raises(WireError) as caught:
        infer([*INTS, bad])
    assert (caught.value.code, caught.value.location.record) == ("W202", 10)


RANKING = wire.length_delimited(1, INTS[0]) + wire.length_delimited(2, INTS[1])
EVENT = wire.tag(1, wire.I64) + struct.pack("<d", 1.5) + wire.tag(2, wire.VARINT) + wire.varint(3)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (RANKING, "ExampleListWithContext"),
        (EVENT, "tf.Event"),
        (b"a line of text", "plain text"),
        (b"\x08\x05\x12\x03abc\x1d\0\0\0\0", "another protobuf message"),
        (b"\xff\xd8\xff\xe0", "an unknown kind of message"),
    ],
)
def test_payloads_that_are_no_examples_are_called_by_their_name(
    put_records: PutFile, payload: bytes, said: str
) -> None:
    path = put_records([payload] * 3)
    for schema in (infer(path), infer([payload] * 3)):
        assert (schema.kind, schema) == ("bytes", Schema({"payload": Payload()}))
        assert (schema.evidence["records"], schema.evidence["complete"]) == (3, True)
        assert said in schema.evidence["features"]["payload"]["message"]


def test_files_of_examples_and_of_other_payloads_have_no_schema_together(
    tmp_path: Path,
) -> None:
    for name, payloads in {"a": INTS, "b": [EVENT] * 3, "c": INTS}.items():
        (tmp_path / f"{name}.tfrecord").write_bytes(frames(payloads))
    a, b, c = [tmp_path / f"{name}.tfrecord" for name in "abc"]
    for paths, found in (((a, b), "tf.Event"), ((b, c), "tf.train.Example")):
        with pytest.raises(SchemaError) as caught:
            infer(list(paths))
        assert (caught.value.code, caught.value.location.path) == ("S127", str(paths[1]))
        assert found in (caught.value.found or "")
        whole = infer(list(paths), kind="bytes")
        assert (whole.kind, whole.evidence["records"]) == ("bytes", 13)
        assert "message" not in whole.evidence["features"]["payload"]
    assert infer([a, c]).kind == "example"


def test_a_limit_counts_payloads_that_are_not_looked_into(put_records: PutFile) -> None:
    path = put_records([EVENT] * 5)
    evidence = infer(path, limit=3).evidence
    assert (evidence["records"], evidence["complete"]) == (3, False)
    assert infer(path, limit=5).evidence["complete"] is True


def test_too_many_keys_are_refused_with_the_record_that_had_one_too_many(
    put_records: PutFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", 5)
    payloads = [example_bytes({f"k{i}": [1]}) for i in range(9)]
    path = put_records(payloads)
    for source, place in ((path, str(path)), (payloads, None)):
        with pytest.raises(SchemaError) as caught:
            infer(source)
        where = caught.value.location
        assert (caught.value.code, where.path, where.record) == ("S128", place, 5)
    assert len(infer(path, limit=5)) == 5


def test_memory_does_not_grow_with_the_number_of_records() -> None:
    native = _core.Inference()
    for _ in range(3):
        for payload in INTS:
            assert native.add(payload, False) is None
    assert (native.records, list(native.context())) == (30, ["a"])


@pytest.mark.parametrize("limit", [0, -1, 1.5, "10", True])
def test_a_limit_that_is_no_number_of_records_is_refused(limit: Any) -> None:
    with pytest.raises(UsageError) as caught:
        infer(INTS, limit=limit)
    assert caught.value.code == "U605"


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        infer(INTS, kind="sequnce")  # type: ignore[arg-type]
    assert caught.value.code == "U605"


def test_something_else_among_payloads_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        infer([*INTS, {"a": 1}])
    assert (caught.value.code, caught.value.location.record) == ("S132", 10)


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RekordError) as caught:
        infer(tmp_path / "missing.tfrecord")
    assert caught.value.code == "X501"
