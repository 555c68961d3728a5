"""Protobuf's text format without message definitions: a parser and a printer of nested fields.

    name: value             a scalar: number, "text" or 'text' (adjacent ones are joined), or a bare word
    name { ... }            a message; also name: { ... } and name < ... >
    name: [a, b]            a repeated field in one go; messages too
    [some.extension]: ...   an extension, or [host/type] { ... } for Any: kept under the bracketed name
    # to the end of line    a comment
Fields may be followed by a comma or a semicolon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from rekord.errors import preview, schema_error

_MAX_NESTING = 100  # protobuf's own limit for messages inside messages
_CLOSING_BRACKETS = {"{": "}", "<": ">"}

_TOKEN = re.compile(
    r"""
      (?P<space>  [\s\0]+ | \#[^\n]* )
    | (?P<text>   "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
    | (?P<number> -?\s*(?:0[xX][0-9a-fA-F]+ | (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[fF]?) (?![\w.]) )
    | (?P<word>   -?\s*[A-Za-z_]\w* )
    | (?P<mark>   [{}<>\[\]:,;./] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPE_LETTERS = {
    "a": 7,
    "b": 8,
    "f": 12,
    "n": 10,
    "r": 13,
    "t": 9,
    "v": 11,
    "\\": 92,
    "'": 39,
    '"': 34,
    "?": 63,
}


@dataclass(frozen=True, slots=True)
class EnumName:
    """A bare word: the name of an enum's value, true, false, inf or nan."""

    name: str


Scalar: TypeAlias = "bytes | int | float | EnumName"


@dataclass(slots=True)
class TextprotoMessage:
    """Fields in the order of the text; a repeated field appears as often as it is repeated."""

    fields: list[tuple[str, Scalar | TextprotoMessage]] = field(default_factory=list)

    def add(self, name: str, value: Scalar | TextprotoMessage | str | bool) -> None:
        """Append a field; a str is encoded as UTF-8."""
        if isinstance(value, str):
            value = value.encode("utf-8")
        self.fields.append((name, EnumName("true" if value else "false") if isinstance(value, bool) else value))

    def all(self, name: str) -> list[Scalar | TextprotoMessage]:
        """Every value of a field."""
        return [value for key, value in self.fields if key == name]

    def messages(self, name: str) -> Iterator[TextprotoMessage]:
        """Every value of a field, if it is a message."""
        return (value for value in self.all(name) if isinstance(value, TextprotoMessage))

    def message(self, name: str) -> TextprotoMessage | None:
        """The fields of a single message; repeated ones are merged, as in protobuf."""
        found = list(self.messages(name))
        return TextprotoMessage([one for part in found for one in part.fields]) if found else None

    def text(self, name: str) -> str:
        """A string, empty if it is missing."""
        last = self._last(name)
        return last.decode("utf-8", "surrogateescape") if isinstance(last, bytes) else ""

    def number(self, name: str) -> float | int | None:
        """A number, None if it is missing; `inf` and `nan` are numbers too."""
        last = self._last(name)
        if isinstance(last, EnumName):
            word = last.name.lower().replace("infinity", "inf")
            return float(word) if word in ("inf", "-inf", "nan", "-nan") else None
        return last if isinstance(last, (int, float)) else None

    def word(self, name: str, numbers: dict[int, str]) -> str | None:
        """The name of an enum value, which may be written as a number."""
        last = self._last(name)
        if isinstance(last, EnumName):
            return last.name
        return numbers.get(last, str(last)) if isinstance(last, int) else None

    def flag(self, name: str) -> bool:
        """A bool, False if it is missing."""
        last = self._last(name)
        return (
            last == 1 if isinstance(last, int) else isinstance(last, EnumName) and last.name in ("true", "True", "t")
        )

    def _last(self, name: str) -> Scalar | TextprotoMessage | None:
        found = self.all(name)
        return found[-1] if found else None


def build_message(**fields: Scalar | TextprotoMessage | str) -> TextprotoMessage:
    """A message of a few fields."""
    message = TextprotoMessage()
    for name, value in fields.items():
        message.add(name, value)
    return message


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int


def parse_textproto(text: str) -> TextprotoMessage:
    """The fields of a text, unknown ones included."""
    return _TextprotoParser(text).read()


class _TextprotoParser:
    """Walks the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.source = text
        self.tokens = list(self._scan())
        self.at = 0

    def _scan(self) -> Iterator[_Token]:
        offset = 0
        while offset < len(self.source):
            match = _TOKEN.match(self.source, offset)
            if match is None:
                self.fail(offset, "a field, a value or a bracket", preview(self.source[offset : offset + 10]))
            kind = match.lastgroup or ""
            if kind != "space":
                yield _Token(kind, match.group(), offset)
            offset = match.end()
        yield _Token("end", "", offset)

    def read(self) -> TextprotoMessage:
        message = TextprotoMessage()
        self.fields(message, "", 0)
        return message

    def fields(self, message: TextprotoMessage, closing: str, depth: int) -> None:
        while True:
            token = self.next()
            if token.text == closing and token.kind in ("mark", "end"):
                return
            name = self.name(token)
            if self.peek() == ":":
                self.next()
                bracketed = self.peek() == "["
            else:
                bracketed = False
                if self.peek() not in _CLOSING_BRACKETS:
                    self.fail(self.tokens[self.at].offset, "`:` or `{` after a field's name", preview(self.peek()))
            self.values(message, name, bracketed, depth)
            if self.peek() in (",", ";"):
                self.next()

    def name(self, token: _Token) -> str:
        if token.kind == "word" and not token.text.startswith("-"):
            return token.text
        if token.text != "[" or token.kind != "mark":
            self.fail(token.offset, "a field name", _describe_token(token))
        parts = []
        while self.peek() != "]":
            part = self.next()
            if part.kind == "end" or part.text in ("{", "}", "<", ">", ":"):
                self.fail(part.offset, "`]` after an extension name", _describe_token(part))
            parts.append(part.text)
        self.next()
        return "[" + "".join(parts) + "]"

    def values(self, message: TextprotoMessage, name: str, bracketed: bool, depth: int) -> None:
        if not bracketed:
            message.fields.append((name, self.value(depth)))
            return
        self.next()
        if self.peek() == "]":
            self.next()
            return
        while True:
            message.fields.append((name, self.value(depth)))
            token = self.next()
            if token.text == "]":
                return
            if token.text != ",":
                self.fail(token.offset, "`,` or `]` in a list", preview(token.text))

    def value(self, depth: int) -> Scalar | TextprotoMessage:
        token = self.next()
        if token.kind == "mark" and token.text in _CLOSING_BRACKETS:
            if depth == _MAX_NESTING:
                self.fail(token.offset, f"at most {_MAX_NESTING} nested messages", "more")
            inner = TextprotoMessage()
            self.fields(inner, _CLOSING_BRACKETS[token.text], depth + 1)
            return inner
        if token.kind == "text":
            joined = self.unquote(token)
            while self.tokens[self.at].kind == "text":
                joined += self.unquote(self.next())
            return joined
        if token.kind == "number":
            return self.number(token)
        if token.kind != "word":
            self.fail(token.offset, "a value", _describe_token(token))
        return EnumName("".join(token.text.split()))

    def number(self, token: _Token) -> int | float:
        digits = "".join(token.text.split())
        bare = digits.lstrip("-")
        try:
            if bare[:2].lower() == "0x":
                return int(digits, 16)
            if bare.isdigit():
                return int(digits, 8 if len(bare) > 1 and bare.startswith("0") else 10)
            return float(digits.rstrip("fF"))
        except ValueError:
            self.fail(token.offset, "a number", preview(digits))

    def unquote(self, token: _Token) -> bytes:
        body = token.text[1:-1]
        result = bytearray()
        end = 0
        for match in _ESCAPE.finditer(body):
            result += body[end : match.start()].encode("utf-8", "surrogatepass")
            octal, byte, short, long, letter = match.groups()
            point = int(short or long or "0", 16)
            if octal:
                result.append(int(octal, 8) & 0xFF)
            elif byte:
                result.append(int(byte, 16))
            elif letter is not None and letter in _ESCAPE_LETTERS:
                result.append(_ESCAPE_LETTERS[letter])
            elif letter is not None or point > 0x10FFFF or 0xD800 <= point < 0xE000:
                self.fail(token.offset, "a valid protobuf escape", preview(match.group()))
            else:
                result += chr(point).encode("utf-8")
            end = match.end()
        return bytes(result + body[end:].encode("utf-8", "surrogatepass"))

    def next(self) -> _Token:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def peek(self) -> str:
        """The next token if it is a bracket or mark, else an empty str."""
        token = self.tokens[self.at]
        return token.text if token.kind == "mark" else ""

    def fail(self, offset: int, expected: str, found: str) -> NoReturn:
        line = self.source.count("\n", 0, offset) + 1
        column = offset - (self.source.rfind("\n", 0, offset) + 1) + 1
        raise schema_error(
            "S122",
            f"schema.pbtxt cannot be parsed at line {line}, column {column}",
            expected=expected,
            found=found,
            do=f"fix line {line}",
        )


def _describe_token(token: _Token) -> str:
    return preview(token.text) if token.kind != "end" else "the end of the text"


def format_message(message: TextprotoMessage, indent: str = "") -> str:
    """The text of a message, one field per line."""
    lines = []
    for name, value in message.fields:
        if isinstance(value, TextprotoMessage):
            inner = format_message(value, indent + "  ")
            lines.append(f"{indent}{name} {{\n{inner}{indent}}}\n" if inner else f"{indent}{name} {{}}\n")
        else:
            lines.append(f"{indent}{name}: {_format_scalar(value)}\n")
    return "".join(lines)


def _format_scalar(value: Scalar) -> str:
    if isinstance(value, EnumName):
        return value.name
    if isinstance(value, bytes):
        return '"' + "".join([_escape_byte(byte) for byte in value]) + '"'
    return repr(value)


def _escape_byte(byte: int) -> str:
    if byte in (34, 92):
        return "\\" + chr(byte)
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
