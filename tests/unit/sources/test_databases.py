"""SQLite and DuckDB files as rows: what the databases hold, and queries that do more than read."""

from __future__ import annotations

import datetime
import decimal
import os
import sqlite3
import subprocess
import sys
import tracemalloc
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.sources.detect import identify_source


def put_sqlite(path: Path, *statements: str) -> Path:
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()
    return path


def put_duckdb(path: Path, *statements: str) -> Path:
    database = duckdb.connect(str(path))
    for statement in statements:
        database.execute(statement)
    database.close()
    return path


def rows_of(source: Any) -> list[Any]:
    return [row.values for row in source.rows()]


def columns_of(source: Any) -> list[Any]:
    return [row for chunk in source.rows() for row in chunk.values.to_pylist()]


FLOWERS = (
    "CREATE TABLE flowers (id INTEGER, name TEXT, height REAL, photo BLOB, wild BOOLEAN)",
    "INSERT INTO flowers VALUES (1, 'rose', 0.5, x'00ff', 0), (2, NULL, 1.0, NULL, 1), (-3, 'oxeye', NULL, x'', 1)",
)


def test_a_table_has_the_values_that_sqlite3_reads(tmp_path):
    path = put_sqlite(tmp_path / "a.db", *FLOWERS)
    source = rk.sources.sqlite(path)
    plain = sqlite3.connect(path)
    assert [tuple(row.values()) for row in rows_of(source)] == plain.execute("SELECT * FROM flowers").fetchall()
    plain.close()
    assert dict(source.facts().schema) == {
        "id": rk.Int64(),
        "name": rk.Text(optional=True),
        "height": rk.Float32(optional=True),
        "photo": rk.Bytes(optional=True),
        "wild": rk.Int64(dtype="bool"),
    }
    rk.write(path, tmp_path / "out", progress=False)
    assert [row["photo"] for row in rk.open(tmp_path / "out")["train"]] == [b"\0\xff", None, b""]


def test_a_query_gives_its_answer_in_its_order(tmp_path):
    path = put_sqlite(tmp_path / "a.sqlite", *FLOWERS)
    query = "SELECT upper(name) AS name, count(*) AS n FROM flowers WHERE name > '' GROUP BY 1 ORDER BY 1 DESC"
    assert rows_of(rk.sources.sqlite(path, query=query)) == [{"name": "ROSE", "n": 1}, {"name": "OXEYE", "n": 1}]


@pytest.mark.parametrize("put", [put_sqlite, put_duckdb])
def test_several_tables_are_refused_with_a_command_for_each(tmp_path, put):
    path = put(tmp_path / "a.db", "CREATE TABLE one (x INTEGER)", 'CREATE TABLE "t""wo" (y INTEGER)')
    put(path, "INSERT INTO one VALUES (1)", 'INSERT INTO "t""wo" VALUES (2)')
    kind = identify_source(path).kind
    with pytest.raises(rk.RekordError) as caught:
        getattr(rk.sources, kind)(path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X542", str(path))
    assert [command for _, command in caught.value.readings] == [
        f"rekord write {path} OUT --table one",
        f"rekord write {path} OUT --table 't\"wo'",
    ]
    assert getattr(rk.sources, kind)(path, table='t"wo').facts().rows == 1


@pytest.mark.parametrize("put", [put_sqlite, put_duckdb])
@pytest.mark.parametrize(
    "name", ['x" UNION SELECT name FROM sqlite_master --', "x; DROP TABLE one", "one--", "'one'"]
)
def test_a_name_of_a_table_is_never_sql(tmp_path, put, name):
    path = put(tmp_path / "a.db", "CREATE TABLE one AS SELECT 1 AS x")
    with pytest.raises(rk.RekordError) as caught:
        getattr(rk.sources, identify_source(path).kind)(path, table=name).facts()
    assert (caught.value.code, caught.value.location.path) == ("X522", str(path))


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO flowers VALUES (4, 'a', 1, NULL, 0)",
        "DELETE FROM flowers",
        "DROP TABLE flowers",
        "ATTACH 'other.db' AS other",
        "PRAGMA journal_mode=DELETE",
        "SELECT load_extension('x')",
        "SELECT 1; SELECT 2",
        "VACUUM INTO 'other.db'",
        "SELECT missing FROM flowers",
        "",
        "-- nothing",
    ],
)
def test_only_one_statement_that_reads_is_run_in_sqlite(tmp_path, query, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = put_sqlite(tmp_path / "a.db", *FLOWERS)
    before = path.read_bytes()
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.sqlite(path, query=query).facts()
    assert caught.value.code == ("X544" if query else "U605")
    assert caught.value.location.path == (str(path) if query else None)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["a.db"]


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO flowers VALUES (4)",
        "ATTACH 'other.db'",
        "COPY flowers TO 'other.csv'",
        "SELECT * FROM read_csv('secret.csv')",
        "SELECT * FROM 'secret.csv'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 2",
        "SELECT 1; SELECT 2",
        "SELECT missing FROM flowers",
    ],
)
def test_only_one_statement_that_reads_is_run_in_duckdb(tmp_path, query, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.csv").write_text("a\n1\n")
    path = put_duckdb(tmp_path / "a.duckdb", "CREATE TABLE flowers AS SELECT 1 AS x")
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.duckdb(path, query=query).facts()
    assert (caught.value.code, caught.value.location.path) == ("X544", str(path))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.duckdb", "secret.csv"]


def test_a_query_that_does_not_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("rekord.sources.sqlite"), "MAX_STEPS_PER_ROW", 3_000_000)
    path = put_sqlite(tmp_path / "a.db", *FLOWERS)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) AS x FROM n"
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.sqlite(path, query=endless).facts()
    assert (caught.value.code, caught.value.location.path) == ("X544", str(path))
    assert "steps" in str(caught.value.likely)


