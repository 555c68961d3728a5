"""Rows from real tf.data pipelines, torch datasets and Hugging Face datasets."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

import rekord as rk
from rekord.errors import RekordError
from rekord.sources.base import ColumnChunk, SourceRow, is_partitioned
from rekord.sources.frameworks import find_framework_source, huggingface, tf_data, torch_dataset

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import datasets as hf
    import tensorflow as tf
    import torch


def plain(value: Any) -> Any:
    if hasattr(value, "as_py"):
        return value.as_py()
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else value


def read(source: Any) -> list[dict[str, Any]]:
    """All rows; their positions must count up from 0."""
    out: list[dict[str, Any]] = []
    for chunk in source.rows():
        if isinstance(chunk, SourceRow):
            assert (chunk.path, chunk.position) == ("", len(out))
            assert not isinstance(chunk.values, RekordError), chunk.values
            out.append({name: plain(value) for name, value in chunk.values.items()})
            continue
        assert isinstance(chunk, ColumnChunk)
        assert (chunk.path, chunk.first) == ("", len(out))
        for i in range(chunk.rows):
            out.append({name: plain(column[i]) for name, column in chunk.values.items()})
    return out


def stored(source: Any, folder: Path, schema: rk.Schema | None = None) -> list[dict[str, Any]]:
    """All rows, written under the source's own schema and read again."""
    schema = schema or source.facts().schema or source.peek_schema()
    path = folder / "x.tfrecord"
    with rk.Writer(path, schema) as writer:
        for chunk in source.rows():
            if isinstance(chunk, SourceRow):
                writer.write({name: value for name, value in chunk.values.items() if name != "split"})
            else:
                writer.write_columns({name: one for name, one in chunk.values.items() if name != "split"})
    return [
        {name: plain(value) for name, value in rk.decode(payload, schema).items()} for payload in rk.records(path)
    ]


