"""`rekord relabel`: a dataset with other labels."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rekord.cli import edited
from rekord.cli import shared_options as shared
from rekord.cli import write_options as options
from rekord.cli.render import clean, cut
from rekord.errors import RekordError, error


def relabel(
    path: edited.In,
    out: edited.Out = None,
    set_: Annotated[
        str | None,
        typer.Option(
            "--set", metavar="KEY=CLASS", help="This class, for the records of --where or --records."
        ),
    ] = None,
    where: edited.WhereRecords = None,
    records: edited.RecordsFile = None,
    map_labels: Annotated[
        str | None,
        typer.Option("--map-labels", metavar="OLD=NEW", help="Rename classes, or merge them into others."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE.csv", help="Labels by a key, or by split and record."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="What tells records apart in --from.")
    ] = None,
    column: Annotated[
        str | None, typer.Option("--column", metavar="KEY", help="The only Label, or label, unless said.")
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option("--names", metavar="A,B|N", help="All classes, in order; or how many there are."),
    ] = None,
    split: shared.OnlySplits = None,
    replace: edited.Replace = False,
    workers: edited.Workers = None,
    fresh: shared.Fresh = False,
    as_json: shared.AsJson = False,
) -> int:
    """Make a dataset with other labels. Shards that have none of them are linked, not copied.

    A class that is mapped to a new name is called so; one that is mapped to another class is gone from the list.
    """
    from rekord.verbs.relabel import relabelled

    target = edited.target("relabel", out, replace=replace, workers=workers, fresh=fresh)
    given = [
        name
        for name, value in (("--set", set_), ("--map-labels", map_labels), ("--from", file))
        if value is not None
    ]
    if len(given) > 1:
        raise error("U601", f"`{given[0]}` cannot stand beside `{given[1]}`", do="rekord relabel --help")
    change: Any = None
    if set_ is not None:
        named, value = _pair("--set", set_)
        if column not in (None, named):
            raise error("U601", "`--set` and `--column` name two columns", do="leave --column out")
        column, change = named, value
    if map_labels is not None:
        pairs = [_pair("--map-labels", part) for part in map_labels.split(",") if part]
        change = dict(pairs)
        if len(change) < len(pairs):
            raise _refused("--map-labels", map_labels, "each class once")
    return edited.run(
        lambda: relabelled(
            path,
            target,
            change,
            column=column,
            where=where,
            records=records,
            file=file,
            key=key,
            names=_names(classes),
            split=None if split is None else list(options.names(split)),
        ),
        "relabelled",
        as_json=as_json,
    )


def _names(given: str | None) -> Any:
    """All classes: a list of them, or how many."""
    if given is None:
        return None
    many = given.isascii() and given.isdigit() and len(given) < 10
    return int(given) if many else [name for name in given.split(",") if name]


def _pair(option: str, text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise _refused(option, text, "two names: A=B")
    return name, value


def _refused(option: str, text: str, expected: str) -> RekordError:
    found = cut(clean(text))
    return error(
        "U605",
        f"`{option}` cannot be {cut(clean(repr(text)))}",
        expected=expected,
        found=found or "nothing",
        do="rekord relabel --help",
    )
