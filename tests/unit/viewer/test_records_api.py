import gzip
import json
import zlib

import numpy as np
import pytest
from viewer_client import open_viewer

import rekord as rk
from rekord.testing import (
    corrupt_length,
    corrupt_payload,
    example_bytes,
    frame_offsets,
    frames,
    sequence_bytes,
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))


def number_example(i):
    return example_bytes({"number": [i], "x": [i / 2], "name": [f"n{i}".encode()]})


def write_numbers(path, count=100):
    path.write_bytes(frames([number_example(i) for i in range(count)]))
    return path


def numbers_of(page):
    """The cells of the column `number`, None for records that cannot be read."""
    place = page["columns"].index("number")
    return [row["cells"][place]["value"] if row["cells"] else None for row in page["rows"]]


def test_rows_have_the_values_of_the_dataset_and_their_places_in_the_file(tmp_path):
    path = write_numbers(tmp_path / "x.tfrecord")
    split = rk.open(path)["all"]
    offsets = frame_offsets(path.read_bytes())
    with open_viewer(path) as viewer:
        viewer.wait()
        page = viewer.json("rows", first=40, count=5)
    assert (page["total"], page["complete"], page["first"]) == (100, True, 40)
    for i, row in enumerate(page["rows"], 40):
        assert (row["record"], row["file"], row["file_record"], row["offset"]) == (i, "x.tfrecord", i, offsets[i])
        cells = dict(zip(page["columns"], row["cells"], strict=True))
        assert cells["number"]["value"] == split[i]["number"]
        assert cells["x"]["value"] == split[i]["x"]
        assert cells["name"]["text"] == split[i]["name"].decode()


def test_the_last_of_many_records_is_read_without_those_before_it(tmp_path):
    path = write_numbers(tmp_path / "x.tfrecord", 20_000)
    with open_viewer(path) as viewer:
        status = viewer.wait()
        assert status["sides"][0]["splits"][0]["records"] == 20_000
        record = viewer.json("record", record=19_999)
        values = {one["name"]: one["value"] for one in record["features"]}
        assert values["number"]["value"] == 19_999
        assert (record["previous"], record["next"]) == (19_998, None)
        missing = viewer.get("record", record=20_000)
        assert (missing.status, missing.json["error"]["code"]) == (404, "U606")


def test_an_index_of_the_user_is_used_and_a_scan_is_cached(tmp_path):
    path = write_numbers(tmp_path / "x.tfrecord", 30_000)
    with open_viewer(path) as viewer:
        viewer.wait()
    [entry_path] = (tmp_path / "cache" / "index").glob("*.arrow")
    before = entry_path.read_bytes()
    with open_viewer(path) as viewer:
        viewer.wait()
        assert numbers_of(viewer.json("rows", first=29_999, count=1)) == [29_999]
    assert entry_path.read_bytes() == before


def test_a_record_lists_everything_about_its_frame_and_features(tmp_path):
    path = write_numbers(tmp_path / "x.tfrecord", 3)
    data = path.read_bytes()
    offset, end = frame_offsets(data)[1:3]
    with open_viewer(path) as viewer:
        viewer.wait()
        record = viewer.json("record", record=1)
        first = viewer.json("hex", record=1, first=0, count=16)
        rest = viewer.json("hex", record=1, first=16, count=10_000)
        value = viewer.json("hex", record=1, feature="name")
    assert record["frame"]["offset"] == offset
    assert record["frame"]["bytes"] == end - offset
    assert record["kind"] == "example"
    described = {one["name"]: (one["stored"], one["count"], one["type"]) for one in record["features"]}
    assert described == {"number": ("int64", 1, "Int64"), "x": ("float", 1, "Float32"), "name": ("bytes", 1, "Bytes")}
    assert bytes.fromhex(first["hex"] + rest["hex"]) == data[offset:end]
    assert [(part["name"], part["ok"]) for part in first["parts"]] == [
        ("length", None), ("length crc", True), ("payload", None), ("payload crc", True),
    ]  # fmt: skip
    assert bytes.fromhex(value["hex"]) == b"n1"


