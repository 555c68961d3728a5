"""Rows that do not fit: the first one ends a conversion, or each is listed and leaves no trace in the others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sample_conversions import (
    NumberedFilesSource,
    disable_fsync,
    execute_conversion,
    find_leftovers,
    numbered_lines,
    read_tree,
    use_small_parts,
)

import rekord as rk
from rekord.dataset.manifest import read_manifest
from rekord.errors import RekordError
from rekord.schema import Float32, Int64, Schema

SCHEMA = Schema({"a": Int64()})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_parts(monkeypatch, part_bytes=300)
    disable_fsync(monkeypatch)


def put(root: Path, bad: str | None) -> NumberedFilesSource:
    """Three files with four bad rows; where `bad` is None the lines of these are empty."""
    lines = numbered_lines(90).splitlines()
    for i, line in (
        (20, "! no row"),
        (21, "7 a label that is no class"),
        (55, "! no row"),
        (89, "9 nor this"),
    ):
        lines[i] = line if bad else ""
    root.mkdir()
    for i, name in enumerate("abc"):
        (root / f"{name}.txt").write_text("\n".join(lines[30 * i : 30 * i + 30]) + "\n")
    return NumberedFilesSource(str(root))


def refused(call: Any) -> RekordError:
    with pytest.raises(RekordError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_stop_names_the_lowest_bad_row_and_publishes_nothing(tmp_path: Path, workers: int, columns: bool) -> None:
    source = NumberedFilesSource(put(tmp_path / "source", "bad").root, columns=columns)
    out = tmp_path / "data"
    failure = refused(lambda: execute_conversion(source, out, {"workers": workers, "shuffle": True}))
    place = failure.location
    assert (failure.code, place.path, place.row, place.line) == (
        "E355",
        str(tmp_path / "source" / "a.txt"),
        20,
        21,
    )
    assert not out.exists()
    assert len(find_leftovers(out)) == 1, "what is finished is kept"


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("workers", [1, 3])
def test_rejects_are_listed_in_the_order_of_the_rows(tmp_path: Path, workers: int, columns: bool) -> None:
    source = NumberedFilesSource(put(tmp_path / "source", "bad").root, columns=columns)
    out = tmp_path / "data"
    options = {"on_bad_row": "reject", "max_rejects": 4, "workers": workers, "shuffle": True}
    outcome = execute_conversion(source, out, options)
    assert outcome.rejects == str(out / ".rekord" / "rejects.jsonl")
    told = [json.loads(line) for line in Path(outcome.rejects).read_text().splitlines()]
    assert [(one["code"], os.path.basename(one["origin"]["path"]), one["origin"]["line"]) for one in told] == [
        ("E355", "a.txt", 21),
        ("E317", "a.txt", 22),
        ("E355", "b.txt", 26),
        ("E317", "c.txt", 30),
    ]
    assert [one["origin"]["row"] for one in told] == [20, 21, 25, 29]
    assert told[1]["origin"]["feature"] == "label"
    assert all(one["error"] == "EncodeError" and one["what"] and one["do"] for one in told)
    manifest = read_manifest(str(out))
    assert (manifest.source.rows, manifest.source.rejected) == (90, 4)
    assert manifest.splits["train"].records == 86


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True, "shards": 3},
        {"shard_size": 700},
        {"split": {"a": 0.5, "b": 0.5}, "shuffle": True},
        {"split": {"a": 0.5, "b": 0.5}, "stratify": "label"},
    ],
)
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_a_rejected_row_leaves_no_trace_in_the_others(tmp_path: Path, options: dict[str, Any], columns: bool) -> None:
    shards = []
    for bad in ("bad", None):
        source = NumberedFilesSource(put(tmp_path / f"source {bad}", bad).root, columns=columns)
        out = tmp_path / f"data {bad}"
        execute_conversion(source, out, {**options, "on_bad_row": "reject", "max_rejects": 4})
        shards.append({name: data for name, data in read_tree(out).items() if name.endswith((".tfrecord", ".arrow"))})
    assert shards[0] == shards[1]


@pytest.mark.parametrize(("most", "fits"), [(4, True), (3, False), (0.05, True), (0.04, False), (0, False)])
def test_more_bad_rows_than_allowed_are_listed_and_nothing_is_published(
    tmp_path: Path, most: float, fits: bool
) -> None:
    source, out = put(tmp_path / "source", "bad"), tmp_path / "data"
    options = {"on_bad_row": "reject", "max_rejects": most}
    if fits:
        assert execute_conversion(source, out, options).manifest.source.rejected == 4
        return
    failure = refused(lambda: execute_conversion(source, out, options))
    (staging,) = find_leftovers(out)
    listed = tmp_path / staging / "rejects.jsonl"
    assert (failure.code, failure.location.path) == ("X514", str(listed))
    assert failure.found == "4 bad rows (4.44%)"
    assert len(listed.read_text().splitlines()) == 4
    assert not out.exists()


def test_a_source_of_bad_rows_alone_has_no_rows(tmp_path: Path) -> None:
    out = tmp_path / "data"
    options = {"schema": SCHEMA, "on_bad_row": "reject", "max_rejects": 100}
    failure = refused(lambda: execute_conversion([{"a": "x"}, {"a": None}], out, options))
    assert (failure.code, failure.found) == ("X510", "2 rows, all of them bad")
    (staging,) = find_leftovers(out)
    listed = tmp_path / staging / "rejects.jsonl"
    assert str(listed) in str(failure.do)
    assert [json.loads(line)["code"] for line in listed.read_text().splitlines()] == ["E303", "E301"]
    assert not out.exists()


def test_a_source_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.txt").write_text("\n\n")
    failure = refused(
        lambda: execute_conversion(NumberedFilesSource(str(tmp_path / "source")), tmp_path / "data", {})
    )
    assert (failure.code, failure.location.path) == ("X510", str(tmp_path / "source"))
    assert failure.found == "none"
    assert refused(lambda: execute_conversion([], tmp_path / "other", {"schema": SCHEMA})).code == "X510"


# Map functions.


def test_a_map_function_that_raises_is_e380_at_its_row(tmp_path: Path) -> None:
    rows = [{"a": i} for i in range(10)]

    def function(row: Any) -> Any:
        return {"a": 10 // (row["a"] - 7)}

    failure = refused(lambda: execute_conversion(rows, tmp_path / "data", {"schema": SCHEMA, "map": function}))
    assert (failure.code, failure.location.row) == ("E380", 7)
    assert str(failure.found).startswith("ZeroDivisionError: ")
    more = {"schema": SCHEMA, "map": function, "on_bad_row": "reject", "max_rejects": 0.1}
    execute_conversion(rows, tmp_path / "other", more)
    stored = rk.open(tmp_path / "other").to_arrow()["a"].to_pylist()
    assert stored == [10 // (i - 7) for i in range(10) if i != 7]


def test_a_map_function_that_yields_rows_and_then_raises_is_e380_at_its_row(tmp_path: Path) -> None:
    def broken(row: Any) -> Any:
        yield row
        if row["a"] == 3:
            raise ValueError("boom")

    rows = [{"a": i} for i in range(10)]
    with pytest.raises(rk.EncodeError) as caught:
        rk.write(rows, tmp_path / "out", schema=SCHEMA, map=broken, workers=1, progress=False)
    assert (caught.value.code, caught.value.location.row) == ("E380", 3)
    assert caught.value.found == "ValueError: boom"
    made = rk.write(
        rows,
        tmp_path / "out",
        schema=SCHEMA,
        map=broken,
        on_bad_row="reject",
        max_rejects=1,
        workers=1,
        progress=False,
    )
    assert made["train"].to_arrow()["a"].to_pylist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("made", [3, "text", [{"a": 1}, 5], {"a"}])
def test_a_map_function_that_returns_no_rows_is_e380(tmp_path: Path, made: Any) -> None:
    failure = refused(
        lambda: execute_conversion([{"a": 0}], tmp_path / "data", {"schema": SCHEMA, "map": lambda row: made})
    )
    assert (failure.code, failure.location.row) == ("E380", 0)
    assert failure.what == "map function returned something other than rows"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_map_function_makes_none_one_or_several_rows_of_a_row(tmp_path: Path, workers: int) -> None:
    source = put(tmp_path / "source", None)

    def function(row: Any) -> Any:
        if row["line"] % 3 == 0:
            return None
        return row if row["line"] % 3 == 1 else ({**row, "text": f"{row['text']} {i}"} for i in range(3))

    execute_conversion(source, tmp_path / "data", {"map": function, "workers": workers})
    table = rk.open(tmp_path / "data").to_arrow()
    expected = []
    for name in "abc":
        for line, text in enumerate((tmp_path / "source" / f"{name}.txt").read_text().splitlines()):
            if text:
                words = text.partition(" ")[2]
                expected += {0: [], 1: [words], 2: [f"{words} {i}" for i in range(3)]}[line % 3]
    assert table["text"].to_pylist() == expected
    manifest = read_manifest(str(tmp_path / "data"))
    assert manifest.source.rows == 86
    # All copies of a row are in one split, and each has a place of its own in the shuffled order.
    more = {"map": function, "shuffle": True, "split": {"a": 0.5, "b": 0.5}, "workers": workers}
    execute_conversion(source, tmp_path / "split", more)
    dataset = rk.open(tmp_path / "split")
    sides = [{text.split(" ")[1] for text in dataset[name].to_arrow()["text"].to_pylist()} for name in "ab"]
    assert not sides[0] & sides[1]
    texts = [text for name in "ab" for text in dataset[name].to_arrow()["text"].to_pylist()]
    assert sorted(texts) == sorted(expected)


def test_a_row_that_cannot_be_sent_through_a_lossy_column_is_named_among_columns(tmp_path: Path) -> None:
    columns = {"a": np.arange(100), "x": np.linspace(0, 1, 100)}
    columns["x"][63] = 1e300
    schema = Schema({"a": Int64(), "x": Float32()})
    failure = refused(lambda: execute_conversion(columns, tmp_path / "data", {"schema": schema}))
    assert (failure.code, failure.location.row, failure.location.feature) == ("E313", 63, "x")
    execute_conversion(columns, tmp_path / "data", {"schema": schema, "on_bad_row": "reject", "fresh": True})
    assert rk.open(tmp_path / "data").to_arrow()["a"].to_pylist() == [i for i in range(100) if i != 63]


def test_after_too_many_rejects_a_higher_limit_goes_on_from_what_was_read(tmp_path: Path) -> None:
    rows = [{"id": "none" if i == 3 else i} for i in range(10)]
    schema = rk.Schema({"id": rk.Int64()})
    out = tmp_path / "data"
    with pytest.raises(rk.DatasetError) as caught:
        rk.write(rows, out, schema=schema, on_bad_row="reject", progress=False)
    assert caught.value.code == "X514"
    dataset = rk.write(rows, out, schema=schema, on_bad_row="reject", max_rejects=0.2, progress=False)
    assert [batch["id"].tolist() for batch in dataset.batches(20)] == [[0, 1, 2, 4, 5, 6, 7, 8, 9]]


def test_a_row_that_an_earlier_run_rejected_stops_the_run_that_is_to_stop(tmp_path: Path) -> None:
    rows = [{"id": "none" if i == 3 else i} for i in range(10)]
    schema = rk.Schema({"id": rk.Int64()})
    with pytest.raises(rk.DatasetError):
        rk.write(rows, tmp_path / "data", schema=schema, on_bad_row="reject", progress=False)
    with pytest.raises(rk.EncodeError) as caught:
        rk.write(rows, tmp_path / "data", schema=schema, progress=False)
    assert (caught.value.code, caught.value.location.row) == ("E303", 3)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("most", [-1, float("nan"), "1", None, True])
def test_a_limit_of_rejects_is_a_number_from_0_on(tmp_path: Path, most: Any) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.write([{"a": 1}], tmp_path / "out", max_rejects=most, progress=False)
    assert caught.value.code == "U605"
    assert "max_rejects" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_place_whose_name_is_no_utf8_is_written_from_and_to(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/in \xff"
    os.makedirs(folder + b"/rose")
    pixels = np.random.default_rng(1).integers(0, 256, (128, 128, 3), np.uint8)
    for name in (b"0", b"1", b"2"):
        Image.fromarray(pixels).save(os.fsdecode(folder + b"/rose/" + name + b".png"))  # large: left out of spills
    with open(folder + b"/rose/2.png", "r+b") as file:
        file.truncate(5000)
    out = os.fsdecode(os.fsencode(tmp_path) + b"/out \xff")
    source = rk.sources.image_folder(os.fsdecode(folder))
    dataset = rk.write(source, out, on_bad_row="reject", max_rejects=1, workers=1, progress=False)
    assert len(dataset["train"].to_arrow()) == 2
    rejects = Path(out, ".rekord", "rejects.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["origin"]["path"] for line in rejects] == [f"{tmp_path}/in \\xff/rose/2.png"]
