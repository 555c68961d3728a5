"""Texts as token ids by a tokenizer.json of Hugging Face's `tokenizers`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Int64, Schema, Text
from rekord.transforms.base import Bound, Row
from rekord.transforms.one_column import OneColumn, Texts, unusable, whole
from rekord.transforms.vocabularies import companion, companion_name, digest, read_bounded

_MOST_LENGTH = 1 << 24


def checked_length(max_length: object, pad: object) -> tuple[int | None, int | None]:
    """How long a list of ids may be, and the id that fills it up."""
    length = None if max_length is None else whole("max_length", max_length, least=1, most=_MOST_LENGTH)
    filled = None if pad is None else whole("pad", pad, least=0)
    if filled is not None and length is None:
        raise unusable("pad", pad, "a max_length= to fill up to", "max_length=128, pad=0")
    return length, filled


def hugging_face(
    column: str,
    path: object,
    *,
    max_length: int | None,
    pad: int | None,
    into: str | None,
    keep: bool,
) -> TokenizerFile:
    """The transform that a tokenizer.json describes."""
    if not isinstance(path, (str, os.PathLike)):
        raise unusable(
            "with_", path, '"words", "whitespace", or the path of a tokenizer.json', 'with_="words"'
        )
    place = os.fspath(path)
    if not isinstance(place, str) or (not place.endswith(".json") and not os.path.exists(place)):
        raise unusable(
            "with_", path, '"words", "whitespace", or the path of a tokenizer.json', 'with_="words"'
        )
    data = read_bounded(place, "U694")
    _check_length(_loaded(data, place, max_length), max_length)  # refused here, before any row is read
    return TokenizerFile(column=column, data=data, max_length=max_length, pad=pad, into=into, keep=keep)


@dataclass(frozen=True, kw_only=True)
class TokenizerFile(OneColumn):
    """The transform that `tokenize` makes of a tokenizer.json."""

    data: bytes
    max_length: int | None
    pad: int | None

    name = "tokenize"

    def options(self) -> Mapping[str, Any]:
        ((file, data),) = self.companions().items()
        return {
            **self.placed(),
            "tokenizer": file,
            "sha256": digest(data),
            "max_length": self.max_length,
            "pad": self.pad,
        }

    def companions(self) -> dict[str, bytes]:
        """The files that belong beside a dataset."""
        return {companion_name("tokenizer", self.target, "json"): self.data}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> TokenizerFile:
        data = companion(options, folder, "tokenizer", "sha256", "U694")
        rest = {name: value for name, value in options.items() if name not in ("tokenizer", "sha256")}
        rest["max_length"], rest["pad"] = checked_length(rest.get("max_length"), rest.get("pad"))
        tokenizer = _loaded(data, f"{folder}/{options['tokenizer']}", rest["max_length"])
        _check_length(tokenizer, rest["max_length"])
        return cls(data=data, **rest)

    def bind(self, before: Schema) -> Bound:
        feature = self.source_of(before, (Text, Bytes), "texts")
        if feature.shape:
            raise self.misfit("one text a row", feature)
        # Not how many there are: ids may have gaps.
        greatest = max(_loaded(self.data, "", self.max_length).get_vocab().values(), default=0)
        shape = (None,) if self.pad is None else (self.max_length,)
        made = Int64(shape, range=(0, max(greatest, self.pad or 0)), **self.shared(feature))
        encoding = _Encoding(Texts(self.column, feature), self.data, self.max_length, self.pad)
        return self.bound(before, made, encoding)


@dataclass(frozen=True)
class _Encoding:
    texts: Texts
    data: bytes
    max_length: int | None
    pad: int | None

    def __call__(self, row: Row) -> list[int] | None:
        text = self.texts.one(row)
        if text is None:
            return None
        tokenizer = _loaded(self.data, "", self.max_length)
        try:
            ids: list[int] = tokenizer.encode(text).ids
        except BaseException as failure:
            if not _is_the_tokenizers(failure):
                raise
            raise error(
                "E387",
                f"`{self.texts.column}` cannot be tokenised",
                location=Location(feature=self.texts.column),
                expected="a text that the tokenizer takes",
                found=f"{type(failure).__name__}: {failure}"[:60],
                do="mend the row, or the tokenizer.json",
            ) from None
        if self.max_length is not None and self.pad is not None:
            return ids[: self.max_length] + [self.pad] * (self.max_length - len(ids))
        return ids


def _is_the_tokenizers(failure: BaseException) -> bool:
    # A panic of its Rust is no Exception to Python.
    return isinstance(failure, Exception) or type(failure).__name__ == "PanicException"


@lru_cache(maxsize=4)
def _loaded(data: bytes, path: str, max_length: int | None) -> Any:
    """The tokenizer, once in a process. It cuts by itself, so that what it adds at the ends is kept."""
    try:
        from tokenizers import Tokenizer
    except ImportError as failure:
        raise error(
            "U602",
            "a tokenizer.json needs tokenizers, which is not installed",
            expected="the package tokenizers",
            found=str(failure)[:60],
            do="pip install 'rekord[text]'",
        ) from failure
    try:
        tokenizer = Tokenizer.from_str(data.decode())
        if max_length is not None:
            tokenizer.enable_truncation(max_length)
            tokenizer.no_padding()
        filled = tokenizer.padding or {}
    except BaseException as failure:
        if not _is_the_tokenizers(failure):
            raise
        raise _no_tokenizer(path, f"{type(failure).__name__}: {failure}") from None
    most = max(filled.get("length") or 0, filled.get("pad_to_multiple_of") or 0)
    if most > _MOST_LENGTH:
        raise _no_tokenizer(path, f"texts that are filled up to {most:,} ids")
    return tokenizer


def _check_length(tokenizer: Any, max_length: int | None) -> None:
    """Nothing would be cut where not even what is added at the ends has a place."""
    added = tokenizer.num_special_tokens_to_add(False)
    if max_length is not None and max_length < added:
        expected = f"a length of {added:,} or more: the tokenizer adds {added:,} ids to each text"
        raise unusable("max_length", max_length, expected, "max_length=128")


def _no_tokenizer(path: str, found: str) -> RekordError:
    return error(
        "U694",
        location=Location(path=path or None),
        expected="a tokenizer.json, as `Tokenizer.save` of Hugging Face's tokenizers writes it",
        found=found[:60],
        do="name another file, or save the tokenizer again",
    )
