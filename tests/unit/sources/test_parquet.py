"""Parquet and Arrow as rows: files of both, and tables in memory."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather
from pyarrow import parquet as pq

import rekord as rk
from rekord.sources.base import is_partitioned
from rekord.sources.table_files import arrow, parquet, polars

N = 50
TABLE = pa.table(
    {
        "i8": pa.array(range(N), pa.int8()),
        "u64": pa.array([2**63 + i for i in range(N)], pa.uint64()),
        "half": pa.array(np.arange(N, dtype=np.float16)),
        "double": pa.array([None if i % 7 == 0 else i / 4 for i in range(N)]),
        "flag": pa.array([i % 2 == 0 for i in range(N)]),
        "text": pa.array([f"é{i}" for i in range(N)]),
        "large": pa.array([str(i) for i in range(N)], pa.large_string()),
        "blob": pa.array([bytes([i]) for i in range(N)]),
        "three": pa.array([b"abc"] * N, pa.binary(3)),
        "list": pa.array([[0.5] * (i % 3) for i in range(N)]),
        "holes": pa.array([None if i == 3 else [i] for i in range(N)]),
        "words": pa.array([["a"] * (i % 3) for i in range(N)]),
        "pair": pa.array([[i, i + 1] for i in range(N)], pa.list_(pa.int32(), 2)),
        "boxes": pa.array([[[1.0, 2.0, 3.0, 4.0]] * (i % 2) for i in range(N)], pa.list_(pa.list_(pa.float32(), 4))),
        "deep": pa.array([{"a": i, "b": {"c": str(i)}} if i % 5 else None for i in range(N)]),
        "word": pa.array(["x", "y"] * (N // 2)).dictionary_encode(),
        "none": pa.nulls(N),
    }
)
SCHEMA = rk.Schema(
    {
        "i8": rk.Int64(dtype="int8"),
        "u64": rk.Int64(dtype="uint64"),
        "half": rk.Float32(dtype="float16"),
        "double": rk.Float32(optional=True),
        "flag": rk.Int64(dtype="bool"),
        "text": rk.Text(),
        "large": rk.Text(),
        "blob": rk.Bytes(),
        "three": rk.Bytes(),
        "list": rk.Float32(shape=(None,)),
        "holes": rk.Int64(shape=(None,), optional=True),
        "words": rk.Text(shape=(None,)),
        "pair": rk.Int64(shape=(2,), dtype="int32"),
        "boxes": rk.Float32(shape=(None, 4)),
        "deep/a": rk.Int64(optional=True),
        "deep/b/c": rk.Text(optional=True),
        "word": rk.Text(),
        "none": rk.Text(optional=True),
    }
)


def flat(row: dict) -> dict:
    """A row of the table above as records hold it."""
    deep = row.pop("deep")
    row["deep/a"] = None if deep is None else deep["a"]
    row["deep/b/c"] = None if deep is None else deep["b"]["c"]
    return row


ROWS = [flat(row) for row in TABLE.to_pylist()]


def chunks(source, part_bytes: int = 1 << 26) -> list:
    if is_partitioned(source):
        return [chunk for part in source.parts(part_bytes) for chunk in source.read(part)]
    return list(source.rows())


def rows(source, part_bytes: int = 1 << 26) -> list[dict]:
    """All rows, their positions one after another."""
    out = []
    path = None
    for chunk in chunks(source, part_bytes):
        first = 0 if chunk.path != path else first  # noqa: F821
        assert chunk.first == first
        assert chunk.rows == chunk.values.num_rows
        out += chunk.values.to_pylist()
        first, path = first + chunk.rows, chunk.path
    return out


def refusal(call) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        call()
    return caught.value


def made(kind: str, folder):
    if kind == "parquet":
        pq.write_table(TABLE, folder / "t.parquet", row_group_size=7)
        return parquet(folder / "t.parquet")
    if kind == "feather":
        feather.write_feather(TABLE, folder / "t.feather", chunksize=7)
        return arrow(folder / "t.feather")
    if kind == "stream":
        with (
            pa.OSFile(str(folder / "t.arrow"), "wb") as file,
            pa.ipc.new_stream(file, TABLE.schema) as writer,
        ):
            writer.write_table(TABLE, max_chunksize=7)
        return arrow(folder / "t.arrow")
    return arrow(TABLE if kind == "table" else TABLE.combine_chunks().to_batches()[0])


@pytest.mark.parametrize("kind", ["parquet", "feather", "stream", "table", "batch"])
def test_types_and_rows_are_those_of_the_table(tmp_path, kind):
    source = made(kind, tmp_path)
    facts = source.facts()
    assert facts.schema == SCHEMA
    assert (facts.layout, facts.rows) == ("table", N)
    for part_bytes in (1, 500, 1 << 26):
        assert rows(source, part_bytes) == ROWS


@pytest.mark.parametrize("kind", ["parquet", "feather", "stream", "table", "batch"])
def test_every_chunk_can_be_written_under_the_schema_of_the_facts(tmp_path, kind):
    source = made(kind, tmp_path)
    with rk.Writer(tmp_path / "out.tfrecord", source.facts().schema) as writer:
        for chunk in chunks(source, 500):
            writer.write_columns(chunk.values)
    decoded = [rk.decode(record, SCHEMA) for record in rk.records(tmp_path / "out.tfrecord")]
    plain = [{name: getattr(v, "tolist", lambda v=v: v)() for name, v in row.items()} for row in decoded]
    assert plain == ROWS


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_files_are_cut_by_groups_and_parts_survive_pickling(tmp_path, kind):
    source = made(kind, tmp_path)
    parts = pickle.loads(pickle.dumps(source.parts(1)))
    assert len(parts) == 8
    again = pickle.loads(pickle.dumps(source))
    assert [chunk.first for part in parts for chunk in again.read(part)] == list(range(0, N, 7))
    (name,) = [one.path for one in source.facts().files]
    assert {chunk.path for chunk in chunks(source)} == {name}


def test_a_stream_that_cannot_be_entered_in_the_middle_is_one_part(tmp_path):
    source = made("stream", tmp_path)
    (part,) = source.parts(1)
    assert [chunk.first for chunk in source.read(part)] == list(range(0, N, 7))


def test_a_table_in_memory_comes_in_pieces_that_share_its_memory():
    table = pa.table({"n": pa.array(range(200_000))})
    source = arrow(table)
    pieces = chunks(source)
    assert [piece.rows for piece in pieces] == [65_536, 65_536, 65_536, 3_392]
    shared = table.column("n").chunk(0).buffers()[1].address
    assert {piece.values.column(0).buffers()[1].address for piece in pieces} == {shared}


@pytest.mark.parametrize("statistics", [True, False])
def test_a_column_is_optional_where_a_row_group_has_a_null(tmp_path, statistics):
    table = pa.table({"a": [1, 2, 3, None], "b": [1, 2, 3, 4], "c": [[1], [], [2], [3]]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=2, write_statistics=statistics)
    assert parquet(tmp_path / "t.parquet").facts().schema == rk.Schema(
        {"a": rk.Int64(optional=True), "b": rk.Int64(), "c": rk.Int64(shape=(None,))}
    )


def test_a_struct_of_bytes_and_path_is_an_image(tmp_path):
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"image": pa.array([{"bytes": b"\x89PNG", "path": "a.png"}], kind), "label": [1]})
    pq.write_table(table, tmp_path / "t.parquet")
    source = parquet(tmp_path / "t.parquet")
    assert source.facts().schema == rk.Schema({"image": rk.Image(), "label": rk.Int64()})
    assert rows(source) == [{"image": b"\x89PNG", "label": 1}]


def test_columns_can_be_kept(tmp_path):
    made("parquet", tmp_path)
    source = parquet(tmp_path / "t.parquet", columns=["deep", "i8"])
    assert list(source.facts().schema) == ["deep/a", "deep/b/c", "i8"]
    assert rows(source)[6] == {"deep/a": 6, "deep/b/c": "6", "i8": 6}
    assert source.options() == {"columns": ["deep", "i8"]}
    failure = refusal(parquet(tmp_path / "t.parquet", columns=["txet"]).facts)
    assert (failure.code, failure.location.feature, failure.do) == ("X522", "txet", "did you mean `text`?")


@pytest.mark.parametrize("columns", ["a", [], ["a", "a"], [3]])
def test_columns_that_cannot_be_meant_are_refused(columns):
    assert refusal(lambda: parquet("t.parquet", columns=columns)).code == "U605"


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("days", pa.list_(pa.date32()), [0]),
        ("ragged", pa.list_(pa.list_(pa.int64())), [[1], [2, 3]]),
        ("map", pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    ],
)
def test_a_type_that_records_do_not_hold_is_refused_by_column(tmp_path, name, kind, value):
    pq.write_table(pa.table({"n": [1], name: pa.array([value], kind)}), tmp_path / "t.parquet")
    failure = refusal(parquet(tmp_path / "t.parquet").facts)
    assert (failure.code, failure.location.path, failure.location.feature) == (
        "X525",
        str(tmp_path / "t.parquet"),
        name,
    )
    assert "columns=" in failure.do
    assert rows(parquet(tmp_path / "t.parquet", columns=["n"])) == [{"n": 1}]


@pytest.mark.parametrize(
    ("other", "feature"),
    [
        ({"a": [1], "c": [1]}, "b"),
        ({"a": [1], "b": [1.5]}, "b"),
        ({"a": [1], "b": [1], "c": [1]}, "c"),
    ],
)
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_files_with_different_columns_are_refused_by_file_and_column(tmp_path, kind, other, feature):
    write = pq.write_table if kind == "parquet" else feather.write_feather
    write(pa.table({"a": [1], "b": [1]}), tmp_path / f"1.{kind}")
    write(pa.table(other), tmp_path / f"2.{kind}")
    failure = refusal((parquet if kind == "parquet" else arrow)(tmp_path).facts)
    assert (failure.code, failure.location.path, failure.location.feature) == (
        "X523",
        str(tmp_path / f"2.{kind}"),
        feature,
    )


def test_files_whose_columns_are_in_another_order_are_the_same(tmp_path):
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(
        pa.table(
            {"b": pa.array(["y"], pa.large_string()), "a": [None]},
            schema=pa.schema({"b": pa.large_string(), "a": pa.int64()}),
        ),
        tmp_path / "2.parquet",
    )
    source = parquet(tmp_path)
    assert source.facts().schema == rk.Schema({"a": rk.Int64(optional=True), "b": rk.Text()})
    assert rows(source) == [{"a": 1, "b": "x"}, {"b": "y", "a": None}]
    assert [chunk.path for chunk in chunks(source)] == ["1.parquet", "2.parquet"]


@pytest.mark.parametrize("kind", ["parquet", "feather", "stream"])
def test_a_damaged_file_never_gives_a_traceback_of_another_library(tmp_path, kind):
    source = made(kind, tmp_path)
    (name,) = [one.path for one in source.facts().files]
    path = tmp_path / name
    whole = path.read_bytes()
    print("seed 5")
    chosen = np.random.default_rng(5)
    damaged = [whole[:n] for n in (1, 4, 7, len(whole) // 2, len(whole) - 9, len(whole) - 1)]
    for _ in range(60):
        at = int(chosen.integers(len(whole)))
        damaged.append(whole[:at] + bytes([whole[at] ^ 1 << int(chosen.integers(8))]) + whole[at + 1 :])
    codes = set()
    for i, content in enumerate(damaged):
        other = tmp_path / f"{i}.{name}"
        other.write_bytes(content)
        try:
            again = type(source)(str(other))
            again.facts()
            chunks(again)
        except rk.RekordError as failure:
            codes.add((failure.code, failure.location.path == str(other)))
    assert ("X524", True) in codes
    assert codes <= {(code, True) for code in ("X520", "X522", "X524", "X525")}


def test_a_parquet_file_that_is_cut_says_so(tmp_path):
    made("parquet", tmp_path)
    path = tmp_path / "t.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    failure = refusal(parquet(path).facts)
    assert (failure.code, failure.location.path, failure.found) == (
        "X524",
        str(path),
        "no Parquet footer at the end",
    )


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_file_without_rows_is_refused_by_name(tmp_path, kind):
    make = parquet if kind == "parquet" else arrow
    write = pq.write_table if kind == "parquet" else feather.write_feather
    path = tmp_path / f"t.{kind}"
    path.write_bytes(b"")
    failure = refusal(make(path).facts)
    assert (failure.code, failure.location.path, failure.found) == ("X520", str(path), "an empty file")
    write(pa.table({"a": pa.array([], pa.int64())}), path)
    failure = refusal(make(path).facts)
    assert (failure.code, failure.found) == ("X520", "a table without rows")
    assert refusal(arrow(pa.table({"a": pa.array([], pa.int64())})).facts).code == "X520"


def test_two_columns_of_one_name_are_refused():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    failure = refusal(arrow(table).facts)
    assert (failure.code, failure.location.feature) == ("X522", "a")


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_a_file_that_changed_since_it_was_looked_at_is_refused(tmp_path, kind):
    source = made(kind, tmp_path)
    part, *_ = source.parts()
    path = tmp_path / source.facts().files[0].path
    path.write_bytes(path.read_bytes() + b"x")
    failure = refusal(lambda: list(source.read(part)))
    assert (failure.code, failure.location.path) == ("X526", str(path))


def test_a_polars_frame_is_read_through_arrow():
    import polars as pl

    source = polars(pl.DataFrame({"n": [1, None], "t": ["x", "y"], "l": [[1], []]}))
    assert source.kind == "polars"
    assert source.facts().schema == rk.Schema(
        {"n": rk.Int64(optional=True), "t": rk.Text(), "l": rk.Int64(shape=(None,))}
    )
    assert rows(source) == [{"n": 1, "t": "x", "l": [1]}, {"n": None, "t": "y", "l": []}]
    assert refusal(lambda: polars([1])).code == "U605"


@pytest.mark.parametrize(
    ("kind", "values", "shape"),
    [
        (pa.list_view(pa.int64()), [[1, 2], None, [], [3]], (None,)),
        (pa.large_list_view(pa.int64()), [[1, 2], None, [], [3]], (None,)),
        (pa.list_view(pa.list_(pa.int64(), 2)), [[[1, 2]], [], [[3, 4], [5, 6]]], (None, 2)),
        (pa.list_view(pa.string_view()), [["a"], ["b", "c"]], (None,)),
        (pa.list_(pa.list_(pa.binary(2), 2)), [[], [[b"ab", b"cd"]]], (None, 2)),
        (pa.list_(pa.list_(pa.binary(2), 1), 2), [[[b"ab"], [b"cd"]]], (2, 1)),
    ],
)
def test_lists_of_every_form_come_with_the_values_that_the_table_has(tmp_path, kind, values, shape):
    table = pa.table({"c": pa.array([*values, *values], kind)})
    source = arrow(table.slice(1))  # views and lists that do not begin at the buffers' beginning
    assert source.facts().schema["c"].shape == shape
    found = pa.concat_arrays([chunk.values.column(0) for chunk in chunks(source)])
    found.validate(full=True)
    assert found.to_pylist() == [*values[1:], *values]
    dataset = rk.write(source, tmp_path / "out", progress=False, workers=1)
    assert sum(len(batch["c"]) for batch in dataset["train"].batches(2)) == 2 * len(values) - 1


def test_views_of_lists_may_lie_in_any_order():
    views = pa.ListViewArray.from_arrays(
        pa.array([2, 0], pa.int32()), pa.array([1, 2], pa.int32()), pa.array([1, 2, 3])
    )
    (chunk,) = chunks(arrow(pa.table({"c": views})))
    assert chunk.values.column(0).to_pylist() == [[3], [1, 2]]


def test_dates_decimals_durations_and_times_of_day_become_features(tmp_path):
    table = pa.table(
        {
            "day": pa.array([dt.date(2024, 2, 29), None], pa.date32()),
            "price": pa.array([Decimal("1.25"), Decimal("-3.5")], pa.decimal128(10, 2)),
            "huge": pa.array([Decimal(2**60), Decimal(-1)], pa.decimal128(38, 0)),
            "exact": pa.array([Decimal("16777216.25"), Decimal("16777216.75")], pa.decimal128(12, 2)),
            "took": pa.array([dt.timedelta(seconds=1.5), None], pa.duration("us")),
            "hour": pa.array([dt.time(1, 0, 1), dt.time(0, 0)], pa.time32("s")),
            "kind": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    source = parquet(tmp_path / "t.parquet")
    facts = source.facts()
    assert dict(facts.schema) == {
        "day": rk.Timestamp("s", optional=True),
        "price": rk.Float32(),
        "huge": rk.Int64(),
        "exact": rk.Tensor("float64"),
        "took": rk.Float32(optional=True),
        "hour": rk.Float32(),
        "kind": rk.Text(),
    }
    assert [guess.column for guess in facts.guesses] == ["price", "exact", "took", "hour"]
    rk.write(source, tmp_path / "out", progress=False)
    stored = list(rk.open(tmp_path / "out")["train"])
    assert [(float(row["price"]), int(row["huge"]), float(row["exact"]), float(row["hour"])) for row in stored] == [
        (1.25, 2**60, 16777216.25, 3601.0),
        (-3.5, -1, 16777216.75, 0.0),
    ]
    assert (stored[0]["day"], stored[1]["day"]) == (np.datetime64("2024-02-29", "s"), None)
    assert (float(stored[0]["took"]), stored[1]["took"]) == (1.5, None)
