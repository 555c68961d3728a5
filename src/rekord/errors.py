"""The errors that rekord raises: few classes (what to catch), many codes (what happened)."""

from __future__ import annotations

import errno
import os
import shlex
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rekord.codes import CODES
from rekord.location import Location

_PACKAGE = os.path.join(os.path.dirname(__file__), "")
_UNKNOWN_LOCATION = Location()
_MAX_PREVIEW_CHARACTERS = 60
_MAX_NAME_CHARACTERS = 200


class RekordError(Exception):
    """Any error of rekord, with what is needed to fix it.

    `what` is the first line and stands alone. `expected` and `found` disagree; `likely` is set only where evidence
    supports it; `do` is a command or one edit. `readings` are (what it may be, the command for it): several commands
    where the data alone does not decide, the first of them also in `do`.
    """

    def __init__(
        self,
        code: str,
        what: str | None = None,
        *,
        location: Location = _UNKNOWN_LOCATION,
        expected: str | None = None,
        found: str | None = None,
        likely: str | None = None,
        do: str | None = None,
        readings: Iterable[tuple[str, str]] = (),
    ) -> None:
        super().__init__(code)
        self.code = code
        self.what = what if what is not None else CODES[code]
        self.location = location
        self.expected = expected
        self.found = found
        self.likely = likely
        self.do = do
        self.readings = tuple(readings)

    @property
    def do(self) -> str | None:
        """The remedy. `rekord show PATH --record N` names the record of the location, once it is known."""
        path, record = self.location.path, self.location.record
        if self._do is None or path is None or record is None:
            return self._do
        return self._do.replace("PATH --record N", f"{shlex.quote(path)} --record {record}")

    @do.setter
    def do(self, text: str | None) -> None:
        self._do = text

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.what}"]
        for label, text in (
            ("where", str(self.location)),
            ("expected", self.expected),
            ("found", self.found),
            ("likely", self.likely),
            *self.remedies,
        ):
            if text:
                lines.append(f"  {label:<9} {text}")
        return "\n".join(lines)

    @property
    def remedies(self) -> list[tuple[str, str | None]]:
        """The lines of the remedy: `do`, or one command per reading, with the reading as a shell comment."""
        if not self.readings:
            return [("do", self.do)]
        return [("or" if i else "do", f"{command}  # {what}") for i, (what, command) in enumerate(self.readings)]

    def _render_traceback_(self) -> list[str]:
        """What IPython and Jupyter show: the user's own line and the message, not forty frames of rekord."""
        lines = []
        for frame in traceback.extract_tb(self.__traceback__):
            if not frame.filename.startswith(_PACKAGE) and not _is_of_ipython(frame.filename):
                lines = [f"{frame.filename}, line {frame.lineno}", f"    {frame.line or ''}".rstrip(), ""]
        return [*lines, *self.message.splitlines(), *self.notes]

    @property
    def notes(self) -> list[str]:
        """Lines that follow the message, as Python prints them: those of a user's function that failed."""
        return [line for note in getattr(self, "__notes__", ()) for line in note.splitlines()]

    @property
    def message(self) -> str:
        """The full text, class name first."""
        return f"{self.family} {self}"

    @property
    def family(self) -> str:
        """The name of the documented class of this error."""
        return type(self).__name__

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON-compatible values."""
        document: dict[str, Any] = {
            "error": self.family,
            "code": self.code,
            "what": self.what,
            "location": self.location.to_dict(),
            "expected": self.expected,
            "found": self.found,
            "likely": self.likely,
            "do": self.do,
            **(
                {"readings": [{"reading": what, "command": command} for what, command in self.readings]}
                if self.readings
                else {}
            ),
        }
        return {**document, "notes": self.notes} if self.notes else document

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in ("location", "expected", "found", "likely", "do", "readings")}
        notes = getattr(self, "__notes__", None)
        return _rebuild, (type(self), self.code, self.what, fields), {"__notes__": notes} if notes else None


class SchemaError(RekordError):
    """An invalid schema, or one that is incompatible with another."""


class DataError(RekordError):
    """Data that does not match its schema."""


class EncodeError(DataError):
    """A row that does not match the schema it is written with."""


class DecodeError(DataError):
    """A record that does not match the schema it is read with."""


class FormatError(RekordError):
    """Bytes that violate their format."""


class FrameError(FormatError):
    """Invalid framing of a record file: lengths, checksums, record boundaries."""


class WireError(FormatError):
    """Invalid protobuf wire format inside a payload."""


class CompressionError(FormatError):
    """An invalid gzip or zlib stream around the frames."""


class DatasetError(RekordError):
    """Dataset files that are missing, unreadable, or do not match their manifest."""


class MissingPathError(DatasetError, FileNotFoundError):
    """A path that does not exist: also a FileNotFoundError, documented as a `DatasetError`."""

    def __init__(self, code: str, what: str | None = None, **fields: Any) -> None:
        super().__init__(code, what, **fields)
        self.errno, self.strerror = errno.ENOENT, self.what

    @property
    def family(self) -> str:
        return DatasetError.__name__

    @property
    def filename(self) -> str | None:
        """The path, as `open` would report it."""
        return self.location.path


class UsageError(RekordError, ValueError):
    """An invalid argument, or a dependency that is not installed."""


_FAMILIES: dict[str, type[RekordError]] = {
    "S": SchemaError,
    "F": FrameError,
    "W": WireError,
    "C": CompressionError,
    "E": EncodeError,
    "D": DecodeError,
    "X": DatasetError,
    "U": UsageError,
}
# Codes whose errors are also one of Python's own.
_BY_CODE: dict[str, type[RekordError]] = {"X501": MissingPathError, "X511": MissingPathError}


def error(code: str, what: str | None = None, **fields: Any) -> RekordError:
    """An error of the class for `code`; `fields` are those of `RekordError`."""
    return (_BY_CODE.get(code) or _FAMILIES[code[0]])(code, what, **fields)


def schema_error(
    code: str, what: str, *, column: str | None = None, expected: str, found: str, do: str
) -> RekordError:
    """The error for an invalid schema; no part of the message may be omitted."""
    return error(code, what, location=Location(feature=column), expected=expected, found=found, do=do)


def open_error(path: str, failure: OSError | ValueError, *, expected: str) -> RekordError:
    """The error for a file that `open` or `read` failed on."""
    missing = isinstance(failure, FileNotFoundError)
    return error(
        "X501" if missing else "X503",
        f"{path} does not exist" if missing else f"{path} cannot be read",
        location=Location(path=path),
        expected=expected,
        found=getattr(failure, "strerror", None) or str(failure)[:60],
        do="check the path",
    )


def not_examples_error(what: str) -> RekordError:
    """The error for something that needs Examples; `what` names it."""
    return error(
        "S127",
        f"{what} needs Examples, and the schema declares whole payloads",
        expected="a schema of columns",
        found="Payload(): unparsed payloads",
        do="read the payloads with rk.records(path), and parse them with their own message type",
    )


def _is_of_ipython(filename: str) -> bool:
    """Whether a frame is IPython's own, not of a cell, whose names are `<ipython-input-…>` or temporary files."""
    return f"{os.sep}IPython{os.sep}" in filename


