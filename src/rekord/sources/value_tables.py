"""Tables whose values have types of their own, such as the cells of a spreadsheet: what they have in common."""

from __future__ import annotations

import datetime
import decimal
import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from rekord.arguments import non_blank
from rekord.errors import RekordError, add_location, closest_match, error, preview
from rekord.location import Location
from rekord.schema import Feature, Int64, Schema
from rekord.schema.infer import infer_columns
from rekord.sources.base import (
    Chunk,
    FileListing,
    SizeCheckedFile,
    SourceFacts,
    SourceFile,
    SourceGuess,
    SourceRow,
    SurveyCache,
    corrupt_file_error,
    empty_file_error,
)
from rekord.sources.fields import SAMPLE_ROWS, guess_json_columns
from rekord.sources.table_files import TableFiles
from rekord.sources.tables import build_facts, missing_column_error

Values: TypeAlias = "Mapping[str, Any] | RekordError"

_PLAIN_TYPES = frozenset((str, int, float, bool, bytes, type(None), datetime.datetime))
_MAX_WHOLE = 2.0**53  # doubles up to here are exact integers
_MAX_INTEGER = 2.0**64  # larger ones are no ids


def to_plain_value(value: Any) -> Any:
    """A value as a column stores it: dates are times at midnight, durations and times of day are seconds."""
    if type(value) in _PLAIN_TYPES or isinstance(value, datetime.datetime):
        return value
    if isinstance(value, datetime.date):
        return datetime.datetime(value.year, value.month, value.day)
    if isinstance(value, datetime.time):
        return value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dict):
        return {name: to_plain_value(inner) for name, inner in value.items()}
    return [to_plain_value(inner) for inner in value] if isinstance(value, list) else value


class _ValueSurvey(NamedTuple):
    listing: FileListing
    features: Mapping[str, Feature | RekordError]
    rows: int
    whole: frozenset[str]  # the columns of floats that are all integers
    guesses: tuple[SourceGuess, ...]

    @property
    def schema(self) -> Schema:
        """The schema; raises if a column has no type."""
        for one in self.features.values():
            if isinstance(one, RekordError):
                raise one
        return Schema({name: one for name, one in self.features.items() if not isinstance(one, RekordError)})


_surveys: SurveyCache[_ValueSurvey] = SurveyCache()


