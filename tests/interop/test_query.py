"""Queries give what pandas and pyarrow give over the same records, for every kind of column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import rekord as rk
from rekord.schema.interop.tfds import build_tfds_files

SCHEMA = rk.Schema(
    {
        "count": rk.Int64(),
        "big": rk.Int64(dtype="uint64"),
        "flag": rk.Int64(dtype="bool"),
        "small": rk.Int64((2,), dtype="int8"),
        "score": rk.Float32(),
        "half": rk.Float32((2,), dtype="float16"),
        "text": rk.Text(),
        "words": rk.Text((None,)),
        "pair": rk.Bytes((2,)),
        "label": rk.Label(["cat", "dog", "été"]),
        "labels": rk.Label(["a", "b"], shape=(None,)),
        "boxes": rk.Float32((None, 4)),
        "cube": rk.Tensor("uint16", (2, 3)),
        "doubles": rk.Tensor("float64", (None, 2)),
        "sparse": rk.Sparse("float32", size=9),
        "maybe": rk.Int64(optional=True),
        "note": rk.Text(optional=True),
    }
)


def row(i: int) -> dict[str, Any]:
    rng = np.random.default_rng(i)
    return {
        "count": i - 5,
        "big": 2**64 - 1 - i,
        "flag": i % 2,
        "small": [i % 100, -1],
        "score": i / 8,
        "half": [i, 0.5],
        "text": f"t{i % 7}é",
        "words": ["w"] * (i % 3),
        "pair": [b"\xff", b"%d" % i],
        "label": int(rng.integers(3)),
        "labels": [0, 1][: i % 3],
        "boxes": rng.random((i % 2, 4)),
        "cube": rng.integers(0, 999, (2, 3)).astype("uint16"),
        "doubles": rng.random((i % 3, 2)),
        "sparse": ([1, 4], [0.5, i]),
        "maybe": i if i % 3 else None,
        "note": "n" if i % 5 else None,
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("query") / "data"
    rows = [row(i) for i in range(300)]
    rk.write(
        rows,
        out,
        schema=SCHEMA,
        split={"train": 0.8, "val": 0.2},
        index=["text", "count", "flag"],
        shards=3,
        progress=False,
        workers=1,
    )
    return out


@pytest.mark.parametrize("name", list(SCHEMA))
def test_a_column_is_what_pyarrow_has(name: str, data: Path) -> None:
    dataset = rk.open(data)
    expected = [v for split in dataset.splits.values() for v in split.to_arrow()[name].to_pylist()]
    assert rk.query(data, f'select "{name}" from records')[name].to_pylist() == expected
    beside = rk.query(data, f'select "{name}", count, label from records where label = 1 and count % 2 = 0')
    whole = rk.query(data, f'select "{name}", count, label from records').to_pylist()
    assert beside.to_pylist() == [one for one in whole if one["label"] == 1 and one["count"] % 2 == 0]


def test_groups_are_those_of_pandas(data: Path) -> None:
    frame = rk.open(data)["train"].to_pandas()
    by_text = frame.groupby(["label", "text"]).agg(n=("count", "size"), mean=("score", "mean")).reset_index()
    sql = "select label, text, count(*) as n, avg(score) as mean from train group by all order by 1, 2"
    found = rk.query(data, sql).to_pydict()
    assert found["n"] == by_text["n"].tolist()
    assert list(zip(found["label"], found["text"], strict=True)) == list(
        zip(by_text["label"], by_text["text"], strict=True)
    )
    np.testing.assert_allclose(found["mean"], by_text["mean"].to_numpy())


def test_columns_that_the_index_was_told_to_keep_need_no_record(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "select text, sum(count)::bigint as s, bool_or(flag) as f from records group by 1 order by 1"
    rows = [row(i) for i in range(300)]
    expected: dict[str, list[Any]] = {}
    for one in rows:
        expected.setdefault(one["text"], []).append(one)

    def unread(*_: Any, **__: Any) -> Any:
        raise AssertionError("records are read")

    monkeypatch.setattr(rk.Split, "request", unread)
    found = rk.query(data, sql).to_pylist()
    assert found == [
        {
            "text": text,
            "s": sum(one["count"] for one in ones),
            "f": any(one["flag"] for one in ones),
        }
        for text, ones in sorted(expected.items())
    ]


def test_a_folder_of_tensorflow_datasets_is_asked_by_its_own_names(tmp_path: Path) -> None:
    schema = rk.Schema({"label": rk.Label(["cat", "dog"]), "text": rk.Text()})
    path = tmp_path / "fruit-train.tfrecord-00000-of-00001"
    with rk.Writer(path, schema) as writer:
        for i in range(10):
            writer.write({"label": i % 2, "text": f"t{i}"})
    lengths = {"train": ([10], path.stat().st_size - 160)}
    for name, content in build_tfds_files(schema, "fruit", "1.0.0", lengths).items():
        (tmp_path / name).write_bytes(content)
    sql = "select label_name, count(*) as n, min(text) as t from train group by 1 order by 1"
    assert rk.query(tmp_path, sql).to_pydict() == {
        "label_name": ["cat", "dog"],
        "n": [5, 5],
        "t": ["t0", "t1"],
    }


def test_a_remote_place_is_asked_alike(data: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(data), "/rekord-query/", recursive=True)
    try:
        for sql in (
            "select label_name, count(*) as n from records group by 1 order by 1",
            "select text, vec from (select text, small as vec, count from records where label = 2) order by count",
        ):
            assert rk.query("memory://rekord-query/data", sql) == rk.query(data, sql)
    finally:
        memory.rm("/rekord-query", recursive=True)
