"""Record files as rows."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.errors import RekordError
from rekord.sources.base import ColumnChunk, SourceRow, is_partitioned
from rekord.sources.records import RecordsSource, records
from rekord.testing import damage, wire

SCHEMA = rk.Schema(
    {
        "id": rk.Int64(),
        "small": rk.Int64((2,), dtype="int8"),
        "score": rk.Float32(),
        "half": rk.Float32((None,), dtype="float16"),
        "name": rk.Text(),
        "tags": rk.Text((None,)),
        "blob": rk.Bytes(optional=True),
        "hole": rk.Int64(optional=True),
        "cube": rk.Tensor("uint16", (2, None)),
        "tfidf": rk.Sparse("float32", size=50),
        "boxes": rk.Boxes(),
        "deep": rk.Int64((None, None), partitions=("deep/lengths",)),
        "label": rk.Label(["a", "b"]),
    }
)


def row(i: int) -> dict[str, Any]:
    return {
        "id": i,
        "small": [i % 100, -1],
        "score": i / 4,
        "half": [0.5] * (i % 3),
        "name": f"näme {i}",
        "tags": ["x"] * (i % 4),
        "blob": None if i % 2 else bytes([i % 256]),
        "hole": None if i % 3 else i,
        "cube": np.full((2, i % 3), i, np.uint16),
        "tfidf": ([1, 7], [0.5, float(i)]),
        "boxes": np.full((i % 2, 4), 0.25, np.float32),
        "deep": [[i], [], [1, 2]],
        "label": i % 2,
    }


def put(path: Path, rows: list[dict[str, Any]], schema: rk.Schema = SCHEMA, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with rk.Writer(path, schema, **options) as writer:
        for one in rows:
            writer.write(one)
    return path


def chunks(source: RecordsSource, part_bytes: int = 1 << 26) -> list[Any]:
    source = pickle.loads(pickle.dumps(source))
    return [chunk for part in source.parts(part_bytes) for chunk in source.read(part)]


def read(source: RecordsSource, part_bytes: int = 1 << 26) -> list[tuple[str, int, Any]]:
    out = []
    for chunk in chunks(source, part_bytes):
        if isinstance(chunk, SourceRow):
            out.append((chunk.path, chunk.position, chunk.values))
            continue
        for i in range(chunk.rows):
            values = {name: column[i] for name, column in chunk.values.items()}
            out.append((chunk.path, chunk.first + i, values))
    return out


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value.tolist() if hasattr(value, "tolist") else value


def ids(rows: list[tuple[str, int, Any]]) -> list[tuple[int, Any]]:
    """Positions, with the id of a good row or the code of a bad one."""
    return [(at, values.code if isinstance(values, RekordError) else plain(values["id"])) for _, at, values in rows]


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_every_value_comes_back_and_can_be_written_again(tmp_path, compression):
    given = [row(i) for i in range(300)]
    place = put(tmp_path / "x.tfrecord", given, compression=compression)
    source = records(place, SCHEMA)
    assert is_partitioned(source)
    got = read(source)
    assert [(path, at) for path, at, _ in got] == [("x.tfrecord", i) for i in range(300)]
    for one, (_, _, values) in zip(given, got, strict=True):
        assert plain(values["deep"]) == one["deep"]
        assert values["name"] == one["name"]
        assert plain(values["cube"]) == one["cube"].tolist()
        assert (values["blob"], plain(values["hole"])) == (one["blob"], one["hole"])
    again = tmp_path / "again.tfrecord"
    with rk.Writer(again, SCHEMA) as writer:
        for chunk in chunks(source):
            assert isinstance(chunk, ColumnChunk)
            writer.write_columns(chunk.values)
    assert list(rk.records(again)) == list(rk.records(place))


def test_sequences_come_back_too(tmp_path):
    schema = rk.Schema(
        context={"id": rk.Int64()},
        steps={"frame": rk.Bytes(), "tokens": rk.Int64((None,)), "v": rk.Float32((2,))},
    )
    given = [
        {"id": i, "frame": [b"f"] * i, "tokens": [[1] * j for j in range(i)], "v": [[0.5, i]] * i} for i in range(20)
    ]
    place = put(tmp_path / "s.tfrecord", given, schema)
    again = tmp_path / "again.tfrecord"
    with rk.Writer(again, schema) as writer:
        for chunk in chunks(records(place, schema)):
            writer.write_columns(chunk.values)
    assert list(rk.records(again)) == list(rk.records(place))


@pytest.mark.parametrize("part_bytes", [1, 3000, 1 << 30])
def test_any_size_of_parts_gives_the_same_rows(tmp_path, part_bytes):
    for i in range(4):
        put(tmp_path / "d" / "sub" / f"{i}.tfrecord", [row(10 * i + j) for j in range(5)])
    source = records(tmp_path / "d", SCHEMA)
    rows = read(source, part_bytes)
    assert [(path, at) for path, at, _ in rows] == [(f"sub/{i}.tfrecord", j) for i in range(4) for j in range(5)]
    assert [plain(values["id"]) for _, _, values in rows] == [10 * i + j for i in range(4) for j in range(5)]
    assert len(source.parts(1)) == 4
    assert len(source.parts(1 << 30)) == 1


def test_facts_say_what_the_files_are(tmp_path):
    place = put(tmp_path / "x.tfrecord", [row(0)])
    source = records(place, SCHEMA, splits={str(place): "train"})
    facts = source.facts()
    assert (facts.layout, facts.schema, facts.splits, facts.rows) == ("table", SCHEMA, ("train",), None)
    assert [(file.path, file.size_bytes) for file in facts.files] == [("x.tfrecord", place.stat().st_size)]
    assert facts.source_bytes == place.stat().st_size
    assert source.paths == (str(place),)
    assert json.dumps(dict(source.options()))
    [(_, _, values)] = read(source)
    assert values["split"] == "train"


def test_a_column_of_the_name_split_is_not_overwritten(tmp_path):
    schema = rk.Schema({"split": rk.Text()})
    place = put(tmp_path / "x.tfrecord", [{"split": "mine"}], schema)
    assert [values["split"] for _, _, values in read(records(place, schema))] == ["mine"]
    with pytest.raises(RekordError) as caught:
        records(place, schema, splits={str(place): "train"})
    assert (caught.value.code, caught.value.location.feature) == ("U605", "split")


def test_without_a_schema_nothing_can_be_read(tmp_path):
    place = put(tmp_path / "x.tfrecord", [row(0)])
    source = records(place)
    assert source.facts().schema is None
    with pytest.raises(rk.RekordError) as caught:
        read(source)
    assert (caught.value.code, caught.value.location.path) == ("X535", str(place))


def good_file(tmp_path: Path, count: int = 20) -> bytes:
    return put(tmp_path / "good.tfrecord", [row(i) for i in range(count)]).read_bytes()


@pytest.mark.parametrize("at", [0, 7, 19])
def test_a_damaged_payload_is_a_bad_row_among_good_ones(tmp_path, at):
    place = tmp_path / "x.tfrecord"
    place.write_bytes(damage.corrupt_payload(good_file(tmp_path), at))
    rows = read(records(place, SCHEMA))
    assert ids(rows) == [(i, "F102" if i == at else i) for i in range(20)]
    where = rows[at][2].location
    assert (where.path, where.record) == (str(place), at)
    assert where.offset is not None


@pytest.mark.parametrize("at", [0, 7])
def test_after_a_damaged_length_reading_goes_on_at_the_next_whole_record(tmp_path, at):
    place = tmp_path / "x.tfrecord"
    place.write_bytes(damage.corrupt_length(good_file(tmp_path), at))
    rows = read(records(place, SCHEMA))
    assert ids(rows) == [(i, "F101" if i == at else i) for i in range(20)]
    assert rows[at][2].location.record == at


def test_several_damages_in_one_file_are_each_a_bad_row(tmp_path):
    data = damage.corrupt_payload(damage.corrupt_payload(good_file(tmp_path), 2), 14)
    data = damage.corrupt_length(data, 9)
    place = tmp_path / "x.tfrecord"
    place.write_bytes(data)
    codes = {2: "F102", 9: "F101", 14: "F102"}
    assert ids(read(records(place, SCHEMA))) == [(i, codes.get(i, i)) for i in range(20)]


@pytest.mark.parametrize(("cut", "code"), [(20, "F104"), (3, "F104")])
def test_a_file_that_is_cut_ends_with_a_bad_row(tmp_path, cut, code):
    place = tmp_path / "x.tfrecord"
    place.write_bytes(good_file(tmp_path)[:-cut])
    rows = read(records(place, SCHEMA))
    assert ids(rows) == [*[(i, i) for i in range(19)], (19, code)]


def test_damaged_compression_ends_with_a_bad_row(tmp_path):
    data = gzip.compress(damage.corrupt_payload(good_file(tmp_path, 400), 5), mtime=0)
    place = tmp_path / "x.tfrecord.gz"
    place.write_bytes(data[: len(data) // 2])
    rows = ids(read(records(place, SCHEMA)))
    assert rows[5] == (5, "F102")
    assert rows[-1][1] == "C202"
    assert [at for at, _ in rows] == list(range(len(rows)))
    assert [one for _, one in rows[:-1] if one != "F102"] == [i for i in range(len(rows) - 1) if i != 5]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (wire.example_bytes({"other": [1]}), "D401"),
        (wire.example_bytes({"id": [0.5]}), "D403"),
        (wire.example_bytes({"id": [1, 2]}), "D402"),
        (b"\xff\xff", "W201"),
        (wire.example_bytes({"id": [300]}), "D405"),
    ],
)
def test_a_record_that_is_no_row_of_the_schema_is_a_bad_row(tmp_path, payload, code):
    schema = rk.Schema({"id": rk.Int64(dtype="uint8")})
    payloads = [wire.example_bytes({"id": [i]}) for i in range(5)]
    payloads[3] = payload
    place = tmp_path / "x.tfrecord"
    place.write_bytes(damage.frames(payloads))
    rows = read(records(place, schema))
    assert ids(rows) == [(i, code if i == 3 else i) for i in range(5)]
    where = rows[3][2].location
    assert (where.path, where.record, where.row) == (str(place), 3, None)
    assert where.offset == sum(16 + len(one) for one in payloads[:3])


def test_a_key_that_an_inferred_schema_lacks_is_bad_only_when_strict(tmp_path):
    place = tmp_path / "x.tfrecord"
    place.write_bytes(damage.frames([wire.example_bytes({"id": [1]}), wire.example_bytes({"id": [2], "z": [3]})]))
    schema = rk.Schema({"id": rk.Int64()})
    assert ids(read(records(place, schema))) == [(0, 1), (1, 2)]
    assert ids(read(records(place, schema, strict=True))) == [(0, 1), (1, "D408")]


@pytest.mark.parametrize("data", [b"PAR1" + bytes(100) + b"PAR1", b'{"a": 1}\n'])
def test_a_file_of_another_format_is_one_bad_row_that_names_it(tmp_path, data):
    place = tmp_path / "x.tfrecord"
    place.write_bytes(data)
    [(_, at, failure)] = read(records(place, SCHEMA))
    assert (at, failure.code[:2], failure.location.path) == (0, "F1", str(place))


def test_an_empty_file_has_no_rows(tmp_path):
    place = tmp_path / "x.tfrecord"
    place.write_bytes(b"")
    assert read(records(place, SCHEMA)) == []


def test_a_file_that_changed_since_is_said(tmp_path):
    place = put(tmp_path / "x.tfrecord", [row(0)])
    source = records(place, SCHEMA)
    place.write_bytes(place.read_bytes() * 2)
    with pytest.raises(rk.RekordError) as caught:
        read(source)
    assert (caught.value.code, caught.value.location.path) == ("X526", str(place))


def test_a_length_that_lies_costs_nothing(tmp_path):
    place = tmp_path / "x.tfrecord"
    header = struct.pack("<Q", 1 << 40)
    place.write_bytes(good_file(tmp_path, 2) + damage.claim_length(1 << 40, b"abc"))
    assert header in place.read_bytes()
    assert ids(read(records(place, SCHEMA))) == [(0, 0), (1, 1), (2, "F105")]


def test_a_tfds_folder_brings_its_schema_and_splits(tmp_path):
    schema = rk.Schema({"id": rk.Int64(), "label": rk.Label(["cat", "dog"])})
    for split, count in (("train", 3), ("test", 2)):
        rows = [{"id": i, "label": i % 2} for i in range(count)]
        put(tmp_path / f"pets-{split}.tfrecord-00000-of-00001", rows, schema)
    feature = "tensorflow_datasets.core.features."
    features = {
        "pythonClassName": feature + "features_dict.FeaturesDict",
        "featuresDict": {
            "features": {
                "id": {
                    "pythonClassName": feature + "tensor_feature.Tensor",
                    "tensor": {"shape": {}, "dtype": "int64", "encoding": "none"},
                },
                "label": {
                    "pythonClassName": feature + "class_label_feature.ClassLabel",
                    "classLabel": {"numClasses": "2"},
                },
            }
        },
    }
    splits = [{"name": "train", "shardLengths": ["3"]}, {"name": "test", "shardLengths": ["2"]}]
    (tmp_path / "features.json").write_text(json.dumps(features))
    (tmp_path / "label.labels.txt").write_text("cat\ndog\n")
    (tmp_path / "dataset_info.json").write_text(json.dumps({"name": "pets", "splits": splits}))
    source = records(tmp_path)
    facts = source.facts()
    assert (facts.schema, facts.rows, facts.splits) == (schema, 5, ("test", "train"))
    got = [(values["split"], plain(values["id"])) for _, _, values in read(source)]
    assert got == [("test", 0), ("test", 1), ("train", 0), ("train", 1), ("train", 2)]


def page(code: str) -> str:
    return (Path(__file__).parents[3] / "docs" / "errors" / f"{code}.md").read_text(encoding="utf-8")


def test_the_example_of_the_page_is_what_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "train.tfrecord", [row(0)])
    with pytest.raises(RekordError) as caught:
        read(records("train.tfrecord"))
    assert f"```text\n{caught.value.message}\n```" in page("X535")
