"""rk.Timestamp: points in time in rows, columns, tables, SQL, text files and other formats' schemas."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
import record_strategies as strategies
from hypothesis import given
from hypothesis import strategies as st

import rekord as rk
from rekord.codec.encode_columns import encode_columns
from rekord.errors import EncodeError, SchemaError

NOON = dt.datetime(2026, 3, 1, 12, 30)
BERLIN = ZoneInfo("Europe/Berlin")


def ticks(value: Any, feature: rk.Timestamp) -> Any:
    """What a record holds for a value."""
    return rk.decode(rk.encode({"t": value}, rk.Schema({"t": feature})))["t"].tolist()


@pytest.mark.parametrize(
    ("value", "feature", "stored"),
    [
        (NOON, rk.Timestamp("s"), 1772368200),
        (NOON, rk.Timestamp("ms"), 1772368200000),
        (NOON.replace(tzinfo=dt.UTC), rk.Timestamp("s", tz="UTC"), 1772368200),
        (NOON.replace(tzinfo=BERLIN), rk.Timestamp("s", tz="UTC"), 1772368200 - 3600),
        (NOON.replace(tzinfo=BERLIN), rk.Timestamp("s"), 1772368200 - 3600),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999999), rk.Timestamp("us"), -1),
        (np.datetime64("2026-03-01"), rk.Timestamp("s"), 1772323200),
        (np.datetime64("2026-03"), rk.Timestamp("s"), 1772323200),
        (np.datetime64("2026-03-01T12:30", "ns"), rk.Timestamp("s", tz="Europe/Berlin"), 1772368200),
        (np.datetime64(1, "7ms"), rk.Timestamp("us"), 7000),
        ("2026-03-01T12:30:00", rk.Timestamp("s"), 1772368200),
        ("2026-03-01T12:30:00.000000001", rk.Timestamp("ns"), 1772368200000000001),
        ("2026-03-01T12:30:00+01:00", rk.Timestamp("s", tz="Europe/Berlin"), 1772368200 - 3600),
        ("2026-03-01 12:30Z", rk.Timestamp("s", tz="UTC"), 1772368200),
    ],
)
def test_a_time_is_stored_as_ticks_since_1970_in_utc(value: Any, feature: rk.Timestamp, stored: int) -> None:
    assert ticks(value, feature) == [stored]


@pytest.mark.parametrize(
    ("value", "rounding", "stored"),
    [
        ("1970-01-01T00:00:01.5", "floor", 1),
        ("1970-01-01T00:00:01.5", "nearest", 2),
        ("1970-01-01T00:00:01.499999", "nearest", 1),
        ("1969-12-31T23:59:58.5", "floor", -2),
        ("1969-12-31T23:59:58.5", "nearest", -1),
    ],
)
def test_declared_rounding_is_the_same_for_text_and_arrays(value: str, rounding: Any, stored: int) -> None:
    feature = rk.Timestamp("s", rounding=rounding)
    assert ticks(value, feature) == [stored]
    assert ticks(np.datetime64(value), feature) == [stored]


@pytest.mark.parametrize(
    ("value", "feature", "code"),
    [
        (NOON.replace(microsecond=1), rk.Timestamp("ms"), "E315"),
        (np.datetime64("2026-03-01T00:00:00.001"), rk.Timestamp("s"), "E315"),
        ("2026-03-01T00:00:00.0001", rk.Timestamp("ms"), "E315"),
        (NOON, rk.Timestamp("s", tz="UTC"), "E319"),
        ("2026-03-01T12:30:00", rk.Timestamp("s", tz="UTC"), "E319"),
        (dt.datetime(2300, 1, 1), rk.Timestamp("ns"), "E310"),
        (np.datetime64("9999-01-01"), rk.Timestamp("ns"), "E310"),
        (np.datetime64(2**62, "Y"), rk.Timestamp("s"), "E310"),
        (NOON, rk.Timestamp("s", range=("2027-01-01", None)), "E311"),
        (np.datetime64("2026-03-01"), rk.Timestamp("s", range=(None, "2020-01-01")), "E311"),
        (1772368200, rk.Timestamp("s"), "E302"),
        (1.5, rk.Timestamp("s"), "E302"),
        (dt.date(2026, 3, 1), rk.Timestamp("s"), "E302"),
        ("yesterday", rk.Timestamp("s"), "E303"),
        ("2026-02-30", rk.Timestamp("s"), "E303"),
        ([NOON], rk.Timestamp("s"), "E306"),
        ([NOON, None], rk.Timestamp("s", (2,)), "E302"),
        (np.array(["2026-03-01", "NaT"], "M8[s]"), rk.Timestamp("s", (2,)), "E302"),
        (np.datetime64("NaT"), rk.Timestamp("s"), "E301"),
        (None, rk.Timestamp("s"), "E301"),
    ],
)
def test_what_would_be_lost_is_refused(value: Any, feature: rk.Timestamp, code: str) -> None:
    with pytest.raises(EncodeError) as caught:
        rk.encode({"t": value}, rk.Schema({"t": feature}))
    assert (caught.value.code, caught.value.location.feature) == (code, "t")
    with pytest.raises(EncodeError) as caught:
        encode_columns({"t": [value]}, rk.Schema({"t": feature}))
    assert (caught.value.code, caught.value.location.row) == (code, 0)


@pytest.mark.parametrize(
    "options",
    [
        {"unit": "m"},
        {"unit": None},
        {"tz": "Mars/Olympus"},
        {"tz": 1},
        {"rounding": "up"},
        {"range": ("2020-01-01", "2019-01-01")},
        {"range": (1, 2)},
        {"default": "soon"},
        {"default": np.datetime64("NaT")},
        {"range": ("2020-01-01", None), "default": "2019-01-01"},
        {"tz": "UTC", "default": NOON},
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(options: Any) -> None:
    with pytest.raises(SchemaError):
        rk.Timestamp(**options)


def test_not_a_time_is_missing_in_rows_and_columns() -> None:
    pd = pytest.importorskip("pandas")
    schema = rk.Schema({"t": rk.Timestamp("s", optional=True), "d": rk.Timestamp("s", default="2020-01-01")})
    nothing = rk.encode({}, schema)
    for hole in (None, np.datetime64("NaT"), np.datetime64("NaT", "ns"), pd.NaT, pd.NA):
        assert rk.encode({"t": hole, "d": hole}, schema) == nothing
    times = np.array(["2026-03-01", "NaT"], "M8[D]")
    rows = [{"t": times[0], "d": times[0]}, {}]
    expected = encode_columns({"t": [row.get("t") for row in rows], "d": [row.get("d") for row in rows]}, schema)
    for column in (
        times,
        pd.Series(times),
        pa.array(times.astype("M8[s]")),
        list(times),
        rk.Optional(times, np.array([True, True])),
    ):
        assert encode_columns({"t": column, "d": column}, schema) == expected
    assert encode_columns({"t": times[1:], "d": times[1:]}, schema) == encode_columns(
        {"t": [None], "d": [None]}, schema
    )


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_tables_of_every_library_give_the_same_records(unit: Any, zone: str | None) -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    schema = rk.Schema({"t": rk.Timestamp(unit, tz=zone)})
    times = np.array(["2026-03-01T12:30", "1969-07-20T20:17"], f"M8[{unit}]")
    expected = encode_columns({"t": times}, schema)
    arrow = pa.array(times, pa.timestamp(unit)).cast(pa.timestamp(unit, zone))
    series = pd.Series(times) if zone is None else pd.Series(times).dt.tz_localize("UTC").dt.tz_convert(zone)
    columns = [arrow, pa.chunked_array([arrow[:1], arrow[1:]]), series, list(series), pl.from_arrow(arrow)]
    for column in columns:
        assert encode_columns({"t": column}, schema) == expected
    assert encode_columns(pa.table({"t": arrow}), schema) == expected
    if zone is not None:
        for naive in (pa.array(times), pd.Series(times), pl.Series(times.astype("M8[us]"))):
            with pytest.raises(EncodeError) as caught:
                encode_columns({"t": naive}, schema)
            assert caught.value.code == "E319"


def test_lists_and_matrices_of_times() -> None:
    days = np.arange("2026-03-01", "2026-03-07", dtype="M8[D]")
    schema = rk.Schema({"many": rk.Timestamp("s", (None,)), "grid": rk.Timestamp("ms", (2, 3))})
    row = rk.decode(rk.encode({"many": days, "grid": days.reshape(2, 3)}, schema), schema)
    assert row["many"].dtype == "M8[s]"
    assert (row["many"] == days).all()
    assert row["grid"].dtype == "M8[ms]"
    assert (row["grid"] == days.reshape(2, 3)).all()
    lists = pa.array([days.astype("M8[s]").tolist()], pa.large_list(pa.timestamp("s")))
    assert encode_columns({"many": lists, "grid": days.reshape(1, 2, 3)}, schema) == encode_columns(
        {"many": [days], "grid": [days.reshape(2, 3)]}, schema
    )


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Three records with times in a zone, local times that may be missing, and lists of times."""
    schema = rk.Schema(
        {
            "at": rk.Timestamp("us", tz="Europe/Berlin"),
            "local": rk.Timestamp("s", optional=True),
            "many": rk.Timestamp("ms", (None,)),
            "fine": rk.Timestamp("ns", tz="UTC"),
        }
    )
    rows = [
        {
            "at": np.datetime64("2026-03-01T12:30") + np.timedelta64(day, "D"),
            "local": None if day == 1 else NOON,
            "many": np.arange(day).astype("M8[ms]"),
            "fine": np.datetime64(day + 1, "ns"),
        }
        for day in range(3)
    ]
    rk.write(rows, tmp_path / "data", schema=schema)
    return tmp_path / "data"


