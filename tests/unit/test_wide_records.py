"""Records with thousands of keys: cost grows with their number, not with its square, and what is shown is bounded."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.cli.query_output import MAX_SHOWN_COLUMNS
from rekord.errors import UsageError
from rekord.feeds.sql import answer
from rekord.testing import damage, wire

pytestmark = pytest.mark.slow

FEW, MANY = 200, 800
MOST_GROWTH = 5.0
"""Four times as many keys may take so many times as many calls; a quadratic step would take 16 times as many."""


def row(keys: int, *, prefix: str = "key") -> dict[str, Any]:
    kinds: list[Any] = [[1], [0.5], [b"abc"]]
    return {f"{prefix}_{i:06d}": kinds[i % 3] for i in range(keys)}


def record_file(folder: Path, keys: int, *, name: str = "a") -> Path:
    path = folder / f"{name}{keys}.tfrecord"
    path.write_bytes(damage.frames([wire.example_bytes(row(keys))] * 2))
    return path


def work_of(action: Callable[[], object]) -> int:
    """How many lines of Python an action runs in this thread: the same each time, unlike its duration."""
    lines = 0

    def count(frame: Any, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        action()
    finally:
        sys.settrace(before)
    return lines


def growth(tmp_path: Path, action: Callable[[Path], object]) -> float:
    """How many times as much work a file of MANY keys is as one of FEW."""
    few, many = record_file(tmp_path, FEW), record_file(tmp_path, MANY)
    action(few)  # what is imported and compiled only once counts for neither
    return work_of(lambda: action(many)) / work_of(lambda: action(few))


def export_to(form: str) -> Callable[[Path], object]:
    return lambda path: rk.export(path, path.with_suffix(f".{form}"), overwrite=True)


def numbers(path: Path) -> list[str]:
    """The columns of a file that are no bytes."""
    return [name for name, values in row(int(path.stem[1:])).items() if not isinstance(values[0], bytes)]


def fresh(path: Path) -> Path:
    """A place where nothing is yet."""
    return path.with_name(f"{path.stem}-{len(list(path.parent.iterdir()))}")


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(lambda path: rk.infer(path), id="infer"),
        pytest.param(lambda path: list(rk.open(path).batches(2)), id="batches"),
        pytest.param(lambda path: list(rk.open(path).batches(2, columns=["key_000001"])), id="one column"),
        pytest.param(lambda path: rk.open(path).to_arrow(), id="to_arrow"),
        pytest.param(lambda path: rk.open(path).sql("select * from records"), id="select all"),
        pytest.param(lambda path: rk.open(path).sql("select key_000001 from records"), id="select one"),
        pytest.param(lambda path: rk.check(path), id="check"),
        pytest.param(lambda path: rk.doctor(path), id="doctor"),
        pytest.param(lambda path: rk.stats(path), id="stats"),
        pytest.param(lambda path: rk.diff(path, path), id="diff"),
        pytest.param(lambda path: run_command_line(["show", str(path)]), id="show"),
        pytest.param(lambda path: run_command_line(["show", str(path), "--json"]), id="show json"),
        pytest.param(lambda path: run_command_line(["reader", str(path), "--for", "tensorflow"]), id="reader"),
        pytest.param(export_to("parquet"), id="parquet"),
        pytest.param(export_to("jsonl"), id="jsonl"),
        pytest.param(lambda path: rk.export(path, fresh(path), format="csv", columns=numbers(path)), id="csv"),
        pytest.param(lambda path: repr(rk.open(path).schema), id="schema"),
        pytest.param(lambda path: rk.open(path)[0], id="one record"),
        pytest.param(lambda path: list(rk.open(path).batches(1, shuffle=True)), id="shuffled"),
        pytest.param(lambda path: rk.salvage(path, fresh(path)), id="salvage"),
        pytest.param(lambda path: rk.rewrite(path, fresh(path), progress=False, workers=1), id="rewrite"),
        pytest.param(lambda path: run_command_line(["index", str(path)]), id="index"),
    ],
)
def test_the_work_grows_with_the_number_of_keys(tmp_path: Path, action: Callable[[Path], object]) -> None:
    assert growth(tmp_path, action) <= MOST_GROWTH


def test_the_work_grows_with_the_number_of_records_that_bring_keys_of_their_own(tmp_path: Path) -> None:
    def own_keys(records: int) -> Path:
        path = tmp_path / f"{records}.tfrecord"
        rows = [row(10, prefix=f"key_{i}") for i in range(records)]
        path.write_bytes(damage.frames([wire.example_bytes(one) for one in rows]))
        return path

    few, many = own_keys(15), own_keys(60)
    rk.doctor(few)
    # A little is left that grows faster: a dialect is widened up to 64 times. It was 11 with all keys in every batch.
    found = work_of(lambda: rk.doctor(many)) / work_of(lambda: rk.doctor(few))
    assert found <= 6


def test_a_record_with_more_values_under_every_key_is_taken_at_once(tmp_path: Path) -> None:
    def path_of(keys: int) -> Path:
        path = tmp_path / f"{keys}.tfrecord"
        rows: list[dict[str, Any]] = [{f"key_{i}": [1] * n for i in range(keys)} for n in (1, 2)]
        path.write_bytes(damage.frames([wire.example_bytes(one) for one in rows]))
        return path

    few, many = path_of(100), path_of(400)
    rk.check(few)
    found = work_of(lambda: rk.check(many)) / work_of(lambda: rk.check(few))
    assert found <= MOST_GROWTH


@pytest.mark.parametrize("keys", [999, 1000, 1001, 3500])
def test_show_prints_at_most_a_thousand_features(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: int
) -> None:
    path = record_file(tmp_path, keys)
    assert run_command_line(["show", str(path), "--record", "1"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert "record 1" in heading
    shown = [line.split()[0] for line in lines if line.startswith("  key_")]
    assert shown == sorted(row(keys))[:1000]
    plural = "s" if keys > 1001 else ""
    assert lines[len(shown) :] == (
        [f"  … and {keys - 1000:,} more feature{plural}: --json lists them all"] if keys > 1000 else []
    )


def test_show_bounds_the_context_and_the_steps_of_a_sequence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many: dict[str, Any] = {f"key_{i:06d}": [i] for i in range(1001)}
    path = tmp_path / "steps.tfrecord"
    steps = {name: [values] for name, values in many.items()}
    path.write_bytes(damage.frames([wire.sequence_bytes(many, steps)]))
    assert run_command_line(["show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("… and 1 more feature: --json lists them all") == 2
    assert len(shown.splitlines()) == 1 + 1 + 2 * (1 + 1000 + 1)


def test_json_shows_every_feature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = record_file(tmp_path, 1500)
    assert run_command_line(["show", str(path), "--json", "--record", "0"]) == 0
    (record,) = json.loads(capsys.readouterr().out)["records"]
    assert list(record["features"]) == sorted(row(1500))


def test_a_leaf_of_a_parquet_file_belongs_to_the_longest_column_that_fits() -> None:
    from rekord.verbs.export.tables import _find_top_column

    columns = {"a", "a.b", "c.d"}
    assert [
        _find_top_column(path, columns) for path in ("a", "a.b", "a.list.element", "a.b.list.element", "c.d", "e.f")
    ] == [
        "a",
        "a.b",
        "a",
        "a.b",
        "c.d",
        "",
    ]


def test_diff_compares_records_with_too_many_keys(tmp_path: Path) -> None:
    narrow = wire.example_bytes({"label": [1]})
    same, changed = row(4097), {**row(4097), "key_000000": [2]}
    a, b = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    a.write_bytes(damage.frames([narrow, wire.example_bytes(same), wire.example_bytes(same)]))
    b.write_bytes(damage.frames([narrow, wire.example_bytes(same), wire.example_bytes(changed)]))
    found = rk.diff(a, b)
    assert not found.same
    assert (found.records.added, found.records.removed) == (1, 1)
    assert rk.diff(a, a).same
    assert "records with too many keys (H727) in A: 2; compared byte by byte" in found.remarks


def test_stats_say_why_records_with_too_many_keys_are_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = record_file(tmp_path, 4097)
    found = rk.stats(path)
    assert found.not_counted == 2
    assert [one.code for one in found.foreign] == ["H727", "H727"]
    run_command_line(["stats", str(path)])
    assert "not counted: 2 records (record has too many keys to inspect)" in capsys.readouterr().out


def test_a_query_over_too_many_columns_names_the_ones_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "MAX_COLUMNS", FEW - 1)
    path = record_file(tmp_path, FEW)
    assert rk.query(path, "select key_000000 from records").to_pydict() == {"key_000000": [1, 1]}
    assert rk.query(path, "select count(*) as n from records").to_pydict() == {"n": [2]}
    with pytest.raises(UsageError) as failure:
        rk.query(path, "select * from records")
    assert (failure.value.code, failure.value.found) == ("U680", f"{FEW} columns")
    with pytest.raises(UsageError) as failure:
        rk.query(path, "select key_00000x from records")
    assert failure.value.likely == "`key_00000x` stands for `key_000000`"


def test_a_table_shows_its_first_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = record_file(tmp_path, FEW)
    assert run_command_line(["query", str(path), "select * from records", "--format", "table"]) == 0
    said = capsys.readouterr()
    assert [len(line.split()) for line in said.out.splitlines()] == [MAX_SHOWN_COLUMNS] * 3
    assert f"{FEW - MAX_SHOWN_COLUMNS} more columns (name them in the query, or -o FILE.csv)" in said.err
