"""What is said of defects in rows, columns and datasets that are in memory: every cell of the table, made and met."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from PIL import Image

import rekord as rk

CELLS: dict[tuple[str, str, str], Callable[[Any], Any]] = {}


def cell(source: str, defect: str, code: str) -> Callable[[Any], Any]:
    def kept(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        assert CELLS.setdefault((source, defect, code), build) is build
        return build

    return kept


def test_the_table_has_the_cells_that_are_tested_here_and_no_others(defect_table):
    assert defect_table("Data in memory") == set(CELLS)


@pytest.mark.parametrize(("source", "defect", "code"), CELLS)
def test_a_defect_is_named_with_its_place_and_what_to_do(source, defect, code, place, check_defect):
    check_defect(code, CELLS[source, defect, code](place))


IMAGES = {"schema": rk.Schema({"image": rk.Image()})}
NUMBERS = {"schema": rk.Schema({"x": rk.Int64()})}
PAIRS = {"schema": rk.Schema({"x": rk.Int64(), "y": rk.Int64()})}
TEXTS = {"schema": rk.Schema({"x": rk.Text()})}


def png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 6)).save(file, "png")
    return file.getvalue()


# One maker for each source, from a column `name` of these values.


def in_rows(name: str, values: list[Any]) -> Any:
    return rk.sources.rows([{name: value} for value in values])


def in_columns(name: str, values: list[Any]) -> Any:
    return rk.sources.columns({name: values})


def in_pandas(name: str, values: list[Any]) -> Any:
    return rk.sources.pandas(pd.DataFrame({name: pd.Series(values, dtype=object)}))


def in_polars(name: str, values: list[Any]) -> Any:
    return rk.sources.polars(pl.DataFrame({name: values}))


def in_tf_data(name: str, values: list[Any]) -> Any:
    import tensorflow as tf

    return rk.sources.tf_data(tf.data.Dataset.from_tensor_slices({name: values}))


def in_torch(name: str, values: list[Any]) -> Any:
    return rk.sources.torch_dataset(items([{name: value} for value in values]))


def in_huggingface(name: str, values: list[Any]) -> Any:
    import datasets

    return rk.sources.huggingface(datasets.Dataset.from_dict({name: values}))


def items(rows: list[Any]) -> Any:
    """A torch Dataset of these."""
    import torch

    class Items(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(rows)

        def __getitem__(self, index: int) -> Any:
            return rows[index]

    return Items()


MAKERS = {
    "rows": in_rows,
    "columns": in_columns,
    "pandas": in_pandas,
    "polars": in_polars,
    "tf_data": in_tf_data,
    "torch_dataset": in_torch,
    "huggingface": in_huggingface,
}


def alike(source: str) -> None:
    """The defects of single values, which are the same wherever they come from."""
    maker = MAKERS[source]

    @cell(source, "truncated", "E331")
    def _(place):
        make = lambda: maker("image", [png(), png()[:40]])  # noqa: E731
        return place.case(make, row=1, feature="image", good=1, options=IMAGES)

    @cell(source, "wrong type", "E321")
    def _(place):
        make = lambda: maker("image", [png(), b"a text"])  # noqa: E731
        return place.case(make, row=1, feature="image", good=1, options=IMAGES)

    @cell(source, "bad encoding", "E318")
    def _(place):
        make = lambda: maker("x", [b"a", b"caf\xe9"])  # noqa: E731
        return place.case(make, row=1, feature="x", good=1, options=TEXTS)


def with_files(source: str) -> None:
    """The defects of files that values name, for sources whose values can be paths."""
    maker = MAKERS[source]

    @cell(source, "missing file", "E329")
    def _(place):
        good, none = place.image("1.png"), place.root / "none.png"
        make = lambda: maker("image", [good, none])  # noqa: E731
        return place.case(make, none, row=1, feature="image", good=1, options=IMAGES)

    @cell(source, "unreadable", "E329")
    def _(place):
        good, barred = place.image("1.png"), place.unreadable(place.image("2.png"))
        make = lambda: maker("image", [good, barred])  # noqa: E731
        return place.case(make, barred, row=1, feature="image", good=1, options=IMAGES)

    @cell(source, "too large", "E327")
    def _(place):
        good, huge = place.image("1.png"), place.huge(place.image("2.png"))
        make = lambda: maker("image", [good, huge])  # noqa: E731
        return place.case(make, huge, row=1, feature="image", good=1, options=IMAGES)


for _source in MAKERS:
    alike(_source)
for _source in ("rows", "columns", "pandas", "torch_dataset"):
    with_files(_source)


def test_a_dict_of_datasets_is_one_dataset_unless_its_splits_are_asked_for(tmp_path):
    import datasets

    parts = {name: datasets.Dataset.from_dict({"x": [1, 2]}) for name in ("train", "test")}
    rk.write(datasets.DatasetDict(parts), tmp_path / "one", progress=False, workers=1)
    dataset = rk.write(datasets.DatasetDict(parts), tmp_path / "two", split="source", progress=False, workers=1)
    assert list(rk.open(tmp_path / "one").splits) == ["train"]
    assert rk.check(tmp_path / "one").records == 4
    assert sorted(dataset.splits) == ["test", "train"]


# What is empty.


@cell("rows", "empty", "S126")
def _(place):
    return place.case(lambda: rk.sources.rows([]))


@cell("columns", "empty", "S126")
def _(place):
    return place.case(lambda: rk.sources.columns({"x": np.zeros(0)}))


@cell("pandas", "empty", "S126")
def _(place):
    return place.case(lambda: rk.sources.pandas(pd.DataFrame()))


@cell("polars", "empty", "X520")
def _(place):
    return place.case(lambda: rk.sources.polars(pl.DataFrame()))


@cell("tf_data", "empty", "X510")
def _(place):
    return place.case(lambda: in_tf_data("x", np.zeros(0)))


@cell("torch_dataset", "empty", "S126")
def _(place):
    return place.case(lambda: in_torch("x", []))


@cell("huggingface", "empty", "S126")
def _(place):
    return place.case(lambda: in_huggingface("x", []))


# Wrong types.


@cell("rows", "wrong type", "E325")
def _(place):
    return place.case(lambda: rk.sources.rows([{"x": 1}, 2]), row=1, good=1)


@cell("rows", "wrong type", "E303")
def _(place):
    return place.case(lambda: in_rows("x", [1, "a"]), row=1, feature="x", good=1, options=NUMBERS)


@cell("columns", "wrong type", "E303")
def _(place):
    return place.case(lambda: in_columns("x", [1, "a"]), row=1, feature="x", good=1, options=NUMBERS)


@cell("columns", "wrong type", "S129")
def _(place):
    return place.case(lambda: in_columns("x", [1, "a"]), feature="x")


@cell("pandas", "wrong type", "E303")
def _(place):
    return place.case(lambda: in_pandas("x", [1, "a"]), row=1, feature="x", good=1, options=NUMBERS)


@cell("pandas", "wrong type", "S130")
def _(place):
    frame = pd.DataFrame({"x": pd.to_timedelta(["1 day"])})
    return place.case(lambda: rk.sources.pandas(frame), row=0, feature="x")


@cell("polars", "wrong type", "X525")
def _(place):
    return place.case(lambda: in_polars("x", [object()]), feature="x")


@cell("tf_data", "wrong type", "X539")
def _(place):
    import tensorflow as tf

    return place.case(lambda: rk.sources.tf_data(tf.data.Dataset.range(4).window(2)), feature="x")


@cell("torch_dataset", "wrong type", "E302")
def _(place):
    import torch

    tensors = [torch.ones(3), torch.ones(3).to_sparse()]
    return place.case(lambda: in_torch("x", tensors), row=1, good=1)


@cell("huggingface", "wrong type", "S130")
def _(place):
    return place.case(lambda: in_huggingface("x", [datetime.timedelta(days=1)]), row=0, feature="x")


@cell("huggingface", "missing file", "E329")
def _(place):
    import datasets

    none, features = place.root / "none.png", datasets.Features({"image": datasets.Image(decode=False)})
    names = [str(place.image("1.png")), str(none)]
    dataset = datasets.Dataset.from_dict({"image": names}, features)
    return place.case(lambda: rk.sources.huggingface(dataset), none, row=1, feature="image", good=1)


@cell("huggingface", "unreadable", "E329")
def _(place):
    import datasets

    features = datasets.Features({"image": datasets.Image(decode=False)})
    names = [str(place.image("1.png")), str(place.image("2.png"))]
    dataset = datasets.Dataset.from_dict({"image": names}, features)
    barred = place.unreadable(place.root / "2.png")
    return place.case(lambda: rk.sources.huggingface(dataset), barred, row=1, feature="image", good=1)


# One half without the other.


@cell("rows", "orphan", "E301")
def _(place):
    rows = [{"x": 1, "y": 2}, {"x": 3}]
    return place.case(lambda: rk.sources.rows(rows), row=1, feature="y", good=1, options=PAIRS)


@cell("columns", "orphan", "E301")
def _(place):
    columns = {"x": [1, 2], "y": [1, None]}
    return place.case(lambda: rk.sources.columns(columns), row=1, feature="y", good=1, options=PAIRS)


@cell("pandas", "orphan", "E301")
def _(place):
    frame = pd.DataFrame({"x": [1, 2], "y": pd.array([1, None], dtype="Int64")})
    return place.case(lambda: rk.sources.pandas(frame), row=1, feature="y", good=1, options=PAIRS)


@cell("polars", "orphan", "E301")
def _(place):
    frame = pl.DataFrame({"x": [1, 2], "y": [1, None]})
    return place.case(lambda: rk.sources.polars(frame), row=1, feature="y", good=1, options=PAIRS)


@cell("torch_dataset", "orphan", "E301")
def _(place):
    dataset = items([{"x": 1, "y": 2}, {"x": 3}])
    return place.case(lambda: rk.sources.torch_dataset(dataset), row=1, feature="y", good=1, options=PAIRS)


@cell("huggingface", "orphan", "E301")
def _(place):
    import datasets

    dataset = datasets.Dataset.from_dict({"x": [1, 2], "y": [1, None]})
    return place.case(lambda: rk.sources.huggingface(dataset), row=1, feature="y", good=1, options=PAIRS)


# Two of one name.

TWICE = {"a/b": 1, "a": {"b": 2}}


@cell("rows", "duplicate key", "E325")
def _(place):
    return place.case(lambda: rk.sources.rows([{"a/b": 1}, TWICE]), row=1, good=1)


@cell("columns", "duplicate key", "S132")
def _(place):
    return place.case(lambda: rk.sources.columns({"a/b": [1], "a": [{"b": 2}]}), feature="a/b")


@cell("pandas", "duplicate key", "S132")
def _(place):
    return place.case(lambda: rk.sources.pandas(pd.DataFrame([[1, 2]], columns=["x", "x"])))


@cell("polars", "duplicate key", "X522")
def _(place):
    return place.case(lambda: rk.sources.polars(pl.DataFrame({"a/b": [1], "a": [{"b": 2}]})), feature="a/b")


@cell("tf_data", "duplicate key", "X539")
def _(place):
    import tensorflow as tf

    return place.case(lambda: rk.sources.tf_data(tf.data.Dataset.from_tensors(TWICE)))


@cell("torch_dataset", "duplicate key", "E325")
def _(place):
    return place.case(lambda: rk.sources.torch_dataset(items([{"a/b": 1}, TWICE])), row=1, good=1)


@cell("huggingface", "duplicate key", "X539")
def _(place):
    import datasets

    dataset = datasets.Dataset.from_dict({"a/b": [1], "a": [{"b": 2}]})
    return place.case(lambda: rk.sources.huggingface(dataset), feature="a/b")


# Columns that come and go.


@cell("rows", "inconsistent columns", "E309")
def _(place):
    rows = [{"x": 1}, {"x": 2, "z": 3}]
    return place.case(lambda: rk.sources.rows(rows), row=1, feature="z", good=1, options=NUMBERS)


@cell("columns", "inconsistent columns", "S132")
def _(place):
    return place.case(lambda: rk.sources.columns({"x": [1, 2], "y": [1]}), feature="y")


@cell("torch_dataset", "inconsistent columns", "E309")
def _(place):
    dataset = items([{"x": 1}, {"x": 2, "z": 3}])
    return place.case(lambda: rk.sources.torch_dataset(dataset), row=1, feature="z", good=1, options=NUMBERS)


@cell("huggingface", "inconsistent columns", "S129")
def _(place):
    import datasets

    splits = {
        "train": datasets.Dataset.from_dict({"x": [1]}),
        "test": datasets.Dataset.from_dict({"x": ["a"]}),
    }
    return place.case(lambda: rk.sources.huggingface(datasets.DatasetDict(splits)), feature="x")


# Numbers that are too large.


@cell("rows", "too large", "E310")
def _(place):
    return place.case(lambda: in_rows("x", [1, 2**70]), row=1, feature="x", good=1, options=NUMBERS)


@cell("columns", "too large", "S130")
def _(place):
    return place.case(lambda: in_columns("x", [1, 2**70]), feature="x")


@cell("pandas", "too large", "S130")
def _(place):
    return place.case(lambda: in_pandas("x", [1, 2**70]), feature="x")


@cell("polars", "too large", "X525")
def _(place):
    frame = pl.DataFrame({"x": pl.Series([1, 2**70], dtype=pl.Int128)})
    return place.case(lambda: rk.sources.polars(frame), feature="x")


@cell("torch_dataset", "too large", "E310")
def _(place):
    return place.case(lambda: in_torch("x", [1, 2**70]), row=1, feature="x", good=1, options=NUMBERS)
