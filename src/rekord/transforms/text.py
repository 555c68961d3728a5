"""Transforms of text to token ids, to hashes and to sparse TF-IDF vectors."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from math import isfinite, log
from typing import Any

import numpy as np

from rekord.arguments import as_path, check_keywords, integer, invalid, one_of
from rekord.codec.columns import Array
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Feature, Int64, Label, Schema, Sparse, Text
from rekord.transforms import vocabularies
from rekord.transforms.base import (
    Bound,
    ColumnTransform,
    FitState,
    TextReader,
    Transform,
    unflatten,
    value_reader,
)
from rekord.transforms.numeric import LEARN_FROM, LearnFrom, not_fitted_error
from rekord.transforms.vocabularies import MAX_LINES, SplitterName, VocabularyTransform, WordList, WordSplitter

_MAX_LENGTH = 1 << 24
_UNUSABLE = "tokenizer file cannot be used"


def length_and_padding(max_length: object, pad: object) -> tuple[int | None, int | None]:
    """The maximum length of a list of ids, and the id used for padding."""
    length = None if max_length is None else integer("max_length", max_length, least=1, most=_MAX_LENGTH)
    pad_id = None if pad is None else integer("pad", pad, least=0)
    if pad_id is not None and length is None:
        raise invalid("pad", pad, "a max_length= to pad to", "max_length=128, pad=0")
    return length, pad_id


def load_tokenizer_file(
    column: str, path: object, *, max_length: int | None, pad: int | None, into: str | None, keep: bool
) -> TokenizerFile:
    """The transform for a tokenizer.json."""
    expected = '"words", "whitespace", or the path of a tokenizer.json'
    place = as_path("with_", path, expected=expected, do='with_="words"')
    if not place.endswith(".json") and not os.path.exists(place):
        raise invalid("with_", path, expected, 'with_="words"')
    data = vocabularies.read_file_bounded(place, _UNUSABLE)
    _check_length(_load_tokenizer(data, place, max_length), max_length)  # before any row is read
    return TokenizerFile(column=column, data=data, max_length=max_length, pad=pad, into=into, keep=keep)


@dataclass(frozen=True, kw_only=True)
class TokenizerFile(ColumnTransform):
    """A `tokenize` with a tokenizer.json."""

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
        """The files stored next to a dataset."""
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
        feature = self.require_text(before)
        # Not the number of ids, which may have gaps.
        greatest = max(_load_tokenizer(self.data, "", self.max_length).get_vocab().values(), default=0)
        ids = build_ids_feature(self.shared(feature), greatest, self.max_length, self.pad)
        return self.bound(before, ids, TextReader(self.column, feature).one, self._encode)

    def _encode(self, text: str) -> list[int]:
        tokenizer = _load_tokenizer(self.data, "", self.max_length)
        try:
            ids: list[int] = tokenizer.encode(text).ids
        except BaseException as failure:
            if not _is_tokenizer_failure(failure):
                raise
            raise error(
                "E387",
                f"`{self.column}` cannot be tokenised",
                location=Location(feature=self.column),
                expected="text that the tokenizer accepts",
                found=f"{type(failure).__name__}: {failure}"[:60],
                do="fix the row, or the tokenizer.json",
            ) from None
        return pad_or_truncate(ids, self.max_length, self.pad)


def _is_tokenizer_failure(failure: BaseException) -> bool:
    # A Rust panic is not an Exception in Python.
    return isinstance(failure, Exception) or type(failure).__name__ == "PanicException"


@lru_cache(maxsize=4)
def _load_tokenizer(data: bytes, path: str, max_length: int | None) -> Any:
    """The tokenizer, loaded once per process. It truncates by itself, to keep the special tokens it adds."""
    try:
        from tokenizers import Tokenizer
    except ImportError as failure:
        raise error(
            "U602",
            "a tokenizer.json needs tokenizers, which is not installed",
            expected="package tokenizers",
            found=str(failure)[:60],
            do="pip install 'rekord[text]'",
        ) from failure
    try:
        tokenizer = Tokenizer.from_str(data.decode())
        if max_length is not None:
            tokenizer.enable_truncation(max_length)
            tokenizer.no_padding()
        padding = tokenizer.padding or {}
    except BaseException as failure:
        if not _is_tokenizer_failure(failure):
            raise
        raise _tokenizer_error(path, f"{type(failure).__name__}: {failure}") from None
    padded_length = max(padding.get("length") or 0, padding.get("pad_to_multiple_of") or 0)
    if padded_length > _MAX_LENGTH:
        raise _tokenizer_error(path, f"padding to {padded_length:,} ids")
    return tokenizer


def _check_length(tokenizer: Any, max_length: int | None) -> None:
    """The tokenizer would not truncate to a length that its special tokens alone exceed."""
    added = tokenizer.num_special_tokens_to_add(False)
    if max_length is not None and max_length < added:
        expected = f"an integer ≥ {added:,}: the tokenizer adds {added:,} ids to each text"
        raise invalid("max_length", max_length, expected, "max_length=128")


def _tokenizer_error(path: str, found: str) -> RekordError:
    return error(
        "U624",
        _UNUSABLE,
        location=Location(path=path or None),
        expected="a tokenizer.json, as written by `Tokenizer.save` of Hugging Face tokenizers",
        found=found[:60],
        do="pass another file, or save the tokenizer again",
    )


PAD_TOKEN = "[PAD]"
"""The first word of every learned vocabulary, so that 0 can be used for padding."""


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
    """Convert text to the ids of its words, an Int64 list.

    `with_` is "words" (letters and digits), "whitespace", or the path of a Hugging Face tokenizer.json, which decides
    everything else itself. `vocabulary` is a list of words, or a file with one word per line; the first has id 0.
    Without it, a vocabulary is learned: `[PAD]`, `oov`, and the words that occur at least `min_count` times in the
    training split (in all splits with `learn_from="all"`), most frequent first, `size` words in total.

    An unknown word gets the id of `oov`, or is skipped if `oov` is None. `max_length` truncates, and `pad` is the id
    used to pad to it.
    """
    length, pad_id = length_and_padding(max_length, pad)
    if with_ not in ("words", "whitespace"):
        if vocabulary is not None:
            raise invalid("vocabulary", vocabulary, "None: a tokenizer.json has its own", "vocabulary=None")
        return load_tokenizer_file(column, with_, max_length=length, pad=pad_id, into=into, keep=keep)
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
            pad=pad_id,
            oov=oov,
            into=into,
            keep=keep,
            learn_from=one_of("learn_from", learn_from, LEARN_FROM),
        )
    is_file = isinstance(vocabulary, (str, os.PathLike))
    words = vocabularies.read_words(vocabulary) if is_file else vocabularies.validate_words(vocabulary)  # type: ignore[arg-type]
    return Tokenize(
        column=column, words=words, split=split, max_length=length, pad=pad_id, oov=oov, into=into, keep=keep
    )


@dataclass(frozen=True, kw_only=True)
class Tokenize(VocabularyTransform):
    """A `tokenize` with a vocabulary."""

    split: WordSplitter
    max_length: int | None
    pad: int | None
    oov: str | None

    name = "tokenize"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.oov is not None and self.oov not in self.words.ids:
            raise error(
                "U624",
                f"vocabulary does not contain {self.oov!r:.40}, the word for unknown words",
                expected="the word in `oov`",
                found=f"{len(self.words):,} other words",
                do="add the word to the vocabulary, or skip unknown words: oov=None",
            )

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

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> Transform:
        if "tokenizer" in options:
            return TokenizerFile.from_options(options, folder)
        rest = {name: value for name, value in options.items() if name not in ("vocabulary", "sha256")}
        words = vocabularies.read_companion_words(options, folder, "vocabulary")
        return tokenize(vocabulary=words.words, **rest)

    def bind(self, before: Schema) -> Bound:
        feature = self.require_text(before)
        result = build_ids_feature(self.shared(feature), len(self.words) - 1, self.max_length, self.pad)
        ids = dict(self.words.ids)
        if self.words.words[0] == PAD_TOKEN:
            del ids[PAD_TOKEN]  # in a text it is an ordinary word, not padding
        unknown = None if self.oov is None else self.words.ids[self.oov]
        return self.bound(before, result, TextReader(self.column, feature).one, partial(self._look_up, ids, unknown))

    def _look_up(self, ids: dict[str, int], unknown: int | None, text: str) -> list[int]:
        words = self.split(text)
        if unknown is None:
            found = [number for word in words if (number := ids.get(word)) is not None]
        else:
            found = [ids.get(word, unknown) for word in words]
        return pad_or_truncate(found, self.max_length, self.pad)


def build_ids_feature(shared: dict[str, Any], greatest: int, max_length: int | None, pad: int | None) -> Feature:
    """The feature of ids: lists of different lengths, or of one length if they are padded."""
    shape = (None,) if pad is None else (max_length,)
    return Int64(shape, range=(0, max(greatest, pad or 0)), **shared)


def pad_or_truncate(ids: list[int], max_length: int | None, pad: int | None) -> list[int]:
    """Ids truncated to the length, and padded to it."""
    if max_length is None:
        return ids
    if len(ids) > max_length:
        return ids[:max_length]
    return ids if pad is None else ids + [pad] * (max_length - len(ids))


@dataclass(frozen=True, kw_only=True)
class UnfittedTokenize(ColumnTransform):
    """A `tokenize` that still has to learn its vocabulary."""

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
        file = vocabularies.format_companion_name("vocabulary", self.target, "txt")
        do = f'vocabulary="{file}", the file next to a dataset written with it'
        raise not_fitted_error(self.name, self.column, do)

    def begin(self, before: Schema) -> FitState:
        return _VocabularyState(self, TextReader(self.column, self.require_text(before)), by_text=False)


class _VocabularyState(vocabularies.WordCountState):
    """Counts words, for a vocabulary."""

    _step: UnfittedTokenize

    def learned(self) -> Transform:
        step = self._step
        special = (PAD_TOKEN,) if step.oov is None else (PAD_TOKEN, step.oov)
        common = self._counts.most_common(step.size - len(special), step.min_count, without=special)
        return Tokenize(
            column=step.column,
            words=WordList((*special, *common)),
            split=step.split,
            max_length=step.max_length,
            pad=step.pad,
            oov=step.oov,
            into=step.into,
            keep=step.keep,
        )


_MAX_BUCKETS = 1 << 40


@check_keywords
def hash_into(column: str, buckets: int, *, salt: int = 0, into: str | None = None, keep: bool = False) -> HashInto:
    """Hash text, bytes, integers or classes into one of `buckets` ids, a Label.

    A number is hashed as its decimal text, so 7 and "7" share a bucket. The hash is BLAKE2b (see the reference);
    another `salt` gives another hash.
    """
    return HashInto(
        column=column,
        buckets=integer("buckets", buckets, least=1, most=_MAX_BUCKETS),
        salt=integer("salt", salt, least=-(2**63)),
        into=into,
        keep=keep,
    )


@dataclass(frozen=True, kw_only=True)
class HashInto(ColumnTransform):
    buckets: int
    salt: int

    name = "hash_into"

    def bind(self, before: Schema) -> Bound:
        allowed = (Text, Bytes, Int64, Label)
        feature = self.require_source(before, allowed, "text, bytes, integers or classes")
        if len(feature.shape) > 1:
            raise self.column_type_error("single values, or lists of one dimension", feature)
        label = Label(self.buckets, shape=feature.shape, **self.shared(feature))
        reader = value_reader(self.column, feature)
        read = reader.strings if isinstance(reader, TextReader) else reader.flat
        return self.bound(before, label, read, partial(self._hash, feature))

    def _hash(self, feature: Feature, values: list[Any]) -> int | list[int]:
        # A bool is hashed as the number that is stored for it.
        strings = [one if isinstance(one, bytes) else str(int(one)).encode() for one in values]
        hashed = [vocabularies.hash_to_bucket(one, self.buckets, self.salt) for one in strings]
        return unflatten(hashed, feature)  # type: ignore[no-any-return]


@check_keywords
def hash_words(
    column: str,
    size: int,
    *,
    with_: SplitterName = "words",
    lowercase: bool = True,
    salt: int = 0,
    into: str | None = None,
    keep: bool = False,
) -> HashWords:
    """Count the words of a text in a Sparse vector of `size`, at the position given by their hash.

    Nothing has to be learned. Words with the same position are counted together.
    """
    return HashWords(
        column=column,
        size=integer("size", size, least=1, most=_MAX_BUCKETS),
        split=vocabularies.build_splitter(with_, lowercase),
        salt=integer("salt", salt, least=-(2**63)),
        into=into,
        keep=keep,
    )


@dataclass(frozen=True, kw_only=True)
class HashWords(ColumnTransform):
    size: int
    split: WordSplitter
    salt: int

    name = "hash_words"

    def options(self) -> Mapping[str, Any]:
        return {**self.placement_options(), "size": self.size, **self.split.options(), "salt": self.salt}

    def bind(self, before: Schema) -> Bound:
        feature = self.require_text(before)
        vector = Sparse("float32", self.size, **self.shared(feature))
        return self.bound(before, vector, TextReader(self.column, feature).one, self._count)

    def _count(self, text: str) -> tuple[list[int], list[int]]:
        words = self.split(text)
        counts = Counter([vocabularies.hash_to_bucket(word.encode(), self.size, self.salt) for word in words])
        places = sorted(counts)
        return places, [counts[place] for place in places]


_NO_WORDS = WordList(("[UNK]",))
"""The vocabulary of rows without words: a vector needs a size, and this one is always empty."""


@check_keywords
def tfidf(
    column: str,
    size: int = 30_000,
    *,
    with_: SplitterName = "words",
    min_count: int = 1,
    lowercase: bool = True,
    into: str | None = None,
    keep: bool = False,
    learn_from: LearnFrom = "train",
) -> UnfittedTfidf:
    """Convert text to a Sparse vector of TF-IDF weights, as defined by scikit-learn, with length 1.

    The vocabulary is learned from the training split (from all splits with `learn_from="all"`): the `size` most
    frequent words that occur at least `min_count` times. The weight of a word is its count times
    ln((1 + n) / (1 + d)) + 1, where d of the n texts contain it; then the vector is divided by its length. Other
    words are ignored.
    """
    return UnfittedTfidf(
        column=column,
        size=integer("size", size, least=1, most=MAX_LINES),
        split=vocabularies.build_splitter(with_, lowercase),
        min_count=integer("min_count", min_count, least=1),
        into=into,
        keep=keep,
        learn_from=one_of("learn_from", learn_from, LEARN_FROM),
    )


@dataclass(frozen=True, kw_only=True)
class UnfittedTfidf(ColumnTransform):
    """A `tfidf` that still has to learn its words and weights."""

    size: int
    split: WordSplitter
    min_count: int
    learn_from: LearnFrom

    name = "tfidf"

    def options(self) -> Mapping[str, Any]:
        return {
            **self.placement_options(),
            "size": self.size,
            **self.split.options(),
            "learn_from": self.learn_from,
        }

    def bind(self, before: Schema) -> Bound:
        do = "write a dataset with it, and use rk.open(PATH).transforms"
        raise not_fitted_error(self.name, self.column, do)

    def begin(self, before: Schema) -> FitState:
        return _TfidfState(self, TextReader(self.column, self.require_text(before)), by_text=True)


class _TfidfState(vocabularies.WordCountState):
    """Counts words, and the texts that contain them."""

    _step: UnfittedTfidf

    def learned(self) -> Transform:
        step, counts = self._step, self._counts
        common = counts.most_common(step.size, step.min_count)
        weights = [log((1 + counts.texts) / (1 + counts.texts_with[word])) + 1 for word in common]
        return Tfidf(
            column=step.column,
            words=WordList(common) if common else _NO_WORDS,
            weights=tuple(weights) if common else (1.0,),
            split=step.split,
            into=step.into,
            keep=step.keep,
        )


@dataclass(frozen=True, kw_only=True)
class Tfidf(VocabularyTransform):
    """A fitted `tfidf`."""

    weights: tuple[float, ...]  # of each word
    split: WordSplitter

    name = "tfidf"

    def options(self) -> Mapping[str, Any]:
        (words, weights) = self.companions().items()
        return {
            **self.placement_options(),
            **self.split.options(),
            "vocabulary": words[0],
            "sha256": vocabularies.sha256_hex(words[1]),
            "idf": weights[0],
            "idf_sha256": vocabularies.sha256_hex(weights[1]),
        }

    def companions(self) -> dict[str, bytes]:
        """The files stored next to a dataset: the words, and the weight of each."""
        weights = "".join([f"{weight!r}\n" for weight in self.weights])
        return {
            **super().companions(),
            vocabularies.format_companion_name("idf", self.target, "txt"): weights.encode(),
        }

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> Tfidf:
        words = vocabularies.read_companion_words(options, folder, "vocabulary")
        data = vocabularies.read_companion(options, folder, "idf", "idf_sha256")
        weights = _parse_weights(data, f"{folder}/{options['idf']}", len(words))
        return cls(
            words=words,
            weights=weights,
            split=vocabularies.build_splitter(options.get("with_"), options.get("lowercase")),
            **{name: options.get(name) for name in ("column", "into", "keep")},  # type: ignore[arg-type]
        )

    def bind(self, before: Schema) -> Bound:
        feature = self.require_text(before)
        vector = Sparse("float32", len(self.words), **self.shared(feature))
        weights = np.array(self.weights, np.float64)
        return self.bound(before, vector, TextReader(self.column, feature).one, partial(self._weigh, weights))

    def _weigh(self, weights: Array, text: str) -> tuple[Array, Array]:
        get = self.words.ids.get
        counts = Counter([number for word in self.split(text) if (number := get(word)) is not None])
        places = np.array(sorted(counts), np.int64)
        values = np.array([counts[place] for place in places.tolist()], np.float64) * weights[places]
        length = float(np.sqrt(np.dot(values, values)))
        return places, values / length if length else values


def _parse_weights(data: bytes, path: str, count: int) -> tuple[float, ...]:
    weights: tuple[float, ...] = ()
    if data.count(b"\n") == count:
        with suppress(ValueError):
            weights = tuple([float(line) for line in data.split()])
    if len(weights) != count or not all(isfinite(one) for one in weights):
        raise error(
            "U624",
            "idf weights cannot be used",
            location=Location(path=path),
            expected=f"{count:,} numbers, one per line",
            found=f"{len(weights):,} numbers, or other text",
            do="restore the file, or write the dataset again",
        )
    return weights