def test_a_view_is_read_by_its_name(tmp_path):
    path = put_sqlite(tmp_path / "a.db", *FLOWERS, "CREATE VIEW wild AS SELECT id FROM flowers WHERE wild")
    assert rows_of(rk.sources.sqlite(path, table="wild")) == [{"id": 2}, {"id": -3}]
    assert rk.sources.sqlite(path).facts().rows == 3


def test_a_write_ahead_log_is_not_ignored(tmp_path):
    path = put_sqlite(tmp_path / "a.db", *FLOWERS)
    put_sqlite(path, "PRAGMA journal_mode=WAL")
    writer = sqlite3.connect(path)
    writer.execute("INSERT INTO flowers VALUES (4, 'a', 1, NULL, 0)")
    writer.commit()
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.sqlite(path).facts()
    writer.close()
    assert (caught.value.code, caught.value.location.path) == ("X526", str(path))
    assert rk.sources.sqlite(path).facts().rows == 4


def run_and_die(script: str) -> None:
    """Run a script in a process that ends as if it were killed: no transaction and no file is closed."""
    subprocess.run([sys.executable, "-c", f"{script}\nimport os; os._exit(0)"], check=True)


def test_an_unfinished_transaction_of_sqlite_is_not_read(tmp_path):
    path = tmp_path / "a.db"
    numbers = "WITH RECURSIVE r(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM r LIMIT 20000) SELECT v FROM r"
    put_sqlite(path, "CREATE TABLE t (a)", f"INSERT INTO t {numbers}")
    run_and_die(
        f"import sqlite3; c = sqlite3.connect({str(path)!r}, isolation_level=None)\n"
        "for s in ('PRAGMA cache_size=5', 'BEGIN', 'UPDATE t SET a = -1'): c.execute(s)"
    )
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.sqlite(path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X526", str(path))
    assert caught.value.found == "a rollback journal, a.db-journal"
    put_sqlite(path, "SELECT * FROM sqlite_master")  # what the message names undoes it
    assert [row["a"] for row in rows_of(rk.sources.sqlite(path))] == list(range(1, 20001))


def test_the_journal_of_a_finished_transaction_is_no_obstacle(tmp_path):
    path = put_sqlite(tmp_path / "a.db", "PRAGMA journal_mode=PERSIST", *FLOWERS)
    assert Path(f"{path}-journal").stat().st_size > 0
    assert rk.sources.sqlite(path).facts().rows == 3


def test_a_write_ahead_log_of_duckdb_is_not_ignored(tmp_path):
    path = put_duckdb(tmp_path / "a.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    run_and_die(f"import duckdb; c = duckdb.connect({str(path)!r}); c.execute('INSERT INTO t VALUES (2)')")
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.duckdb(path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X526", str(path))
    put_duckdb(path, "CHECKPOINT")
    assert rk.sources.duckdb(path).facts().rows == 2


def test_times_of_duckdb_do_not_depend_on_the_time_zone_of_the_machine(tmp_path):
    path = put_duckdb(
        tmp_path / "a.duckdb",
        "CREATE TABLE t AS SELECT TIMESTAMPTZ '2024-01-02 03:04:05+02' AS a, TIMESTAMP '2024-01-02' AS b",
    )
    script = (
        "import rekord as rk; "
        f"source = rk.sources.duckdb({str(path)!r}); (chunk,) = source.rows(); "
        "print(source.facts().schema['a'], chunk.values.to_pylist()[0]['a'].isoformat())"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True, env={**os.environ, "TZ": zone}
        ).stdout
        for zone in ("America/New_York", "Asia/Tokyo", "UTC")
    }
    assert shown == {"Timestamp(tz='UTC') 2024-01-02T01:04:05+00:00\n"}


def test_duckdb_shows_no_progress_bar_of_its_own(tmp_path):
    path = put_duckdb(tmp_path / "a.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    script = (
        "import rekord as rk; "
        f"source = rk.sources.duckdb({str(path)!r}, query=\"SELECT current_setting('enable_progress_bar') AS a\"); "
        "print([chunk.values.to_pylist() for chunk in source.rows()])"
    )
    # For DuckDB, a program without a file is a person who wants to see a bar.
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "[[{'a': False}]]\n"


def test_rows_of_sqlite_are_read_one_at_a_time(tmp_path):
    path = put_sqlite(
        tmp_path / "a.db",
        "CREATE TABLE t (a BLOB)",
        "WITH RECURSIVE r(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM r LIMIT 40) "
        "INSERT INTO t SELECT zeroblob(1000000) FROM r",
    )
    source = rk.sources.sqlite(path)
    source.facts()
    tracemalloc.start()
    assert sum(len(row.values["a"]) for row in source.rows()) == 40_000_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


def test_text_that_is_not_utf8_is_a_bad_row(tmp_path):
    path = put_sqlite(
        tmp_path / "a.db", "CREATE TABLE t (x TEXT)", "INSERT INTO t VALUES ('a'), (CAST(x'e9' AS TEXT))"
    )
    with pytest.raises(rk.RekordError) as caught:
        rk.write(path, tmp_path / "out", progress=False)
    assert (caught.value.code, caught.value.location.row, caught.value.location.feature) == ("E318", 1, "x")


@pytest.mark.parametrize(("name", "put"), [("a.db", put_sqlite), ("a.duckdb", put_duckdb)])
def test_damaged_and_empty_files_are_refused(tmp_path, name, put):
    path = put(tmp_path / name, "CREATE TABLE t AS SELECT 1 AS x")
    kind = identify_source(path).kind

    def code() -> str:
        with pytest.raises(rk.RekordError) as caught:
            getattr(rk.sources, kind)(path).facts()
        assert caught.value.location.path == str(path)
        return caught.value.code

    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xff" * (len(data) - 100))
    assert code() == "X524"
    path.write_bytes(b"")
    assert code() == "X520"
    path.unlink()
    put(path, "CREATE TABLE t (x INTEGER)")
    assert code() == "X520"
    path.unlink()
    assert code() == "X501"


def test_types_of_duckdb_become_features(tmp_path):
    path = put_duckdb(
        tmp_path / "a.duckdb",
        "CREATE TABLE t AS SELECT 7::UTINYINT AS u, 1.25::DECIMAL(9, 2) AS price, DATE '2024-02-29' AS day,"
        " TIMESTAMP '2024-01-02 03:04:05' AS at, TIMESTAMPTZ '2024-01-02 03:04:05Z' AS utc,"
        " 'a'::ENUM('a', 'b') AS kind, TIME '01:00:01' AS hour, [1, 2] AS list, {'a': 1} AS nest,"
        " 12::HUGEINT AS huge, NULL::INTEGER AS none",
    )
    source = rk.sources.duckdb(path)
    schema = source.facts().schema
    assert {
        name: schema[name] for name in ("u", "price", "day", "kind", "hour", "list", "nest/a", "huge", "none")
    } == {
        "u": rk.Int64(dtype="uint8"),
        "price": rk.Float32(),
        "day": rk.Timestamp("s"),
        "kind": rk.Text(),
        "hour": rk.Float32(),
        "list": rk.Int64(shape=(None,), dtype="int32"),
        "nest/a": rk.Int64(dtype="int32"),
        "huge": rk.Int64(),
        "none": rk.Int64(dtype="int32", optional=True),
    }
    (row,) = columns_of(source)
    assert (row["price"], row["day"], row["hour"], row["kind"]) == (
        float(decimal.Decimal("1.25")),
        datetime.datetime(2024, 2, 29),
        3601.0,
        "a",
    )
    assert {guess.column for guess in source.facts().guesses} == {"price", "hour"}


def test_a_large_answer_of_duckdb_arrives_in_chunks(tmp_path):
    path = put_duckdb(tmp_path / "a.duckdb", "CREATE TABLE t AS SELECT i FROM range(30000) r(i)")
    chunks = list(rk.sources.duckdb(path, query="SELECT i * 2 AS i FROM t").rows())
    assert [chunk.first for chunk in chunks] == [
        0,
        *[sum(c.rows for c in chunks[: n + 1]) for n in range(len(chunks) - 1)],
    ]
    assert max(chunk.rows for chunk in chunks) <= 8_192
    assert [row["i"] for row in columns_of(rk.sources.duckdb(path, query="SELECT i * 2 AS i FROM t"))] == list(
        range(0, 60000, 2)
    )


def test_a_query_is_given_on_the_command_line(tmp_path, capsys):
    path = put_sqlite(tmp_path / "a.db", *FLOWERS)
    query = "SELECT id FROM flowers WHERE wild"
    assert run_command_line(["write", str(path), str(tmp_path / "out"), "--query", query]) == 0, capsys.readouterr()
    assert [int(row["id"]) for row in rk.open(tmp_path / "out")["train"]] == [2, -3]


def test_table_and_query_exclude_each_other(tmp_path):
    for source in (rk.sources.sqlite, rk.sources.duckdb):
        with pytest.raises(rk.UsageError) as caught:
            source(tmp_path / "a.db", table="a", query="SELECT 1")
        assert caught.value.code == "U605"
