"""Records listed by split and number: in Python, or in a file."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rekord.arguments import invalid
from rekord.dataset.samplers import Ids
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.storage.local import read_error
from rekord.verbs.derive_common import SourceDataset
from rekord.verbs.options import RecordPairs

_SQL_NAMES = ("_split", "_record")
_COLUMN_NAMES = (_SQL_NAMES, ("split", "split_record"), ("split", "record"))
"""Pairs of column names, best first: in findings of `check`, `record` is a number in the file.
A feature may be called `split` too, so names of different pairs are never combined."""
_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class ListedRecord:
    """A record by split and number. `place` is where it is listed."""

    split: str
    record: int
    place: Location = field(default_factory=Location)

    @property
    def pair(self) -> tuple[str, int]:
        return self.split, self.record


@dataclass(frozen=True, slots=True)
class RecordList:
    """Listed records, without duplicates. `notes` are remarks for the user."""

    records: tuple[ListedRecord, ...]
    notes: tuple[str, ...] = ()


def parse_record_list(records: RecordPairs) -> RecordList:
    """Parse pairs, or the file at a path."""
    notes: list[str] = []
    if isinstance(records, (str, os.PathLike)):
        found = _read_records(os.fspath(records), notes)
    elif isinstance(records, Iterable) and not isinstance(records, (bytes, Mapping)):
        found = map(_validate_pair, records)
    else:
        raise _pair_error(records)
    once: dict[tuple[str, int], ListedRecord] = {}
    for one in found:
        once.setdefault(one.pair, one)
    return RecordList(tuple(once.values()), tuple(notes))


def resolve_record_numbers(old: SourceDataset, listed: RecordList) -> dict[str, Ids]:
    """The numbers of listed records by split. Unknown records raise."""
    found: dict[str, list[int]] = {}
    for one in listed.records:
        split = old.splits.get(one.split)
        count = None if split is None else len(split)
        if count is None or one.record >= count:
            if count is None:
                expected = "one of the splits " + ", ".join(f"`{name[:60]}`" for name in list(old.splits)[:8])
            elif count:
                expected = f"a number from 0 to {count - 1:,}"
            else:
                expected = f"another split: `{one.split[:60]}` has no records"
            raise error(
                "X571",
                "list contains a record that does not exist",
                location=one.place,
                expected=expected,
                found=f"record {one.record:,} of `{one.split[:60]}`",
                do=f'rekord query {old.name[:60]} "select _split, _record from records" --csv',
            )
        found.setdefault(one.split, []).append(one.record)
    return {name: np.array(sorted(numbers), np.int64) for name, numbers in found.items()}


def _validate_pair(given: Any) -> ListedRecord:
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or len(given) != 2:
        raise _pair_error(given)
    split, record = given
    is_number = isinstance(record, (int, np.integer)) and not isinstance(record, bool) and record >= 0
    if not isinstance(split, str) or not is_number:
        raise _pair_error(given)
    return ListedRecord(split, int(record))


def _pair_error(given: object) -> RekordError:
    expected = "pairs of split and record number, or the path of a file that lists them"
    return invalid("records", given, expected, 'records=[("train", 3), ("train", 7)]')


# Files.


def _read_records(path: str, notes: list[str]) -> Iterator[ListedRecord]:
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8-sig")
    except OSError as failure:
        raise read_error(path, failure) from failure
    except UnicodeDecodeError as failure:
        raise list_file_error(path, None, "text in UTF-8", failure.object[failure.start :][:8].hex(" ")) from None
    if text.lstrip()[:1] in ("{", "["):
        yield from _parse_json(path, text, notes)
    else:
        yield from _parse_lines(path, text)


def _parse_lines(path: str, text: str) -> Iterator[ListedRecord]:
    """One pair per line, or a table with a header."""
    header: list[str] | None = None
    split, record = 0, 1
    first = True
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        fields = _split_fields(path, number, line)
        if first and (named := _find_columns(fields)) is not None:
            header, (split, record) = fields, named
        elif len(fields) != len(header or (0, 0)):
            expected = "a split and a record number" if header is None else f"{len(header)} fields, as in the header"
            raise list_file_error(path, number, expected, f"{len(fields)}: {line.strip()[:40]!r}")
        else:
            yield _build_listed_record(path, number, fields[split], fields[record])
        first = False


def _split_fields(path: str, number: int, line: str) -> list[str]:
    """The fields of a line, separated by commas, tabs or spaces."""
    if "," not in line:
        return line.split("\t") if "\t" in line else line.split()
    try:
        return [field.strip() for field in next(csv.reader([line], strict=True, skipinitialspace=True))]
    except csv.Error as failure:
        raise list_file_error(path, number, "fields separated by commas", str(failure)[:60]) from None


def _parse_json(path: str, text: str, notes: list[str]) -> Iterator[ListedRecord]:
    """A document of `check --json` or `query --json`, or one document per line."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and isinstance(document.get("findings"), list):
        yield from _parse_findings(path, document, notes)
    elif isinstance(document, dict) and {"columns", "rows"} <= set(document):
        yield from _parse_query_result(path, document)
    elif isinstance(document, list) and all(isinstance(one, (dict, list)) for one in document):
        for one in document:
            yield _parse_json_value(path, None, one)
    else:
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield _parse_json_line(path, number, line)


