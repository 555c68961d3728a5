"""`rk.query`: SQL over the records of a dataset; and the records that a condition, a function or a list selects."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

import numpy as np
import pyarrow as pa

from rekord.arguments import check_keywords, conflicting_options, invalid, non_blank
from rekord.codec.columns import Batch
from rekord.conversion.plan import digest_function
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.samplers import Ids, expand_selection
from rekord.dataset.split import Split
from rekord.errors import RekordError, error, preview
from rekord.feeds.sql.answer import QueryResult
from rekord.location import Location
from rekord.schema import RecordKind, Schema
from rekord.storage.local import PathLike, read_error
from rekord.verbs.derive_common import SourceDataset, check_split_name
from rekord.verbs.options import (
    DeleteOptions,
    RecordCondition,
    RecordPairs,
    reject_reading_options,
)


@overload
def query(
    path: PathLike | Sequence[PathLike] | Dataset,
    sql: str,
    *,
    split: str | None = None,
    schema: Schema | PathLike | None = None,
    kind: RecordKind | None = None,
    stream: Literal[False] = False,
) -> pa.Table: ...


@overload
def query(
    path: PathLike | Sequence[PathLike] | Dataset,
    sql: str,
    *,
    split: str | None = None,
    schema: Schema | PathLike | None = None,
    kind: RecordKind | None = None,
    stream: Literal[True],
) -> pa.RecordBatchReader: ...


@check_keywords
def query(
    path: PathLike | Sequence[PathLike] | Dataset,
    sql: str,
    *,
    split: str | None = None,
    schema: Schema | PathLike | None = None,
    kind: RecordKind | None = None,
    stream: bool = False,
) -> pa.Table | pa.RecordBatchReader:
    """Run a DuckDB query over the records of a dataset; returns a `pyarrow.Table`.

    The table `records` holds all records, or those of one `split`; each split is also a table of its own name.
    Columns have the names of the schema, in double quotes if they are not plain identifiers: `"image/encoded"`. The
    columns `_split` and `_record` identify a record in its split, `_shard` and `_shard_record` in its file, and
    `label_name` is the class name of `label`. Only the columns that the query needs are decoded, and no record is
    read if the index contains them.

    Payloads that are not Examples are one column, `payload`, of bytes. `kind` ("example", "sequence", "bytes")
    overrides the detected kind of payload.

    With `stream`, the result is a `pyarrow.RecordBatchReader` that computes its batches on demand.
    """
    answer = QueryResult(select_query_splits(path, split, schema, kind), sql)
    if not stream:
        with answer:
            return answer.table()
    return pa.RecordBatchReader.from_batches(answer.schema, answer.batches())


def select_query_splits(path: Any, split: str | None, schema: Any, kind: RecordKind | None = None) -> list[Split]:
    """The splits that a query reads."""
    reject_reading_options(path, schema, kind)
    dataset = path if isinstance(path, Dataset) else open_dataset(path, schema=schema, kind=kind)
    return list(dataset.splits.values()) if split is None else [dataset[split]]


_RECORD_COLUMN = "_record"


def find_matching_records(split: Split, condition: str, *, most: int | None = None) -> Ids:
    """The records of a split for which a condition is true (not false or NULL), in the order of the split.

    The numbers are those of records in the split's shards, even if the split is a view. With `most`, only the first
    ones are returned; no more is read than they need.
    """
    do = "where=\"label = 3 and caption like '%cat%'\""
    non_blank("where", condition, expected="an SQL condition over columns", do=do)
    for name in split.schema:
        if name.casefold() == _RECORD_COLUMN:
            raise error(
                "U680",
                "column name is reserved for conditions",
                location=Location(feature=name),
                expected="other column names",
                found=f"a column `{name}`",
                do=f"rekord rewrite {(split.paths or ('IN',))[0][:60]} renamed --rename {name}=other",
            )
    whole = split if split.view.ids is None else Split(split.name, split.view.whole(), split.stored_schema)
    found = np.zeros(len(split.view.shards), bool)
    found[_query_record_numbers(whole, condition, most if split.view.ids is None else None)] = True
    order = expand_selection(split.view.all_ids)
    return order[found[order]][:most]


def _query_record_numbers(split: Split, condition: str, most: int | None) -> Ids:
    """Of all records of the shards, in no particular order; of the first `most` ones."""
    # On a line of its own, so that a comment in the condition ends there.
    first = "" if most is None else f" limit {most}"
    with QueryResult([split], f"select {_RECORD_COLUMN} from records where (\n{condition}\n){first}") as answer:
        numbers: Ids = answer.table()[_RECORD_COLUMN].to_numpy()
    return numbers


_ROWS = 1024


@dataclass(frozen=True)
class RecordSelector:
    """The records of an edit: selected by a condition, or listed."""

    where: RecordCondition | None
    listed: RecordList | None
    split: list[str] | None

    @classmethod
    def of(cls, options: DeleteOptions) -> RecordSelector:
        """Refuse conflicting options, and read the list."""
        if options.where is not None and options.records is not None:
            raise conflicting_options("where", "records")
        if options.records is not None and options.split is not None:
            expected = "one of the two: a list names the split of each record"
            raise conflicting_options("split", "records", expected=expected, do="leave out split=")
        return cls(
            options.where,
            None if options.records is None else parse_record_list(options.records),
            None if options.split is None else to_split_names(options.split),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about the list."""
        return () if self.listed is None else self.listed.notes

    def words(self) -> Any:
        """The selection in a form that is the same in every run."""
        if self.listed is not None:
            return ["records", sorted(one.pair for one in self.listed.records)]
        return None if self.where is None else describe_condition(self.where)

    def numbers(self, old: SourceDataset) -> dict[str, Ids]:
        """The record numbers in each split, in order."""
        if self.listed is None:
            return select_records(old, self.where, self.split)
        return {name: np.zeros(0, np.int64) for name in old.splits} | resolve_record_numbers(old, self.listed)


