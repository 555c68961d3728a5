"""Checks of shard sets by names and sizes: complete, unambiguous, not empty, even."""

from __future__ import annotations

import os
import re
import shlex
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rekord.codes import CODES
from rekord.dataset.read import ShardSet, group_shard_sets
from rekord.health.finding import Finding

MIN_UNEVEN_RATIO = 4
MIN_UNEVEN_BYTES = 16_000_000
"""Shards are very uneven if the largest exceeds both this multiple of the median and this size."""

_MAX_RUNS_CHARACTERS = 55
_DIGITS = re.compile(r"\d+")


def find_shard_problems(
    paths: Sequence[str],
    sizes_bytes: Mapping[str, int],
    records_by_path: Mapping[str, int],
    *,
    listed: Collection[str] = (),
) -> Iterator[Finding]:
    """The problems of the shard sets in a folder or pattern.

    Not for explicitly named files. `records_by_path` has the number of records per file, without damaged files.
    The manifest determines whether the sets of `listed` files are complete.
    """
    manifested = set(map(os.path.normpath, listed))
    sets = group_shard_sets(paths)
    by_name: dict[tuple[str, str], list[ShardSet]] = defaultdict(list)
    for one in sets:
        if manifested.isdisjoint(map(os.path.normpath, one.paths.values())):
            by_name[one.before, one.after].append(one)
            yield from _find_missing_shards(one)
    for several in by_name.values():
        if len(several) > 1:
            yield _mixed_sets_finding(several)
    for one in sets:
        yield from _find_empty_shards(one, records_by_path)
    yield from _find_uneven_shards(paths, sizes_bytes)


def build_missing_shards_finding(
    pattern: str, missing: Sequence[tuple[int, int]], count: int, *, source: str
) -> Finding | None:
    """The finding about missing shards, given as (first, last) of each run; None if none is missing."""
    if not missing:
        return None
    absent = sum(last - first + 1 for first, last in missing)
    return Finding.of(
        "X505",
        "error",
        path=pattern,
        message=f"only {count - absent:,} of {count:,} shards exist",
        expected=f"shards 0 to {count - 1:,}, as listed in {source}",
        found=f"missing {format_runs(missing)}",
        do="fetch the missing files, or write the dataset again",
    )


def group_runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Sorted numbers as (first, last) of each run."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs


def format_runs(runs: Iterable[tuple[int, int]]) -> str:
    """`0–12, 14, 17–19`, truncated with `…`."""
    text = ""
    for first, last in runs:
        piece = f"{first}" if first == last else f"{first}{'–' if last > first + 1 else ', '}{last}"
        longer = f"{text}, {piece}" if text else piece
        if len(longer) > _MAX_RUNS_CHARACTERS - 3:
            return f"{text}, …"
        text = longer
    return text


def _find_missing_shards(one: ShardSet) -> Iterator[Finding]:
    finding = build_missing_shards_finding(one.pattern, one.missing, one.count, source="the file names")
    if finding is not None:
        yield finding


def _mixed_sets_finding(sets: Sequence[ShardSet]) -> Finding:
    incomplete = [one for one in sets if one.missing]
    left_over = incomplete[0] if len(sets) == 2 and len(incomplete) == 1 else None
    first, second = sets[0], sets[1]
    return Finding.of(
        "H780",
        "warning",
        path=first.pattern,
        message=f"sets of {first.count:,} and {second.count:,} shards share one name"
        if len(sets) == 2
        else f"{len(sets):,} sets of shards share one name",
        expected="one set of shards per split",
        found=f"also {os.path.basename(second.pattern)}",
        likely=None
        if left_over is None
        else f"left over from an earlier run: {os.path.basename(left_over.pattern)} is incomplete",
        do="keep one of the sets: a reader of the folder, or of `*`, reads the records of both"
        if left_over is None
        else f"move {_make_shell_pattern(left_over)} to another folder",
    )


def _make_shell_pattern(one: ShardSet) -> str:
    return f"{shlex.quote(one.before)}*{shlex.quote(f'-of-{one.shards}{one.after}')}"


def _find_empty_shards(one: ShardSet, records_by_path: Mapping[str, int]) -> Iterator[Finding]:
    empty = [number for number in sorted(one.paths) if records_by_path.get(one.paths[number]) == 0]
    if empty and one.count > 1:
        yield Finding.of(
            "H781",
            "warning",
            path=one.paths[empty[0]],
            message=f"{len(empty):,} of {one.count:,} shards "
            + ("has no records" if len(empty) == 1 else "have no records"),
            expected="records in every shard",
            found=f"no records in {format_runs(group_runs(empty))}",
            do="write the dataset again with fewer shards: a worker with an empty shard has nothing to do",
        )


def _find_uneven_shards(paths: Sequence[str], sizes_bytes: Mapping[str, int]) -> Iterator[Finding]:
    # Files whose names differ only in numbers are shards of one dataset, whatever wrote them.
    alike: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        if path in sizes_bytes:
            folder, name = os.path.split(path)
            alike[os.path.join(folder, _DIGITS.sub("#", name))].append(path)
    for files in alike.values():
        median = statistics.median(sizes_bytes[path] for path in files)
        largest = max(files, key=lambda path: sizes_bytes[path])
        if sizes_bytes[largest] > max(MIN_UNEVEN_RATIO * median, MIN_UNEVEN_BYTES):
            yield Finding.of(
                "H782",
                "warning",
                path=largest,
                message=f"{CODES['H782']}: the largest of {len(files):,} has "
                + (f"{sizes_bytes[largest] / median:,.0f} times the median" if median else "nearly all bytes"),
                expected=f"no shard larger than {MIN_UNEVEN_RATIO} times the median of {median:,.0f} bytes",
                found=f"{sizes_bytes[largest]:,} bytes",
                do="write the dataset again: workers that read whole shards wait for the largest",
            )