def png(value: int, mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Pillow.new(mode, (2, 3), value).save(out, "png")
    return out.getvalue()


# tf.data


def test_dense_elements_come_in_columns_under_the_schema_of_their_specs(tmp_path):
    given = {
        "i": np.arange(5000, dtype=np.int32),
        "flag": np.arange(5000) % 2 == 0,
        "f": np.arange(5000, dtype=np.float32) / 4,
        "h": np.ones((5000, 2), np.float16),
        "d": np.arange(5000) / 3,
        "raw": np.zeros((5000, 2, 2), np.uint8),
        "grid": np.ones((5000, 2, 2), np.int64),
        "in": {"side": np.arange(5000, dtype=np.uint8)},
    }
    source = tf_data(tf.data.Dataset.from_tensor_slices(given))
    facts = source.facts()
    assert (facts.rows, facts.layout, is_partitioned(source)) == (5000, "table", False)
    assert facts.schema == rk.Schema(
        {
            "i": rk.Int64(dtype="int32"),
            "flag": rk.Int64(dtype="bool"),
            "f": rk.Float32(),
            "h": rk.Float32((2,), dtype="float16"),
            "d": rk.Tensor("float64"),
            "raw": rk.Tensor("uint8", (2, 2)),
            "grid": rk.Int64((2, 2)),
            "in/side": rk.Int64(dtype="uint8"),
        }
    )
    assert all(isinstance(chunk, ColumnChunk) for chunk in source.rows())
    rows = read(source)
    assert [row["i"] for row in rows] == list(range(5000))
    assert stored(source, tmp_path) == rows
    assert [row["d"] for row in rows] == (np.arange(5000) / 3).tolist()


def test_strings_and_lists_of_any_length_come_in_columns_too(tmp_path):
    def make() -> Iterator[Any]:
        for i in range(150):
            yield {"s": b"text %d" % i, "n": [1] * (i % 4), "w": [b"w"] * (i % 3), "b": np.ones((i % 2, 4))}

    spec = {
        "s": tf.TensorSpec((), tf.string),
        "n": tf.TensorSpec((None,), tf.int64),
        "w": tf.TensorSpec((None,), tf.string),
        "b": tf.TensorSpec((None, 4), tf.float32),
    }
    source = tf_data(tf.data.Dataset.from_generator(make, output_signature=spec))
    assert source.facts().rows is None
    assert source.facts().schema == rk.Schema(
        {"s": rk.Bytes(), "n": rk.Int64((None,)), "w": rk.Bytes((None,)), "b": rk.Float32((None, 4))}
    )
    assert all(isinstance(chunk, ColumnChunk) for chunk in source.rows())
    rows = read(source)
    assert rows[7] == {"s": b"text 7", "n": [1] * 3, "w": [b"w"], "b": [[1.0] * 4]}
    assert len(rows) == 150
    assert stored(source, tmp_path) == rows


def test_ragged_and_sparse_elements_come_row_by_row(tmp_path):
    given = {
        "one": tf.ragged.constant([[1, 2], [], [3]], dtype=tf.int64),
        "two": tf.ragged.constant([[[1], [2, 3]], [], [[]]], ragged_rank=2, dtype=tf.int64),
        "sparse": tf.sparse.from_dense([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [2.0, 0.0, 3.0]]),
    }
    source = tf_data(tf.data.Dataset.from_tensor_slices(given))
    schema = source.facts().schema
    assert schema["one"] == rk.Int64((None,))
    assert schema["two"].shape == (None, None)
    assert schema["sparse"] == rk.Sparse("float32", 3)
    rows = read(source)
    assert [row["one"] for row in rows] == [[1, 2], [], [3]]
    assert [row["two"] for row in rows] == [[[1], [2, 3]], [], [[]]]
    assert rows[2]["sparse"] == [[0, 2], [2.0, 3.0]]
    assert stored(source, tmp_path) == rows


def test_decoded_images_of_any_size_are_kept_as_png(tmp_path):
    def make() -> Iterator[Any]:
        for i in range(3):
            yield np.full((2 + i, 3, 3), i, np.uint8), i

    spec = (tf.TensorSpec((None, None, 3), tf.uint8), tf.TensorSpec((), tf.int64))
    source = tf_data(tf.data.Dataset.from_generator(make, output_signature=spec), names=("image", "label"))
    assert source.facts().schema == rk.Schema({"image": rk.Image(format="png", channels=3), "label": rk.Int64()})
    pixels = [np.asarray(Pillow.open(io.BytesIO(row["image"]))) for row in stored(source, tmp_path)]
    assert [one.shape for one in pixels] == [(2, 3, 3), (3, 3, 3), (4, 3, 3)]
    assert [int(one.max()) for one in pixels] == [0, 1, 2]


def test_where_specs_do_not_tell_enough_the_first_rows_do():
    def make() -> Iterator[Any]:
        yield np.array([1, 2])
        yield np.array([3])

    spec = tf.TensorSpec(None, tf.int64)
    source = tf_data(tf.data.Dataset.from_generator(make, output_signature=spec))
    assert source.facts().schema is None
    assert dict(source.peek_schema().items()) == {"x": rk.Int64((None,))}
    assert read(source) == [{"x": [1, 2]}, {"x": [3]}]


def test_tuples_and_single_tensors_have_names():
    pair = tf.data.Dataset.from_tensor_slices((np.arange(2), np.arange(2)))
    assert read(tf_data(pair)) == [{"x": 0, "y": 0}, {"x": 1, "y": 1}]
    assert read(tf_data(pair, names=("p", "q"))) == [{"p": 0, "q": 0}, {"p": 1, "q": 1}]
    assert read(tf_data(tf.data.Dataset.range(2))) == [{"x": 0}, {"x": 1}]


def test_a_pipeline_that_never_ends_says_so():
    assert tf_data(tf.data.Dataset.range(2).repeat()).facts().extra == {"infinite": True}


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: tf.data.Dataset.range(4).window(2),
        lambda: tf.data.Dataset.from_tensors((1, 2, 3, 4)),
        lambda: tf.data.Dataset.from_tensors({"a": {"b": 1}, "a/b": 2}),
    ],
)
def test_elements_that_cannot_be_rows_are_refused(dataset):
    with pytest.raises(RekordError) as caught:
        tf_data(dataset())
    assert caught.value.code == "X539"


def test_the_example_of_the_page_is_what_is_said():
    with pytest.raises(RekordError) as caught:
        tf_data(tf.data.Dataset.range(10).window(5))
    page = Path(__file__).parents[2] / "docs" / "errors" / "X539.md"
    assert f"```text\n{caught.value.message}\n```" in page.read_text(encoding="utf-8")


def test_a_failure_inside_a_pipeline_names_the_row_and_keeps_its_cause():
    broken = tf.data.Dataset.range(10).map(
        lambda i: tf.debugging.check_numerics(1.0 / tf.cast(9 - i, tf.float32), "mine")
    )
    with pytest.raises(rk.DatasetError) as caught:
        read(tf_data(broken))
    assert (caught.value.code, caught.value.location.row) == ("X538", 9)
    assert caught.value.found == "mine : Tensor had Inf values"
    assert isinstance(caught.value.__cause__, tf.errors.InvalidArgumentError)


# torch


class Mapped(torch.utils.data.Dataset):  # type: ignore[misc, type-arg]
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Streamed(torch.utils.data.IterableDataset):  # type: ignore[misc, type-arg]
    def __iter__(self) -> Iterator[Any]:
        for i in range(3):
            yield {"a": torch.tensor(i), "b": {"c": torch.ones(2)}}


