"""`rk.query`: what it answers, what it reads for that, and what it refuses."""

from __future__ import annotations

import _thread
import gc
import gzip
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from lifetimes import ended

import rekord as rk
from rekord.dataset.split import Split
from rekord.feeds.sql import answer, engine
from rekord.testing import corrupt_payload, example_bytes, frames, sequence_bytes

NAMES = ["cat", "dog", "owl"]
SCHEMA = rk.Schema(
    {
        "label": rk.Label(NAMES),
        "image/name": rk.Text(),
        'odd "name"': rk.Int64(),
        "select": rk.Float32(),
        "vec": rk.Float32(shape=(2,)),
        "tokens": rk.Int64(shape=(None,)),
        "half": rk.Tensor("float16", shape=(2,)),
        "blob": rk.Bytes(optional=True),
    }
)
ROWS = [
    {
        "label": i % 3,
        "image/name": f"{i}.jpg",
        'odd "name"': i,
        "select": i / 2,
        "vec": [i, 0.5],
        "tokens": [7] * (i % 4),
        "half": [i, 1],
        "blob": b"\xff%d" % i if i % 2 else None,
    }
    for i in range(60)
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rk.write(
        ROWS,
        tmp_path / "data",
        schema=SCHEMA,
        split={"train": 0.7, "val": 0.3},
        progress=False,
        workers=1,
        shards=2,
    )
    return tmp_path / "data"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """For each time that records are read: which columns, and of how many records."""
    requested: list[Any] = []
    request = Split.request

    def noted(self: Split, batch_size: int, **options: Any) -> Any:
        requested.append((options.get("columns"), len(self)))
        return request(self, batch_size, **options)

    monkeypatch.setattr(Split, "request", noted)
    return requested


def spoil_payloads(folder: Path) -> None:
    """Make every record unreadable, and leave where they begin as it was."""
    for path in folder.glob("*.tfrecord"):
        content = path.read_bytes()
        for record in range(len(list(rk.records(path)))):
            content = corrupt_payload(content, record)
        path.write_bytes(content)


def refused(path: Any, sql: Any, code: str = "U680") -> rk.RekordError:
    with pytest.raises(rk.UsageError) as caught:
        rk.query(path, sql)
    assert caught.value.code == code
    assert caught.value.do
    return caught.value


def test_a_query_counts_classes_over_all_splits(data: Path) -> None:
    answer = rk.query(data, "select label, count(*) as n from records group by 1 order by 1")
    assert isinstance(answer, pa.Table)
    assert answer.to_pydict() == {"label": [0, 1, 2], "n": [20, 20, 20]}


def test_each_split_is_a_table_and_one_can_be_chosen(data: Path) -> None:
    dataset = rk.open(data)
    train, val = len(dataset["train"]), len(dataset["val"])
    assert rk.query(data, "select count(*) as n from train").to_pydict() == {"n": [train]}
    assert rk.query(data, "select count(*) as n from records", split="val").to_pydict() == {"n": [val]}
    both = "select (select count(*) from train) as t, (select count(*) from val) as v"
    assert rk.query(data, both).to_pydict() == {"t": [train], "v": [val]}
    assert rk.query(dataset, "select count(*) as n from val").to_pydict() == {"n": [val]}
    missing = refused(data, "select * from vla")
    assert (missing.expected, missing.likely) == (
        "one of the tables `records`, `train`, `val`",
        "did you mean `val`?",
    )
    with pytest.raises(rk.DatasetError) as caught:
        rk.query(data, "select 1", split="test")
    assert caught.value.code == "X506"


def test_splits_can_be_joined_with_each_other(data: Path) -> None:
    found = rk.query(data, "select count(*) as n from train t join val v on t.label = v.label where v.label = 1")
    dataset = rk.open(data)
    counts = [Counter(dataset[name].to_arrow(columns=["label"])["label"].to_pylist()) for name in ("train", "val")]
    assert found.to_pydict() == {"n": [counts[0][1] * counts[1][1]]}


def test_every_kind_of_column_comes_as_it_was_written(data: Path) -> None:
    answer = rk.query(data, 'select * from records order by "odd ""name"""')
    assert answer.column_names == list(SCHEMA)
    assert answer.to_pylist() == ROWS


def test_where_records_lie_and_what_classes_are_called_is_told_where_it_is_named(data: Path) -> None:
    where = "_split, _record, _shard, _shard_record"
    answer = rk.query(data, f'select {where}, label_name, "image/name" from records')
    dataset = rk.open(data)
    for row in answer.to_pylist():
        shard = data / row["_shard"]
        assert row["_shard"].startswith(row["_split"])
        assert dataset[row["_split"]][row["_record"]]["image/name"] == row["image/name"]
        stored = rk.open(shard, schema=dataset.schema)[row["_shard_record"]]
        assert stored["image/name"] == row["image/name"]
        assert NAMES[int(stored["label"])] == row["label_name"]
    assert rk.query(data, "select * from records").column_names == list(SCHEMA)
    named = rk.query(data, "select * from val where _shard_record = 0 and label_name is not null")
    assert named.column_names == [*SCHEMA, "_shard_record", "label_name"]
    assert named["_shard_record"].to_pylist() == [0, 0]
    for name in ("train", "val"):
        numbers = rk.query(data, f"select _record from {name}")["_record"].to_pylist()
        assert numbers == list(range(len(dataset[name])))


def test_a_class_without_a_name_is_null(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(frames([example_bytes({"label": [i]}) for i in (0, 7, -1)]))
    schema = rk.Schema({"label": rk.Label(NAMES)})
    answer = rk.query(tmp_path / "a.tfrecord", "select label, label_name from records", schema=schema)
    assert answer.to_pydict() == {"label": [0, 7, -1], "label_name": ["cat", None, None]}


def test_a_column_of_the_records_goes_before_one_that_says_more(tmp_path: Path) -> None:
    rows = [{"label": 1, "label_name": "mine", "_SPLIT": 5}]
    schema = rk.Schema({"label": rk.Label(NAMES), "label_name": rk.Text(), "_SPLIT": rk.Int64()})
    rk.write(rows, tmp_path / "data", schema=schema, progress=False, workers=1)
    answer = rk.query(tmp_path / "data", "select label_name, _split from records")
    assert answer.to_pydict() == {"label_name": ["mine"], "_SPLIT": [5]}


def test_hostile_names_work_between_quotes(tmp_path: Path) -> None:
    names = ["a;b--", 'q"', "from", "ü", "x y", "a/b/c", "'", "line\nbreak", "Same", "same", "rk0c1", "*"]
    rows = [{name: 10 * i + place for place, name in enumerate(names)} for i in range(3)]
    (tmp_path / "a.tfrecord").write_bytes(
        frames([example_bytes({name: [value] for name, value in row.items()}) for row in rows])
    )
    schema = rk.Schema({name: rk.Int64() for name in names})
    whole = rk.query(tmp_path / "a.tfrecord", "from records", schema=schema)
    assert whole.column_names == [*names[:9], "same_1", *names[10:]]
    assert [list(row.values()) for row in whole.to_pylist()] == [list(row.values()) for row in rows]
    for place, name in enumerate(whole.column_names):
        quoted = '"' + name.replace('"', '""') + '"'
        answer = rk.query(tmp_path / "a.tfrecord", f"select {quoted} as found from records", schema=schema)
        assert answer.to_pydict() == {"found": [place, 10 + place, 20 + place]}


def test_only_the_columns_that_a_query_needs_are_decoded(data: Path, read: list[Any]) -> None:
    answer = rk.query(data, 'select max("select") as m from train')
    assert len(answer) == 1
    assert [columns for columns, _ in read] == [["select"]]
    read.clear()
    rk.query(data, "select * exclude (blob, vec, half, tokens) from val")
    assert [columns for columns, _ in read] == [["label", "image/name", 'odd "name"', "select"]]


def test_a_column_of_another_kind_does_not_matter_where_it_is_not_named(put_file: Any) -> None:
    path = put_file(frames([example_bytes({"n": [i], "bad": [b"text"]}) for i in range(9)]))
    schema = rk.Schema({"n": rk.Int64(), "bad": rk.Float32()})
    assert rk.query(path, "select sum(n)::int as s from records", schema=schema).to_pydict() == {"s": [36]}
    with pytest.raises(rk.DecodeError) as caught:
        rk.query(path, "select sum(bad) from records", schema=schema)
    assert (caught.value.location.path, caught.value.location.record) == (str(path), 0)
    assert caught.value.location.feature == "bad"


def test_what_the_index_knows_needs_no_record(data: Path, read: list[Any]) -> None:
    spoil_payloads(data)
    counts = rk.query(data, "select label_name, count(*) as n from records group by 1 order by 1")
    assert counts.to_pydict() == {"label_name": NAMES, "n": [20, 20, 20]}
    places = rk.query(data, "select _split, max(_record) as r from train where label = 2 group by 1")
    assert places["_split"].to_pylist() == ["train"]
    assert rk.query(data, "select count(*) as n from records").to_pydict() == {"n": [60]}
    assert read == []
    with pytest.raises(rk.FrameError) as caught:
        rk.query(data, 'select "image/name" from val')
    assert (caught.value.code, caught.value.location.record) == ("F102", 0)


def test_conditions_on_the_index_choose_the_records_that_are_read(data: Path, read: list[Any]) -> None:
    condition = """label = 1 and "image/name" != '4.jpg'"""
    answer = rk.query(data, f"""select "image/name" as n from records where {condition} order by len(n), n""")
    assert answer["n"].to_pylist() == [f"{i}.jpg" for i in range(1, 60, 3) if i != 4]
    assert sum(records for _, records in read) == 20
    read.clear()
    answer = rk.query(
        data, "select \"image/name\" from records where label_name = 'owl' and _split = 'val' and _record < 4"
    )
    assert [records for _, records in read] == [len(answer)]
    read.clear()
    assert len(rk.query(data, "select vec from records where _record = 3 and _split = 'train'")) == 1
    assert len(rk.query(data, "select vec from records where _shard_record = 3 and _split = 'train'")) == 2
    assert [records for _, records in read] == [1, 2]
    read.clear()
    assert len(rk.query(data, "select vec from records where label = 7")) == 0
    assert read == []


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("label in (0, 2)", [i for i in range(60) if i % 3 != 1]),
        ("label = 1 or n = 3", [i for i in range(60) if i % 3 == 1 or i == 3]),
        ("not (label = 1) and n < 9", [i for i in range(9) if i % 3 != 1]),
        ("label between 1 and 2 and label % 2 = 0", [i for i in range(60) if i % 3 == 2]),
        ("label > (select avg(label) from records)", [i for i in range(60) if i % 3 == 2]),
        ("label_name like 'c%' and blob is null", [i for i in range(60) if i % 6 == 0]),
        ("label_name = 'it''s' or label_name = 'x'' or ''1''=''1'", []),
        ("label is null", []),
        ("label = 1 and random() < 2", [i for i in range(60) if i % 3 == 1]),
    ],
)
def test_conditions_give_what_they_give_over_a_table(condition: str, expected: list[int], data: Path) -> None:
    named = f'select n from (select *, "odd ""name""" as n, label_name from records) where {condition}'
    assert sorted(rk.query(data, named)["n"].to_pylist()) == expected


