"""The features.json of TensorFlow Datasets as a schema, in today's form and in the one before it.

TFDS names a feature by its path through nested dicts, joined with `/`, and stores it under that key. A sequence
inside a sequence is stored flat, with the lengths of its rows under keys of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.base import Feature
from rekord.schema.dtypes import FLOATS, INTEGERS, TENSORS
from rekord.schema.feature import Bytes, Float32, Image, Int64, Label, Mask, Tensor, Text
from rekord.schema.refuse import shown
from rekord.schema.schema import Schema
from rekord.schema.shapes import Shape

FLAT_VALUES = "ragged_flat_values"
ROW_LENGTHS = "ragged_row_lengths_"

_DEEPEST = 32
_STRINGS = ("string", "object", "str", "bytes")

# The member that holds a feature's content, and the class that it then is unless its own name says more.
_MEMBERS = {
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
_CLASSES = {*_MEMBERS.values(), "Scalar", "LabeledImage", "Dataset", "TranslationVariableLanguages"}


class _Leaf(NamedTuple):
    """A feature that holds values, and the sequences that it is in."""

    name: str
    kind: str
    content: Mapping[str, Any]
    sequences: Shape
    label_file: str


def schema_from_features(document: Any, labels: Mapping[str, Sequence[str]] | None = None) -> Schema:
    """The schema of a parsed features.json.

    `labels` are the names of classes by what stands before `.labels.txt` in their files' names. What a schema
    cannot say is refused with the feature's name.
    """
    leaves = list(_leaves(document, (), (), 0))
    pictures = sum(leaf.kind == "Image" and not leaf.sequences for leaf in leaves)
    columns: dict[str, Feature] = {}
    for leaf in leaves:
        for name, feature in _columns(leaf, labels or {}, pictures):
            if name in columns:
                _damaged(name, "each feature once", "two of this name")
            columns[name] = feature
    return Schema(columns)


def _leaves(document: Any, path: tuple[str, ...], sequences: Shape, depth: int) -> Iterator[_Leaf]:
    name = "/".join(path)
    if depth > _DEEPEST:
        _damaged(name, f"features nested at most {_DEEPEST} deep", "more")
    kind, content = _content(document, name)
    if kind == "FeaturesDict":
        features = content.get("features", {}) if "type" not in document else _legacy_features(content)
        if not isinstance(features, Mapping):
            _damaged(name, "features by name", shown(features))
        for inner, feature in features.items():
            yield from _leaves(feature, (*path, str(inner)), sequences, depth + 1)
    elif kind in ("Sequence", "Dataset"):
        length = _whole(content.get("length", -1 if "type" in document else 0), name)
        size = None if length is None or length < 0 else length
        yield from _leaves(content.get("feature"), path, (*sequences, size), depth + 1)
    elif kind in ("Translation", "TranslationVariableLanguages"):
        yield from _translations(kind, content, path, sequences)
    else:
        yield _Leaf(name or "value", kind, content, sequences, _label_file(path))


def _content(document: Any, name: str) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(document, Mapping):
        _damaged(name, "a feature", shown(document))
    legacy = "type" in document
    written = str(document.get("type" if legacy else "pythonClassName", ""))
    kind = written.rsplit(".", 1)[-1]
    member = "content" if legacy else next((one for one in _MEMBERS if one in document), None)
    content = document.get(member, {}) if member is not None else {}
    if not isinstance(content, Mapping):
        _damaged(name, "the content of a feature", shown(content))
    if kind not in _CLASSES and not legacy and member is not None:
        kind = _MEMBERS[member]  # a class of somebody's own, kept in a form that is known
    if kind not in _CLASSES:
        raise _inexpressible(name, "a feature of TFDS itself", shown(written or sorted(document)))
    return kind, content


def _legacy_features(content: Mapping[str, Any]) -> Any:
    inner = content.get("features")
    is_feature = isinstance(inner, Mapping) and ("type" in inner or "pythonClassName" in inner)
    return content if inner is None or is_feature else inner


def _translations(
    kind: str, content: Mapping[str, Any], path: tuple[str, ...], sequences: Shape
) -> Iterator[_Leaf]:
    languages = content.get("languages") or ()
    varies = kind == "TranslationVariableLanguages" or bool(
        content.get("variableLanguagesPerExample", content.get("variable_languages_per_example"))
    )
    names = ("language", "translation") if varies else languages
    if not isinstance(names, (list, tuple)):
        _damaged("/".join(path), "a list of languages", shown(names))
    for name in names:
        inner = (*path, str(name))
        dims = (*sequences, None) if varies else sequences
        yield _Leaf("/".join(inner), "Text", {}, dims, _label_file(inner))


def _label_file(path: tuple[str, ...]) -> str:
    return "-".join(part.replace("/", ".") for part in path)


def _columns(
    leaf: _Leaf, labels: Mapping[str, Sequence[str]], pictures: int
) -> Iterator[tuple[str, Feature]]:
    name, kind, content, sequences, label_file = leaf
    optional = bool(content.get("optional")) and not sequences
    if kind == "Text":
        encoded = any(content.get(one) for one in ("use_encoder", "encoder", "encoder_config"))
        yield name, _listed(Int64, leaf, (None,)) if encoded else _listed(Text, leaf)
    elif kind == "ClassLabel":
        yield name, _label(leaf, labels.get(label_file))
    elif kind in ("Image", "LabeledImage"):
        yield name, _picture(leaf, pictures)
    elif kind == "Video":
        yield name, _listed(Bytes, leaf, (None,))
    elif kind == "BBoxFeature":
        yield name, _listed(Float32, leaf, (4,))
    elif kind == "Audio" and (
        content.get("lazyDecode") or str(content.get("encoding") or "none").lower() != "none"
    ):
        yield name, _listed(Bytes, leaf)
    else:
        yield from _tensor(leaf, optional)


def _tensor(leaf: _Leaf, optional: bool) -> Iterator[tuple[str, Feature]]:
    name, content = leaf.name, leaf.content
    dtype = str(content.get("dtype", "int64"))
    shape = _shape(content.get("shape"), name)
    encoding = str(content.get("encoding") or "none").lower()
    if shape.count(None) > 1:
        if encoding == "none" or leaf.sequences:
            raise _inexpressible(name, "at most one unknown dimension, or raw bytes", f"shape {shape}")
        # TFDS keeps the shape beside the bytes, which are then a column of their own.
        yield f"{name}/shape", Int64((len(shape),), dtype="int32", optional=optional)
        yield f"{name}/value", Bytes(optional=optional)
    elif encoding != "none":
        if encoding == "bytes" and not leaf.sequences and dtype in TENSORS:
            yield name, Tensor(dtype, shape, optional=optional)
        else:
            yield name, _listed(Bytes, leaf, (), optional=optional)  # compressed, or many: bytes as they are
    elif dtype in INTEGERS:
        yield name, _listed(Int64, leaf, shape, dtype=dtype, optional=optional)
    elif dtype in FLOATS or dtype == "float64":
        kept = "float32" if dtype == "float64" else dtype  # a record's floats have 32 bits, whatever is said
        yield name, _listed(Float32, leaf, shape, dtype=kept, optional=optional)
    elif dtype in _STRINGS:
        yield name, _listed(Bytes, leaf, shape, optional=optional)
    else:
        raise _inexpressible(name, "integers, floats or strings", f"dtype {dtype[:60]}")


def _listed(
    kind: type[Any], leaf: _Leaf, shape: Shape = (), *, dtype: str | None = None, optional: bool = False
) -> Feature:
    """A feature of this shape inside the leaf's sequences."""
    own = {} if dtype is None else {"dtype": dtype}
    levels = len(leaf.sequences)
    if levels < 2:
        whole = (*leaf.sequences, *shape)
        if whole.count(None) > 1:
            raise _inexpressible(leaf.name, "at most one unknown dimension", f"shape {whole}")
        return kind(whole, optional=optional, **own)  # type: ignore[no-any-return]
    if None in shape:
        raise _inexpressible(leaf.name, "fixed shapes inside nested sequences", f"shape {shape}")
    lengths = tuple(f"{leaf.name}/{ROW_LENGTHS}{level}" for level in range(levels - 1))
    key = f"{leaf.name}/{FLAT_VALUES}"
    return kind((None,) * levels + shape, key=key, partitions=lengths, **own)  # type: ignore[no-any-return]


