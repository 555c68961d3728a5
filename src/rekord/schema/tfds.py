"""The files that make a folder a dataset of TensorFlow Datasets: read, and written for a schema.

dataset_info.json    name, version, and for each split the records of every shard
features.json        what the columns are
<feature>.labels.txt the names of classes, one a line
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekord.errors import RekordError, error, located
from rekord.location import Location
from rekord.schema.base import Feature
from rekord.schema.dtypes import dtype_name
from rekord.schema.feature import Boxes, Bytes, Float32, Image, Int64, Label, Mask, Sparse, Tensor, Text
from rekord.schema.refuse import not_examples, shown
from rekord.schema.schema import Schema
from rekord.schema.shapes import Shape
from rekord.schema.tfds_features import FLAT_VALUES, ROW_LENGTHS, schema_from_features

FILE_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
INFO_NAME = "dataset_info.json"
FEATURES_NAME = "features.json"
LABELS_SUFFIX = ".labels.txt"

_MOST_BYTES = 64 << 20  # of one of these files
_SHARD = re.compile(r"^(?P<before>.+)-\d{5,}-of-\d{5,}$")
_CLASSES = {
    "featuresDict": "features_dict.FeaturesDict",
    "tensor": "tensor_feature.Tensor",
    "classLabel": "class_label_feature.ClassLabel",
    "image": "image_feature.Image",
    "mask": "labeled_image.LabeledImage",
    "text": "text_feature.Text",
    "sequence": "sequence_feature.Sequence",
}
_RAW_REFUSED = ("uint32",)  # tf.io.decode_raw, which TFDS reads raw bytes with, does not know them


@dataclass(frozen=True, slots=True)
class TfdsFolder:
    """What the files of a TFDS folder say; `schema` is None where there is no features.json."""

    name: str
    version: str
    shard_lengths: Mapping[str, tuple[int, ...]]  # by split
    schema: Schema | None

    def split_of(self, file_name: str) -> str | None:
        """The split of a file in the folder, by its name."""
        numbered = _SHARD.match(file_name)
        if numbered is None or not numbered["before"].startswith(f"{self.name}-"):
            return None
        stem = numbered["before"][len(self.name) + 1 :]
        split = stem.rsplit(".", 1)[0]
        return split if split in self.shard_lengths else None


def read_tfds_folder(folder: str) -> TfdsFolder | None:
    """What a folder says of itself as a TFDS dataset, None where it says nothing."""
    place = os.path.join(folder, INFO_NAME)
    info = _read_json(place)
    if info is None:
        return None
    with located(path=place):
        name, version = info.get("name"), info.get("version", "")
        splits = info.get("splits", [])
        if not isinstance(name, str) or not isinstance(splits, list):
            raise _damaged("a name, and a list of splits", shown(sorted(info)))
        lengths = dict([_split(split) for split in splits])
    features_place = os.path.join(folder, FEATURES_NAME)
    features = _read_json(features_place)
    schema = None
    if features is not None:
        with located(path=features_place):
            schema = schema_from_features(features, _label_names(folder))
    return TfdsFolder(name, str(version), lengths, schema)


def _split(split: Any) -> tuple[str, tuple[int, ...]]:
    name = split.get("name") if isinstance(split, Mapping) else None
    lengths = split.get("shardLengths", []) if isinstance(split, Mapping) else None
    if not isinstance(name, str) or not isinstance(lengths, list):
        raise _damaged("splits with a name and shardLengths", shown(split))
    try:
        counts = tuple(int(length) for length in lengths)
        if all(0 <= count < 1 << 63 for count in counts):
            return name, counts
        raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise _damaged("whole numbers in shardLengths", shown(lengths)) from None


def _read_json(place: str) -> dict[str, Any] | None:
    content = _read(place)
    if content is None:
        return None
    with located(path=place):
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as failure:
            raise _damaged("JSON", str(failure)[:60]) from None
        if not isinstance(document, dict):
            raise _damaged("a JSON object", shown(document))
        return document


def _read(place: str) -> bytes | None:
    if not os.path.isfile(place):  # a pipe would be waited for without end
        return None
    try:
        with open(place, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as failure:
        where = Location(path=place)
        found = failure.strerror or str(failure)
        raise error("X503", location=where, found=found, do=f"check {os.path.basename(place)}") from failure
    if len(content) > _MOST_BYTES:
        with located(path=place):
            raise _damaged(f"at most {_MOST_BYTES:,} bytes", "more")
    return content


def _label_names(folder: str) -> dict[str, list[str]]:
    names = {}
    for file_name in sorted(os.listdir(folder)):
        content = _read(os.path.join(folder, file_name)) if file_name.endswith(LABELS_SUFFIX) else None
        if content is not None:
            lines = content.decode("utf-8", "replace").split("\n")
            names[file_name[: -len(LABELS_SUFFIX)]] = [line.strip() for line in lines if line.strip()]
    return names


def _damaged(expected: str, found: str) -> RekordError:
    return error("X536", expected=expected, found=found, do="fetch the file again, or give schema=")


def features_from_schema(schema: Schema) -> dict[str, Any]:
    """The features.json of a schema: nested by the `/` in record keys, unless one key is also a folder of others."""
    leaves = _features(schema)
    tree: dict[str, Any] = {}
    if not _nests(leaves):
        return _dict(leaves)
    for key, feature in leaves.items():
        *folders, name = key.split("/")
        inside = tree
        for folder in folders:
            inside = inside.setdefault(folder, {})
        inside[name] = feature
    return _nested(tree)


def label_files(schema: Schema) -> dict[str, bytes]:
    """The files of class names that belong to `features_from_schema`."""
    nested = _nests(_features(schema))
    out = {}
    for column, feature in schema.items():
        if isinstance(feature, Label) and feature.names is not None:
            stem = (feature.key or column).replace("/", "-" if nested else ".")
            if any(name != name.strip() or "\n" in name for name in feature.names):
                raise unfit(column, "names without blanks at their ends: labels.txt is cut there", "others")
            out[f"{stem}{LABELS_SUFFIX}"] = "".join(f"{name}\n" for name in feature.names).encode()
    return out


def dataset_info(name: str, version: str, splits: Mapping[str, tuple[Sequence[int], int]]) -> dict[str, Any]:
    """The dataset_info.json: for each split the records of every shard, and the bytes of all payloads."""
    return {
        "fileFormat": "tfrecord",
        "name": name,
        "splits": [
            {
                "filepathTemplate": FILE_TEMPLATE,
                "name": split,
                "numBytes": str(payload_bytes),
                "shardLengths": [str(records) for records in shard_lengths],
            }
            for split, (shard_lengths, payload_bytes) in splits.items()
        ],
        "version": version,
    }


def unfit(column: str, expected: str, found: str) -> RekordError:
    """The error for a column that TFDS cannot hold."""
    return error(
        "U614",
        f"`{column[:60]}` cannot be part of a TFDS dataset",
        location=Location(feature=column),
        expected=expected,
        found=found,
        do="declare the column in another way, or write without format tfds",
    )


def _features(schema: Schema) -> dict[str, Any]:
    """A feature of TFDS for each record key, or for all keys of a ragged column."""
    if schema.kind == "bytes":
        raise not_examples("TFDS")
    if schema.is_sequence:
        first = next(iter(schema.steps), None) or next(iter(schema.context), "steps")
        raise unfit(first, "Examples", "a schema of SequenceExamples")
    leaves: dict[str, Any] = {}
    for column, feature in schema.items():
        leaves |= _leaves(column, feature)
    return leaves


def _leaves(column: str, feature: Feature) -> dict[str, Any]:
    keys = feature.record_keys(column)
    if isinstance(feature, Boxes):
        return {key: _tensor((None,), "float32") for key in keys}
    if isinstance(feature, Sparse):
        raise unfit(column, "a dense column, or two columns of indices and values", "Sparse")
    if len(keys) > 1:
        return _ragged(column, feature, keys)
    return {keys[0]: _leaf(column, feature)}


def _leaf(column: str, feature: Feature) -> dict[str, Any]:
    if feature.optional and isinstance(feature, (Label, Image, Mask, Tensor)):
        raise unfit(column, "a value in every record: TFDS has no hole here", f"{feature!r}"[:60])
    # What varies in length TFDS reads as empty where it is missing, and knows no other hole.
    optional = feature.optional and not feature.variable
    shape = feature.shape
    match feature:
        case Int64():
            return _tensor(shape, dtype_name(feature.dtype), optional=optional)
        case Float32():
            return _tensor(shape, dtype_name(feature.dtype), optional=optional)
        case Tensor():
            dtype = dtype_name(feature.dtype)
            if dtype in _RAW_REFUSED:
                raise unfit(column, "a dtype that TensorFlow reads from raw bytes", dtype)
            return _tensor(shape, dtype, encoding="bytes")
        case Label():
            content = {"numClasses": str(feature.count)}
            return _sequenced(shape, _feature("classLabel", content), _tensor(shape, "int64"))
        case Text() if not optional:
            return _sequenced(shape, _feature("text", {}), _tensor(shape, "string"))
        case Text() | Bytes():
            return _tensor(shape, "string", optional=optional)
        case Image():
            return _image(column, feature)
        case Mask():
            dtype = "uint8" if feature.classes <= 256 else "uint16"
            picture = {"shape": _shape((None, None, 1)), "dtype": dtype, "encodingFormat": "png"}
            label = {"numClasses": str(feature.classes)}
            return _feature("mask", {**picture, "useColormap": True, "label": label}, member="image")
    raise unfit(column, "a type that TFDS has", f"{feature!r}"[:60])


def _image(column: str, feature: Image) -> dict[str, Any]:
    if feature.format in ("gif", "webp"):
        raise unfit(column, "JPEG, PNG or BMP, which TFDS decodes", f"format {feature.format}")
    content = {"shape": _shape((None, None, feature.channels or 3)), "dtype": "uint8"}
    if feature.format in ("jpeg", "png"):
        content["encodingFormat"] = feature.format
    return _feature("image", content)


def _ragged(column: str, feature: Feature, keys: Sequence[str]) -> dict[str, Any]:
    stem = keys[0].removesuffix(f"/{FLAT_VALUES}")
    wanted = [f"{stem}/{FLAT_VALUES}", *[f"{stem}/{ROW_LENGTHS}{i}" for i in range(len(keys) - 1)]]
    if list(keys) != wanted:
        raise unfit(column, f"the record keys {', '.join(wanted)}"[:160], f"{', '.join(keys)}"[:60])
    inner = feature.shape[len(keys) :]
    dtype = "string" if feature.kind == "bytes" else dtype_name(feature.dtype)
    out = _feature("text", {}) if isinstance(feature, Text) and inner == () else _tensor(inner, dtype)
    for _ in keys:
        out = _feature("sequence", {"feature": out, "length": "-1"})
    return {stem: out}


def _sequenced(shape: Shape, one: dict[str, Any], otherwise: dict[str, Any]) -> dict[str, Any]:
    """A single one as it is, a list of them as a sequence; TFDS has no other shapes of these."""
    if shape == ():
        return one
    if len(shape) > 1:
        return otherwise
    length = "-1" if shape[0] is None else str(shape[0])
    return _feature("sequence", {"feature": one, "length": length})


def _tensor(shape: Shape, dtype: str, *, encoding: str = "none", optional: bool = False) -> dict[str, Any]:
    content = {"shape": _shape(shape), "dtype": dtype, "encoding": encoding}
    return _feature("tensor", {**content, "optional": True} if optional else content)


def _shape(shape: Shape) -> dict[str, Any]:
    return {"dimensions": ["-1" if size is None else str(size) for size in shape]} if shape else {}


def _feature(kind: str, content: dict[str, Any], *, member: str | None = None) -> dict[str, Any]:
    return {"pythonClassName": f"tensorflow_datasets.core.features.{_CLASSES[kind]}", member or kind: content}


def _dict(features: Mapping[str, Any]) -> dict[str, Any]:
    return _feature("featuresDict", {"features": dict(features)})


def _nested(tree: Mapping[str, Any]) -> dict[str, Any]:
    return _dict({name: one if "pythonClassName" in one else _nested(one) for name, one in tree.items()})


def _nests(keys: Mapping[str, Any]) -> bool:
    """Whether `/` can become nesting: no key is a folder of others, and no part of one is empty."""
    folders = {key[:at] for key in keys for at, mark in enumerate(key) if mark == "/"}
    odd = any("" in key.split("/") or "pythonClassName" in key.split("/") for key in keys)
    return not odd and not folders & set(keys)
