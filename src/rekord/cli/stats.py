"""`rekord stats`: statistics per feature, as text, JSON, HTML and for TFX."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from rekord.cli import console
from rekord.cli import options as shared
from rekord.cli.console import StyledText, escape_controls, quote_text, truncate
from rekord.cli.exit_handling import exit_code
from rekord.cli.options import text_option
from rekord.errors import error
from rekord.location import Location
from rekord.report.formatting import (
    format_byte_size,
    format_count,
    format_number,
    format_range,
    format_share,
    format_size,
)

if TYPE_CHECKING:
    from rekord.health.stats.report import FeatureStats, Skew, Stats


StyledLine: TypeAlias = "list[StyledText]"

_MAX_NAME_WIDTH = 28
_MAX_LISTED_CLASSES = 12
_MAX_LISTED_FEATURES = 200
_MAX_LISTED_LABELS = 5
_MAX_LISTED_SKEW = 20
_MAX_LISTED_DAMAGE = 5
_BAR_WIDTH = 24
_MEASURES = {"linf": "L∞", "js": "JS", "missing": "missing", None: ""}


def iter_stats_lines(stats: Stats, width: int) -> Iterator[StyledLine]:
    """The statistics as lines of about `width` characters."""
    yield _format_heading(stats)
    if stats.features:
        yield []
        yield from _iter_table_lines(stats, width)
    labels = [one for one in stats.features.values() if one.classes]
    for feature in sorted(labels, key=lambda one: one.declared is None)[:_MAX_LISTED_LABELS]:
        yield []
        yield from _iter_class_lines(feature, width)
    for feature in stats.features.values():
        if feature.has_images:
            yield []
            yield from _iter_image_lines(feature)
    if len(stats.splits) > 1:
        yield []
        yield from _iter_split_lines(stats)
    if stats.skew:
        yield []
        yield from _iter_skew_lines(list(stats.skew), width)
    yield from _iter_remarks(stats)


def _format_heading(stats: Stats) -> StyledLine:
    parts = [
        format_count(stats.records, "record"),
        format_count(len(stats.features), "feature"),
        format_count(stats.report.files, "file"),
        format_byte_size(stats.everything.payload_bytes),
    ]
    return [(escape_controls(stats.path), "bold"), f" · {' · '.join(parts)}"]


def _iter_table_lines(stats: Stats, width: int) -> Iterator[StyledLine]:
    listed = list(stats.features.values())[:_MAX_LISTED_FEATURES]
    wide = min(max(7, *(len(escape_controls(one.name)) for one in listed)), _MAX_NAME_WIDTH)
    room = width - wide - 30
    yield [(f"{'feature':<{wide}}  kind   missing  distinct  holds", "dim")]
    for feature in listed:
        distinct = feature.distinct
        about = "" if distinct is None or distinct.is_exact else "~"
        unique = "–" if distinct is None else f"{about}{_format_short(distinct.unique)}"
        missing = format_share(feature.missing, feature.records)
        yield [
            f"{truncate(escape_controls(feature.name), wide):<{wide}}  {feature.kind or '–':<5}  ",
            (f"{missing:>7}", "yellow" if feature.missing else "dim"),
            f"  {unique:>8}  {truncate(_describe_values(feature), room)}",
        ]
    if len(stats.features) > len(listed):
        yield [f"… and {format_count(len(stats.features) - len(listed), 'more feature')}: --json lists them all"]


def _format_short(whole: int) -> str:
    """A number in eight characters."""
    return f"{whole:,}" if whole < 1_000_000 else f"{whole / 1e6:.2f}M" if whole < 10**9 else f"{whole:.1e}"


def _describe_values(feature: FeatureStats) -> str:
    """The values of a feature in a few words, the most important first."""
    parts: list[str] = []
    numbers, strings = feature.numbers, feature.strings
    if len(feature.seen.kinds) > 1:
        parts.append("kinds: " + ", ".join(f"{kind} {n:,}" for kind, n in sorted(feature.seen.kinds.items())))
    if numbers is not None and numbers.moments.count:
        moments = numbers.moments
        parts.append(
            feature.format(moments.min)
            if moments.min == moments.max
            else f"{feature.format(moments.min)}..{feature.format(moments.max)}"
        )
        if feature.classes is None and feature.text is None and moments.min != moments.max:
            parts.append(f"mean {format_number(moments.mean)}")
    if numbers is not None:
        infinite = numbers.negative_inf + numbers.positive_inf
        parts += [f"{n:,} {word}" for n, word in ((numbers.nan, "NaN"), (infinite, "infinite")) if n]
    if strings is not None and strings.count:
        if feature.has_images:
            parts.append("/".join(sorted(strings.images.formats)))
        elif feature.top and feature.top[0][1] > 1:
            value, times = feature.top[0]
            parts.append(f"{quote_text(str(value), 20)} {format_share(times, strings.count)}")
        lengths = strings.lengths.moments
        parts.append(
            format_size(lengths.max)
            if lengths.min == lengths.max
            else f"{format_size(lengths.min)}..{format_size(lengths.max)}"
        )
    per_row = feature.seen.per_row.moments
    if per_row.count and not feature.is_single:
        parts.append(f"{format_range(per_row.min, per_row.max)} values")
    if feature.seen.steps is not None and feature.seen.steps.moments.count:
        steps = feature.seen.steps.moments
        parts.append(f"{format_range(steps.min, steps.max)} steps")
    return ", ".join(parts)


def _iter_class_lines(feature: FeatureStats, width: int) -> Iterator[StyledLine]:
    classes = feature.classes or {}
    total = sum(classes.values())
    imbalance = f", imbalance {feature.imbalance:,.3g}×" if feature.imbalance and feature.imbalance > 1 else ""
    yield [
        (escape_controls(feature.name), "bold"),
        f": {format_count(len(classes), 'class')}{imbalance}",
    ]
    ranked = sorted(classes.items(), key=lambda pair: -pair[1])
    listed = list(classes.items()) if len(classes) <= _MAX_LISTED_CLASSES else ranked[:_MAX_LISTED_CLASSES]
    wide = min(max(len(escape_controls(name)) for name, _ in listed), width - _BAR_WIDTH - 26)
    most = max(times for _, times in listed)
    for name, times in listed:
        bar = "█" * round(_BAR_WIDTH * times / most) if most else ""
        bar = bar or ("▏" if times else "")
        yield [
            f"  {truncate(escape_controls(name), wide):<{wide}}  ",
            (f"{bar:<{_BAR_WIDTH}}", "cyan"),
            f"  {times:>11,}  {format_share(times, total):>6}",
        ]
    if len(classes) > len(listed):
        rest = ranked[_MAX_LISTED_CLASSES:]
        few = f", the rarest {truncate(escape_controls(rest[-1][0]), 20)} {rest[-1][1]:,}x"
        yield [f"  … and {len(rest):,} more{few}"]


def _iter_image_lines(feature: FeatureStats) -> Iterator[StyledLine]:
    assert feature.strings is not None, "images are byte strings"
    images, lengths = feature.strings.images, feature.strings.lengths.moments
    total = images.count
    formats = ", ".join(f"{name} {format_share(n, total)}" for name, n in images.formats.most_common())
    yield [(escape_controls(feature.name), "bold"), f": {format_count(total, 'image')}, {formats}"]
    if images.widths.moments.count:
        widths, heights = images.widths, images.heights
        middle = widths.quantiles.at([0.5])[0], heights.quantiles.at([0.5])[0]
        yield [
            f"  size      {widths.moments.min}×{heights.moments.min} to {widths.moments.max}×{heights.moments.max}"
            f", median {middle[0]}×{middle[1]}"
        ]
    colours = ", ".join(
        f"{name.replace('_', ' ')} {format_share(n, total)}" for name, n in images.colours.most_common()
    )
    if colours:
        yield [f"  colours   {colours}"]
    yield [
        f"  bytes     {format_size(lengths.min)} to {format_size(lengths.max)}, mean "
        f"{format_size(lengths.mean or 0.0)}"
    ]
    if images.turned:
        yield [("  rotated   ", "yellow"), f"{images.turned:,} rotated by EXIF, which TensorFlow ignores"]


def _iter_split_lines(stats: Stats) -> Iterator[StyledLine]:
    wide = max(len(escape_controls(name)) for name in stats.splits)
    yield [("splits", "bold")]
    for name, part in stats.splits.items():
        amount = format_byte_size(part.payload_bytes)
        yield [
            f"  {escape_controls(name):<{wide}}  {part.records:>13,}  "
            f"{format_share(part.records, stats.records):>6}  {amount:>9}"
        ]


def _iter_skew_lines(skew: list[Skew], width: int) -> Iterator[StyledLine]:
    # Differences within chance are not listed: in small splits that would be every text.
    shown = [one for one in skew if one.verdict not in ("same", "chance")]
    shown.sort(key=lambda one: (-(one.distance or 1.0), one.feature))
    noun = "features" if len({one.split for one in skew}) == 1 else "comparisons"
    yield [
        (f"compared with {escape_controls(skew[0].base)}", "bold"),
        f": no significant shift in {len(skew) - len(shown):,} of {len(skew):,} {noun}",
    ]
    listed = shown[:_MAX_LISTED_SKEW]
    wide = min(max((len(escape_controls(one.feature)) for one in listed), default=0), _MAX_NAME_WIDTH)
    named = max((len(escape_controls(one.split)) for one in listed), default=0)
    for one in listed:
        distance = "" if one.distance is None else f"{_MEASURES[one.measure]} {one.distance:.3f}"
        room = max(width - wide - named - 30, 10)
        yield [
            f"  {truncate(escape_controls(one.feature), wide):<{wide}}  {escape_controls(one.split):<{named}}  "
            f"{distance:<13}  ",
            (f"{one.verdict:<7}", "bold red"),
            f"  {truncate(escape_controls(one.says), room)}",
        ]
    if len(shown) > len(listed):
        yield [f"  … and {len(shown) - len(listed):,} more: --json lists them all"]


def _iter_remarks(stats: Stats) -> Iterator[StyledLine]:
    if stats.everything.left_out:
        yield []
        yield [f"left out: at least {format_count(stats.everything.left_out, 'key')} beyond the first 10,000"]
    if stats.not_counted:
        yield []
        reason = escape_controls(stats.foreign[0].message) if stats.foreign else "payloads that are not Examples"
        yield [f"not counted: {format_count(stats.not_counted, 'record')} ({reason})"]
    if stats.damage:
        total = len(stats.damage) + stats.damage_not_listed
        yield []
        yield [
            ("damaged", "bold red"),
            f": {format_count(total, 'finding')}; these statistics cover what can be read",
        ]
        for finding in stats.damage[:_MAX_LISTED_DAMAGE]:
            record = "" if finding.record is None else f", record {finding.record:,}"
            yield [
                f"  {finding.code}  {escape_controls(finding.path or '')}{record}: {escape_controls(finding.message)}"
            ]
        yield [f"next: rekord check {escape_controls(stats.path)}"]


DEFAULT_WIDTH = 80


@shared.with_options
def stats(
    path: str = shared.PATH_ARGUMENT,
    schema: str | None = text_option("--schema", "FILE", "Schema (JSON) with the class names of labels."),
    html: str | None = text_option("--html", "FILE", "Write an HTML report, in one file."),
    metadata: str | None = text_option(
        "--metadata", "FILE", "Write tensorflow_metadata statistics, as text (.pbtxt) or binary (.pb)."
    ),
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Print statistics per feature. Ranges, distributions, classes, image sizes, and differences between splits.

    Damaged records are skipped and reported; the exit code is then 1.
    """
    from rekord.cli.console import CheckProgress
    from rekord.dataset.read import list_record_files
    from rekord.health.finding import Report
    from rekord.health.stats.run import stats as gather

    if metadata is not None:
        _check_extension(metadata)
    files = list_record_files(path)
    _check_targets(files, html, metadata)
    report = Report()
    with CheckProgress(report, files=len(files)):
        found = gather(path, schema=schema, report=report)
    _save_reports(found, html, metadata)
    if as_json:
        console.print_json(found.to_dict())
    else:
        console.print_lines(iter_stats_lines(found, _get_width()))
    for target in (html, metadata):
        if target is not None:
            console.print_status(f"saved to {escape_controls(target)}")
    return exit_code(found.report.unreadable, ok=found.ok)


