"""`rekord split`: the records of a dataset dealt to other splits."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from rekord.cli import out as output
from rekord.cli import write_options as options
from rekord.cli.render import whole_number
from rekord.cli.rewrite import bad_records, forecast_only, is_about_records
from rekord.cli.written import document, say_outcome
from rekord.errors import RekordError

_DO = "rekord split --help"


def _number(option: str) -> Any:
    return whole_number(option, do=_DO)


def split(
    source: Annotated[
        str,
        typer.Argument(metavar="IN", help="A dataset: a folder, a file or a pattern.", show_default=False),
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="The folder to be made.", show_default=False)],
    split_: Annotated[
        str | None, typer.Option("--split", metavar="SPLITS", help="Ratios: train=0.8,val=0.2.")
    ] = None,
    split_by: Annotated[
        str | None, typer.Option("--split-by", metavar="KEY", help="Records of one value share a split.")
    ] = None,
    stratify: Annotated[
        str | None,
        typer.Option("--stratify", metavar="KEY", help="Exact ratios within each class of a column."),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option("--folds", metavar="N", help="Instead: fold0, fold1, …", parser=_number("--folds")),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="SPLIT", help="The records of this split alone.")
    ] = None,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Within each new split.")] = False,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Of splits and order.", parser=_number("--seed"))
    ] = 0,
    shard_size: Annotated[
        str, typer.Option("--shard-size", metavar="SIZE", help="Of a shard, about.")
    ] = "128MB",
    shards: Annotated[
        int | None,
        typer.Option("--shards", metavar="N", help="So many a split instead.", parser=_number("--shards")),
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option("--compression", metavar="NAME", help="none, gzip or zlib. Default: as IN has it."),
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", metavar="tfds", help="Also what tensorflow_datasets opens.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            help="How many work at once. Default: one a core.",
            parser=_number("--workers"),
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over, in place of what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Deal the records of a dataset anew.

    To other splits: by ratio, by group, by class, or in folds. IN stays as it is.
    """
    from rekord.verbs.resplitting import prepare_resplit

    began = time.perf_counter()
    try:
        prepared = prepare_resplit(
            source,
            out,
            split=options.splits(split_),  # type: ignore[arg-type]  # one name alone is refused there
            split_by=split_by,
            stratify=stratify,
            folds=folds,
            only=only,
            shuffle=shuffle,
            seed=seed,
            shard_size=shard_size,
            shards=shards,
            compression=compression,
            format=format_,
            workers=workers,
            fresh=fresh,
        )
        if dry_run:
            return forecast_only(prepared, as_json=as_json)
        outcome = prepared.run(progress=True)
    except RekordError as failure:
        if not is_about_records(failure):
            raise
        return bad_records(failure, as_json=as_json)
    except KeyboardInterrupt:
        output.tell("interrupted: run the same command again to continue")
        return 130
    seconds = time.perf_counter() - began
    if as_json:
        output.say_json(document(out, outcome, seconds))
    else:
        say_outcome(out, outcome, seconds)
    return 0
