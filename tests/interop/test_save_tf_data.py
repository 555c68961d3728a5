"""tf.data pipelines that are saved and read again: values, dtypes and shapes are those that `batch` gives."""

from __future__ import annotations

import io
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

import rekord as rk

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf

Data = tf.data.Dataset

NUMBERS = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
]
LISTED = [name for name in NUMBERS if name not in ("float64", "complex64", "complex128")]
Pair = namedtuple("Pair", ["image", "label"])
ROWS = 5


def saved(dataset: Any, folder: Path, **options: Any) -> Any:
    return rk.write(dataset, folder / "out", progress=False, **options)


def same(got: Any, wanted: Any, name: str = "") -> None:
    """The two are tensors of one kind, dtype and shape, and equal in every value."""
    assert type(got) is type(wanted), name
    assert got.dtype == wanted.dtype, name
    assert got.shape.as_list() == wanted.shape.as_list(), name
    if isinstance(got, tf.RaggedTensor):
        assert got.to_list() == wanted.to_list(), name
        return
    if isinstance(got, tf.SparseTensor):
        assert got.indices.numpy().tolist() == wanted.indices.numpy().tolist(), name
        got, wanted = got.values, wanted.values
    assert got.numpy().tolist() == wanted.numpy().tolist(), name


def both(dataset: Any, folder: Path, batch_size: int = ROWS, **read: Any) -> tuple[Any, Any]:
    """The first batch as rekord reads it, and the spec of its columns."""
    batches = saved(dataset, folder).to_tensorflow(batch_size, **read)
    return next(iter(batches)), batches.element_spec


def numbers(dtype: str, shape: tuple[int, ...]) -> Any:
    """Rows of different values of a dtype, its extremes among them."""
    count = ROWS * int(np.prod(shape, dtype=int))
    values = tf.cast(tf.reshape(tf.range(count), (ROWS, *shape)), dtype)
    if dtype.startswith(("int", "uint")) and count:
        flat = np.asarray(values.numpy()).reshape(-1).copy()
        flat[0], flat[-1] = np.iinfo(dtype).min, np.iinfo(dtype).max
        values = tf.constant(flat.reshape(values.shape))
    if dtype.startswith("float") and count:
        values = values / 3
    return values


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,), (2, 0, 3)], ids=str)
def test_dense_tensors_of_every_dtype_come_back(shape: tuple[int, ...], tmp_path: Path) -> None:
    given = {dtype: numbers(dtype, shape) for dtype in NUMBERS}
    given["string"] = tf.fill([ROWS, *shape], b"\xff\x00")
    dataset = Data.from_tensor_slices(given)
    wanted = next(iter(dataset.batch(ROWS)))
    got, spec = both(dataset, tmp_path)
    assert list(got) == list(wanted)
    for name in wanted:
        same(got[name], wanted[name], name)
    assert spec == dataset.batch(ROWS).element_spec
    columns = next(iter(rk.open(tmp_path / "out").batches(ROWS)))
    for name in NUMBERS:
        assert columns[name].dtype == wanted[name].numpy().dtype
        assert columns[name].tobytes() == wanted[name].numpy().tobytes()


def varying(shape: Callable[[Any], list[Any]], dtypes: list[str]) -> Any:
    return Data.range(ROWS).map(lambda i: {name: filled(shape(i), name) for name in dtypes})


def filled(shape: list[Any], dtype: str) -> Any:
    values = tf.reshape(tf.range(tf.reduce_prod(shape)), shape)
    return tf.strings.as_string(values) if dtype == "string" else tf.cast(values, dtype)


@pytest.mark.parametrize(
    ("shape", "dtypes"),
    [
        (lambda i: [i], [*NUMBERS, "string"]),
        (lambda i: [i, 2], [*NUMBERS, "string"]),
        (lambda i: [2, i], NUMBERS),
        (lambda i: [i, i + 1], [*LISTED, "string"]),
        (lambda i: [i, i + 1, 2], [*LISTED, "string"]),
    ],
    ids=["(None,)", "(None, 2)", "(2, None)", "(None, None)", "(None, None, 2)"],
)
def test_tensors_whose_sizes_vary_come_back_ragged(shape: Any, dtypes: list[str], tmp_path: Path) -> None:
    dataset = varying(shape, dtypes)
    wanted = next(iter(dataset.ragged_batch(ROWS)))
    got, spec = both(dataset, tmp_path)
    for name in dtypes:
        same(got[name], wanted[name], name)
        assert spec[name].shape.as_list()[1:] == wanted[name].shape.as_list()[1:]


