"""`rekord query`: SQL over records, answered as a table, CSV, JSON or Parquet."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekord.cli import console
from rekord.cli import options as shared
from rekord.cli.console import clean, cut, whole_number
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.report.formatting import count

if TYPE_CHECKING:
    from rekord.feeds.sql.answer import Answer

_ROWS = 40


class AnswerFormat(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    PARQUET = "parquet"


_ENDINGS = {
    ".csv": AnswerFormat.CSV,
    ".tsv": AnswerFormat.TSV,
    ".jsonl": AnswerFormat.JSONL,
    ".ndjson": AnswerFormat.JSONL,
    ".parquet": AnswerFormat.PARQUET,
}


def query(
    path: shared.Path,
    sql: Annotated[
        str,
        typer.Argument(
            metavar="SQL",
            help="Such as: select label, count(*) from records group by 1",
            show_default=False,
        ),
    ],
    split: Annotated[
        str | None,
        typer.Option("--split", metavar="NAME", help="Let `records` be those of one split."),
    ] = None,
    schema: shared.RecordSchema = None,
    kind: shared.Kind = None,
    format: Annotated[
        AnswerFormat | None,
        typer.Option(
            "--format",
            metavar="table|csv|tsv|jsonl|parquet",
            help="How to write the answer: a table in a terminal, else CSV, unless said.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the answer to a file; its name says how."),
    ] = None,
    rows: Annotated[
        int,
        typer.Option(
            "--rows",
            metavar="N",
            help="How many rows a table shows.",
            parser=whole_number("--rows", do='rekord query PATH "select …" --rows 100'),
        ),
    ] = _ROWS,
    as_json: shared.AsJson = False,
) -> int:
    """Answer a question about records in SQL. Only the columns that it names are read.

    All records are the table `records`, those of a split a table by its name. Where the query names them, _split and
    _record number each record in its split, _shard and _shard_record in its file, and label_name is its class.
    """
    from rekord.feeds.sql.answer import Answer
    from rekord.verbs.query import splits_of

    chosen = _chosen(format, output, as_json=as_json)
    splits = splits_of(path, split, schema, None if kind is None else kind.value)
    for one in splits[:1]:
        shared.note_whole_payloads(one.schema)
    if output is not None:
        _check_target(output, [file for one in splits for file in one.paths])
    with Answer(splits, sql) as answer:
        if as_json:
            _say_document(answer)
        elif output is not None:
            written = _save(answer, output, chosen)
            console.tell(f"{count(written, 'row')} in {clean(output)}")
        elif chosen == AnswerFormat.TABLE:
            _say_table(answer, rows)
        else:
            from rekord.cli.query_output import lines

            for line in lines(answer, chosen.value, safe=console.is_terminal(sys.stdout)):
                console.say(line)
    return 0


def _say_table(answer: Answer, rows: int) -> None:
    from rekord.cli.query_output import SHOWN_COLUMNS, shown

    lines, more = shown(answer, rows, console.is_terminal(sys.stdout))
    for line in lines:
        console.say(*line)
    columns = len(answer.schema)
    if columns > SHOWN_COLUMNS:
        console.tell(f"the first {SHOWN_COLUMNS} of {columns:,} columns: -o FILE.csv has all of them")
    if more:
        console.tell(f"the first {count(rows, 'row')}: --rows shows more, -o FILE.csv has all of them")


def _say_document(answer: Answer) -> None:
    """One document, whole: a failure in its middle must not leave half of one."""
    from rekord.cli.query_output import json_rows

    columns = list(answer.schema.names)
    console.say_json({"columns": columns, "rows": [row for rows in json_rows(answer) for row in rows]})


def _save(answer: Answer, output: str, chosen: AnswerFormat) -> int:
    from rekord.cli.query_output import lines, write_parquet
    from rekord.storage.transaction import Output, publish

    with publish(output) as staged, Output(staged) as file:
        if chosen == AnswerFormat.PARQUET:
            return write_parquet(answer, file)
        for line in lines(answer, chosen.value):
            file.write(f"{line}\n".encode(errors="backslashreplace"))
    return answer.rows


def _chosen(format: AnswerFormat | None, output: str | None, *, as_json: bool) -> AnswerFormat:
    if as_json and (format is not None or output is not None):
        other = f"--format {format.value}" if format is not None else "--output"
        raise _refused("--json, or another form, not both", f"--json and {other}", "--json alone")
    if output is None:
        if format is None:
            return AnswerFormat.TABLE if console.is_terminal(sys.stdout) else AnswerFormat.CSV
        if format == AnswerFormat.PARQUET:
            raise _refused("a file for Parquet", "none named", "-o answer.parquet")
        return format
    ending = os.path.splitext(output)[1].lower()
    by_name = _ENDINGS.get(ending)
    if format == AnswerFormat.TABLE:
        raise _refused("csv, tsv, jsonl or parquet for a file", "table", "-o answer.csv")
    if format is None and by_name is None:
        raise _refused(
            "a name that ends in .csv, .tsv, .jsonl or .parquet",
            cut(clean(os.path.basename(output))) or "no name",
            "-o answer.csv, or --format csv beside it",
            location=Location(path=output),
        )
    chosen = format or by_name
    assert chosen is not None
    return chosen


def _check_target(output: str, files: list[str]) -> None:
    """An answer must not take the place of the data."""
    if os.path.realpath(output) in {os.path.realpath(file) for file in files}:
        raise error(
            "U631",
            "result would replace the data",
            location=Location(path=output),
            expected="a place of its own",
            found="one of the record files",
            do="-o answer.csv",
        )


def _refused(expected: str, found: str, do: str, **where: Any) -> RekordError:
    return error(
        "U605", "result cannot be written in this way", expected=expected, found=found, do=do, **where
    )
