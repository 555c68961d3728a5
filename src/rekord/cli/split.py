"""`rekord split`: the records of a dataset dealt to other splits."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from rekord.cli import options as shared
from rekord.cli import write_options as options
from rekord.cli.exit_handling import report, resumable
from rekord.cli.rewrite import forecast_only


def split(
    source: shared.In,
    out: shared.Out,
    split_: Annotated[
        str | None, typer.Option("--split", metavar="SPLITS", help="Ratios: train=0.8,val=0.2.")
    ] = None,
    split_by: Annotated[
        str | None, typer.Option("--split-by", metavar="KEY", help="Records of one value share a split.")
    ] = None,
    stratify: shared.Stratify = None,
    folds: Annotated[int | None, shared.number("--folds", "Instead: fold0, fold1, …")] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="SPLIT", help="The records of this split alone.")
    ] = None,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Within each new split.")] = False,
    seed: Annotated[int, shared.number("--seed", "Of splits and order.")] = 0,
    shard_size: shared.ShardSize = "128MB",
    shards: shared.Shards = None,
    compression: shared.Compression = None,
    format_: shared.Format = None,
    workers: shared.Workers = None,
    dry_run: shared.DryRun = False,
    fresh: shared.Fresh = False,
    as_json: shared.AsJson = False,
) -> int:
    """Deal the records of a dataset anew.

    To other splits: by ratio, by group, by class, or in folds. IN stays as it is.
    """
    from rekord.verbs.options import SplitOptions
    from rekord.verbs.split import prepare_resplit

    began = time.perf_counter()
    asked = SplitOptions(
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
        format=format_,  # type: ignore[arg-type]
        workers=workers,
        fresh=fresh,
    )
    with resumable(as_json=as_json):
        prepared = prepare_resplit(source, out, asked)
        if dry_run:
            return forecast_only(prepared, as_json=as_json)
        outcome = prepared.run(progress=True)
    return report(out, outcome, time.perf_counter() - began, as_json=as_json)
