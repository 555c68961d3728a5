"""`split.sql`."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pages import messages

import rekord as rk
from rekord.dataset.batches import read_shard
from rekord.dataset.split import Split
from rekord.feeds import dataframes
from rekord.feeds.sql.tables import QueryTable
from rekord.testing import corrupt_payload, example_bytes, frames

SCHEMA = rk.Schema(
    {
        "label": rk.Label(["cat", "dog"]),
        "image/name": rk.Text(),
        'odd "name"': rk.Int64(),
        "vec": rk.Float32(shape=(2,)),
        "tokens": rk.Int64(shape=(None,)),
        "blob": rk.Bytes(optional=True),
    }
)


@pytest.fixture
def split(tmp_path: Path) -> rk.Split:
    rows = [
        {
            "label": i % 2,
            "image/name": f"{i}.jpg",
            'odd "name"': i,
            "vec": [i, 0.5],
            "tokens": [1] * i,
            "blob": b"x" if i else None,
        }
        for i in range(5)
    ]
    return rk.write(rows, tmp_path / "data", schema=SCHEMA, progress=False, workers=1, shards=2)["train"]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The columns that each reading of records was asked for."""
    asked: list[Any] = []
    request = Split.request

    def noted(self: Split, batch_size: int, **options: Any) -> Any:
        asked.append(options.get("columns"))
        return request(self, batch_size, **options)

    monkeypatch.setattr(Split, "request", noted)
    return asked


def refused(call: Any) -> rk.RekordError:
    with pytest.raises(rk.UsageError) as caught:
        call()
    assert caught.value.code in ("U680", "U682")
    assert str(caught.value.do).startswith("split.sql(")
    return caught.value


def test_a_query_counts_classes(split: rk.Split) -> None:
    answer = split.sql("select label, count(*) as n from records group by 1 order by 1")
    assert answer.to_pydict() == {"label": [0, 1], "n": [3, 2]}


def test_only_the_columns_that_a_query_needs_are_decoded(split: rk.Split, decoded: list[Any]) -> None:
    answer = split.sql('select max("image/name") as m from records where label = 1')
    assert answer.to_pydict() == {"m": ["3.jpg"]}
    assert decoded[-1] == ["label", "image/name"]
    split.sql('select "odd ""name""" from records')
    assert decoded[-1] == ['odd "name"']
    split.sql("from records")
    assert decoded[-1] == list(SCHEMA)


def test_every_kind_of_column_can_be_asked_for(split: rk.Split) -> None:
    answer = split.sql("select len(tokens) as n, vec[1] as x, blob from records order by n")
    assert answer.to_pydict() == {
        "n": [0, 1, 2, 3, 4],
        "x": [0.0, 1.0, 2.0, 3.0, 4.0],
        "blob": [None, b"x", b"x", b"x", b"x"],
    }


def test_records_can_be_joined_with_themselves(split: rk.Split) -> None:
    answer = split.sql("select count(*) as n from records a join records b on a.label = b.label")
    assert answer.to_pydict() == {"n": [13]}


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("with x as (select vec from records) select count(*) as n from x", {"n": [5]}),
        ('select count(*) as n from (select "image/name" as a, tokens as b from records)', {"n": [5]}),
        ("select 1 as one from records where label = 0 or true limit 1", {"one": [1]}),
    ],
)
def test_a_column_may_be_named_and_not_be_needed(query: str, answer: dict[str, Any], split: rk.Split) -> None:
    assert split.sql(query).to_pydict() == answer


