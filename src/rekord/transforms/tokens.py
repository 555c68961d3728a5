"""Texts as the numbers of their words, by a vocabulary that is given or learned from the rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekord.errors import error
from rekord.schema import Bytes, Feature, Int64, Schema, Text
from rekord.transforms.base import Bound, Lesson, Row, Transform
from rekord.transforms.numbers_learned import LearnFrom, checked_learn_from, not_learned
from rekord.transforms.one_column import OneColumn, Texts, unusable, whole
from rekord.transforms.tokenizer_files import TokenizerFile, checked_length, hugging_face
from rekord.transforms.vocabularies import (
    MOST_LINES,
    Words,
    checked_words,
    companion,
    companion_name,
    digest,
    read_words,
    words_of,
)
from rekord.transforms.words import Splitting, WordCounts, splitting

PAD = "[PAD]"
"""The first word of every vocabulary that is learned, so that 0 is free to fill up with."""


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
) -> Tokenize | LearnTokenize | TokenizerFile:
    """A text as the ids of its words, an Int64 list.

    `with_` is "words" (letters and digits), "whitespace", or the path of a tokenizer.json of Hugging Face's
    `tokenizers`, which says everything else itself. The `vocabulary` is a list of words or a file, one a line: the
    first has the id 0. Without it one is learned: `[PAD]`, `oov`, and the words that occur at least `min_count` times
    in the training split (`learn_from="all"`: in all of them), the most frequent first, `size` altogether.

    A word that the vocabulary lacks has the id of `oov`, and is left out where `oov` is None. `max_length` cuts, and
    `pad` is the id that fills up to it.
    """
    length, filled = checked_length(max_length, pad)
    if with_ not in ("words", "whitespace"):
        if vocabulary is not None:
            raise unusable("vocabulary", vocabulary, "none: the tokenizer file has its own", "leave it out")
        return hugging_face(column, with_, max_length=length, pad=filled, into=into, keep=keep)
    split = splitting(with_, lowercase)
    if oov is not None and (not isinstance(oov, str) or not oov):
        raise unusable("oov", oov, "a word, or None", 'oov="[UNK]"')
    if vocabulary is None:
        if oov is not None:
            checked_words([PAD, oov])
        return LearnTokenize(
            column=column,
            split=split,
            size=whole("size", size, least=3, most=MOST_LINES),
            min_count=whole("min_count", min_count, least=1),
            max_length=length,
            pad=filled,
            oov=oov,
            into=into,
            keep=keep,
            learn_from=checked_learn_from(learn_from),
        )
    is_file = isinstance(vocabulary, (str, os.PathLike))
    words = read_words(vocabulary) if is_file else checked_words(vocabulary)  # type: ignore[arg-type]
    return with_words(
        column, words, split=split, max_length=length, pad=filled, oov=oov, into=into, keep=keep
    )


def with_words(
    column: str,
    words: Words,
    *,
    split: Splitting,
    max_length: int | None,
    pad: int | None,
    oov: str | None,
    into: str | None,
    keep: bool,
) -> Tokenize:
    """The transform for a vocabulary that is known."""
    if oov is not None and oov not in words.ids:
        raise error(
            "U690",
            f"the vocabulary has no {oov!r:.40} for words that it lacks",
            expected="the word that `oov` names among its words",
            found=f"{len(words):,} others",
            do="add it as a word of its own, name another as oov=, or leave such words out: oov=None",
        )
    return Tokenize(
        column=column, words=words, split=split, max_length=max_length, pad=pad, oov=oov, into=into, keep=keep
    )


@dataclass(frozen=True, kw_only=True)
class Tokenize(OneColumn):
    """The transform that `tokenize` makes of a vocabulary."""

    words: Words
    split: Splitting
    max_length: int | None
    pad: int | None
    oov: str | None

    name = "tokenize"

    def options(self) -> Mapping[str, Any]:
        ((file, data),) = self.companions().items()
        return {
            **self.placed(),
            **self.split.options(),
            "max_length": self.max_length,
            "pad": self.pad,
            "oov": self.oov,
            "vocabulary": file,
            "sha256": digest(data),
        }

    def companions(self) -> dict[str, bytes]:
        """The files that belong beside a dataset."""
        return {companion_name("vocabulary", self.target, "txt"): self.words.to_bytes()}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> Transform:
        if "tokenizer" in options:
            return TokenizerFile.from_options(options, folder)
        rest = {name: value for name, value in options.items() if name not in ("vocabulary", "sha256")}
        data = companion(options, folder, "vocabulary", "sha256")
        words = words_of(data, f"{folder}/{options['vocabulary']}")
        return tokenize(vocabulary=words.words, **rest)

    def bind(self, before: Schema) -> Bound:
        feature = text_column(self, before)
        made = ids_feature(feature, self.shared(feature), len(self.words) - 1, self.max_length, self.pad)
        ids = dict(self.words.ids)
        if self.words.words[0] == PAD:
            del ids[PAD]  # a text that says it is no filling
        unknown = None if self.oov is None else self.words.ids[self.oov]
        return self.bound(
            before,
            made,
            _Ids(Texts(self.column, feature), self.split, ids, unknown, self.max_length, self.pad),
        )


@dataclass(frozen=True)
class _Ids:
    texts: Texts
    split: Splitting
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
        return fitted(found, self.max_length, self.pad)


def text_column(step: OneColumn, before: Schema) -> Feature:
    """The column of a transform of texts, one a row."""
    feature = step.source_of(before, (Text, Bytes), "texts")
    if feature.shape:
        raise step.misfit("one text a row", feature)
    return feature


def ids_feature(
    feature: Feature, shared: dict[str, Any], greatest: int, max_length: int | None, pad: int | None
) -> Int64:
    """What ids are stored as: lists of their own lengths, or of one length where they are filled up."""
    shape = (None,) if pad is None else (max_length,)
    return Int64(shape, range=(0, max(greatest, pad or 0)), **shared)


def fitted(ids: list[int], max_length: int | None, pad: int | None) -> list[int]:
    """Ids cut to the length, and filled up to it."""
    if max_length is None:
        return ids
    if len(ids) > max_length:
        return ids[:max_length]
    return ids if pad is None else ids + [pad] * (max_length - len(ids))


@dataclass(frozen=True, kw_only=True)
class LearnTokenize(OneColumn):
    """A `tokenize` whose vocabulary is to be learned."""

    split: Splitting
    size: int
    min_count: int
    max_length: int | None
    pad: int | None
    oov: str | None
    learn_from: LearnFrom

    name = "tokenize"

    def options(self) -> Mapping[str, Any]:
        return {**self.placed(), **self.split.options(), "vocabulary": None, "learn_from": self.learn_from}

    def bind(self, before: Schema) -> Bound:
        raise not_learned(self.name, self.column, "give a vocabulary=, such as the file beside the dataset")

    def begin(self, before: Schema) -> Lesson:
        return _Vocabulary(self, Texts(self.column, text_column(self, before)))


class _Vocabulary:
    """Counts words, for a vocabulary."""

    def __init__(self, step: LearnTokenize, texts: Texts) -> None:
        self._step = step
        self._texts = texts
        self._counts = WordCounts(step.column, by_text=False)

    def see(self, row: Row) -> None:
        text = self._texts.one(row)
        if text is not None:
            self._counts.add(self._step.split(text))

    def merge(self, other: Lesson) -> None:
        assert isinstance(other, _Vocabulary)
        self._counts.merge(other._counts)

    def learned(self) -> Transform:
        step = self._step
        special = (PAD,) if step.oov is None else (PAD, step.oov)
        common = self._counts.most_common(step.size - len(special), step.min_count, without=special)
        return with_words(
            step.column,
            Words((*special, *common)),
            split=step.split,
            max_length=step.max_length,
            pad=step.pad,
            oov=step.oov,
            into=step.into,
            keep=step.keep,
        )

    def told(self) -> str:
        """What was learned, in words."""
        return f"{len(self._counts.counts):,} different words in {self._counts.texts:,} texts"