@pytest.mark.parametrize(
    "lists",
    [[[1, 0], [], [3], [], [4, 5, 6]], [[[1, 0], []], [], [[3]], [[]], [[4], [5, 6]]]],
    ids=["one level", "two levels"],
)
def test_ragged_tensors_come_back(lists: list[Any], tmp_path: Path) -> None:
    two = isinstance(lists[0][0], list)
    given = {name: tf.cast(tf.ragged.constant(lists), name) for name in (LISTED if two else NUMBERS)}
    given["string"] = tf.strings.as_string(tf.ragged.constant(lists))
    given["pairs"] = tf.ragged.constant([[[1, 2]], [], [[3, 4]], [], []], ragged_rank=1, inner_shape=(2,))
    dataset = Data.from_tensor_slices(given)
    wanted = next(iter(dataset.batch(ROWS)))
    got, _ = both(dataset, tmp_path)
    for name in given:
        same(got[name], wanted[name], name)


def test_sparse_vectors_come_back(tmp_path: Path) -> None:
    dense = [[0, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]]
    dataset = Data.from_tensor_slices({name: tf.sparse.from_dense(tf.cast(dense, name)) for name in LISTED})
    wanted = next(iter(dataset.batch(ROWS)))
    got, spec = both(dataset, tmp_path)
    for name in LISTED:
        same(got[name], wanted[name], name)
    assert spec == dataset.batch(ROWS).element_spec


def test_a_sparse_matrix_comes_back_flat_and_is_reshaped(tmp_path: Path) -> None:
    cube = tf.sparse.from_dense(np.arange(ROWS * 24, dtype=np.int64).reshape(ROWS, 3, 4, 2) % 5)
    dataset = Data.from_tensor_slices({"v": cube})
    got, _ = both(dataset, tmp_path)
    assert got["v"].shape.as_list() == [ROWS, 24]
    same(tf.sparse.reshape(got["v"], [ROWS, 3, 4, 2]), next(iter(dataset.batch(ROWS)))["v"])


@pytest.mark.parametrize("dtype", ["float64", "complex128", "string", "float32", "unknown rank"])
def test_a_sparse_tensor_that_no_feature_holds_comes_back_in_its_three_parts(dtype: str, tmp_path: Path) -> None:
    def made(i: Any) -> Any:  # from 1 × 2 to 5 × 6, as many values as rows
        places = tf.stack([tf.range(i), tf.range(i)], 1)
        kind = "int64" if dtype == "unknown rank" else dtype
        out = tf.SparseTensor(places, filled([i], kind), tf.stack([i + 1, i + 2]))
        if dtype == "unknown rank":
            return {"v": tf.sparse.expand_dims(tf.sparse.reduce_max(out, 0, output_is_sparse=True), 0)}
        return {"v": out}

    dataset = Data.range(ROWS).map(made)
    got, _ = both(dataset, tmp_path)
    for row, element in enumerate(dataset):
        wanted = element["v"]
        again = tf.SparseTensor(*[got[f"v/{part}"][row] for part in ("indices", "values", "dense_shape")])
        same(again, wanted, dtype)
        assert again.dense_shape.numpy().tolist() == wanted.dense_shape.numpy().tolist()


IMAGES = np.arange(ROWS * 48, dtype=np.uint8).reshape(ROWS, 4, 4, 3)
LABELS = np.arange(ROWS)