def test_keys_that_the_schema_does_not_have_are_listed_as_undeclared(tmp_path):
    path = write_numbers(tmp_path / "x.tfrecord", 3)
    schema = rk.Schema({"number": rk.Int64()})
    with open_viewer(rk.open(path, schema=schema)) as viewer:
        record = viewer.json("record", record=2)
        key = viewer.json("hex", record=2, feature="key:name")
    assert [one["name"] for one in record["features"]] == ["number"]
    assert [(one["key"], one["stored"]) for one in record["undeclared"]] == [("name", "bytes"), ("x", "float")]
    assert bytes.fromhex(key["hex"]) == b"n2"


def test_a_record_that_does_not_match_the_schema_is_marked_and_shown_without_it(tmp_path):
    path = write_numbers(tmp_path / "x.tfrecord", 3)
    with open_viewer(rk.open(path, schema=rk.Schema({"number": rk.Float32()}))) as viewer:
        record = viewer.json("record", record=0)
        row = viewer.json("rows", count=1)["rows"][0]
    assert (record["state"], record["error"]["code"]) == ("invalid", "D403")
    assert (row["state"], row["error"]["code"]) == ("invalid", "D403")
    assert [one["key"] for one in record["undeclared"]] == ["name", "number", "x"]


def test_numbers_that_json_cannot_hold_are_text(tmp_path):
    values = {"nan": [float("nan")], "inf": [float("-inf")], "big": [2**60 + 1]}
    (tmp_path / "x.tfrecord").write_bytes(frames([example_bytes(values)]))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        page = viewer.json("rows", count=1)
    cells = dict(zip(page["columns"], page["rows"][0]["cells"], strict=True))
    assert (cells["nan"]["value"], cells["inf"]["value"]) == ("NaN", "-Infinity")
    assert cells["big"]["value"] == str(2**60 + 1)


def test_steps_of_a_sequence_are_listed_with_their_values(tmp_path):
    payload = sequence_bytes({"id": [7]}, {"token": [[i] for i in range(5)]})
    (tmp_path / "x.tfrecord").write_bytes(frames([payload] * 3))
    row = rk.open(tmp_path / "x.tfrecord")["all"][1]
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        record = viewer.json("record", record=1)
    assert record["kind"] == "sequence"
    [listed] = record["steps"]
    assert (listed["name"], listed["count"]) == ("token", 5)
    assert [np.ravel(one.get("value", one.get("values")))[0] for one in listed["values"]] == np.ravel(
        row["token"]
    ).tolist()


