"""Texts as token ids, by a vocabulary or by a tokenizer.json."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rekord.arguments import as_path, check_keywords, integer, invalid, one_of
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Feature, Int64, Schema, Text
from rekord.transforms import vocabularies
from rekord.transforms.base import Bound, ColumnTransform, FitState, Row, TextReader, Transform
from rekord.transforms.numeric import LEARN_FROM, LearnFrom, not_fitted_error
from rekord.transforms.vocabularies import MAX_LINES, WordList, WordSplitter

_MAX_LENGTH = 1 << 24
_UNUSABLE = "tokenizer file cannot be used"


def length_and_padding(max_length: object, pad: object) -> tuple[int | None, int | None]:
    """How long a list of ids may be, and the id that fills it up."""
    length = None if max_length is None else integer("max_length", max_length, least=1, most=_MAX_LENGTH)
    filled = None if pad is None else integer("pad", pad, least=0)
    if filled is not None and length is None:
        raise invalid("pad", pad, "a max_length= to fill up to", "max_length=128, pad=0")
    return length, filled


def load_tokenizer_file(
    column: str, path: object, *, max_length: int | None, pad: int | None, into: str | None, keep: bool
) -> TokenizerFile:
    """The transform that a tokenizer.json describes."""
    expected = '"words", "whitespace", or the path of a tokenizer.json'
    place = as_path("with_", path, expected=expected, do='with_="words"')
    if not place.endswith(".json") and not os.path.exists(place):
        raise invalid("with_", path, expected, 'with_="words"')
    data = vocabularies.read_file_bounded(place, _UNUSABLE)
    _check_length(_load_tokenizer(data, place, max_length), max_length)  # refused here, before any row is read
    return TokenizerFile(column=column, data=data, max_length=max_length, pad=pad, into=into, keep=keep)


@dataclass(frozen=True, kw_only=True)
class TokenizerFile(ColumnTransform):
    """The transform that `tokenize` makes of a tokenizer.json."""

    data: bytes
    max_length: int | None
    pad: int | None

    name = "tokenize"

    def options(self) -> Mapping[str, Any]:
        ((file, data),) = self.companions().items()
        return {
            **self.placement_options(),
            "tokenizer": file,
            "sha256": vocabularies.sha256_hex(data),
            "max_length": self.max_length,
            "pad": self.pad,
        }

    def companions(self) -> dict[str, bytes]:
        """The files that belong beside a dataset."""
        return {vocabularies.format_companion_name("tokenizer", self.target, "json"): self.data}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> TokenizerFile:
        data = vocabularies.read_companion(options, folder, "tokenizer", "sha256", _UNUSABLE)
        rest = {name: value for name, value in options.items() if name not in ("tokenizer", "sha256")}
        rest["max_length"], rest["pad"] = length_and_padding(rest.get("max_length"), rest.get("pad"))
        tokenizer = _load_tokenizer(data, f"{folder}/{options['tokenizer']}", rest["max_length"])
        _check_length(tokenizer, rest["max_length"])
        return cls(data=data, **rest)

    def bind(self, before: Schema) -> Bound:
        feature = self.require_source(before, (Text, Bytes), "texts")
        if feature.shape:
            raise self.column_type_error("one text a row", feature)
        # Not how many there are: ids may have gaps.
        greatest = max(_load_tokenizer(self.data, "", self.max_length).get_vocab().values(), default=0)
        shape = (None,) if self.pad is None else (self.max_length,)
        made = Int64(shape, range=(0, max(greatest, self.pad or 0)), **self.shared(feature))
        encoding = _TokenizerFunction(TextReader(self.column, feature), self.data, self.max_length, self.pad)
        return self.bound(before, made, encoding)


@dataclass(frozen=True)
class _TokenizerFunction:
    texts: TextReader
    data: bytes
    max_length: int | None
    pad: int | None

    def __call__(self, row: Row) -> list[int] | None:
        text = self.texts.one(row)
        if text is None:
            return None
        tokenizer = _load_tokenizer(self.data, "", self.max_length)
        try:
            ids: list[int] = tokenizer.encode(text).ids
        except BaseException as failure:
            if not _is_tokenizer_failure(failure):
                raise
            raise error(
                "E387",
                f"`{self.texts.column}` cannot be tokenised",
                location=Location(feature=self.texts.column),
                expected="a text that the tokenizer takes",
                found=f"{type(failure).__name__}: {failure}"[:60],
                do="fix the row, or the tokenizer.json",
            ) from None
        if self.max_length is not None and self.pad is not None:
            return ids[: self.max_length] + [self.pad] * (self.max_length - len(ids))
        return ids


def _is_tokenizer_failure(failure: BaseException) -> bool:
    # A panic of its Rust is no Exception to Python.
    return isinstance(failure, Exception) or type(failure).__name__ == "PanicException"


@lru_cache(maxsize=4)
def _load_tokenizer(data: bytes, path: str, max_length: int | None) -> Any:
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
        if not _is_tokenizer_failure(failure):
            raise
        raise _tokenizer_error(path, f"{type(failure).__name__}: {failure}") from None
    most = max(filled.get("length") or 0, filled.get("pad_to_multiple_of") or 0)
    if most > _MAX_LENGTH:
        raise _tokenizer_error(path, f"texts that are filled up to {most:,} ids")
    return tokenizer


def _check_length(tokenizer: Any, max_length: int | None) -> None:
    """Nothing would be cut where not even what is added at the ends has a place."""
    added = tokenizer.num_special_tokens_to_add(False)
    if max_length is not None and max_length < added:
        expected = f"a length of {added:,} or more: the tokenizer adds {added:,} ids to each text"
        raise invalid("max_length", max_length, expected, "max_length=128")


def _tokenizer_error(path: str, found: str) -> RekordError:
    return error(
        "U624",
        _UNUSABLE,
        location=Location(path=path or None),
        expected="a tokenizer.json, as `Tokenizer.save` of Hugging Face's tokenizers writes it",
        found=found[:60],
        do="name another file, or save the tokenizer again",
    )


PAD_TOKEN = "[PAD]"
"""The first word of every vocabulary that is learned, so that 0 is free to fill up with."""


@check_keywords
def tokenize(
    column: str,
    with_: str | os.PathLike[str] = "words",
    *,
    vocabulary: Sequence[str] | str | os.PathLike[str] | None = None,
    size: int = 30_000,
    min_count: int = 1,
    lowercase: bool = True,
    max_length: int | None = None,
    pad: int | None = None,
    oov: str | None = "[UNK]",
    into: str | None = None,
    keep: bool = False,
    learn_from: LearnFrom = "train",
) -> Tokenize | UnfittedTokenize | TokenizerFile:
    """A text as the ids of its words, an Int64 list.

    `with_` is "words" (letters and digits), "whitespace", or the path of a tokenizer.json of Hugging Face's
    `tokenizers`, which says everything else itself. The `vocabulary` is a list of words or a file, one a line: the
    first has the id 0. Without it one is learned: `[PAD]`, `oov`, and the words that occur at least `min_count` times
    in the training split (`learn_from="all"`: in all of them), the most frequent first, `size` altogether.

    A word that the vocabulary lacks has the id of `oov`, and is left out where `oov` is None. `max_length` cuts, and
    `pad` is the id that fills up to it.
    """
    length, filled = length_and_padding(max_length, pad)
    if with_ not in ("words", "whitespace"):
        if vocabulary is not None:
            raise invalid("vocabulary", vocabulary, "none: the tokenizer file has its own", "leave it out")
        return load_tokenizer_file(column, with_, max_length=length, pad=filled, into=into, keep=keep)
    split = vocabularies.build_splitter(with_, lowercase)
    if oov is not None and (not isinstance(oov, str) or not oov):
        raise invalid("oov", oov, "a word, or None", 'oov="[UNK]"')
    if vocabulary is None:
        if oov is not None:
            vocabularies.validate_words([PAD_TOKEN, oov])
        return UnfittedTokenize(
            column=column,
            split=split,
            size=integer("size", size, least=3, most=MAX_LINES),
            min_count=integer("min_count", min_count, least=1),
            max_length=length,
            pad=filled,
            oov=oov,
            into=into,
            keep=keep,
            learn_from=one_of("learn_from", learn_from, LEARN_FROM),
        )
    is_file = isinstance(vocabulary, (str, os.PathLike))
    words = vocabularies.read_words(vocabulary) if is_file else vocabularies.validate_words(vocabulary)  # type: ignore[arg-type]
    return tokenize_with_vocabulary(
        column, words, split=split, max_length=length, pad=filled, oov=oov, into=into, keep=keep
    )


def tokenize_with_vocabulary(
    column: str,
    words: WordList,
    *,
    split: WordSplitter,
    max_length: int | None,
    pad: int | None,
    oov: str | None,
    into: str | None,
    keep: bool,
) -> Tokenize:
    """The transform for a vocabulary that is known."""
    if oov is not None and oov not in words.ids:
        raise error(
            "U624",
            f"the vocabulary has no {oov!r:.40} for words that it lacks",
            expected="the word that `oov` names among its words",
            found=f"{len(words):,} others",
            do="add it as a word of its own, name another as oov=, or leave such words out: oov=None",
        )
    return Tokenize(
        column=column, words=words, split=split, max_length=max_length, pad=pad, oov=oov, into=into, keep=keep
    )


@dataclass(frozen=True, kw_only=True)
class Tokenize(ColumnTransform):
    """The transform that `tokenize` makes of a vocabulary."""

    words: WordList
    split: WordSplitter
    max_length: int | None
    pad: int | None
    oov: str | None

    name = "tokenize"

    def options(self) -> Mapping[str, Any]:
        ((file, data),) = self.companions().items()
        return {
            **self.placement_options(),
            **self.split.options(),
            "max_length": self.max_length,
            "pad": self.pad,
            "oov": self.oov,
            "vocabulary": file,
            "sha256": vocabularies.sha256_hex(data),
        }

    def companions(self) -> dict[str, bytes]:
        """The files that belong beside a dataset."""
        return {vocabularies.format_companion_name("vocabulary", self.target, "txt"): self.words.to_bytes()}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> Transform:
        if "tokenizer" in options:
            return TokenizerFile.from_options(options, folder)
        rest = {name: value for name, value in options.items() if name not in ("vocabulary", "sha256")}
        data = vocabularies.read_companion(options, folder, "vocabulary", "sha256")
        words = vocabularies.parse_words(data, f"{folder}/{options['vocabulary']}")
        return tokenize(vocabulary=words.words, **rest)

    def bind(self, before: Schema) -> Bound:
        feature = require_text_column(self, before)
        made = build_ids_feature(feature, self.shared(feature), len(self.words) - 1, self.max_length, self.pad)
        ids = dict(self.words.ids)
        if self.words.words[0] == PAD_TOKEN:
            del ids[PAD_TOKEN]  # a text that says it is no filling
        unknown = None if self.oov is None else self.words.ids[self.oov]
        return self.bound(
            before,
            made,
            _WordIdsFunction(TextReader(self.column, feature), self.split, ids, unknown, self.max_length, self.pad),
        )


@dataclass(frozen=True)
class _WordIdsFunction:
    texts: TextReader
    split: WordSplitter
    ids: dict[str, int]
    unknown: int | None
    max_length: int | None
    pad: int | None

    def __call__(self, row: Row) -> list[int] | None:
        text = self.texts.one(row)
        if text is None:
            return None
        words = self.split(text)
        get, unknown = self.ids.get, self.unknown
        if unknown is None:
            found = [number for word in words if (number := get(word)) is not None]
        else:
            found = [get(word, unknown) for word in words]
        return pad_or_truncate(found, self.max_length, self.pad)


def require_text_column(step: ColumnTransform, before: Schema) -> Feature:
    """The column of a transform of texts, one a row."""
    feature = step.require_source(before, (Text, Bytes), "texts")
    if feature.shape:
        raise step.column_type_error("one text a row", feature)
    return feature


def build_ids_feature(
    feature: Feature, shared: dict[str, Any], greatest: int, max_length: int | None, pad: int | None
) -> Int64:
    """What ids are stored as: lists of their own lengths, or of one length where they are filled up."""
    shape = (None,) if pad is None else (max_length,)
    return Int64(shape, range=(0, max(greatest, pad or 0)), **shared)


def pad_or_truncate(ids: list[int], max_length: int | None, pad: int | None) -> list[int]:
    """Ids cut to the length, and filled up to it."""
    if max_length is None:
        return ids
    if len(ids) > max_length:
        return ids[:max_length]
    return ids if pad is None else ids + [pad] * (max_length - len(ids))


@dataclass(frozen=True, kw_only=True)
class UnfittedTokenize(ColumnTransform):
    """A `tokenize` whose vocabulary is to be learned."""

    split: WordSplitter
    size: int
    min_count: int
    max_length: int | None
    pad: int | None
    oov: str | None
    learn_from: LearnFrom

    name = "tokenize"

    def options(self) -> Mapping[str, Any]:
        return {
            **self.placement_options(),
            **self.split.options(),
            "vocabulary": None,
            "learn_from": self.learn_from,
        }

    def bind(self, before: Schema) -> Bound:
        raise not_fitted_error(self.name, self.column, "give a vocabulary=, such as the file beside the dataset")

    def begin(self, before: Schema) -> FitState:
        return _VocabularyState(self, TextReader(self.column, require_text_column(self, before)), by_text=False)


class _VocabularyState(vocabularies.WordCountState):
    """Counts words, for a vocabulary."""

    _step: UnfittedTokenize

    def learned(self) -> Transform:
        step = self._step
        special = (PAD_TOKEN,) if step.oov is None else (PAD_TOKEN, step.oov)
        common = self._counts.most_common(step.size - len(special), step.min_count, without=special)
        return tokenize_with_vocabulary(
            step.column,
            WordList((*special, *common)),
            split=step.split,
            max_length=step.max_length,
            pad=step.pad,
            oov=step.oov,
            into=step.into,
            keep=step.keep,
        )
