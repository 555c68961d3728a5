"""Values and words as hashes: no vocabulary is needed, and some share a bucket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rekord.schema import Bytes, Int64, Label, Schema, Sparse, Text
from rekord.transforms.base import Bound, Row
from rekord.transforms.hashed import bucket_of
from rekord.transforms.one_column import Numbers, OneColumn, Texts, given, is_texts, whole
from rekord.transforms.words import Splitter, Splitting, splitting

_MOST_BUCKETS = 1 << 40


def hash_into(
    column: str, buckets: int, *, salt: int = 0, into: str | None = None, keep: bool = False
) -> HashInto:
    """Texts, bytes, whole numbers or classes as one of `buckets` numbers, a Label.

    A number is hashed as it is written, so that 7 and "7" share a bucket. The hash is BLAKE2b (see the reference);
    another `salt` is another hash.
    """
    return HashInto(
        column=column,
        buckets=whole("buckets", buckets, least=1, most=_MOST_BUCKETS),
        salt=whole("salt", salt, least=-(2**63)),
        into=into,
        keep=keep,
    )


@dataclass(frozen=True, kw_only=True)
class HashInto(OneColumn):
    """The transform that `hash_into` makes."""

    buckets: int
    salt: int

    name = "hash_into"

    def options(self) -> Mapping[str, Any]:
        return {**self.placed(), "buckets": self.buckets, "salt": self.salt}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> HashInto:
        return hash_into(**options)

    def bind(self, before: Schema) -> Bound:
        feature = self.source_of(
            before, (Text, Bytes, Int64, Label), "texts, bytes, whole numbers or classes"
        )
        if len(feature.shape) > 1:
            raise self.misfit("single values, or lists of one dimension", feature)
        made = Label(self.buckets, shape=feature.shape, **self.shared(feature))
        if isinstance(feature, Bytes):
            return self.bound(before, made, _ByteBuckets(self.column, feature, self.buckets, self.salt))
        reader = (Texts if is_texts(feature) else Numbers)(self.column, feature)
        return self.bound(before, made, _Buckets(reader, self.buckets, self.salt))


@dataclass(frozen=True)
class _Buckets:
    reader: Texts | Numbers
    buckets: int
    salt: int

    def __call__(self, row: Row) -> int | list[int] | None:
        values = self.reader.flat(row)
        if values is None:
            return None
        hashed = [bucket_of(_written(value), self.buckets, self.salt) for value in values]
        return hashed if self.reader.feature.shape else hashed[0]


def _written(value: Any) -> bytes:
    # A bool is the number that it is stored as.
    return str(int(value) if isinstance(value, bool) else value).encode()


@dataclass(frozen=True)
class _ByteBuckets:
    """Bytes need not be a text."""

    column: str
    feature: Bytes
    buckets: int
    salt: int

    def __call__(self, row: Row) -> int | list[int] | None:
        from rekord.codec.strings import stored_strings
        from rekord.codec.unfit import Unfit

        value = given(row, self.column, self.feature)
        if value is None:
            return None
        try:
            strings = stored_strings(value, self.feature, self.feature.shape)
        except Unfit as unfit:
            raise unfit.told(self.column) from unfit.__cause__
        hashed = [bucket_of(one, self.buckets, self.salt) for one in strings]
        return hashed if self.feature.shape else hashed[0]


def hash_words(
    column: str,
    size: int,
    *,
    with_: Splitter = "words",
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
        size=whole("size", size, least=1, most=_MOST_BUCKETS),
        split=splitting(with_, lowercase),
        salt=whole("salt", salt, least=-(2**63)),
        into=into,
        keep=keep,
    )


@dataclass(frozen=True, kw_only=True)
class HashWords(OneColumn):
    """The transform that `hash_words` makes."""

    size: int
    split: Splitting
    salt: int

    name = "hash_words"

    def options(self) -> Mapping[str, Any]:
        return {**self.placed(), "size": self.size, **self.split.options(), "salt": self.salt}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> HashWords:
        return hash_words(**options)

    def bind(self, before: Schema) -> Bound:
        feature = self.source_of(before, (Text, Bytes), "texts")
        if feature.shape:
            raise self.misfit("one text a row", feature)
        made = Sparse("float32", self.size, **self.shared(feature))
        return self.bound(
            before, made, _WordBuckets(Texts(self.column, feature), self.split, self.size, self.salt)
        )


@dataclass(frozen=True)
class _WordBuckets:
    texts: Texts
    split: Splitting
    size: int
    salt: int

    def __call__(self, row: Row) -> tuple[list[int], list[int]] | None:
        text = self.texts.one(row)
        if text is None:
            return None
        words = self.split(text)
        counts = Counter([bucket_of(word.encode(), self.size, self.salt) for word in words])
        places = sorted(counts)
        return places, [counts[place] for place in places]
