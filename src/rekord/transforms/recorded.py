"""Transforms made again from what a manifest says of them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from rekord.errors import RekordError, error
from rekord.schema.refuse import shown
from rekord.transforms.base import Transform
from rekord.transforms.chain import Chain

_CLASSES = {
    "bucketize": "numbers.Bucketize",
    "cast": "numbers_cast.Cast",
    "crop": "sizes.Crop",
    "decode": "pictures.Decode",
    "encode": "pictures.Encode",
    "grayscale": "pictures.Grayscale",
    "hash_into": "hashing.HashInto",
    "hash_words": "hashing.HashWords",
    "normalize": "pictures.Normalize",
    "one_hot": "numbers.OneHot",
    "resize": "sizes.Resize",
    "standardize": "numbers.Standardize",
    "tfidf": "tf_idf.Tfidf",
    "tokenize": "tokens.Tokenize",
    "vocabulary": "vocabularies.Lookup",
}
"""The module and the class of each transform, by the name that it is recorded under."""


def from_recorded(told: Any, folder: str) -> Chain:
    """The transforms of a manifest's list; `folder` is where the dataset keeps the files that they need."""
    if not isinstance(told, Sequence) or isinstance(told, (str, bytes)):
        raise _unknown(told, "a list of transforms")
    return Chain(tuple([_made(one, folder) for one in told]))


def _made(told: Any, folder: str) -> Transform:
    name = told.get("name") if isinstance(told, dict) else None
    if not isinstance(name, str) or name not in _CLASSES:
        raise _unknown(name if isinstance(told, dict) else told, "the name of one of rk.transforms")
    module, _, made = _CLASSES[name].partition(".")
    options = {key: value for key, value in told.items() if key != "name"}
    try:
        transform: Transform = getattr(import_module(f"rekord.transforms.{module}"), made).from_options(
            options, folder
        )
    except (TypeError, ValueError, KeyError, AttributeError) as failure:
        # A manifest may say anything; what is said of an argument that exists is checked by the transform itself.
        raise _unknown(options, f"the options of `{name}`") from failure
    return transform


def _unknown(found: Any, expected: str) -> RekordError:
    return error(
        "U685",
        expected=expected,
        found=shown(found),
        do="make the transforms yourself, or use the version of rekord that wrote the dataset",
    )