@pytest.mark.parametrize(
    ("given", "names", "columns"),
    [
        (LABELS, None, ["x"]),
        ((IMAGES,), None, ["x"]),
        ((IMAGES, LABELS), None, ["x", "y"]),
        ((IMAGES, LABELS), ("image", "label"), ["image", "label"]),
        ((IMAGES, LABELS, LABELS / 2), None, ["x", "y", "weight"]),
        ((LABELS,) * 4, ("a", "b", "c", "d"), ["a", "b", "c", "d"]),
        (((IMAGES, LABELS), LABELS), None, ["x/0", "x/1", "y"]),
        (({"a": LABELS, "b": {"c": IMAGES}}, LABELS), None, ["x/a", "x/b/c", "y"]),
        ({"a": (LABELS, IMAGES), "b": LABELS}, None, ["a/0", "a/1", "b"]),
        ({"image/encoded": LABELS, "image": {"width": LABELS}}, None, ["image/encoded", "image/width"]),
        (Pair(IMAGES, LABELS), None, ["image", "label"]),
        (Pair(IMAGES, LABELS), ("p", "q"), ["p", "q"]),
        ({"p": Pair(IMAGES, (LABELS, LABELS))}, None, ["p/image", "p/label/0", "p/label/1"]),
    ],
)
def test_each_structure_has_its_columns(given: Any, names: Any, columns: list[str], tmp_path: Path) -> None:
    dataset = Data.from_tensor_slices(given)
    batch = next(iter(saved(dataset, tmp_path, names=names).to_tensorflow(ROWS)))
    assert sorted(batch) == sorted(columns)
    wanted = next(iter(dataset.batch(ROWS)))
    flat = tf.nest.flatten(wanted)
    # A dict is flattened in the order of its names, and so are these columns where they lie in one.
    ordered = sorted(columns) if isinstance(given, dict) else columns
    for name, tensor in zip(ordered, flat, strict=True):
        same(batch[name], tensor, name)


def test_keras_gets_its_tuples_back(tmp_path: Path) -> None:
    dataset = Data.from_tensor_slices(((IMAGES, LABELS / 2), LABELS, LABELS / 4))
    split = saved(dataset, tmp_path)
    batches = split.to_keras(2, x=["x/0", "x/1"], y="y", sample_weight="weight")
    for got, wanted in zip(batches, dataset.batch(2), strict=True):
        inputs, label, weight = got
        same(inputs["x/0"], wanted[0][0])
        same(inputs["x/1"], wanted[0][1])
        same(label, wanted[1])
        assert weight.numpy().tolist() == wanted[2].numpy().tolist()


def test_what_is_called_y_is_proposed_to_learn(tmp_path: Path) -> None:
    split = saved(Data.from_tensor_slices((IMAGES, LABELS, LABELS / 4)), tmp_path)
    with pytest.raises(rk.UsageError) as caught:
        split.to_keras(2)
    assert (caught.value.code, caught.value.do) == ("U676", "to_keras(…, y='y'), or y=[] for none")
    assert caught.value.what.startswith("`y` is required: ")


def test_a_layout_takes_images_and_masks_of_pixels(tmp_path: Path) -> None:
    masks = np.arange(ROWS * 16, dtype=np.uint8).reshape(ROWS, 4, 4) % 5
    dataset = Data.from_tensor_slices((IMAGES, masks))
    split = saved(dataset, tmp_path, names=("image", "mask"), layout=rk.layouts.deeplab(classes=5))
    assert [(row["format"], row["height"], row["channels"]) for row in split[:]] == [("png", 4, 3)] * ROWS
    got = next(iter(split.to_tensorflow(ROWS, columns=["image", "mask"], decode=True)))
    assert got["image"].numpy().tolist() == IMAGES.tolist()
    assert np.squeeze(got["mask"].numpy()).tolist() == masks.tolist()


def test_a_layout_refuses_floats_as_pixels(tmp_path: Path) -> None:
    dataset = Data.from_tensor_slices((IMAGES / 255, LABELS))
    with pytest.raises(rk.EncodeError) as caught:
        saved(dataset, tmp_path, names=("image", "label"), layout=rk.layouts.classification())
    where = caught.value.location
    assert (caught.value.code, where.feature, where.row) == ("E321", "image", 0)
    assert "* 255" in caught.value.do


def test_the_work_of_a_pipeline_is_saved(tmp_path: Path) -> None:
    def prepared(image: Any, label: Any) -> Any:
        small = tf.image.resize(image, [3, 3]) / 255.0
        name = tf.py_function(lambda one: b"class %d" % int(one), [label], tf.string)
        return {"image": small, "label": label, "name": name}

    dataset = Data.from_tensor_slices((IMAGES, LABELS)).map(prepared)
    split = saved(dataset, tmp_path)
    # TensorFlow knows no shape of what a py_function gives: the first rows tell it.
    assert dict(split.schema.items()) == {
        "image": rk.Float32((3, 3, 3)),
        "label": rk.Int64(),
        "name": rk.Bytes(),
    }
    got = next(iter(split.to_tensorflow(ROWS)))
    for name, tensor in next(iter(dataset.batch(ROWS))).items():
        same(got[name], tensor, name)


