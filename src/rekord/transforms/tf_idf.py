"""Texts as sparse TF-IDF vectors: how often each word occurs, weighed by how few texts it occurs in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite, log
from typing import Any

import numpy as np

from rekord.codec.columns import Array
from rekord.errors import error
from rekord.location import Location
from rekord.schema import Schema, Sparse
from rekord.transforms.base import Bound, Lesson, Row, Transform
from rekord.transforms.numbers_learned import LearnFrom, checked_learn_from, not_learned
from rekord.transforms.one_column import OneColumn, Texts, whole
from rekord.transforms.tokens import text_column
from rekord.transforms.vocabularies import MOST_LINES, Words, companion, companion_name, digest, words_of
from rekord.transforms.words import Splitter, Splitting, WordCounts, splitting

_NO_WORDS = Words(("[UNK]",))
"""Where rows have no words at all: a vector needs a size, and this one is always empty."""


def tfidf(
    column: str,
    size: int = 30_000,
    *,
    with_: Splitter = "words",
    min_count: int = 1,
    lowercase: bool = True,
    into: str | None = None,
    keep: bool = False,
    learn_from: LearnFrom = "train",
) -> LearnTfidf:
    """A text as a Sparse vector of its words' TF-IDF, as scikit-learn defines it, of length 1.

    The words are learned from the training split (`learn_from="all"`: from all): the `size` most frequent of those
    that occur at least `min_count` times. A word's weight is its count times ln((1 + n) / (1 + d)) + 1, where d of
    the n texts have it; then the vector is divided by its length. Other words count for nothing.
    """
    return LearnTfidf(
        column=column,
        size=whole("size", size, least=1, most=MOST_LINES),
        split=splitting(with_, lowercase),
        min_count=whole("min_count", min_count, least=1),
        into=into,
        keep=keep,
        learn_from=checked_learn_from(learn_from),
    )


@dataclass(frozen=True, kw_only=True)
class LearnTfidf(OneColumn):
    """What `tfidf` makes; words and weights are to be learned."""

    size: int
    split: Splitting
    min_count: int
    learn_from: LearnFrom

    name = "tfidf"

    def options(self) -> Mapping[str, Any]:
        return {**self.placed(), "size": self.size, **self.split.options(), "learn_from": self.learn_from}

    def bind(self, before: Schema) -> Bound:
        do = "write a dataset with it first, and take the transforms that its manifest records"
        raise not_learned(self.name, self.column, do)

    def begin(self, before: Schema) -> Lesson:
        return _Weighing(self, Texts(self.column, text_column(self, before)))


class _Weighing:
    """Counts words, and the texts that have them."""

    def __init__(self, step: LearnTfidf, texts: Texts) -> None:
        self._step = step
        self._texts = texts
        self._counts = WordCounts(step.column, by_text=True)

    def see(self, row: Row) -> None:
        text = self._texts.one(row)
        if text is not None:
            self._counts.add(self._step.split(text))

    def merge(self, other: Lesson) -> None:
        assert isinstance(other, _Weighing)
        self._counts.merge(other._counts)

    def learned(self) -> Transform:
        step, counts = self._step, self._counts
        common = counts.most_common(step.size, step.min_count)
        weights = [log((1 + counts.texts) / (1 + counts.texts_with[word])) + 1 for word in common]
        return Tfidf(
            column=step.column,
            words=Words(common) if common else _NO_WORDS,
            weights=tuple(weights) if common else (1.0,),
            split=step.split,
            into=step.into,
            keep=step.keep,
        )

    def told(self) -> str:
        """What was learned, in words."""
        return f"{len(self._counts.counts):,} different words in {self._counts.texts:,} texts"


@dataclass(frozen=True, kw_only=True)
class Tfidf(OneColumn):
    """A `tfidf` that was learned."""

    words: Words
    weights: tuple[float, ...]  # of each word
    split: Splitting

    name = "tfidf"

    def options(self) -> Mapping[str, Any]:
        (words, weights) = self.companions().items()
        return {
            **self.placed(),
            **self.split.options(),
            "vocabulary": words[0],
            "sha256": digest(words[1]),
            "idf": weights[0],
            "idf_sha256": digest(weights[1]),
        }

    def companions(self) -> dict[str, bytes]:
        """The files that belong beside a dataset: the words, and the weight of each."""
        return {
            companion_name("vocabulary", self.target, "txt"): self.words.to_bytes(),
            companion_name("idf", self.target, "txt"): "".join([f"{w!r}\n" for w in self.weights]).encode(),
        }

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> Tfidf:
        data = companion(options, folder, "vocabulary", "sha256")
        words = words_of(data, f"{folder}/{options['vocabulary']}")
        data = companion(options, folder, "idf", "idf_sha256")
        weights = _weights(data, f"{folder}/{options['idf']}", len(words))
        return cls(
            words=words,
            weights=weights,
            split=splitting(options.get("with_"), options.get("lowercase")),
            **{name: options.get(name) for name in ("column", "into", "keep")},  # type: ignore[arg-type]
        )

    def bind(self, before: Schema) -> Bound:
        feature = text_column(self, before)
        made = Sparse("float32", len(self.words), **self.shared(feature))
        weights = np.array(self.weights, np.float64)
        return self.bound(before, made, _Vector(Texts(self.column, feature), self.split, self.words, weights))


@dataclass(frozen=True, eq=False)
class _Vector:
    texts: Texts
    split: Splitting
    words: Words
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


def _weights(data: bytes, path: str, many: int) -> tuple[float, ...]:
    weights: tuple[float, ...] = ()
    if data.count(b"\n") == many:
        with suppress(ValueError):
            weights = tuple([float(line) for line in data.split()])
    if len(weights) != many or not all(isfinite(one) for one in weights):
        raise error(
            "U690",
            "the weights of a vocabulary cannot be used",
            location=Location(path=path),
            expected=f"{many:,} numbers, one a line",
            found=f"{len(weights):,}, or other text",
            do="bring the file back, or write the dataset again",
        )
    return weights
