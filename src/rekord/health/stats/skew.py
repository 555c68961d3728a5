"""How far the splits of a dataset are from each other, feature by feature.

Categories (byte strings, labels) are compared by L-infinity: the largest difference between the shares that a value
has on both sides. Numbers are compared by the Jensen-Shannon divergence in bits, from 0 to 1, over common bins: the
bins' edges are the twentieths of both sides taken together. The greatest value, NaN and the infinities have bins of
their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from rekord.health.stats.distinct import Distinct
from rekord.health.stats.figures import number
from rekord.health.stats.numbers import Numbers, counts_between
from rekord.health.stats.report import FeatureStats, Part, Skew
from rekord.health.stats.sketches import Quantiles
from rekord.health.stats.strings import shown

LINF_THRESHOLD = 0.05
"""A value's share may differ by five of a hundred."""

JS_THRESHOLD = 0.05
"""About what a bell curve has that is moved by half its standard deviation."""

MISSING_THRESHOLD = 0.05
_BINS = 20
_CHANCE = 4.0
"""So many standard deviations are put down to chance: with hundreds of values some are always far out."""


def compare_splits(
    splits: Mapping[str, Part], *, linf: float = LINF_THRESHOLD, js: float = JS_THRESHOLD
) -> list[Skew]:
    """Each split against the first that has records, which is the one to train on where there is one."""
    names = [name for name, part in splits.items() if part.records]
    if len(names) < 2:
        return []
    base = names[0]
    return [
        skew
        for name in names
        if name != base
        for skew in compare(splits[base], splits[name], linf=linf, js=js)
    ]


def compare(
    base: Part, other: Part, *, linf: float = LINF_THRESHOLD, js: float = JS_THRESHOLD
) -> Iterator[Skew]:
    """The distances between two parts, one for each feature that can be compared."""
    for name in sorted({*base.features, *other.features}):
        ours, theirs = base.features.get(name), other.features.get(name)
        if ours is None or theirs is None or not (ours.present and theirs.present):
            if (ours is not None and ours.present) or (theirs is not None and theirs.present):
                here = base if ours is not None and ours.present else other
                yield _told(name, base, other, "absent", f"only {here.name} has this feature")
            continue
        if ours.kind != theirs.kind:
            says = f"{base.name} holds {ours.kind}, {other.name} holds {theirs.kind}"
            yield _told(name, base, other, "differs", says)
            continue
        yield from _measured(ours, theirs, base, other, linf=linf, js=js)
        yield from _missing(ours, theirs, base, other)


def _measured(
    ours: FeatureStats, theirs: FeatureStats, base: Part, other: Part, *, linf: float, js: float
) -> Iterator[Skew]:
    sizes = 1 / ours.present + 1 / theirs.present
    if ours.numbers is not None and theirs.numbers is not None and not _is_label(ours, theirs):
        distance, bins = jensen_shannon(ours.numbers, theirs.numbers)
        chance = _CHANCE * max(bins - 1, 0) / (8 * math.log(2)) * sizes
        means = ours.numbers.moments.mean, theirs.numbers.moments.mean
        says = "" if None in means else f"mean {number(means[0])} against {number(means[1])}"
        yield _judged(ours.name, base, other, "js", distance, js, chance, says)
    elif ours.distinct is not None and theirs.distinct is not None and not ours.is_pictures:
        if not (ours.distinct.total and theirs.distinct.total):
            return
        distance, value, shares = l_infinity(ours.distinct, theirs.distinct)
        pooled = (shares[0] * ours.present + shares[1] * theirs.present) / (ours.present + theirs.present)
        chance = _CHANCE * math.sqrt(max(pooled * (1 - pooled), 0.0) * sizes)
        named = _class_name(ours, value)
        says = f"{named}: {shares[0]:.1%} against {shares[1]:.1%}" if distance else ""
        yield _judged(ours.name, base, other, "linf", distance, linf, chance, says)


