"""Words of a text, and vocabularies: lists of words passed in Python, read from a file, or stored with a dataset."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from heapq import nsmallest
from typing import Any, Literal, TypeAlias

from rekord.arguments import check_keywords, flag, integer, invalid, one_of
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema import Bytes, Feature, Int64, Label, Schema, Text
from rekord.storage.router import ROUTED_STORAGE
from rekord.transforms.base import (
    Bound,
    ColumnTransform,
    FitState,
    Row,
    TextReader,
    Transform,
    unflatten,
    value_reader,
)


@lru_cache(maxsize=1 << 17)
def hash_to_bucket(word: bytes, buckets: int, salt: int) -> int:
    """The bucket of a word."""
    keyed = hashlib.blake2b(word, digest_size=8, key=salt.to_bytes(8, "little", signed=True))
    return int.from_bytes(keyed.digest(), "little") % buckets


SplitterName: TypeAlias = Literal["words", "whitespace"]

MAX_WORD_CHARACTERS = 256
"""A longer run of letters is not a word worth learning."""

_UNUSABLE = "vocabulary cannot be used"

MAX_WORDS = 4_000_000
"""The number of distinct words that are counted; they take less than 1 GB."""


@dataclass(frozen=True)
class WordSplitter:
    """Splits text into words.

    whitespace: at whitespace. words: runs of letters, digits, underscores and combining marks, with apostrophes
    inside; everything else is skipped.
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
    """The splitter with these options."""
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
    # \w does not match combining marks, without which the words of many scripts are broken up.
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
    """The number of occurrences of each word, and of texts that contain it. Counts can be merged in any order."""

    def __init__(self, column: str, *, by_text: bool) -> None:
        self._column = column
        self._by_text = by_text
        self.texts = 0
        self.counts: Counter[str] = Counter()
        self.texts_with: Counter[str] = Counter()  # only if `by_text`

    def add(self, words: list[str]) -> None:
        """Add the words of a text."""
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
        """The `size` most frequent words; words with the same count are in alphabetical order."""
        excluded = set(without)
        found = ((-count, word) for word, count in self.counts.items() if count >= min_count and word not in excluded)
        return tuple([word for _, word in nsmallest(size, found)])

    def _check(self) -> None:
        if len(self.counts) > MAX_WORDS:
            raise error(
                "U691",
                f"`{self._column}` has too many distinct words",
                expected=f"at most {MAX_WORDS:,} distinct words",
                found="more",
                do="pass vocabulary= or a tokenizer.json, or use hash_words, which needs no vocabulary",
            )


class WordCountState:
    """Word counts of a column, for a transform that learns a vocabulary."""

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
        """What was learned, for progress messages."""
        return f"{len(self._counts.counts):,} distinct words in {self._counts.texts:,} texts"


MAX_FILE_BYTES = 256 << 20
MAX_LINE_BYTES = 4096
MAX_LINES = 1 << 22
"""The number of words in a vocabulary file."""

_MAX_NAMES = 1000
"""Longer vocabularies are not stored as class names in the schema."""


@dataclass(frozen=True)
class WordList:
    """Distinct words in order: the first has id 0."""

    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def to_bytes(self) -> bytes:
        """The contents of a vocabulary file, one word per line."""
        return "".join([f"{word}\n" for word in self.words]).encode()

    def __reduce__(self) -> tuple[Any, ...]:
        return WordList, (self.words,)  # without the ids, which are computed again


def validate_words(words: Iterable[object], *, path: str | None = None) -> WordList:
    """Distinct words without line breaks; `path` is the file they come from."""
    seen: dict[str, int] = {}
    for line, word in enumerate(words, 1):
        if isinstance(word, int) and not isinstance(word, bool):
            word = str(word)
        if not isinstance(word, str):
            raise vocabulary_error("strings", f"{preview(word)} as word {line:,}", path, line)
        if not word or "\n" in word or "\r" in word or "\0" in word:
            found = "an empty word" if not word else f"{preview(word)}"
            raise vocabulary_error("words without line breaks", found, path, line)
        try:
            size_bytes = len(word.encode())
        except UnicodeEncodeError:
            raise vocabulary_error("words that can be encoded as UTF-8", ascii(word)[:60], path, line) from None
        if size_bytes > MAX_LINE_BYTES:
            raise vocabulary_error(f"words of at most {MAX_LINE_BYTES:,} bytes", f"{size_bytes:,}", path, line)
        if word in seen:
            found = f"{preview(word)} as words {seen[word]:,} and {line:,}"
            raise vocabulary_error("distinct words", found, path, line)
        seen[word] = line
    if not seen:
        raise vocabulary_error("at least one word", "none", path, None)
    return WordList(tuple(seen))


def read_words(path: str | os.PathLike[str]) -> WordList:
    """The words in a file: UTF-8, one word per line."""
    place = os.fspath(path)
    return parse_words(read_file_bounded(place, _UNUSABLE), place)


def parse_words(data: bytes, path: str) -> WordList:
    """The words in the contents of a file."""
    if (count := data.count(b"\n")) > MAX_LINES:
        raise vocabulary_error(f"at most {MAX_LINES:,} words", f"{count:,} lines", path, None)
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
                raise vocabulary_error("UTF-8, one word per line", "other bytes", path, number) from None

    return validate_words(texts(), path=path)


