"""`rk.export` to tables and text: what is in the files, and what is refused before any is written."""

from __future__ import annotations

import base64
import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather, ipc

import rekord as rk
from rekord.testing import damage, wire

SCHEMA = rk.Schema(
    {
        "id": rk.Int64(),
        "label": rk.Label(["cat", "dog"]),
        "score": rk.Float32(),
        "caption": rk.Text(optional=True),
        "tokens": rk.Int64((None,)),
        "vec": rk.Float32((3,)),
        "blob": rk.Bytes(),
    }
)
COLUMNS = ["id", "label", "score", "caption", "tokens"]


def row(i: int) -> dict[str, object]:
    return {
        "id": i,
        "label": i % 2,
        "score": i / 10,
        "caption": None if i % 3 == 0 else f'line one\nsaid "{i}", é',
        "tokens": list(range(i % 4)),
        "vec": [i, 0.1, -1],
        "blob": bytes([i, 255, 0]),
    }


@pytest.fixture
def dataset(tmp_path: Path) -> rk.Dataset:
    return rk.write([row(i) for i in range(20)], tmp_path / "ds", schema=SCHEMA, progress=False)


@pytest.fixture
def two_splits(tmp_path: Path) -> rk.Dataset:
    rows = [row(i) for i in range(40)]
    return rk.write(
        rows, tmp_path / "two", schema=SCHEMA, split={"train": 0.5, "val": 0.5}, split_by="id", progress=False
    )


def payloads(folder: Path) -> list[bytes]:
    return sorted(payload for path in folder.glob("*.tfrecord") for payload in rk.records(path))


