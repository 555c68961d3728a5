"""`rekord balance`: a copy of a dataset with the requested number of records per class."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Annotated

from rekord.cli import console as output
from rekord.cli import options as shared
from rekord.cli import write_options as options
from rekord.cli.console import escape_controls, invalid_option, truncate
from rekord.cli.exit_handling import report_resumable
from rekord.cli.options import Panel, flag_option, integer_option, text_option
from rekord.report.formatting import format_count, format_duration

if TYPE_CHECKING:
    from rekord.verbs.balance import PreparedBalance

_MAX_SHOWN_CLASSES = 20


def balance(
    source: shared.InputArgument,
    out: shared.OutputArgument,
    by: Annotated[str, text_option("--by", "KEY", "Column of the class.")] = "label",
    method: Annotated[
        str, text_option("--method", "NAME", "How to balance: oversample, undersample or smote.")
    ] = "oversample",
    sampling_strategy: Annotated[
        str,
        text_option(
            "--strategy",
            "WHAT",
            "Records per class: a strategy of imbalanced-learn (auto, minority, …), a ratio such as 0.5, or counts: "
            "cat=500,dog=300.",
        ),
    ] = "auto",
    splits: Annotated[
        str | None,
        text_option("--splits", "A,B", "Splits to balance, each separately. Default: train.", Panel.SPLITS),
    ] = None,
    augment: Annotated[
        str | None, text_option("--augment", "A,B", "Augment the copies: flip, crop, rotate, colour.")
    ] = None,
    per_box: Annotated[
        str | None, text_option("--per-box", "A,B", "More columns with one value per box, for --augment.")
    ] = None,
    columns: Annotated[
        str | None, text_option("--columns", "A,B", "Numeric columns that smote interpolates. Default: all.")
    ] = None,
    k_neighbors: Annotated[int, integer_option("--k-neighbors", "Neighbours that smote interpolates between.")] = 5,
    no_shuffle: Annotated[
        bool, flag_option("--no-shuffle", "Keep the order, with the copies at the end.", Panel.SPLITS)
    ] = False,
    seed: Annotated[
        int, integer_option("--seed", "Seed for sampling, shuffling and augmentation.", Panel.SPLITS)
    ] = 0,
    shard_size: shared.ShardSizeOption = "128MB",
    shards: shared.ShardsOption = None,
    compression: shared.CompressionOption = None,
    format_: shared.FormatOption = None,
    workers: shared.WorkersOption = None,
    dry_run: shared.DryRunOption = False,
    fresh: shared.FreshOption = False,
    as_json: shared.JsonOption = False,
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
        splits=options.parse_optional_names(splits),
        augment=options.parse_optional_names(augment),
        per_box=options.parse_optional_names(per_box),
        columns=options.parse_optional_names(columns),
        k_neighbors=k_neighbors,
        shuffle=not no_shuffle,
        seed=seed,
        shard_size=shard_size,
        shards=shards,
        compression=compression,
        format=format_,  # type: ignore[arg-type]
        workers=workers,
        fresh=fresh,
    )
    with report_resumable(as_json=as_json):
        prepared = prepare_balance(source, out, requested)
        outcome = None if dry_run else prepared.run(progress=output.shows_progress())
    seconds = time.perf_counter() - began
    if as_json:
        run = {"dry_run": True} if outcome is None else {"resumed_shards": outcome.resumed_shards}
        output.print_json({**prepared.to_dict(), "seconds": round(seconds, 3), **run})
    else:
        _print_counts(prepared)
    if prepared.has_identical_copies:
        output.print_status("with flip alone, all copies of a record are identical: add crop, rotate or colour")
    if outcome is None:
        output.print_status("nothing was written")
    elif not as_json:
        done = "nothing to do, already complete" if outcome.nothing_to_do else f"in {format_duration(seconds)}"
        output.print_line(
            f"{escape_controls(out)}: {format_count(prepared.added, 'record')} added, {prepared.removed:,} "
            f"removed, {done}"
        )
        output.print_next(f"next: rekord stats {shlex.quote(escape_controls(out))}")
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
        output.print_line(f"{escape_controls(name)}, {escape_controls(records.by)}:")
        shown = list(before)[:_MAX_SHOWN_CLASSES]
        rows = [(truncate(escape_controls(one)), f"{before[one]:,}", f"→ {after[one]:,}") for one in shown]
        for line in output.align_columns(rows, "<><", separators=("  ", " ")):
            output.print_line(f"  {line}")
        if len(before) > len(shown):
            output.print_line(f"  … and {len(before) - len(shown):,} more")
        if records.without:
            output.print_line(f"  {format_count(records.without, 'record')} without a class, kept unchanged")
    kept = [escape_controls(name) for name in prepared.old.splits if name not in prepared.samples]
    if kept:
        output.print_line(f"unchanged: {', '.join(kept)}")