def test_batches_hold_datetime64_in_utc(dataset: Path) -> None:
    (batch,) = rk.open(dataset)["train"].batches(8)
    assert batch["at"].dtype == "M8[us]"
    assert str(batch["at"][0]) == "2026-03-01T12:30:00.000000"
    assert batch["local"].tolist() == [NOON, None, NOON]
    assert batch["many"].values.dtype == "M8[ms]"
    assert not list(rk.check(dataset).findings)


def test_tables_hold_timestamps_of_the_declared_unit_and_zone(dataset: Path) -> None:
    split = rk.open(dataset)["train"]
    table = split.to_arrow()
    assert [str(field.type) for field in table.schema] == [
        "timestamp[us, tz=Europe/Berlin]",
        "timestamp[s]",
        "large_list<item: timestamp[ms]>",
        "timestamp[ns, tz=UTC]",
    ]
    assert table["at"][0].as_py() == dt.datetime(2026, 3, 1, 13, 30, tzinfo=BERLIN)
    assert table["local"].null_count == 1
    frame = split.to_pandas()
    assert str(frame["at"].dtype) == "datetime64[us, Europe/Berlin]"
    assert frame["local"].isna().sum() == 1
    assert split.to_polars()["at"][0] == dt.datetime(2026, 3, 1, 13, 30, tzinfo=BERLIN)


