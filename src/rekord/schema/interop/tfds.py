"""The metadata files of a TensorFlow Datasets folder: read, and written next to the shards of a dataset."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from rekord.errors import RekordError, add_location, error, not_examples_error, preview
from rekord.location import Location
from rekord.schema.base import (
    FLOAT_DTYPES,
    INTEGER_DTYPES,
    TENSOR_DTYPES,
    Feature,
    Inexpressible,
    Shape,
    dtype_name,
)
from rekord.schema.features import Bytes, Float32, Image, Int64, Label, Mask, Tensor, Text
from rekord.schema.media import AUDIO_FORMATS, PCM_DTYPES, Audio
from rekord.schema.schema import Schema

FLAT_VALUES = "ragged_flat_values"
ROW_LENGTHS = "ragged_row_lengths_"

_MAX_DEPTH = 32
_STRING_DTYPES = ("string", "object", "str", "bytes")

# The member with the content of a feature, and its class unless pythonClassName is more specific.
_FEATURE_MEMBERS = {
    "featuresDict": "FeaturesDict",
    "tensor": "Tensor",
    "classLabel": "ClassLabel",
    "image": "Image",
    "video": "Video",
    "audio": "Audio",
    "boundingBox": "BBoxFeature",
    "text": "Text",
    "translation": "Translation",
    "sequence": "Sequence",
}
_FEATURE_CLASSES = {
    *_FEATURE_MEMBERS.values(),
    "Scalar",
    "LabeledImage",
    "Dataset",
    "TranslationVariableLanguages",
}


class _LeafFeature(NamedTuple):
    """A feature with values, and the sequences that contain it."""

    name: str
    kind: str
    content: Mapping[str, Any]
    sequences: Shape
    label_file: str


def schema_from_features(document: Any, labels: Mapping[str, Sequence[str]] | None = None) -> Schema:
    """The schema of a parsed features.json.

    `labels` are class names by the stem of their `.labels.txt` file. A feature that a schema cannot express is an
    error.
    """
    leaves = list(_iter_leaf_features(document, (), (), 0))
    images = sum(leaf.kind == "Image" and not leaf.sequences for leaf in leaves)
    columns: dict[str, Feature] = {}
    for leaf in leaves:
        for name, feature in _iter_columns(leaf, labels or {}, images):
            if name in columns:
                _raise_feature_error(name, "unique features", "a duplicate")
            columns[name] = feature
    return Schema(columns)


def _iter_leaf_features(document: Any, path: tuple[str, ...], sequences: Shape, depth: int) -> Iterator[_LeafFeature]:
    name = "/".join(path)
    if depth > _MAX_DEPTH:
        _raise_feature_error(name, f"at most {_MAX_DEPTH} levels of nesting", "more")
    kind, content = _read_content(document, name)
    if kind == "FeaturesDict":
        features = content.get("features", {}) if "type" not in document else _legacy_features(content)
        if not isinstance(features, Mapping):
            _raise_feature_error(name, "features by name", preview(features))
        for inner, feature in features.items():
            yield from _iter_leaf_features(feature, (*path, str(inner)), sequences, depth + 1)
    elif kind in ("Sequence", "Dataset"):
        length = _parse_integer(content.get("length", -1 if "type" in document else 0), name)
        size = None if length is None or length < 0 else length
        yield from _iter_leaf_features(content.get("feature"), path, (*sequences, size), depth + 1)
    elif kind in ("Translation", "TranslationVariableLanguages"):
        yield from _iter_translations(kind, content, path, sequences)
    else:
        yield _LeafFeature(name or "value", kind, content, sequences, _label_file_name(path))


def _read_content(document: Any, name: str) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(document, Mapping):
        _raise_feature_error(name, "a feature", preview(document))
    legacy = "type" in document
    written = str(document.get("type" if legacy else "pythonClassName", ""))
    kind = written.rsplit(".", 1)[-1]
    member = "content" if legacy else next((one for one in _FEATURE_MEMBERS if one in document), None)
    content = document.get(member, {}) if member is not None else {}
    if not isinstance(content, Mapping):
        _raise_feature_error(name, "the content of a feature", preview(content))
    if kind not in _FEATURE_CLASSES and not legacy and member is not None:
        kind = _FEATURE_MEMBERS[member]  # a custom class with a known form
    if kind not in _FEATURE_CLASSES:
        raise _inexpressible_error(name, "a built-in TFDS feature", preview(written or sorted(document)))
    return kind, content


def _legacy_features(content: Mapping[str, Any]) -> Any:
    inner = content.get("features")
    is_feature = isinstance(inner, Mapping) and ("type" in inner or "pythonClassName" in inner)
    return content if inner is None or is_feature else inner


def _iter_translations(
    kind: str, content: Mapping[str, Any], path: tuple[str, ...], sequences: Shape
) -> Iterator[_LeafFeature]:
    languages = content.get("languages") or ()
    varies = kind == "TranslationVariableLanguages" or bool(
        content.get("variableLanguagesPerExample", content.get("variable_languages_per_example"))
    )
    names = ("language", "translation") if varies else languages
    if not isinstance(names, (list, tuple)):
        _raise_feature_error("/".join(path), "a list of languages", preview(names))
    for name in names:
        inner = (*path, str(name))
        dims = (*sequences, None) if varies else sequences
        yield _LeafFeature("/".join(inner), "Text", {}, dims, _label_file_name(inner))


def _label_file_name(path: tuple[str, ...]) -> str:
    return "-".join(part.replace("/", ".") for part in path)


def _iter_columns(
    leaf: _LeafFeature, labels: Mapping[str, Sequence[str]], images: int
) -> Iterator[tuple[str, Feature]]:
    name, kind, content, sequences, label_file = leaf
    optional = bool(content.get("optional")) and not sequences
    if kind == "Text":
        encoded = any(content.get(one) for one in ("use_encoder", "encoder", "encoder_config"))
        yield name, _sequence_feature(Int64, leaf, (None,)) if encoded else _sequence_feature(Text, leaf)
    elif kind == "ClassLabel":
        yield name, _label_feature(leaf, labels.get(label_file))
    elif kind in ("Image", "LabeledImage"):
        yield name, _image_feature(leaf, images)
    elif kind == "Video":
        yield name, _sequence_feature(Bytes, leaf, (None,))
    elif kind == "BBoxFeature":
        yield name, _sequence_feature(Float32, leaf, (4,))
    elif kind == "Audio" and (content.get("lazyDecode") or str(content.get("encoding") or "none").lower() != "none"):
        yield name, _sequence_feature(Bytes, leaf) if sequences else _audio_feature(leaf)
    else:
        yield from _tensor_features(leaf, optional)


def _tensor_features(leaf: _LeafFeature, optional: bool) -> Iterator[tuple[str, Feature]]:
    name, content = leaf.name, leaf.content
    dtype = str(content.get("dtype", "int64"))
    shape = _parse_shape(content.get("shape"), name)
    encoding = str(content.get("encoding") or "none").lower()
    if shape.count(None) > 1:
        if encoding == "none" or leaf.sequences:
            raise _inexpressible_error(name, "at most one unknown dimension, or raw bytes", f"shape {shape}")
        # TFDS stores the shape next to the bytes, as a second column.
        yield f"{name}/shape", Int64((len(shape),), dtype="int32", optional=optional)
        yield f"{name}/value", Bytes(optional=optional)
    elif encoding != "none":
        if encoding == "bytes" and not leaf.sequences and dtype in TENSOR_DTYPES:
            yield name, Tensor(dtype, shape, optional=optional)
        else:
            yield name, _sequence_feature(Bytes, leaf, (), optional=optional)  # compressed or multiple: raw bytes
    elif dtype in INTEGER_DTYPES:
        yield name, _sequence_feature(Int64, leaf, shape, dtype=dtype, optional=optional)
    elif dtype in FLOAT_DTYPES or dtype == "float64":
        kept = "float32" if dtype == "float64" else dtype  # records store floats with 32 bits
        yield name, _sequence_feature(Float32, leaf, shape, dtype=kept, optional=optional)
    elif dtype in _STRING_DTYPES:
        yield name, _sequence_feature(Bytes, leaf, shape, optional=optional)
    else:
        raise _inexpressible_error(name, "integers, floats or strings", f"dtype {dtype[:60]}")


def _sequence_feature(
    kind: type[Any],
    leaf: _LeafFeature,
    shape: Shape = (),
    *,
    dtype: str | None = None,
    optional: bool = False,
) -> Feature:
    """A feature of this shape inside the leaf's sequences."""
    own = {} if dtype is None else {"dtype": dtype}
    levels = len(leaf.sequences)
    if levels < 2:
        whole = (*leaf.sequences, *shape)
        if whole.count(None) > 1:
            raise _inexpressible_error(leaf.name, "at most one unknown dimension", f"shape {whole}")
        return kind(whole, optional=optional, **own)  # type: ignore[no-any-return]
    if None in shape:
        raise _inexpressible_error(leaf.name, "fixed shapes inside nested sequences", f"shape {shape}")
    lengths = tuple(f"{leaf.name}/{ROW_LENGTHS}{level}" for level in range(levels - 1))
    key = f"{leaf.name}/{FLAT_VALUES}"
    return kind((None,) * levels + shape, key=key, partitions=lengths, **own)  # type: ignore[no-any-return]