def test_payloads_that_are_not_examples_are_shown_as_bytes(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(frames([b"\xff\x00raw", b"more"]))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        assert viewer.json("session")["sides"][0]["kind"] == "bytes"
        assert viewer.json("rows")["total"] == 2
        record = viewer.json("record", record=0)
    assert [one["name"] for one in record["features"]] == ["payload"]


def test_a_tensor_is_a_grid_of_its_numbers_or_of_means(tmp_path):
    values = np.arange(300 * 40, dtype=np.float32).reshape(1, 300, 40)
    schema = rk.Schema({"t": rk.Tensor(shape=(1, 300, 40), dtype="float32")})
    rk.write([{"t": values}], tmp_path / "d", schema=schema, progress=False)
    with open_viewer(tmp_path / "d") as viewer:
        exact = viewer.json("tensor", split="train", record=0, feature="t", rows=256, columns=64)
        small = viewer.json("tensor", split="train", record=0, feature="t", rows=3, columns=4)
    assert (exact["shape"], exact["slices"], exact["min"], exact["max"]) == ([1, 300, 40], 1, 0, 11_999)
    assert small["exact"] is False
    expected = values[0].reshape(3, 100, 4, 10).mean(axis=(1, 3))
    assert np.allclose(small["grid"], expected)


def test_damaged_records_keep_their_numbers_and_the_others_are_shown(tmp_path):
    data = corrupt_payload(frames([number_example(i) for i in range(50)]), 7)
    data = corrupt_length(data, 20)
    path = tmp_path / "x.tfrecord"
    path.write_bytes(data)
    with open_viewer(path) as viewer:
        status = viewer.wait()["sides"][0]["splits"][0]
        page = viewer.json("rows", count=50)
        record = viewer.json("record", record=7)
        layout = viewer.json("hex", record=7, count=64)
        value = viewer.get("thumb", record=7, feature="name")
    assert (status["state"], status["damaged"], status["records"]) == ("damaged", 2, 50)
    states = [row["state"] for row in page["rows"]]
    assert [i for i, state in enumerate(states) if state != "ok"] == [7, 20]
    assert numbers_of(page) == [None if i in (7, 20) else i for i in range(50)]
    assert record["error"]["code"] == "F102"
    assert (record["error"]["location"]["path"], record["error"]["location"]["record"]) == (str(path), 7)
    assert layout["parts"][3]["ok"] is False
    assert (value.status, value.json["error"]["code"]) == (422, "F102")


def test_damage_that_an_index_of_headers_cannot_see_is_found_when_the_record_is_read(tmp_path):
    payloads = [example_bytes({"x": [bytes([i]) * 200_000]}) for i in range(40)]
    path = tmp_path / "x.tfrecord"
    path.write_bytes(corrupt_payload(frames(payloads), 30))
    with open_viewer(rk.open(path, schema=rk.Schema({"x": rk.Bytes()}))) as viewer:
        assert viewer.wait()["sides"][0]["splits"][0]["damaged"] == 0
        assert [row["state"] for row in viewer.json("rows", first=29, count=3)["rows"]] == ["ok", "damaged", "ok"]
        assert viewer.json("status")["sides"][0]["splits"][0]["damaged"] == 1


def test_a_file_that_is_not_a_record_file_is_an_error_of_its_split(tmp_path):
    (tmp_path / "x.tfrecord").write_bytes(b"PK\x03\x04" + bytes(500))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        status = viewer.wait()["sides"][0]["splits"][0]
    assert (status["state"], status["error"]["location"]["path"]) == ("error", str(tmp_path / "x.tfrecord"))


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
def test_compressed_streams_show_their_records(tmp_path, compress):
    (tmp_path / "x.tfrecord").write_bytes(compress(frames([number_example(i) for i in range(200)])))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        later, before = viewer.json("rows", first=150, count=2), viewer.json("rows", first=3, count=1)
    assert numbers_of(later) + numbers_of(before) == [150, 151, 3]
    assert later["rows"][0]["stream"] is True


def test_only_the_front_of_a_long_compressed_stream_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("rekord.viewer.records.MAX_STREAM_BYTES", 3 << 20)
    payloads = [example_bytes({"i": [i], "x": [bytes(1 << 18)]}) for i in range(60)]
    (tmp_path / "x.tfrecord").write_bytes(gzip.compress(frames(payloads), 1))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        status = viewer.wait()["sides"][0]["splits"][0]
        assert status["state"] == "partial"
        assert "--compression none" in status["note"]
        assert viewer.json("rows", first=0, count=2)["rows"][1]["cells"][0]["text"] == "1"


def test_shards_of_a_dataset_are_numbered_as_one_split(tmp_path):
    rows = [{"i": i} for i in range(90)]
    rk.write(rows, tmp_path / "d", split={"train": 0.8, "val": 0.2}, shards=3, progress=False)
    dataset = rk.open(tmp_path / "d")
    with open_viewer(tmp_path / "d") as viewer:
        viewer.wait()
        session = viewer.json("session")["sides"][0]
        for name, split in dataset.splits.items():
            page = viewer.json("rows", split=name, count=200)
            assert [row["cells"][0]["value"] for row in page["rows"]] == [row["i"] for row in split]
        unnamed = viewer.get("rows")
    assert [(one["name"], one["files"]) for one in session["splits"]] == [("train", 3), ("val", 3)]
    assert (unnamed.status, unnamed.json["error"]["code"]) == (404, "X506")


def test_a_dataset_with_a_missing_shard_is_opened_and_the_problem_named(tmp_path):
    rk.write([{"i": i} for i in range(30)], tmp_path / "d", shards=3, progress=False)
    sorted((tmp_path / "d").glob("*.tfrecord"))[1].unlink()
    with open_viewer(tmp_path / "d") as viewer:
        status = viewer.wait()
        side = viewer.json("session")["sides"][0]
    assert side["error"]["code"] in ("X505", "X542", "X543", "X501")
    assert status["sides"][0]["splits"][0]["records"] == 20


def test_a_view_of_some_records_shows_these_under_their_own_numbers(tmp_path):
    path = write_numbers(tmp_path / "x.tfrecord")
    with open_viewer(rk.open(path)["all"].select([70, 3, 12])) as viewer:
        viewer.wait()
        page = viewer.json("rows")
    assert (page["total"], [row["record"] for row in page["rows"]]) == (3, [3, 12, 70])
    assert numbers_of(page) == [3, 12, 70]


def test_a_page_of_the_table_has_at_most_200_rows(tmp_path):
    path = write_numbers(tmp_path / "x.tfrecord", 300)
    with open_viewer(path) as viewer:
        viewer.wait()
        assert len(viewer.json("rows", count=100_000)["rows"]) == 200


def test_the_session_says_what_is_open(tmp_path):
    path = write_numbers(tmp_path / "x.tfrecord", 3)
    with open_viewer(path) as viewer:
        viewer.wait()
        session = viewer.json("session")
        page = viewer.get("")
    side = session["sides"][0]
    assert (side["name"], side["path"], side["declared"], side["kind"]) == ("x.tfrecord", str(path), False, "example")
    assert [(one["name"], one["view"], one["facet"]) for one in side["columns"]] == [
        ("name", "text", True), ("number", "number", True), ("x", "number", True),
    ]  # fmt: skip
    assert page.headers["content-type"].startswith("text/html")
    embedded = page.body.split(b'id="session">')[1].split(b"</script>")[0]
    assert json.loads(embedded)["stamp"] == session["stamp"]


def test_a_file_that_changes_while_it_is_open_is_reported(tmp_path):
    path = write_numbers(tmp_path / "x.tfrecord", 30)
    with open_viewer(path) as viewer:
        viewer.wait()
        write_numbers(path, 40)
        answer = viewer.get("record", record=5)
    assert (answer.status, answer.json["error"]["code"]) == (422, "X548")


def test_selecting_all_gives_the_numbers_of_the_set(tmp_path):
    path = write_numbers(tmp_path / "x.tfrecord", 30)
    with open_viewer(path) as viewer:
        viewer.wait()
        found = viewer.json("ids", sql="number % 10 = 3")
        few = viewer.json("ids", most=2)
    assert found == {"total": 3, "records": [["all", 3], ["all", 13], ["all", 23]]}
    assert few == {"total": 30, "records": [["all", 0], ["all", 1]]}


def test_text_that_is_not_utf8_does_not_break_the_answer(tmp_path):
    payload = example_bytes({"k": [b"\xff\xfe" * 40]})
    (tmp_path / "x.tfrecord").write_bytes(frames([payload]))
    with open_viewer(tmp_path / "x.tfrecord") as viewer:
        viewer.wait()
        cell = viewer.json("rows")["rows"][0]["cells"][0]
    assert cell["text"].startswith("0x ff fe")
