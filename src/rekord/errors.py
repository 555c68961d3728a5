"""The errors that rekord raises: few classes (what to catch), many codes (what happened)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rekord.codes import CODES
from rekord.location import Location

_NOWHERE = Location()


class RekordError(Exception):
    """Anything that went wrong, with what is needed to mend it.

    `what` is the first line and stands alone. `expected` and `found` disagree; `likely` is said only where
    evidence supports it; `do` is a command or one edit.
    """

    def __init__(
        self,
        code: str,
        what: str | None = None,
        *,
        location: Location = _NOWHERE,
        expected: str | None = None,
        found: str | None = None,
        likely: str | None = None,
        do: str | None = None,
    ) -> None:
        super().__init__(code)
        self.code = code
        self.what = what if what is not None else CODES[code]
        self.location = location
        self.expected = expected
        self.found = found
        self.likely = likely
        self.do = do

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.what}"]
        for label, text in (
            ("where", str(self.location)),
            ("expected", self.expected),
            ("found", self.found),
            ("likely", self.likely),
            ("do", self.do),
        ):
            if text:
                lines.append(f"  {label:<9} {text}")
        return "\n".join(lines)

    @property
    def message(self) -> str:
        """The whole text as a person reads it, class name first."""
        return f"{self.family} {self}"

    @property
    def family(self) -> str:
        """The name of the documented class of this error."""
        return type(self).__name__

    def to_dict(self) -> dict[str, Any]:
        """Everything this error says, as JSON would hold it."""
        return {
            "error": self.family,
            "code": self.code,
            "what": self.what,
            "location": self.location.to_dict(),
            "expected": self.expected,
            "found": self.found,
            "likely": self.likely,
            "do": self.do,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in ("location", "expected", "found", "likely", "do")}
        return _rebuild, (type(self), self.code, self.what, fields)


class SchemaError(RekordError):
    """A schema that contradicts itself, or one that does not fit another."""


class DataError(RekordError):
    """Data and schema disagree."""


class EncodeError(DataError):
    """A row that cannot be written as the schema declares it."""


class DecodeError(DataError):
    """A record that cannot be read as the schema declares it."""


class FormatError(RekordError):
    """Bytes that are not what their format says they must be."""


class FrameError(FormatError):
    """The framing of a record file: lengths, checksums, where records begin and end."""


class WireError(FormatError):
    """Protobuf's wire format inside a payload."""


class CompressionError(FormatError):
    """The gzip or zlib stream around the frames."""


class DatasetError(RekordError):
    """The files of a dataset: missing, unreadable, or not what their manifest says."""


class UsageError(RekordError):
    """An argument that cannot be meant, or a dependency that is not installed."""


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


def error(code: str, what: str | None = None, **fields: Any) -> RekordError:
    """An error of the class that `code` belongs to; `fields` are those of `RekordError`."""
    return _FAMILIES[code[0]](code, what, **fields)


def _rebuild(kind: type[RekordError], code: str, what: str, fields: dict[str, Any]) -> RekordError:
    return kind(code, what, **fields)


@contextmanager
def located(**where: Any) -> Iterator[None]:
    """Add what this layer knows of the place to any rekord error that passes through."""
    try:
        yield
    except RekordError as failure:
        failure.location = failure.location.within(**where)
        raise
