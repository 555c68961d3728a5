"""`rk.stats`: statistics of a dataset, feature by feature."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial

from rekord.arguments import check_keywords, fraction
from rekord.errors import RekordError, error
from rekord.health.dataset_files import find_dataset_files, list_split_files, resolve_schema
from rekord.health.finding import Finding, Report
from rekord.health.stats.accumulate import Accumulator, RecordSampler, accumulate
from rekord.health.stats.report import JS_THRESHOLD, LINF_THRESHOLD, Stats, build_part_stats, compare_splits
from rekord.location import Location
from rekord.schema import Schema
from rekord.storage.local import PathLike

MAX_DAMAGE = 1000
"""Findings listed; the rest is counted."""

_UNCOUNTED_CODES = ("H711", "H712", "H713", "H714", "H715", "H727")


@check_keywords
def stats(
    path: PathLike | Sequence[PathLike],
    *,
    schema: Schema | PathLike | None = None,
    linf_threshold: float = LINF_THRESHOLD,
    js_threshold: float = JS_THRESHOLD,
    report: Report | None = None,
) -> Stats:
    """Read every record of a file, folder or glob once, and compute statistics of its features.

    Damage is skipped: the statistics cover what can be read, and `damage` lists what cannot. The schema, by default
    that of the manifest, names the classes of labels. Splits are compared with the training split; a distance above
    its threshold, and above what chance explains, is a difference. `report` counts files, records and bytes while
    they are read.
    """
    for name, threshold in (("linf_threshold", linf_threshold), ("js_threshold", js_threshold)):
        fraction(name, threshold)
    schema = resolve_schema(schema)
    report = Report() if report is None else report
    place = find_dataset_files(path)
    there = list_split_files(place)
    splits, found = there.splits, there.findings
    schema = place.schema if schema is None else schema
    parts: dict[str, Accumulator] = {}
    foreign: list[Finding] = []
    not_listed = 0
    sampler = RecordSampler(schema)
    for name in sorted(splits, key=_split_sort_key):
        paths = splits[name]
        parts[name] = Accumulator()
        for finding in accumulate(paths, report, parts[name], partial(sampler.add, name)):
            if finding.code in _UNCOUNTED_CODES:
                foreign += [finding][: MAX_DAMAGE - len(foreign)]
            elif finding.severity == "error" and len(found) < MAX_DAMAGE:
                found.append(finding)
            elif finding.severity == "error":
                not_listed += 1
    report.errors = len(found) + not_listed
    if not report.records and found:
        raise _unreadable_error(found[0])
    everything = _merge_accumulators(list(parts.values()))
    by_split = {name: build_part_stats(name, part, schema) for name, part in parts.items()}
    skew = compare_splits(by_split, linf=linf_threshold, js=js_threshold)
    whole = build_part_stats("all", everything, schema)
    return Stats(
        _format_path(path), whole, by_split, skew, found, not_listed, foreign, report, sampler.samples, schema
    )


def _split_sort_key(split: str) -> tuple[int, str]:
    """Training first, then validation, then test: the usual order."""
    last = re.split(r"[-_.]", split.lower())[-1]
    known = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "eval": 1, "test": 2}
    return known.get(last, 3), split


def _merge_accumulators(parts: list[Accumulator]) -> Accumulator:
    if len(parts) == 1:
        return parts[0]
    everything = Accumulator()
    for part in parts:
        everything.merge(part)
    return everything


def _unreadable_error(finding: Finding) -> RekordError:
    """The error of a finding, if nothing at all could be read."""
    return error(
        finding.code,
        finding.message,
        location=Location(path=finding.path, record=finding.record, offset=finding.offset),
        expected=finding.expected,
        found=finding.found,
        likely=finding.likely,
        do=finding.do,
    )


def _format_path(path: PathLike | Sequence[PathLike]) -> str:
    if isinstance(path, (str, os.PathLike)):
        return os.fsdecode(path)
    return ", ".join(os.fsdecode(one) for one in path)
