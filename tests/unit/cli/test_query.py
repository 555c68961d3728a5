"""`rekord query`."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from PIL import Image

import rekord as rk
from rekord.cli import console
from rekord.cli.main import run_command_line
from rekord.testing import corrupt_payload, example_bytes, frames

Captured = pytest.CaptureFixture[str]

SCHEMA = rk.Schema(
    {
        "label": rk.Label(["cat", "dog"]),
        "score": rk.Float32(),
        "name": rk.Text(),
        "vec": rk.Float32(shape=(2,)),
        "blob": rk.Bytes(optional=True),
    }
)
ROWS: list[dict[str, Any]] = [
    {"label": 0, "score": 0.1, "name": "a,b", "vec": [1, 0.5], "blob": b"plain"},
    {"label": 1, "score": float("nan"), "name": 'say "x"', "vec": [2, 0.5], "blob": b"\xff\x00"},
    {"label": 1, "score": float("inf"), "name": "line\nbreak", "vec": [3, 0.5], "blob": None},
]
COUNT = "select label_name, count(*) as n from records group by 1 order by 1"


@pytest.fixture
def data(tmp_path: Path) -> str:
    rk.write(ROWS, tmp_path / "data", schema=SCHEMA, progress=False, workers=1)
    return str(tmp_path / "data")


def test_an_answer_that_is_piped_is_csv(data: str, capsys: Captured) -> None:
    assert run_command_line(["query", data, COUNT]) == 0
    assert capsys.readouterr() == ("label_name,n\ncat,1\ndog,2\n", "")
    assert run_command_line(["query", data, "from records"]) == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [
        ["label", "score", "name", "vec", "blob"],
        ["0", "0.1", "a,b", "[1.0, 0.5]", "plain"],
        ["1", "", 'say "x"', "[2.0, 0.5]", "base64:/wA="],
        ["1", "", "line\nbreak", "[3.0, 0.5]", ""],
    ]


def test_json_is_one_document_of_columns_and_rows(data: str, capsys: Captured) -> None:
    assert run_command_line(["query", data, "select * from records", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "columns": ["label", "score", "name", "vec", "blob"],
        "rows": [
            [0, 0.1, "a,b", [1.0, 0.5], "plain"],
            [1, None, 'say "x"', [2.0, 0.5], {"base64": "/wA="}],
            [1, None, "line\nbreak", [3.0, 0.5], None],
        ],
    }


def test_every_type_of_an_answer_has_a_form_in_json(data: str, capsys: Captured) -> None:
    sql = (
        "select sum(label) as s, 1.5::decimal(3,1) as d, date '2020-02-01' as day, map {'a': 1} as m,"
        " {'x': 0.1::float, 'y': null} as st, true as yes, null as no, -0.0::double as zero, interval 2 days as i,"
        " 170141183460469231731687303715884105727::hugeint as huge from records"
    )
    assert run_command_line(["query", data, sql, "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert row[:8] == [2, 1.5, "2020-02-01", [["a", 1]], {"x": 0.1, "y": None}, True, None, 0.0]
    assert row[8:] == ["P0M2DT0S", 2**127 - 1]


def test_spans_of_time_are_written_as_iso_8601_does(data: str, capsys: Captured) -> None:
    sql = "select interval '1 month -2 days 3.25 seconds' as a, interval '-90 seconds' as b"
    assert run_command_line(["query", data, sql]) == 0
    assert capsys.readouterr().out == "a,b\nP1M-2DT3.25S,P0M0DT-90S\n"
    assert run_command_line(["query", data, sql, "--format", "table"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "P1M-2DT3.25S  P0M0DT-90S"


def test_jsonl_has_an_object_a_row_and_no_name_twice(data: str, capsys: Captured) -> None:
    assert (
        run_command_line(["query", data, "select label, label, name from records limit 2", "--format", "jsonl"]) == 0
    )
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(row.values()) for row in found] == [[0, 0, "a,b"], [1, 1, 'say "x"']]


def test_a_table_shows_some_rows_and_says_so(data: str, capsys: Captured) -> None:
    sql = "select label, score, name, vec, blob from records order by name"
    assert run_command_line(["query", data, sql, "--format", "table", "--limit", "2"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "label  score  name         vec       blob",
        '    0    0.1  a,b          [1, 0.5]  "plain"',
        "    1    inf  line\\nbreak  [3, 0.5]  null",
    ]
    assert shown.err == "… 1 more row (--limit 0 for all, -o FILE.csv writes them)\n"
    assert run_command_line(["query", data, sql, "--format", "table", "--limit", "0"]) == 0
    shown = capsys.readouterr()
    assert (len(shown.out.splitlines()), shown.err) == (4, "")
    assert run_command_line(["query", data, COUNT, "--format", "table"]) == 0
    assert capsys.readouterr() == ("label_name  n\ncat         1\ndog         2\n", "")


def test_the_rows_that_are_not_shown_are_counted_whatever_the_query_ends_with(data: str, capsys: Captured) -> None:
    for sql in ("from records;", "select name from records -- all of them", "with a as (from records) from a"):
        assert run_command_line(["query", data, sql, "--format", "table", "--limit", "1"]) == 0
        assert capsys.readouterr().err.startswith("… 2 more rows ("), sql
    # A statement that cannot be part of another one.
    assert run_command_line(["query", data, "describe records", "--format", "table", "--limit", "1"]) == 0
    assert " more rows (" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "rows"), [(["--json"], 2), (["--format", "jsonl"], 2), (["--json", "--limit", "0"], 3)]
)
def test_a_limit_applies_to_every_format(options: list[str], rows: int, data: str, capsys: Captured) -> None:
    assert run_command_line(["query", data, "from records", "--limit", "2", *options]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)["rows"] if "--json" in options else shown.out.splitlines()
    assert (len(found), shown.err) == (rows, "")


def test_a_limit_applies_to_a_file(data: str, tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["query", data, "from records", "--limit", "1", "-o", str(tmp_path / "a.parquet")]) == 0
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet").num_rows == 1
    assert capsys.readouterr().err == f"1 row in {tmp_path / 'a.parquet'}\n"


def test_bytes_in_a_table_are_described(tmp_path: Path, capsys: Captured) -> None:
    file = io.BytesIO()
    Image.new("RGB", (64, 48)).save(file, "PNG")
    values = {"image": [file.getvalue()], "raw": [b"\xff\x00" * 6000], "short": [b"\xff\x00"], "text": [b"x" * 500]}
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames([example_bytes(values)]))
    assert (
        run_command_line(["query", str(path), "select image, raw, short, text from records", "--format", "table"])
        == 0
    )
    row = capsys.readouterr().out.splitlines()[1]
    assert row.startswith(
        f"<PNG 64×48, {len(file.getvalue())} bytes>  b'\\xff\\x00\\xff\\x00'… 12 kB  b'\\xff\\x00'  \"xxx"
    )
    assert len(row) < 160


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_fits_the_terminal(
    width: int, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = {f"c{number:02}": [number] for number in range(30)}
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames([example_bytes({"blob": [b"\xff" * 9000], "text": [b"word " * 90], **values})] * 3))
    monkeypatch.setattr(console, "is_terminal", lambda stream: stream is sys.stdout)
    monkeypatch.setattr(console, "_write_line", lambda stream, pieces: stream.write(plain(pieces) + "\n"))
    monkeypatch.setenv("COLUMNS", str(width))
    assert run_command_line(["query", str(path), "select blob, text, columns('c..') from records"]) == 0
    shown = capsys.readouterr()
    assert max(map(len, shown.out.splitlines())) <= width
    assert shown.out.splitlines()[1].startswith("b'\\xff\\xff\\xff\\xff'… 9.0 kB")
    columns = len(shown.out.splitlines()[0].split())
    left = f"… {32 - columns} more columns (name them in the query, or -o FILE.csv)\n" if columns < 32 else ""
    assert shown.err == left


def plain(pieces: tuple[Any, ...]) -> str:
    return "".join(piece if isinstance(piece, str) else piece[0] for piece in pieces)


def test_a_terminal_gets_a_table_that_nothing_steers(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames([example_bytes({"a\x1b[31m": [b"\x1b[2J\xe2\x80\xae"]})]))
    assert run_command_line(["query", str(path), "from records", "--format", "table"]) == 0
    monkeypatch.setattr(console, "is_terminal", lambda stream: False)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize("name", ["answer.csv", "answer.tsv", "answer.jsonl", "answer.parquet"])
def test_a_file_gets_the_form_that_its_name_says(name: str, data: str, tmp_path: Path, capsys: Captured) -> None:
    target = tmp_path / name
    assert run_command_line(["query", data, COUNT, "-o", str(target)]) == 0
    assert capsys.readouterr() == ("", f"2 rows in {target}\n")
    if name.endswith(".parquet"):
        assert pyarrow.parquet.read_table(target).to_pydict() == {"label_name": ["cat", "dog"], "n": [1, 2]}
        return
    assert (
        target.read_text(encoding="utf-8")
        == {
            ".csv": "label_name,n\ncat,1\ndog,2\n",
            ".tsv": "label_name\tn\ncat\t1\ndog\t2\n",
            ".jsonl": '{"label_name": "cat", "n": 1}\n{"label_name": "dog", "n": 2}\n',
        }[target.suffix]
    )


def test_an_answer_of_no_rows_has_its_columns(data: str, tmp_path: Path, capsys: Captured) -> None:
    none = "select label, name from records where label = 5"
    assert run_command_line(["query", data, none]) == 0
    assert capsys.readouterr().out == "label,name\n"
    assert run_command_line(["query", data, none, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"columns": ["label", "name"], "rows": []}
    assert run_command_line(["query", data, none, "-o", str(tmp_path / "a.parquet")]) == 0
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet").column_names == ["label", "name"]
    capsys.readouterr()
    assert run_command_line(["query", data, none, "--format", "table"]) == 0
    assert capsys.readouterr().out == "label  name\n"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--format", "parquet"], "standard output"),
        (["-o", "answer"], "answer"),
        (["-o", "answer.csv", "--format", "table"], "table"),
        (["--json", "--format", "csv"], "--json and --format csv"),
        (["--json", "-o", "answer.csv"], "--json and --output"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: list[str],
    found: str,
    data: str,
    capsys: Captured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["query", data, COUNT, *options]) == 2
    said = capsys.readouterr().err
    assert said.startswith("UsageError U605: result cannot be written in this way\n")
    assert f"found     {found}\n" in said


def test_an_answer_never_takes_the_place_of_the_data(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(frames([example_bytes({"n": [1]})]))
    before = path.read_bytes()
    assert run_command_line(["query", str(path), "from records", "-o", str(path)]) == 2
    assert capsys.readouterr().err.startswith("UsageError U631: result would replace the data\n")
    assert path.read_bytes() == before


def test_a_failure_leaves_no_file_and_one_message(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(corrupt_payload(frames([example_bytes({"n": [i]}) for i in range(9)]), 8))
    rk.Schema({"n": rk.Int64()}).save(tmp_path / "s.json")
    target = tmp_path / "answer.csv"
    arguments = ["query", str(path), "from records", "--schema", str(tmp_path / "s.json")]
    assert run_command_line([*arguments, "-o", str(target)]) == 3
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "FrameError F102: payload checksum does not match"
    assert f"{path}, record 8" in said[1]
    assert not target.exists()
    assert run_command_line([*arguments, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "F102"


@pytest.mark.parametrize(
    ("sql", "code", "exit_code"),
    [
        ("select lable from records", "U680: invalid query", 2),
        ("selekt 1", "U680: invalid query", 2),
        ("copy records to 'x.csv'", "U680: query may only read the records of the dataset", 2),
        (
            "select * from read_csv('/etc/passwd')",
            "U680: query may only read the records of the dataset",
            2,
        ),
        ("select cast(name as integer) from records", "U682", 2),
    ],
)
def test_a_wrong_query_is_one_message(sql: str, code: str, exit_code: int, data: str, capsys: Captured) -> None:
    assert run_command_line(["query", data, sql]) == exit_code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"UsageError {code}")
    assert "Traceback" not in shown.err
    assert any(line.startswith("  do ") for line in shown.err.splitlines())


def test_a_place_that_is_not_there_is_said(tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["query", str(tmp_path / "none"), COUNT]) == 3
    assert capsys.readouterr().err.startswith("DatasetError X501: ")


def test_a_command_says_nothing_else(data: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "rekord", "query", data, COUNT],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "label_name,n\ncat,1\ndog,2\n", "")


@pytest.mark.concurrency
def test_who_has_seen_enough_of_a_long_answer_can_go(tmp_path: Path) -> None:
    one = frames([example_bytes({"text": [b"t" * 900]})])
    (tmp_path / "x.tfrecord").write_bytes(one * 30_000)
    program = [sys.executable, "-m", "rekord", "query", str(tmp_path / "x.tfrecord"), "from records"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == b"text\n"
        running.stdout.close()
        assert (running.wait(120), running.stderr.read()) == (0, b"")


# The interrupt comes while DuckDB computes, where it looks for none itself.
INTERRUPTED = """
import os, signal, sys, threading, time
from rekord.cli.main import run_command_line
from rekord.feeds.sql.engine import InterruptibleRunner