def _get_width() -> int:
    """The width of the terminal; for a pipe or file, the default."""
    return (
        max(shutil.get_terminal_size().columns, DEFAULT_WIDTH) if console.is_terminal(sys.stdout) else DEFAULT_WIDTH
    )


def _save_reports(found: Stats, html: str | None, metadata: str | None) -> None:
    from rekord.health.stats.tfx import to_binary, to_text
    from rekord.storage.transaction import publish

    if html is not None:
        with publish(html) as staged:
            staged.write(found.to_html().encode())
    if metadata is not None:
        binary = metadata.lower().endswith(".pb")
        with publish(metadata) as staged:
            staged.write(to_binary(found) if binary else to_text(found).encode())


def _check_extension(metadata: str) -> None:
    if metadata.lower().endswith((".pb", ".pbtxt")):
        return
    raise error(
        "U605",
        "cannot determine the format of the statistics from the name of the file",
        location=Location(path=metadata),
        expected="a name that ends in .pbtxt for text, or in .pb for binary",
        found=escape_controls(os.path.basename(metadata))[:60] or "no name",
        do="--metadata stats.pbtxt",
    )


def _check_targets(files: list[str], html: str | None, metadata: str | None) -> None:
    """A report must not overwrite the data or the other report."""
    data = {os.path.realpath(file) for file in files}
    taken = set(data)
    for option, target in (("--html", html), ("--metadata", metadata)):
        if target is None:
            continue
        place = os.path.realpath(target)
        if place in taken:
            raise error(
                "U631",
                f"`{option}` would replace a file that is in use",
                location=Location(path=target),
                expected="a place of its own",
                found="the data" if place in data else "the file of the other report",
                do=f"{option} stats.{'html' if option == '--html' else 'pbtxt'}",
            )
        taken.add(place)