def _rebuild(kind: type[RekordError], code: str, what: str, fields: dict[str, Any]) -> RekordError:
    return kind(code, what, **fields)


@contextmanager
def add_location(**where: Any) -> Iterator[None]:
    """Add what this layer knows about the location to any rekord error that passes through."""
    try:
        yield
    except RekordError as failure:
        failure.location = failure.location.within(**where)
        raise


def preview(value: object) -> str:
    """A value for a message: its repr on one line, truncated to 60 characters."""
    try:
        text = " ".join(repr(value)[: 4 * _MAX_PREVIEW_CHARACTERS].split("\n"))
    except Exception:  # a repr is the caller's code, and must not hide the error that is being reported
        text = f"a {type(value).__name__}"
    return text if len(text) <= _MAX_PREVIEW_CHARACTERS else text[: _MAX_PREVIEW_CHARACTERS - 1] + "…"


def closest_match(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that is closest to `name`, if one is close."""
    return next(iter(closest_matches(name, candidates)), None)


def closest_matches(name: str, candidates: Iterable[str]) -> list[str]:
    """The candidates that are close to `name`, the closest first.

    They are equal when folded, or at most two edits away: one edit for names of 3 or 4 characters, none for shorter
    ones. Names that are too long to be typed are not compared.
    """
    folded = _normalize_name(name)
    if not folded or len(name) > _MAX_NAME_CHARACTERS:
        return []
    limit = 2 if len(folded) >= 5 else 1 if len(folded) >= 3 else 0
    matches: list[tuple[int, str]] = []
    for candidate in candidates:
        if len(candidate) > _MAX_NAME_CHARACTERS:
            continue
        distance = 0 if _normalize_name(candidate) == folded else _edit_distance(name, candidate, limit=limit)
        if distance <= limit:
            matches.append((distance, candidate))
    return [candidate for _, candidate in sorted(matches, key=lambda match: match[0])]


def _normalize_name(name: str) -> str:
    return name.casefold().translate({ord(mark): None for mark in "/_-"})


def _edit_distance(a: str, b: str, *, limit: int) -> int:
    """The edit distance (insert, delete, substitute, transpose) between two names, or any number above `limit`."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    above, row = [0], list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        before, above, row = above, row, [i]
        for j, right in enumerate(b, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (left != right)))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                row[j] = min(row[j], before[j - 2] + 1)
        if min(row) > limit and min(above) >= limit:
            return limit + 1
    return row[-1]