def _label_feature(leaf: _LeafFeature, names: Sequence[str] | None) -> Feature:
    given = leaf.content.get("numClasses", leaf.content.get("num_classes"))
    count = _parse_integer(given, leaf.name)
    if len(leaf.sequences) > 1 or (not names and not count):
        return _sequence_feature(Int64, leaf)
    if names and count and len(names) != count:
        names = None  # from another dataset, or truncated: the ids are valid without names
    try:
        return Label(names=names, count=count or None, shape=leaf.sequences)
    except RekordError:
        return Label(count=count, shape=leaf.sequences) if count else _sequence_feature(Int64, leaf)


def _image_feature(leaf: _LeafFeature, images: int) -> Feature:
    content = leaf.content
    written = content.get("encodingFormat", content.get("encoding_format"))
    form = written if written in ("jpeg", "png") else None
    if leaf.sequences:
        return _sequence_feature(Bytes, leaf)
    if leaf.kind == "LabeledImage":
        label = content.get("label")
        labels = label.get("numClasses") if isinstance(label, Mapping) else content.get("labels")
        classes = _parse_integer(labels, leaf.name) if isinstance(labels, (int, str)) else None
        if images == 1 and classes is not None and 1 <= classes <= 1 << 16:
            return Mask(classes=classes)
        return Image(format=form)
    shape = _parse_shape(content.get("shape"), leaf.name)
    floats = str(content.get("dtype", "uint8")).startswith("float")
    # A grey image is valid where three channels are declared: TFDS converts it when reading.
    channels = shape[-1] if len(shape) == 3 and shape[-1] in (1, 4) and not floats else None
    return Image(format=form, channels=channels)


