"""What can be known about a command line without running it: the values of options, and its positional arguments.

The library validates values; a test compares it with this table, since completion must not import the library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_BY_OPTION: Mapping[str, tuple[str, ...]] = {
    "--layout": ("auto", "classification", "deeplab", "detection", "images", "table", "text"),
    "--compression": ("none", "gzip", "zlib"),
    "--resize-filter": ("bilinear", "nearest", "box", "hamming", "bicubic", "lanczos"),
    "--resize-fit": ("stretch", "pad", "crop", "within"),
    "--method": ("oversample", "undersample", "smote"),
    "--augment": ("flip", "crop", "rotate", "colour"),
}
_EXPORT_FORMATS = (
    *("parquet", "arrow", "arrow-stream", "csv", "tsv", "jsonl"),
    *("webdataset", "images", "coco", "voc", "tfds"),
)
_ALTERNATIVES = re.compile(r"[a-z][a-z-]*(?:\|[a-z][a-z-]*)*")


def list_choices(param: Any) -> tuple[str, ...]:
    """The values of an option, if they are few: from this table, or spelled out as `full|headers`."""
    metavar = str(param.metavar or "")
    if metavar == "FORMAT" and "--format" in param.opts:
        return _EXPORT_FORMATS
    known = next((_BY_OPTION[option] for option in param.opts if option in _BY_OPTION), ())
    return known or (tuple(metavar.split("|")) if _ALTERNATIVES.fullmatch(metavar) else ())


def takes_value(param: Any) -> bool:
    """Whether a word follows this option."""
    return not (getattr(param, "is_flag", False) or getattr(param, "count", False))


def split_words(command: Any, words: Sequence[str]) -> tuple[list[str], int]:
    """The positional arguments among the words after a verb, and the position of the last one (-1 without any)."""
    places = [at for at, (_, is_value) in enumerate(_iter_words(command, words)) if not is_value]
    places = [at for at in places if not words[at].startswith("-")]
    return [words[at] for at in places], places[-1] if places else -1


def find_awaiting(command: Any, words: Sequence[str]) -> Any:
    """The option whose value would follow these words; None if there is none."""
    return next((param for param, _ in reversed(list(_iter_words(command, words)))), None)


def _iter_words(command: Any, words: Sequence[str]) -> Iterator[tuple[Any, bool]]:
    """For each word the option that awaits a value after it, and whether the word is such a value itself."""
    options = {option: param for param in command.params for option in param.opts if option.startswith("-")}
    awaiting: Any = None
    for word in words:
        is_value = awaiting is not None
        param = None if is_value else options.get(word)
        awaiting = param if param is not None and takes_value(param) else None
        yield awaiting, is_value