real = InterruptibleRunner.run
def begun(self, call):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    return real(self, call)
InterruptibleRunner.run = begun
code = run_command_line(sys.argv[1:])
def left():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rekord")]
deadline = time.monotonic() + 60
while left() and time.monotonic() < deadline:
    time.sleep(0.01)
print(code, *left())
"""
SLOW = "select count(*) from records a, records b, records c, records d where hash(a.n + b.n + c.n + d.n) = 1"


@pytest.mark.concurrency
def test_an_interrupt_ends_with_130_and_no_thread_is_left(tmp_path: Path) -> None:
    one = frames([example_bytes({"n": [1]})])
    (tmp_path / "x.tfrecord").write_bytes(one * 5000)
    rk.Schema({"n": rk.Int64()}).save(tmp_path / "s.json")
    declared = ["--schema", str(tmp_path / "s.json")]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            INTERRUPTED,
            "query",
            str(tmp_path / "x.tfrecord"),
            SLOW,
            *declared,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # The program's own end, after the verb's, is good.
    assert (done.stdout, done.stderr, done.returncode) == ("130\n", "interrupted\n", 0)


TYPES = {
    "date '2024-02-29'": "2024-02-29",
    "'infinity'::date": "infinity",
    "'5881580-07-10'::date": "5881580-07-10",
    "timestamp '2024-02-29 12:34:56.5'": "2024-02-29 12:34:56.500000",
    "'-infinity'::timestamp": "-infinity",
    "'294247-01-10 04:00:54.775806'::timestamp": "294247-01-10 04:00:54.775806",
    "'2024-02-29 12:34:56.123456789'::timestamp_ns": "2024-02-29 12:34:56.123456789",
    "timestamptz '2024-02-29 12:34:56+00'": "2024-02-29 12:34:56+00:00",
    "time '24:00:00'": "24:00:00",
    "time '01:02:03.000004'": "01:02:03.000004",
    "timetz '01:02:03+05'": "01:02:03+05",
    "[date 'infinity', null]": ["infinity", None],
    "{'d': date '2024-02-29', 'n': 1}": {"d": "2024-02-29", "n": 1},
    "map([date '2024-02-29'], [1])": [["2024-02-29", 1]],
    "340282366920938463463374607431768211455::uhugeint": "340282366920938463463374607431768211455",
    "[1::uhugeint]": "[1]",
    "'10101'::bit": "10101",
}


def test_values_that_python_or_arrow_does_not_have_are_text(
    data: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    assert run_command_line(["query", data, f"select {', '.join(TYPES)}", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert dict(zip(TYPES, row, strict=True)) == TYPES


@pytest.mark.parametrize("form", ["table", "csv", "tsv", "jsonl"])
def test_an_answer_of_every_type_that_duckdb_has_can_be_shown(form: str, data: str, capsys: Captured) -> None:
    assert run_command_line(["query", data, "select * from test_all_types()", "--format", form]) == 0
    printed = capsys.readouterr()
    assert "340282366920938463463374607431768211455" in printed.out
    assert printed.err == ""


def test_a_type_that_parquet_does_not_have_is_named(data: str, tmp_path: Path, capsys: Captured) -> None:
    target = tmp_path / "answer.parquet"
    assert run_command_line(["query", data, "select interval 1 day as i", "-o", str(target)]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("UsageError U676: result has a type that Parquet does not support\n")
    assert "month_day_nano_interval" in printed
    assert "\n  do        cast(… as varchar) in the query, or -o answer.csv\n" in printed
    assert not target.exists()
