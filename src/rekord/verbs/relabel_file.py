"""A list of labels in a CSV file: which record is meant by each line, and its new label."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Int64, Label, Schema, Text
from rekord.storage.files import read_error


@dataclass(frozen=True)
class Listed:
    """The labels of a file: by the value of a column, or by split and number."""

    path: str
    key: str | None
    labels: Mapping[str | tuple[str, int], tuple[str, int]]  # label and line


def read_labels(path: str | os.PathLike[str], column: str, schema: Schema, key: str | None) -> Listed:
    """The labels of a CSV file. Its first line names its columns."""
    place = os.fspath(path)
    lines = _lines(place)
    _, header = next(lines, (1, []))
    named = {name: i for i, name in enumerate(header)}
    label = column if column in named else "label"
    if label not in named:
        raise _refused(place, 1, f"a column `{column[:60]}`", ", ".join(header)[:60] or "an empty file")
    key = _key(place, named, label, schema, key)
    found: dict[str | tuple[str, int], tuple[str, int]] = {}
    for line, fields in lines:
        if not fields:
            continue
        if len(fields) != len(header):
            raise _refused(place, line, f"{len(header)} fields, as the first line has", f"{len(fields)}")
        name: str | tuple[str, int]
        if key is not None:
            name = fields[named[key]]
        else:
            number = fields[named["record"]]
            if not (number.isascii() and number.isdigit() and len(number) < 19):
                raise _refused(place, line, "the number of a record", repr(number)[:60])
            name = fields[named["split"]], int(number)
        before = found.setdefault(name, (fields[named[label]], line))
        if before[0] != fields[named[label]]:
            raise _refused(
                place, line, f"one label a record: line {before[1]:,} has another", repr(name)[:60]
            )
    return Listed(place, key, found)


def _key(path: str, named: Mapping[str, int], label: str, schema: Schema, key: str | None) -> str | None:
    """The column that tells records apart; None where they are told by split and number."""
    if key is not None:
        if key not in named:
            raise _refused(path, 1, f"a column `{key[:60]}`", ", ".join(named)[:60])
        _check_key(path, key, schema)
        return key
    if {"split", "record"} <= set(named):
        return None
    shared = [name for name in named if name in schema.context and name != label]
    if len(shared) != 1:
        raise _refused(
            path,
            1,
            "one column of the dataset that tells records apart, or the columns split and record",
            ", ".join(shared)[:60] or "none",
            do="--key COLUMN (key=)",
        )
    _check_key(path, shared[0], schema)
    return shared[0]


def _check_key(path: str, key: str, schema: Schema) -> None:
    feature = schema[key]
    if key not in schema.context or not isinstance(feature, (Int64, Label, Text, Bytes)) or feature.shape:
        raise _refused(path, 1, "a key that is one text or one whole number", f"`{key[:60]}`")


def _lines(path: str) -> Iterator[tuple[int, list[str]]]:
    """The number of each line, and its fields."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for fields in reader:
                yield reader.line_num, fields
    except OSError as failure:
        raise read_error(path, failure) from failure
    except UnicodeDecodeError as failure:
        raise _refused(path, None, "a text in UTF-8", failure.object[failure.start :][:8].hex(" ")) from None
    except csv.Error as failure:
        raise _refused(path, reader.line_num, "a CSV file", str(failure)[:60]) from None


def _refused(path: str, line: int | None, expected: str, found: str, do: str | None = None) -> RekordError:
    return error(
        "U648",
        location=Location(path=path, line=line),
        expected=expected,
        found=found,
        do=do or "mend the file: a key and a label a line, with the names of columns in its first line",
    )