@pytest.mark.parametrize(
    "query",
    [
        "copy records to 'stolen.csv'",
        "create table t (a int)",
        "attach 'stolen.db'",
        "set threads = 4",
        "explain analyze create table t (a int)",
        "select * from read_csv('secret.csv')",
        "select * from read_text('secret.csv')",
        "select * from glob('*')",
    ],
)
def test_a_query_reads_the_records_and_nothing_else(
    query: str, split: rk.Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.csv").write_text("secret\n1\n", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(rk.UsageError) as caught:
        split.sql(query)
    assert (caught.value.code, bool(caught.value.do)) == ("U680", True)
    assert caught.value.what in (
        "query may only read the records of the dataset",
        "query may only read the records of the dataset",
    )
    assert "--output" not in (caught.value.do or "")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_query_without_records_reads_none(split: rk.Split) -> None:
    assert split.sql("select 1 + 1 as two").to_pydict() == {"two": [2]}


def test_views_and_balanced_splits_are_asked_as_they_are(split: rk.Split) -> None:
    assert split[:3].sql("select count(*) as n from records").to_pydict() == {"n": [3]}
    counts = split.balanced().sql("select label, count(*) as n from records group by 1 order by 1")
    assert counts.to_pydict() == {"label": [0, 1], "n": [3, 2]}


def test_a_mapped_split_has_the_columns_of_its_function(split: rk.Split) -> None:
    mapped = split.map(lambda batch: {"twice": batch["label"] * 2})
    assert mapped.sql("select sum(twice) as s from records").to_pydict() == {"s": [4]}


def test_no_records_can_be_asked(put_file: Any) -> None:
    empty = rk.open(put_file(b""), schema=SCHEMA)
    assert empty.sql("select count(*) as n, max(label) as m from records").to_pydict() == {
        "n": [0],
        "m": [None],
    }


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select lable from records", 'Referenced column "lable" not found'),
        ("selekt 1", 'syntax error at or near "selekt"'),
        ("select * from other", "Table with name other does not exist"),
        ("select * from split", "Table with name split does not exist"),  # no variable of ours either
        ("select 1; select 2", "2 statements"),
        ("", "none"),
        ('select cast("image/name" as integer) from records', "Could not convert string"),
        (b"select 1", "bytes"),
    ],
)
def test_what_cannot_be_run_is_said(query: Any, said: str, split: rk.Split) -> None:
    failure = refused(lambda: split.sql(query))
    assert said in (failure.found or "")
    assert failure.do


def test_damage_met_by_a_query_is_said_as_everywhere(put_file: Any) -> None:
    data = frames([example_bytes({"n": [i]}) for i in range(20_000)])
    path = put_file(corrupt_payload(data, 19_000))
    split = rk.open(path, schema=rk.Schema({"n": rk.Int64()}))
    with pytest.raises(rk.FrameError) as caught:
        split.sql("select sum(n) from records")
    assert (caught.value.code, caught.value.location.record, caught.value.location.path) == (
        "F102",
        19_000,
        str(path),
    )


def _three_shards(tmp_path: Path, damaged: bool) -> tuple[rk.Split, list[Path]]:
    paths = [tmp_path / f"train-{shard:05}-of-00003.tfrecord" for shard in range(3)]
    for shard, path in enumerate(paths):
        data = frames([example_bytes({"n": [1000 * shard + i], "other": [b"x"]}) for i in range(1000)])
        path.write_bytes(corrupt_payload(data, 900) if damaged and shard == 1 else data)
    return rk.open(tmp_path, schema=rk.Schema({"n": rk.Int64(), "other": rk.Bytes()}))["train"], paths


def test_shards_that_are_read_side_by_side_give_their_rows_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, _ = _three_shards(tmp_path, damaged=False)
    read: list[int] = []

    def noted(request: Any, shard: int) -> Any:
        read.append(shard)
        return read_shard(request, shard)

    monkeypatch.setattr(dataframes, "read_shard", noted)
    found = split.sql("select n, _record, _shard_record from records")
    assert sorted(read) == [0, 1, 2]
    assert found["n"].to_pylist() == found["_record"].to_pylist() == list(range(3000))
    assert found["_shard_record"].to_pylist() == [*range(1000)] * 3


