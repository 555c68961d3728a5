"""`rekord append`, `delete` and `relabel`: a new dataset that differs from its input in some records."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rekord.cli import console as output
from rekord.cli import options as shared
from rekord.cli import write_options as options
from rekord.cli.console import escape_controls, invalid_option
from rekord.cli.exit_handling import report_resumable, split_rows
from rekord.cli.flag_hints import format_running_command
from rekord.cli.options import Panel, argument, flag_option, integer_option, option_group, text_option
from rekord.errors import error
from rekord.report.formatting import format_count, format_duration

if TYPE_CHECKING:
    from rekord.verbs.edit.common import EditResult, EditTarget
    from rekord.verbs.options import EditOptions


_DATA_ERROR_CODES = ("X510", "X571", "X572")

EDIT_INPUT = argument("IN", "Dataset to edit, written by rekord.")
EDIT_OUTPUT = argument("OUT", "Folder to create. Left out with --replace.", default=None)
WHERE_OPTION = text_option("--where", "SQL", "Select records by a condition on columns.", Panel.SOURCE)
RECORDS_OPTION = text_option("--records", "FILE", "Select records by a file of lines such as train,3.", Panel.SOURCE)


@option_group(Panel.OUTPUT)
class EditRunOptions:
    """How an edit runs, and where its result goes."""

    replace: bool = flag_option("--replace", "Replace IN by the new dataset.")
    workers: int | None = shared.WORKERS_OPTION
    fresh: bool = shared.FRESH_OPTION


def resolve_target(verb: str, path: str, out: str | None, options: EditOptions) -> EditTarget:
    """The path of the new dataset."""
    from rekord.verbs.edit.common import resolve_edit_target

    if (out is None) == (not options.replace):
        what = "OUT, or --replace" if out is None else "either OUT or --replace, not both"
        do = format_running_command(out=f"{path.rstrip('/')}-new") if out is None else "leave --replace out"
        raise error("U601", f"`rekord {verb}` needs {what}", do=do)
    return resolve_edit_target(out, options, progress=output.shows_progress())


def run_edit_command(edit: Callable[[], EditResult], done: str, *, as_json: bool) -> int:
    """Edit, and report the outcome; `done` is what was done to records, such as `deleted`."""
    began = time.perf_counter()
    left = "nothing was published, and IN is unchanged"
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
        output.print_line(f"nothing to do: no records of {place} are {done}")
    elif ended.nothing_to_do:
        output.print_line(f"nothing to do: {place} is already complete, {format_count(changed, 'record')} {done}")
    else:
        output.print_line(
            f"{place}: {format_count(changed, 'record')} {done}, {format_count(records, 'record')} in total,"
            f" in {format_duration(seconds)}"
        )
    changes = [f"{ended.counts.get(name, 0):,} {done}" for name in parts]
    rows = [[*row, change] for row, change in zip(split_rows(ended.manifest), changes, strict=True)]
    output.print_table(rows, "<>>>>")
    if ended.linked_shards or ended.written_shards:
        output.print_line(
            f"{format_count(ended.linked_shards, 'shard')} linked, "
            f"{format_count(ended.written_shards, 'shard')} written"
        )
    output.print_next(f"next: rekord check {shlex.quote(place)}")


@shared.with_options
def append(
    path: str = EDIT_INPUT,
    out: str | None = EDIT_OUTPUT,
    *,
    source: str = text_option(
        "--from", "SOURCE", "Raw data: a folder, file or glob pattern.", default=shared.REQUIRED
    ),
    split: str | None = text_option(
        "--split", "A=0.9,B=0.1", "Splits of the new records: a name (default: train), ratios, or source."
    ),
    map_: str | None = shared.MAP_OPTION,
    shard_size: str = text_option("--shard-size", "SIZE", "Approximate size of a new shard.", default="128MB"),
    shards: int | None = integer_option("--shards", "New shards per split; overrides --shard-size.", do="--shards 2"),
    verify: str = shared.VERIFY_OPTION,
    limit: int | None = shared.LIMIT_ROWS_OPTION,
    run: EditRunOptions,
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Append records to a dataset. They go into new shards; existing shards are linked, not copied.

    Rows must match the schema of IN; the exit code is 1 if one does not.
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
        **vars(run),
    )
    target = resolve_target("append", path, out, requested)
    return run_edit_command(lambda: append_rows(path, source, target, requested), "appended", as_json=as_json)


@shared.with_options
def delete(
    path: str = EDIT_INPUT,
    out: str | None = EDIT_OUTPUT,
    *,
    where: str | None = WHERE_OPTION,
    records: str | None = RECORDS_OPTION,
    split: str | None = shared.SPLITS_OPTION,
    run: EditRunOptions,
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Delete records from a dataset. Shards that contain none of them are linked, not copied.

    Deletes the records that --where selects or --records lists; records whose condition is NULL are kept. Nothing
    of a deleted record remains in the new dataset.
    """
    from rekord.verbs.edit.change import delete_records
    from rekord.verbs.options import DeleteOptions

    requested = DeleteOptions(
        where=where,
        records=records,
        split=options.parse_optional_names(split),
        **vars(run),
    )
    target = resolve_target("delete", path, out, requested)
    if (where is None) == (records is None):
        what = "needs --where or --records" if where is None else "takes --where or --records, not both"
        raise error("U601", f"`rekord delete` {what}", do="rekord delete --help")
    return run_edit_command(lambda: delete_records(path, target, requested), "deleted", as_json=as_json)