def to_text(value: Any) -> Any:
    """A value of a column that is read as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_WHOLE:
        return str(int(value))
    if isinstance(value, (int, float)):
        return str(value)
    return value.isoformat() if isinstance(value, datetime.datetime) else value


@dataclass(frozen=True, slots=True)
class ValueTable(TableFiles):
    """Files of rows of typed values, which are read from the beginning; a subclass reads one file.

    All rows are read twice: types, integers among floats, and missing values are those of every row. `texts` are the
    columns whose values of other types are read as text.
    """

    texts: tuple[str, ...] = field(default=(), kw_only=True)

    def read_file(self, path: str, file: SourceFile, notes: list[SourceGuess]) -> Iterator[Values]:
        """The rows of a file, in order; what is decided about the file is added to `notes`."""
        raise NotImplementedError

    def declare(self, listing: FileListing) -> Mapping[str, Feature]:
        """The features of columns that the files themselves declare."""
        return {}

    def column_names(self) -> list[str]:
        """The names of all columns, also of those that have no type."""
        return list(self._survey().features)

    def find_untyped(self) -> frozenset[str]:
        """The columns that have no type, as their values have several."""
        return frozenset(name for name, one in self._survey().features.items() if isinstance(one, RekordError))

    def facts(self) -> SourceFacts:
        seen = self._survey()
        return build_facts(seen.schema, seen.rows, seen.listing, seen.guesses)

    def rows(self) -> Iterator[Chunk]:
        seen = self._survey()
        for file in seen.listing.files:
            for position, values in enumerate(self._read(seen.listing.full(file), file, [])):
                if seen.whole and not isinstance(values, RekordError):
                    values = {
                        name: int(value) if name in seen.whole and value is not None else value
                        for name, value in values.items()
                    }
                yield SourceRow(file.path, position, values)

    def _read(self, path: str, file: SourceFile, notes: list[SourceGuess]) -> Iterator[Values]:
        for values in self.read_file(path, file, notes):
            if isinstance(values, RekordError):
                yield values
                continue
            if self.texts:
                values = {name: to_text(value) if name in self.texts else value for name, value in values.items()}
            if self.columns is None:
                yield values
                continue
            for name in self.columns:
                if name not in values:
                    raise missing_column_error(name, list(values), path)
            yield {name: values[name] for name in self.columns}

    def _survey(self) -> _ValueSurvey:
        listing = self._listing()
        return _surveys.get((self, listing), lambda: self._inspect(listing))

    def _inspect(self, listing: FileListing) -> _ValueSurvey:
        declared = self.declare(listing)
        facts = _RowFacts(frozenset(declared))
        first = listing.full(listing.files[0])
        notes: list[SourceGuess] = []
        chunks = (values for file in listing.files for values in self._read(listing.full(file), file, notes))
        rows = facts.take_good(chunks)
        sample = [values for values, _ in zip(rows, range(SAMPLE_ROWS), strict=False)]
        if not sample:
            raise facts.problem or empty_file_error(first, "no rows", expected="at least one row")
        with add_location(path=first if len(listing.files) == 1 else None):
            found = infer_columns(_chain(sample, rows))
        features: dict[str, Feature | RekordError] = {}
        for name, feature in found.items():
            optional = facts.present.get(name, 0) < facts.rows
            if name in declared:
                features[name] = _with_optional(declared[name], optional)
            elif name in facts.whole:
                features[name] = Int64(optional=optional)
            elif isinstance(feature, RekordError):
                feature.location = feature.location.within(path=first if len(listing.files) == 1 else None)
                features[name] = _name_remedies(feature, name)
            else:
                features[name] = feature
        whole = frozenset(name for name in facts.whole if name in features)
        known = Schema({name: one for name, one in features.items() if not isinstance(one, RekordError)})
        guesses = (*dict.fromkeys(notes), *guess_json_columns(sample, known), *facts.guess_lost_digits())
        return _ValueSurvey(listing, features, facts.count, whole, guesses)


def _name_remedies(failure: RekordError, name: str) -> RekordError:
    """The error of a column without a type, with what can be done about it here."""
    failure.do = f'read it as text: columns={{"{name[:60]}": rk.Text()}}; or leave it out: drop=["{name[:60]}"]'
    return failure


def _chain(sample: Sequence[Mapping[str, Any]], rest: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    yield from sample
    yield from rest


def _with_optional(feature: Feature, optional: bool) -> Feature:
    return type(feature)(**{**feature.declared(), "optional": True}) if optional else feature


class _RowFacts:
    """What is counted while rows pass: those that can be read, and which columns of floats have integers only."""

    def __init__(self, declared: frozenset[str]) -> None:
        self.problem: RekordError | None = None  # of the first bad row
        self.count = 0  # of all rows
        self.rows = 0  # that can be read
        self.present: dict[str, int] = {}
        self.whole: set[str] = set()
        self._broken: set[str] = set(declared)
        self._large: dict[str, float] = {}  # the first number of a column whose last digits may be lost

    def take_good(self, rows: Iterator[Values]) -> Iterator[Mapping[str, Any]]:
        """The rows that can be read."""
        for values in rows:
            self.count += 1
            if isinstance(values, RekordError):
                self.problem = self.problem or values
                continue
            self.rows += 1
            for name, value in values.items():
                if value is None:
                    continue
                self.present[name] = self.present.get(name, 0) + 1
                if name in self._broken:
                    continue
                if type(value) is float and value.is_integer() and abs(value) <= _MAX_WHOLE:
                    self.whole.add(name)
                else:
                    if type(value) is float and _MAX_WHOLE < abs(value) < _MAX_INTEGER and value.is_integer():
                        self._large.setdefault(name, value)
                    self._broken.add(name)
                    self.whole.discard(name)
            yield values

    def guess_lost_digits(self) -> Iterator[SourceGuess]:
        """The guesses about integers that are stored as floats and too large for them."""
        for name, value in self._large.items():
            what = f"`{name[:60]}` has floats beyond 2^53, first {value:.0f}, whose last digits may be lost"
            yield SourceGuess(name, what, "for numbers such as ids: store them as text in the source")


def table_name(option: str, value: object) -> str | None:
    """The name of a table in a file, as given."""
    return None if value is None else non_blank(option, value, expected="a name", do=f'{option}="name"')


def check_head(path: str, file: SourceFile, kind: str, magic: bytes, offset: int = 0) -> None:
    """Raise if a file that a library opens by itself is empty, cannot be read, or is of another kind."""
    with SizeCheckedFile(path, file) as opened:
        head = opened.read(offset + len(magic))
    if not head:
        raise empty_file_error(path, "an empty file", expected=kind)
    if not head.startswith(magic, offset):
        raise corrupt_file_error(path, kind, f"no header of {kind} at its start")


def several_tables_error(path: str, what: str, option: str, names: Sequence[str]) -> RekordError:
    """The error for a file with several tables; each gets its command."""
    place = shlex.quote(path)
    readings = [
        (f"the {what} {name}"[:60], f"rekord write {place} OUT --{option} {shlex.quote(name)}") for name in names[:8]
    ]
    return error(
        "X542",
        f"file has {len(names):,} {what}s",
        location=Location(path=path),
        expected=f"one {what}, or the name of one",
        found=", ".join(names)[:120],
        do=readings[0][1],
        readings=readings,
    )


def missing_table_error(path: str, what: str, option: str, name: str, names: Sequence[str]) -> RekordError:
    """The error for a table that a file does not have."""
    near = closest_match(name, names)
    return error(
        "X522",
        f"{what} {preview(name)} does not exist",
        location=Location(path=path),
        expected=f"one of {preview(list(names))}",
        found=preview(name),
        do=f"{option}={(near or (names[0] if names else ''))!r}",
    )
