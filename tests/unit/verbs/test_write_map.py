"""Rows on their way through a function: what it needs beside it, and the plan that it is part of."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sample_conversions import build_conversion

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.conversion.encode_rows import EncodeTask
from rekord.conversion.mapped_rows import run_on_rows
from rekord.conversion.tasks import open_spill_writer, without_source
from rekord.conversion.workers import WorkerPool

ROWS = [{"a": i, "b": i + 1} for i in range(20)]
NEEDS = "declare the columns that `map=` returns: schema=rk.Schema({…})"


NANOSECONDS = """
import sys
from importlib.abc import MetaPathFinder


class NoPandas(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ImportError(name)


sys.meta_path.insert(0, NoPandas())
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import rekord as rk

if __name__ == "__main__":
    pa.parquet.write_table(pa.table({"t": np.array([1, 10**18 + 7], "M8[ns]")}), "a.parquet")
    made = rk.write("a.parquet", "out", map=lambda row: row, workers=1, progress=False)
    print([str(time) for batch in made["train"].batches(2) for time in batch["t"]])
"""


def with_area(row: Any) -> Any:
    return {**row, "area": row["a"] * row["b"]}


def refusal(rows: Any, out: Path, **options: Any) -> rk.RekordError:
    with pytest.raises(rk.EncodeError) as caught:
        rk.write(rows, out, progress=False, **options)
    return caught.value


def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text("a,b\n" + "".join(f"{row['a']},{row['b']}\n" for row in ROWS))
    return path


def test_a_function_may_add_columns(tmp_path: Path) -> None:
    for given in (ROWS, table(tmp_path), iter(ROWS), {name: [row[name] for row in ROWS] for name in ("a", "b")}):
        made = rk.write(given, tmp_path / "out", map=with_area, fresh=True, progress=False)
        assert made.schema == rk.Schema({"a": rk.Int64(), "b": rk.Int64(), "area": rk.Int64()})
        assert [row["area"] for row in made["train"]] == [row["a"] * row["b"] for row in ROWS]


def test_times_that_a_datetime_cannot_represent_reach_the_function(
    tmp_path: Path,
) -> None:
    times = np.array(["0000-12-31T23:59:59", "2001-09-09T01:46:40", "NaT"], "M8[us]")
    lists = pa.array([times[:2], None, times[1:2]], pa.list_(pa.timestamp("us")))
    given = tmp_path / "times.parquet"
    pq.write_table(pa.table({"t": times, "many": lists}), given)
    seen: list[Any] = []
    schema = rk.Schema({"t": rk.Timestamp(optional=True), "many": rk.Timestamp(shape=[None], optional=True)})

    def look(row: Any) -> Any:
        seen.append(row)
        return row

    made = rk.write(given, tmp_path / "out", map=look, schema=schema, workers=1, progress=False)
    assert [row["t"] for row in seen] == [times[0], times[1], None]
    assert [row["many"] for row in seen] == [list(times[:2]), None, [times[1]]]
    batch = next(iter(made["train"].batches(3)))
    assert batch["t"].values[:2].tolist() == times[:2].tolist()


def test_nanoseconds_reach_the_function_without_pandas(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(NANOSECONDS)
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "['1970-01-01T00:00:00.000000001', '2001-09-09T01:46:40.000000007']\n"


def test_a_column_that_only_later_rows_have_needs_a_schema(tmp_path: Path) -> None:
    def late(row: Any) -> Any:
        return row if row["a"] < 1200 else with_area(row)

    rows = [{"a": i, "b": 1} for i in range(1300)]
    failure = refusal(rows, tmp_path / "out", map=late)
    assert (failure.code, failure.location.row, failure.location.feature) == ("E309", 1200, "area")
    assert failure.do == NEEDS


def test_with_the_schema_that_is_asked_for_it_works(tmp_path: Path) -> None:
    schema = rk.infer([with_area(row) for row in ROWS])
    written = rk.write(ROWS, tmp_path / "out", map=with_area, schema=schema, progress=False)
    assert [row["area"] for row in written["train"]] == [row["a"] * row["b"] for row in ROWS]


def test_a_column_that_a_declared_schema_lacks_is_a_slip_of_the_function(tmp_path: Path) -> None:
    schema = rk.Schema({"a": rk.Int64(), "b": rk.Int64()})
    failure = refusal(ROWS, tmp_path / "out", map=with_area, schema=schema)
    assert (failure.code, failure.location.feature) == ("E309", "area")
    assert failure.do == "remove it from the row, or declare it in the schema"


def test_a_name_that_is_nearly_right_is_still_asked_about(tmp_path: Path) -> None:
    rows = [{"label": i} for i in range(5)]
    schema = rk.Schema({"label": rk.Int64()})
    failure = refusal(rows, tmp_path / "out", map=lambda row: {"lable": row["label"]}, schema=schema)
    assert (failure.code, failure.do) == ("E309", "did you mean `label`?")


def test_a_column_that_a_function_adds_is_not_lost_where_the_source_knows_splits(tmp_path: Path) -> None:
    old = rk.write(ROWS, tmp_path / "old", split={"train": 0.5, "val": 0.5}, progress=False)
    records = rk.sources.records(tmp_path / "old")
    added = rk.write(records, tmp_path / "out", map=with_area, split="source", progress=False)
    assert list(added.schema) == ["a", "b", "area"]
    assert sum(len(one) for one in added.splits.values()) == len(ROWS)
    for split in ("source", {"a": 0.5, "b": 0.5}):
        new = rk.write(records, tmp_path / "out", map=lambda row: row, split=split, fresh=True, progress=False)
        assert new.schema == old.schema
        assert sum(len(one) for one in new.splits.values()) == len(ROWS)


# What a function gets, and what is made of it.


def logged(folder: Path) -> Any:
    """A function that appends a line for each row to the file of its process."""
    folder.mkdir()

    def function(row: Any) -> Any:
        with open(folder / str(os.getpid()), "a") as log:
            print(row if isinstance(row, str) else row["a"], file=log)
        return {"name": row} if isinstance(row, str) else row

    return function


def calls(folder: Path) -> list[str]:
    return sorted([line for log in folder.iterdir() for line in log.read_text().split()], key=int)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("kind", ["list", "generator", "small file", "parts"])
def test_a_function_is_called_once_per_row_in_all_processes(tmp_path: Path, workers: int, kind: str) -> None:
    count = 3000
    lines = "".join(f'{{"a": {i}, "text": "{"x" * (700 if kind == "parts" else 1)}"}}\n' for i in range(count))
    (tmp_path / "rows.jsonl").write_text(lines)
    rows: dict[str, Any] = {
        "list": [str(i) for i in range(count)],
        "generator": (str(i) for i in range(count)),
        "small file": tmp_path / "rows.jsonl",
        "parts": tmp_path / "rows.jsonl",
    }
    function = logged(tmp_path / "log")
    made = rk.write(rows[kind], tmp_path / "out", map=function, workers=workers)
    assert calls(tmp_path / "log") == [str(i) for i in range(count)]
    assert made.records == count
    column = made["train"].to_arrow()["name" if kind in ("list", "generator") else "a"].to_pylist()
    assert [int(value) for value in column] == list(range(count))


def test_items_of_any_type_are_passed_to_the_function_and_nested_outputs_are_joined(tmp_path: Path) -> None:
    def load(path: Path) -> Any:
        return {"name": path.name, "size": {"h": 2, "w": len(path.name)}, "pixels": np.zeros((2, 3), np.uint8)}

    made = rk.write([Path("a.jpg"), Path("bc.jpg")], tmp_path / "paths", map=load, progress=False)
    assert made.schema["pixels"] == rk.Tensor("uint8", (2, 3))
    assert made["train"].to_arrow()["size/w"].to_pylist() == [5, 6]
    pairs = [("a", 1), ("b", 2)]
    made = rk.write(pairs, tmp_path / "pairs", map=lambda row: {**row, "z": row["x"] * row["y"]}, progress=False)
    assert made["train"].to_arrow()["z"].to_pylist() == ["a", "bb"]


def test_columns_that_pass_unchanged_keep_their_type(tmp_path: Path) -> None:
    schema = rk.Schema({"label": rk.Label(["cat", "dog"]), "a": rk.Int64()})
    rk.write([{"label": i % 2, "a": i} for i in range(6)], tmp_path / "old", schema=schema, progress=False)
    half = rk.write(tmp_path / "old", tmp_path / "new", map=lambda row: {**row, "a": row["a"] / 2}, progress=False)
    assert dict(half.schema) == {"label": rk.Label(["cat", "dog"]), "a": rk.Float32()}


def test_a_layout_is_kept_unless_the_function_adds_columns(tmp_path: Path) -> None:
    for i in range(4):
        path = tmp_path / "raw" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2), i).save(path)
    kept = rk.write(tmp_path / "raw", tmp_path / "kept", map=lambda row: row, progress=False)
    assert "image/encoded" in [one.key for one in kept.schema.values()]
    conversion = build_conversion(
        tmp_path / "raw",
        tmp_path / "table",
        {"map": lambda row: {"pixels": np.array(Image.open(row["image"])), "label": row["label"]}},
    )
    assert list(conversion.job.schema) == ["pixels", "label"]
    assert [guess.what for guess in conversion.guesses if "map" in guess.what] == [
        "`map` returns `pixels`, which the layout classification does not have: its rows are stored as a table"
    ]


# Failures.


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("schema", [None, rk.Schema({"a": rk.Int64()})])
def test_the_lowest_bad_row_is_reported_with_the_lines_of_the_function(
    tmp_path: Path, workers: int, schema: rk.Schema | None
) -> None:
    def helper(value: int) -> int:
        return 10 // (value % 50 - 33)  # rows 33, 83, …

    def function(row: Any) -> Any:
        return {"a": helper(row["a"])}

    rows = [{"a": i} for i in range(200)]
    failure = refusal(rows, tmp_path / "out", map=function, schema=schema, workers=workers)
    assert (failure.code, failure.location.row) == ("E380", 33)
    assert failure.found == "ZeroDivisionError: integer division or modulo by zero"
    assert [line.strip() for line in failure.notes if "File" in line or "10 //" in line or "helper(" in line] == [
        f'File "{__file__}", line {function.__code__.co_firstlineno + 1}, in function',
        'return {"a": helper(row["a"])}',
        f'File "{__file__}", line {helper.__code__.co_firstlineno + 1}, in helper',
        "return 10 // (value % 50 - 33)  # rows 33, 83, …",
    ]
    options = {"on_bad_row": "reject", "max_rejects": 4, "schema": schema, "workers": workers}
    made = rk.write(rows, tmp_path / "out", map=function, progress=False, **options)  # type: ignore[arg-type]
    assert made.records == 196
    lines = [json.loads(line) for line in (tmp_path / "out/.rekord/rejects.jsonl").read_text().splitlines()]
    assert [line["origin"]["row"] for line in lines] == [33, 83, 133, 183]


def test_errors_of_rekord_in_a_function_have_the_row_too(tmp_path: Path) -> None:
    rows = [{"a": i} for i in range(5)]
    failure = refusal(rows, tmp_path / "out", map=lambda row: rk.open(tmp_path / "missing"))
    assert (failure.code, failure.location.row) == ("E380", 0)
    assert str(failure.found).startswith("DatasetError X501: ")


def test_the_command_line_shows_the_lines_of_the_function(tidy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tidy.write_text("def tidy(row):\n    return {'a': 1 / (row['a'] - 3)}\n")
    assert run_command_line(["write", "table.csv", "out", "--map", f"{tidy}:tidy"]) == 1
    told = capsys.readouterr().err
    assert "EncodeError E380" in told
    assert "line 5" in told  # of the table
    assert 'tidy_rows.py", line 2, in tidy' in told
    assert "return {'a': 1 / (row['a'] - 3)}" in told
    assert "Traceback" not in told


@pytest.mark.concurrency
def test_a_function_that_kills_its_process_is_reported_with_its_rows(tmp_path: Path) -> None:
    parent, seen = os.getpid(), tmp_path / "seen"

    def dying(row: Any) -> Any:
        if os.getpid() != parent:
            seen.touch()
            os._exit(3)
        end = time.monotonic() + 120
        while not seen.exists() and time.monotonic() < end:
            time.sleep(0.005)
        return row

    with pytest.raises(rk.DatasetError) as caught:
        rk.write([{"a": i} for i in range(40)], tmp_path / "out", map=dying, workers=2, progress=False)
    assert caught.value.code == "X517"
    assert re.fullmatch(r"worker processes keep dying: rows? \d+( to \d+)?", caught.value.what)


@pytest.mark.parametrize("before", [0, 7])
@pytest.mark.parametrize("schema", [None, rk.Schema({"a": rk.Int64()})])
def test_what_a_generator_raises_is_raised(tmp_path: Path, before: int, schema: rk.Schema | None) -> None:
    def rows() -> Any:
        yield from ({"a": i} for i in range(before))
        raise LookupError("no such file")

    with pytest.raises(LookupError, match="no such file") as caught:
        rk.write(rows(), tmp_path / "out", map=lambda row: row, schema=schema, progress=False)
    assert caught.value.__notes__ == [f"rekord was reading row {before}"]


def test_a_generator_is_not_read_far_ahead(tmp_path: Path) -> None:
    produced = consumed = most_ahead = 0

    def rows() -> Any:
        nonlocal produced
        for i in range(400):
            produced += 1
            yield {"a": i, "blob": bytes(100_000)}

    pool = WorkerPool(3)
    task = EncodeTask(
        build_conversion([{"a": 0, "blob": b""}], tmp_path / "out", {"map": lambda row: row, "workers": 1}).job
    )
    source = rk.sources.rows(rows()).rows()
    with pool:
        for chunk in run_on_rows(pool, EncodeTask(without_source(task.job)), source, sent="function"):
            most_ahead = max(most_ahead, produced - consumed)
            consumed += chunk.rows
    assert consumed == produced == 400
    # Two chunks per process, of 2 MiB at most.
    assert most_ahead <= 2 * 3 * 21 + 21


# The plan.

TIDY = """\
FACTOR = 10


def _times(n):
    return n * FACTOR


def tidy(row):
    return {**row, "a": _times(row["a"])}
"""


def imported(path: Path, name: str) -> Any:
    """A function of a file, as `from tidy import tidy` gives it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


@pytest.fixture
def tidy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return write_file("tidy_rows.py", TIDY)


def write_file(name: str, text: str) -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def test_a_run_with_a_function_of_a_file_is_gone_on_with_in_python(tidy: Path) -> None:
    assert run_command_line(["write", "table.csv", "out", "--map", f"{tidy}:tidy"]) == 0
    before = Path("out/rekord.json").read_bytes()
    again = rk.write("table.csv", "out", map=imported(tidy, "tidy"), workers=1, progress=False)
    assert Path("out/rekord.json").read_bytes() == before
    assert [row["a"] for row in again["train"]] == [10 * row["a"] for row in ROWS]


@pytest.mark.parametrize("name", ["tidy", "Made"])
def test_what_a_function_calls_in_its_file_is_part_of_the_plan(tidy: Path, name: str) -> None:
    tidy.write_text(
        f"{TIDY}\n\nclass Made:\n    def __call__(self, row):\n        return tidy(row)\n\n\nMADE = Made()\n"
    )
    requested = "tidy" if name == "tidy" else "MADE"
    assert run_command_line(["write", "table.csv", "out", "--map", f"{tidy}:{requested}"]) == 0
    tidy.write_text(tidy.read_text().replace("FACTOR = 10", "FACTOR = 11"))
    assert run_command_line(["write", "table.csv", "out", "--map", f"{tidy}:{requested}"]) == 2
    if name == "tidy":
        with pytest.raises(rk.UsageError) as caught:
            rk.write("table.csv", "out", map=imported(tidy, "tidy"), workers=1, progress=False)
        assert "`map` differs" in caught.value.message


@pytest.mark.slow
def test_a_script_may_change_around_the_function_that_it_defines(tmp_path: Path) -> None:
    script = (
        "import rekord as rk\n"
        "def tidy(row):\n    return {**row, 'b': 0}\n"
        "rows = [{'a': i, 'b': i} for i in range(5)]\n"
        "rk.write(rk.sources.csv('table.csv'), 'out', map=tidy, progress=False)\n"
    )
    table(tmp_path)
    for more in ("", "print(rk.open('out')['train'][0]['b'])\n"):
        (tmp_path / "convert.py").write_text(script + more)
        ended = subprocess.run(
            [sys.executable, "convert.py"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
    assert ended.stdout == "0\n"


def test_rows_that_the_function_skips_are_not_all_kept_before_the_first_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rekord.conversion.mapped_rows.PEEK_BYTES", 128 * 500)
    taken = 0
    written_at: list[int] = []

    def rows() -> Any:
        nonlocal taken
        for taken in range(1, 40_001):
            yield {"a": taken}

    def few(row: Any) -> Any:
        return row if row["a"] in (1, 40_000) else None

    def open_writer(*arguments: Any) -> Any:
        written_at.append(taken)
        return open_spill_writer(*arguments)

    monkeypatch.setattr("rekord.conversion.tasks.open_spill_writer", open_writer)
    made = rk.write(rows(), tmp_path / "out", map=few, workers=1, progress=False)
    assert [row["a"] for row in made["train"]] == [1, 40_000]
    assert written_at[0] < 10_000