def _parse_findings(path: str, document: Mapping[str, Any], notes: list[str]) -> Iterator[ListedRecord]:
    complete = not document.get("not_listed")
    left_out = 0
    for one in document["findings"]:
        if not isinstance(one, dict):
            raise list_file_error(path, None, "findings as `rekord check --json` prints them", preview(one))
        if one.get("record") is None:
            continue  # about a file or a split
        if one.get("severity", "error") != "error":
            left_out += 1
            continue
        if one.get("split") is None or one.get("split_record") is None:
            found = f"{one.get('code')} at record {one['record']} of {one.get('path')}"
            raise list_file_error(path, None, "findings with `split` and `split_record`", found[:120])
        yield _build_listed_record(path, None, one["split"], one["split_record"])
        complete = complete and one.get("count") in (None, 1)
    if left_out:
        notes.append(f"{path} has {left_out:,} warnings and notes: only records with errors are selected")
    if not complete:
        notes.append(f"{path} does not list every record with a finding: check the new dataset again")


def _parse_query_result(path: str, document: Mapping[str, Any]) -> Iterator[ListedRecord]:
    columns, rows = document["columns"], document["rows"]
    named = _find_columns(columns, (_SQL_NAMES,)) if isinstance(columns, list) else None
    if named is None or not isinstance(rows, list):
        raise list_file_error(path, None, "the columns `_split` and `_record`", preview(columns))
    for row in rows:
        if not isinstance(row, list) or len(row) != len(columns):
            raise list_file_error(path, None, f"rows of {len(columns)} values", preview(row))
        yield _build_listed_record(path, None, row[named[0]], row[named[1]])


def _parse_json_line(path: str, number: int, line: str) -> ListedRecord:
    try:
        one = json.loads(line)
    except (ValueError, RecursionError):
        raise list_file_error(path, number, "JSON, one document or one per line", repr(line.strip()[:40])) from None
    return _parse_json_value(path, number, one)


def _parse_json_value(path: str, number: int | None, one: Any) -> ListedRecord:
    if isinstance(one, dict) and (named := _find_columns(list(one))) is not None:
        values = list(one.values())
        return _build_listed_record(path, number, values[named[0]], values[named[1]])
    if isinstance(one, list) and len(one) == 2:
        return _build_listed_record(path, number, *one)
    raise list_file_error(
        path, number, '{"split": "train", "record": 3}, or ["train", 3]', repr(json.dumps(one)[:40])
    )


def _find_columns(names: Sequence[Any], pairs: Sequence[tuple[str, str]] = _COLUMN_NAMES) -> tuple[int, int] | None:
    """The positions of split and number among columns; None if there are no such columns."""
    lower = [name.strip().casefold() if isinstance(name, str) else "" for name in names]
    for split, record in pairs:
        if split in lower and record in lower:
            return lower.index(split), lower.index(record)
    return None


def _build_listed_record(path: str, line: int | None, split: Any, record: Any) -> ListedRecord:
    if isinstance(record, str) and record.isascii() and record.isdigit() and len(record) <= _MAX_DIGITS:
        record = int(record)
    if not isinstance(split, str) or not split:
        raise list_file_error(path, line, "the name of a split", preview(split))
    if not isinstance(record, int) or isinstance(record, bool) or not 0 <= record < 10**_MAX_DIGITS:
        raise list_file_error(path, line, "a record number ≥ 0", preview(record))
    return ListedRecord(split, record, Location(path=path, line=line))


def list_file_error(
    path: str, line: int | None, expected: str, found: str, do: str = "one record per line, such as train,3"
) -> RekordError:
    """The error for a file of records or labels that cannot be parsed."""
    what = "list of labels or records cannot be read"
    return error("U624", what, location=Location(path=path, line=line), expected=expected, found=found, do=do)
