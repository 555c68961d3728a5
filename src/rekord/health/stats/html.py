"""The report of statistics as one HTML page that needs nothing from anywhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rekord.health.stats.cards import feature_card
from rekord.health.stats.charts import bar_cell, escaped, percent, spark
from rekord.health.stats.figures import number, share, size
from rekord.health.stats.report import FeatureStats, Skew, Stats
from rekord.health.stats.style import STYLE
from rekord.version import VERSION

MOST_CARDS = 500
"""So many features are drawn at full size; a page of thousands of charts is none that a person reads."""

_LISTED_DAMAGE = 10
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_VERDICTS = {
    "differs": ("differs", "alert"),
    "absent": ("absent", "alert"),
    "chance": ("within chance", ""),
    "same": ("alike", ""),
}
_MEASURES = {"linf": "L∞", "js": "JS", "missing": "missing"}


def page(stats: Stats) -> str:
    """The whole page. It loads nothing, runs nothing, and holds no text from the data that is not escaped."""
    title = os.path.basename(os.path.normpath(stats.path)) or stats.path
    anchors = {name: f"f{i}" for i, name in enumerate(stats.features) if i < MOST_CARDS}
    body = "".join(_sections(stats, anchors))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8" />'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(_POLICY)}" />'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />'
        f"<title>{escaped(title)}: statistics</title><style>{STYLE}</style></head><body>"
        f'<header class="top"><p class="eyebrow">Dataset statistics</p><h1>{escaped(title)}</h1></header>'
        f"<main>{body}<footer>rekord {escaped(VERSION)} · {escaped(stats.path)}</footer></main></body></html>\n"
    )


def _sections(stats: Stats, anchors: dict[str, str]) -> Iterator[str]:
    yield _cards(stats)
    if stats.damage:
        yield _damage(stats)
    if len(stats.splits) > 1:
        yield _splits(stats)
    if stats.skew:
        yield _skew(stats, anchors)
    yield _overview(stats, anchors)
    cards = [feature_card(stats.features[name], stats.splits, anchor) for name, anchor in anchors.items()]
    if cards:
        yield f'<h2 id="features">Features</h2>{"".join(cards)}'


def _cards(stats: Stats) -> str:
    cells = sum(feature.records for feature in stats.features.values())
    missing = sum(feature.missing for feature in stats.features.values())
    cards = [
        (f"{stats.records:,}", "records"),
        (f"{len(stats.features):,}", "features"),
        (f"{len(stats.splits):,}", "splits" if len(stats.splits) != 1 else "split"),
        (f"{stats.report.files:,}", "files" if stats.report.files != 1 else "file"),
        (size(stats.everything.payload_bytes), "of payload"),
        (share(missing, cells), "values missing"),
    ]
    items = "".join(f"<li><b>{escaped(value)}</b><span>{label}</span></li>" for value, label in cards)
    return f'<ul class="cards">{items}</ul>'


def _damage(stats: Stats) -> str:
    total = len(stats.damage) + stats.damage_not_listed
    rows = []
    for finding in stats.damage[:_LISTED_DAMAGE]:
        record = "" if finding.record is None else f", record {finding.record:,}"
        place = f"{finding.path or ''}{record}"
        rows.append(f"<li>{escaped(finding.code)} {escaped(finding.message)}: {escaped(place)}</li>")
    if total > _LISTED_DAMAGE:
        rows.append(f"<li>and {total - _LISTED_DAMAGE:,} more</li>")
    return (
        '<div class="notice" role="note"><b>The dataset is damaged.</b> These are the statistics of what can be read.'
        f"<ul>{''.join(rows)}</ul></div>"
    )


def _splits(stats: Stats) -> str:
    most = max(part.records for part in stats.splits.values())
    rows = "".join(
        f'<tr><th scope="row">{escaped(name)}</th>{bar_cell(part.records, most)}<td class="n">{part.records:,}</td>'
        f'<td class="n">{percent(part.records, stats.records)}</td><td class="n">{size(part.payload_bytes)}</td></tr>'
        for name, part in stats.splits.items()
    )
    return (
        '<h2>Splits</h2><div class="panel"><table><thead><tr><th scope="col">split</th><td></td>'
        '<th scope="col" class="n">records</th><th scope="col" class="n">share</th>'
        f'<th scope="col" class="n">payload</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _skew(stats: Stats, anchors: dict[str, str]) -> str:
    order = {"differs": 0, "absent": 1, "chance": 2, "same": 3}
    ranked = sorted(stats.skew, key=lambda one: (order[one.verdict], -(one.distance or 0), one.feature))
    apart = sum(one.verdict in ("differs", "absent") for one in ranked)
    said = f"{apart:,} of {len(ranked):,} comparisons differ." if apart else "No feature differs."
    rows = "".join(_skew_row(one, anchors) for one in ranked[:MOST_CARDS])
    return (
        f'<h2>Splits compared</h2><p class="hint">{said} L∞ is the largest difference between the shares of a value, '
        "JS the Jensen–Shannon divergence of numbers in bits; 0 is alike, 1 is disjoint.</p>"
        '<div class="panel"><table><thead><tr><th scope="col">feature</th><th scope="col">splits</th>'
        '<th scope="col" class="wide">measure</th><th scope="col" class="n">distance</th><th scope="col">verdict</th>'
        f'<th scope="col" class="wide">why</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _skew_row(one: Skew, anchors: dict[str, str]) -> str:
    word, kind = _VERDICTS[one.verdict]
    distance = "–" if one.distance is None else f"{one.distance:.3f}"
    measure = _MEASURES.get(one.measure or "", "–")
    return (
        f'<tr><th scope="row">{_linked(one.feature, anchors)}</th>'
        f'<td>{escaped(one.base)} / {escaped(one.split)}</td><td class="wide">{measure}</td>'
        f'<td class="n">{distance}</td><td><span class="pill {kind}">{word}</span></td>'
        f'<td class="wide value">{escaped(one.says)}</td></tr>'
    )


def _overview(stats: Stats, anchors: dict[str, str]) -> str:
    rows = "".join(_overview_row(feature, anchors) for feature in stats.features.values())
    left_out = stats.everything.left_out
    more = (
        f'<p class="hint">{left_out:,} more keys, or more than that, were left out.</p>' if left_out else ""
    )
    if len(stats.features) > MOST_CARDS:
        more += f'<p class="hint">The first {MOST_CARDS:,} are shown in full below.</p>'
    return (
        '<h2>Overview</h2><div class="panel"><table><thead><tr><th scope="col">feature</th><th scope="col">kind</th>'
        '<th scope="col" class="n">missing</th><th scope="col" class="n wide">distinct</th>'
        '<th scope="col" class="n wide">min</th><th scope="col" class="n wide">mean</th>'
        '<th scope="col" class="n wide">max</th><th scope="col">shape</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{more}"
    )


def _overview_row(feature: FeatureStats, anchors: dict[str, str]) -> str:
    numbers = feature.numbers
    moments = None if numbers is None or not numbers.moments.count else numbers.moments
    about = "" if feature.distinct is None or feature.distinct.is_exact else "~"
    unique = "–" if feature.distinct is None else f"{about}{feature.distinct.unique:,}"
    low, mean, high = (
        ("", "", "") if moments is None else map(number, (moments.min, moments.mean, moments.max))
    )
    return (
        f'<tr><th scope="row">{_linked(feature.name, anchors)}</th><td>{escaped(feature.kind or "–")}</td>'
        f'<td class="n">{percent(feature.missing, feature.records)}</td><td class="n wide">{unique}</td>'
        f'<td class="n wide">{low}</td><td class="n wide">{mean}</td><td class="n wide">{high}</td>'
        f"<td>{_shape(feature)}</td></tr>"
    )


def _shape(feature: FeatureStats) -> str:
    if feature.numbers is not None:
        drawn = feature.numbers.histogram()
        return "" if drawn is None else spark(drawn["counts"])
    if feature.strings is None or feature.is_pictures:
        return "pictures" if feature.is_pictures else ""
    ranked = [times for _, times in feature.top]
    return spark(ranked) if ranked and ranked[0] > 1 else ""


def _linked(name: str, anchors: dict[str, str]) -> str:
    anchor = anchors.get(name)
    return escaped(name) if anchor is None else f'<a href="#{anchor}">{escaped(name)}</a>'
