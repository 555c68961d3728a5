"""`rekord append`: a dataset with more records."""

from __future__ import annotations

from typing import Annotated

import typer

from rekord.cli import edited
from rekord.cli import shared_options as shared
from rekord.cli import write_options as options
from rekord.cli.render import whole_number


def append(
    path: edited.In,
    out: edited.Out = None,
    source: Annotated[
        str,
        typer.Option(
            "--from", metavar="SOURCE", help="Raw data: a folder, a file or a pattern.", show_default=False
        ),
    ] = ...,  # type: ignore[assignment]
    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            metavar="SPLIT",
            help="Where records go: train, unless said; or source, or a=0.9,b=0.1.",
        ),
    ] = None,
    map_: shared.Map = None,
    shard_size: Annotated[
        str, typer.Option("--shard-size", metavar="SIZE", help="Of a new shard, about.")
    ] = "128MB",
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards",
            metavar="N",
            help="So many new ones a split instead.",
            parser=whole_number("--shards", do="--shards 2"),
        ),
    ] = None,
    verify: shared.Verify = "full",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            help="The first N rows only.",
            parser=whole_number("--limit", do="--limit 10"),
        ),
    ] = None,
    replace: edited.Replace = False,
    workers: edited.Workers = None,
    fresh: shared.Fresh = False,
    as_json: shared.AsJson = False,
) -> int:
    """Make a dataset with more records. They go into new shards; those that exist are linked, not copied.

    Rows have the form in which IN was written, and must fit its schema: exit code 1 where one does not.
    """
    from rekord.verbs.append import appended

    target = edited.target("append", out, replace=replace, workers=workers, fresh=fresh)
    return edited.run(
        lambda: appended(
            path,
            source,
            target,
            split=options.splits(split),
            map=options.function(map_),
            shard_size=shard_size,
            shards=shards,
            verify=verify,  # type: ignore[arg-type]
            limit=limit,
        ),
        "appended",
        as_json=as_json,
    )
