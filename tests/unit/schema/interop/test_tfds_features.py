"""The files of a TFDS folder, and schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.errors import DatasetError, RekordError, UsageError
from rekord.schema.interop.tfds import (
    build_dataset_info,
    build_label_files,
    build_tfds_files,
    check_tfds,
    features_from_schema,
    read_tfds_folder,
    schema_from_features,
)

PREFIX = "tensorflow_datasets.core.features."


def feature(kind: str, member: str, content: Any) -> dict[str, Any]:
    return {"pythonClassName": PREFIX + kind, member: content}


def tensor(dtype: str = "int64", *sizes: int, encoding: str = "none") -> dict[str, Any]:
    shape = {"dimensions": [str(size) for size in sizes]} if sizes else {}
    return feature("tensor_feature.Tensor", "tensor", {"shape": shape, "dtype": dtype, "encoding": encoding})


def of(**features: Any) -> dict[str, Any]:
    return feature("features_dict.FeaturesDict", "featuresDict", {"features": features})


def sequence(inner: dict[str, Any], length: str = "-1") -> dict[str, Any]:
    return feature("sequence_feature.Sequence", "sequence", {"feature": inner, "length": length})


def picture(**content: Any) -> dict[str, Any]:
    return feature("image_feature.Image", "image", {"dtype": "uint8", **content})


def mask(classes: int) -> dict[str, Any]:
    return feature("labeled_image.LabeledImage", "image", {"label": {"numClasses": str(classes)}})


@pytest.mark.parametrize(
    ("document", "columns"),
    [
        (of(x=tensor()), {"x": rk.Int64()}),
        (of(x=tensor("bool", -1)), {"x": rk.Int64((None,), dtype="bool")}),
        (of(x=tensor("float64", 2)), {"x": rk.Float32((2,))}),
        (of(x=tensor("string")), {"x": rk.Bytes()}),
        (of(x=tensor("uint16", 2, -1, encoding="bytes")), {"x": rk.Tensor("uint16", (2, None))}),
        (of(x=tensor("uint16", 2, encoding="zlib")), {"x": rk.Bytes()}),
        (
            of(x=tensor("int8", -1, -1, encoding="bytes")),
            {"x/shape": rk.Int64((2,), dtype="int32"), "x/value": rk.Bytes()},
        ),
        (of(x=sequence(tensor("float32", 3))), {"x": rk.Float32((None, 3))}),
        (of(x=sequence(tensor(), "4")), {"x": rk.Int64((4,))}),
        (of(x=sequence(tensor("int32", 2, encoding="bytes"))), {"x": rk.Bytes((None,))}),
        (of(a=of(b=of(c=tensor()))), {"a/b/c": rk.Int64()}),
        (of(x=picture()), {"x": rk.Image()}),
        (
            of(x=picture(encodingFormat="png", shape={"dimensions": ["-1", "-1", "1"]})),
            {"x": rk.Image(format="png", channels=1)},
        ),
        (of(x=sequence(picture())), {"x": rk.Bytes((None,))}),
        (of(image=picture(), m=mask(3)), {"image": rk.Image(), "m": rk.Mask(classes=3)}),
        (of(m=mask(3)), {"m": rk.Image()}),
        (of(x=feature("my.Own", "text", {})), {"x": rk.Text()}),
        (of(x=feature("class_label_feature.ClassLabel", "classLabel", {})), {"x": rk.Int64()}),
        (tensor("float32", 2), {"value": rk.Float32((2,))}),
        (
            of(x=sequence(sequence(tensor("int32", 2)))),
            {
                "x": rk.Int64(
                    (None, None, 2),
                    dtype="int32",
                    key="x/ragged_flat_values",
                    partitions=("x/ragged_row_lengths_0",),
                )
            },
        ),
    ],
)
def test_features_of_tfds_have_their_like_in_a_schema(document, columns):
    assert schema_from_features(json.loads(json.dumps(document))) == rk.Schema(columns)


def old(kind: str, **content: Any) -> dict[str, Any]:
    return {"type": PREFIX + kind, "content": content}


@pytest.mark.parametrize(
    ("document", "columns"),
    [
        (old("translation_feature.Translation", languages=["de", "en"]), {"de": rk.Text(), "en": rk.Text()}),
        (
            old(
                "features_dict.FeaturesDict",
                image=old("image_feature.Image", shape=[None, None, 3], dtype="uint8", encoding_format="jpeg"),
                label=old("class_label_feature.ClassLabel", num_classes=2),
                x=old("tensor_feature.Tensor", shape=[None, 2], dtype="int32"),
                s=old("sequence_feature.Sequence", feature=old("text_feature.Text"), length=None),
                features=old("text_feature.Text", use_encoder=True),
                box=old("bounding_boxes.BBoxFeature"),
            ),
            {
                "image": rk.Image(format="jpeg"),
                "label": rk.Label(["no", "yes"]),
                "x": rk.Int64((None, 2), dtype="int32"),
                "s": rk.Text((None,)),
                "features": rk.Int64((None,)),
                "box": rk.Float32((4,)),
            },
        ),
    ],
)
def test_the_form_before_todays_is_read_too(document, columns):
    assert schema_from_features(document, {"label": ["no", "yes"]}) == rk.Schema(columns)


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (["a", "b"], rk.Label(["a", "b"])),
        (["a"], rk.Label(2)),
        (["a", "a"], rk.Label(2)),
        (None, rk.Label(2)),
    ],
)
def test_class_names_count_only_where_they_fit(names, label):
    document = of(a=of(y=feature("class_label_feature.ClassLabel", "classLabel", {"numClasses": "2"})))
    labels = {} if names is None else {"a-y": names}
    assert schema_from_features(document, labels)["a/y"] == label


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (of(x=feature("x.Strange", "jsonFeature", {"json": "{}"})), "X537"),
        (of(x=tensor("int64", -1, -1)), "X537"),
        (of(x=sequence(tensor("int64", -1))), "X537"),
        (of(x=sequence(sequence(tensor("int64", -1)))), "X537"),
        (of(x=tensor("variant")), "X537"),
        (of(x=3), "X536"),
        (of(x={}), "X537"),
        (of(x=tensor("int64", "many")), "X536"),
        (of(x=feature("tensor_feature.Tensor", "tensor", [])), "X536"),
        (of(x=feature("tensor_feature.Tensor", "tensor", {"shape": 3})), "X536"),
        (of(x=sequence(None)), "X536"),
        (feature("features_dict.FeaturesDict", "featuresDict", {"features": [1]}), "X536"),
        (of(**{"a/b": tensor(), "a": of(b=tensor())}), "X536"),
    ],
)
def test_what_cannot_be_read_or_said_names_the_feature(document, code):
    with pytest.raises(DatasetError) as caught:
        schema_from_features(document)
    assert caught.value.code == code
    if document["featuresDict"]["features"] != [1]:
        assert caught.value.location.feature in ("x", "a/b")
    assert caught.value.do


def test_features_nested_beyond_reason_are_refused():
    document = tensor()
    for _ in range(200):
        document = of(a=document)
    with pytest.raises(DatasetError) as caught:
        schema_from_features(document)
    assert caught.value.code == "X536"


def put(folder: Path, **files: Any) -> str:
    names = {"info": "dataset_info.json", "features": "features.json"}
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / names.get(name, f"{name}.labels.txt")).write_text(text)
    return str(folder)


def test_a_folder_says_its_name_splits_and_schema(tmp_path):
    label = feature("class_label_feature.ClassLabel", "classLabel", {"numClasses": "2"})
    splits = [{"name": "train", "shardLengths": ["3", "4"]}, {"name": "test-small", "shardLengths": ["1"]}]
    put(
        tmp_path,
        info={"name": "pets", "version": "1.0.0", "splits": splits},
        features=of(y=label),
        y="cat\n\n dog \n",
    )
    folder = read_tfds_folder(str(tmp_path))
    assert folder is not None
    assert (folder.name, folder.version) == ("pets", "1.0.0")
    assert folder.shard_lengths == {"train": (3, 4), "test-small": (1,)}
    assert folder.schema == rk.Schema({"y": rk.Label(["cat", "dog"])})
    assert folder.split_of("pets-train.tfrecord-00000-of-00002") == "train"
    assert folder.split_of("pets-test-small.tfrecord-00000-of-00001") == "test-small"
    assert folder.split_of("pets-val.tfrecord-00000-of-00002") is None
    assert folder.split_of("notes.txt") is None


def test_a_folder_without_features_has_no_schema_and_another_folder_says_nothing(tmp_path):
    put(tmp_path, info={"name": "x"})
    folder = read_tfds_folder(str(tmp_path))
    assert folder is not None
    assert folder.schema is None
    (tmp_path / "other").mkdir()
    assert read_tfds_folder(str(tmp_path / "other")) is None
    assert read_tfds_folder(str(tmp_path / "missing")) is None


@pytest.mark.parametrize(
    ("info", "features", "name"),
    [
        ("{", None, "dataset_info.json"),
        ("[]", None, "dataset_info.json"),
        ("[" * 100_000, None, "dataset_info.json"),
        ('{"splits": []}', None, "dataset_info.json"),
        ('{"name": "x", "splits": [3]}', None, "dataset_info.json"),
        ('{"name": "x", "splits": [{"name": "a", "shardLengths": ["b"]}]}', None, "dataset_info.json"),
        ('{"name": "x"}', "no json", "features.json"),
        ('{"name": "x"}', '{"type": "a.Strange", "content": {}}', "features.json"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, info, features, name):
    put(tmp_path, info=info)
    if features is not None:
        put(tmp_path, features=features)
    with pytest.raises(DatasetError) as caught:
        read_tfds_folder(str(tmp_path))
    assert caught.value.code in ("X536", "X537")
    assert caught.value.location.path == str(tmp_path / name)


def test_the_files_of_a_schema_are_what_tfds_calls_for():
    schema = rk.Schema({"a/y": rk.Label(["cat", "dog"]), "x": rk.Int64(dtype="int32")})
    files = build_tfds_files(schema, "pets", "1.0.0", {"train": ([51, 49], 20480)})
    assert list(files) == ["dataset_info.json", "features.json", "a-y.labels.txt"]
    assert files["a-y.labels.txt"] == b"cat\ndog\n"
    assert json.loads(files["dataset_info.json"]) == {
        "fileFormat": "tfrecord",
        "name": "pets",
        "version": "1.0.0",
        "splits": [
            {
                "name": "train",
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "numBytes": "20480",
                "shardLengths": ["51", "49"],
            }
        ],
    }
    assert json.loads(files["features.json"]) == of(
        a=of(y=feature("class_label_feature.ClassLabel", "classLabel", {"numClasses": "2"})),
        x=tensor("int32"),
    )
    assert build_dataset_info("x", "1.0.0", {})["splits"] == []


def test_no_label_file_is_written_for_classes_without_names():
    assert build_label_files(rk.Schema({"y": rk.Label(3)})) == {}


STEPS = rk.Schema(context={"a": rk.Int64()}, steps={"s": rk.Int64()})


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (STEPS, "s"),
        (rk.Schema({"x": rk.Sparse("float32", 3)}), "x"),
        (rk.Schema({"x": rk.Label(3, optional=True)}), "x"),
        (rk.Schema({"x": rk.Image(optional=True)}), "x"),
        (rk.Schema({"x": rk.Image(format="gif")}), "x"),
        (rk.Schema({"x": rk.Tensor("int8", (2,), optional=True)}), "x"),
        (rk.Schema({"x": rk.Tensor("uint32", (2,))}), "x"),
        (rk.Schema({"x": rk.Int64((None, None), partitions=("x/n",))}), "x"),
        (rk.Schema({"x": rk.Label(["a ", "b"])}), "x"),
    ],
)
def test_what_tfds_cannot_hold_names_the_column(schema, column):
    with pytest.raises(UsageError) as caught:
        build_tfds_files(schema, "pets", "1.0.0", {"train": ([1], 1)})
    assert (caught.value.code, caught.value.location.feature) == ("U676", column)
    assert caught.value.what == f"`{column}` cannot be stored in a TFDS dataset"
    assert caught.value.do


def test_a_compressed_dataset_is_refused():
    with pytest.raises(UsageError) as caught:
        check_tfds(rk.Schema({"x": rk.Int64()}), "pets", "1.0.0", ["train"], "gzip")
    assert (caught.value.code, caught.value.what) == ("U676", "TFDS dataset cannot be compressed")
    assert "gzip" in caught.value.found


@pytest.mark.parametrize(
    ("name", "version", "split"),
    [
        ("my-pets", "1.0.0", "train"),
        ("1pets", "1.0.0", "train"),
        ("", "1.0.0", "train"),
        ("pets", "1.0", "train"),
        ("pets", "1.0.x", "train"),
        ("pets", "1.0.0", "a/b"),
        ("pets", "1.0.0", "été"),
    ],
)
def test_names_that_tfds_does_not_take_are_refused(name, version, split):
    with pytest.raises(UsageError) as caught:
        build_tfds_files(rk.Schema({"x": rk.Int64()}), name, version, {split: ([1], 1)})
    assert caught.value.code == "U605"
    assert caught.value.what.endswith(" of a TFDS dataset")


def test_boxes_become_the_four_keys_that_they_are_stored_under():
    features = features_from_schema(rk.Schema({"boxes": rk.Boxes()}))
    inner = features["featuresDict"]["features"]["image"]["featuresDict"]["features"]["object"]
    sides = inner["featuresDict"]["features"]["bbox"]["featuresDict"]["features"]
    assert sides == dict.fromkeys(["xmin", "ymin", "xmax", "ymax"], tensor("float32", -1))


def test_every_failure_is_one_of_ours():
    with pytest.raises(RekordError):
        schema_from_features(None)


def page(code: str) -> str:
    return (Path(__file__).parents[4] / "docs" / "errors" / f"{code}.md").read_text(encoding="utf-8")


def test_the_examples_of_the_pages_are_what_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fruit").mkdir()
    put(tmp_path / "fruit", info='{"name": "fruit", "vers')
    sparse = rk.Schema({"words": rk.Sparse("float32", 1000)})
    cases: list[tuple[str, Any]] = [
        ("X536", lambda: read_tfds_folder("fruit")),
        ("U676", lambda: build_tfds_files(sparse, "fruit", "1.0.0", {})),
        ("U605", lambda: build_tfds_files(sparse, "my-fruit", "1.0.0", {})),
    ]
    for code, call in cases:
        with pytest.raises(RekordError) as caught:
            call()
        assert f"```text\n{caught.value.message}\n```" in page(code)
    own = {"pythonClassName": "my_project.Spectrum", "jsonFeature": {"json": "{}"}}
    put(tmp_path / "fruit", info='{"name": "fruit"}', features=own)
    with pytest.raises(RekordError) as caught:
        read_tfds_folder("fruit")
    assert f"```text\n{caught.value.message}\n```" in page("X537")
