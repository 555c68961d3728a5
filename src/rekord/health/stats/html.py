"""The report of statistics as one self-contained HTML page."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rekord import _core
from rekord.codec.preview import ThumbnailBudget, class_colour, describe_cell, make_thumbnail, read_mask_ids
from rekord.health.stats.accumulate import RecordSample, SampleKeys
from rekord.health.stats.numbers import NumberStatistics, count_between_edges, quantiles_to_dict
from rekord.health.stats.report import FeatureStats, PartStats, Skew, Stats, to_json_value
from rekord.health.stats.strings import StringStatistics, format_string
from rekord.report.charts import (
    escape_html,
    format_percent,
    render_bar_cell,
    render_bar_table,
    render_histogram,
    render_scatter,
    render_sparkline,
)
from rekord.report.formatting import format_number, format_range, format_share, format_size
from rekord.report.notebook import CaptionLine, Tile, TileBox, render_gallery, render_swatches, render_table
from rekord.report.style import render_page

_MAX_TOP_VALUES = 10
_MAX_SAMPLE_COLUMNS = 12
_MAX_CLASSES = 50
_QUANTILES = {"0.05": "5%", "0.25": "25%", "0.5": "median", "0.75": "75%", "0.95": "95%"}


def render_feature_card(feature: FeatureStats, splits: Mapping[str, PartStats], anchor: str) -> str:
    """The whole card of a feature."""
    parts = {name: part.features[feature.name] for name, part in splits.items() if feature.name in part.features}
    parts = parts if len(splits) > 1 else {}
    pills = [f'<span class="pill kind">{escape_html(feature.kind or "no kind")}</span>']
    if feature.classes is not None:
        pills.append('<span class="pill">label</span>')
    if feature.has_images:
        pills.append('<span class="pill">images</span>')
    if feature.is_step:
        pills.append('<span class="pill">steps</span>')
    facts = "".join(_iter_facts(feature))
    columns = "".join(f"<div>{column}</div>" for column in _iter_card_columns(feature, parts))
    return (
        f'<article class="feature" id="{anchor}"><header><h3>{escape_html(feature.name)}</h3>{"".join(pills)}'
        "</header>"
        f'<ul class="facts">{facts}</ul><div class="columns">{columns}</div></article>'
    )


def _iter_facts(feature: FeatureStats) -> Iterator[str]:
    yield f"<li><b>{feature.present:,}</b> present</li>"
    if feature.missing:
        missing = f"<b>{feature.missing:,}</b> missing ({format_percent(feature.missing, feature.records)})"
        yield f'<li class="alert">{missing}</li>'
    if len(feature.seen.kinds) > 1:
        kinds = ", ".join(f"{kind} in {times:,}" for kind, times in sorted(feature.seen.kinds.items()))
        yield f'<li class="alert">several kinds: {escape_html(kinds)}</li>'
    if feature.seen.steps is not None and feature.seen.steps.moments.count:
        steps = feature.seen.steps.moments
        yield f"<li><b>{format_range(steps.min, steps.max)}</b> steps per record</li>"
    per_row = feature.seen.per_row.moments
    if per_row.count and not feature.is_single:
        each = "step" if feature.is_step else "record"
        yield f"<li><b>{format_range(per_row.min, per_row.max)}</b> values per {each}</li>"
    if feature.distinct is not None and feature.distinct.total:
        about = "" if feature.distinct.is_exact else "about "
        yield f"<li>{about}<b>{feature.distinct.unique:,}</b> distinct</li>"
    numbers = feature.numbers
    if numbers is not None:
        if numbers.nan:
            yield f'<li class="alert"><b>{numbers.nan:,}</b> NaN</li>'
        infinite = numbers.negative_inf + numbers.positive_inf
        if infinite:
            yield f'<li class="alert"><b>{infinite:,}</b> infinite</li>'
    if feature.imbalance is not None and feature.imbalance > 1:
        yield f"<li><b>{feature.imbalance:,.3g}×</b> imbalance</li>"


def _iter_card_columns(feature: FeatureStats, parts: Mapping[str, FeatureStats]) -> Iterator[str]:
    if feature.classes is not None:
        yield _render_classes(feature, parts)
    elif feature.numbers is not None and feature.numbers.moments.count:
        yield _render_histograms(feature, feature.numbers, parts)
    # The mean of class ids means nothing.
    if feature.numbers is not None and feature.numbers.moments.count and feature.declared is None:
        yield _render_quantiles(feature, feature.numbers)
    strings = feature.strings
    if strings is not None and feature.has_images:
        yield from _iter_image_sections(strings)
    elif strings is not None and strings.count:
        if feature.classes is None and feature.top and feature.top[0][1] > 1:
            yield _render_top_values(feature)
        yield _render_lengths(strings)


def _render_classes(feature: FeatureStats, parts: Mapping[str, FeatureStats]) -> str:
    classes = feature.classes or {}
    listed = (
        dict(sorted(classes.items(), key=lambda pair: -pair[1])[:_MAX_CLASSES])
        if len(classes) > _MAX_CLASSES
        else classes
    )
    more = (
        f'<p class="hint">and {len(classes) - len(listed):,} more classes</p>' if len(listed) < len(classes) else ""
    )
    if parts:
        return _render_class_shares(listed, {name: part.classes or {} for name, part in parts.items()}) + more
    return render_bar_table(listed.items(), sum(classes.values()), "class") + more


def _render_class_shares(classes: Mapping[str, int], parts: Mapping[str, Mapping[str, int]]) -> str:
    """The share of each class in each split."""
    totals = {name: sum(counts.values()) for name, counts in parts.items()}
    shares = [counts.get(one, 0) / totals[name] for name, counts in parts.items() if totals[name] for one in classes]
    most = max(shares, default=0)
    head = "".join(f'<th scope="col" class="n">{escape_html(name)}</th><td></td>' for name in parts)
    body = []
    for one in classes:
        cells = []
        for name, counts in parts.items():
            times = counts.get(one, 0)
            part = times / totals[name] if totals[name] else 0
            cells.append(f'<td class="n">{format_percent(times, totals[name])}</td>{render_bar_cell(part, most)}')
        body.append(f'<tr><th scope="row" class="value">{escape_html(one)}</th>{"".join(cells)}</tr>')
    top = f'<thead><tr><th scope="col">class</th>{head}</tr></thead>'
    return f'<table class="sides">{top}<tbody>{"".join(body)}</tbody></table>'


def _render_histograms(feature: FeatureStats, numbers: NumberStatistics, parts: Mapping[str, FeatureStats]) -> str:
    edges = numbers.edges()
    assert edges is not None, "a feature with numbers has a range"
    shown_edges: Sequence[float] = edges.tolist()
    if not parts:
        counts = count_between_edges(numbers, edges).tolist()
        return f"<h4>Distribution</h4>{render_histogram(shown_edges, counts, feature.name, feature.format)}"
    figures = []
    for name, part in parts.items():
        if part.numbers is None or part.kind != feature.kind or not part.numbers.moments.count:
            continue
        counts = count_between_edges(part.numbers, edges).tolist()
        chart = render_histogram(shown_edges, counts, f"{feature.name} in {name}", feature.format)
        figures.append(f"<figure><figcaption>{escape_html(name)}</figcaption>{chart}</figure>")
    return f'<h4>Distribution by split</h4><div class="charts">{"".join(figures)}</div>'


def _render_quantiles(feature: FeatureStats, numbers: NumberStatistics) -> str:
    moments = numbers.moments
    known = quantiles_to_dict(numbers.quantiles)
    rows = [("min", to_json_value(moments.min))]
    rows += [(label, to_json_value(known[at])) for at, label in _QUANTILES.items() if at in known]
    rows += [("max", to_json_value(moments.max)), ("mean", moments.mean)]
    shown = [(label, feature.format(value)) for label, value in rows] + [("std", format_number(moments.std))]
    body = "".join(f'<tr><th scope="row">{label}</th><td class="n">{value}</td></tr>' for label, value in shown)
    zeros = f"{numbers.zeros:,} ({format_percent(numbers.zeros, numbers.count)})"
    body += f'<tr><th scope="row">zeros</th><td class="n">{zeros}</td></tr>'
    return f"<h4>Values</h4><table><tbody>{body}</tbody></table>"


def _render_top_values(feature: FeatureStats) -> str:
    assert feature.distinct is not None, "a feature with top values has distinct ones"
    rows = [(format_string(value) or "(empty)", times) for value, times in feature.distinct.top(_MAX_TOP_VALUES)]
    about = "" if feature.distinct.is_exact else f", each short by at most {feature.distinct.most_missed:,}"
    return f"<h4>Most frequent{about}</h4>{render_bar_table(rows, feature.distinct.total, 'value')}"


def _render_lengths(strings: StringStatistics) -> str:
    moments = strings.lengths.moments
    median = quantiles_to_dict(strings.lengths.quantiles)["0.5"]
    rows = [
        ("shortest", format_size(moments.min)),
        ("median", format_size(median)),
        ("longest", format_size(moments.max)),
    ]
    rows += [("mean", format_size(moments.mean or 0.0)), ("total", format_size(moments.total))]
    rows.append(("UTF-8 text", format_percent(strings.utf8, strings.count)))
    body = "".join(f'<tr><th scope="row">{label}</th><td class="n">{text}</td></tr>' for label, text in rows)
    return f"<h4>Lengths</h4><table><tbody>{body}</tbody></table>"


def _iter_image_sections(strings: StringStatistics) -> Iterator[str]:
    images = strings.images
    sizes = sorted(images.sizes.items(), key=lambda pair: (-pair[1], pair[0]))
    if len(sizes) == 1:
        (width, height), _ = sizes[0]
        yield f"<h4>Sizes in pixels</h4><p>All images are <b>{width:,} × {height:,}</b>.</p>"
    elif sizes:
        rows = [(f"{width:,} × {height:,}", times) for (width, height), times in sizes[:_MAX_TOP_VALUES]]
        points = [(width, height, times) for (width, height), times in sizes]
        more = f", the {_MAX_TOP_VALUES} most frequent" if len(sizes) > _MAX_TOP_VALUES else ""
        yield (
            f"<h4>Width × height in pixels</h4>{render_scatter('Image sizes', points, axes=('width', 'height'))}"
            f"<details><summary>Sizes as a table{more}</summary>"
            f"{render_bar_table(rows, images.count, 'width × height')}</details>"
        )
    facts = [
        (
            "format",
            ", ".join(f"{name} {format_share(n, images.count)}" for name, n in images.formats.most_common()),
        ),
        (
            "colours",
            ", ".join(
                f"{name.replace('_', ' ')} {format_share(n, images.count)}"
                for name, n in images.colours.most_common()
            ),
        ),
        (
            "channels",
            ", ".join(
                f"{channels}: {format_share(n, images.count)}" for channels, n in images.channels.most_common()
            ),
        ),
    ]
    if images.widths.moments.count:
        facts.append(("width", format_range(images.widths.moments.min, images.widths.moments.max)))
        facts.append(("height", format_range(images.heights.moments.min, images.heights.moments.max)))
    facts.append(("bytes", f"{format_size(strings.lengths.moments.min)}–{format_size(strings.lengths.moments.max)}"))
    if images.turned:
        facts.append(("rotated by EXIF", f"{images.turned:,}"))
    if images.unsized:
        facts.append(("without a size", f"{images.unsized:,}"))
    body = "".join(
        f'<tr><th scope="row">{name}</th><td class="n">{escape_html(text)}</td></tr>' for name, text in facts
    )
    yield f"<h4>Images</h4><table><tbody>{body}</tbody></table>"


MAX_IMAGE_BYTES = 900_000
"""Of the page: the images in it."""

_MAX_PIXELS = 240_000_000
_SIDE, _LARGE_SIDE = 160, 288
_MAX_LARGE_TILES = 12
_TINY_SIDE = 64
_MAX_LEGEND = 24


def render_samples(stats: Stats) -> str:
    """A few records: images of each class alike, with masks and boxes on top, or rows of a table."""
    samples = list(stats.samples)
    if not samples:
        return ""
    keys = SampleKeys.find(stats.schema, samples)
    found = Counter(key for sample in samples for key in sample.images if key not in keys.masks)
    if not found:
        return _render_sample_rows(stats, samples)
    tiles = _SampleTiles(keys, found.most_common(1)[0][0], ThumbnailBudget(_MAX_PIXELS, MAX_IMAGE_BYTES, _SIDE))
    if keys.boxes or keys.masks:
        return tiles.render_annotated(samples)
    return tiles.render_classes(stats, samples)


class _SampleTiles:
    """Draws samples with one budget."""

    def __init__(self, keys: SampleKeys, image_key: str, budget: ThumbnailBudget) -> None:
        self._keys, self._image_key, self._budget = keys, image_key, budget
        self._pixels: Counter[int] = Counter()  # of each class in the masks that were drawn
        self._masks = 0

    def render_annotated(self, samples: Sequence[RecordSample]) -> str:
        """Large images with masks or boxes, from all over the dataset."""
        chosen = sorted(samples, key=lambda sample: sample.priority)[:_MAX_LARGE_TILES]
        self._budget.side = _LARGE_SIDE
        tiles = [self._tile(one, [(f"{one.split} · record {one.record:,}", "plain")], fits=True) for one in chosen]
        return f"<h2>Samples</h2>{render_gallery(tiles, side=220)}{self._render_legend()}"

    def render_classes(self, stats: Stats, samples: Sequence[RecordSample]) -> str:
        """Images of each class; in strips if there are several of each."""
        groups: dict[str, list[RecordSample]] = {}
        for sample in samples:
            groups.setdefault(self._keys.name_class(sample.label), []).append(sample)
        most = max(map(len, groups.values()))
        if len(groups) == 1 or most < 3:
            is_labelled = len(groups) > 1
            tiles = [
                self._tile(sample, [(self._keys.name_class(sample.label), "strong")] if is_labelled else [])
                for sample in samples
            ]
            return f"<h2>Samples</h2>{render_gallery(tiles)}"
        known = [feature.classes for feature in stats.features.values() if feature.classes is not None]
        counts = next((classes for classes in known if groups.keys() <= classes.keys()), {})
        strips = []
        for name, group in groups.items():
            times = f" <span>{counts[name]:,}</span>" if name in counts else ""
            tiles = [self._tile(sample, ()) for sample in group]
            strips.append(f"<section><h3>{escape_html(name)}{times}</h3>{render_gallery(tiles)}</section>")
        return f'<h2>Samples</h2><div class="strips">{"".join(strips)}</div>'

    def _tile(self, sample: RecordSample, caption: CaptionLine, *, fits: bool = False) -> Tile:
        data = sample.images.get(self._image_key)
        ids, ignore, mask_key = None, None, None
        for mask_key in self._keys.masks:
            stored = sample.values.get(mask_key)
            declared = self._keys.masks[mask_key]
            if stored and isinstance(stored[0], bytes):
                ids = read_mask_ids(stored[0], declared, self._budget)
                ignore = None if declared is None else declared.ignore
                break
        made = None if data is None else make_thumbnail(data, self._budget, ids=ids, ignore=ignore)
        if made is not None and ids is not None:
            self._masks += 1
            counts = np.bincount(ids.reshape(-1))
            self._pixels.update({int(one): int(counts[one]) for one in np.flatnonzero(counts) if one != ignore})
        boxes = self._keys.read_boxes(sample)
        names = list(dict.fromkeys(name for *_, name in boxes if name))
        about = f", with {', '.join(names[:5])}" if names else ", with its mask" if ids is not None else ""
        label = "" if sample.label is None else f" of {self._keys.name_class(sample.label)}"
        size = 0 if data is None else max(_read_size(data))
        return Tile(
            [made],
            [f"{self._image_key}{label} in {_describe_place(sample)}{about}"],
            [caption] if caption else [],
            [TileBox(x0, y0, x1, y1, name, _name_colour(name)) for x0, y0, x1, y1, name in boxes[:50]],
            fits=fits,
            is_tiny=size < _TINY_SIDE,
        )

    def _render_legend(self) -> str:
        if not self._pixels:
            return ""
        total = sum(self._pixels.values())
        listed = sorted(self._pixels.items())[:_MAX_LEGEND]
        items = [(class_colour(one), f"class {one}", times) for one, times in listed]
        hidden = len(self._pixels) - len(listed)
        more = f" {hidden:,} more classes occur." if hidden else ""
        hint = f"Shares of the pixels of {self._masks:,} masks, without ignored ones; class 0 is not coloured.{more}"
        return f'{render_swatches(items, total)}<p class="hint">{hint}</p>'


def _render_sample_rows(stats: Stats, samples: Sequence[RecordSample]) -> str:
    keys = list(dict.fromkeys(key for sample in samples for key in sample.values))[:_MAX_SAMPLE_COLUMNS]
    features = {feature.key: feature for feature in stats.features.values() if not feature.is_step}
    rows = [
        [sample.split, *[_describe_values(sample.values.get(key), features.get(key)) for key in keys]]
        for sample in samples
    ]
    table = render_table(["split", *keys], rows)
    return f'<h2>Samples</h2><div class="panel rows">{table}</div>'


def _describe_values(value: Any, feature: FeatureStats | None) -> str:
    if value is None:
        return "–"
    if len(value) != 1 or feature is None:
        return describe_cell(value, None)
    return _format_value(feature, value[0] if isinstance(value[0], bytes) else value[0].item())


def _read_size(data: bytes) -> tuple[int, int]:
    facts = _core.inspect_image(data, False)
    return int(facts.width), int(facts.height)


def _name_colour(name: str) -> str:
    """A colour for the boxes of a class: the same for the same name."""
    return class_colour(1 + zlib.crc32(name.encode()) % 1000)


def _describe_place(sample: RecordSample) -> str:
    return f"{sample.split}, record {sample.record:,} of {os.path.basename(sample.path)}"


MAX_CARDS = 500
"""Number of features drawn at full size; nobody reads a page of thousands of charts."""

_MAX_LISTED_DAMAGE = 10
_MAX_REMARKS = 30
_MAX_CONSTANTS = 500
_NEARLY_CONSTANT = 0.99
_MOSTLY_MISSING = 0.5
_IMBALANCE = 10
_OUTLIER_RANGES = 10
"""A number this many interquartile ranges beyond the quartiles is an outlier: few distributions have such tails."""
_VERDICTS = {
    "differs": ("differs", "alert"),
    "absent": ("absent", "alert"),
    "chance": ("not significant", ""),
    "same": ("same", ""),
}
_MEASURES = {"linf": "L∞", "js": "JS", "missing": "missing"}


def render_stats_page(stats: Stats) -> str:
    """The whole page. It loads nothing, runs nothing, and all text from the data is escaped."""
    charted = [name for name, feature in stats.features.items() if feature.values and not feature.is_constant]
    anchors = {name: f"f{i}" for i, name in enumerate(charted) if i < MAX_CARDS}
    return render_page("Dataset statistics", stats.path, "".join(_iter_sections(stats, anchors)))


def _iter_sections(stats: Stats, anchors: dict[str, str]) -> Iterator[str]:
    yield _render_cards(stats)
    if stats.damage:
        yield _render_damage(stats)
    yield render_samples(stats)
    yield _render_remarks(stats, anchors)
    if len(stats.splits) > 1:
        yield _render_splits(stats)
    if stats.skew:
        yield _render_skew(stats, anchors)
    yield _render_overview(stats, anchors)
    cards = [render_feature_card(stats.features[name], stats.splits, anchor) for name, anchor in anchors.items()]
    if cards:
        yield f'<h2 id="features">Features</h2>{"".join(cards)}'
    yield _render_constants(stats)


def find_remarks(stats: Stats) -> list[tuple[str, str, str]]:
    """What deserves a look: (feature, kind, sentence) each, in the order of the features."""
    return [(name, *remark) for name, feature in stats.features.items() for remark in _iter_remarks(feature)]


def _iter_remarks(feature: FeatureStats) -> Iterator[tuple[str, str]]:
    if not feature.present:
        yield "empty", "no record has it"
        return
    if feature.missing / feature.records >= _MOSTLY_MISSING:
        yield "missing", f"missing in {format_share(feature.missing, feature.records)} of the records"
    if len(feature.seen.kinds) > 1:
        yield "kinds", "has several kinds of values"
    distinct, numbers, classes = feature.distinct, feature.numbers, feature.classes or {}
    is_nearly_constant = False
    if feature.is_constant:
        yield "constant", f"has the same value everywhere: {_format_value(feature, distinct.top(1)[0][0])}"  # type: ignore[union-attr]
    elif distinct is not None and distinct.total and feature.declared is None and not feature.has_images:
        value, times = distinct.top(1)[0]
        is_nearly_constant = times / distinct.total >= _NEARLY_CONSTANT
        if is_nearly_constant:
            share = format_share(times, distinct.total)
            yield "nearly constant", f"{share} of the values are {_format_value(feature, value)}"
    if feature.has_images and distinct is not None and distinct.unique < distinct.total and distinct.is_exact:
        yield "duplicates", f"{distinct.total - distinct.unique:,} images are exact copies of others"
    if numbers is not None and numbers.nan + numbers.negative_inf + numbers.positive_inf:
        infinite = numbers.negative_inf + numbers.positive_inf
        yield "not finite", f"{numbers.nan:,} NaN, {infinite:,} infinite"
    if numbers is not None and numbers.moments.count and not classes and feature.text is None:
        yield from _iter_outliers(feature, numbers)
    empty = [name for name, times in classes.items() if not times]
    if empty:
        more = f" and {len(empty) - 3:,} more" if len(empty) > 3 else ""
        yield "classes", f"no records of {', '.join(empty[:3])}{more}"
    if not is_nearly_constant and feature.imbalance is not None and feature.imbalance >= _IMBALANCE:
        most, least = (
            max(classes, key=lambda one: classes[one]),
            min(classes, key=lambda one: classes[one] or 1 << 62),
        )
        yield "imbalance", f"{feature.imbalance:,.3g} times as many records of {most} as of {least}"
    if feature.strings is not None and feature.has_images:
        yield from _iter_image_remarks(feature.strings)


def _iter_image_remarks(strings: StringStatistics) -> Iterator[tuple[str, str]]:
    images = strings.images
    if images.count < strings.count:
        yield "not images", f"{strings.count - images.count:,} values are not images"
    if len(images.channels) > 1:
        found = ", ".join(f"{channels}: {times:,}" for channels, times in images.channels.most_common())
        yield "channels", f"images differ in their number of channels ({found})"


def _iter_outliers(feature: FeatureStats, numbers: NumberStatistics) -> Iterator[tuple[str, str]]:
    known = quantiles_to_dict(numbers.quantiles)
    low, high = known.get("0.25"), known.get("0.75")
    if low is None or high is None or not high > low:
        return
    room = _OUTLIER_RANGES * (high - low)
    for name, value, is_far in (
        ("smallest", numbers.moments.min, numbers.moments.min < low - room),
        ("largest", numbers.moments.max, numbers.moments.max > high + room),
    ):
        if is_far:
            usual = f"half of them are from {feature.format(low)} to {feature.format(high)}"
            yield "outliers", f"the {name} value is {feature.format(to_json_value(value))}; {usual}"


def _format_value(feature: FeatureStats, value: Any) -> str:
    if isinstance(value, bytes):
        return format_string(value) or "(empty)"
    label = feature.declared
    if label is not None and label.names is not None and 0 <= value < label.count:
        return str(label.names[value])
    return feature.format(to_json_value(value))


def _render_remarks(stats: Stats, anchors: dict[str, str]) -> str:
    # Constant and empty features have their own list below.
    remarks = [one for one in find_remarks(stats) if one[1] not in ("constant", "empty")]
    if not remarks:
        return ""
    items = "".join(
        f'<li><span class="pill alert">{escape_html(kind)}</span> {_render_link(name, anchors)}: '
        f"{escape_html(says)}</li>"
        for name, kind, says in remarks[:_MAX_REMARKS]
    )
    left = len(remarks) - _MAX_REMARKS
    more = f'<p class="hint">and {left:,} more</p>' if left > 0 else ""
    return f'<h2>Worth a look</h2><div class="panel"><ul class="remarks">{items}</ul></div>{more}'


def _render_constants(stats: Stats) -> str:
    """One line for each feature with nothing to draw."""
    found = [feature for feature in stats.features.values() if not feature.values or feature.is_constant]
    if not found:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape_html(feature.name)}</th><td>{escape_html(feature.kind or "–")}</td>'
        f'<td class="value">{_describe_constant(feature)}</td>'
        f'<td class="n">{format_percent(feature.missing, feature.records)}</td></tr>'
        for feature in found[:_MAX_CONSTANTS]
    )
    left = len(found) - _MAX_CONSTANTS
    more = f'<p class="hint">and {left:,} more</p>' if left > 0 else ""
    return (
        '<h2>Constant features</h2><p class="hint">A model cannot learn from these.</p><div class="panel"><table>'
        '<thead><tr><th scope="col">feature</th><th scope="col">kind</th><th scope="col">value</th>'
        f'<th scope="col" class="n">missing</th></tr></thead><tbody>{rows}</tbody></table></div>{more}'
    )


def _describe_constant(feature: FeatureStats) -> str:
    if feature.distinct is None or not feature.distinct.total:
        return "no values"
    value = escape_html(_format_value(feature, feature.distinct.top(1)[0][0]))
    per_row = feature.seen.per_row.moments
    each = "" if feature.is_single else f" ({format_range(per_row.min, per_row.max)} values per record)"
    return f"{value}{each}"


def _render_cards(stats: Stats) -> str:
    cells = sum(feature.records for feature in stats.features.values())
    missing = sum(feature.missing for feature in stats.features.values())
    cards = [
        (f"{stats.records:,}", "records"),
        (f"{len(stats.features):,}", "features"),
        (f"{len(stats.splits):,}", "splits" if len(stats.splits) != 1 else "split"),
        (f"{stats.report.files:,}", "files" if stats.report.files != 1 else "file"),
        (format_size(stats.everything.payload_bytes), "of payload"),
        (format_share(missing, cells), "values missing"),
    ]
    items = "".join(f"<li><b>{escape_html(value)}</b><span>{label}</span></li>" for value, label in cards)
    return f'<ul class="cards">{items}</ul>'


def _render_damage(stats: Stats) -> str:
    total = len(stats.damage) + stats.damage_not_listed
    rows = []
    for finding in stats.damage[:_MAX_LISTED_DAMAGE]:
        record = "" if finding.record is None else f", record {finding.record:,}"
        place = f"{finding.path or ''}{record}"
        rows.append(f"<li>{escape_html(finding.code)} {escape_html(finding.message)}: {escape_html(place)}</li>")
    if total > _MAX_LISTED_DAMAGE:
        rows.append(f"<li>and {total - _MAX_LISTED_DAMAGE:,} more</li>")
    return (
        '<div class="notice" role="note"><b>The dataset is damaged.</b> These are the statistics of what can be read.'
        f"<ul>{''.join(rows)}</ul></div>"
    )


def _render_splits(stats: Stats) -> str:
    most = max(part.records for part in stats.splits.values())
    rows = "".join(
        f'<tr><th scope="row">{escape_html(name)}</th>{render_bar_cell(part.records, most)}<td '
        f'class="n">{part.records:,}</td>'
        f'<td class="n">{format_percent(part.records, stats.records)}</td><td '
        f'class="n">{format_size(part.payload_bytes)}</td></tr>'
        for name, part in stats.splits.items()
    )
    return (
        '<h2>Splits</h2><div class="panel"><table><thead><tr><th scope="col">split</th><td></td>'
        '<th scope="col" class="n">records</th><th scope="col" class="n">share</th>'
        f'<th scope="col" class="n">payload</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _render_skew(stats: Stats, anchors: dict[str, str]) -> str:
    order = {"differs": 0, "absent": 1, "chance": 2, "same": 3}
    ranked = sorted(stats.skew, key=lambda one: (order[one.verdict], -(one.distance or 0), one.feature))
    apart = sum(one.verdict in ("differs", "absent") for one in ranked)
    summary = f"{apart:,} of {len(ranked):,} comparisons differ." if apart else "No feature differs."
    rows = "".join(_render_skew_row(one, anchors) for one in ranked[:MAX_CARDS])
    return (
        f'<h2>Splits compared</h2><p class="hint">{summary} L∞ is the largest difference between the shares of a '
        "value, JS the Jensen–Shannon divergence of numbers in bits; 0 means identical, 1 disjoint.</p>"
        '<div class="panel"><table><thead><tr><th scope="col">feature</th><th scope="col">splits</th>'
        '<th scope="col" class="wide">measure</th><th scope="col" class="n">distance</th><th scope="col">verdict</th>'
        f'<th scope="col" class="wide">why</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _render_skew_row(one: Skew, anchors: dict[str, str]) -> str:
    word, kind = _VERDICTS[one.verdict]
    distance = "–" if one.distance is None else f"{one.distance:.3f}"
    measure = _MEASURES.get(one.measure or "", "–")
    return (
        f'<tr><th scope="row">{_render_link(one.feature, anchors)}</th>'
        f'<td>{escape_html(one.base)} / {escape_html(one.split)}</td><td class="wide">{measure}</td>'
        f'<td class="n">{distance}</td><td><span class="pill {kind}">{word}</span></td>'
        f'<td class="wide value">{escape_html(one.says)}</td></tr>'
    )


def _render_overview(stats: Stats, anchors: dict[str, str]) -> str:
    rows = "".join(_render_overview_row(feature, anchors) for feature in stats.features.values())
    left_out = stats.everything.left_out
    more = f'<p class="hint">At least {left_out:,} more keys were left out.</p>' if left_out else ""
    if len(stats.features) > MAX_CARDS:
        more += f'<p class="hint">The first {MAX_CARDS:,} are shown in full below.</p>'
    return (
        '<h2>Overview</h2><div class="panel"><table><thead><tr><th scope="col">feature</th><th scope="col">kind</th>'
        '<th scope="col" class="n">missing</th><th scope="col" class="n wide">distinct</th>'
        '<th scope="col" class="n wide">min</th><th scope="col" class="n wide">mean</th>'
        '<th scope="col" class="n wide">max</th><th scope="col">shape</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{more}"
    )


def _render_overview_row(feature: FeatureStats, anchors: dict[str, str]) -> str:
    numbers = feature.numbers
    # The mean of class ids means nothing.
    is_measured = numbers is not None and numbers.moments.count and feature.declared is None
    moments = numbers.moments if numbers is not None and is_measured else None
    about = "" if feature.distinct is None or feature.distinct.is_exact else "~"
    unique = "–" if feature.distinct is None else f"{about}{feature.distinct.unique:,}"
    low, mean, high = (
        ("", "", "") if moments is None else map(feature.format, (moments.min, moments.mean, moments.max))
    )
    return (
        f'<tr><th scope="row">{_render_link(feature.name, anchors)}</th><td>{escape_html(feature.kind or "–")}</td>'
        f'<td class="n">{format_percent(feature.missing, feature.records)}</td><td class="n wide">{unique}</td>'
        f'<td class="n wide">{low}</td><td class="n wide">{mean}</td><td class="n wide">{high}</td>'
        f"<td>{_describe_shape(feature)}</td></tr>"
    )


def _describe_shape(feature: FeatureStats) -> str:
    if feature.is_constant:
        return "constant"
    if feature.numbers is not None:
        drawn = feature.numbers.histogram()
        return "" if drawn is None else render_sparkline(drawn["counts"])
    if feature.strings is None or feature.has_images:
        return "images" if feature.has_images else ""
    ranked = [times for _, times in feature.top]
    return render_sparkline(ranked) if ranked and ranked[0] > 1 else ""


def _render_link(name: str, anchors: dict[str, str]) -> str:
    anchor = anchors.get(name)
    return escape_html(name) if anchor is None else f'<a href="#{anchor}">{escape_html(name)}</a>'
