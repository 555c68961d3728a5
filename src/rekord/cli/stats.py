"""`rekord stats`: what is in the features, for a person, a program, a browser and TFX."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from rekord.cli import console
from rekord.cli.console import Piece, clean, cut, quoted
from rekord.errors import error
from rekord.location import Location
from rekord.report.formatting import byte_size, count, number, share, size, span

if TYPE_CHECKING:
    from rekord.health.stats.report import FeatureStats, Skew, Stats


Line: TypeAlias = "list[Piece]"

_WIDEST_NAME = 28
_LISTED_CLASSES = 12
_LISTED_FEATURES = 200
_LISTED_LABELS = 5
_LISTED_SKEW = 20
_LISTED_DAMAGE = 5
_BAR = 24
_MEASURES = {"linf": "L∞", "js": "JS", "missing": "missing", None: ""}


def lines(stats: Stats, width: int) -> Iterator[Line]:
    """Everything that is shown, in lines of about `width` characters."""
    yield _heading(stats)
    if stats.features:
        yield []
        yield from _table(stats, width)
    labels = [one for one in stats.features.values() if one.classes]
    for feature in sorted(labels, key=lambda one: one.declared is None)[:_LISTED_LABELS]:
        yield []
        yield from _classes(feature, width)
    for feature in stats.features.values():
        if feature.is_pictures:
            yield []
            yield from _pictures(feature)
    if len(stats.splits) > 1:
        yield []
        yield from _splits(stats)
    if stats.skew:
        yield []
        yield from _skew(list(stats.skew), width)
    yield from _remarks(stats)


def _heading(stats: Stats) -> Line:
    parts = [
        count(stats.records, "record"),
        count(len(stats.features), "feature"),
        count(stats.report.files, "file"),
        byte_size(stats.everything.payload_bytes),
    ]
    return [(clean(stats.path), "bold"), f" · {' · '.join(parts)}"]


def _table(stats: Stats, width: int) -> Iterator[Line]:
    listed = list(stats.features.values())[:_LISTED_FEATURES]
    wide = min(max(7, *(len(clean(one.name)) for one in listed)), _WIDEST_NAME)
    room = width - wide - 30
    yield [(f"{'feature':<{wide}}  kind   missing  distinct  holds", "dim")]
    for feature in listed:
        distinct = feature.distinct
        about = "" if distinct is None or distinct.is_exact else "~"
        unique = "–" if distinct is None else f"{about}{_short(distinct.unique)}"
        missing = share(feature.missing, feature.records)
        yield [
            f"{cut(clean(feature.name), wide):<{wide}}  {feature.kind or '–':<5}  ",
            (f"{missing:>7}", "yellow" if feature.missing else "dim"),
            f"  {unique:>8}  {cut(_holds(feature), room)}",
        ]
    if len(stats.features) > len(listed):
        yield [f"… and {count(len(stats.features) - len(listed), 'more feature')}: --json lists them all"]


def _short(whole: int) -> str:
    """A number in eight characters."""
    return f"{whole:,}" if whole < 1_000_000 else f"{whole / 1e6:.2f}M" if whole < 10**9 else f"{whole:.1e}"


def _holds(feature: FeatureStats) -> str:
    """What the values of a feature are, in a few words; what matters most stands first."""
    parts: list[str] = []
    numbers, strings = feature.numbers, feature.strings
    if len(feature.seen.kinds) > 1:
        parts.append("kinds: " + ", ".join(f"{kind} {n:,}" for kind, n in sorted(feature.seen.kinds.items())))
    if numbers is not None and numbers.moments.count:
        moments = numbers.moments
        parts.append(number(moments.min) if moments.min == moments.max else _range(moments.min, moments.max))
        if feature.classes is None and moments.min != moments.max:
            parts.append(f"mean {number(moments.mean)}")
    if numbers is not None:
        infinite = numbers.negative_inf + numbers.positive_inf
        parts += [f"{n:,} {word}" for n, word in ((numbers.nan, "NaN"), (infinite, "infinite")) if n]
    if strings is not None and strings.count:
        if feature.is_pictures:
            parts.append("/".join(sorted(strings.pictures.formats)))
        elif feature.top and feature.top[0][1] > 1:
            value, times = feature.top[0]
            parts.append(f"{quoted(value, 20)} {share(times, strings.count)}")
        lengths = strings.lengths.moments
        parts.append(
            size(lengths.max) if lengths.min == lengths.max else f"{size(lengths.min)}..{size(lengths.max)}"
        )
    per_row = feature.seen.per_row.moments
    if per_row.count and not feature.is_single:
        parts.append(f"{span(per_row.min, per_row.max)} values")
    if feature.seen.steps is not None and feature.seen.steps.moments.count:
        steps = feature.seen.steps.moments
        parts.append(f"{span(steps.min, steps.max)} steps")
    return ", ".join(parts)


def _range(low: Any, high: Any) -> str:
    return f"{number(low)}..{number(high)}"


def _classes(feature: FeatureStats, width: int) -> Iterator[Line]:
    classes = feature.classes or {}
    total = sum(classes.values())
    imbalance = (
        f", imbalance {feature.imbalance:,.3g}×" if feature.imbalance and feature.imbalance > 1 else ""
    )
    yield [
        (clean(feature.name), "bold"),
        f": {count(len(classes), 'class').replace('classs', 'classes')}{imbalance}",
    ]
    ranked = sorted(classes.items(), key=lambda pair: -pair[1])
    listed = list(classes.items()) if len(classes) <= _LISTED_CLASSES else ranked[:_LISTED_CLASSES]
    wide = min(max(len(clean(name)) for name, _ in listed), width - _BAR - 26)
    most = max(times for _, times in listed)
    for name, times in listed:
        bar = "█" * round(_BAR * times / most) if most else ""
        bar = bar or ("▏" if times else "")
        yield [
            f"  {cut(clean(name), wide):<{wide}}  ",
            (f"{bar:<{_BAR}}", "cyan"),
            f"  {times:>11,}  {share(times, total):>6}",
        ]
    if len(classes) > len(listed):
        rest = ranked[_LISTED_CLASSES:]
        few = f", the rarest {cut(clean(rest[-1][0]), 20)} {rest[-1][1]:,}x"
        yield [f"  … and {len(rest):,} more{few}"]


def _pictures(feature: FeatureStats) -> Iterator[Line]:
    assert feature.strings is not None, "pictures are byte strings"
    pictures, lengths = feature.strings.pictures, feature.strings.lengths.moments
    total = pictures.count
    formats = ", ".join(f"{name} {share(n, total)}" for name, n in pictures.formats.most_common())
    yield [(clean(feature.name), "bold"), f": {count(total, 'picture')}, {formats}"]
    if pictures.widths.moments.count:
        widths, heights = pictures.widths, pictures.heights
        middle = widths.quantiles.at([0.5])[0], heights.quantiles.at([0.5])[0]
        yield [
            f"  size      {widths.moments.min}×{heights.moments.min} to {widths.moments.max}×{heights.moments.max}"
            f", median {middle[0]}×{middle[1]}"
        ]
    colours = ", ".join(
        f"{name.replace('_', ' ')} {share(n, total)}" for name, n in pictures.colours.most_common()
    )
    if colours:
        yield [f"  colours   {colours}"]
    yield [f"  bytes     {size(lengths.min)} to {size(lengths.max)}, mean {size(lengths.mean or 0.0)}"]
    if pictures.turned:
        yield [("  turned    ", "yellow"), f"{pictures.turned:,} by EXIF, which TensorFlow does not turn"]


def _splits(stats: Stats) -> Iterator[Line]:
    wide = max(len(clean(name)) for name in stats.splits)
    yield [("splits", "bold")]
    for name, part in stats.splits.items():
        amount = byte_size(part.payload_bytes)
        yield [
            f"  {clean(name):<{wide}}  {part.records:>13,}  {share(part.records, stats.records):>6}  {amount:>9}"
        ]


def _skew(skew: list[Skew], width: int) -> Iterator[Line]:
    # What chance explains is no difference to look at: in small splits that would be every text.
    shown = [one for one in skew if one.verdict not in ("same", "chance")]
    shown.sort(key=lambda one: (-(one.distance or 1.0), one.feature))
    chance = sum(one.verdict == "chance" for one in skew)
    by_chance = f", {chance:,} of them but for chance" if chance else ""
    base = clean(skew[0].base)
    yield [
        (f"compared with {base}", "bold"),
        f": {len(skew) - len(shown):,} of {len(skew):,} alike{by_chance}",
    ]
    listed = shown[:_LISTED_SKEW]
    wide = min(max((len(clean(one.feature)) for one in listed), default=0), _WIDEST_NAME)
    named = max((len(clean(one.split)) for one in listed), default=0)
    for one in listed:
        distance = "" if one.distance is None else f"{_MEASURES[one.measure]} {one.distance:.3f}"
        room = max(width - wide - named - 30, 10)
        yield [
            f"  {cut(clean(one.feature), wide):<{wide}}  {clean(one.split):<{named}}  {distance:<13}  ",
            (f"{one.verdict:<7}", "bold red"),
            f"  {cut(clean(one.says), room)}",
        ]
    if len(shown) > len(listed):
        yield [f"  … and {len(shown) - len(listed):,} more: --json lists them all"]


def _remarks(stats: Stats) -> Iterator[Line]:
    if stats.everything.left_out:
        yield []
        yield [f"left out: {count(stats.everything.left_out, 'key')} or more beyond the first 10,000"]
    if stats.not_counted:
        yield []
        said = clean(stats.foreign[0].message) if stats.foreign else "payloads that are no Examples"
        yield [f"not counted: {count(stats.not_counted, 'record')} ({said})"]
    if stats.damage:
        total = len(stats.damage) + stats.damage_not_listed
        yield []
        yield [
            ("damaged", "bold red"),
            f": {count(total, 'finding')}; these are the statistics of what can be read",
        ]
        for finding in stats.damage[:_LISTED_DAMAGE]:
            record = "" if finding.record is None else f", record {finding.record:,}"
            yield [f"  {finding.code}  {clean(finding.path or '')}{record}: {clean(finding.message)}"]
        yield [f"next: rekord check {clean(stats.path)}"]


WIDTH = 80


def stats(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A record file, a folder or a pattern.")],
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="FILE", help="A schema's JSON: names the classes of labels."),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="Write a report for a browser, in one file."),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            "--metadata",
            metavar="FILE",
            help="Write tensorflow_metadata statistics, as text (.pbtxt) or binary (.pb).",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Say what each feature holds. Ranges, distributions, classes, image sizes, and how splits differ.

    Damage is passed over and said; the exit code is then 1.
    """
    from rekord.cli.console import Progress
    from rekord.dataset.read import record_files
    from rekord.health.finding import Report
    from rekord.health.stats.run import stats as gather

    if metadata is not None:
        _check_extension(metadata)
    files = record_files(path)
    _check_targets(files, html, metadata)
    report = Report()
    with Progress(report, files=len(files)):
        found = gather(path, schema=schema, report=report)
    _save(found, html, metadata)
    if as_json:
        console.say_json(found.to_dict())
    else:
        for line in lines(found, _width()):
            console.say(*line)
    for target in (html, metadata):
        if target is not None:
            console.tell(f"saved in {clean(target)}")
    if found.report.unreadable:
        return 3
    return 0 if found.ok else 1


def _width() -> int:
    """The columns of the terminal, where there is one; a file has as many as a page of text."""
    return max(shutil.get_terminal_size().columns, WIDTH) if console.is_terminal(sys.stdout) else WIDTH


def _save(found: Stats, html: str | None, metadata: str | None) -> None:
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
        found=clean(os.path.basename(metadata))[:60] or "no name",
        do="--metadata stats.pbtxt",
    )


def _check_targets(files: list[str], html: str | None, metadata: str | None) -> None:
    """A report must not take the place of the data, nor of the other report."""
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
