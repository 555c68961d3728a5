"""Patterns of messages, and explanations with the variable parts of a message filled in."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

_MAX_SHOWN_CHARACTERS = 60

MessageFacts: TypeAlias = dict[str, str]
"""The variable parts of a message by name, sanitised and truncated for use in a sentence."""

# The parts of a message that differ each time. Each is bounded: the text may come from anywhere.
_PART_PATTERNS = {
    "key": r"[^\n]{1,120}?",
    "rest": r"[^\n\[]{1,80}",  # up to the end of the line, or to `[Op:`
    "word": r"[\w.<>]{1,60}",
    "n": r"-?\d{1,20}",
    "shape": r"\[[^\]\n]{0,80}\]",
    "decoded": r"JPEG(?=\s+data\s+or\s+crop\s+window)|PNG",
    "zero": r"0(?!\d)",
    "number": r"[\d.]{1,20}(?<!\.)",
    "tuple": r"\([^)\n]{0,80}\)",
    "extent": r"shape|rank\s+\(ndim\)",
    "gap": r"[\]\['\"\s]{1,8}",
}
# `Key: label, Index: 0.  `; all of it, or only the index, may be missing.
_PLACE_PATTERN = r"(?:Key:\s+(?P<key>[^\n]{1,120}?)(?:,\s+Index:\s+\d{1,20})?\.\s+)?"
# `{name:part}` matches a variable part, `(…)?` an optional one.
_SYNTAX = re.compile(r"\{(\w+)(?::(\w+))?\}|\(([^()]*)\)\?")

TF_DTYPES = {"float": "tf.float32", "int64": "tf.int64", "string": "tf.string", "bytes": "tf.string"}
LIST_NAMES = {"float": "float_list", "int64": "int64_list", "string": "bytes_list", "bytes": "bytes_list"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A message of TensorFlow or protobuf, explained: what it means, how it happens, what to do."""

    code: str
    title: str
    says: str
    how: str
    do: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMessage:
    """One message: its pattern, or one for each wording, and explanations with `{names}` of its variable parts.

    `refine` derives further facts from those in the message; a fact named `code` replaces the code.
    """

    pattern: str | tuple[str, ...]
    code: str
    title: str
    says: str
    how: str
    do: tuple[str, ...]
    refine: Callable[[MessageFacts], MessageFacts] | None = None

    @property
    def patterns(self) -> tuple[str, ...]:
        """The pattern of each wording."""
        return (self.pattern,) if isinstance(self.pattern, str) else self.pattern

    def explain(self, text: str) -> Explanation | None:
        """The explanation of this message, or None if the text does not contain it."""
        found = (compile_message_pattern(pattern).search(text) for pattern in self.patterns)
        match = next((one for one in found if one is not None), None)
        if match is None:
            return None
        facts = {name: _sanitize_text(value) for name, value in match.groupdict().items() if value is not None}
        facts["name"] = f"`{facts['key']}`" if "key" in facts else "a feature"
        facts["quoted"] = f'"{facts["key"]}"' if "key" in facts else "KEY"
        if self.refine is not None:
            facts.update(self.refine(facts))
        return Explanation(
            code=facts.get("code", self.code),
            title=self.title.format_map(facts),
            says=self.says.format_map(facts),
            how=self.how.format_map(facts),
            do=tuple([line.format_map(facts) for line in self.do]),
        )


@cache
def compile_message_pattern(text: str) -> re.Pattern[str]:
    """The regular expression of a message; `{place}` matches the key and index of a record.

    Whitespace matches any other whitespace, since shells, terminals and tracebacks wrap lines.
    """
    return re.compile(_compile_part(text))


def _compile_part(text: str) -> str:
    pieces, at = [], 0
    for found in _SYNTAX.finditer(text):
        pieces.append(_escape_literal(text[at : found.start()]))
        if found[3] is not None:
            pieces.append(f"(?:{_compile_part(found[3])})?")
        elif found[1] == "place":
            pieces.append(_PLACE_PATTERN)
        else:
            pieces.append(f"(?P<{found[1]}>{_PART_PATTERNS[found[2] or found[1]]})")
        at = found.end()
    return "".join([*pieces, _escape_literal(text[at:])])


def _escape_literal(text: str) -> str:
    return re.sub(r"(?:\\ )+", r"\\s+", re.escape(text))


def _sanitize_text(text: str) -> str:
    """Replace control characters and backticks, and truncate."""
    clean = "".join([letter if letter.isprintable() and letter != "`" else "?" for letter in text.strip()])
    return clean if len(clean) <= _MAX_SHOWN_CHARACTERS else clean[: _MAX_SHOWN_CHARACTERS - 1] + "…"


def to_tf_dtype(word: str) -> str:
    """`tf.float32` for `float`."""
    return TF_DTYPES.get(word, f"tf.{word}")


def to_list_name(word: str) -> str:
    """`float_list` for `float`."""
    return LIST_NAMES.get(word, word)
