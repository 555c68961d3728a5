"""`rekord rewrite`, `split` and `balance`: a copy of a dataset with other shards, columns, splits or class counts."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from rekord.cli import console, write_options
from rekord.cli import options as shared
from rekord.cli.console import escape_controls, invalid_option, truncate
from rekord.cli.exit_handling import report_conversion, report_forecast, report_resumable
from rekord.cli.options import Panel, flag_option, integer_option, text_option
from rekord.errors import RekordError, error
from rekord.report.formatting import format_byte_size, format_count, format_duration

if TYPE_CHECKING:
    from rekord.conversion.derive import Derivation
    from rekord.verbs.balance import PreparedBalance
    from rekord.verbs.rewrite import PreparedRewrite


@shared.with_options
def rewrite(
    source: str = shared.INPUT_ARGUMENT,
    out: str = shared.OUTPUT_ARGUMENT,
    *,
    also: list[str] | None = text_option(
        "--also", "PATH", "Another dataset, appended to IN; may be repeated.", Panel.SOURCE
    ),
    cast: list[str] | None = text_option(
        "--cast", "KEY=TYPE", "Convert a column to another type, if no value changes: label=int64.", Panel.COLUMNS
    ),
    rename: list[str] | None = text_option("--rename", "OLD=NEW", "Rename a column.", Panel.COLUMNS),
    drop: str | None = text_option("--drop", "A,B", "Drop these columns.", Panel.COLUMNS),
    keep: str | None = text_option("--keep", "A,B", "Drop all other columns.", Panel.COLUMNS),
    fill: list[str] | None = text_option(
        "--fill", "KEY=VALUE", "Value to store where a column is missing.", Panel.COLUMNS
    ),
    where: str | None = text_option("--where", "SQL", "Keep only records that match this condition.", Panel.SOURCE),
    kind: shared.PayloadForm | None = shared.KIND_OPTION,
    schema: str | None = text_option("--schema", "FILE", "Schema to write: JSON or .pbtxt.", Panel.COLUMNS),
    index: str | None = text_option("--index", "A,B", "Columns to add to the index.", Panel.OUTPUT),
    shuffle: bool = flag_option("--shuffle", "Shuffle records within each split.", Panel.SPLITS),
    seed: int = integer_option("--seed", "Seed for shuffling.", Panel.SPLITS, default=0),
    orient: bool = flag_option(
        "--orient", "Turn images upright as their EXIF says, with masks and boxes.", Panel.COLUMNS
    ),
    strip_metadata: bool = flag_option(
        "--strip-metadata", "Remove EXIF and texts from images, without encoding them again.", Panel.COLUMNS
    ),
    lossy: bool = flag_option("--lossy", "Allow --cast to truncate and round.", Panel.COLUMNS),
    output: shared.CopyOptions,
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Rewrite a dataset with other shards, another order or other columns.

    Records are copied without decoding where nothing in them changes. IN is not changed.
    """
    from rekord.verbs.options import RewriteOptions
    from rekord.verbs.rewrite import prepare_rewrite

    began = time.perf_counter()
    requested = RewriteOptions(
        kind=kind,
        schema=write_options.read_schema(schema),
        cast=parse_pairs("--cast", cast, do="--cast label=int64"),
        rename=parse_pairs("--rename", rename, do="--rename old=new"),
        drop=write_options.parse_optional_names(drop),
        keep=write_options.parse_optional_names(keep),
        fill=_parse_fill_values(fill),
        where=where,
        index=write_options.parse_names(index),
        shuffle=shuffle,
        seed=seed,
        lossy=lossy,
        transforms=write_options.parse_metadata_transforms(orient=orient, strip_metadata=strip_metadata),
        **output.to_dict(),
    )
    with report_resumable(as_json=as_json):
        prepared = prepare_rewrite([source, *(also or ())], out, requested)
        shared.print_opaque_payload_note(prepared.olds[0].schema)
        if output.dry_run:
            return report_rewrite_forecast(prepared, as_json=as_json)
        outcome = prepared.run(progress=console.shows_progress())
    seconds = time.perf_counter() - began
    return report_conversion(out, outcome, seconds, as_json=as_json, also={"copied": prepared.copy is not None})