def _audio_feature(leaf: _LeafFeature) -> Feature:
    """Audio that is stored as files, or as the raw bytes of samples."""
    content, shape = leaf.content, _parse_shape(leaf.content.get("shape"), leaf.name)
    rate = _parse_integer(content.get("sampleRate"), leaf.name) or None
    channels = shape[1] if len(shape) == 2 else None
    dtype = str(content.get("dtype", "int64"))
    pcm = next((name for name, one in PCM_DTYPES.items() if one.name == dtype), None)
    try:
        if content.get("lazyDecode"):
            # TFDS converts the rate and the number of channels when reading: files may have others.
            form = content.get("fileFormat")
            return Audio(format=form if form in AUDIO_FORMATS else None)
        if pcm is not None and rate and str(content.get("encoding")).lower() == "bytes" and shape[:1] == (None,):
            return Audio(format=pcm, rate=rate, channels=channels)
    except RekordError:
        pass  # a rate or a number of channels that no audio has
    return Bytes()


def _parse_shape(value: Any, name: str) -> Shape:
    if isinstance(value, Mapping):
        value = value.get("dimensions")
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        _raise_feature_error(name, "a list of sizes", preview(value))
    sizes = [_parse_integer(size, name) for size in value]
    return tuple(None if size is None or size < 0 else size for size in sizes)


def _parse_integer(value: Any, name: str) -> int | None:
    if value is None:
        return None
    try:
        number = int(value) if isinstance(value, (int, str)) and len(str(value)) < 20 else None
    except ValueError:
        number = None
    if number is None:
        _raise_feature_error(name, "an integer", preview(value))
    return number


def _raise_feature_error(name: str, expected: str, found: str) -> NoReturn:
    raise error(
        "X536",
        f"feature `{name[:60]}` cannot be read" if name else "features.json cannot be read",
        location=Location(feature=name or None),
        expected=expected,
        found=found,
        do="copy features.json again, or pass schema=",
    )


