"""Texts as hashes and as sparse TF-IDF vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite, log
from typing import Any

import numpy as np

from rekord.arguments import check_keywords, integer, one_of
from rekord.codec.columns import Array
from rekord.errors import error
from rekord.location import Location
from rekord.schema import Bytes, Feature, Int64, Label, Schema, Sparse, Text
from rekord.transforms import vocabularies
from rekord.transforms.base import (
    Bound,
    ColumnTransform,
    FitState,
    NumberReader,
    Row,
    TextReader,
    Transform,
    get_value,
    is_text_feature,
)
from rekord.transforms.numeric import LEARN_FROM, LearnFrom, not_fitted_error
from rekord.transforms.token_ids import require_text_column
from rekord.transforms.vocabularies import MAX_LINES, SplitterName, WordList, WordSplitter

_MAX_BUCKETS = 1 << 40


@check_keywords
def hash_into(column: str, buckets: int, *, salt: int = 0, into: str | None = None, keep: bool = False) -> HashInto:
    """Texts, bytes, whole numbers or classes as one of `buckets` numbers, a Label.

    A number is hashed as it is written, so that 7 and "7" share a bucket. The hash is BLAKE2b (see the reference);
    another `salt` is another hash.
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
        feature = self.require_source(before, (Text, Bytes, Int64, Label), "texts, bytes, whole numbers or classes")
        if len(feature.shape) > 1:
            raise self.column_type_error("single values, or lists of one dimension", feature)
        made = Label(self.buckets, shape=feature.shape, **self.shared(feature))
        if feature.value_kind == "bytes":
            return self.bound(before, made, _BytesHashFunction(self.column, feature, self.buckets, self.salt))
        reader = (TextReader if is_text_feature(feature) else NumberReader)(self.column, feature)
        return self.bound(before, made, _HashFunction(reader, self.buckets, self.salt))


@dataclass(frozen=True)
class _HashFunction:
    reader: TextReader | NumberReader
    buckets: int
    salt: int

    def __call__(self, row: Row) -> int | list[int] | None:
        values = self.reader.flat(row)
        if values is None:
            return None
        hashed = [vocabularies.hash_to_bucket(_to_hash_input(value), self.buckets, self.salt) for value in values]
        return hashed if self.reader.feature.shape else hashed[0]


def _to_hash_input(value: Any) -> bytes:
    # A bool is the number that it is stored as.
    return str(int(value) if isinstance(value, bool) else value).encode()


@dataclass(frozen=True)
class _BytesHashFunction:
    """Bytes need not be a text."""

    column: str
    feature: Feature
    buckets: int
    salt: int

    def __call__(self, row: Row) -> int | list[int] | None:
        from rekord.codec.values import InvalidValue, store_strings

        value = get_value(row, self.column, self.feature)
        if value is None:
            return None
        try:
            strings = store_strings(value, self.feature, self.feature.shape)
        except InvalidValue as unfit:
            raise unfit.to_error(self.column) from unfit.__cause__
        hashed = [vocabularies.hash_to_bucket(one, self.buckets, self.salt) for one in strings]
        return hashed if self.feature.shape else hashed[0]


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
    """How often the words of a text occur, a Sparse vector of `size`: each word counts where its hash says.

    Nothing has to be learned for it, and words that share a place are counted together.
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
        feature = self.require_source(before, (Text, Bytes), "texts")
        if feature.shape:
            raise self.column_type_error("one text a row", feature)
        made = Sparse("float32", self.size, **self.shared(feature))
        return self.bound(
            before,
            made,
            _WordHashFunction(TextReader(self.column, feature), self.split, self.size, self.salt),
        )


@dataclass(frozen=True)
class _WordHashFunction:
    texts: TextReader
    split: WordSplitter
    size: int
    salt: int

    def __call__(self, row: Row) -> tuple[list[int], list[int]] | None:
        text = self.texts.one(row)
        if text is None:
            return None
        words = self.split(text)
        counts = Counter([vocabularies.hash_to_bucket(word.encode(), self.size, self.salt) for word in words])
        places = sorted(counts)
        return places, [counts[place] for place in places]


_NO_WORDS = WordList(("[UNK]",))
"""Where rows have no words at all: a vector needs a size, and this one is always empty."""


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
    """A text as a Sparse vector of its words' TF-IDF, as scikit-learn defines it, of length 1.

    The words are learned from the training split (`learn_from="all"`: from all): the `size` most frequent of those
    that occur at least `min_count` times. A word's weight is its count times ln((1 + n) / (1 + d)) + 1, where d of
    the n texts have it; then the vector is divided by its length. Other words count for nothing.
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
    """What `tfidf` makes; words and weights are to be learned."""

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
        do = "write a dataset with it first, and take the transforms that its manifest records"
        raise not_fitted_error(self.name, self.column, do)

    def begin(self, before: Schema) -> FitState:
        return _TfidfState(self, TextReader(self.column, require_text_column(self, before)), by_text=True)


class _TfidfState(vocabularies.WordCountState):
    """Counts words, and the texts that have them."""

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
class Tfidf(ColumnTransform):
    """A `tfidf` that was learned."""

    words: WordList
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
        """The files that belong beside a dataset: the words, and the weight of each."""
        return {
            vocabularies.format_companion_name("vocabulary", self.target, "txt"): self.words.to_bytes(),
            vocabularies.format_companion_name("idf", self.target, "txt"): "".join(
                [f"{w!r}\n" for w in self.weights]
            ).encode(),
        }

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> Tfidf:
        data = vocabularies.read_companion(options, folder, "vocabulary", "sha256")
        words = vocabularies.parse_words(data, f"{folder}/{options['vocabulary']}")
        data = vocabularies.read_companion(options, folder, "idf", "idf_sha256")
        weights = _parse_weights(data, f"{folder}/{options['idf']}", len(words))
        return cls(
            words=words,
            weights=weights,
            split=vocabularies.build_splitter(options.get("with_"), options.get("lowercase")),
            **{name: options.get(name) for name in ("column", "into", "keep")},  # type: ignore[arg-type]
        )

    def bind(self, before: Schema) -> Bound:
        feature = require_text_column(self, before)
        made = Sparse("float32", len(self.words), **self.shared(feature))
        weights = np.array(self.weights, np.float64)
        return self.bound(
            before, made, _TfidfFunction(TextReader(self.column, feature), self.split, self.words, weights)
        )


@dataclass(frozen=True, eq=False)
class _TfidfFunction:
    texts: TextReader
    split: WordSplitter
    words: WordList
    weights: Array

    def __call__(self, row: Row) -> tuple[Array, Array] | None:
        text = self.texts.one(row)
        if text is None:
            return None
        get = self.words.ids.get
        counts = Counter([number for word in self.split(text) if (number := get(word)) is not None])
        places = np.array(sorted(counts), np.int64)
        values = np.array([counts[place] for place in places.tolist()], np.float64) * self.weights[places]
        length = float(np.sqrt(np.dot(values, values)))
        return places, values / length if length else values


def _parse_weights(data: bytes, path: str, many: int) -> tuple[float, ...]:
    weights: tuple[float, ...] = ()
    if data.count(b"\n") == many:
        with suppress(ValueError):
            weights = tuple([float(line) for line in data.split()])
    if len(weights) != many or not all(isfinite(one) for one in weights):
        raise error(
            "U624",
            "the weights of a vocabulary cannot be used",
            location=Location(path=path),
            expected=f"{many:,} numbers, one a line",
            found=f"{len(weights):,}, or other text",
            do="bring the file back, or write the dataset again",
        )
    return weights