@pytest.mark.parametrize(
    ("item", "names", "row"),
    [
        ({"a": torch.tensor(3), "b": torch.ones(2, 2)}, None, {"a": 3, "b": [[1, 1], [1, 1]]}),
        ((torch.ones(2), 1), None, {"x": [1.0, 1.0], "y": 1}),
        ((torch.ones(2), 1), ("image", "label"), {"image": [1.0, 1.0], "label": 1}),
        (torch.tensor([1, 2], dtype=torch.int16), None, {"x": [1, 2]}),
        (torch.tensor(0.5, dtype=torch.bfloat16), None, {"x": 0.5}),
        (torch.ones(1, requires_grad=True), None, {"x": [1.0]}),
        ((Pillow.new("L", (2, 1), 7), 3), None, {"x": [[7, 7]], "y": 3}),
    ],
)
def test_items_of_a_torch_dataset_become_rows(item, names, row):
    source = torch_dataset(Mapped([item, item]), names=names)
    assert (source.facts().rows, source.kind) == (2, "torch_dataset")
    assert read(source) == read(source) == [row, row]


def test_a_torch_dataset_is_stored_under_the_schema_of_its_rows(tmp_path):
    data = torch.utils.data.TensorDataset(torch.arange(6).reshape(3, 2), torch.arange(3))
    source = torch_dataset(data)
    assert dict(source.peek_schema().items()) == {"x": rk.Int64((2,)), "y": rk.Int64()}
    assert stored(source, tmp_path) == [{"x": [2 * i, 2 * i + 1], "y": i} for i in range(3)]


def test_names_given_to_write_name_the_parts_of_a_torch_dataset(tmp_path: Path) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(3), torch.arange(3))
    dataset = rk.write(data, tmp_path / "out", names=("image", "label"), progress=False)
    assert list(dataset.schema) == ["image", "label"]


def test_an_iterable_torch_dataset_is_iterated():
    source = torch_dataset(Streamed())
    assert source.facts().rows is None
    assert read(source) == [{"a": i, "b/c": [1.0, 1.0]} for i in range(3)]


# Hugging Face


def people(rows: int = 3) -> Any:
    features = hf.Features(
        {
            "i": hf.Value("int32"),
            "hole": hf.Value("int64"),
            "f": hf.Value("float32"),
            "d": hf.Value("float64"),
            "close": hf.Value("float64"),
            "s": hf.Value("string"),
            "b": hf.Value("binary"),
            "label": hf.ClassLabel(names=["cat", "dog"]),
            "tokens": hf.List(hf.Value("int64")),
            "pair": hf.List(hf.Value("float32"), length=2),
            "lists": hf.List(hf.List(hf.Value("int64"))),
            "grid": hf.Array2D((2, 2), "float32"),
            "image": hf.Image(),
            "in": {"a": hf.Value("int64"), "b": {"c": hf.Value("string")}},
        }
    )
    return hf.Dataset.from_dict(
        {
            "i": list(range(rows)),
            "hole": [None if i == 1 else i for i in range(rows)],
            "f": [i / 4 for i in range(rows)],
            "d": [i / 2 for i in range(rows)],
            "close": [1.0 + i * 1e-12 for i in range(rows)],
            "s": [f"é{i}" for i in range(rows)],
            "b": [b"\xff"] * rows,
            "label": [i % 2 for i in range(rows)],
            "tokens": [[1] * i for i in range(rows)],
            "pair": [[0.5, i] for i in range(rows)],
            "lists": [[[i], [], [1, 2]] for i in range(rows)],
            "grid": [np.full((2, 2), i, np.float32) for i in range(rows)],
            "image": [{"bytes": png(i), "path": None} for i in range(rows)],
            "in": [{"a": i, "b": {"c": "x"}} for i in range(rows)],
        },
        features=features,
    )


def person(i: int) -> dict[str, Any]:
    return {
        "i": i,
        "hole": None if i == 1 else i,
        "f": i / 4,
        "d": i / 2,
        "close": 1.0 + i * 1e-12,
        "s": f"é{i}",
        "b": b"\xff",
        "label": i % 2,
        "tokens": [1] * i,
        "pair": [0.5, i],
        "lists": [[i], [], [1, 2]],
        "grid": [[i, i], [i, i]],
        "image": png(i),
        "in/a": i,
        "in/b/c": "x",
    }