def test_parquet_has_the_values_of_the_records(dataset: rk.Dataset, tmp_path: Path) -> None:
    report = rk.export(dataset, tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert (report.records, report.files, report.format) == (20, 1, "parquet")
    assert report.n_bytes == (tmp_path / "out.parquet").stat().st_size
    assert table.column_names == list(SCHEMA)
    assert table["id"].to_pylist() == list(range(20))
    assert table["caption"].to_pylist() == [row(i)["caption"] for i in range(20)]
    assert table["tokens"].to_pylist() == [row(i)["tokens"] for i in range(20)]
    assert np.array_equal(np.array(table["vec"].to_pylist(), np.float32)[3], np.array([3, 0.1, -1], np.float32))
    assert table.schema.field("vec").type == pa.list_(pa.field("element", pa.float32()), 3)


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow", "out.feather", "out.arrows"])
def test_a_table_that_is_written_again_gives_the_same_records(dataset: rk.Dataset, tmp_path: Path, name: str) -> None:
    rk.export(dataset, tmp_path / name)
    again = rk.write(tmp_path / name, tmp_path / "again", progress=False)
    assert again.schema == SCHEMA
    assert payloads(tmp_path / "again") == payloads(tmp_path / "ds")


def test_a_table_says_its_schema_only_while_its_columns_are_of_it(dataset: rk.Dataset, tmp_path: Path) -> None:
    rk.export(dataset, tmp_path / "out.parquet", columns=["id", "label"])
    table = pq.read_table(tmp_path / "out.parquet")
    assert rk.sources.parquet(tmp_path / "out.parquet").facts().schema["label"] == SCHEMA["label"]
    pq.write_table(table.rename_columns(["id", "other"]), tmp_path / "other.parquet")
    assert rk.sources.parquet(tmp_path / "other.parquet").facts().schema["other"] == rk.Int64()
    cast = table.set_column(1, "label", table["label"].cast(pa.int32()))
    pq.write_table(cast.replace_schema_metadata(table.schema.metadata), tmp_path / "cast.parquet")
    assert rk.sources.parquet(tmp_path / "cast.parquet").facts().schema["label"] == rk.Int64(dtype="int32")


def test_a_hole_that_was_put_into_an_exported_table_is_a_bad_row(dataset: rk.Dataset, tmp_path: Path) -> None:
    rk.export(dataset, tmp_path / "out.parquet", columns=["id", "vec"])
    table = pq.read_table(tmp_path / "out.parquet")
    ids = pa.chunked_array([[None if i == 7 else i for i in range(20)]], pa.int64())
    pq.write_table(table.set_column(0, "id", ids), tmp_path / "out.parquet")
    with pytest.raises(rk.EncodeError) as caught:
        rk.write(tmp_path / "out.parquet", tmp_path / "again", progress=False)
    assert (caught.value.code, caught.value.location.row, caught.value.location.feature) == ("E301", 7, "id")


def test_columns_of_an_exported_table_can_be_chosen(dataset: rk.Dataset, tmp_path: Path) -> None:
    rk.export(dataset, tmp_path / "out.parquet")
    source = rk.sources.parquet(tmp_path / "out.parquet", columns=["label", "vec"])
    again = rk.write(source, tmp_path / "again", progress=False)
    assert again.schema == rk.Schema({"label": SCHEMA["label"], "vec": SCHEMA["vec"]})
    assert again["train"][3]["vec"].tolist() == np.array([3, 0.1, -1], np.float32).tolist()


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow", "out.jsonl", "out.csv"])
def test_columns_come_in_the_order_that_was_asked_for(dataset: rk.Dataset, tmp_path: Path, name: str) -> None:
    rk.export(dataset, tmp_path / name, columns=["score", "label", "id"], limit=2)
    if name == "out.csv":
        assert (tmp_path / name).read_text() == "score,label,id\n0,0,0\n0.1,1,1\n"
    elif name == "out.jsonl":
        assert (tmp_path / name).read_text().splitlines()[1] == '{"score":0.1,"label":1,"id":1}'
    else:
        read = pq.read_table if name == "out.parquet" else feather.read_table
        table = read(tmp_path / name)
        assert table.column_names == ["score", "label", "id"]
        assert table["id"].to_pylist() == [0, 1]


def test_sequences_go_to_parquet_and_back(tmp_path: Path) -> None:
    schema = rk.Schema(
        context={"id": rk.Int64()},
        steps={"word": rk.Text(), "point": rk.Float32((2,)), "many": rk.Int64((None,))},
    )
    rows = [
        {"id": i, "word": ["a", "é"][:i], "point": [[i, 0.5]] * i, "many": [[1] * k for k in range(i)]}
        for i in range(3)
    ]
    rk.write(rows, tmp_path / "ds", schema=schema, progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out.parquet")
    again = rk.write(tmp_path / "out.parquet", tmp_path / "again", progress=False)
    assert again.schema == schema
    assert payloads(tmp_path / "again") == payloads(tmp_path / "ds")
    rk.export(tmp_path / "ds", tmp_path / "out.jsonl")
    last = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[2])
    assert last == {"id": 2, "word": ["a", "é"], "point": [[2, 0.5], [2, 0.5]], "many": [[], [1]]}


def test_an_arrow_stream_has_its_own_ending(dataset: rk.Dataset, tmp_path: Path) -> None:
    rk.export(dataset, tmp_path / "out.arrows")
    with pa.OSFile(str(tmp_path / "out.arrows")) as file:
        assert ipc.open_stream(file).read_all()["id"].to_pylist() == list(range(20))
    rk.export(dataset, tmp_path / "out.feather")
    assert feather.read_table(tmp_path / "out.feather")["id"].to_pylist() == list(range(20))


def test_a_view_and_a_mapped_split_go_to_tables(dataset: rk.Dataset, tmp_path: Path) -> None:
    rk.export(dataset["train"].select([5, 1]), tmp_path / "view.parquet", columns=["id"])
    assert pq.read_table(tmp_path / "view.parquet")["id"].to_pylist() == [5, 1]
    mapped = dataset["train"].map(lambda batch: {"twice": batch["id"] * 2})
    rk.export(mapped, tmp_path / "mapped.parquet")
    assert pq.read_table(tmp_path / "mapped.parquet")["twice"].to_pylist() == [2 * i for i in range(20)]
    with pytest.raises(rk.UsageError) as caught:
        rk.export(mapped, tmp_path / "mapped.jsonl")
    assert (caught.value.code, caught.value.what) == (
        "U605",
        "split with a `map` function cannot be written as jsonl",
    )
    kinds = dataset["train"].map(lambda batch: {"kind": pd.Categorical(["a", "b"] * 10)})
    rk.export(kinds, tmp_path / "kinds.parquet")
    assert pq.read_table(tmp_path / "kinds.parquet")["kind"].to_pylist() == ["a", "b"] * 10


def test_an_empty_split_is_an_empty_table(tmp_path: Path) -> None:
    with rk.Writer(tmp_path / "none.tfrecord", SCHEMA):
        pass
    for name in ("out.parquet", "out.csv", "out.jsonl", "out.arrow"):
        columns = COLUMNS if name == "out.csv" else None
        report = rk.export(tmp_path / "none.tfrecord", tmp_path / name, schema=SCHEMA, columns=columns)
        assert report.records == 0
    assert pq.read_table(tmp_path / "out.parquet").column_names == list(SCHEMA)
    assert (tmp_path / "out.csv").read_text() == "id,label,score,caption,tokens\n"
    assert (tmp_path / "out.jsonl").read_text() == ""


def test_json_lines_have_all_values_and_bytes_in_base64(dataset: rk.Dataset, tmp_path: Path) -> None:
    rk.export(dataset, tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows[1] == {
        "id": 1,
        "label": 1,
        "score": 0.1,
        "caption": 'line one\nsaid "1", é',
        "tokens": [0],
        "vec": [1.0, 0.1, -1.0],
        "blob": {"base64": base64.b64encode(bytes([1, 255, 0])).decode()},
    }
    assert "caption" not in rows[0]


def test_names_of_columns_are_written_as_json_has_them(tmp_path: Path) -> None:
    names = ['say "a"', "back\\slash", "new\nline", "é/b", "column_0"]
    schema = rk.Schema({name: rk.Int64(optional=True) for name in names})
    rows = [dict(zip(names, range(5), strict=True)), {names[0]: 1}]
    rk.write(rows, tmp_path / "ds", schema=schema, progress=False)
    for columns in (names, names[3:]):
        rk.export(tmp_path / "ds", tmp_path / "out.jsonl", columns=columns, overwrite=True)
        lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == [
            {name: value for name, value in row.items() if name in columns} for row in rows
        ]


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.ndjson"])
@pytest.mark.parametrize("labels", ["ids", "names"])
def test_json_lines_that_are_written_again_give_the_same_records(
    dataset: rk.Dataset, tmp_path: Path, name: str, labels: str
) -> None:
    rk.export(dataset, tmp_path / name, labels=labels)
    rk.write(tmp_path / name, tmp_path / "again", schema=SCHEMA, progress=False)
    assert payloads(tmp_path / "again") == payloads(tmp_path / "ds")


def test_what_is_not_base64_is_a_bad_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"blob": {"base64": "AP8="}}\n{"blob": {"base64": "not base64"}}\n')
    with pytest.raises(rk.EncodeError) as caught:
        rk.write(tmp_path / "a.jsonl", tmp_path / "out", progress=False)
    assert (caught.value.code, caught.value.location.line) == ("E355", 2)


@pytest.mark.parametrize(
    ("column", "schema"),
    [
        ("score", rk.Float32()),
        ("score", rk.Float32(optional=True)),
        ("score", rk.Float32((None,))),
        ("score", rk.Sparse("float32", size=9)),
        ("score", rk.Tensor("float64")),
    ],
)
def test_a_number_that_json_has_not_is_refused_with_its_record(
    tmp_path: Path, column: str, schema: rk.Float32
) -> None:
    def value(number: float) -> object:
        if isinstance(schema, rk.Sparse):
            return [3], [number]
        return [1.0, number] if schema.shape else number

    rows = [{column: value(1.0)}, {column: value(2.0)}, {column: value(float("nan"))}]
    rk.write(rows, tmp_path / "ds", schema=rk.Schema({column: schema}), progress=False)
    with pytest.raises(rk.DatasetError) as caught:
        rk.export(tmp_path / "ds", tmp_path / "out.jsonl")
    place = caught.value.location
    assert (caught.value.code, place.record, place.feature) == ("X560", 2, "score")
    assert (place.path or "").endswith(".tfrecord")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ds"]


def test_a_hole_is_no_nan(tmp_path: Path) -> None:
    schema = rk.Schema({"score": rk.Float32(optional=True)})
    rk.write([{"score": None}, {"score": 2.0}], tmp_path / "ds", schema=schema, progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == '{}\n{"score":2.0}\n'


def test_csv_quotes_texts_and_leaves_out_what_is_missing(dataset: rk.Dataset, tmp_path: Path) -> None:
    rk.export(dataset, tmp_path / "out.csv", columns=COLUMNS, labels="names")
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [one["id"] for one in rows] == [str(i) for i in range(20)]
    assert [one["label"] for one in rows[:2]] == ["cat", "dog"]
    assert [one["caption"] for one in rows] == [row(i)["caption"] or "" for i in range(20)]
    assert rows[3]["tokens"] == "[0,1,2]"
    assert rows[1]["score"] == "0.1"


def test_csv_tells_an_empty_text_from_a_missing_one(tmp_path: Path) -> None:
    schema = rk.Schema({"id": rk.Int64(), 'te"xt': rk.Text(optional=True)})
    rows = [{"id": 0, 'te"xt': ""}, {"id": 1, 'te"xt': None}]
    rk.write(rows, tmp_path / "ds", schema=schema, progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == 'id,"te""xt"\n0,""\n1,\n'


def test_csv_that_is_written_again_gives_the_same_records(dataset: rk.Dataset, tmp_path: Path) -> None:
    columns = ["id", "label", "score", "caption"]
    schema = rk.Schema({name: SCHEMA[name] for name in columns})
    rk.write([{k: row(i)[k] for k in columns} for i in range(20)], tmp_path / "d", schema=schema, progress=False)
    for name in ("out.csv", "out.csv.gz", "out.tsv"):
        rk.export(tmp_path / "d", tmp_path / name)
        rk.write(tmp_path / name, tmp_path / f"again-{name}", schema=schema, progress=False)
        assert payloads(tmp_path / f"again-{name}") == payloads(tmp_path / "d")
    assert gzip.decompress((tmp_path / "out.csv.gz").read_bytes()) == (tmp_path / "out.csv").read_bytes()


def test_csv_refuses_columns_that_fit_into_no_field(dataset: rk.Dataset, tmp_path: Path) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.export(dataset, tmp_path / "out.csv")
    assert (caught.value.code, caught.value.what, caught.value.location.feature) == (
        "U676",
        "`blob` cannot be written as CSV",
        "blob",
    )
    assert "columns=" in (caught.value.do or "")


def test_a_label_without_a_name_is_refused_with_its_record(tmp_path: Path) -> None:
    with rk.Writer(tmp_path / "a.tfrecord", rk.Schema({"label": rk.Int64()})) as writer:
        for label in (0, 1, 7):
            writer.write({"label": label})
    schema = rk.Schema({"label": rk.Label(["cat", "dog"])})
    with pytest.raises(rk.DatasetError) as caught:
        rk.export(tmp_path / "a.tfrecord", tmp_path / "out.csv", schema=schema, labels="names")
    assert (caught.value.code, caught.value.location.record) == ("X560", 2)
    rk.export(tmp_path / "a.tfrecord", tmp_path / "out.csv", schema=schema)
    assert (tmp_path / "out.csv").read_text() == "label\n0\n1\n7\n"


def test_one_file_takes_one_split(two_splits: rk.Dataset, tmp_path: Path) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.export(two_splits, tmp_path / "out.parquet")
    assert (caught.value.code, caught.value.what) == (
        "U676",
        "single file cannot hold 2 splits",
    )
    assert "train, val" in (caught.value.expected or "")
    rk.export(two_splits, tmp_path / "val.parquet", split="val")
    assert pq.read_table(tmp_path / "val.parquet").num_rows == len(two_splits["val"])


def test_a_folder_takes_a_file_for_each_split(two_splits: rk.Dataset, tmp_path: Path) -> None:
    report = rk.export(two_splits, tmp_path / "out", format="parquet")
    assert report.splits == {name: len(split) for name, split in two_splits.splits.items()}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["train.parquet", "val.parquet"]
    again = rk.write(tmp_path / "out" / "*.parquet", tmp_path / "again", progress=False)
    assert again.schema == SCHEMA
    assert payloads(tmp_path / "again") == payloads(tmp_path / "two")


def test_limit_takes_the_first_records_of_each_split(two_splits: rk.Dataset, tmp_path: Path) -> None:
    rk.export(two_splits, tmp_path / "out", format="jsonl", limit=3)
    for name, split in two_splits.splits.items():
        lines = (tmp_path / "out" / f"{name}.jsonl").read_text().splitlines()
        assert [json.loads(line)["id"] for line in lines] == [int(one["id"]) for one in split.take(3)]
    assert rk.export(two_splits["val"], tmp_path / "few.parquet", limit=2).records == 2


@pytest.mark.parametrize(
    ("out", "arguments", "code"),
    [
        ("out.xyz", {}, "U605: cannot determine the format from the name of the output"),
        (
            "out.csv",
            {"format": "parquet"},
            "U605: output name implies csv, but the format is parquet",
        ),
        (
            "out.parquet",
            {"format": "images"},
            "U605: output name implies parquet, but the format is images",
        ),
        ("out", {"format": "parket"}, "U605: `format` cannot be 'parket'"),
        ("out.parquet", {"labels": "names"}, "U605: `labels` does not apply to parquet"),
        ("out.parquet", {"shard_size": "1MB"}, "U605: `shard_size` does not apply to parquet"),
        ("out.jsonl", {"labels": "both"}, "U605: `labels` cannot be 'both'"),
        ("out.jsonl", {"labels": "names", "columns": ["id"]}, "U605: columns have no class names to write"),
        ("out.parquet", {"columns": ["lable"]}, "U605: `columns` cannot be 'lable'"),
        ("out.parquet", {"columns": []}, "U605: `columns` cannot be []"),
        ("out.parquet", {"limit": 0}, "U605: `limit` cannot be 0"),
        ("out.parquet", {"split": []}, "U605: `split` cannot be []"),
        ("out", {"split": [], "format": "images"}, "U605: `split` cannot be []"),
        ("out.parquet", {"split": 3}, "U605: `split` cannot be 3"),
        ("out.parquet", {"split": [None]}, "U605: `split` cannot be [None]"),
        ("out", {"format": "images"}, "U676: dataset lacks columns that a folder of images needs"),
        ("out", {"format": "coco"}, "U676: dataset lacks columns that COCO needs"),
        ("", {}, "U605: `out` cannot be ''"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    dataset: rk.Dataset, tmp_path: Path, out: str, arguments: dict[str, object], code: str
) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.export(dataset, str(tmp_path / out) if out else out, **arguments)
    assert str(caught.value).startswith(code)
    assert caught.value.do
    assert [path.name for path in tmp_path.iterdir()] == ["ds"]


def test_an_unknown_split_is_named(dataset: rk.Dataset, tmp_path: Path) -> None:
    with pytest.raises(rk.DatasetError) as caught:
        rk.export(dataset, tmp_path / "out.parquet", split="test")
    assert caught.value.code == "X506"


def test_a_damaged_record_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    good = damage.frames([wire.example_bytes({"id": [i]}) for i in range(30)])
    (tmp_path / "a.tfrecord").write_bytes(damage.corrupt_payload(good, 17))
    for name in ("out.parquet", "out.jsonl", "out.csv", "out.tar", "out.arrow"):
        with pytest.raises(rk.FrameError) as caught:
            rk.export(tmp_path / "a.tfrecord", tmp_path / name)
        assert (caught.value.code, caught.value.location.record) == ("F102", 17)
        assert (caught.value.location.path or "").endswith("a.tfrecord")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tfrecord"]