@pytest.mark.parametrize("query", ["select n from records limit 5", "select other, n from records"])
def test_a_limit_or_a_column_of_strings_reads_shard_after_shard(
    query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, _ = _three_shards(tmp_path, damaged=False)
    monkeypatch.setattr(dataframes, "read_shard", None)
    assert split.sql(query)["n"].to_pylist()[:5] == [0, 1, 2, 3, 4]


def test_damage_in_one_of_several_shards_is_located(tmp_path: Path) -> None:
    split, paths = _three_shards(tmp_path, damaged=True)
    with pytest.raises(rk.FrameError) as caught:
        split.sql("select sum(n) from records")
    assert caught.value.code == "F102"
    assert (caught.value.location.path, caught.value.location.record) == (str(paths[1]), 900)


@pytest.mark.concurrency
def test_a_failed_query_leaves_nothing_behind_for_the_garbage_collector(put_file: Any) -> None:
    # DuckDB's objects are not to end in whichever thread happens to collect garbage.
    path = put_file(corrupt_payload(frames([example_bytes({"n": [i]}) for i in range(3000)]), 2500))
    split = rk.open(path, schema=rk.Schema({"n": rk.Int64()}))
    gc.collect()
    gc.disable()
    try:
        with suppress(rk.FrameError):  # which keeps no traceback, unlike pytest
            split.sql("select sum(n) from records")
        assert not [one for one in gc.get_objects() if type(one) is QueryTable]
    finally:
        gc.enable()


def test_a_missing_duckdb_names_the_extra(split: rk.Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(rk.UsageError) as caught:
        split.sql("select 1")
    assert (caught.value.code, caught.value.do) == ("U602", "pip install 'rekord[sql]'")
    assert caught.value.message in messages("U602")


def test_views_say_where_their_records_lie(split: rk.Split) -> None:
    view = split.select([4, 1, 1, 3])
    everything = split.to_arrow(columns=["label", 'odd "name"']).to_pylist()
    expected = [everything[i] for i in (4, 1, 1, 3)]
    answer = view.sql('select label, "odd ""name""" from records')
    assert answer.to_pylist() == expected
    assert view.sql("select label from records")["label"].to_pylist() == [row["label"] for row in expected]
    places = view.sql("select _record, _shard, _shard_record, label_name from records").to_pylist()
    assert [place["_record"] for place in places] == [4, 1, 1, 3]
    for place, row in zip(places, expected, strict=True):
        path = next(path for path in split.paths if path.endswith(place["_shard"]))
        assert rk.open(path, schema=SCHEMA)[place["_shard_record"]]["label"] == row["label"]
        assert place["label_name"] == ["cat", "dog"][row["label"]]


def test_a_condition_on_the_index_chooses_within_a_view(split: rk.Split) -> None:
    view = split.select([4, 1, 1, 3, 0])
    rows = view.to_arrow(columns=["label", "image/name"]).to_pylist()
    for label in (0, 1):
        answer = view.sql(f'select "image/name" as n from records where label = {label}')
        assert answer["n"].to_pylist() == [row["image/name"] for row in rows if row["label"] == label]


def test_a_transformed_split_is_asked_for_what_its_transforms_make(split: rk.Split) -> None:
    halves = split.transform(rk.transforms.cast("label", "float32"))
    answer = halves.sql("select label, count(*) as n from records group by 1 order by 1")
    assert (str(answer.schema.field("label").type), answer.to_pydict()) == (
        "float",
        {"label": [0.0, 1.0], "n": [3, 2]},
    )


def test_rows_are_those_that_a_function_gives(split: rk.Split) -> None:
    mapped = split.map(lambda batch: {"first": batch["label"][:1]})
    assert mapped.sql("select count(*) as n from records").to_pydict() == {"n": [1]}
    assert "_record" in (refused(lambda: mapped.sql("select _record from records")).found or "")


def test_a_shape_that_arrow_has_no_list_for_is_a_schema_that_does_not_match(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames([example_bytes({"x": [1.0], "n": [1]})]))
    schema = rk.Schema({"x": rk.Float32(shape=(2**31,)), "n": rk.Int64()})
    with pytest.raises(rk.DecodeError) as caught:
        rk.open(path, schema=schema)["all"].sql("select n, x from records")
    assert (caught.value.code, caught.value.location.path, caught.value.location.record) == (
        "D402",
        str(path),
        0,
    )