def test_an_expression_that_changes_is_asked_once(data: Path, read: list[Any]) -> None:
    rk.query(data, "select vec from records where random() < 0.5")
    assert [records for _, records in read] == [len(split) for split in rk.open(data).splits.values()]


def repeated(row: dict[str, Any], times: int) -> bytes:
    """Many records alike, and one behind them that is damaged."""
    one = frames([example_bytes(row)])
    return one * times + corrupt_payload(one, 0)


def test_a_limit_ends_the_reading(put_file: Any) -> None:
    path = put_file(repeated({"n": [7]}, 200_000))
    answer = rk.query(path, "select n from records limit 3", schema=rk.Schema({"n": rk.Int64()}))
    assert answer["n"].to_pylist() == [7, 7, 7]


def test_a_large_answer_comes_batch_by_batch(put_file: Any) -> None:
    path = put_file(repeated({"n": [7], "text": [b"t" * 500]}, 60_000))
    schema = rk.Schema({"n": rk.Int64(), "text": rk.Bytes()})
    reader = rk.query(path, "select n, text from records", schema=schema, stream=True)
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema.names == ["n", "text"]
    first = reader.read_next_batch()
    assert (first["n"][0].as_py(), first["text"][0].as_py()) == (7, b"t" * 500)
    with pytest.raises(rk.FrameError) as caught:
        for _ in reader:
            pass
    assert (caught.value.code, caught.value.location.record) == ("F102", 60_000)