@shared.with_options
def relabel(
    path: str = EDIT_INPUT,
    out: str | None = EDIT_OUTPUT,
    *,
    set_: str | None = text_option("--set", "KEY=CLASS", "Class to set for the records of --where or --records."),
    where: str | None = WHERE_OPTION,
    records: str | None = RECORDS_OPTION,
    map_labels: str | None = text_option("--map-labels", "OLD=NEW", "Rename classes, or merge them into others."),
    file: str | None = text_option("--from", "FILE.csv", "CSV of labels by --key, or by split and record."),
    key: str | None = text_option("--key", "KEY", "Column that identifies records in --from."),
    column: str | None = text_option("--column", "KEY", "Column to relabel. Default: the only Label, or label."),
    classes: str | None = text_option("--names", "A,B|N", "All class names in order, or the number of classes."),
    split: str | None = shared.SPLITS_OPTION,
    run: EditRunOptions,
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Change labels of a dataset. Shards that contain none of them are linked, not copied.

    Mapping a class to a new name renames it; mapping it to an existing class merges it into that class.
    """
    from rekord.verbs.edit.change import relabel_records
    from rekord.verbs.options import RelabelOptions

    given = [
        name for name, value in (("--set", set_), ("--map-labels", map_labels), ("--from", file)) if value is not None
    ]
    if len(given) > 1:
        raise error("U601", f"`{given[0]}` and `{given[1]}` exclude each other", do="rekord relabel --help")
    change: Any = None
    if set_ is not None:
        named, value = _parse_pair("--set", set_, "--set label=tulip")
        if column not in (None, named):
            raise error("U601", "`--set` and `--column` name different columns", do="leave --column out")
        column, change = named, value
    if map_labels is not None:
        do = "--map-labels tulp=tulip"
        pairs = [_parse_pair("--map-labels", part, do) for part in map_labels.split(",") if part]
        change = dict(pairs)
        if len(change) < len(pairs):
            raise invalid_option("--map-labels", map_labels, "each class once", do)
    requested = RelabelOptions(
        column=column,
        where=where,
        records=records,
        file=file,
        key=key,
        names=_parse_class_names(classes),
        split=options.parse_optional_names(split),
        **vars(run),
    )
    target = resolve_target("relabel", path, out, requested)
    if change is None and file is None and classes is None:
        what = "`rekord relabel` needs --map-labels, --set, --from or --names"
        raise error("U605", what, do="rekord relabel --help")
    return run_edit_command(lambda: relabel_records(path, target, change, requested), "relabelled", as_json=as_json)


def _parse_class_names(given: str | None) -> Any:
    """All classes: their names, or their number."""
    if given is None:
        return None
    is_number = given.isascii() and given.isdigit() and len(given) < 10
    return int(given) if is_number else [name for name in given.split(",") if name]


def _parse_pair(option: str, text: str, do: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise invalid_option(option, text, "two names: A=B", do)
    return name, value
