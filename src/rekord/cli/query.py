"""`rekord query`: SQL on records, with the result as a table, CSV, JSON or Parquet."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rekord.cli import console
from rekord.cli import options as shared
from rekord.cli.console import escape_controls, truncate
from rekord.cli.options import argument, choice_option, integer_option, output_option, text_option
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.report.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rekord.cli.query_output import LimitedResult
    from rekord.dataset.split import Split

_DEFAULT_ROWS = 40


ResultFormat: TypeAlias = Literal["table", "csv", "tsv", "jsonl", "parquet"]
"""How the result is written."""

_FORMATS_BY_EXTENSION: Mapping[str, ResultFormat] = {
    ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"
}  # fmt: skip


@shared.with_options
def query(
    path: str = shared.PATH_ARGUMENT,
    sql: str = argument("SQL", "Query, such as: select label, count(*) from records group by 1"),
    split: str | None = text_option("--split", "NAME", "Split that the table `records` holds. Default: all."),
    schema: str | None = shared.SCHEMA_OPTION,
    kind: shared.PayloadForm | None = shared.KIND_OPTION,
    format: ResultFormat | None = choice_option(
        "--format",
        ResultFormat,
        "Format of the result. Default: a table in a terminal, otherwise CSV.",
    ),
    output: str | None = output_option("FILE", "Write the result to a file, in the format of its extension."),
    limit: int | None = integer_option(
        "--limit",
        f"Print only the first N rows; 0 for all. Default: {_DEFAULT_ROWS} in a table, otherwise all.",
        do="--limit 100",
    ),
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Query records with SQL. Only the columns that the query names are read.

    The table `records` holds all records, and each split is a table of its name. Extra columns: _split and _record
    (number within the split), _shard and _shard_record (number within the file), and label_name for a label.
    """
    from rekord.cli.query_output import LimitedResult, iter_json_document, iter_lines
    from rekord.feeds.sql.answer import QueryResult
    from rekord.verbs.query import select_query_splits

    chosen = _choose_format(format, output, as_json=as_json)
    splits = select_query_splits(path, split, schema, kind)
    for one in splits[:1]:
        shared.print_opaque_payload_note(one.schema)
    if output is not None:
        _check_target(output, [file for one in splits for file in one.paths])
    more = False
    with QueryResult(splits, sql) as answer:
        rows = LimitedResult(answer, limit or None)
        if as_json:
            console.print_document(iter_json_document(rows))
        elif output is not None:
            _save_result(rows, output, chosen)
            console.print_status(f"{format_count(rows.taken, 'row')} in {escape_controls(output)}")
        elif chosen == "table":
            rows.limit = _DEFAULT_ROWS if limit is None else limit or None
            _print_table(rows)
            more = rows.has_more
        else:
            for line in iter_lines(rows, chosen, safe=console.is_terminal(sys.stdout)):
                console.print_line(line)
    if more:
        left = _count_rows(splits, sql)
        amount = "more rows" if left is None else format_count(left - rows.taken, "more row")
        console.print_status(f"… {amount} (--limit 0 for all, -o FILE.csv writes them)")
    return 0


def _print_table(rows: LimitedResult) -> None:
    from rekord.cli.query_output import format_table

    columns = len(rows.schema)
    lines, shown = format_table(rows, terminal=console.is_terminal(sys.stdout))
    console.print_lines(lines)
    if shown < columns:
        console.print_status(f"… {columns - shown:,} more columns (name them in the query, or -o FILE.csv)")


def _count_rows(splits: Sequence[Split], sql: str) -> int | None:
    """The number of rows of a query, without the columns that it only prints; None if it cannot be counted."""
    from rekord.feeds.sql.answer import QueryResult

    try:
        with QueryResult(splits, f"select count(*) from (\n{sql.rstrip().rstrip(';')}\n)") as answer:
            return int(answer.table().column(0)[0].as_py())
    except RekordError:
        return None


def _save_result(rows: LimitedResult, output: str, chosen: ResultFormat) -> None:
    from rekord.cli.query_output import iter_lines, write_parquet
    from rekord.storage.transaction import Output, publish

    with publish(output) as staged, Output(staged) as file:
        if chosen == "parquet":
            write_parquet(rows, file)
            return
        for line in iter_lines(rows, chosen):
            file.write(f"{line}\n".encode(errors="backslashreplace"))


def _choose_format(format: ResultFormat | None, output: str | None, *, as_json: bool) -> ResultFormat:
    if as_json and (format is not None or output is not None):
        other = f"--format {format}" if format is not None else "--output"
        raise _query_option_error("--json or another format, not both", f"--json and {other}", "leave --json out")
    if output is None:
        if format is None:
            return "table" if console.is_terminal(sys.stdout) else "csv"
        if format == "parquet":
            raise _query_option_error("a file for Parquet", "standard output", "-o answer.parquet")
        return format
    ending = os.path.splitext(output)[1].lower()
    by_name = _FORMATS_BY_EXTENSION.get(ending)
    if format == "table":
        raise _query_option_error("csv, tsv, jsonl or parquet for a file", "table", "-o answer.csv")
    if format is None and by_name is None:
        raise _query_option_error(
            "a name that ends in .csv, .tsv, .jsonl or .parquet",
            truncate(escape_controls(os.path.basename(output))) or "no name",
            "-o answer.csv, or add --format csv",
            location=Location(path=output),
        )
    chosen = format or by_name
    assert chosen is not None
    return chosen


def _check_target(output: str, files: list[str]) -> None:
    """The result must not overwrite the data."""
    if os.path.realpath(output) in {os.path.realpath(file) for file in files}:
        raise error(
            "U631",
            "result would replace the data",
            location=Location(path=output),
            expected="a place of its own",
            found="one of the record files",
            do="-o answer.csv",
        )


def _query_option_error(expected: str, found: str, do: str, **where: Any) -> RekordError:
    return error("U605", "result cannot be written in this way", expected=expected, found=found, do=do, **where)
