"""Texts as words, and how often each word occurs."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from typing import Any, Literal, TypeAlias

from rekord.errors import error
from rekord.transforms.one_column import unusable

Splitter: TypeAlias = Literal["words", "whitespace"]

MOST_WORD_CHARACTERS = 256
"""A longer run of letters is no word that a vocabulary could learn."""

MOST_WORDS = 4_000_000
"""So many different words are counted: less than 1 GB."""


@dataclass(frozen=True)
class Splitting:
    """How a text becomes words.

    whitespace: what stands between white space. words: runs of letters, digits, underscores and their marks, with
    apostrophes inside; everything else is left out.
    """

    how: Splitter
    lowercase: bool

    def __call__(self, text: str) -> list[str]:
        if self.lowercase:
            text = text.lower()
        return text.split() if self.how == "whitespace" else _words(text)

    def options(self) -> dict[str, Any]:
        return {"with_": self.how, "lowercase": self.lowercase}


def splitting(how: object, lowercase: object) -> Splitting:
    """The splitting that is asked for."""
    if how not in ("words", "whitespace"):
        raise unusable("with_", how, '"words" or "whitespace"', 'with_="words"')
    if not isinstance(lowercase, bool):
        raise unusable("lowercase", lowercase, "True or False", "lowercase=False")
    return Splitting(how, lowercase)


_find_ascii = re.compile(r"\w+(?:'\w+)*", re.ASCII).findall
_find_unmarked = re.compile(r"\w+(?:['’]\w+)*").findall
_may_be_marked = re.compile("[\u0300-\u1fff\u20d0-\U0001ffff]").search


def _words(text: str) -> list[str]:
    # All three find the same words; the first two are many times as fast.
    if text.isascii():
        return _find_ascii(text)
    return _find_marked()(text) if _may_be_marked(text) else _find_unmarked(text)


@lru_cache(maxsize=1)
def _find_marked() -> Callable[[str], list[str]]:
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
        if max(map(len, words), default=0) > MOST_WORD_CHARACTERS:
            words = [word for word in words if len(word) <= MOST_WORD_CHARACTERS]
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
        found = (
            (-count, word)
            for word, count in self.counts.items()
            if count >= min_count and word not in left_out
        )
        return tuple([word for _, word in nsmallest(size, found)])

    def _check(self) -> None:
        if len(self.counts) > MOST_WORDS:
            raise error(
                "U692",
                f"`{self._column}` has more different words than can be counted",
                expected=f"at most {MOST_WORDS:,} different words",
                found="more",
                do="give a vocabulary=, a tokenizer.json, or use hash_words, which counts none",
            )