@pytest.mark.parametrize(
    ("dtype", "shape", "feature"),
    [
        ("float64", lambda i: [2, 2], rk.Tensor("float64", (2, 2))),
        ("float32", lambda i: [2 + i % 2], rk.Float32((None,))),
        ("uint8", lambda i: [2 + i % 2, 1 + i % 3, 3], rk.Image(format="png", channels=3)),
    ],
)
def test_an_unknown_rank_is_looked_up_and_the_dtype_kept(
    dtype: str, shape: Any, feature: Any, tmp_path: Path
) -> None:
    made = [np.full(shape(i), i, dtype) for i in range(ROWS)]
    dataset = Data.from_generator(lambda: iter(made), output_signature=tf.TensorSpec(None, dtype))
    split = saved(dataset, tmp_path)
    assert split.schema["x"] == feature
    got = next(iter(split.to_tensorflow(ROWS, decode=isinstance(feature, rk.Image))))["x"]
    assert got.dtype == dtype
    assert [listed(got[i]) for i in range(ROWS)] == [one.tolist() for one in made]


def listed(tensor: Any) -> Any:
    return tensor.to_list() if isinstance(tensor, tf.RaggedTensor) else tensor.numpy().tolist()


def test_the_rows_that_were_looked_at_are_not_asked_for_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def make() -> Iterator[Any]:
        calls.append(1)
        yield from ([1, 2], [3])

    dataset = Data.from_generator(make, output_signature=tf.TensorSpec(None, tf.int64))
    assert [row["x"].tolist() for row in saved(dataset, tmp_path)[:]] == [[1, 2], [3]]
    assert len(calls) == 1


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("known", [True, False], ids=["channels known", "channels unknown"])
def test_images_of_any_size_come_back_decoded(channels: int, known: bool, tmp_path: Path) -> None:
    def made(i: Any) -> Any:
        pixels = tf.cast(filled([i + 2, i + 1, channels], "int32") % 251, tf.uint8)
        # TensorFlow does not know how many channels a file has unless it is told.
        return tf.io.decode_png(tf.io.encode_png(pixels), channels if known else 0), i

    dataset = Data.range(ROWS).map(made)
    split = saved(dataset, tmp_path)
    assert split.schema["x"] == rk.Image(format="png", channels=channels)
    got = next(iter(split.to_tensorflow(ROWS, decode=True)))
    for row, (image, label) in enumerate(dataset):
        assert got["x"][row].to_tensor().numpy().tolist() == image.numpy().tolist()
        assert int(got["y"][row]) == int(label)
    assert got["x"].dtype == tf.uint8


def test_channels_that_only_the_rows_tell_are_kept_in_images_of_one_size(tmp_path: Path) -> None:
    files = [tf.io.encode_png(np.full((i + 2, i + 3, 3), i, np.uint8)).numpy() for i in range(ROWS)]
    dataset = Data.from_tensor_slices(files).map(lambda file: tf.image.resize(tf.io.decode_png(file), [4, 4]))
    assert dataset.element_spec.shape.as_list() == [4, 4, None]
    got, spec = both(dataset, tmp_path)
    same(got["x"], next(iter(dataset.batch(ROWS))))
    assert spec["x"] == tf.TensorSpec((None, 4, 4, 3), tf.float32)


@pytest.mark.parametrize("counts", [[3, 1, 3], [2, 2, 2], [7, 7, 7]], ids=str)
def test_a_last_size_that_is_no_number_of_channels_stays_open(counts: list[int], tmp_path: Path) -> None:
    made = [np.full((2, 2, count), i, np.uint8) for i, count in enumerate(counts)]
    dataset = Data.from_generator(lambda: iter(made), output_signature=tf.TensorSpec([None] * 3, tf.uint8))
    got, _ = both(dataset, tmp_path)
    assert [listed(got["x"][i]) for i in range(3)] == [one.tolist() for one in made]


def test_images_that_have_other_channels_later_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(
        import_module("rekord.sources.tf_data").TfDataSource.peek_schema, "__defaults__", (2, 1 << 20)
    )
    made = [np.zeros((2 + i, 2, 1 if i == 3 else 3), np.uint8) for i in range(ROWS)]
    dataset = Data.from_generator(lambda: iter(made), output_signature=tf.TensorSpec([None] * 3, tf.uint8))
    with pytest.raises(rk.EncodeError) as caught:
        saved(dataset, tmp_path)
    assert (caught.value.location.feature, caught.value.location.row) == ("x", 3)
    assert caught.value.expected == "3, as declared"