def test_sql_compares_timestamps(dataset: Path) -> None:
    pytest.importorskip("duckdb")
    split = rk.open(dataset)["train"]
    answer = split.sql("select count(*) n from records where \"at\" > timestamptz '2026-03-01 18:00:00Z'")
    assert answer["n"].to_pylist() == [2]
    answer = split.sql("select year(local) y, len(many) n, epoch_ns(fine) f from records order by f")
    assert answer.to_pylist() == [
        {"y": 2026, "n": 0, "f": 1},
        {"y": None, "n": 1, "f": 2},
        {"y": 2026, "n": 2, "f": 3},
    ]


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv"])
def test_an_export_comes_back(dataset: Path, tmp_path: Path, form: str) -> None:
    split = rk.open(dataset)["train"]
    out = tmp_path / f"out.{form}"
    rk.export(dataset, out)
    schema = None if form in ("parquet", "arrow") else split.schema
    if form == "csv":
        schema = rk.Schema({name: split.schema[name] for name in ("at", "local", "fine")})
        rk.export(dataset, out, columns=list(schema), overwrite=True)
        assert '"2026-03-01T12:30:00.000000Z"' in out.read_text()
        source: Any = rk.sources.csv(str(out), columns=dict(schema.items()))
        rk.write(source, tmp_path / "back")
    else:
        rk.write(str(out), tmp_path / "back", schema=schema)
    if form == "jsonl":
        assert json.loads(out.read_text().splitlines()[0])["local"] == "2026-03-01T12:30:00"
    back = rk.open(tmp_path / "back")["train"]
    for name in back.schema:
        assert back.to_arrow(columns=[name]).equals(split.to_arrow(columns=[name])), name


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"t": NOON}], rk.Timestamp("us")),
        ([{"t": NOON}, {"t": None}], rk.Timestamp("us", optional=True)),
        ([{"t": np.datetime64("2026-03-01")}, {"t": NOON}], rk.Timestamp("us")),
        ([{"t": np.datetime64("2026-03-01")}], rk.Timestamp("s")),
        ([{"t": NOON.replace(tzinfo=BERLIN)}], rk.Timestamp("us", tz="Europe/Berlin")),
        (
            [{"t": NOON.replace(tzinfo=BERLIN)}, {"t": NOON.replace(tzinfo=dt.UTC)}],
            rk.Timestamp("us", tz="UTC"),
        ),
        ([{"t": [NOON, NOON]}, {"t": [NOON]}], rk.Timestamp("us", (None,))),
        ({"t": np.array(["2026-03-01", "NaT"], "M8[ms]")}, rk.Timestamp("ms", optional=True)),
        (
            pa.table({"t": pa.array([1, None], pa.timestamp("ns", "UTC"))}),
            rk.Timestamp("ns", tz="UTC", optional=True),
        ),
    ],
)
def test_infer_gives_timestamps(rows: Any, expected: rk.Timestamp) -> None:
    assert rk.infer(rows)["t"] == expected


