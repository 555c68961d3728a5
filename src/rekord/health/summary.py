"""Reports and statistics in a few lines, and as HTML for notebooks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rekord.report.formatting import format_byte_size, format_count, format_number
from rekord.report.notebook import Cell, render_fragment, render_table
from rekord.schema.schema import shorten_name

if TYPE_CHECKING:
    from rekord.health.finding import Finding, Report
    from rekord.health.stats.report import FeatureStats, Stats

_MAX_LINES = 8
_MAX_MESSAGE = 70


def summarize_report(report: Report) -> str:
    """`repr` of a report: the counts, and its first findings."""
    rows = [_describe_finding(finding) for finding in report.findings[:_MAX_LINES]]
    lines = _align(rows)
    more = len(report.findings) - len(rows) + report.not_listed
    if more:
        lines.append(f"  … {more:,} more")
    return "\n".join([f"Report: {', '.join(_report_facts(report))}", *lines])


def render_report(report: Report) -> str:
    """A report as HTML."""
    rows = [
        (
            Cell(f'<span class="{"warn" if finding.severity == "error" else "soft"}">{finding.code}</span>'),
            finding.severity,
            *_describe_finding(finding)[1:],
            finding.do or "",
        )
        for finding in report.findings
        if finding.code.isalnum()
    ]
    head = ("code", "severity", "where", "finding", "do")
    return render_fragment("Report", _report_facts(report), render_table(head, rows) if rows else "")


def _report_facts(report: Report) -> list[str]:
    counts = Counter(finding.severity for finding in report.findings)
    facts = [format_count(report.errors, "error")] if report.errors else ["ok"]
    facts += [format_count(counts[name], name) for name in ("warning", "note") if counts[name]]
    facts += [format_count(report.files, "file"), format_count(report.records, "record")]
    return [*facts, format_byte_size(report.payload_bytes)]


def _describe_finding(finding: Finding) -> tuple[str, str, str]:
    where = shorten_name(os.path.basename(finding.path or ""))
    if finding.record is not None:
        where += f" record {finding.record:,}"
    if finding.feature is not None:
        where += f" `{shorten_name(finding.feature)}`"
    return finding.code, where.strip(), _cut(finding.message)


def summarize_stats(stats: Stats) -> str:
    """`repr` of statistics: the counts, and a line for each feature."""
    features = list(stats.features.values())
    lines = _align([_describe_feature(feature) for feature in features[:_MAX_LINES]])
    if len(features) > _MAX_LINES:
        lines.append(f"  … {len(features) - _MAX_LINES:,} more")
    return "\n".join([f"Stats: {', '.join(_stats_facts(stats))}", *lines])


def render_stats(stats: Stats) -> str:
    """Statistics as HTML."""
    head = ("feature", "kind", "present", "missing", "values")
    rows = [
        (shorten_name(feature.name), feature.kind or "–", f"{feature.present:,}", f"{feature.missing:,}", values)
        for feature in stats.features.values()
        for values in [_describe_feature(feature)[-1]]
    ]
    splits = [(shorten_name(name), f"{part.records:,}") for name, part in stats.splits.items()]
    parts = [render_table(("split", "records"), splits, right=(1,))] if len(splits) > 1 else []
    return render_fragment("Stats", _stats_facts(stats), *parts, render_table(head, rows, right=(2, 3)))


def _stats_facts(stats: Stats) -> list[str]:
    facts = [format_count(stats.records, "record"), format_count(len(stats.features), "feature")]
    if len(stats.splits) > 1:
        facts.insert(1, format_count(len(stats.splits), "split"))
    return facts if stats.ok else [*facts, format_count(len(stats.damage) + stats.damage_not_listed, "damaged place")]


def _describe_feature(feature: FeatureStats) -> tuple[str, str, str, str]:
    values = ""
    if feature.numbers is not None and feature.numbers.moments.count:
        moments = feature.numbers.moments
        least, mean, most = (format_number(one) for one in (moments.min, moments.mean, moments.max))
        values = f"{least} to {most}, mean {mean}"
        if feature.classes is not None:
            values = format_count(len(feature.classes), "class")
    elif feature.distinct is not None and feature.distinct.total:
        values = f"{feature.distinct.unique:,} distinct"
    missing = f", {feature.missing:,} missing" if feature.missing else ""
    return shorten_name(feature.name), feature.kind or "–", f"{feature.present:,} present{missing}", values


def _align(rows: Sequence[Sequence[Any]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _cut(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in text[: _MAX_MESSAGE + 1])
    return shown if len(shown) <= _MAX_MESSAGE else shown[: _MAX_MESSAGE - 1] + "…"
