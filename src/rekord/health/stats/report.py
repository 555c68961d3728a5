"""The statistics of features, splits and datasets, and the distances between splits, as values and as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord.arguments import INT64_MAX
from rekord.health.finding import Finding, JsonFields, Report
from rekord.health.stats.accumulate import Accumulator, FeatureAccumulator, RecordSample
from rekord.health.stats.numbers import (
    DistinctValues,
    MemoryBudget,
    NumberStatistics,
    Quantiles,
    count_between_edges,
    quantiles_to_dict,
)
from rekord.health.stats.strings import StringStatistics, format_string
from rekord.report.formatting import format_number
from rekord.report.notebook import never_raises
from rekord.schema import Label, Schema
from rekord.schema.base import ListKind

LINF_THRESHOLD = 0.05
"""A value's share may differ by five percentage points."""

JS_THRESHOLD = 0.05
"""About the divergence of a normal distribution that is shifted by half its standard deviation."""

MISSING_THRESHOLD = 0.05
_BINS = 20
_CHANCE_FACTOR = 4.0
"""Standard deviations attributed to chance: among hundreds of values, some are always outliers."""


def compare_splits(
    splits: Mapping[str, PartStats], *, linf: float = LINF_THRESHOLD, js: float = JS_THRESHOLD
) -> list[Skew]:
    """Compare each split with the first that has records, which is the training split if there is one."""
    names = [name for name, part in splits.items() if part.records]
    if len(names) < 2:
        return []
    base = names[0]
    return [
        skew for name in names if name != base for skew in compare_parts(splits[base], splits[name], linf=linf, js=js)
    ]


def compare_parts(
    base: PartStats, other: PartStats, *, linf: float = LINF_THRESHOLD, js: float = JS_THRESHOLD
) -> Iterator[Skew]:
    """The distances between two parts, one for each feature that can be compared."""
    for name in sorted({*base.features, *other.features}):
        ours, theirs = base.features.get(name), other.features.get(name)
        if ours is None or theirs is None or not (ours.present and theirs.present):
            if (ours is not None and ours.present) or (theirs is not None and theirs.present):
                here = base if ours is not None and ours.present else other
                yield _build_skew(name, base, other, "absent", f"only {here.name} has this feature")
            continue
        if ours.kind != theirs.kind:
            says = f"{base.name} holds {ours.kind}, {other.name} holds {theirs.kind}"
            yield _build_skew(name, base, other, "differs", says)
            continue
        yield from _measure_skew(ours, theirs, base, other, linf=linf, js=js)
        yield from _compare_missing(ours, theirs, base, other)


def _measure_skew(
    ours: FeatureStats, theirs: FeatureStats, base: PartStats, other: PartStats, *, linf: float, js: float
) -> Iterator[Skew]:
    sizes = 1 / ours.present + 1 / theirs.present
    if ours.numbers is not None and theirs.numbers is not None and not _is_label(ours, theirs):
        distance, bins = jensen_shannon(ours.numbers, theirs.numbers)
        chance = _CHANCE_FACTOR * max(bins - 1, 0) / (8 * math.log(2)) * sizes
        means = ours.numbers.moments.mean, theirs.numbers.moments.mean
        says = "" if None in means else f"mean {ours.format(means[0])} vs {ours.format(means[1])}"
        yield _judge_skew(ours.name, base, other, "js", distance, js, chance, says)
    elif ours.distinct is not None and theirs.distinct is not None and not ours.has_images:
        if not (ours.distinct.total and theirs.distinct.total):
            return
        distance, value, shares = l_infinity(ours.distinct, theirs.distinct)
        pooled = (shares[0] * ours.present + shares[1] * theirs.present) / (ours.present + theirs.present)
        chance = _CHANCE_FACTOR * math.sqrt(max(pooled * (1 - pooled), 0.0) * sizes)
        named = _get_class_name(ours, value)
        says = f"{named}: {shares[0]:.1%} vs {shares[1]:.1%}" if distance else ""
        yield _judge_skew(ours.name, base, other, "linf", distance, linf, chance, says)