@shared.with_options
def split(
    source: str = shared.INPUT_ARGUMENT,
    out: str = shared.OUTPUT_ARGUMENT,
    *,
    split_: str | None = text_option("--split", "A=0.8,B=0.2", "New splits by ratio.", Panel.SPLITS),
    split_by: str | None = text_option(
        "--split-by", "KEY", "Keep records with the same value in the same split.", Panel.SPLITS
    ),
    stratify: str | None = shared.STRATIFY_OPTION,
    folds: int | None = integer_option(
        "--folds", "Number of folds (fold0, fold1, …) instead of --split.", Panel.SPLITS
    ),
    only: str | None = text_option("--only", "SPLIT", "Use only the records of this split.", Panel.SOURCE),
    shuffle: bool = flag_option("--shuffle", "Shuffle records within each new split.", Panel.SPLITS),
    seed: int = integer_option("--seed", "Seed for splitting and shuffling.", Panel.SPLITS, default=0),
    output: shared.CopyOptions,
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Re-split a dataset.

    By ratio, by group, stratified by class, or into folds. IN is not changed.
    """
    from rekord.verbs.options import SplitOptions
    from rekord.verbs.split import prepare_split

    if split_ is None and folds is None:
        raise error("U605", "`rekord split` needs --split or --folds", do="--split train=0.8,val=0.2")
    began = time.perf_counter()
    requested = SplitOptions(
        split=write_options.parse_splits(split_),  # type: ignore[arg-type]  # one name alone is refused there
        split_by=split_by,
        stratify=stratify,
        folds=folds,
        only=only,
        shuffle=shuffle,
        seed=seed,
        **output.to_dict(),
    )
    with report_resumable(as_json=as_json):
        prepared = prepare_split(source, out, requested)
        if output.dry_run:
            return report_rewrite_forecast(prepared, as_json=as_json)
        outcome = prepared.run(progress=console.shows_progress())
    return report_conversion(out, outcome, time.perf_counter() - began, as_json=as_json)


def parse_pairs(option: str, texts: list[str] | None, *, do: str) -> dict[str, str] | None:
    """`a=b,c=d`, for an option that may be repeated."""
    made: dict[str, str] = {}
    for part in [part for text in texts or () for part in text.split(",")]:
        name, value = _parse_pair(option, part, made, do)
        if not value.strip():
            raise _invalid_pair(option, part, do)
        made[name] = value.strip()
    return made or None


def _parse_fill_values(texts: list[str] | None) -> dict[str, Any] | None:
    """`score=0.5`: the value as JSON, or as text if it is not JSON."""
    made: dict[str, Any] = {}
    for text in texts or ():
        name, value = _parse_pair("--fill", text, made, "--fill score=0")
        try:
            made[name] = json.loads(value)
        except (ValueError, RecursionError):
            made[name] = value
    return made or None


def _parse_pair(option: str, text: str, known: Collection[str], do: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or name.strip() in known:
        raise _invalid_pair(option, text, do)
    return name.strip(), value


def _invalid_pair(option: str, text: str, do: str) -> RekordError:
    return invalid_option(option, text, "a column and a value, each column once", do, code="U601")


def report_rewrite_forecast(prepared: PreparedRewrite, *, as_json: bool) -> int:
    """Print what would be written."""
    if prepared.conversion is not None:
        from rekord.verbs.forecast import forecast

        return report_forecast(prepared.out, forecast(prepared.conversion), as_json=as_json)
    assert prepared.copy is not None
    splits = summarize_copied_splits(prepared.copy)
    framed_bytes = prepared.copy.framed_bytes
    if as_json:
        console.print_json({"dataset": prepared.out, "dry_run": True, "splits": splits, "bytes": framed_bytes})
        return 0
    for name, split in splits.items():
        console.print_line(
            f"{escape_controls(name)}: {format_count(split['records'], 'record')}, "
            f"{format_count(split['shards'], 'shard')}"
        )
    console.print_line(f"{format_byte_size(framed_bytes or 0)} before compression, copied without decoding")
    console.print_status("nothing was written")
    return 0


def summarize_copied_splits(wanted: Derivation) -> dict[str, dict[str, int]]:
    """The records and shards of each split that would be copied."""
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


_MAX_SHOWN_CLASSES = 20


@shared.with_options
def balance(
    source: str = shared.INPUT_ARGUMENT,
    out: str = shared.OUTPUT_ARGUMENT,
    *,
    by: str = text_option("--by", "KEY", "Column of the class.", default="label"),
    method: str = text_option(
        "--method", "NAME", "How to balance: oversample, undersample or smote.", default="oversample"
    ),
    sampling_strategy: str = text_option(
        "--strategy",
        "WHAT",
        "Records per class: a strategy of imbalanced-learn (auto, minority, …), a ratio such as 0.5, or counts: "
        "cat=500,dog=300.",
        default="auto",
    ),
    splits: str | None = text_option(
        "--splits", "A,B", "Splits to balance, each separately. Default: train.", Panel.SPLITS
    ),
    augment: str | None = text_option("--augment", "A,B", "Augment the copies: flip, crop, rotate, colour."),
    per_box: str | None = text_option("--per-box", "A,B", "More columns with one value per box, for --augment."),
    columns: str | None = text_option("--columns", "A,B", "Numeric columns that smote interpolates. Default: all."),
    k_neighbors: int = integer_option("--k-neighbors", "Neighbours that smote interpolates between.", default=5),
    no_shuffle: bool = flag_option("--no-shuffle", "Keep the order, with the copies at the end.", Panel.SPLITS),
    seed: int = integer_option("--seed", "Seed for sampling, shuffling and augmentation.", Panel.SPLITS, default=0),
    output: shared.CopyOptions,
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Balance the classes of a dataset by copying, dropping or synthesising records.

    Each split is balanced separately. IN is not changed. The exit code is 1 if a record is damaged.
    """
    from rekord.verbs.balance import prepare_balance
    from rekord.verbs.options import BalanceOptions

    began = time.perf_counter()
    requested = BalanceOptions(
        by=by,
        method=method,  # type: ignore[arg-type]
        sampling_strategy=parse_strategy(sampling_strategy),
        splits=write_options.parse_optional_names(splits),
        augment=write_options.parse_optional_names(augment),
        per_box=write_options.parse_optional_names(per_box),
        columns=write_options.parse_optional_names(columns),
        k_neighbors=k_neighbors,
        shuffle=not no_shuffle,
        seed=seed,
        **output.to_dict(),
    )
    with report_resumable(as_json=as_json):
        prepared = prepare_balance(source, out, requested)
        outcome = None if output.dry_run else prepared.run(progress=console.shows_progress())
    seconds = time.perf_counter() - began
    if as_json:
        run = {"dry_run": True} if outcome is None else {"resumed_shards": outcome.resumed_shards}
        console.print_json({**prepared.to_dict(), "seconds": round(seconds, 3), **run})
    else:
        _print_counts(prepared)
    if prepared.has_identical_copies:
        console.print_status("with flip alone, all copies of a record are identical: add crop, rotate or colour")
    if outcome is None:
        console.print_status("nothing was written")
    elif not as_json:
        done = "nothing to do, already complete" if outcome.nothing_to_do else f"in {format_duration(seconds)}"
        console.print_line(
            f"{escape_controls(out)}: {format_count(prepared.added, 'record')} added, {prepared.removed:,} "
            f"removed, {done}"
        )
        console.print_next(f"next: rekord stats {shlex.quote(escape_controls(out))}")
    return 0


def parse_strategy(text: str) -> str | float | dict[str, int]:
    """`auto`, `0.5`, or `cat=500,dog=300`."""
    if "=" not in text:
        try:
            return float(text)
        except ValueError:
            return text
    counts: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.rpartition("="))
        if not name or name in counts or not (number.isascii() and number.isdigit() and len(number) < 16):
            expected = "a number of records per class, each class once"
            raise invalid_option("--strategy", text, expected, "--strategy cat=500,dog=300", found=part, code="U601")
        counts[name] = int(number)
    return counts


def _print_counts(prepared: PreparedBalance) -> None:
    """Print the records per class, before and after."""
    for name, draw in prepared.samples.items():
        records = draw.labelled
        before, after = records.named(records.counts), records.named(draw.after)
        console.print_line(f"{escape_controls(name)}, {escape_controls(records.by)}:")
        shown = list(before)[:_MAX_SHOWN_CLASSES]
        rows = [(truncate(escape_controls(one)), f"{before[one]:,}", f"→ {after[one]:,}") for one in shown]
        console.print_table(rows, "<><", separators=("  ", " "))
        if len(before) > len(shown):
            console.print_line(f"  … and {len(before) - len(shown):,} more")
        if records.without:
            console.print_line(f"  {format_count(records.without, 'record')} without a class, kept unchanged")
    kept = [escape_controls(name) for name in prepared.old.splits if name not in prepared.samples]
    if kept:
        console.print_line(f"unchanged: {', '.join(kept)}")
