"""`rekord rewrite` and `split`: a dataset as another one, copied, changed, or with other splits."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

from rekord.cli import console as output
from rekord.cli import options as shared
from rekord.cli import write_options as options
from rekord.cli.console import escape_controls, invalid_option
from rekord.cli.exit_handling import report_conversion, report_forecast, report_resumable
from rekord.cli.options import flag_option, integer_option, text_option
from rekord.report.formatting import format_byte_size, format_count

if TYPE_CHECKING:
    from rekord.conversion.derive import Derivation
    from rekord.verbs.rewrite.rewrite import PreparedRewrite


def rewrite(
    source: shared.InputArgument,
    out: shared.OutputArgument,
    also: Annotated[
        list[str] | None, text_option("--also", "PATH", "Another dataset to come behind IN; may be repeated.")
    ] = None,
    cast: Annotated[
        list[str] | None, text_option("--cast", "KEY=TYPE", "Another type, if nothing is lost: label=int64.")
    ] = None,
    rename: Annotated[list[str] | None, text_option("--rename", "OLD=NEW", "Another name for a column.")] = None,
    drop: Annotated[str | None, text_option("--drop", "A,B", "Leave these columns out.")] = None,
    keep: Annotated[str | None, text_option("--keep", "A,B", "Leave all others out.")] = None,
    fill: Annotated[
        list[str] | None, text_option("--fill", "KEY=VALUE", "What stands in for missing values.")
    ] = None,
    where: Annotated[str | None, text_option("--where", "SQL", "Only records of which this is true.")] = None,
    kind: shared.KindOption = None,
    schema: Annotated[
        str | None, text_option("--schema", "FILE", "Columns as they are to be: JSON or .pbtxt.")
    ] = None,
    index: Annotated[str | None, text_option("--index", "A,B", "More columns to keep in the index.")] = None,
    shard_size: shared.ShardSizeOption = "128MB",
    shards: shared.ShardsOption = None,
    compression: shared.CompressionOption = None,
    shuffle: Annotated[bool, flag_option("--shuffle", "Across each split.")] = False,
    seed: Annotated[int, integer_option("--seed", "Of the order.")] = 0,
    lossy: Annotated[bool, flag_option("--lossy", "Casts may cut off and round.")] = False,
    format_: shared.FormatOption = None,
    workers: shared.WorkersOption = None,
    dry_run: shared.DryRunOption = False,
    fresh: shared.FreshOption = False,
    as_json: shared.JsonOption = False,
) -> int:
    """Write a dataset anew, copied or changed.

    In other shards, another order, or with other columns. IN stays as it is.
    """
    from rekord.verbs.options import RewriteOptions
    from rekord.verbs.rewrite.rewrite import prepare_rewrite

    began = time.perf_counter()
    asked = RewriteOptions(
        kind=None if kind is None else kind.value,
        schema=options.read_schema(schema),
        cast=parse_pairs("--cast", cast, do="--cast label=int64"),
        rename=parse_pairs("--rename", rename, do="--rename old=new"),
        drop=options.parse_names(drop) if drop is not None else None,
        keep=options.parse_names(keep) if keep is not None else None,
        fill=_parse_fill_values(fill),
        where=where,
        index=options.parse_names(index),
        shard_size=shard_size,
        shards=shards,
        compression=compression,
        shuffle=shuffle,
        seed=seed,
        lossy=lossy,
        format=format_,  # type: ignore[arg-type]
        workers=workers,
        fresh=fresh,
    )
    with report_resumable(as_json=as_json):
        prepared = prepare_rewrite([source, *(also or ())], out, asked)
        shared.print_opaque_payload_note(prepared.olds[0].schema)
        if dry_run:
            return report_rewrite_forecast(prepared, as_json=as_json)
        outcome = prepared.run(progress=True)
    seconds = time.perf_counter() - began
    return report_conversion(out, outcome, seconds, as_json=as_json, also={"copied": prepared.copy is not None})


def split(
    source: shared.InputArgument,
    out: shared.OutputArgument,
    split_: Annotated[str | None, text_option("--split", "SPLITS", "Ratios: train=0.8,val=0.2.")] = None,
    split_by: Annotated[str | None, text_option("--split-by", "KEY", "Records of one value share a split.")] = None,
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


def parse_pairs(option: str, texts: list[str] | None, *, do: str) -> dict[str, str] | None:
    """`a=b,c=d`, and the option perhaps several times."""
    made: dict[str, str] = {}
    for part in [part for text in texts or () for part in text.split(",")]:
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip() or name.strip() in made:
            raise invalid_option(option, part, "a column and a value, each column once", do, code="U601")
        made[name.strip()] = value.strip()
    return made or None


def _parse_fill_values(texts: list[str] | None) -> dict[str, Any] | None:
    """`score=0.5`: the value as JSON, or else as a text."""
    made: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or name.strip() in made:
            raise invalid_option(
                "--fill", text, "a column and a value, each column once", "--fill score=0", code="U601"
            )
        try:
            made[name.strip()] = json.loads(value)
        except (ValueError, RecursionError):
            made[name.strip()] = value
    return made or None


def report_rewrite_forecast(prepared: PreparedRewrite, *, as_json: bool) -> int:
    """Say what would be written."""
    if prepared.conversion is not None:
        from rekord.verbs.forecast import forecast

        return report_forecast(prepared.out, forecast(prepared.conversion), as_json=as_json)
    assert prepared.copy is not None
    splits = summarize_copied_splits(prepared.copy)
    if as_json:
        told = {
            "dataset": prepared.out,
            "dry_run": True,
            "splits": splits,
            "bytes": prepared.copy.framed_bytes,
        }
        output.print_json(told)
        return 0
    for name, split in splits.items():
        output.print_line(
            f"{escape_controls(name)}: {format_count(split['records'], 'record')}, "
            f"{format_count(split['shards'], 'shard')}"
        )
    output.print_line(
        f"{format_byte_size(prepared.copy.framed_bytes or 0)} before compression, copied without decoding"
    )
    output.print_status("nothing was written")
    return 0


def summarize_copied_splits(wanted: Derivation) -> dict[str, dict[str, int]]:
    """The records and shards of each split of a dataset that would be made by copying."""
    from rekord.conversion.derive import CopiedShard

    return {
        name: {
            "records": sum(
                one.stretch.end - one.stretch.begin for one in split.shards if isinstance(one, CopiedShard)
            ),
            "shards": len(split.shards),
        }
        for name, split in wanted.splits.items()
    }