def _compare_missing(ours: FeatureStats, theirs: FeatureStats, base: PartStats, other: PartStats) -> Iterator[Skew]:
    shares = ours.missing / ours.records, theirs.missing / theirs.records
    distance = abs(shares[0] - shares[1])
    pooled = (ours.missing + theirs.missing) / (ours.records + theirs.records)
    chance = _CHANCE_FACTOR * math.sqrt(pooled * (1 - pooled) * (1 / ours.records + 1 / theirs.records))
    if distance > max(MISSING_THRESHOLD, chance):
        says = f"missing in {shares[0]:.1%} vs {shares[1]:.1%}"
        yield Skew(ours.name, base.name, other.name, "missing", distance, MISSING_THRESHOLD, chance, "differs", says)


def jensen_shannon(ours: NumberStatistics, theirs: NumberStatistics) -> tuple[float, int]:
    """The divergence of two sets of numbers in bits, and the number of bins that it is based on."""
    left, right = _bin_numbers(ours, theirs)
    if not (left.sum() and right.sum()):
        return 0.0, 0
    p, q = left / left.sum(), right / right.sum()
    middle = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log2(p / middle), 0) + np.where(q > 0, q * np.log2(q / middle), 0)
    return min(max(float(terms.sum()) / 2, 0.0), 1.0), int(np.count_nonzero(middle))