def select_records(old: SourceDataset, where: Any, split: list[str] | None) -> dict[str, Ids]:
    """The record numbers in each split that `where` selects, in order."""
    names = list(old.splits) if split is None else split
    for name in names:
        check_split_name(old, name)
    by_split = _numbers_by_split(old, where, names)
    found: dict[str, Ids] = {}
    for name, one in old.splits.items():
        if name not in names:
            found[name] = np.zeros(0, np.int64)
        elif by_split is not None:
            found[name] = _validate_numbers(name, one, by_split.get(name, ()))
        elif isinstance(where, str):
            found[name] = np.sort(find_matching_records(one, where))
        else:
            found[name] = _evaluate_condition(one, where)
    return found


def describe_condition(where: Any) -> Any:
    """A condition in a form that is the same in every run."""
    if isinstance(where, str):
        return where
    if callable(where):
        return ["function", digest_function(where)]
    if isinstance(where, Mapping):
        return {str(name): _to_array(numbers).tolist() for name, numbers in where.items()}
    if isinstance(where, (Sequence, np.ndarray)) and not isinstance(where, bytes):
        return _to_array(where).tolist()
    raise invalid(
        "where",
        where,
        "an SQL condition, a function of a batch, or record numbers",
        'where="label = 3"',
    )


def to_split_names(split: str | Sequence[str]) -> list[str]:
    """One or several split names as a list."""
    if isinstance(split, str):
        return [split]
    if not isinstance(split, Sequence) or not all(isinstance(name, str) for name in split):
        raise invalid("split", split, "the name of a split, or a list of them", 'split="train"')
    return list(split)


def _numbers_by_split(old: SourceDataset, where: Any, names: Sequence[str]) -> Mapping[str, Any] | None:
    """Record numbers by split; None for a condition or a function."""
    if isinstance(where, str) or callable(where):
        return None
    if isinstance(where, Mapping):
        for name in where:
            check_split_name(old, name)
        return where
    if len(names) != 1:
        raise error(
            "U605",
            "record numbers need the name of their split",
            expected=f'{{"{names[0]}": [0, 1]}}' if names else "a dataset with splits",
            found=f"numbers only, and {len(names)} splits",
            do=f"split={names[0]!r}" if names else None,
        )
    return {names[0]: where}


def _validate_numbers(name: str, split: Split, given: Any) -> Ids:
    numbers = _to_array(given)
    if not numbers.size:
        return np.zeros(0, np.int64)
    count = len(split)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise _missing_record_error(name, count, preview(given))
    outside = numbers[(numbers < 0) | (numbers >= count)]
    if len(outside):
        raise _missing_record_error(name, count, str(int(outside[0])))
    return np.unique(numbers).astype(np.int64)


def _to_array(given: Any) -> Any:
    try:
        return np.asarray(given)
    except ValueError:  # lists of several lengths
        return np.asarray(given, dtype=object)


def _missing_record_error(name: str, count: int, found: str) -> RekordError:
    return error(
        "U605",
        f"`where` selects records that split `{name[:60]}` does not have",
        expected=f"integers from 0 to {count - 1:,}" if count else "no numbers: the split has no records",
        found=found,
        do=f'where={{"{name[:40]}": [0]}}' if count else f"leave out `{name[:40]}`",
    )


def _evaluate_condition(split: Split, function: Callable[[Batch], Any]) -> Ids:
    """The records for which a function returns True."""
    found = [np.zeros(0, np.int64)]
    begin = 0
    for batch in split.batches(_ROWS):
        rows = len(next(iter(batch.values())))
        answer = np.asarray(function(batch))
        if answer.shape != (rows,) or answer.dtype != bool:
            raise error(
                "U622",
                "function must return one value per record",
                expected=f"True or False for each of {rows:,} records",
                found=f"{answer.dtype} of shape {answer.shape}"[:60],
                do='where=lambda batch: batch["label"] == 3',
            )
        found.append(begin + np.flatnonzero(answer))
        begin += rows
    return np.concatenate(found).astype(np.int64)


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
