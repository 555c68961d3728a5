"""How the values of two datasets differ as a whole: features whose distribution moved further than a threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rekord.health.stats.report import FeatureStats, Part, plain
from rekord.health.stats.skew import compare

MEAN_THRESHOLD = 0.1
"""A mean has moved when it is so many standard deviations of A from where it was."""

RANGE_THRESHOLD = 0.1
"""The least or greatest number has moved when it is outside of A's range by so much of that range."""


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A feature that moved: why it is told, and what both sides have."""

    says: list[str]
    distances: dict[str, float]  # by measure: "js", "linf", "missing"
    a: dict[str, Any]
    b: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"says": self.says, "distances": self.distances, "a": self.a, "b": self.b}


def shifts(a: Part, b: Part, *, besides: Sequence[str] = ()) -> dict[str, Shift]:
    """The features that both sides have and that moved; `besides` are keys that are new in every record."""
    says: dict[str, list[str]] = {}
    distances: dict[str, dict[str, float]] = {}
    if not (a.records and b.records):
        return {}
    for skew in compare(a, b):
        # Both sides are all there is, and no samples: what chance could explain has moved nevertheless.
        if skew.distance is None or skew.threshold is None or skew.measure is None:
            continue
        if skew.distance > skew.threshold:
            says.setdefault(skew.feature, []).append(skew.says)
            distances.setdefault(skew.feature, {})[skew.measure] = skew.distance
    moved = {}
    for name, ours in a.features.items():
        theirs = b.features.get(name)
        if theirs is None or ours.key in besides or not (ours.present and theirs.present):
            continue
        told = [text for text in [*says.get(name, []), *_numbers(ours, theirs, name in says)] if text]
        if told:
            moved[name] = Shift(
                says=told, distances=distances.get(name, {}), a=_facts(ours), b=_facts(theirs)
            )
    return moved


def _numbers(ours: FeatureStats, theirs: FeatureStats, mean_is_said: bool) -> list[str]:
    if ours.kind != theirs.kind or ours.numbers is None or theirs.numbers is None:
        return []
    a, b = ours.numbers, theirs.numbers
    says = []
    mean, other, std = a.moments.mean, b.moments.mean, a.moments.std
    if mean is not None and other is not None and std is not None:
        if abs(other - mean) > max(MEAN_THRESHOLD * std, 1e-6 * abs(mean)) and not mean_is_said:
            says.append(f"mean {mean:.4g} against {other:.4g}")
        room = RANGE_THRESHOLD * (a.moments.max - a.moments.min)
        if b.moments.min < a.moments.min - room:
            says.append(f"least {a.moments.min:.6g} against {b.moments.min:.6g}")
        if b.moments.max > a.moments.max + room:
            says.append(f"greatest {a.moments.max:.6g} against {b.moments.max:.6g}")
    for word, before, after in (
        ("NaN", a.nan, b.nan),
        ("infinite", a.negative_inf + a.positive_inf, b.negative_inf + b.positive_inf),
    ):
        if bool(before) != bool(after):
            says.append(f"{before:,} values {word} against {after:,}")
    return says


def _facts(feature: FeatureStats) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "kind": feature.kind,
        "present": feature.present,
        "missing": feature.missing,
        "values_min": feature.seen.per_row.moments.min,
        "values_max": feature.seen.per_row.moments.max,
    }
    if feature.numbers is not None:
        moments = feature.numbers.moments
        facts |= {"min": plain(moments.min), "max": plain(moments.max)}
        facts |= {"mean": _finite(moments.mean), "std": _finite(moments.std), "nan": feature.numbers.nan}
    if feature.strings is not None:
        lengths = feature.strings.lengths.moments
        facts |= {"length_min": lengths.min, "length_max": lengths.max, "length_mean": lengths.mean}
    return facts


def _finite(number: float | None) -> float | None:
    return number if number is None or math.isfinite(number) else None