@pytest.mark.concurrency
def test_a_stream_that_is_left_behind_ends_its_threads(put_file: Any) -> None:
    path = put_file(repeated({"text": [b"t" * 500]}, 60_000))
    others = set(threading.enumerate())
    reader = rk.query(path, "select * from records", schema=rk.Schema({"text": rk.Bytes()}), stream=True)
    reader.read_next_batch()
    own = [one for one in set(threading.enumerate()) - others if one.name.startswith("rekord")]
    assert own
    del reader
    assert ended(own)


@pytest.mark.concurrency
def test_many_threads_can_ask_at_once(data: Path) -> None:
    found: list[Any] = []

    def ask(label: int) -> None:
        for _ in range(6):
            answer = rk.query(data, f"select count(vec) as n from records where label = {label}")
            found.append(answer["n"].to_pylist())

    threads = [threading.Thread(target=ask, args=(label,), daemon=True) for label in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [[20]] * 18


def test_plain_files_compressed_ones_and_patterns_are_asked_alike(tmp_path: Path) -> None:
    payloads = [example_bytes({"n": [i], "name": [b"row %d" % i]}) for i in range(40)]
    (tmp_path / "a.tfrecord").write_bytes(frames(payloads[:30]))
    (tmp_path / "b.tfrecord.gz").write_bytes(gzip.compress(frames(payloads[30:])))
    sql = "select count(*) as c, sum(n)::int as s, max(decode(name)) as m from records"
    for path in (tmp_path, tmp_path / "*.tfrecord*", [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord.gz"]):
        assert rk.query(path, sql).to_pydict() == {"c": [40], "s": [780], "m": ["row 9"]}
    where = "_split, _record, _shard, _shard_record"
    found = rk.query(tmp_path, f"select n, {where} from records where n in (29, 33) order by n")
    assert found.to_pydict() == {
        "n": [29, 33],
        "_split": ["all", "all"],
        "_record": [29, 33],
        "_shard": ["a.tfrecord", "b.tfrecord.gz"],
        "_shard_record": [29, 3],
    }
    one = rk.query(tmp_path, "select n from records where _shard_record = 2 and _shard = 'b.tfrecord.gz'")
    assert one.to_pydict() == {"n": [32]}
    assert rk.query(tmp_path / "b.tfrecord.gz", "select count(*) as c from records").to_pydict() == {"c": [10]}


def test_steps_of_sequences_are_lists(put_file: Any) -> None:
    path = put_file(frames([sequence_bytes({"id": [i]}, {"x": [[j] for j in range(i)]}) for i in range(4)]))
    answer = rk.query(path, "select id, len(x) as steps, list_sum(x)::int as s from records")
    assert answer.to_pydict() == {"id": [0, 1, 2, 3], "steps": [0, 1, 2, 3], "s": [None, 0, 1, 3]}


def test_compressed_shards_of_rekord_are_read_by_number(tmp_path: Path, read: list[Any]) -> None:
    rk.write(ROWS, tmp_path / "d", schema=SCHEMA, compression="gzip", progress=False, workers=1)
    answer = rk.query(tmp_path / "d", 'select "odd ""name""" as n from records where label = 2')
    assert answer["n"].to_pylist() == list(range(2, 60, 3))
    assert [records for _, records in read] == [20]


def test_no_records_can_be_asked(put_file: Any) -> None:
    answer = rk.query(put_file(b""), "select count(*) as n, max(label) as m from records", schema=SCHEMA)
    assert answer.to_pydict() == {"n": [0], "m": [None]}


def test_columns_that_duckdb_lacks_are_lists_or_wider_numbers(put_file: Any) -> None:
    path = put_file(frames([example_bytes({"long": [1.5] * 100_001, "n": [1]})]))
    schema = rk.Schema({"long": rk.Float32(shape=(100_001,)), "n": rk.Int64()})
    found = rk.query(path, "select len(long) as k, long[100001] as x from records", schema=schema)
    assert found.to_pydict() == {"k": [100_001], "x": [1.5]}
    assert rk.query(path, "select n from records", schema=schema).to_pydict() == {"n": [1]}


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select lable from records", 'Referenced column "lable" not found'),
        ("selekt 1", 'syntax error at or near "selekt"'),
        ("select * from other", "Table with name other does not exist"),
        ("select * from dataset", "Table with name dataset does not exist"),  # no variable of ours either
        ("select 1; select 2", "2 statements"),
        ("", "none"),
        ("-- only a remark", "none"),
        (b"select 1", "bytes"),
        ("select '\udcff'", "udcff"),
        ("select label from records where label = ?", "parameter"),
    ],
)
def test_what_is_no_query_is_said(sql: Any, said: str, data: Path) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.query(data, sql)
    failure = caught.value
    assert failure.code in ("U680", "U682")
    assert said in (failure.found or "")
    assert failure.do


def test_a_wrong_name_is_told_with_its_place_and_those_that_may_be_meant(data: Path) -> None:
    failure = refused(data, "select lable from records")
    assert failure.found == 'Referenced column "lable" not found in FROM clause! (at `lable from records`)'
    assert '"label"' in (failure.likely or "")


def test_a_value_that_fails_is_told_without_more_of_it_than_needed(put_file: Any) -> None:
    path = put_file(frames([example_bytes({"name": [b"x" * 500]})]))
    schema = rk.Schema({"name": rk.Text()})
    with pytest.raises(rk.UsageError) as caught:
        rk.query(path, "select cast(name as integer) from records", schema=schema)
    assert caught.value.code == "U682"
    assert "Could not convert string" in (caught.value.found or "")
    assert "x" * 61 not in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "copy records to 'stolen.csv'",
        "copy (select 1) to '/tmp/stolen.csv'",
        "attach 'stolen.db'",
        "install httpfs",
        "load httpfs",
        "export database 'stolen'",
        "create table t (a int)",
        "create or replace temp view records as select 1",
        "insert into records values (1)",
        "delete from records",
        "drop view records",
        "set threads = 4",
        "pragma database_list",
        "call pragma_version()",
        "explain select 1",
        "pivot records on label using count(*)",
        "select * from read_csv('secret.csv')",
        "select * from read_text('secret.csv')",
        "select * from read_blob('secret.csv')",
        "select * from read_parquet('secret.csv')",
        "select * from glob('*')",
        "select * from 'secret.csv'",
        "with d as (delete from records returning *) select * from d",
    ],
)
def test_a_query_reads_the_records_and_nothing_else(
    sql: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.csv").write_text("secret\n1\n", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(rk.UsageError) as caught:
        rk.query(data, sql)
    assert caught.value.code == "U680"
    assert sorted(tmp_path.rglob("*")) == before


def test_one_query_leaves_nothing_for_the_next(data: Path) -> None:
    rk.query(data, "select * from train limit 1")
    failure = refused(data, "select * from rk1")
    assert "rk1" in (failure.found or "")


def test_damage_met_by_a_query_is_said_as_everywhere(put_file: Any) -> None:
    data = frames([example_bytes({"n": [i]}) for i in range(12_000)])
    path = put_file(corrupt_payload(data, 11_000))
    with pytest.raises(rk.FrameError) as caught:
        rk.query(path, "select sum(n) from records", schema=rk.Schema({"n": rk.Int64()}))
    where = caught.value.location
    assert (caught.value.code, where.record, where.path) == ("F102", 11_000, str(path))


def test_a_schema_beside_an_open_dataset_is_refused(data: Path) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.query(rk.open(data), "select 1", schema=SCHEMA)
    assert caught.value.code == "U605"


def test_a_missing_duckdb_names_the_extra(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(rk.UsageError) as caught:
        rk.query(data, "select 1")
    assert (caught.value.code, caught.value.do) == ("U602", "pip install 'rekord[sql]'")


def test_tables_are_listed_by_the_names_that_queries_have_for_them(data: Path) -> None:
    assert rk.query(data, "show tables").to_pydict() == {"name": ["records", "train", "val"]}
    assert rk.query(data, "SHOW  ALL TABLES ;", split="val").to_pydict() == {"name": ["records", "val"]}


def test_a_split_may_have_any_name(tmp_path: Path) -> None:
    for name in ("rk0", "rkindex", "Records", "it's"):
        (tmp_path / f"{name}-00000-of-00001.tfrecord").write_bytes(frames([example_bytes({"n": [1]})] * 2))
    schema = rk.Schema({"n": rk.Int64()})
    assert rk.query(tmp_path, "select sum(n)::int as s from records", schema=schema).to_pydict() == {"s": [8]}
    assert rk.query(tmp_path, 'select sum(n) as s from "it\'s"', schema=schema)["s"].to_pylist() == [2]
    assert rk.query(tmp_path, "show tables", schema=schema)["name"].to_pylist() == ["it's", "records"]


@pytest.mark.parametrize("value", ["?", "$1", "$name"])
def test_a_parameter_without_a_value_is_said(value: str, data: Path) -> None:
    failure = refused(data, f"select * from records where label = {value}")
    assert failure.found == "a parameter, such as ? or $1"


@pytest.mark.parametrize(
    "sql",
    [
        "select label, count(*) as n from records group by 1 order by 1",
        "select r.label_name as name, min(r._record), max(_split) from records as r group by all order by 1",
        "select count(*) from val",
        "select LABEL as label, count(*) filter (where label > 0) from train group by 1 order by 1",
        "select distinct label % 2 as k from records order by k limit 1 offset 1",
        "select 'label_name' as text, label from records where label = 1 or label is null limit 2",
        'select max("image/name"), sum("odd ""name""") from records where label = 2 having count(*) > 1',
        "select case when label = 0 then 'a' else label_name end as c from train order by c limit 9",
        "select select_ from records",
        "select label from nowhere",
        "select records from records order by 1 limit 1",
        "select r from records r where r.label = 0 order by r limit 1",
        "select label from records where label = 'x'",
    ],
)
def test_a_query_that_is_simple_is_answered_as_any_other(
    sql: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def requested() -> Any:
        try:
            answer = rk.query(data, sql)
        except rk.RekordError as failure:
            return failure.message
        return answer.schema, answer.to_pylist()

    found = requested()
    monkeypatch.setattr(answer, "parse_simple_query", lambda *_: None)
    assert found == requested()


@pytest.mark.concurrency
def test_an_interrupt_while_records_are_read_comes_out(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    was_interrupted = threading.Event()

    class Connection:
        """A connection that notes when it is interrupted."""

        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def interrupt(self) -> None:
            was_interrupted.set()
            self._connection.interrupt()

    def read_slowly(self: Split, batch_size: int, **options: Any) -> Any:
        # As Ctrl-C does: to the main thread, which waits for this one.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert was_interrupted.wait(300)
        raise RuntimeError("the interrupt is raised instead of this")

    original = engine.InterruptibleRunner.__init__
    monkeypatch.setattr(engine.InterruptibleRunner, "__init__", lambda self, one: original(self, Connection(one)))
    monkeypatch.setattr(Split, "request", read_slowly)
    gc.collect()
    gc.disable()  # an interrupt that Python raises in a finalizer is lost, whoever's garbage it was
    try:
        with pytest.raises(KeyboardInterrupt):
            rk.query(data, 'select max("select") from records')
    finally:
        gc.enable()


@pytest.mark.concurrency
def test_an_interrupt_just_before_the_wait_ends_a_query() -> None:
    was_interrupted = threading.Event()

    def query() -> None:
        time.sleep(0.2)  # the main thread waits by then
        _thread.interrupt_main()  # unlike a signal to a thread that waits already, it ends no system call
        assert was_interrupted.wait(300)

    runner = engine.InterruptibleRunner(SimpleNamespace(interrupt=was_interrupted.set))
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(KeyboardInterrupt):
            runner.run(query)
    finally:
        gc.enable()
    assert was_interrupted.is_set()
    runner.close()


@pytest.mark.concurrency
def test_an_interrupt_while_a_query_is_submitted_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    was_interrupted = threading.Event()
    connection = SimpleNamespace(interrupt=was_interrupted.set)
    original = ThreadPoolExecutor.submit

    def submit(self: ThreadPoolExecutor, *arguments: Any) -> Any:
        original(self, *arguments)
        assert has_begun.wait(300)
        raise KeyboardInterrupt

    def query() -> None:
        has_begun.set()
        was_interrupted.wait(10)  # without the interrupt it ends too, but late

    has_begun = threading.Event()
    runner = engine.InterruptibleRunner(connection)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    with pytest.raises(KeyboardInterrupt):
        runner.run(query)
    assert was_interrupted.is_set()
    runner.close()