def test_infer_refuses_times_with_and_without_a_zone() -> None:
    with pytest.raises(SchemaError) as caught:
        rk.infer([{"t": NOON}, {"t": NOON.replace(tzinfo=dt.UTC)}])
    assert caught.value.code == "S129"
    assert caught.value.location.feature == "t"


def test_other_schemas_see_int64(dataset: Path) -> None:
    from rekord.schema.interop.tf_spec import spec_from_schema, to_source
    from rekord.schema.interop.tfds import features_from_schema

    schema = rk.Schema({"t": rk.Timestamp("ms", default="1970-01-01T00:00:01")})
    assert "FixedLenFeature([], tf.int64, default_value=1000)" in to_source(spec_from_schema(schema))
    text = rk.Schema({"t": rk.Timestamp("ms")}).to_pbtxt()
    assert "type: INT" in text
    assert "integer_format: UNIX_MILLISECONDS" in text
    assert "annotation" not in text
    for one in (schema, rk.Schema({"t": rk.Timestamp("ns", (None,), tz="UTC", optional=True)})):
        assert rk.Schema.from_pbtxt(one.to_pbtxt()) == one
        assert rk.Schema.from_json(one.to_json()) == one
    assert '"dtype": "int64"' in json.dumps(features_from_schema(schema))


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (rk.Timestamp("s"), rk.Timestamp("s"), "same"),
        (rk.Timestamp("s"), rk.Timestamp("ms"), "breaking"),
        (rk.Timestamp("s"), rk.Timestamp("s", tz="UTC"), "widened"),
        (rk.Timestamp("s"), rk.Timestamp("s", range=("2020-01-01", None)), "breaking"),
        (rk.Timestamp("s"), rk.Int64(), "widened"),
        (rk.Int64(), rk.Timestamp("s"), "widened"),
        (rk.Timestamp("s"), rk.Int64(dtype="int32"), "breaking"),
        (rk.Timestamp("s"), rk.Float32(), "breaking"),
    ],
)
def test_compat(before: Any, after: Any, verdict: str) -> None:
    assert rk.compat(rk.Schema({"t": before}), rk.Schema({"t": after})).verdict == verdict


def test_frameworks_get_the_stored_numbers(dataset: Path) -> None:
    torch = pytest.importorskip("torch")
    (batch,) = rk.open(dataset)["train"].to_torch(8)
    assert batch["at"].dtype == torch.int64
    assert batch["at"][0] == 1772368200000000
    assert batch["local"].values.dtype == torch.int64
    assert batch["many"].values.dtype == torch.int64


def test_show_prints_times(dataset: Path) -> None:
    from typer.testing import CliRunner

    from rekord.cli.main import app

    shown = CliRunner().invoke(app, ["show", str(dataset), "-n", "1"]).output
    assert "2026-03-01T12:30:00.000000Z" in shown
    assert "2026-03-01T12:30:00\n" in shown


@given(st.data())
def test_every_value_of_a_timestamp_comes_back(data: st.DataObject) -> None:
    feature = data.draw(strategies.FEATURES[rk.Timestamp]())
    schema = rk.Schema({"t": feature})
    assert rk.Schema.from_json(schema.to_json()) == schema
    value = data.draw(strategies.column_values(feature))
    back = rk.decode(rk.encode({"t": value}, schema), schema)["t"]
    if value is None:
        value = feature.default_value() if feature.has_default else None
    if value is None:
        assert back is None
    else:
        assert np.array_equal(np.asarray(back), np.asarray(value, feature.dtype).reshape(np.shape(back)))


def test_a_cast_says_that_numbers_are_times_and_back(tmp_path: Path) -> None:
    rk.write([{"t": 5}, {"t": 7}], tmp_path / "numbers", schema=rk.Schema({"t": rk.Int64()}))
    rk.rewrite(tmp_path / "numbers", tmp_path / "times", cast={"t": rk.Timestamp("s")})
    (batch,) = rk.open(tmp_path / "times")["train"].batches(2)
    assert batch["t"].tolist() == [dt.datetime(1970, 1, 1, 0, 0, 5), dt.datetime(1970, 1, 1, 0, 0, 7)]
    rk.rewrite(tmp_path / "times", tmp_path / "again", cast={"t": rk.Int64()})
    (batch,) = rk.open(tmp_path / "again")["train"].batches(2)
    assert batch["t"].tolist() == [5, 7]


def test_a_baseline_leaves_times_out() -> None:
    from rekord.training.task import ExclusionReason, infer_column_form, target_kind

    schema = rk.Schema({"t": rk.Timestamp()})
    assert isinstance(infer_column_form(schema, "t"), ExclusionReason)
    assert target_kind(schema["t"]) is None