def test_a_batched_pipeline_is_written_as_it_is_with_a_warning(tmp_path: Path) -> None:
    batched = Data.from_tensor_slices((IMAGES, LABELS)).batch(2).prefetch(1)
    with pytest.warns(UserWarning, match=r"are batches, and each becomes one row.*dataset\.unbatch\(\)") as told:
        split = saved(batched, tmp_path)
    assert told[0].filename == __file__
    assert split.schema["x"] == rk.Tensor("uint8", (None, 4, 4, 3))
    assert [row["y"].tolist() for row in split[:]] == [[0, 1], [2, 3], [4]]
    singles = rk.write(batched.unbatch(), tmp_path / "single", progress=False)
    assert [int(row["y"]) for row in singles[:]] == LABELS.tolist()


def test_rows_that_merely_have_lists_are_not_taken_for_batches(tmp_path: Path) -> None:
    dataset = Data.range(4).batch(2).map(lambda pair: {"pair": pair, "sum": tf.reduce_sum(pair)})
    assert [row["pair"].tolist() for row in saved(dataset, tmp_path)[:]] == [[0, 1], [2, 3]]


@pytest.mark.concurrency
def test_splits_shuffling_and_workers_are_as_with_any_rows(tmp_path: Path) -> None:
    dataset = Data.range(100).map(lambda i: {"id": i, "class": i % 2})
    options: dict[str, Any] = {"split": {"train": 0.8, "val": 0.2}, "stratify": "class", "shuffle": True}
    one = saved(dataset, tmp_path, workers=2, **options)
    rows = [{"id": i, "class": i % 2} for i in range(100)]
    two = rk.write(rows, tmp_path / "rows", progress=False, workers=1, **options)
    for name, count in (("train", 80), ("val", 20)):
        ids = [int(row["id"]) for row in one[name]]
        assert len(ids) == count
        assert ids == [int(row["id"]) for row in two[name]] != sorted(ids)


def test_the_same_pipeline_has_nothing_to_do_and_a_shuffled_one_needs_a_seed(tmp_path: Path) -> None:
    fixed = Data.range(50).shuffle(50, seed=3, reshuffle_each_iteration=False)
    first = [int(row["x"]) for row in saved(fixed, tmp_path)[:]]
    assert [int(row["x"]) for row in saved(fixed, tmp_path)[:]] == first == [int(one) for one in fixed]


def test_a_pipeline_that_fails_midway_goes_on_when_it_is_mended(tmp_path: Path) -> None:
    broken = True

    def make() -> Iterator[Any]:
        for i in range(10):
            if broken and i == 7:
                raise ValueError("no such image\nand more of it")
            yield i

    dataset = Data.from_generator(make, output_signature=tf.TensorSpec((), tf.int64))
    with pytest.raises(rk.DatasetError) as caught:
        saved(dataset, tmp_path)
    assert (caught.value.code, caught.value.location.row) == ("X538", 7)
    assert caught.value.found == "ValueError: no such image"
    assert not (tmp_path / "out").exists()
    broken = False
    assert [int(row["x"]) for row in saved(dataset, tmp_path)[:]] == list(range(10))


def test_elements_that_fail_can_be_passed_over(tmp_path: Path) -> None:
    shares = Data.range(10).map(
        lambda i: tf.debugging.check_numerics(1.0 / tf.cast(7 - i, tf.float32), "no share of nothing")
    )
    with pytest.raises(rk.DatasetError) as caught:
        saved(shares, tmp_path)
    page = Path(__file__).parents[2] / "docs" / "errors" / "X538.md"
    assert f"```text\n{caught.value.message}\n```" in page.read_text(encoding="utf-8")
    assert saved(shares.ignore_errors(), tmp_path).records == 9


