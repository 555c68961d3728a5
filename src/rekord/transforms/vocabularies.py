"""Texts as words, and vocabularies: lists of words with ids, given, read from a file, or stored with a dataset."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import nsmallest
from typing import Any, Literal, TypeAlias

from rekord.arguments import check_keywords, flag, integer, invalid, one_of
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema import Bytes, Int64, Label, Schema, Text
from rekord.storage.router import ROUTED_STORAGE
from rekord.transforms.base import (
    Bound,
    ColumnTransform,
    FitState,
    NumberReader,
    Row,
    TextReader,
    Transform,
    is_text_feature,
)


@lru_cache(maxsize=1 << 17)
def hash_to_bucket(word: bytes, buckets: int, salt: int) -> int:
    """The bucket of a word."""
    keyed = hashlib.blake2b(word, digest_size=8, key=salt.to_bytes(8, "little", signed=True))
    return int.from_bytes(keyed.digest(), "little") % buckets


SplitterName: TypeAlias = Literal["words", "whitespace"]

MAX_WORD_CHARACTERS = 256
"""A longer run of letters is no word that a vocabulary could learn."""

_UNUSABLE = "vocabulary cannot be used"

MAX_WORDS = 4_000_000
"""So many different words are counted: less than 1 GB."""


@dataclass(frozen=True)
class WordSplitter:
    """How a text becomes words.

    whitespace: what stands between white space. words: runs of letters, digits, underscores and their marks, with
    apostrophes inside; everything else is left out.
    """

    how: SplitterName
    lowercase: bool

    def __call__(self, text: str) -> list[str]:
        if self.lowercase:
            text = text.lower()
        return text.split() if self.how == "whitespace" else _split_words(text)

    def options(self) -> dict[str, Any]:
        return {"with_": self.how, "lowercase": self.lowercase}


def build_splitter(how: Any, lowercase: object) -> WordSplitter:
    """The splitting that is asked for."""
    return WordSplitter(one_of("with_", how, ("words", "whitespace")), flag("lowercase", lowercase))


_find_ascii_words = re.compile(r"\w+(?:'\w+)*", re.ASCII).findall
_find_unmarked_words = re.compile(r"\w+(?:['’]\w+)*").findall
_find_possible_mark = re.compile("[\u0300-\u1fff\u20d0-\U0001ffff]").search


def _split_words(text: str) -> list[str]:
    # All three find the same words; the first two are many times as fast.
    if text.isascii():
        return _find_ascii_words(text)
    return _load_marked_word_finder()(text) if _find_possible_mark(text) else _find_unmarked_words(text)


@lru_cache(maxsize=1)
def _load_marked_word_finder() -> Callable[[str], list[str]]:
    # \w knows no marks, without which the words of many scripts fall apart.
    marks = [code for code in range(0x300, 0x20000) if unicodedata.category(chr(code)) in ("Mn", "Mc")]
    ranges: list[list[int]] = []
    for code in marks:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    letters = r"[\w" + "".join([f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges]) + "]"
    return re.compile(f"{letters}+(?:['’]{letters}+)*").findall


class WordCounts:
    """How often words occur, and in how many texts; what is merged does not depend on the order."""

    def __init__(self, column: str, *, by_text: bool) -> None:
        self._column = column
        self._by_text = by_text
        self.texts = 0
        self.counts: Counter[str] = Counter()
        self.texts_with: Counter[str] = Counter()  # where that is asked for

    def add(self, words: list[str]) -> None:
        """The words of one more text."""
        if max(map(len, words), default=0) > MAX_WORD_CHARACTERS:
            words = [word for word in words if len(word) <= MAX_WORD_CHARACTERS]
        self.texts += 1
        self.counts.update(words)
        if self._by_text:
            self.texts_with.update(set(words))
        self._check()

    def merge(self, other: WordCounts) -> None:
        self.texts += other.texts
        self.counts.update(other.counts)
        self.texts_with.update(other.texts_with)
        self._check()

    def most_common(self, size: int, min_count: int, *, without: Iterable[str] = ()) -> tuple[str, ...]:
        """The `size` words that occur most often, those that occur alike by the alphabet."""
        left_out = set(without)
        found = ((-count, word) for word, count in self.counts.items() if count >= min_count and word not in left_out)
        return tuple([word for _, word in nsmallest(size, found)])

    def _check(self) -> None:
        if len(self.counts) > MAX_WORDS:
            raise error(
                "U691",
                f"`{self._column}` has more different words than can be counted",
                expected=f"at most {MAX_WORDS:,} different words",
                found="more",
                do="give a vocabulary=, a tokenizer.json, or use hash_words, which counts none",
            )


class WordCountState:
    """What was seen of the texts of a column, for a transform that learns its words."""

    def __init__(self, step: Any, texts: TextReader, *, by_text: bool) -> None:
        self._step = step
        self._texts = texts
        self._counts = WordCounts(step.column, by_text=by_text)

    def update(self, row: Row) -> None:
        text = self._texts.one(row)
        if text is not None:
            self._counts.add(self._step.split(text))

    def merge(self, other: FitState) -> None:
        assert isinstance(other, WordCountState)
        self._counts.merge(other._counts)

    def learned(self) -> Transform:
        raise NotImplementedError

    def describe(self) -> str:
        """What was learned, in words."""
        return f"{len(self._counts.counts):,} different words in {self._counts.texts:,} texts"


MAX_FILE_BYTES = 256 << 20
MAX_LINE_BYTES = 4096
MAX_LINES = 1 << 22
"""Of a vocabulary. More words need more memory than is theirs."""

_MAX_NAMES = 1000
"""Longer lists do not stand in the schema as the names of classes."""


@dataclass(frozen=True)
class WordList:
    """Different words in their order: the first has the number 0."""

    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def to_bytes(self) -> bytes:
        """As a file holds them, one a line."""
        return "".join([f"{word}\n" for word in self.words]).encode()

    def __reduce__(self) -> tuple[Any, ...]:
        return WordList, (self.words,)  # without the numbers, which are made again


def validate_words(words: Iterable[object], *, path: str | None = None) -> WordList:
    """Words that can stand one a line, each once; `path` is the file that they come from."""
    seen: dict[str, int] = {}
    for line, word in enumerate(words, 1):
        if isinstance(word, int) and not isinstance(word, bool):
            word = str(word)
        if not isinstance(word, str):
            raise vocabulary_error("a text", f"{preview(word)}, the word {line:,}", path, line)
        if not word or "\n" in word or "\r" in word or "\0" in word:
            found = "an empty one" if not word else f"{preview(word)}"
            raise vocabulary_error("words without line breaks", found, path, line)
        try:
            size_bytes = len(word.encode())
        except UnicodeEncodeError:
            raise vocabulary_error("words that UTF-8 can hold", ascii(word)[:60], path, line) from None
        if size_bytes > MAX_LINE_BYTES:
            raise vocabulary_error(f"words of at most {MAX_LINE_BYTES:,} bytes", f"{size_bytes:,}", path, line)
        if word in seen:
            found = f"{preview(word)} in the places {seen[word]:,} and {line:,}"
            raise vocabulary_error("each word once", found, path, line)
        seen[word] = line
    if not seen:
        raise vocabulary_error("at least one word", "none", path, None)
    return WordList(tuple(seen))


def read_words(path: str | os.PathLike[str]) -> WordList:
    """The words of a file: UTF-8, one a line."""
    place = os.fspath(path)
    return parse_words(read_file_bounded(place, _UNUSABLE), place)


def parse_words(data: bytes, path: str) -> WordList:
    """The words that the bytes of a file are."""
    if (many := data.count(b"\n")) > MAX_LINES:
        raise vocabulary_error(f"at most {MAX_LINES:,} words", f"{many:,} lines", path, None)
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if lines and not lines[-1]:
        lines.pop()

    def texts() -> Iterable[str]:
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_LINE_BYTES:
                raise vocabulary_error(
                    f"lines of at most {MAX_LINE_BYTES:,} bytes", f"{len(line):,} bytes", path, number
                )
            try:
                yield line.removesuffix(b"\r").decode()
            except UnicodeDecodeError:
                raise vocabulary_error("UTF-8, one word a line", "other bytes", path, number) from None

    return validate_words(texts(), path=path)


def read_file_bounded(path: str, what: str) -> bytes:
    """The bytes of a file of at most `MAX_FILE_BYTES`; `what` is the first line of the error for a larger one."""
    data = bytearray()
    buffer = bytearray(1 << 20)
    with ROUTED_STORAGE.open_read(path) as file:
        while (count := file.readinto(buffer)) and len(data) <= MAX_FILE_BYTES:
            data += buffer[:count]
    if len(data) > MAX_FILE_BYTES:
        raise error(
            "U624",
            what,
            location=Location(path=path),
            expected=f"a file of at most {MAX_FILE_BYTES >> 20} MiB",
            found="a larger one",
            do="name another file",
        )
    return bytes(data)


def vocabulary_error(expected: str, found: str, path: str | None, line: int | None) -> RekordError:
    return error(
        "U624",
        _UNUSABLE,
        location=Location(path=path, line=line if path else None),
        expected=expected,
        found=found[:60],
        do="fix the file, or name another" if path else 'words=["cat", "dog"]',
    )


# Beside a dataset.


def format_companion_name(kind: str, column: str, ending: str) -> str:
    """The name of a file that belongs to a column: `vocabulary-text.txt`."""
    plain = re.sub(r"[^\w.-]", "_", column, flags=re.ASCII)[:60]
    if plain != column:
        plain += "-" + hashlib.sha256(column.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{kind}-{plain}.{ending}"


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_companion(options: Mapping[str, Any], folder: str, name: str, sha256: str, what: str = _UNUSABLE) -> bytes:
    """The file beside a dataset that options name under `name`, if it is the one whose digest they hold."""
    file, known = options.get(name), options.get(sha256)
    if not isinstance(file, str) or not file or os.path.basename(file) != file or file.startswith("."):
        raise error(
            "U624",
            what,
            expected=f"the name of a file beside the dataset as `{name}`",
            found=preview(file),
            do="write the dataset again",
        )
    path = f"{folder.rstrip('/')}/{file}"
    if ROUTED_STORAGE.stat(path).kind != "file":  # a pipe would be waited for without end
        raise error(
            "U624",
            what,
            location=Location(path=path),
            expected="a file",
            found="something else",
            do="bring the file back",
        )
    data = read_file_bounded(path, what)
    if sha256_hex(data) != known:
        raise error(
            "U624",
            f"{file} is not the file that the dataset was written with",
            location=Location(path=path),
            expected=f"SHA-256 {str(known)[:16]}…",
            found=f"SHA-256 {sha256_hex(data)[:16]}…",
            do="bring the file back, or write the dataset again",
        )
    return data


# Looking up.


@check_keywords
def vocabulary(
    column: str,
    words: Sequence[str | int] | None = None,
    *,
    file: str | os.PathLike[str] | None = None,
    oov_buckets: int = 1,
    into: str | None = None,
    keep: bool = False,
) -> Lookup:
    """Texts or whole numbers as their places in a vocabulary, a Label; a list of them as a list of places.

    The words that the vocabulary lacks come first: with `oov_buckets=1` they are 0 and the first word is 1, with more
    their hash decides, with 0 they are refused and the first word is 0. As `keras.layers.StringLookup` does.
    """
    if (words is None) == (file is None):
        raise invalid("words", words, "either words= or file=", 'words=["cat", "dog"]')
    if words is not None and (isinstance(words, (str, bytes)) or not isinstance(words, Sequence)):
        raise invalid("words", words, "a list of words", 'words=["cat", "dog"]')
    buckets = integer("oov_buckets", oov_buckets, least=0, most=1 << 24)
    known = validate_words(words) if words is not None else read_words(file)  # type: ignore[arg-type]
    return Lookup(column=column, words=known, oov_buckets=buckets, into=into, keep=keep)


@dataclass(frozen=True, kw_only=True)
class Lookup(ColumnTransform):
    words: WordList
    oov_buckets: int

    name = "vocabulary"

    def options(self) -> Mapping[str, Any]:
        ((file, data),) = self.companions().items()
        return {
            **self.placement_options(),
            "oov_buckets": self.oov_buckets,
            "file": file,
            "sha256": sha256_hex(data),
        }

    def companions(self) -> dict[str, bytes]:
        """The files that belong beside a dataset."""
        return {format_companion_name("vocabulary", self.target, "txt"): self.words.to_bytes()}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> Lookup:
        rest = {name: value for name, value in options.items() if name not in ("file", "sha256")}
        known = parse_words(read_companion(options, folder, "file", "sha256"), f"{folder}/{options['file']}")
        return vocabulary(words=known.words, **rest)

    def bind(self, before: Schema) -> Bound:
        feature = self.require_source(before, (Text, Bytes, Int64), "texts, or whole numbers")
        if len(feature.shape) > 1:
            raise self.column_type_error("texts, or lists of them of one dimension", feature)
        classes: Any = len(self.words) + self.oov_buckets
        if classes <= _MAX_NAMES and self.oov_buckets == 0:
            classes = list(self.words.words)
        elif classes <= _MAX_NAMES and self.oov_buckets == 1 and "[UNK]" not in self.words.ids:
            classes = ["[UNK]", *self.words.words]
        made = Label(classes, shape=feature.shape, **self.shared(feature))
        reader = (TextReader if is_text_feature(feature) else NumberReader)(self.column, feature)
        return self.bound(before, made, _LookupFunction(reader, self.words, self.oov_buckets))


@dataclass(frozen=True)
class _LookupFunction:
    reader: TextReader | NumberReader
    words: WordList
    oov_buckets: int

    def __call__(self, row: Row) -> int | list[int] | None:
        values = self.reader.flat(row)
        if values is None:
            return None
        places = [self._place(str(value)) for value in values]
        return places if self.reader.feature.shape else places[0]

    def _place(self, word: str) -> int:
        known = self.words.ids.get(word)
        if known is not None:
            return known + self.oov_buckets
        if self.oov_buckets == 1:
            return 0
        if self.oov_buckets:
            return hash_to_bucket(word.encode(), self.oov_buckets, 0)
        raise error(
            "E385",
            f"`{self.reader.column}` is not in the vocabulary",
            location=Location(feature=self.reader.column),
            expected=f"one of {len(self.words):,} words",
            found=preview(word),
            do="add the word to the vocabulary, or allow for others: oov_buckets=1",
        )
