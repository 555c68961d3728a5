"""Transforms of text to hashes and to sparse TF-IDF vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import isfinite, log
from typing import Any

import numpy as np

from rekord.arguments import check_keywords, integer, one_of
from rekord.codec.columns import Array
from rekord.errors import error
from rekord.location import Location
from rekord.schema import Bytes, Int64, Label, Schema, Sparse, Text
from rekord.transforms import vocabularies
from rekord.transforms.base import (
    Bound,
    ColumnTransform,
    FitState,
    NumberReader,
    Row,
    TextReader,
    Transform,
    unflatten,
    value_reader,
)
from rekord.transforms.numeric import LEARN_FROM, LearnFrom, not_fitted_error
from rekord.transforms.vocabularies import MAX_LINES, SplitterName, WordList, WordSplitter

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
        return self.bound(before, label, partial(self._hash, value_reader(self.column, feature)))

    def _hash(self, reader: TextReader | NumberReader, row: Row) -> int | list[int] | None:
        if isinstance(reader, TextReader):
            strings = reader.strings(row)
        else:
            numbers = reader.flat(row)
            # A bool is hashed as the number that is stored for it.
            strings = None if numbers is None else [str(int(number)).encode() for number in numbers]
        if strings is None:
            return None
        hashed = [vocabularies.hash_to_bucket(one, self.buckets, self.salt) for one in strings]
        return unflatten(hashed, reader.feature)  # type: ignore[no-any-return]


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
        return self.bound(before, vector, partial(self._count, TextReader(self.column, feature)))

    def _count(self, reader: TextReader, row: Row) -> tuple[list[int], list[int]] | None:
        text = reader.one(row)
        if text is None:
            return None
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
class Tfidf(ColumnTransform):
    """A fitted `tfidf`."""

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
        """The files stored next to a dataset: the words, and the weight of each."""
        weights = "".join([f"{weight!r}\n" for weight in self.weights])
        return {
            vocabularies.format_companion_name("vocabulary", self.target, "txt"): self.words.to_bytes(),
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
        return self.bound(before, vector, partial(self._weigh, TextReader(self.column, feature), weights))

    def _weigh(self, reader: TextReader, weights: Array, row: Row) -> tuple[Array, Array] | None:
        text = reader.one(row)
        if text is None:
            return None
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