def test_a_failure_that_is_elsewhere_each_time_names_no_row(tmp_path: Path) -> None:
    calls: list[int] = []

    def make() -> Iterator[Any]:  # as a shuffled pipeline with a bad element
        calls.append(1)
        yield from range(10 * len(calls))
        raise ValueError("no such image")

    dataset = Data.from_generator(make, output_signature=tf.TensorSpec((), tf.int64))
    with pytest.raises(rk.DatasetError) as caught:
        saved(dataset, tmp_path)
    assert caught.value.what == "tf.data pipeline failed in rows 0 to 4,095"
    assert caught.value.location.row is None


def test_a_failure_after_long_work_names_the_rows_that_it_may_be(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(import_module("rekord.sources.tf_data"), "_MAX_REPLAY_SECONDS", -1.0)
    broken = Data.range(9000).map(lambda i: tf.ensure_shape(tf.zeros([tf.minimum(i // 5000, 1)]), [0]))
    with pytest.raises(rk.DatasetError) as caught:
        saved(broken, tmp_path)
    assert caught.value.what == "tf.data pipeline failed in rows 4,096 to 8,191"
    assert caught.value.location.row is None


@pytest.mark.parametrize(
    ("dataset", "code", "feature", "said"),
    [
        (lambda: Data.range(4).window(2), "X539", "x", "dataset.map("),
        (
            lambda: Data.range(3).map(lambda i: tf.experimental.Optional.from_value(i)),
            "X539",
            "x",
            "get_value",
        ),
        (lambda: Data.range(3).map(lambda i: (i, None)), "X539", "y", "remove the None from the elements"),
        (lambda: Data.range(3).map(lambda i: tf.cast(i, tf.qint8)), "X539", "x", "tf.cast"),
        (lambda: Data.from_tensor_slices((LABELS,) * 4), "X539", None, "names="),
        (lambda: varying(lambda i: [i, i + 1], ["float64"]), "X539", "float64", "tf.cast(value, tf.float32)"),
        (lambda: varying(lambda i: [i, i + 1], ["complex64"]), "X539", "complex64", "pad the values"),
        (
            lambda: varying(lambda i: [i], ["string"]).map(
                lambda row: {"v": tf.sparse.from_dense(row["string"]), "v/values": 1}
            ),
            "X539",
            "v/values",
            "dataset.map(",
        ),
        (lambda: Data.range(3).repeat(), "U616", None, "limit=10_000"),
        (lambda: Data.range(0), "X510", None, "check the path of the source"),
    ],
)
def test_what_cannot_be_saved_is_refused(
    dataset: Any, code: str, feature: str | None, said: str, tmp_path: Path
) -> None:
    with pytest.raises(rk.RekordError) as caught:
        saved(dataset(), tmp_path)
    assert (caught.value.code, caught.value.location.feature) == (code, feature)
    assert said in caught.value.do
    assert not (tmp_path / "out").exists()


def test_a_schema_of_ones_own_decides(tmp_path: Path) -> None:
    dataset = varying(lambda i: [i + 1, i + 2, 1], ["float64", "uint16"])
    schema = rk.Schema(
        {
            "float64": rk.Float32((None, None, 1), partitions=("lengths",)),
            "uint16": rk.Image(format="png"),
        }
    )
    split = saved(dataset, tmp_path, schema=schema)
    batch = next(iter(split.batches(ROWS)))
    for i, row in enumerate(dataset):
        assert np.ravel(batch["float64"][i]).tolist() == np.ravel(row["float64"]).tolist()
        pixels = np.asarray(Pillow.open(io.BytesIO(batch["uint16"][i])))
        assert pixels.tolist() == row["uint16"].numpy()[:, :, 0].tolist()


@pytest.mark.parametrize("names", ["xy", ("x", "x"), ("x", 1)])
def test_names_that_are_none_are_refused(names: Any, tmp_path: Path) -> None:
    with pytest.raises(rk.UsageError) as caught:
        saved(Data.from_tensor_slices((LABELS, LABELS)), tmp_path, names=names)
    assert caught.value.code == "U605"
    assert caught.value.do == 'names=("image", "label")'


def test_ranks_that_differ_are_refused(tmp_path: Path) -> None:
    made = [np.ones(2), np.ones((2, 2))]
    dataset = Data.from_generator(lambda: iter(made), output_signature=tf.TensorSpec(None, tf.float32))
    with pytest.raises(rk.SchemaError) as caught:
        saved(dataset, tmp_path)
    assert (caught.value.code, caught.value.location.feature) == ("S131", "x")
    assert caught.value.found == "1 dimension and 2 dimensions"
