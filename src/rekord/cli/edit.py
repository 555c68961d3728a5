"""`rekord append`, `delete` and `relabel`: a new dataset that differs from another in some records."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from rekord.cli import console as output
from rekord.cli import options as shared
from rekord.cli import write_options as options
from rekord.cli.console import escape_controls, invalid_option
from rekord.cli.exit_handling import report_resumable
from rekord.cli.options import argument, flag_option, integer_option, text_option
from rekord.errors import error
from rekord.report.formatting import format_byte_size, format_count, format_duration

if TYPE_CHECKING:
    from rekord.verbs.edit.common import EditResult, EditTarget
    from rekord.verbs.options import EditOptions


_DATA_ERROR_CODES = ("X510", "X571", "X572")

EditInput: TypeAlias = Annotated[str, argument("IN", "A dataset that rekord wrote.")]
EditOutput: TypeAlias = Annotated[str | None, argument("OUT", "The folder to be made. None beside --replace.")]
ReplaceOption: TypeAlias = Annotated[bool, flag_option("--replace", "Put the new dataset in the place of IN.")]
WhereOption: TypeAlias = Annotated[
    str | None, text_option("--where", "SQL", "Which records: a condition over columns.")
]
RecordsOption: TypeAlias = Annotated[
    str | None, text_option("--records", "FILE", "Which records: a file of lines such as train,3.")
]
EditWorkers: TypeAlias = Annotated[
    int | None, integer_option("--workers", "How many work at once. Default: one a core.", do="--workers 2")
]


def resolve_target(verb: str, out: str | None, options: EditOptions) -> EditTarget:
    """Where the new dataset goes, as the command line says."""
    from rekord.verbs.edit.common import resolve_edit_target

    if (out is None) == (not options.replace):
        what = "OUT, or --replace" if out is None else "either OUT or --replace, not both"
        raise error("U601", f"`rekord {verb}` needs {what}", do=f"rekord {verb} --help")
    return resolve_edit_target(out, options, progress=True)


def run_edit_command(edit: Callable[[], EditResult], done: str, *, as_json: bool) -> int:
    """Edit, and say how it ended; `done` is what was done to records."""
    began = time.perf_counter()
    left = "nothing was published, and IN is as it was"
    with report_resumable(_DATA_ERROR_CODES, as_json=as_json, left=left):
        ended = edit()
    seconds = time.perf_counter() - began
    for note in ended.notes:
        output.print_status(f"note: {escape_controls(note)}")
    if ended.left is not None:
        output.print_status(f"files that rekord did not write were kept in {escape_controls(ended.left)}")
    if as_json:
        output.print_json({**ended.to_dict(done), "seconds": round(seconds, 3)})
    else:
        _print_result(ended, done, seconds)
    return 0


def _print_result(ended: EditResult, done: str, seconds: float) -> None:
    parts = ended.manifest.splits
    records = sum(part.records for part in parts.values())
    changed = sum(ended.counts.values())
    place = escape_controls(ended.dataset)
    if ended.nothing_to_do and not changed:
        output.print_line(f"nothing to do: no record of {place} is {done}")
    elif ended.nothing_to_do:
        output.print_line(f"nothing to do: {place} is complete already, {format_count(changed, 'record')} {done}")
    else:
        output.print_line(
            f"{place}: {format_count(changed, 'record')} {done}, {format_count(records, 'record')} in all,"
            f" in {format_duration(seconds)}"
        )
    rows = [
        (
            escape_controls(name),
            format_count(part.records, "record"),
            format_count(len(part.shards.records), "shard"),
            format_byte_size(sum(part.shards.bytes)),
            f"{ended.counts.get(name, 0):,} {done}",
        )
        for name, part in parts.items()
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(5)] if rows else []
    for row in rows:
        output.print_line(
            f"  {row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}"
            f"  {row[3]:>{widths[3]}}  {row[4]:>{widths[4]}}"
        )
    if ended.linked_shards or ended.written_shards:
        output.print_line(
            f"{format_count(ended.linked_shards, 'shard')} linked, "
            f"{format_count(ended.written_shards, 'shard')} written"
        )
    output.print_line(f"next: rekord check {shlex.quote(place)}")


def append(
    path: EditInput,
    out: EditOutput = None,
    source: Annotated[
        str,
        typer.Option("--from", metavar="SOURCE", help="Raw data: a folder, a file or a pattern.", show_default=False),
    ] = ...,  # type: ignore[assignment]
    split: Annotated[
        str | None,
        text_option("--split", "SPLIT", "Where records go: train, unless said; or source, or a=0.9,b=0.1."),
    ] = None,
    map_: shared.MapOption = None,
    shard_size: Annotated[str, text_option("--shard-size", "SIZE", "Of a new shard, about.")] = "128MB",
    shards: Annotated[
        int | None, integer_option("--shards", "So many new ones a split instead.", do="--shards 2")
    ] = None,
    verify: shared.VerifyOption = "full",
    limit: Annotated[int | None, integer_option("--limit", "The first N rows only.", do="--limit 10")] = None,
    replace: ReplaceOption = False,
    workers: EditWorkers = None,
    fresh: shared.FreshOption = False,
    as_json: shared.JsonOption = False,
) -> int:
    """Make a dataset with more records. They go into new shards; those that exist are linked, not copied.

    Rows have the form in which IN was written, and must fit its schema: exit code 1 where one does not.
    """
    from rekord.verbs.edit.append import append_rows
    from rekord.verbs.options import AppendOptions

    requested = AppendOptions(
        split=options.parse_splits(split),
        map=options.load_function(map_),
        shard_size=shard_size,
        shards=shards,
        verify=verify,  # type: ignore[arg-type]
        limit=limit,
        replace=replace,
        workers=workers,
        fresh=fresh,
    )
    target = resolve_target("append", out, requested)
    return run_edit_command(lambda: append_rows(path, source, target, requested), "appended", as_json=as_json)


def delete(
    path: EditInput,
    out: EditOutput = None,
    where: WhereOption = None,
    records: RecordsOption = None,
    split: shared.SplitsOption = None,
    replace: ReplaceOption = False,
    workers: EditWorkers = None,
    fresh: shared.FreshOption = False,
    as_json: shared.JsonOption = False,
) -> int:
    """Make a dataset without some records. Shards that have none of them are linked, not copied.

    Records are those that --where says, or those that --records lists. Records of which the condition is NULL stay.
    Nothing of a deleted record is in the new dataset.
    """
    from rekord.verbs.edit.delete import delete_records
    from rekord.verbs.options import DeleteOptions

    requested = DeleteOptions(
        where=where,
        records=records,
        split=None if split is None else options.parse_names(split),
        replace=replace,
        workers=workers,
        fresh=fresh,
    )
    target = resolve_target("delete", out, requested)
    if (where is None) == (records is None):
        what = "needs --where or --records" if where is None else "takes --where or --records, not both"
        raise error("U601", f"`rekord delete` {what}", do="rekord delete --help")
    return run_edit_command(lambda: delete_records(path, target, requested), "deleted", as_json=as_json)


def relabel(
    path: EditInput,
    out: EditOutput = None,
    set_: Annotated[
        str | None, text_option("--set", "KEY=CLASS", "This class, for the records of --where or --records.")
    ] = None,
    where: WhereOption = None,
    records: RecordsOption = None,
    map_labels: Annotated[
        str | None, text_option("--map-labels", "OLD=NEW", "Rename classes, or merge them into others.")
    ] = None,
    file: Annotated[str | None, text_option("--from", "FILE.csv", "Labels by a key, or by split and record.")] = None,
    key: Annotated[str | None, text_option("--key", "KEY", "What tells records apart in --from.")] = None,
    column: Annotated[str | None, text_option("--column", "KEY", "The only Label, or label, unless said.")] = None,
    classes: Annotated[
        str | None, text_option("--names", "A,B|N", "All classes, in order; or how many there are.")
    ] = None,
    split: shared.SplitsOption = None,
    replace: ReplaceOption = False,
    workers: EditWorkers = None,
    fresh: shared.FreshOption = False,
    as_json: shared.JsonOption = False,
) -> int:
    """Make a dataset with other labels. Shards that have none of them are linked, not copied.

    A class that is mapped to a new name is called so; one that is mapped to another class is gone from the list.
    """
    from rekord.verbs.edit.relabel import relabel_records
    from rekord.verbs.options import RelabelOptions

    given = [
        name for name, value in (("--set", set_), ("--map-labels", map_labels), ("--from", file)) if value is not None
    ]
    if len(given) > 1:
        raise error("U601", f"`{given[0]}` cannot stand beside `{given[1]}`", do="rekord relabel --help")
    change: Any = None
    if set_ is not None:
        named, value = _parse_pair("--set", set_)
        if column not in (None, named):
            raise error("U601", "`--set` and `--column` name two columns", do="leave --column out")
        column, change = named, value
    if map_labels is not None:
        pairs = [_parse_pair("--map-labels", part) for part in map_labels.split(",") if part]
        change = dict(pairs)
        if len(change) < len(pairs):
            raise invalid_option("--map-labels", map_labels, "each class once", "rekord relabel --help")
    requested = RelabelOptions(
        column=column,
        where=where,
        records=records,
        file=file,
        key=key,
        names=_parse_class_names(classes),
        split=None if split is None else options.parse_names(split),
        replace=replace,
        workers=workers,
        fresh=fresh,
    )
    target = resolve_target("relabel", out, requested)
    return run_edit_command(lambda: relabel_records(path, target, change, requested), "relabelled", as_json=as_json)


def _parse_class_names(given: str | None) -> Any:
    """All classes: a list of them, or how many."""
    if given is None:
        return None
    many = given.isascii() and given.isdigit() and len(given) < 10
    return int(given) if many else [name for name in given.split(",") if name]


def _parse_pair(option: str, text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise invalid_option(option, text, "two names: A=B", "rekord relabel --help")
    return name, value