def test_a_dataset_in_arrow_comes_in_columns_under_the_schema_of_its_features(tmp_path):
    source = huggingface(people())
    facts = source.facts()
    assert facts.rows == 3
    assert facts.schema == rk.Schema(
        {
            "i": rk.Int64(dtype="int32"),
            "hole": rk.Int64(optional=True),
            "f": rk.Float32(),
            "d": rk.Float32(),
            "close": rk.Tensor("float64"),
            "s": rk.Text(),
            "b": rk.Bytes(),
            "label": rk.Label(["cat", "dog"]),
            "tokens": rk.Int64((None,)),
            "pair": rk.Float32((2,)),
            "lists": rk.Int64(
                (None, None), key="lists/ragged_flat_values", partitions=("lists/ragged_row_lengths_0",)
            ),
            "grid": rk.Float32((2, 2)),
            "image": rk.Image(),
            "in/a": rk.Int64(),
            "in/b/c": rk.Text(),
        }
    )
    assert read(source) == [person(i) for i in range(3)]
    assert stored(source, tmp_path) == [person(i) for i in range(3)]


def test_a_selection_and_a_shuffle_are_followed():
    assert [row["i"] for row in read(huggingface(people(5).select([3, 1])))] == [3, 1]


def test_images_that_are_kept_as_paths_are_read_from_them(tmp_path):
    (tmp_path / "a.png").write_bytes(png(1))
    features = hf.Features({"image": hf.Image()})
    given = [{"bytes": None, "path": str(tmp_path / "a.png")}, {"bytes": png(2), "path": None}]
    source = huggingface(hf.Dataset.from_dict({"image": given}, features=features))
    assert [row["image"] for row in stored(source, tmp_path, rk.Schema({"image": rk.Image()}))] == [
        png(1),
        png(2),
    ]


def test_a_dict_of_datasets_brings_its_splits():
    source = huggingface(hf.DatasetDict({"train": people(2), "test": people(1)}))
    facts = source.facts()
    assert (facts.splits, facts.rows, "split" in facts.schema) == (("train", "test"), 3, False)
    assert [(row["split"], row["i"]) for row in read(source)] == [("train", 0), ("train", 1), ("test", 0)]


def test_a_dict_of_datasets_with_a_column_of_the_name_split_is_refused():
    own = people(1).rename_column("s", "split")
    assert [row["split"] for row in read(huggingface(own))] == ["é0"]
    with pytest.raises(RekordError) as caught:
        huggingface(hf.DatasetDict({"train": own}))
    assert (caught.value.code, caught.value.location.feature) == ("X539", "split")


def test_a_stream_comes_in_rows_with_its_images_still_encoded(tmp_path):
    source = huggingface(people().to_iterable_dataset())
    rows = read(source)
    assert [row["image"] for row in rows] == [png(i) for i in range(3)]
    assert [(row["i"], row["in/b/c"]) for row in rows] == [(i, "x") for i in range(3)]
    many = hf.IterableDatasetDict({"a": people(1).to_iterable_dataset(), "b": people(1).to_iterable_dataset()})
    assert [row["split"] for row in read(huggingface(many))] == ["a", "b"]


def test_features_that_have_no_like_leave_the_schema_to_the_rows():
    dates = hf.Features({"t": hf.Value("duration[s]"), "i": hf.Value("int64")})
    source = huggingface(hf.Dataset.from_dict({"t": [0, 1], "i": [1, 2]}, features=dates))
    assert source.facts().schema is None
    with pytest.raises(RekordError) as caught:
        source.peek_schema()
    assert (caught.value.code, caught.value.location.feature) == ("S130", "t")


# Which library


def test_the_right_source_is_found_for_each_library():
    assert find_framework_source(tf.data.Dataset.range(3)) is tf_data
    assert find_framework_source(tf.data.Dataset.range(3).map(lambda i: i).batch(2)) is tf_data
    assert find_framework_source(Mapped([])) is torch_dataset
    assert find_framework_source(Streamed()) is torch_dataset
    for one in (people(1), people(1).to_iterable_dataset(), hf.DatasetDict({"a": people(1)})):
        assert find_framework_source(one) is huggingface
    for other in ([{"a": 1}], {"a": np.zeros(2)}, (row for row in ()), np.zeros(2), None, 3):
        assert find_framework_source(other) is None


def test_asking_loads_no_library():
    code = (
        "import sys; from rekord.sources.frameworks import find_framework_source; find_framework_source([1]);"
        "print([name for name in ('tensorflow', 'torch', 'datasets') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_pipeline_without_end_is_refused_unless_a_limit_is_given(tmp_path: Path) -> None:
    endless = tf.data.Dataset.range(3).map(lambda i: {"x": i}).repeat()
    with pytest.raises(rk.UsageError) as caught:
        rk.write(endless, tmp_path / "all", progress=False)
    assert str(caught.value).startswith("U616: source has no end")
    assert not (tmp_path / "all").exists()
    dataset = rk.write(endless, tmp_path / "some", limit=7, progress=False)
    assert [batch["x"].tolist() for batch in dataset.batches(7)] == [[0, 1, 2, 0, 1, 2, 0]]
