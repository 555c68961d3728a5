"""Rows on their way through a function: what it needs beside it, and the plan that it is part of."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.cli.main import run_command_line

ROWS = [{"a": i, "b": i + 1} for i in range(20)]
NEEDS = "declare the columns that `map=` returns: schema=rk.Schema({…})"


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
    asked = "tidy" if name == "tidy" else "MADE"
    assert run_command_line(["write", "table.csv", "out", "--map", f"{tidy}:{asked}"]) == 0
    tidy.write_text(tidy.read_text().replace("FACTOR = 10", "FACTOR = 11"))
    assert run_command_line(["write", "table.csv", "out", "--map", f"{tidy}:{asked}"]) == 2
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