def _missing(ours: FeatureStats, theirs: FeatureStats, base: Part, other: Part) -> Iterator[Skew]:
    shares = ours.missing / ours.records, theirs.missing / theirs.records
    distance = abs(shares[0] - shares[1])
    pooled = (ours.missing + theirs.missing) / (ours.records + theirs.records)
    chance = _CHANCE * math.sqrt(pooled * (1 - pooled) * (1 / ours.records + 1 / theirs.records))
    if distance > max(MISSING_THRESHOLD, chance):
        says = f"missing in {shares[0]:.1%} against {shares[1]:.1%}"
        yield Skew(
            ours.name, base.name, other.name, "missing", distance, MISSING_THRESHOLD, chance, "differs", says
        )


def jensen_shannon(ours: Numbers, theirs: Numbers) -> tuple[float, int]:
    """The divergence of two sets of numbers in bits, and how many bins it was taken over."""
    left, right = _binned(ours, theirs)
    if not (left.sum() and right.sum()):
        return 0.0, 0
    p, q = left / left.sum(), right / right.sum()
    middle = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log2(p / middle), 0) + np.where(q > 0, q * np.log2(q / middle), 0)
    return min(max(float(terms.sum()) / 2, 0.0), 1.0), int(np.count_nonzero(middle))


def _binned(ours: Numbers, theirs: Numbers) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    both = Quantiles(ours.quantiles.dtype)
    both.merge(ours.quantiles)
    both.merge(theirs.quantiles)
    inner = both.at([i / _BINS for i in range(1, _BINS)])
    counts = []
    for numbers in (ours, theirs):
        outside = [numbers.nan, numbers.negative_inf, numbers.positive_inf]
        inside: list[int] = []
        if both.count:
            least = min(one.moments.min for one in (ours, theirs) if one.moments.count)
            most = max(one.moments.max for one in (ours, theirs) if one.moments.count)
            edges = np.unique(np.array([least, *inner, most], np.float64))
            edges = np.append(edges, edges[-1])  # the greatest value has a bin of its own: it may be a class
            inside = counts_between(numbers, edges).tolist()
        counts.append(np.array([*inside, *outside], np.float64))
    return counts[0], counts[1]


def l_infinity(ours: Distinct, theirs: Distinct) -> tuple[float, object, tuple[float, float]]:
    """The largest difference of a value's shares, that value, and its two shares."""
    keys = np.union1d(ours.keys, theirs.keys)
    shares = [_shares(one, keys) for one in (ours, theirs)]
    apart = np.abs(shares[0] - shares[1])
    # Of two values that are as far apart, which is the rule where there are two, the more frequent one is named.
    furthest = np.flatnonzero(apart >= apart.max() - 1e-12)
    at = int(furthest[np.argmax(shares[0][furthest])])
    value: object = keys[at].item()
    for one in (ours, theirs):
        place = int(np.searchsorted(one.keys, keys[at]))
        if one.names is not None and place < len(one.keys) and one.keys[place] == keys[at]:
            value = one.names[place]
    return float(apart[at]), value, (float(shares[0][at]), float(shares[1][at]))


def _shares(distinct: Distinct, keys: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    shares = np.zeros(len(keys))
    shares[np.searchsorted(keys, distinct.keys)] = distinct.counts / distinct.total
    return shares


def _is_label(ours: FeatureStats, theirs: FeatureStats) -> bool:
    return ours.kind == "int64" and (ours.classes is not None or theirs.classes is not None)


def _class_name(feature: FeatureStats, value: object) -> str:
    if isinstance(value, bytes):
        return f"“{shown(value)}”"
    label = feature.declared
    if label is not None and label.names is not None and isinstance(value, int) and 0 <= value < label.count:
        return f"“{label.names[value]}”"
    return str(value)


def _judged(
    name: str,
    base: Part,
    other: Part,
    measure: str,
    distance: float,
    threshold: float,
    chance: float,
    says: str,
) -> Skew:
    if distance <= threshold:
        verdict = "same"
    elif distance <= chance:
        verdict = "chance"
    else:
        verdict = "differs"
    return Skew(name, base.name, other.name, measure, distance, threshold, chance, verdict, says)


def _told(name: str, base: Part, other: Part, verdict: str, says: str) -> Skew:
    return Skew(name, base.name, other.name, None, None, None, None, verdict, says)
