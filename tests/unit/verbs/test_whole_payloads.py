"""Records whose payloads are no Examples: counted, queried, exported, copied and read as they are."""

import base64
import gzip
import json
import os
import pickle
import re
import struct
from collections import Counter

import pyarrow.parquet as pq
import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.schema.interop.tfds import features_from_schema
from rekord.testing import corrupt_payload, example_bytes, frames, length_delimited, tag, wire

EXAMPLE = example_bytes({"label": [3], "name": [b"cat"]})
KINDS = {
    "ranking": [length_delimited(1, EXAMPLE) * (i + 1) + length_delimited(2, EXAMPLE) for i in range(12)],
    "event": [tag(1, wire.I64) + struct.pack("<d", i) + tag(2, wire.VARINT) + wire.varint(i) for i in range(12)],
    "text": [b"line %d" % i + b"!" * (5000 * (i == 7)) for i in range(12)],
    "proto": [tag(1, 0) + wire.varint(i) + length_delimited(2, b"testing") for i in range(12)],
    "bytes": [b"\xff\xd8\xff" + bytes([i]) * i for i in range(12)],
}
WHOLE = rk.Schema({"payload": rk.Payload()})


@pytest.fixture(params=KINDS)
def payloads(request):
    return KINDS[request.param]


@pytest.fixture
def path(payloads, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("data.tfrecord", "wb") as file:
        file.write(frames(payloads))
    return "data.tfrecord"


def stored(dataset):
    return [one for split in dataset.splits.values() for path in split.paths for one in rk.records(path)]


def test_they_are_counted_and_queried(path, payloads, capsys):
    assert run_command_line(["query", path, "select count(*) as n from records", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"columns": ["n"], "rows": [[12]]}
    assert said.err.startswith("note: payloads are ")
    assert said.err.rstrip().endswith("each is one value, `payload`")
    table = rk.query(path, "select _split, _record, _shard_record, payload from records where _record > 9")
    assert table.to_pydict() == {
        "_split": ["all"] * 2,
        "_record": [10, 11],
        "_shard_record": [10, 11],
        "payload": payloads[10:],
    }
    longest = rk.open(path)["all"].sql("select max(octet_length(payload)) as n from records")
    assert longest["n"].to_pylist() == [max(map(len, payloads))]


def test_they_are_read_as_bytes_in_any_order(path, payloads):
    split = rk.open(path)["all"]
    assert (split.schema, len(split), split[3]) == (WHOLE, 12, {"payload": payloads[3]})
    assert split[[5, 2]]["payload"].tolist() == [payloads[5], payloads[2]]
    assert [row["payload"] for row in split] == payloads
    read = [one for batch in split.batches(5) for one in batch["payload"].tolist()]
    assert read == payloads
    shuffled = [one for batch in split.batches(5, shuffle=True) for one in batch["payload"].tolist()]
    assert shuffled != payloads
    assert Counter(shuffled) == Counter(payloads)
    assert split.to_arrow()["payload"].to_pylist() == payloads
    again = pickle.loads(pickle.dumps(split))
    assert again[0]["payload"] == payloads[0]


def test_they_are_exported_as_they_are(path, payloads, capsys):
    assert run_command_line(["export", path, "out.jsonl"]) == 0
    assert capsys.readouterr().err.startswith("note: payloads are ")
    with open("out.jsonl") as file:
        rows = [json.loads(line) for line in file]
    assert [base64.b64decode(row["payload"]["base64"]) for row in rows] == payloads
    rk.export(path, "out.parquet")
    assert pq.read_table("out.parquet").to_pydict() == {"payload": payloads}


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_they_are_copied(path, payloads, compression):
    if compression:
        path = "data.tfrecord.gz"
        with open(path, "wb") as file:
            file.write(gzip.compress(frames(payloads)))
    made = rk.rewrite(path, "out", shards=3, compression="zlib", progress=False)
    assert (stored(made), made.schema, len(made["all"].paths)) == (payloads, WHOLE, 3)
    assert not os.path.exists("out/schema.pbtxt")
    assert rk.check("out").findings == []
    assert made["all"][7] == {"payload": payloads[7]}
    some = rk.rewrite("out", "some", where="_record in (2, 9) or octet_length(payload) > 4000", progress=False)
    longer = [i for i, one in enumerate(payloads) if len(one) > 4000]
    assert stored(some) == [payloads[i] for i in sorted({2, 9, *longer})]
    mixed = stored(rk.rewrite(path, "mixed", shuffle=True, progress=False))
    assert mixed != payloads
    assert Counter(mixed) == Counter(payloads)
    parts = rk.split(path, "parts", split={"a": 0.5, "b": 0.5}, progress=False)
    assert Counter(stored(parts)) == Counter(payloads)
    less = rk.delete("out", "less", records=[("all", 0), ("all", 11)], progress=False)
    assert stored(less) == payloads[1:-1]
    both = rk.rewrite(["out", "less"], "both", progress=False)
    assert stored(both) == payloads + payloads[1:-1]


def test_their_checksums_are_verified(path, payloads):
    with open(path, "wb") as file:
        file.write(corrupt_payload(frames(payloads), 4))
    for read in (lambda: rk.rewrite(path, "out", progress=False), lambda: rk.open(path)["all"][4]):
        with pytest.raises(rk.FrameError) as caught:
            read()
        where = caught.value.location
        assert (caught.value.code, where.path, where.record) == ("F102", path, 4)


def test_any_records_can_be_taken_as_they_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [{"label": i % 2, "x": i} for i in range(20)]
    rk.write(rows, "data", schema=rk.Schema({"label": rk.Label(2), "x": rk.Int64()}), progress=False)
    payloads = list(rk.records("data/train-00000-of-00001.tfrecord"))
    split = rk.open("data", kind="bytes")["train"]
    assert (split.schema, split[5]["payload"]) == (WHOLE, payloads[5])
    assert rk.decode(payloads[5], WHOLE) == {"payload": payloads[5]}
    assert rk.decode(payloads[5], kind="bytes") == payloads[5]
    table = rk.query("data", "select payload from records where _record = 5", kind="bytes")
    assert table["payload"].to_pylist() == [payloads[5]]
    assert (
        run_command_line(["query", "data", "select count(payload) as n from records", "--kind", "bytes", "--json"])
        == 0
    )
    said = capsys.readouterr()
    assert (json.loads(said.out)["rows"], said.err) == ([[20]], "")
    assert run_command_line(["rewrite", "data", "raw", "--kind", "bytes", "--shards", "2"]) == 0
    assert (stored(rk.open("raw")), rk.open("raw").schema) == (payloads, WHOLE)
    assert run_command_line(["export", "data", "raw.parquet", "--kind", "bytes"]) == 0
    assert pq.read_table("raw.parquet").to_pydict() == {"payload": payloads}
    capsys.readouterr()
    assert run_command_line(["show", "data", "--kind", "bytes", "-n", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"][0]["kind"] == "bytes"
    assert run_command_line(["infer", "data", "--kind", "bytes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["features"] == {"payload": {"type": "Payload"}}
    assert rk.rewrite("raw", "back", kind="example", progress=False).schema == WHOLE


def test_the_kind_of_records_can_be_forced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("a.tfrecord", "wb") as file:
        file.write(frames([b"", *KINDS["proto"]]))
    assert rk.open("a.tfrecord").schema == WHOLE
    assert rk.open("a.tfrecord", kind="example").schema == rk.Schema({})
    for wrong in ("event", 3):
        with pytest.raises(rk.UsageError) as caught:
            rk.open("a.tfrecord", kind=wrong)
        assert (caught.value.code, caught.value.expected) == ("U605", '"example", "sequence" or "bytes"')
    with pytest.raises(rk.UsageError) as caught:
        rk.open("a.tfrecord", schema=WHOLE, kind="example")
    assert (caught.value.code, caught.value.found) == ("U605", "a schema of unparsed payloads")


def test_what_needs_features_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with open("a.tfrecord", "wb") as file:
        file.write(frames(KINDS["event"]))
    for needs in (WHOLE.to_pbtxt, lambda: features_from_schema(WHOLE)):
        with pytest.raises(rk.SchemaError) as caught:
            needs()
        assert caught.value.code == "S127"
    assert run_command_line(["reader", "a.tfrecord", "--for", "tensorflow"]) == 3
    assert capsys.readouterr().err.startswith("SchemaError S127: a tf.io spec needs Examples")
    for options in (["--rename", "payload=data"], ["--cast", "payload=text"], ["--drop", "payload"]):
        assert run_command_line(["rewrite", "a.tfrecord", "out", *options]) == 2
        assert re.search(
            r"Error U605: (payloads that are not Examples have no columns|`--drop` cannot be used)",
            capsys.readouterr().err,
        )
    with pytest.raises(rk.UsageError) as caught:
        rk.encode({"payload": b"x"}, WHOLE)
    assert (caught.value.code, caught.value.found) == ("U605", "Payload(): unparsed payloads")
    with pytest.raises(rk.UsageError) as caught:
        rk.write("a.tfrecord", "out", progress=False)
    assert "rk.rewrite" in caught.value.do
    assert sorted(os.listdir(".")) == ["a.tfrecord"]


def test_a_schema_of_examples_contradicts_other_payloads(path, payloads):
    schema = rk.Schema({"label": rk.Int64()})
    assert not rk.check(path, schema=schema).ok
    assert rk.check(path, schema=WHOLE).findings == []
    assert [(one.severity, one.record) for one in rk.check(path).findings] == [("note", None)]


@pytest.mark.parametrize(
    "declare",
    [
        lambda: rk.Schema({"payload": rk.Payload(), "x": rk.Int64()}),
        lambda: rk.Schema(context={}, steps={"payload": rk.Payload()}),
        lambda: rk.Payload(shape=(2,)),
        lambda: rk.Payload(optional=True),
        lambda: rk.Payload(key="x"),
    ],
)
def test_a_payload_stands_alone(declare):
    with pytest.raises(rk.SchemaError) as caught:
        declare()
    assert caught.value.code == "S144"


def test_the_schema_survives_its_json_and_is_no_schema_of_bytes():
    assert rk.Schema.from_json(WHOLE.to_json()) == WHOLE
    assert repr(WHOLE) == "Schema({\n    'payload': Payload(),\n})"
    assert rk.Schema({"payload": rk.Bytes()}) != WHOLE
    assert rk.compat(rk.Schema({"payload": rk.Bytes()}), WHOLE).verdict == "breaking"