def _inexpressible_error(name: str, expected: str, found: str) -> RekordError:
    return error(
        "X537",
        f"TFDS feature `{name[:60]}` cannot be expressed as a column" if name else None,
        location=Location(feature=name or None),
        expected=expected,
        found=found,
        do="pass schema= with the columns to read",
    )


FILE_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
INFO_NAME = "dataset_info.json"
FEATURES_NAME = "features.json"
LABELS_SUFFIX = ".labels.txt"

_MAX_FILE_BYTES = 64 << 20  # of one of these files
_SHARD_PATTERN = re.compile(r"^(?P<before>.+)-\d{5,}-of-\d{5,}$")
_PYTHON_CLASSES = {
    "featuresDict": "features_dict.FeaturesDict",
    "tensor": "tensor_feature.Tensor",
    "classLabel": "class_label_feature.ClassLabel",
    "image": "image_feature.Image",
    "audio": "audio_feature.Audio",
    "mask": "labeled_image.LabeledImage",
    "text": "text_feature.Text",
    "sequence": "sequence_feature.Sequence",
}


@dataclass(frozen=True, slots=True)
class TfdsFolder:
    """The metadata of a TFDS folder; `schema` is None without features.json."""

    name: str
    version: str
    shard_lengths: Mapping[str, tuple[int, ...]]  # by split
    schema: Schema | None

    def split_of(self, file_name: str) -> str | None:
        """The split of a file in the folder, by its name."""
        numbered = _SHARD_PATTERN.match(file_name)
        if numbered is None or not numbered["before"].startswith(f"{self.name}-"):
            return None
        stem = numbered["before"][len(self.name) + 1 :]
        split = stem.rsplit(".", 1)[0]
        return split if split in self.shard_lengths else None


def read_tfds_folder(folder: str) -> TfdsFolder | None:
    """The TFDS metadata of a folder, None if it has none."""
    place = os.path.join(folder, INFO_NAME)
    info = _read_json(place)
    if info is None:
        return None
    with add_location(path=place):
        name, version = info.get("name"), info.get("version", "")
        splits = info.get("splits", [])
        if not isinstance(name, str) or not isinstance(splits, list):
            raise _corrupt_file_error("a name, and a list of splits", preview(sorted(info)))
        lengths = dict([_parse_split(split) for split in splits])
    features_place = os.path.join(folder, FEATURES_NAME)
    features = _read_json(features_place)
    schema = None
    if features is not None:
        with add_location(path=features_place):
            schema = schema_from_features(features, _read_label_names(folder))
    return TfdsFolder(name, str(version), lengths, schema)


def _parse_split(split: Any) -> tuple[str, tuple[int, ...]]:
    name = split.get("name") if isinstance(split, Mapping) else None
    lengths = split.get("shardLengths", []) if isinstance(split, Mapping) else None
    if not isinstance(name, str) or not isinstance(lengths, list):
        raise _corrupt_file_error("splits with a name and shardLengths", preview(split))
    try:
        counts = tuple(int(length) for length in lengths)
        if all(0 <= count < 1 << 63 for count in counts):
            return name, counts
        raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise _corrupt_file_error("integers in shardLengths", preview(lengths)) from None


def _read_json(place: str) -> dict[str, Any] | None:
    content = _read_bytes(place)
    if content is None:
        return None
    with add_location(path=place):
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as failure:
            raise _corrupt_file_error("JSON", str(failure)[:60]) from None
        if not isinstance(document, dict):
            raise _corrupt_file_error("a JSON object", preview(document))
        return document


