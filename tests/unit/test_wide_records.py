"""Records with thousands of keys: every verb costs in proportion to their number, and shows no more than is read."""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow.parquet
import pytest

import rekord as rk
from rekord.cli import out, query_table
from rekord.cli.main import run
from rekord.cli.query_table import MOST_COLUMNS as SHOWN_COLUMNS
from rekord.cli.query_table import _narrow
from rekord.feeds.sql_engine import MOST_COLUMNS
from rekord.testing import example_bytes, frames, sequence_bytes

Captured = pytest.CaptureFixture[str]

FEW, MANY = 300, 1200


def wide(folder: Path, keys: int) -> str:
    path = folder / f"{keys}.tfrecord"
    path.write_bytes(frames([example_bytes({f"k{i:06d}": [i] for i in range(keys)})]))
    return str(path)


def calls_of(action: Callable[[], Any]) -> int:
    """How many functions an action calls, native ones included, on any thread."""
    counter = itertools.count()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            next(counter)

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return next(counter)


def quiet(*arguments: str) -> None:
    assert run(list(arguments)) in (0, 1)


ACTIONS: dict[str, Callable[[str, str], Any]] = {
    "schema": lambda path, _: (rk.open(path).schema, repr(rk.open(path).schema)),
    "batches": lambda path, _: list(rk.open(path).batches(1)),
    "shuffled": lambda path, _: list(rk.open(path).batches(1, shuffle=True)),
    "one record": lambda path, _: rk.open(path)[0],
    "to_arrow": lambda path, _: rk.open(path).to_arrow(),
    "show": lambda path, _: quiet("show", path),
    "show --json": lambda path, _: quiet("show", path, "--json"),
    "infer": lambda path, _: quiet("infer", path),
    "check": lambda path, _: quiet("check", path),
    "doctor": lambda path, _: quiet("doctor", path),
    "stats": lambda path, _: quiet("stats", path),
    "query": lambda path, _: quiet("query", path, "select * from records"),
    "query of one column": lambda path, _: quiet(
        "query", path, "select k000001 from records where k000002 = 2"
    ),
    "diff": lambda path, _: quiet("diff", path, path),
    "salvage": lambda path, out: rk.salvage(path, out),
    "parquet": lambda path, out: rk.export(path, f"{out}.parquet"),
    "csv": lambda path, out: rk.export(path, f"{out}.csv"),
    "jsonl": lambda path, out: rk.export(path, f"{out}.jsonl"),
    "rewrite": lambda path, out: rk.rewrite(path, out, progress=False, workers=1),
    "index": lambda path, _: quiet("index", path),
    "reader": lambda path, _: quiet("reader", path, "--for", "tensorflow"),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_four_times_the_keys_take_about_four_times_the_calls(name: str, tmp_path: Path) -> None:
    action = ACTIONS[name]
    few, many = wide(tmp_path, FEW), wide(tmp_path, MANY)
    action(few, str(tmp_path / "warm"))  # what is imported or compiled once is not counted
    taken = calls_of(lambda: action(few, str(tmp_path / "few")))
    assert calls_of(lambda: action(many, str(tmp_path / "many"))) <= 5 * taken


def test_show_shows_some_features_and_counts_the_others(tmp_path: Path, capsys: Captured) -> None:
    path = wide(tmp_path, 5000)
    assert run(["show", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 202
    assert lines[1].split() == ["k000000", "int64", "1", "0"]
    assert lines[200].split() == ["k000199", "int64", "1", "199"]
    assert lines[201] == "  … and 4,800 more features (use --json)"
    assert run(["show", path, "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)["records"]
    assert len(record["features"]) == 5000


def test_show_shows_as_many_as_there_are_up_to_its_limit(tmp_path: Path, capsys: Captured) -> None:
    assert run(["show", wide(tmp_path, 200)]) == 0
    assert "more feature" not in capsys.readouterr().out
    assert run(["show", wide(tmp_path, 201)]) == 0
    assert capsys.readouterr().out.endswith("… and 1 more feature (use --json)\n")


def test_show_bounds_context_and_steps_of_a_sequence(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "steps.tfrecord"
    many: dict[str, Any] = {f"k{i:04d}": [i] for i in range(300)}
    path.write_bytes(frames([sequence_bytes(many, {name: [values] for name, values in many.items()})]))
    assert run(["show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("… and 100 more features (use --json)") == 2
    assert len(shown.splitlines()) == 1 + 1 + 2 * (1 + 200 + 1)


def test_a_query_over_too_many_columns_is_refused_and_one_that_names_its_columns_is_not(
    tmp_path: Path,
) -> None:
    path = wide(tmp_path, MOST_COLUMNS + 1)
    for sql in ("select * from records", "from records", "describe records"):
        with pytest.raises(rk.UsageError) as caught:
            rk.query(path, sql)
        assert (caught.value.code, caught.value.found) == ("U684", "4,097 columns")
        assert caught.value.do == """rekord query PATH 'select "k000000", "k000001" from records'"""
    assert rk.query(path, "select count(*) as n from records").to_pylist() == [{"n": 1}]
    named = rk.query(path, 'select "k000000", "k000001" from records where k004096 = 4096')
    assert named.to_pylist() == [{"k000000": 0, "k000001": 1}]


def test_a_table_in_a_terminal_shows_some_columns_and_counts_the_others(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out, "is_terminal", lambda _: True)
    assert run(["query", wide(tmp_path, SHOWN_COLUMNS + 50), "select * from records"]) == 0
    printed, told = capsys.readouterr()
    heads, values = printed.splitlines()
    assert (len(heads.split()), values.split()) == (SHOWN_COLUMNS, [str(i) for i in range(SHOWN_COLUMNS)])
    assert told.startswith("… and 50 more columns: ")


def test_columns_are_narrowed_one_by_one_from_the_widest() -> None:
    def one_by_one(widths: list[int], width: int) -> None:
        while width and sum(widths) + 2 * (len(widths) - 1) > width:
            widest = max(range(len(widths)), key=widths.__getitem__)
            if widths[widest] <= query_table._LEAST:
                return
            widths[widest] -= 1

    chance = random.Random(5)
    for _ in range(300):
        widths = [chance.randint(1, 60) for _ in range(chance.randint(1, 12))]
        width = chance.choice([0, 20, 80, 120])
        expected = widths.copy()
        one_by_one(expected, width)
        _narrow(widths, width)
        assert widths == expected


def test_a_column_whose_name_has_dots_keeps_its_own_settings_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "dots.tfrecord"
    values: dict[str, Any] = {"a": [1], "a.b": [1, 2], "a.b.list": [7]}
    path.write_bytes(frames([example_bytes({**values, "c": [i]}) for i in range(20)]))
    rk.export(path, tmp_path / "dots.parquet")
    group = pyarrow.parquet.ParquetFile(tmp_path / "dots.parquet").metadata.row_group(0)
    has = {
        group.column(i).path_in_schema: "RLE_DICTIONARY" in group.column(i).encodings
        for i in range(group.num_columns)
    }
    assert has == {"a": True, "a.b.list.element": True, "a.b.list": True, "c": False}
