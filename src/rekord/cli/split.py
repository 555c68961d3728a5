"""`rekord split`: the records of a dataset dealt to other splits."""

from __future__ import annotations

import time
from typing import Annotated

from rekord.cli import options as shared
from rekord.cli import write_options as options
from rekord.cli.exit_handling import report_conversion, report_resumable
from rekord.cli.options import flag_option, integer_option, text_option
from rekord.cli.rewrite import report_rewrite_forecast


def split(
    source: shared.InputArgument,
    out: shared.OutputArgument,
    split_: Annotated[str | None, text_option("--split", "SPLITS", "Ratios: train=0.8,val=0.2.")] = None,
    split_by: Annotated[
        str | None, text_option("--split-by", "KEY", "Records of one value share a split.")
    ] = None,
    stratify: shared.StratifyOption = None,
    folds: Annotated[int | None, integer_option("--folds", "Instead: fold0, fold1, …")] = None,
    only: Annotated[str | None, text_option("--only", "SPLIT", "The records of this split alone.")] = None,
    shuffle: Annotated[bool, flag_option("--shuffle", "Within each new split.")] = False,
    seed: Annotated[int, integer_option("--seed", "Of splits and order.")] = 0,
    shard_size: shared.ShardSizeOption = "128MB",
    shards: shared.ShardsOption = None,
    compression: shared.CompressionOption = None,
    format_: shared.FormatOption = None,
    workers: shared.WorkersOption = None,
    dry_run: shared.DryRunOption = False,
    fresh: shared.FreshOption = False,
    as_json: shared.JsonOption = False,
) -> int:
    """Deal the records of a dataset anew.

    To other splits: by ratio, by group, by class, or in folds. IN stays as it is.
    """
    from rekord.verbs.options import SplitOptions
    from rekord.verbs.split import prepare_split

    began = time.perf_counter()
    asked = SplitOptions(
        split=options.parse_splits(split_),  # type: ignore[arg-type]  # one name alone is refused there
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
    with report_resumable(as_json=as_json):
        prepared = prepare_split(source, out, asked)
        if dry_run:
            return report_rewrite_forecast(prepared, as_json=as_json)
        outcome = prepared.run(progress=True)
    return report_conversion(out, outcome, time.perf_counter() - began, as_json=as_json)