def _read_bytes(place: str) -> bytes | None:
    if not os.path.isfile(place):  # reading a pipe could block forever
        return None
    try:
        with open(place, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as failure:
        where = Location(path=place)
        found = failure.strerror or str(failure)
        raise error("X503", location=where, found=found, do=f"check {os.path.basename(place)}") from failure
    if len(content) > _MAX_FILE_BYTES:
        with add_location(path=place):
            raise _corrupt_file_error(f"at most {_MAX_FILE_BYTES:,} bytes", "more")
    return content


def _read_label_names(folder: str) -> dict[str, list[str]]:
    names = {}
    for file_name in sorted(os.listdir(folder)):
        content = _read_bytes(os.path.join(folder, file_name)) if file_name.endswith(LABELS_SUFFIX) else None
        if content is not None:
            lines = content.decode("utf-8", "replace").split("\n")
            names[file_name[: -len(LABELS_SUFFIX)]] = [line.strip() for line in lines if line.strip()]
    return names


def _corrupt_file_error(expected: str, found: str) -> RekordError:
    return error("X536", expected=expected, found=found, do="copy the file again, or pass schema=")


def features_from_schema(schema: Schema) -> dict[str, Any]:
    """The features.json of a schema: nested by the `/` in record keys, unless a key is a prefix of others."""
    leaves = _build_features(schema)
    tree: dict[str, Any] = {}
    if not _is_nestable(leaves):
        return _build_dict(leaves)
    for key, feature in leaves.items():
        *folders, name = key.split("/")
        inside = tree
        for folder in folders:
            inside = inside.setdefault(folder, {})
        inside[name] = feature
    return _build_nested(tree)


def build_label_files(schema: Schema) -> dict[str, bytes]:
    """The class name files for `features_from_schema`."""
    nested = _is_nestable(_build_features(schema))
    out = {}
    for column, feature in schema.items():
        names = feature.class_names
        if names is not None:
            stem = (feature.key or column).replace("/", "-" if nested else ".")
            if any(name != name.strip() or "\n" in name for name in names):
                raise unsupported_column_error(
                    column,
                    "class names without surrounding blanks or newlines, which labels.txt cannot keep",
                    "others",
                )
            out[f"{stem}{LABELS_SUFFIX}"] = "".join(f"{name}\n" for name in names).encode()
    return out


def build_dataset_info(name: str, version: str, splits: Mapping[str, tuple[Sequence[int], int]]) -> dict[str, Any]:
    """The dataset_info.json, from the records per shard and the payload bytes of each split."""
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


def unsupported_column_error(column: str, expected: str, found: str) -> RekordError:
    """The error for a column that TFDS cannot express."""
    return error(
        "U676",
        f"`{column[:60]}` cannot be stored in a TFDS dataset",
        location=Location(feature=column),
        expected=expected,
        found=found,
        do='change the declaration of the column, or do not use format="tfds"',
    )


def _build_features(schema: Schema) -> dict[str, Any]:
    """A TFDS feature for each record key, or for all keys of a ragged column."""
    if schema.kind == "bytes":
        raise not_examples_error("TFDS")
    if schema.is_sequence:
        first = next(iter(schema.steps), None) or next(iter(schema.context), "steps")
        raise unsupported_column_error(first, "Examples", "a schema of SequenceExamples")
    leaves: dict[str, Any] = {}
    for column, feature in schema.items():
        leaves |= _build_leaves(column, feature)
    return leaves


def _build_leaves(column: str, feature: Feature) -> dict[str, Any]:
    keys = feature.record_keys(column)
    try:
        kind, content = feature.tfds_feature()
    except Inexpressible as reason:
        raise unsupported_column_error(column, reason.expected, reason.found) from None
    if feature.storage == "parallel":
        return {key: _build_tensor((None,), content["dtype"]) for key in keys}
    if feature.storage == "blob" and len(keys) > 1:
        raise unsupported_column_error(column, "a tensor with at most one None in its shape", f"{feature!r}"[:60])
    if len(keys) > 1:
        return _build_ragged(column, feature, keys)
    return {keys[0]: _build_leaf(feature, kind, content)}


def _build_leaf(feature: Feature, kind: str, content: dict[str, Any]) -> dict[str, Any]:
    shape = feature.shape
    if kind == "tensor":
        # TFDS reads a missing value of varying length as empty, and has no other missing values.
        return _build_tensor(shape, **content, optional=feature.optional and not feature.variable)
    if kind in ("classLabel", "text"):
        dtype = "string" if kind == "text" else "int64"
        return _wrap_in_sequence(shape, _build_feature(kind, content), _build_tensor(shape, dtype))
    content = {**content, "shape": _build_shape(content["shape"])}
    return _build_feature(kind, content, member="image" if kind == "mask" else None)


def _build_ragged(column: str, feature: Feature, keys: Sequence[str]) -> dict[str, Any]:
    stem = keys[0].removesuffix(f"/{FLAT_VALUES}")
    wanted = [f"{stem}/{FLAT_VALUES}", *[f"{stem}/{ROW_LENGTHS}{i}" for i in range(len(keys) - 1)]]
    if list(keys) != wanted:
        raise unsupported_column_error(
            column, f"the record keys {', '.join(wanted)}"[:160], f"{', '.join(keys)}"[:60]
        )
    inner = feature.shape[len(keys) :]
    dtype = "string" if feature.kind == "bytes" else dtype_name(feature.dtype)
    out = _build_feature("text", {}) if feature.is_text and inner == () else _build_tensor(inner, dtype)
    for _ in keys:
        out = _build_feature("sequence", {"feature": out, "length": "-1"})
    return {stem: out}


def _wrap_in_sequence(shape: Shape, one: dict[str, Any], otherwise: dict[str, Any]) -> dict[str, Any]:
    """A scalar unchanged, a list as a sequence; TFDS has no other shapes for these."""
    if shape == ():
        return one
    if len(shape) > 1:
        return otherwise
    length = "-1" if shape[0] is None else str(shape[0])
    return _build_feature("sequence", {"feature": one, "length": length})


def _build_tensor(shape: Shape, dtype: str, *, encoding: str = "none", optional: bool = False) -> dict[str, Any]:
    content = {"shape": _build_shape(shape), "dtype": dtype, "encoding": encoding}
    return _build_feature("tensor", {**content, "optional": True} if optional else content)


def _build_shape(shape: Shape) -> dict[str, Any]:
    return {"dimensions": ["-1" if size is None else str(size) for size in shape]} if shape else {}


def _build_feature(kind: str, content: dict[str, Any], *, member: str | None = None) -> dict[str, Any]:
    return {
        "pythonClassName": f"tensorflow_datasets.core.features.{_PYTHON_CLASSES[kind]}",
        member or kind: content,
    }


def _build_dict(features: Mapping[str, Any]) -> dict[str, Any]:
    return _build_feature("featuresDict", {"features": dict(features)})


def _build_nested(tree: Mapping[str, Any]) -> dict[str, Any]:
    return _build_dict({name: one if "pythonClassName" in one else _build_nested(one) for name, one in tree.items()})


def _is_nestable(keys: Mapping[str, Any]) -> bool:
    """Whether `/` can be nesting: no key is a prefix of others, and no part is empty."""
    folders = {key[:at] for key in keys for at, mark in enumerate(key) if mark == "/"}
    odd = any("" in key.split("/") or "pythonClassName" in key.split("/") for key in keys)
    return not odd and not folders & set(keys)


# Not \w: TFDS accepts letters of every script, but its patterns for file names only have these.
_NAME_PATTERN = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
_VERSION_PATTERN = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}")
_SPLIT_PATTERN = re.compile(r"[a-zA-Z0-9_-]+")


