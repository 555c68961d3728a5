"""TensorFlow Datasets opens what we write, and what it writes is read by the schema of its own files."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

import rekord as rk
from rekord.schema.interop.tfds import (
    build_tfds_files,
    features_from_schema,
    read_tfds_folder,
    schema_from_features,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf
    import tensorflow_datasets as tfds


def png(array: Any) -> bytes:
    out = io.BytesIO()
    Pillow.fromarray(array).save(out, "png")
    return out.getvalue()


SCHEMA = rk.Schema(
    {
        "count": rk.Int64(),
        "big": rk.Int64(dtype="uint64"),
        "flag": rk.Int64(dtype="bool"),
        "small": rk.Int64((2,), dtype="int8"),
        "score": rk.Float32(),
        "half": rk.Float32((2,), dtype="float16"),
        "text": rk.Text(),
        "blob": rk.Bytes(),
        "words": rk.Text((None,)),
        "label": rk.Label(["cat", "dog", "été"]),
        "object/labels": rk.Label(["a", "b"], shape=(None,)),
        "object/boxes": rk.Float32((None, 4)),
        "tokens": rk.Int64((None,)),
        "cube": rk.Tensor("uint16", (2, 3)),
        "doubles": rk.Tensor("float64", (None, 2)),
        "image": rk.Image(format="png"),
        "mask": rk.Mask(classes=3, ignore=255, of="image"),
        "grey": rk.Image(channels=1, key="pictures/grey"),
        "maybe": rk.Int64(optional=True),
        "note": rk.Text(optional=True),
        "filled": rk.Int64(default=7),
        "nested": rk.Int64(
            (None, None),
            key="nested/ragged_flat_values",
            partitions=("nested/ragged_row_lengths_0",),
        ),
    }
)


def row(i: int) -> dict[str, Any]:
    grey = np.full((3, 4), i, np.uint8)
    return {
        "count": i - 3,
        "big": 2**64 - 1 - i,
        "flag": i % 2 == 0,
        "small": [-i, i],
        "score": i / 4,
        "half": [0.5, i],
        "text": f"Wort {i} ä",
        "blob": bytes([255, i]),
        "words": [f"w{j}" for j in range(i % 3)],
        "label": i % 3,
        "object/labels": [j % 2 for j in range(i % 4)],
        "object/boxes": np.full((i % 4, 4), i / 8, np.float32),
        "tokens": list(range(i)),
        "cube": np.full((2, 3), 60000 + i, np.uint16),
        "doubles": np.full((i % 2, 2), 0.1 * i),
        "image": png(np.full((2, 2, 3), i, np.uint8)),
        "mask": png(np.full((2, 2), i % 3, np.uint8)),
        "grey": png(grey),
        "maybe": i if i % 2 else None,
        "note": "here" if i % 2 else None,
        "filled": None,
        "nested": [[1, 2, 3], [], [i]],
    }


def written(folder: Path, schema: rk.Schema, splits: dict[str, list[list[dict[str, Any]]]]) -> Path:
    lengths = {}
    for split, shards in splits.items():
        payload_bytes = 0
        for shard, rows in enumerate(shards):
            path = folder / f"fruit-{split}.tfrecord-{shard:05}-of-{len(shards):05}"
            with rk.Writer(path, schema) as writer:
                for one in rows:
                    writer.write(one)
            payload_bytes += path.stat().st_size - 16 * len(rows)
        lengths[split] = [len(rows) for rows in shards], payload_bytes
    for name, content in build_tfds_files(schema, "fruit", "1.2.0", lengths).items():
        (folder / name).write_bytes(content)
    return folder


def opened(folder: Path, split: str) -> tuple[Any, list[Any]]:
    # TFDS and TensorFlow warn of their own habits, which are not ours.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = tfds.builder_from_directory(str(folder))
        return builder, list(builder.as_dataset(split=split, shuffle_files=False))


def test_tfds_opens_a_dataset_and_finds_every_value(tmp_path: Path) -> None:
    rows = [row(i) for i in range(5)]
    written(tmp_path, SCHEMA, {"train": [rows[:2], rows[2:]], "test": [rows[:1]]})
    builder, examples = opened(tmp_path, "train")
    assert (builder.name, str(builder.version)) == ("fruit", "1.2.0")
    assert builder.info.splits["train"].num_examples == 5
    assert builder.info.splits["train"].shard_lengths == [2, 3]
    assert builder.info.splits["test"].num_examples == 1
    assert builder.info.features["label"].names == ["cat", "dog", "été"]
    assert builder.info.features["object"]["labels"].feature.names == ["a", "b"]
    assert len(examples) == 5
    for i, (example, given) in enumerate(zip(examples, rows, strict=True)):
        assert int(example["count"]) == i - 3
        assert int(example["big"]) == 2**64 - 1 - i
        assert (example["flag"].dtype, bool(example["flag"])) == (tf.bool, i % 2 == 0)
        assert (example["small"].dtype, example["small"].numpy().tolist()) == (tf.int8, [-i, i])
        assert float(example["score"]) == i / 4
        assert (example["half"].dtype, example["half"].numpy().tolist()) == (tf.float16, [0.5, i])
        assert example["text"].numpy().decode() == given["text"]
        assert example["blob"].numpy() == given["blob"]
        assert [word.decode() for word in example["words"].numpy()] == given["words"]
        assert int(example["label"]) == i % 3
        assert example["object"]["labels"].numpy().tolist() == given["object/labels"]
        np.testing.assert_array_equal(example["object"]["boxes"], given["object/boxes"])
        assert example["tokens"].numpy().tolist() == given["tokens"]
        np.testing.assert_array_equal(example["cube"], given["cube"])
        np.testing.assert_array_equal(example["doubles"], given["doubles"])
        np.testing.assert_array_equal(example["image"], np.full((2, 2, 3), i, np.uint8))
        np.testing.assert_array_equal(example["mask"], np.full((2, 2, 1), i % 3, np.uint8))
        np.testing.assert_array_equal(example["pictures"]["grey"], np.full((3, 4, 1), i, np.uint8))
        assert int(example["maybe"]) == (i if i % 2 else np.iinfo(np.int64).min)
        assert example["note"].numpy() == (b"here" if i % 2 else b"")
        assert int(example["filled"]) == 7
        assert example["nested"].to_list() == [[1, 2, 3], [], [i]]


def test_a_key_that_is_also_a_folder_of_others_is_found_flat(tmp_path: Path) -> None:
    schema = rk.Schema({"image": rk.Text(), "image/class": rk.Label(["a", "b"])})
    written(tmp_path, schema, {"train": [[{"image": "x", "image/class": "b"}]]})
    builder, [example] = opened(tmp_path, "train")
    assert example["image"].numpy() == b"x"
    assert int(example["image/class"]) == 1
    assert builder.info.features["image/class"].names == ["a", "b"]
    assert read_tfds_folder(str(tmp_path)).schema == schema


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "uint64"])
def test_tfds_reads_raw_tensors_of_whole_numbers(tmp_path: Path, dtype: str) -> None:
    assert_read(tmp_path, rk.Tensor(dtype, (2,)), np.array([0, 1], dtype))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128", "bfloat16"])
def test_tfds_reads_raw_tensors_of_other_numbers(tmp_path: Path, dtype: str) -> None:
    value = numbers(dtype)
    assert_read(tmp_path, rk.Tensor(dtype, (2,)), value)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_tfds_reads_floats_of_every_declared_width(tmp_path: Path, dtype: str) -> None:
    assert_read(tmp_path, rk.Float32((2,), dtype=dtype), numbers(dtype))


def numbers(dtype: str) -> Any:
    return tf.constant([0.5, -2.0], getattr(tf, dtype)).numpy()


def assert_read(folder: Path, feature: Any, value: Any) -> None:
    written(folder, rk.Schema({"x": feature}), {"train": [[{"x": value}]]})
    _, [example] = opened(folder, "train")
    assert example["x"].dtype.name == value.dtype.name
    np.testing.assert_array_equal(example["x"].numpy(), value)


def tfds_features() -> Any:
    one = tfds.features
    return one.FeaturesDict(
        {
            "image": one.Image(encoding_format="jpeg"),
            "digit": one.Image(shape=(28, 28, 1)),
            "label": one.ClassLabel(names=["cat", "dog"]),
            "ids": one.Sequence(one.ClassLabel(num_classes=3)),
            "text": one.Text(),
            "x": np.float32,
            "wide": np.float64,
            "tiny": one.Scalar(np.uint8),
            "flag": np.bool_,
            "raw": one.Tensor(shape=(2, 3), dtype=np.uint16, encoding="bytes"),
            "packed": one.Tensor(shape=(2,), dtype=np.int32, encoding="zlib"),
            "any": one.Tensor(shape=(None, None), dtype=np.int32, encoding="bytes"),
            "rows": one.Tensor(shape=(None, 3), dtype=np.int32),
            "four": one.Sequence(np.int64, length=4),
            "objects": one.Sequence({"bbox": one.BBoxFeature(), "name": one.Text()}),
            "lists": one.Sequence(one.Sequence(np.int64)),
            "video": one.Video(shape=(None, 2, 2, 3)),
            "audio": one.Audio(),
            "tr": one.Translation(["en", "de"]),
            "steps": one.Dataset({"reward": np.float32}),
            "hole": one.Scalar(np.int64, optional=True),
            "nest": {"a": np.int64, "b": {"c": one.Text()}},
        }
    )


COLUMNS = {
    "image": rk.Image(format="jpeg"),
    "digit": rk.Image(channels=1),
    "label": rk.Label(["cat", "dog"]),
    "ids": rk.Label(3, shape=(None,)),
    "text": rk.Text(),
    "x": rk.Float32(),
    "wide": rk.Float32(),
    "tiny": rk.Int64(dtype="uint8"),
    "flag": rk.Int64(dtype="bool"),
    "raw": rk.Tensor("uint16", (2, 3)),
    "packed": rk.Bytes(),
    "any/shape": rk.Int64((2,), dtype="int32"),
    "any/value": rk.Bytes(),
    "rows": rk.Int64((None, 3), dtype="int32"),
    "four": rk.Int64((4,)),
    "objects/bbox": rk.Float32((None, 4)),
    "objects/name": rk.Text((None,)),
    "lists": rk.Int64((None, None), key="lists/ragged_flat_values", partitions=("lists/ragged_row_lengths_0",)),
    "video": rk.Bytes((None,)),
    "audio": rk.Int64((None,)),
    "tr/de": rk.Text(),
    "tr/en": rk.Text(),
    "steps/reward": rk.Float32((None,)),
    "hole": rk.Int64(optional=True),
    "nest/a": rk.Int64(),
    "nest/b/c": rk.Text(),
}


def test_the_schema_of_tfds_own_features_reads_what_tfds_writes(tmp_path: Path) -> None:
    features = tfds_features()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        features.save_config(str(tmp_path))
        payload = features.serialize_example(
            {
                "image": np.zeros((2, 2, 3), np.uint8),
                "digit": np.zeros((28, 28, 1), np.uint8),
                "label": "dog",
                "ids": [2, 0],
                "text": "héllo",
                "x": 0.5,
                "wide": 0.1,
                "tiny": 200,
                "flag": True,
                "raw": np.arange(6, dtype=np.uint16).reshape(2, 3),
                "packed": np.array([1, 2], np.int32),
                "any": np.array([[1, 2]], np.int32),
                "rows": np.ones((2, 3), np.int32),
                "four": [1, 2, 3, 4],
                "objects": [{"bbox": tfds.features.BBox(0.0, 0.25, 0.5, 1.0), "name": "n"}],
                "lists": [[1], [], [2, 3]],
                "video": np.zeros((3, 2, 2, 3), np.uint8),
                "audio": np.array([5, 6], np.int64),
                "tr": {"en": "e", "de": "d"},
                "steps": [{"reward": 1.5}, {"reward": 2.5}],
                "hole": None,
                "nest": {"a": 1, "b": {"c": "c"}},
            }
        )
    (tmp_path / "dataset_info.json").write_text('{"name": "x", "version": "1.0.0"}')
    folder = read_tfds_folder(str(tmp_path))
    assert folder is not None
    assert folder.schema == rk.Schema(COLUMNS)
    decoded = rk.decode(payload, folder.schema)
    assert decoded["label"] == 1
    assert decoded["ids"].tolist() == [2, 0]
    assert decoded["text"] == "héllo"
    assert (decoded["tiny"], decoded["flag"], decoded["hole"]) == (200, True, None)
    assert decoded["raw"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.frombuffer(decoded["any/value"], np.int32).tolist() == [1, 2]
    assert decoded["any/shape"].tolist() == [1, 2]
    assert decoded["objects/bbox"].tolist() == [[0.0, 0.25, 0.5, 1.0]]
    assert decoded["objects/name"] == ["n"]
    assert [part.tolist() for part in decoded["lists"]] == [[1], [], [2, 3]]
    assert len(decoded["video"]) == 3
    assert decoded["steps/reward"].tolist() == [1.5, 2.5]
    assert (decoded["tr/en"], decoded["nest/b/c"]) == ("e", "c")


def test_the_form_before_todays_gives_the_same_schema() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        document = json.loads(json.dumps(tfds_features().to_json()))
    assert "type" in document
    names = {"label": ["cat", "dog"]}
    assert schema_from_features(document, names) == rk.Schema(COLUMNS)


def test_a_schema_that_went_through_features_json_is_what_it_was() -> None:
    features = json.loads(json.dumps(features_from_schema(SCHEMA)))
    names = {"label": ["cat", "dog", "été"], "object-labels": ["a", "b"]}
    back = schema_from_features(features, names)
    renamed = {"pictures/grey": "grey"}
    for column, feature in back.items():
        given = SCHEMA[renamed.get(column, column)]
        if column in ("filled", "note", "blob", "mask", "pictures/grey"):
            continue  # defaults, `ignore` and keys are not kept; an optional text becomes bytes
        assert feature == given, column
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tfds.features.FeatureConnector.from_json(features).to_json()


def test_a_written_dataset_is_opened_by_tensorflow_datasets(tmp_path: Path) -> None:
    """The whole way: rows, `rk.write(format="tfds")`, and TFDS reads the same values from every split."""
    rows = [{"text": f"row {i}", "label": ("ham", "spam")[i % 2], "score": i / 4} for i in range(60)]
    schema = rk.Schema({"text": rk.Text(), "label": rk.Label(["ham", "spam"]), "score": rk.Float32()})
    out = tmp_path / "mail" / "1.0.0"
    rk.write(
        rows,
        out,
        schema=schema,
        split={"train": 0.75, "test": 0.25},
        shuffle=True,
        shards=2,
        format="tfds",
        progress=False,
    )
    builder = tfds.builder_from_directory(str(out))
    assert (builder.name, builder.info.features["label"].names) == ("mail", ["ham", "spam"])
    read = [
        (element["text"].decode(), int(element["label"]), float(element["score"]))
        for split in ("train", "test")
        for element in builder.as_dataset(split=split).as_numpy_iterator()
    ]
    assert sorted(read) == sorted((row["text"], i % 2, row["score"]) for i, row in enumerate(rows))
    assert builder.info.splits["train"].num_examples + builder.info.splits["test"].num_examples == 60
    assert len(builder.info.splits["train"].shard_lengths) == 2
