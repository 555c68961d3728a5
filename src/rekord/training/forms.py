"""In which form a model takes a column, as far as its declared type and its name say."""

from __future__ import annotations

import math
import re
from typing import Literal, TypeAlias

from rekord.schema import (
    Boxes,
    Bytes,
    Feature,
    Float32,
    Image,
    Int64,
    Label,
    Mask,
    Schema,
    Sparse,
    Tensor,
    Text,
)
from rekord.training.task import Form

MOST_VALUES = 65_536

Taken: TypeAlias = 'Form | Literal["string"]'
"""A form; of a string the records have to say which."""

TOKEN_COMPANIONS = frozenset(
    [
        "attention_mask",
        "input_mask",
        "padding_mask",
        "token_type_ids",
        "input_type_ids",
        "segment_ids",
        "type_ids",
        "position_ids",
        "special_tokens_mask",
        "offset_mapping",
        "word_lengths",
    ]
)
_TOKENS = frozenset(["tokens", "token_ids", "input_ids", "input_word_ids", "word_ids", "ids"])
_FILES = frozenset(
    [
        "filename",
        "file_name",
        "filepath",
        "file_path",
        "path",
        "file",
        "image_path",
        "source_id",
        "sha256",
        "md5",
        "hash",
        "key",
    ]
)
_DESCRIBES = frozenset(
    [
        "format",
        "height",
        "width",
        "channels",
        "depth",
        "colorspace",
        "mask_format",
        "image_format",
        "encoding",
        "bits",
    ]
)
_CLASSES = frozenset(["class", "label", "labels", "category", "target"])
_CLASS_NAMES = frozenset(
    [
        "label_name",
        "label_names",
        "label_text",
        "class_name",
        "class_names",
        "class_text",
        "category_name",
        "target_name",
    ]
)
_ID = re.compile(
    r"(?:.*[_/ .-])?(?:id|idx|index|uid|uuid|guid|key|row|record|number|nr|no|unnamed: 0)|.*[a-z](?:Id|ID)"
)
_LEAST_SIDE = 8
MOST_CHANNELS = 32


class Unfit(str):
    """Why a column is not taken."""


def form_of(schema: Schema, column: str) -> Taken | Unfit:
    """The form in which a column could be taken, or why it cannot."""
    feature = schema[column]
    if column in schema.steps:
        if isinstance(feature, Int64) and feature.shape == () and feature.dtype.kind != "b":
            return "tokens"
        return Unfit("of steps, only those that hold one whole number each are taken")
    if isinstance(feature, Image):
        return "image"
    if isinstance(feature, Mask):
        return Unfit(f"a mask: --label {column} learns it")
    if isinstance(feature, Boxes):
        return Unfit("boxes: no baseline takes them")
    if isinstance(feature, Label):
        return "category" if feature.shape == () else Unfit("several classes a record")
    if isinstance(feature, (Text, Bytes)):
        return "string" if feature.shape == () else Unfit("a list of strings")
    if isinstance(feature, Sparse):
        return "numbers" if feature.size <= MOST_VALUES else _too_many(feature.size)
    assert isinstance(feature, (Int64, Float32, Tensor))
    return _form_of_numbers(column, feature)


def describes(schema: Schema, column: str, target: str) -> str | None:
    """Why a column says nothing that is to be learned from, or gives the answer away; None where it may be taken."""
    feature = schema[column]
    key = feature.key or column
    names = {column.casefold(), last_part(column), last_part(key)}
    is_string = isinstance(feature, (Text, Bytes)) and not isinstance(schema[target], Mask)
    if is_string and _names_the_class(schema, column, target):
        return f"says the class in words, and would give `{target}` away"
    if not names.isdisjoint(_FILES) and isinstance(feature, (Text, Bytes)) and feature.shape == ():
        return "says where the record came from"
    has_image = any(isinstance(one, Image) for one in schema.values())
    if not names.isdisjoint(_DESCRIBES) and (has_image or key.startswith("image/")):
        return "says how the image is stored"
    return None


def is_id_like(column: str) -> bool:
    """Whether a column is called as those are that number records."""
    name = column.rpartition("/")[2]
    return _ID.fullmatch(name) is not None or _ID.fullmatch(name.casefold()) is not None


def is_mask_like(column: str) -> bool:
    """Whether a column of pictures is called as those are that hold classes of pixels."""
    return re.search(r"mask|segmentation|annotation|label", column.casefold()) is not None


def last_part(name: str) -> str:
    """The last part of a name such as image/class/label, in lower case."""
    return name.rpartition("/")[2].casefold()


def _names_the_class(schema: Schema, column: str, target: str) -> bool:
    key, target_key = schema[column].key or column, schema[target].key or target
    if column.casefold() in _CLASS_NAMES or last_part(key) in _CLASS_NAMES:
        return True
    stem = last_part(target)
    if column.casefold() in {
        f"{stem}{mark}{word}" for mark in "_/" for word in ("name", "names", "text", "str")
    }:
        return True
    folder, _, _ = key.rpartition("/")
    # image/class/text beside image/class/label: all that stands below a class is said of it.
    return last_part(folder) in _CLASSES and folder in (target_key.rpartition("/")[0], target_key)


def _form_of_numbers(column: str, feature: Feature) -> Form | Unfit:
    shape, dtype = feature.shape, feature.dtype
    if dtype.kind == "c":
        return Unfit("complex numbers")
    is_whole = isinstance(feature, Int64) and dtype.kind != "b"
    if None in shape:
        if is_whole and shape == (None,):
            return "tokens"
        return Unfit(
            "lists of different lengths that are no whole numbers" if len(shape) == 1 else "varying shapes"
        )
    values = math.prod([size or 0 for size in shape])
    if not values:
        return Unfit("no values")
    if _is_image(column, shape):
        return "image"
    if is_whole and len(shape) == 1 and values > 1 and (last_part(column) in _TOKENS | TOKEN_COMPANIONS):
        return "tokens"
    return "numbers" if values <= MOST_VALUES else _too_many(values)


def _is_image(column: str, shape: tuple[int | None, ...]) -> bool:
    if not last_part(column).startswith(("image", "img", "picture")) or len(shape) not in (2, 3):
        return False
    sizes = [size or 0 for size in shape]
    return min(sizes[:2]) >= _LEAST_SIDE and (len(sizes) == 2 or sizes[2] <= MOST_CHANNELS)


def _too_many(values: int) -> Unfit:
    return Unfit(f"{values:,} values a record, and at most {MOST_VALUES:,} are taken")
