"""`rekord balance`: a dataset whose classes have as many records as is asked for."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Annotated, Any

from rekord.cli import console as output
from rekord.cli import options as shared
from rekord.cli import write_options as options
from rekord.cli.console import escape_controls, truncate
from rekord.cli.exit_handling import report_resumable
from rekord.cli.options import flag_option, integer_option, text_option
from rekord.errors import error
from rekord.report.formatting import format_count, format_duration

if TYPE_CHECKING:
    from rekord.verbs.balance.balance import PreparedBalance

_MAX_SHOWN_CLASSES = 20


def balance(
    source: shared.InputArgument,
    out: shared.OutputArgument,
    by: Annotated[str, text_option("--by", "KEY", "The column of the class.")] = "label",
    method: Annotated[str, text_option("--method", "NAME", "oversample, undersample or smote.")] = "oversample",
    strategy: Annotated[
        str,
        text_option("--strategy", "WHAT", "How many: auto, minority, …, a ratio such as 0.5, or cat=500,dog=300."),
    ] = "auto",
    splits: Annotated[
        str | None, text_option("--splits", "A,B", "Those to be balanced, each on its own. Default: train.")
    ] = None,
    augment: Annotated[
        str | None, text_option("--augment", "A,B", "Vary the copies: flip, crop, rotate, colour.")
    ] = None,
    per_box: Annotated[
        str | None, text_option("--per-box", "A,B", "Columns with a value for each box, beside the usual.")
    ] = None,
    columns: Annotated[
        str | None, text_option("--columns", "A,B", "Of smote: the numbers of a vector. Default: all.")
    ] = None,
    k_neighbors: Annotated[int, integer_option("--k-neighbors", "Of smote: so many neighbours.")] = 5,
    no_shuffle: Annotated[
        bool, flag_option("--no-shuffle", "Keep the order; copies come behind all others.")
    ] = False,
    seed: Annotated[int, integer_option("--seed", "Of choice, order and copies.")] = 0,
    shard_size: shared.ShardSizeOption = "128MB",
    shards: shared.ShardsOption = None,
    compression: shared.CompressionOption = None,
    format_: shared.FormatOption = None,
    workers: shared.WorkersOption = None,
    dry_run: shared.DryRunOption = False,
    fresh: shared.FreshOption = False,
    as_json: shared.JsonOption = False,
) -> int:
    """Balance the classes of a dataset.

    With copies, fewer records, or new ones, in each split on its own. IN stays as it is. Exit code 1 where a record
    is damaged.
    """
    from rekord.verbs.balance.balance import prepare_balance
    from rekord.verbs.options import BalanceOptions

    began = time.perf_counter()
    asked = BalanceOptions(
        by=by,
        method=method,  # type: ignore[arg-type]
        sampling_strategy=parse_strategy(strategy),
        splits=None if splits is None else list(options.parse_names(splits)),
        augment=None if augment is None else list(options.parse_names(augment)),
        per_box=None if per_box is None else list(options.parse_names(per_box)),
        columns=None if columns is None else list(options.parse_names(columns)),
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
        prepared = prepare_balance(source, out, asked)
        outcome = None if dry_run else prepared.run(progress=True)
    seconds = time.perf_counter() - began
    told: dict[str, Any] = {**prepared.to_dict(), "seconds": round(seconds, 3)}
    if outcome is None:
        told["dry_run"] = True
    else:
        told["resumed_shards"] = outcome.resumed_shards
    if as_json:
        output.print_json(told)
    else:
        _print_counts(prepared)
    if prepared.has_identical_copies:
        output.print_status("with flip alone all copies of a record look alike: add crop, rotate or colour")
    if outcome is None:
        output.print_status("nothing was written")
    elif not as_json:
        done = "nothing to do, complete already" if outcome.nothing_to_do else f"in {format_duration(seconds)}"
        output.print_line(
            f"{escape_controls(out)}: {format_count(prepared.added, 'record')} added, {prepared.removed:,} "
            f"removed, {done}"
        )
        output.print_line(f"next: rekord stats {shlex.quote(escape_controls(out))}")
    return 0


def parse_strategy(text: str) -> str | float | dict[str, int]:
    """`auto`, `0.5`, or `cat=500,dog=300`."""
    if "=" not in text:
        try:
            return float(text)
        except ValueError:
            return text
    asked: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.rpartition("=")
        name, number = name.strip(), number.strip()
        if not name or name in asked or not (number.isascii() and number.isdigit() and len(number) < 16):
            raise error(
                "U601",
                f"`--strategy` cannot be {escape_controls(text)[:60]!r}",
                expected="a class and a number of records, each class once",
                found=escape_controls(part)[:60],
                do="--strategy cat=500,dog=300",
            )
        asked[name] = int(number)
    return asked


def _print_counts(prepared: PreparedBalance) -> None:
    """The records of each class before and after."""
    for name, draw in prepared.samples.items():
        records = draw.labelled
        before, after = records.named(records.counts), records.named(draw.after)
        output.print_line(f"{escape_controls(name)}, {escape_controls(records.by)}:")
        shown = list(before)[:_MAX_SHOWN_CLASSES]
        width = max([len(truncate(escape_controls(one))) for one in shown], default=0)
        digits = max([len(f"{before[one]:,}") for one in shown], default=0)
        for one in shown:
            output.print_line(
                f"  {truncate(escape_controls(one)):<{width}}  {before[one]:>{digits},} → {after[one]:,}"
            )
        if len(before) > len(shown):
            output.print_line(f"  and {len(before) - len(shown):,} more")
        if records.without:
            output.print_line(f"  {format_count(records.without, 'record')} without a class, kept as they are")
    kept = [escape_controls(name) for name in prepared.old.splits if name not in prepared.samples]
    if kept:
        output.print_line(f"left as they are: {', '.join(kept)}")
