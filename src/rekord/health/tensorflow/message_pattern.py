"""What an entry of the table of TensorFlow's messages is, and how one is found in a text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

_MAX_SHOWN_CHARACTERS = 60

MessageFacts: TypeAlias = dict[str, str]
"""What a message says, by name: cleaned and cut, so that it may stand in a sentence."""

# The parts of a message that differ each time. Each is bounded: the text may come from anywhere.
_PART_PATTERNS = {
    "key": r"[^\n]{1,120}?",
    "rest": r"[^\n\[]{1,80}",  # up to the end of the line, or to `[Op:`
    "word": r"[\w.<>]{1,60}",
    "n": r"-?\d{1,20}",
    "shape": r"\[[^\]\n]{0,80}\]",
}
PLACE_MARKER = "<place>"
"""Stands for `Key: label, Index: 0.  `, of which all or the index may lack."""

_PLACE_PATTERN = r"(?:Key:\s+(?P<key>[^\n]{1,120}?)(?:,\s+Index:\s+\d{1,20})?\.\s+)?"
_PLACEHOLDER = re.compile(r"\{(\w+)(?::(\w+))?\}")

TF_DTYPES = {"float": "tf.float32", "int64": "tf.int64", "string": "tf.string", "bytes": "tf.string"}
LIST_NAMES = {"float": "float_list", "int64": "int64_list", "string": "bytes_list", "bytes": "bytes_list"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A message of TensorFlow or protobuf, explained: what it says, how that comes about, what to do."""

    code: str
    title: str
    says: str
    how: str
    do: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMessage:
    """One message: how it looks, and sentences with `{names}` of what it holds.

    `refine` adds facts that follow from those in the message; a fact `code` replaces the code.
    """

    pattern: re.Pattern[str]
    code: str
    title: str
    says: str
    how: str
    do: tuple[str, ...]
    refine: Callable[[MessageFacts], MessageFacts] | None = None

    def explain(self, text: str) -> Explanation | None:
        """The explanation of this message, where the text holds it."""
        match = self.pattern.search(text)
        if match is None:
            return None
        facts = {
            name: _sanitize_text(value) for name, value in match.groupdict().items() if value is not None
        }
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


def compile_message_pattern(*parts: str) -> re.Pattern[str]:
    """The pattern of a message. `{name:part}` stands for what differs, `(…)?` around a part for what may lack.

    Any white space stands for any other, since shells, terminals and tracebacks wrap lines.
    """
    return re.compile("".join([_compile_part(part) for part in parts]))


def _compile_part(part: str) -> str:
    if part == PLACE_MARKER:
        return _PLACE_PATTERN
    if part.startswith("(") and part.endswith(")?"):
        return f"(?:{_compile_part(part[1:-2])})?"
    pieces, at = [], 0
    for found in _PLACEHOLDER.finditer(part):
        pieces.append(_escape_literal(part[at : found.start()]))
        pieces.append(f"(?P<{found[1]}>{_PART_PATTERNS[found[2] or found[1]]})")
        at = found.end()
    return "".join([*pieces, _escape_literal(part[at:])])


def _escape_literal(text: str) -> str:
    return re.sub(r"(?:\\ )+", r"\\s+", re.escape(text))


def _sanitize_text(text: str) -> str:
    """Nothing that steers a terminal, no backtick that would end a quotation, and not too long."""
    clean = "".join([letter if letter.isprintable() and letter != "`" else "?" for letter in text.strip()])
    return clean if len(clean) <= _MAX_SHOWN_CHARACTERS else clean[: _MAX_SHOWN_CHARACTERS - 1] + "…"


def to_tf_dtype(word: str) -> str:
    """`tf.float32` for `float`."""
    return TF_DTYPES.get(word, f"tf.{word}")


def to_list_name(word: str) -> str:
    """`float_list` for `float`."""
    return LIST_NAMES.get(word, word)
