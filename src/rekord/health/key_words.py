"""What the words of a record key say about its values."""

from __future__ import annotations

import re

from rekord.health.check.rule import MIN_EVIDENCE_RECORDS

HEIGHTS = ("height", "rows", "h")
WIDTHS = ("width", "cols", "columns", "w")
CHANNELS = ("channels", "depth", "channel", "c")
LABEL_WORDS = frozenset({"label", "labels", "class", "classes", "category", "categories", "cls"})
_IMAGE_WORDS = frozenset({"image", "img", "mask", "frame"})
_DIMENSION_WORDS = frozenset({*HEIGHTS, *WIDTHS, *CHANNELS} - {"h", "w", "c", "rows", "columns", "depth"})


def split_key_words(key: str) -> list[str]:
    """The words of a key, `image/object_ID` as image, object, id."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", key)
    return [word for word in re.split(r"[^0-9a-z]+", spaced.lower()) if word]


def is_label_key(key: str) -> bool:
    """Whether the last words of a key name a class."""
    return bool(LABEL_WORDS & set(split_key_words(key)[-2:])) and "text" not in split_key_words(key)[-1:]


def is_dimension_key(key: str) -> bool:
    """Whether a key names a height, a width or a number of channels."""
    return split_key_words(key)[-1:] != [] and split_key_words(key)[-1] in _DIMENSION_WORDS


def should_be_integers(key: str, *, records: int, most_values: int) -> bool:
    """Whether floats under a key, all of them integers, are meant as integers: sizes of images, and class ids."""
    enough = records >= MIN_EVIDENCE_RECORDS
    if is_dimension_key(key):
        # A height alone may be that of a person.
        return enough or bool(_IMAGE_WORDS & set(split_key_words(key)))
    # Several floats under a label are real targets: a relevance per item, or a vector of 0 and 1.
    return is_label_key(key) and enough and (most_values <= 1 or "class" in split_key_words(key))