def _bin_numbers(
    ours: NumberStatistics, theirs: NumberStatistics
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
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
            edges = np.append(edges, edges[-1])  # the greatest value has its own bin: it may be a class
            inside = count_between_edges(numbers, edges).tolist()
        counts.append(np.array([*inside, *outside], np.float64))
    return counts[0], counts[1]


def l_infinity(ours: DistinctValues, theirs: DistinctValues) -> tuple[float, object, tuple[float, float]]:
    """The largest difference between the shares of a value, that value, and its two shares."""
    keys = np.union1d(ours.keys, theirs.keys)
    shares = [_compute_shares(one, keys) for one in (ours, theirs)]
    apart = np.abs(shares[0] - shares[1])
    # With two values, both usually differ by the same share; then the more frequent one is reported.
    furthest = np.flatnonzero(apart >= apart.max() - 1e-12)
    at = int(furthest[np.argmax(shares[0][furthest])])
    value: object = keys[at].item()
    for one in (ours, theirs):
        place = int(np.searchsorted(one.keys, keys[at]))
        if one.names is not None and place < len(one.keys) and one.keys[place] == keys[at]:
            value = one.names[place]
    return float(apart[at]), value, (float(shares[0][at]), float(shares[1][at]))


def _compute_shares(distinct: DistinctValues, keys: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    shares = np.zeros(len(keys))
    shares[np.searchsorted(keys, distinct.keys)] = distinct.counts / distinct.total
    return shares


def _is_label(ours: FeatureStats, theirs: FeatureStats) -> bool:
    return ours.kind == "int64" and (ours.classes is not None or theirs.classes is not None)


def _get_class_name(feature: FeatureStats, value: object) -> str:
    if isinstance(value, bytes):
        return f"“{format_string(value)}”"
    label = feature.declared
    if label is not None and label.names is not None and isinstance(value, int) and 0 <= value < label.count:
        return f"“{label.names[value]}”"
    return str(value)


def _judge_skew(
    name: str,
    base: PartStats,
    other: PartStats,
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


def _build_skew(name: str, base: PartStats, other: PartStats, verdict: str, says: str) -> Skew:
    return Skew(name, base.name, other.name, None, None, None, None, verdict, says)


MAX_TOP_VALUES = 20
MAX_CLASSES = 1000
_MAX_UNDECLARED_CLASSES = 20
"""Numbers and strings with at most this many distinct values, each twice on average, are considered classes."""

_ZERO_FRACTION = re.compile(r"\.0+(?=Z?$)")
_CLASS_NAMES = ("label", "class", "category", "target", "labels", "text")


@dataclass(frozen=True, eq=False)
class FeatureStats:
    """The statistics of one feature. `min`, `max`, `mean`, `std` and quantiles are those of its finite numbers."""

    name: str
    key: str
    records: int
    seen: FeatureAccumulator
    is_step: bool = False
    declared: Label | None = None
    declared_kind: ListKind | None = None
    declared_text: Callable[[int], str] | None = None  # if its integers represent points in time

    @property
    def text(self) -> Callable[[int], str] | None:
        """Formats a value, if that is not the number itself."""
        return self.declared_text if self.kind == "int64" else None

    def to_json(self, value: Any) -> Any:
        """A value, or a mean, as JSON; a point in time is text in ISO 8601."""
        if self.text is None or value is None:
            return to_json_value(value)
        return self.text(min(round(value), INT64_MAX))  # a mean is a float, and may be rounded up

    def format(self, value: float | None) -> str:
        """A value, or a mean, for display."""
        if self.text is None or value is None:
            return format_number(value)
        return _ZERO_FRACTION.sub("", self.to_json(value))

    @property
    def kind(self) -> ListKind | None:
        """int64, float or bytes: the kind in most records; None if there is none and no schema declares it."""
        return self.seen.kind if self.seen.kinds else self.declared_kind

    @property
    def present(self) -> int:
        """The number of records with the key."""
        return self.seen.present

    @property
    def missing(self) -> int:
        """The number of records without the key, or with the key but without a kind."""
        return self.records - self.present

    @property
    def numbers(self) -> NumberStatistics | None:
        """The statistics of numbers, if the feature's kind is int64 or float."""
        return None if self.kind is None else self.seen.numbers.get(self.kind)

    @property
    def strings(self) -> StringStatistics | None:
        """The statistics of byte strings, if the feature's kind is bytes."""
        return self.seen.strings if self.kind == "bytes" else None

    @property
    def distinct(self) -> DistinctValues | None:
        """The distinct values."""
        values = self.numbers or self.strings
        return None if values is None else values.distinct

    @property
    def values(self) -> int:
        """The number of values in all records."""
        values = self.numbers or self.strings
        return 0 if values is None else values.count

    @property
    def is_single(self) -> bool:
        """Whether every record that has the key has exactly one value."""
        return (self.seen.per_row.moments.min, self.seen.per_row.moments.max) == (1, 1)

    @property
    def has_images(self) -> bool:
        """Whether most of the values are encoded images."""
        return self.strings is not None and 2 * self.strings.images.count > self.strings.count

    @cached_property
    def top(self) -> list[tuple[float | str, int]]:
        """The most frequent values with their counts, formatted for display."""
        pairs = [] if self.distinct is None else self.distinct.top(MAX_TOP_VALUES)
        # Of images only repeated ones are informative: nobody reads their bytes.
        return [(self.to_json(value), times) for value, times in pairs if times > 1 or not self.has_images]

    @cached_property
    def classes(self) -> dict[str, int] | None:
        """The count of each class, if this is a label: declared as one, or similar to one."""
        distinct = self.distinct
        if distinct is None or not distinct.is_exact or self.kind == "float" or not distinct.total:
            return None
        if self.declared is not None:
            return _count_declared_classes(self.declared, distinct)
        named = self.key.rpartition("/")[2].lower() in _CLASS_NAMES and distinct.unique <= MAX_CLASSES
        # A schema that declares a key as something other than a Label is right.
        # One value that all records share is a constant, not a class.
        few = self.is_single and 2 <= distinct.unique <= _MAX_UNDECLARED_CLASSES and self.declared_kind is None
        if not (named or few) or 2 * distinct.unique > distinct.total or self.has_images:
            return None
        if self.kind == "int64":
            return {str(value): int(n) for value, n in zip(distinct.keys.tolist(), distinct.counts, strict=True)}
        return {format_string(value): n for value, n in distinct.top(MAX_CLASSES)}

    @property
    def is_constant(self) -> bool:
        """Whether all values of all records that have the feature are the same. Images are never constant."""
        distinct = self.distinct
        return distinct is not None and distinct.is_exact and distinct.unique == 1 and not self.has_images

    @property
    def imbalance(self) -> float | None:
        """The ratio of the most frequent class to the rarest one that occurs."""
        counts = [n for n in (self.classes or {}).values() if n]
        return max(counts) / min(counts) if counts else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        seen, per_row, distinct = self.seen, self.seen.per_row.moments, self.distinct
        moments = None if self.numbers is None else self.numbers.moments
        document: dict[str, Any] = {
            "kind": self.kind,
            "present": self.present,
            "missing": self.missing,
            "kinds": dict(seen.kinds),
            "min": None if moments is None else self.to_json(moments.min),
            "max": None if moments is None else self.to_json(moments.max),
            "mean": None if moments is None else moments.mean if self.text is None else self.to_json(moments.mean),
            "values": self.values,
            "values_min": per_row.min,
            "values_max": per_row.max,
            "values_mean": per_row.mean,
            "values_quantiles": quantiles_to_dict(seen.per_row.quantiles),
            "unique": 0 if distinct is None else distinct.unique,
            "unique_is_exact": distinct is None or distinct.is_exact,
            "top": [[value, n] for value, n in self.top],
            "top_is_exact": distinct is None or distinct.is_exact,
        }
        if distinct is not None and not distinct.is_exact:
            document["top_most_missed"] = distinct.most_missed
        if self.is_step:
            document["group"] = "steps"
        if seen.steps is not None:
            document["steps"] = seen.steps.to_dict()
        if self.numbers is not None:
            document |= self._numbers_to_dict(self.numbers)
        if self.strings is not None:
            document |= _strings_to_dict(self.strings)
        if self.classes is not None:
            document |= {"classes": self.classes, "imbalance": self.imbalance}
        return document

    def _numbers_to_dict(self, numbers: NumberStatistics) -> dict[str, Any]:
        quantiles = quantiles_to_dict(numbers.quantiles)
        return {
            "std": numbers.moments.std,
            "quantiles": {share: self.to_json(value) for share, value in quantiles.items()},
            "quantiles_is_exact": numbers.quantiles.is_exact,
            "zeros": numbers.zeros,
            "nan": numbers.nan,
            "inf": numbers.negative_inf + numbers.positive_inf,
            "histogram": numbers.histogram(),
        }


def _strings_to_dict(strings: StringStatistics) -> dict[str, Any]:
    document = {
        "lengths": strings.lengths.to_dict(),
        "utf8": strings.utf8 / strings.count if strings.count else None,
    }
    if strings.images.count:
        document["images"] = strings.images.to_dict()
    return document


def _count_declared_classes(label: Label, distinct: DistinctValues) -> dict[str, int] | None:
    if label.count > MAX_CLASSES * 10 or distinct.keys.dtype.kind != "i":
        return None
    counts = dict(zip(distinct.keys.tolist(), distinct.counts.tolist(), strict=True))
    names = label.names or [str(number) for number in range(label.count)]
    classes = {name: counts.pop(number, 0) for number, name in enumerate(names)}
    for class_id, times in counts.items():
        classes[f"{class_id} (not declared)"] = times
    return classes


@dataclass(frozen=True, eq=False)
class PartStats:
    """The statistics of some records: those of a split, or all."""

    name: str
    records: int
    payload_bytes: int
    features: Mapping[str, FeatureStats]
    left_out: int = 0  # keys beyond the maximum

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "records": self.records,
            "payload_bytes": self.payload_bytes,
            "features_left_out": self.left_out,
            "features": {name: feature.to_dict() for name, feature in self.features.items()},
        }


@dataclass(frozen=True, slots=True)
class Skew(JsonFields):
    """The distance between a feature of one split and the same feature of another.

    `distance` is L-infinity of the values' shares (`measure` "linf") or the Jensen-Shannon divergence in bits ("js").
    `chance` is the distance that splits of these sizes may have by chance.
    """

    feature: str
    base: str
    split: str
    measure: str | None
    distance: float | None
    threshold: float | None
    chance: float | None
    verdict: str
    says: str


@dataclass(frozen=True, eq=False)
class Stats:
    """The result of `rk.stats`. `features` are those of all records, `splits` the same for each split."""

    path: str
    everything: PartStats
    splits: Mapping[str, PartStats]
    skew: Sequence[Skew]
    damage: Sequence[Finding] = ()
    damage_not_listed: int = 0
    foreign: Sequence[Finding] = ()  # files whose payloads are not Examples, and records with too many keys
    report: Report = field(default_factory=Report)
    samples: Sequence[RecordSample] = ()  # a few records, of each class alike
    schema: Schema | None = None

    @property
    def records(self) -> int:
        """The number of records."""
        return self.everything.records

    @property
    def features(self) -> Mapping[str, FeatureStats]:
        """The features of all records by name."""
        return self.everything.features

    @property
    def ok(self) -> bool:
        """Whether every byte could be read."""
        return not self.damage

    @property
    def not_counted(self) -> int:
        """The number of intact records without features: not Examples, or with too many keys."""
        return max(self.report.records - self.records, 0)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "path": self.path,
            **self.everything.to_dict(),
            "files": self.report.files,
            "records_not_counted": self.not_counted,
            "splits": {name: part.to_dict() for name, part in self.splits.items()},
            "skew": [one.to_dict() for one in self.skew],
            "damage": [finding.to_dict() for finding in self.damage],
            "damage_not_listed": self.damage_not_listed,
            "foreign": [finding.to_dict() for finding in self.foreign],
        }

    def to_html(self) -> str:
        """The report as one self-contained HTML page."""
        from rekord.health.stats.html import render_stats_page

        return render_stats_page(self)

    def to_metadata(self) -> str:
        """A tensorflow_metadata DatasetFeatureStatisticsList, as text."""
        from rekord.health.stats.tfx import to_text

        return to_text(self)

    def __repr__(self) -> str:
        from rekord.health.summary import summarize_stats

        return summarize_stats(self)

    @never_raises
    def _repr_html_(self) -> str:
        from rekord.health.summary import render_stats

        return render_stats(self)


def build_part_stats(name: str, seen: Accumulator, schema: Schema | None) -> PartStats:
    """The statistics in an accumulator, with the declarations of a schema."""
    labels: dict[tuple[bool, str], Label] = {}
    kinds: dict[tuple[bool, str], ListKind] = {}
    texts: dict[tuple[bool, str], Callable[[int], str]] = {}
    for is_step, columns in ((False, schema.context), (True, schema.steps)) if schema is not None else ():
        for column, feature in columns.items():
            for key, kind in zip(feature.record_keys(column), feature.record_kinds(), strict=True):
                kinds[is_step, key] = kind
                if isinstance(feature, Label):
                    labels[is_step, key] = feature
            if feature.number_text is not None:
                texts[is_step, feature.record_keys(column)[0]] = feature.number_text
    features = {}
    for place in sorted({*seen.features, *kinds}, key=_natural_sort_key):
        is_step, key = place
        taken = is_step and ((False, key) in seen.features or (False, key) in kinds)
        shown_as = f"steps/{key}" if taken else key
        features[shown_as] = FeatureStats(
            shown_as,
            key,
            seen.records,
            seen.features.get(place) or FeatureAccumulator(MemoryBudget()),
            is_step,
            labels.get(place),
            kinds.get(place),
            texts.get(place),
        )
    return PartStats(name, seen.records, seen.payload_bytes, features, len(seen.left_out))


def _natural_sort_key(place: tuple[bool, str]) -> tuple[bool, list[tuple[bool, int, str]]]:
    """The natural order of names: x2 before x10."""
    pieces = re.split(r"([0-9]{1,18})", place[1])
    return place[0], [(piece.isdecimal(), int(piece) if piece.isdecimal() else 0, piece) for piece in pieces]


def to_json_value(value: Any) -> Any:
    """A value as JSON: byte strings as text, float32 with as many digits as needed."""
    if isinstance(value, bytes):
        return format_string(value)
    return float(str(np.float32(value))) if isinstance(value, float) else value
