"""`columns=`, `label=`, `drop=` and `keep=` of `rk.write`, and schemas that do not cover the data."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import ipc, parquet
from sample_conversions import find_leftovers, read_tree

import rekord as rk
from rekord.dataset.manifest import read_manifest
from rekord.errors import RekordError
from rekord.sources.base import UnusedInput
from rekord.verbs.options import WriteOptions
from rekord.verbs.write import prepare_conversion

Rows = list[dict[str, Any]]


def rows_of(labels: list[Any]) -> Rows:
    return [{"id": i, "age": 20.5 + i, "y": label} for i, label in enumerate(labels)]


def as_csv(rows: Rows, folder: Path) -> Path:
    with open(folder / "rows.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder / "rows.csv"


def as_jsonl(rows: Rows, folder: Path) -> Path:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "rows.jsonl"


def as_parquet(rows: Rows, folder: Path) -> Path:
    parquet.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    return folder / "rows.parquet"


def as_arrow_file(rows: Rows, folder: Path) -> Path:
    table = pa.Table.from_pylist(rows)
    with ipc.new_file(folder / "rows.arrow", table.schema) as file:
        file.write_table(table)
    return folder / "rows.arrow"


def as_columns(rows: Rows, _: Path) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def as_arrays(rows: Rows, _: Path) -> dict[str, Any]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def as_records(rows: Rows, folder: Path) -> Path:
    rk.write(rows, folder / "records", progress=False, workers=1)
    return folder / "records"


SOURCES: dict[str, Callable[[Rows, Path], Any]] = {
    "csv": as_csv,
    "jsonl": as_jsonl,
    "parquet": as_parquet,
    "arrow file": as_arrow_file,
    "arrow": lambda rows, _: pa.Table.from_pylist(rows),
    "pandas": lambda rows, _: pd.DataFrame(rows),
    "polars": lambda rows, _: pl.DataFrame(rows),
    "columns": as_columns,
    "arrays": as_arrays,
    "list": lambda rows, _: rows,
    "generator": lambda rows, _: (row for row in rows),
    "tuples": lambda rows, _: rk.sources.rows([tuple(row.values()) for row in rows], names=["id", "age", "y"]),
    "records": as_records,
}
LABELS: dict[str, tuple[list[Any], tuple[str, ...], list[int]]] = {
    "text": (["no", "yes", "maybe", "no"], ("maybe", "no", "yes"), [1, 2, 0, 1]),
    "ints": ([7, 10, 9, 7], ("7", "9", "10"), [0, 2, 1, 0]),
    "bools": ([True, False, True, True], ("False", "True"), [1, 0, 1, 1]),
}


def refused(call: Callable[[], object]) -> RekordError:
    with pytest.raises(RekordError) as caught:
        call()
    return caught.value


def write(rows: Any, out: Path, **options: Any) -> rk.Dataset:
    return rk.write(rows, out, **{"progress": False, "workers": 1, **options})


def column(dataset: rk.Dataset, name: str) -> list[Any]:
    return [np.asarray(row[name]).tolist() for row in dataset["train"]]


# Labels.


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_label_learns_its_classes_from_every_source(tmp_path: Path, source: str, kind: str) -> None:
    values, names, ids = LABELS[kind]
    made = write(SOURCES[source](rows_of(values), tmp_path), tmp_path / "out", label="y", drop=["id"])
    assert made.schema["y"] == rk.Label(names)
    assert list(made.schema) == ["age", "y"]
    assert column(made, "y") == ids
    assert read_manifest(str(tmp_path / "out")).options["columns"]["classes"] == {"y": list(names)}
    assert find_leftovers(tmp_path / "out") == []


@pytest.mark.parametrize("source", ["jsonl", "parquet", "pandas", "polars", "columns", "list", "generator"])
def test_lists_of_labels_are_stored_multi_hot(tmp_path: Path, source: str) -> None:
    rows = rows_of([["b", "a"], ["c"], [], ["a", "a"]])
    made = write(SOURCES[source](rows, tmp_path), tmp_path / "out", label="y")
    assert made.schema["y"] == rk.MultiLabel(["a", "b", "c"])
    assert column(made, "y") == [[1, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert rk.check(tmp_path / "out").findings == []


def test_lists_of_labels_are_stored_as_ids_where_that_is_declared(tmp_path: Path) -> None:
    columns = {"y": rk.Label(shape=(None,))}
    made = write(rows_of([[3, 20], [], [3]]), tmp_path / "out", columns=columns)
    assert made.schema["y"] == rk.Label(["3", "20"], shape=(None,))
    assert column(made, "y") == [[0, 1], [], [0]]


def test_vectors_of_0_and_1_are_multi_hot_already(tmp_path: Path) -> None:
    made = write({"y": np.array([[0, 1, 1], [1, 0, 0]])}, tmp_path / "out", label="y")
    assert made.schema["y"] == rk.MultiLabel(3)
    assert column(made, "y") == [[0, 1, 1], [1, 0, 0]]


def test_a_categorical_keeps_its_own_order(tmp_path: Path) -> None:
    values = pd.Categorical(["low", "high", None, "low"], categories=["low", "mid", "high"])
    frame = pd.DataFrame({"x": [1, 2, 3, 4], "y": values})
    made = write(frame, tmp_path / "out", columns={"y": rk.Label(optional=True)})
    assert made.schema["y"] == rk.Label(["low", "mid", "high"], optional=True)
    assert [row["y"] for row in made["train"]] == [0, 2, None, 0]


def test_integers_with_gaps_in_a_float_column_are_classes(tmp_path: Path) -> None:
    frame = pd.DataFrame({"y": [1.0, 2.0, np.nan, 1.0]})
    made = write(frame, tmp_path / "out", columns={"y": rk.Label(optional=True)})
    assert made.schema["y"].names == ("1", "2")
    assert [row["y"] for row in made["train"]] == [0, 1, None, 0]


@pytest.mark.parametrize("source", ["csv", "jsonl", "pandas", "list"])
def test_a_missing_label_is_a_bad_row_and_not_a_class(tmp_path: Path, source: str) -> None:
    rows = SOURCES[source](rows_of(["a", None, "b"]), tmp_path)
    failure = refused(lambda: write(rows, tmp_path / "out", label="y"))
    assert (failure.code, failure.location.feature, failure.location.row) == ("E301", "y", 1)
    made = write(rows, tmp_path / "rest", label="y", on_bad_row="reject", max_rejects=1)
    assert (made.schema["y"].names, column(made, "y")) == (("a", "b"), [0, 1])


@pytest.mark.parametrize(
    ("values", "code", "found"),
    [
        ([1.5, 2.0], "S148", "1.5"),
        ([None, None], "S148", "no values"),
        ([[["a"]], [["b"]]], "S148", "['a']"),
        (["x" * 1001, "y"], "S148", "a text of 1,001 characters"),
        ([str(i) for i in range(10_001)], "S147", "more"),
    ],
)
def test_a_column_that_cannot_be_a_label_is_refused(tmp_path: Path, values: Any, code: str, found: str) -> None:
    failure = refused(lambda: write(rows_of(values), tmp_path / "out", label="y"))
    assert (failure.code, failure.location.feature, failure.found) == (code, "y", found)
    assert not (tmp_path / "out").exists()


def test_up_to_10_000_classes_are_learned(tmp_path: Path) -> None:
    made = write({"y": np.arange(10_000)[::-1]}, tmp_path / "out", label="y")
    assert made.schema["y"].names == tuple(map(str, range(10_000)))


def test_a_value_that_cannot_be_a_class_is_a_bad_row(tmp_path: Path) -> None:
    rows = rows_of(["a", b"\xff", "b"])
    failure = refused(lambda: write(rows, tmp_path / "out", label="y"))
    assert (failure.code, failure.location.feature, failure.location.row) == ("E340", "y", 1)
    made = write(rows, tmp_path / "out", label="y", on_bad_row="reject", max_rejects=1)
    assert column(made, "y") == [0, 1]


def test_a_label_of_a_schema_learns_its_classes_too(tmp_path: Path) -> None:
    schema = rk.Schema({"id": rk.Int64(), "age": rk.Float32(), "y": rk.Label(key="class/label")})
    made = write(rows_of(["b", "a"]), tmp_path / "out", schema=schema)
    assert made.schema["y"] == rk.Label(["a", "b"], key="class/label")


def test_classes_that_the_data_declares_are_kept(tmp_path: Path) -> None:
    schema = rk.Schema({"y": rk.Label(["b", "a", "unused"])})
    write([{"y": "a"}, {"y": "b"}], tmp_path / "old", schema=schema)
    made = write(tmp_path / "old", tmp_path / "out", label="y")
    assert (made.schema["y"], column(made, "y")) == (schema["y"], [1, 0])


def test_a_background_takes_id_0(tmp_path: Path) -> None:
    made = write(rows_of(["b", "a"]), tmp_path / "out", label="y", background=True)
    assert (made.schema["y"].names, column(made, "y")) == (("background", "a", "b"), [2, 1])
    failure = refused(lambda: write(rows_of(["b", "a"]), tmp_path / "none", background=True))
    assert (failure.code, failure.do) == ("U605", "leave out background=")


def test_a_function_makes_the_label(tmp_path: Path) -> None:
    calls = []

    def shout(row: dict[str, Any]) -> dict[str, Any]:
        calls.append(row["id"])
        return {**row, "y": row["y"].upper()}

    made = write(rows_of(["b", "a"]), tmp_path / "out", label="y", map=shout)
    assert (made.schema["y"].names, column(made, "y")) == (("A", "B"), [1, 0])


# Rows that can be read only once.


def test_a_generator_is_read_once_and_kept_on_disk(tmp_path: Path) -> None:
    given = []

    def generate() -> Iterator[dict[str, Any]]:
        for i in range(25_000):
            given.append(i)
            yield {"x": i, "y": f"class {i % 7}"}

    made = write(generate(), tmp_path / "out", label="y")
    assert given == list(range(25_000))
    assert column(made, "x") == list(range(25_000))
    assert column(made, "y") == [i % 7 for i in range(25_000)]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_rows_that_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    rows = ({"x": lambda: 1, "y": "a"} for _ in range(2))
    failure = refused(lambda: write(rows, tmp_path / "out", columns={"x": rk.Text()}, label="y"))
    assert (failure.code, failure.do) == ("U616", "pass list(rows), or declare the classes: rk.Label(names)")


def test_a_limit_limits_the_classes_too(tmp_path: Path) -> None:
    made = write(({"y": str(i)} for i in range(100)), tmp_path / "out", label="y", limit=3)
    assert made.schema["y"].names == ("0", "1", "2")


# The same plan.


def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path) -> None:
    path = as_csv(rows_of([f"class {i % 5}" for i in range(2000)]), tmp_path)
    options = {"label": "y", "drop": ["id"], "split": {"train": 0.8, "val": 0.2}, "shuffle": True}
    for workers in (1, 2):
        write(path, tmp_path / f"out{workers}", workers=workers, **options)
    assert read_tree(tmp_path / "out1") == read_tree(tmp_path / "out2")


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ({"label": "y", "drop": ["age"]}, "columns"),
        ({"label": "y", "keep": ["id", "y", "age"]}, "columns"),
        ({"label": "y", "background": True}, "columns"),
        ({"columns": {"y": rk.Label(["b", "a"])}}, "schema"),
    ],
)
def test_other_columns_are_another_plan(tmp_path: Path, options: dict[str, Any], differs: str) -> None:
    path = as_csv(rows_of(["a", "b"]), tmp_path)
    write(path, tmp_path / "out", label="y")
    write(path, tmp_path / "out", label="y")  # the same: nothing to do
    failure = refused(lambda: write(path, tmp_path / "out", **options))
    assert failure.code == "U618"
    assert differs in str(failure.found)


def test_another_set_of_classes_is_another_plan(tmp_path: Path) -> None:
    write(rows_of(["a", "b"]), tmp_path / "out", label="y")
    failure = refused(lambda: write(rows_of(["a", "c"]), tmp_path / "out", label="y"))
    assert (failure.code, "the schema" in str(failure.found)) == ("U618", True)


# Some columns.


def test_declared_columns_keep_their_place_and_the_rest_is_inferred(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("zip,age,city\n01234,3,Ulm\n99999,4,Bonn\n")
    made = write(path, tmp_path / "out", columns={"age": rk.Float32(), "zip": rk.Bytes()})
    assert list(made.schema.items()) == [("zip", rk.Bytes()), ("age", rk.Float32()), ("city", rk.Text())]
    assert column(made, "zip") == [b"01234", b"99999"]


@pytest.mark.parametrize("source", SOURCES)
def test_columns_are_kept_or_dropped_in_every_source(tmp_path: Path, source: str) -> None:
    rows = rows_of(["a", "b"])
    make = SOURCES[source]
    (tmp_path / "1").mkdir()
    kept = write(make(rows, tmp_path), tmp_path / "kept", keep=["y", "id"])
    assert sorted(kept.schema) == ["id", "y"]
    dropped = write(make(rows, tmp_path / "1"), tmp_path / "dropped", drop=["y", "id"])
    assert list(dropped.schema) == ["age"]
    assert column(dropped, "age") == [20.5, 21.5]


def test_columns_that_are_not_written_are_reported(tmp_path: Path) -> None:
    path = as_csv(rows_of(["a", "b"]), tmp_path)
    found: list[Any] = []

    def remember(source: Any, facts: Any, *rest: Any, **named: Any) -> Any:
        made = declare(source, facts, *rest, **named)
        found.extend(made.facts.unused)
        return made

    from rekord.verbs import write as module

    declare = module.declare_table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "declare_table", remember)
        prepare_conversion(path, tmp_path / "out", WriteOptions(drop=["id"]))
        prepare_conversion(path, tmp_path / "out", WriteOptions(keep=["age", "y"]))
    assert found == [UnusedInput("column", "id", "dropped"), UnusedInput("column", "id", "not kept")]


def test_a_bad_field_in_a_dropped_column_is_no_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"x,y\n1,\xff\n2,b\n")
    assert refused(lambda: write(path, tmp_path / "out")).code == "E353"
    assert column(write(path, tmp_path / "out", drop=["y"]), "x") == [1, 2]


def test_rows_can_be_split_by_a_column_that_is_dropped(tmp_path: Path) -> None:
    path = as_csv(rows_of([f"group {i % 9}" for i in range(90)]), tmp_path)
    split = {"train": 0.5, "val": 0.5}
    made = write(path, tmp_path / "out", drop=["y"], split=split, split_by="y")
    groups = [{int(row["id"]) % 9 for row in made[name]} for name in split]
    assert groups[0].isdisjoint(groups[1])


def test_a_column_that_cannot_be_inferred_can_be_declared(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": ["1", 2], "z": [1, 2]})
    assert refused(lambda: write(frame, tmp_path / "out")).code == "S129"
    made = write(frame, tmp_path / "out", drop=["x"])
    assert list(made.schema) == ["z"]


@pytest.mark.parametrize("option", ["label", "columns", "drop", "keep"])
@pytest.mark.parametrize("source", ["csv", "parquet", "pandas", "list", "generator", "records"])
def test_an_unknown_column_is_refused_with_the_nearest_one(tmp_path: Path, source: str, option: str) -> None:
    rows = SOURCES[source](rows_of(["a", "b"]), tmp_path)
    value, do = {
        "label": ("agee", "label='age'"),
        "columns": ({"agee": rk.Text()}, "columns={'age': …}"),
        "drop": (["agee"], "drop=['age']"),
        "keep": (["agee"], "keep=['age']"),
    }[option]
    failure = refused(lambda: write(rows, tmp_path / "out", **{option: value}))
    assert (failure.code, failure.location.feature, failure.do) == ("U605", "agee", do)
    assert failure.what == f"`{option}` names 'agee', which is not a column of the data"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"schema": rk.Schema({"y": rk.Text()}), "label": "y"}, "`label` and `schema` cannot be combined"),
        ({"schema": rk.Schema({"y": rk.Text()}), "columns": {}}, "`columns` and `schema` cannot be combined"),
        ({"drop": ["id"], "keep": ["y"]}, "`drop` and `keep` cannot be combined"),
        ({"drop": ["y"], "label": "y"}, "`drop` and `label` cannot be combined"),
        ({"columns": {"y": rk.Text()}, "label": "y"}, "`label` and `columns` cannot be combined"),
        ({"columns": ["y"]}, "`columns` cannot be ['y']"),
        ({"columns": {"y": rk.Text}}, "`columns` cannot be "),
        ({"drop": "id"}, "`drop` cannot be 'id'"),
        ({"label": 3}, "`label` cannot be 3"),
        ({"background": "yes"}, "`background` cannot be 'yes'"),
        ({"drop": ["id", "age", "y"]}, "`drop` cannot be ['id', 'age', 'y']"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(tmp_path: Path, options: dict[str, Any], what: str) -> None:
    failure = refused(lambda: write(rows_of(["a"]), tmp_path / "out", **options))
    assert failure.code == "U605"
    assert failure.what.startswith(what)


# A schema that lacks columns.


@pytest.mark.parametrize("source", SOURCES)
def test_a_schema_that_lacks_columns_is_refused_by_every_source(tmp_path: Path, source: str) -> None:
    rows = SOURCES[source](rows_of(["a", "b"]), tmp_path)
    schema = rk.Schema({"y": rk.Bytes() if source == "records" else rk.Text()})
    failure = refused(lambda: write(rows, tmp_path / "out", schema=schema))
    assert failure.code == "S145"
    assert sorted(str(failure.what).split(": ")[1].split(", ")) == ["`age`", "`id`"]
    assert "columns=" in str(failure.do)
    assert "drop=" in str(failure.do)
    assert not (tmp_path / "out").exists()


def test_a_schema_covers_the_data_without_dropped_columns(tmp_path: Path) -> None:
    schema = rk.Schema({"y": rk.Text()})
    made = write(as_csv(rows_of(["a", "b"]), tmp_path), tmp_path / "out", schema=schema, drop=["id", "age"])
    assert made.schema == schema


def test_a_schema_for_a_folder_is_refused_alike(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "photos" / name / "1.png")
    schema = rk.Schema({"image": rk.Image()})
    failure = refused(lambda: write(tmp_path / "photos", tmp_path / "out", schema=schema))
    assert (failure.code, failure.do) == (
        "S145",
        "drop=['filename', 'label'], or columns= instead of schema= to infer the rest",
    )
    made = write(tmp_path / "photos", tmp_path / "out", schema=schema, drop=["filename", "label"])
    assert list(made.schema) == ["image"]


def test_a_column_of_later_rows_is_reported_with_its_row(tmp_path: Path) -> None:
    rows = [{"y": "a"}] * 3 + [{"y": "b", "more": 1}]
    failure = refused(lambda: write(rows, tmp_path / "out", schema=rk.Schema({"y": rk.Text()})))
    assert (failure.code, failure.location.row, failure.location.feature) == ("E309", 3, "more")
    assert failure.do == "drop=['more'], or declare it in the schema"
    made = write(rows, tmp_path / "out", schema=rk.Schema({"y": rk.Text()}), drop=["more"])
    assert len(made["train"]) == 4


# Images.


@pytest.fixture
def photos(tmp_path: Path) -> Rows:
    (tmp_path / "photos").mkdir()
    for i in range(6):
        Image.new("RGB", (4, 4), (i * 40, 0, 0)).save(tmp_path / "photos" / f"{i}.png")
    return [{"path": f"photos/{i}.png", "breed": "ab"[i % 2], "age": i} for i in range(6)]


@pytest.mark.parametrize("source", ["csv", "jsonl", "parquet", "arrow file", "pandas", "polars", "arrow", "columns"])
def test_paths_in_a_column_become_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photos: Rows, source: str
) -> None:
    rows = SOURCES[source](photos, tmp_path)
    # The paths of a file are relative to its folder, those of a table in memory to the working directory.
    monkeypatch.chdir(tmp_path if not isinstance(rows, Path) else "/")
    made = write(rows, tmp_path / "out", columns={"path": rk.Image()}, label="breed")
    assert made.schema == rk.Schema({"path": rk.Image(), "breed": rk.Label(["a", "b"]), "age": rk.Int64()})
    stored = [row["path"] for row in made["train"]]
    assert stored == [(tmp_path / row["path"]).read_bytes() for row in photos]


def test_images_of_paths_do_not_depend_on_workers(tmp_path: Path, photos: Rows) -> None:
    path = as_csv(photos, tmp_path)
    for workers in (1, 2):
        write(path, tmp_path / f"out{workers}", columns={"path": rk.Image()}, workers=workers)
    assert read_tree(tmp_path / "out1") == read_tree(tmp_path / "out2")


@pytest.mark.parametrize("source", ["csv", "jsonl", "pandas"])
def test_a_path_without_a_file_is_a_bad_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photos: Rows, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "3.png").unlink()
    rows = SOURCES[source](photos, Path("."))
    failure = refused(lambda: write(rows, tmp_path / "out", columns={"path": rk.Image()}))
    assert (failure.code, failure.location.path) == ("E329", "photos/3.png")
    made = write(rows, tmp_path / "out", columns={"path": rk.Image()}, on_bad_row="reject", max_rejects=1)
    assert column(made, "age") == [0, 1, 2, 4, 5]


def test_a_file_that_changed_is_another_plan(tmp_path: Path, photos: Rows) -> None:
    path = as_csv(photos, tmp_path)
    write(path, tmp_path / "out", columns={"path": rk.Image()})
    write(path, tmp_path / "out", columns={"path": rk.Image()})
    Image.new("RGB", (9, 9)).save(tmp_path / "photos" / "0.png")
    failure = refused(lambda: write(path, tmp_path / "out", columns={"path": rk.Image()}))
    assert failure.code == "U618"
    assert "the files of the source" in str(failure.found)


def test_a_function_gets_the_path_of_an_image(tmp_path: Path, photos: Rows) -> None:
    path = as_csv(photos, tmp_path)
    made = write(
        path,
        tmp_path / "out",
        columns={"path": rk.Image()},
        map=lambda row: {**row, "path": row["path"].read_bytes(), "age": int(row["path"].stem)},
    )
    assert column(made, "age") == list(range(6))


def test_text_is_no_image_in_rows_of_python(tmp_path: Path, photos: Rows) -> None:
    failure = refused(lambda: write(photos, tmp_path / "out", columns={"path": rk.Image()}))
    assert (failure.code, failure.do) == ("E322", "pathlib.Path(value) for a file")


# Layouts.


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for i, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4), (i, 0, 0)).save(tmp_path / "photos" / name / "1.png")
    return tmp_path / "photos"


def test_ids_of_folders_start_at_0_and_after_a_background_at_1(tmp_path: Path, folders: Path) -> None:
    made = write(folders, tmp_path / "out")
    assert (made.schema["label"].names, column(made, "label")) == (("cat", "dog"), [0, 1])
    made = write(folders, tmp_path / "old", background=True)
    assert (made.schema["label"].names, column(made, "label")) == (("background", "cat", "dog"), [1, 2])


def test_columns_of_a_layout_are_dropped_and_declared(tmp_path: Path, folders: Path) -> None:
    made = write(folders, tmp_path / "out", drop=["colorspace", "text"], columns={"filename": rk.Bytes()})
    assert not {"colorspace", "text"} & set(made.schema)
    assert made.schema["filename"] == rk.Bytes(key="image/filename")
    kept = write(folders, tmp_path / "kept", keep=["image", "label"])
    assert list(kept.schema) == ["image", "label"]
    failure = refused(lambda: write(folders, tmp_path / "none", drop=["colourspace"]))
    assert (failure.code, failure.do) == ("U605", "drop=['colorspace']")


def test_declared_classes_are_those_of_the_folders(tmp_path: Path, folders: Path) -> None:
    made = write(folders, tmp_path / "out", columns={"label": rk.Label(["dog", "cat"])})
    assert (made.schema["label"].names, column(made, "label")) == (("dog", "cat"), [1, 0])


def test_rows_are_appended_to_some_columns_of_a_layout(tmp_path: Path, folders: Path) -> None:
    write(folders, tmp_path / "out", keep=["image", "label"])
    made = rk.append(tmp_path / "out", folders, tmp_path / "more", progress=False)
    assert column(made, "label") == [0, 1, 0, 1]


def test_a_list_of_images_has_the_named_label(tmp_path: Path, folders: Path) -> None:
    (tmp_path / "list.csv").write_text("image,label,breed\nphotos/cat/1.png,x,b\nphotos/dog/1.png,x,a\n")
    made = write(tmp_path / "list.csv", tmp_path / "out", label="breed")
    assert (made.schema["label"].names, column(made, "label")) == (("a", "b"), [1, 0])
    made = write(tmp_path / "list.csv", tmp_path / "table", columns={"image": rk.Image()}, drop=["breed"])
    assert list(made.schema) == ["image", "label"]