def read_file_bounded(path: str, what: str) -> bytes:
    """The contents of a file of at most `MAX_FILE_BYTES`; `what` is the first line of the error for a larger one."""
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
            found="a larger file",
            do="pass another file",
        )
    return bytes(data)


def vocabulary_error(expected: str, found: str, path: str | None, line: int | None) -> RekordError:
    return error(
        "U624",
        _UNUSABLE,
        location=Location(path=path, line=line if path else None),
        expected=expected,
        found=found[:60],
        do="fix the file, or pass another" if path else 'words=["cat", "dog"]',
    )


# Files stored next to a dataset.


def format_companion_name(kind: str, column: str, ending: str) -> str:
    """The name of a file that belongs to a column: `vocabulary-text.txt`."""
    plain = re.sub(r"[^\w.-]", "_", column, flags=re.ASCII)[:60]
    if plain != column:
        plain += "-" + hashlib.sha256(column.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{kind}-{plain}.{ending}"


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_companion(options: Mapping[str, Any], folder: str, name: str, sha256: str, what: str = _UNUSABLE) -> bytes:
    """The file next to a dataset that `options[name]` names, if its digest is `options[sha256]`."""
    file, known = options.get(name), options.get(sha256)
    if not isinstance(file, str) or not file or os.path.basename(file) != file or file.startswith("."):
        raise error(
            "U624",
            what,
            expected=f"a file name next to the dataset in `{name}`",
            found=preview(file),
            do="write the dataset again",
        )
    path = f"{folder.rstrip('/')}/{file}"
    if ROUTED_STORAGE.stat(path).kind != "file":  # reading a pipe would never end
        raise _companion_error(what, path, "a file", "something else")
    data = read_file_bounded(path, what)
    if sha256_hex(data) != known:
        what = f"{file} is not the file that the dataset was written with"
        raise _companion_error(what, path, f"SHA-256 {str(known)[:16]}…", f"SHA-256 {sha256_hex(data)[:16]}…")
    return data


def _companion_error(what: str, path: str, expected: str, found: str) -> RekordError:
    do = "restore the file, or write the dataset again"
    return error("U624", what, location=Location(path=path), expected=expected, found=found, do=do)


def read_companion_words(options: Mapping[str, Any], folder: str, name: str) -> WordList:
    """The words in the file next to a dataset that `options[name]` names."""
    return parse_words(read_companion(options, folder, name, "sha256"), f"{folder}/{options[name]}")


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
    """Replace text or integers with their positions in a vocabulary, a Label; lists become lists of positions.

    Unknown words come first: with `oov_buckets=1` they are 0 and the first word is 1; with more buckets, their hash
    decides; with 0, they are errors and the first word is 0, as in `keras.layers.StringLookup`.
    """
    if (words is None) == (file is None):
        raise invalid("words", words, "either words= or file=", 'words=["cat", "dog"]')
    if words is not None and (isinstance(words, (str, bytes)) or not isinstance(words, Sequence)):
        raise invalid("words", words, "a list of words", 'words=["cat", "dog"]')
    buckets = integer("oov_buckets", oov_buckets, least=0, most=1 << 24)
    known = validate_words(words) if words is not None else read_words(file)  # type: ignore[arg-type]
    return Lookup(column=column, words=known, oov_buckets=buckets, into=into, keep=keep)


@dataclass(frozen=True, kw_only=True)
class VocabularyTransform(ColumnTransform):
    """A transform with a vocabulary, which is stored next to a dataset."""

    words: WordList

    def companions(self) -> dict[str, bytes]:
        """The files stored next to a dataset."""
        return {format_companion_name("vocabulary", self.target, "txt"): self.words.to_bytes()}


@dataclass(frozen=True, kw_only=True)
class Lookup(VocabularyTransform):
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

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> Lookup:
        rest = {name: value for name, value in options.items() if name not in ("file", "sha256")}
        return vocabulary(words=read_companion_words(options, folder, "file").words, **rest)

    def bind(self, before: Schema) -> Bound:
        feature = self.require_source(before, (Text, Bytes, Int64), "text or integers")
        if len(feature.shape) > 1:
            raise self.column_type_error("single values, or lists of one dimension", feature)
        classes: Any = len(self.words) + self.oov_buckets
        if classes <= _MAX_NAMES and self.oov_buckets == 0:
            classes = list(self.words.words)
        elif classes <= _MAX_NAMES and self.oov_buckets == 1 and "[UNK]" not in self.words.ids:
            classes = ["[UNK]", *self.words.words]
        label = Label(classes, shape=feature.shape, **self.shared(feature))
        return self.bound(before, label, value_reader(self.column, feature).flat, partial(self._look_up, feature))

    def _look_up(self, feature: Feature, values: list[Any]) -> int | list[int]:
        return unflatten([self._place(str(value)) for value in values], feature)  # type: ignore[no-any-return]

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
            f"`{self.column}` is not in the vocabulary",
            location=Location(feature=self.column),
            expected=f"one of {len(self.words):,} words",
            found=preview(word),
            do="add the word to the vocabulary, or allow unknown words: oov_buckets=1",
        )