def check_tfds(
    schema: Schema, name: str, version: str, splits: Sequence[str], compression: str | None = None
) -> None:
    """Raise for anything that TFDS could not open, before writing."""
    for what, value, pattern, example in (
        ("name", name, _NAME_PATTERN, "flowers"),
        ("version", version, _VERSION_PATTERN, "1.0.0"),
        *[("split", split, _SPLIT_PATTERN, "train") for split in splits],
    ):
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise _invalid_name_error(what, value, example)
    if compression is not None:
        first = next(iter(schema), "")
        failure = unsupported_column_error(first, "files without compression", f"compression {preview(compression)}")
        failure.what = "TFDS dataset cannot be compressed"
        failure.do = "compression=None"
        raise failure
    features_from_schema(schema)
    build_label_files(schema)


def build_tfds_files(
    schema: Schema, name: str, version: str, splits: Mapping[str, tuple[Sequence[int], int]]
) -> dict[str, bytes]:
    """The files by name. `splits` has, per split, the records of every shard and the total payload bytes."""
    check_tfds(schema, name, version, list(splits))
    return {
        INFO_NAME: _to_json(build_dataset_info(name, version, splits)),
        FEATURES_NAME: _to_json(features_from_schema(schema)),
        **build_label_files(schema),
    }


def _to_json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=4, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _invalid_name_error(what: str, value: object, example: str) -> RekordError:
    rule = {
        "name": "a letter, then letters, digits and `_`",
        "version": "three numbers separated by dots",
        "split": "letters, digits, `_` and `-`",
    }[what]
    return error(
        "U605",
        f"{preview(value)} is not a valid {what} of a TFDS dataset",
        expected=f"{rule}, such as {example}",
        found=preview(value),
        do=f"choose another {what}",
    )