def _label(leaf: _Leaf, names: Sequence[str] | None) -> Feature:
    given = leaf.content.get("numClasses", leaf.content.get("num_classes"))
    count = _whole(given, leaf.name)
    if len(leaf.sequences) > 1 or (not names and not count):
        return _listed(Int64, leaf)
    if names and count and len(names) != count:
        names = None  # another dataset's file, or one that was cut: the ids are right without it
    try:
        return Label(names=names, count=count or None, shape=leaf.sequences)
    except RekordError:
        return Label(count=count, shape=leaf.sequences) if count else _listed(Int64, leaf)


def _picture(leaf: _Leaf, pictures: int) -> Feature:
    content = leaf.content
    written = content.get("encodingFormat", content.get("encoding_format"))
    form = written if written in ("jpeg", "png") else None
    if leaf.sequences:
        return _listed(Bytes, leaf)
    if leaf.kind == "LabeledImage":
        label = content.get("label")
        labels = label.get("numClasses") if isinstance(label, Mapping) else content.get("labels")
        classes = _whole(labels, leaf.name) if isinstance(labels, (int, str)) else None
        if pictures == 1 and classes is not None and 1 <= classes <= 1 << 16:
            return Mask(classes=classes)
        return Image(format=form)
    shape = _shape(content.get("shape"), leaf.name)
    floats = str(content.get("dtype", "uint8")).startswith("float")
    # A grey picture may stand where three channels are declared: TFDS makes three of it when it reads.
    channels = shape[-1] if len(shape) == 3 and shape[-1] in (1, 4) and not floats else None
    return Image(format=form, channels=channels)


def _shape(value: Any, name: str) -> Shape:
    if isinstance(value, Mapping):
        value = value.get("dimensions")
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        _damaged(name, "a list of sizes", shown(value))
    sizes = [_whole(size, name) for size in value]
    return tuple(None if size is None or size < 0 else size for size in sizes)


def _whole(value: Any, name: str) -> int | None:
    if value is None:
        return None
    try:
        number = int(value) if isinstance(value, (int, str)) and len(str(value)) < 20 else None
    except ValueError:
        number = None
    if number is None:
        _damaged(name, "a whole number", shown(value))
    return number


def _damaged(name: str, expected: str, found: str) -> NoReturn:
    raise error(
        "X536",
        f"the feature `{name[:60]}` cannot be read" if name else "features.json cannot be read",
        location=Location(feature=name or None),
        expected=expected,
        found=found,
        do="fetch features.json again, or give schema=",
    )


def _inexpressible(name: str, expected: str, found: str) -> RekordError:
    return error(
        "X537",
        f"the TFDS feature `{name[:60]}` has no like in a schema" if name else None,
        location=Location(feature=name or None),
        expected=expected,
        found=found,
        do="give schema= with the columns that are wanted",
    )
