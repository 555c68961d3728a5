"""Statistics as tensorflow_metadata's DatasetFeatureStatisticsList, which TFDV and Facets read: text and binary.

The messages are built by their field names, as text has them. `_FIELDS` knows the numbers that binary has instead.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from rekord.health.stats.numbers import Counted, Moments, Numbers, Quantiles, Room, counts_between
from rekord.health.stats.report import FeatureStats, Part, Stats
from rekord.health.stats.strings import Strings, shown
from rekord.schema.interop.textproto import Message, Scalar, Word, printed

_BUCKETS = 10  # as TFDV has them
_RANKED = 1000
_TOP = 20
_TYPES = {"INT": 0, "FLOAT": 1, "STRING": 2, "BYTES": 3, "STANDARD": 0, "QUANTILES": 1}
_SEQUENCE = "##SEQUENCE##"

_Form: TypeAlias = "tuple[int, str]"
"""The number of a field, and how its value is written: a wire type, or the message that it holds."""

_HISTOGRAM: dict[str, _Form] = {
    "num_nan": (1, "varint"),
    "buckets": (3, "bucket"),
    "type": (4, "varint"),
}
_FIELDS: dict[str, dict[str, _Form]] = {
    "list": {"datasets": (1, "dataset")},
    "dataset": {"name": (1, "bytes"), "num_examples": (2, "varint"), "features": (3, "feature")},
    "feature": {
        "name": (1, "bytes"),
        "path": (8, "path"),
        "type": (2, "varint"),
        "num_stats": (3, "num"),
        "string_stats": (4, "string"),
        "bytes_stats": (5, "octets"),
    },
    "path": {"step": (1, "bytes")},
    "common": {
        "num_non_missing": (1, "varint"),
        "num_missing": (2, "varint"),
        "min_num_values": (3, "varint"),
        "max_num_values": (4, "varint"),
        "avg_num_values": (5, "float"),
        "tot_num_values": (8, "varint"),
        "num_values_histogram": (6, "histogram"),
        "feature_list_length_histogram": (9, "histogram"),
    },
    "num": {
        "common_stats": (1, "common"),
        "mean": (2, "double"),
        "std_dev": (3, "double"),
        "num_zeros": (4, "varint"),
        "min": (5, "double"),
        "median": (6, "double"),
        "max": (7, "double"),
        "histograms": (8, "histogram"),
    },
    "string": {
        "common_stats": (1, "common"),
        "unique": (2, "varint"),
        "top_values": (3, "top"),
        "avg_length": (4, "float"),
        "rank_histogram": (5, "ranks"),
        "invalid_utf8_count": (8, "varint"),
    },
    "octets": {
        "common_stats": (1, "common"),
        "unique": (2, "varint"),
        "avg_num_bytes": (3, "float"),
        "min_num_bytes": (4, "float"),
        "max_num_bytes": (5, "float"),
        "max_num_bytes_int": (6, "varint"),
    },
    "top": {"value": (2, "bytes"), "frequency": (3, "double")},
    "ranks": {"buckets": (1, "rank")},
    "rank": {
        "low_rank": (1, "varint"),
        "high_rank": (2, "varint"),
        "label": (4, "bytes"),
        "sample_count": (5, "double"),
    },
    "histogram": _HISTOGRAM,
    "bucket": {"low_value": (1, "double"), "high_value": (2, "double"), "sample_count": (4, "double")},
}


def to_text(stats: Stats) -> str:
    """The text of the message (`stats.pbtxt`)."""
    return printed(_message(stats))


def to_binary(stats: Stats) -> bytes:
    """The bytes of the message (`stats.pb`), as TFX keeps it."""
    return _encoded(_message(stats), "list")


def _message(stats: Stats) -> Message:
    result = Message()
    parts = list(stats.splits.values()) or [stats.everything]
    for part in parts:
        result.add("datasets", _dataset(part))
    return result


def _dataset(part: Part) -> Message:
    message = Message()
    message.add("name", _utf8(part.name))
    message.add("num_examples", part.records)
    for feature in part.features.values():
        if feature.kind is not None:
            message.add("features", _feature(feature))
    return message


def _feature(feature: FeatureStats) -> Message:
    message = Message()
    path = Message()
    if feature.is_step:
        path.add("step", _SEQUENCE)
    path.add("step", _utf8(feature.key))
    message.add("path", path)
    if feature.kind == "bytes":
        strings = feature.strings or Strings(Room())
        as_text = strings.utf8 == strings.count and not feature.is_pictures
        message.add("type", Word("STRING"))
        inner = _string_stats(feature, strings) if as_text else _bytes_stats(feature, strings)
        message.add("string_stats" if as_text else "bytes_stats", inner)
    else:
        message.add("type", Word("INT" if feature.kind == "int64" else "FLOAT"))
        numbers = feature.numbers or Numbers(np.int64, Room())
        message.add("num_stats", _num_stats(feature, numbers))
    return message


def _common(feature: FeatureStats) -> Message:
    per_row = feature.seen.per_row
    message = Message()
    message.add("num_non_missing", feature.present)
    message.add("num_missing", feature.missing)
    if per_row.moments.count:
        message.add("min_num_values", per_row.moments.min)
        message.add("max_num_values", per_row.moments.max)
        message.add("avg_num_values", float(per_row.moments.mean or 0.0))
        message.add("tot_num_values", per_row.moments.total)
        message.add("num_values_histogram", _quantile_histogram(per_row.quantiles, per_row.moments))
    if feature.seen.steps is not None and feature.seen.steps.moments.count:
        message.add(
            "feature_list_length_histogram",
            _quantile_histogram(feature.seen.steps.quantiles, feature.seen.steps.moments),
        )
    return message


def _num_stats(feature: FeatureStats, numbers: Numbers) -> Message:
    message = Message()
    message.add("common_stats", _common(feature))
    moments = numbers.moments
    if moments.count:
        message.add("mean", float(moments.mean or 0.0))
        message.add("std_dev", float(moments.std or 0.0))
        message.add("num_zeros", numbers.zeros)
        # TFDV lets the infinities be the least and the greatest.
        message.add("min", _number(-np.inf if numbers.negative_inf else moments.min))
        message.add("median", float(numbers.quantiles.at([0.5])[0]))
        message.add("max", _number(np.inf if numbers.positive_inf else moments.max))
        message.add("histograms", _standard_histogram(numbers))
        message.add("histograms", _quantile_histogram(numbers.quantiles, moments, nan=numbers.nan))
    elif numbers.count:
        histogram = Message()
        histogram.add("num_nan", numbers.nan)
        message.add("histograms", histogram)
    return message


def _string_stats(feature: FeatureStats, strings: Strings) -> Message:
    message = Message()
    message.add("common_stats", _common(feature))
    message.add("unique", strings.distinct.unique)
    ranked = strings.distinct.top(_RANKED)
    for value, times in ranked[:_TOP]:
        top = Message()
        top.add("value", _utf8(shown(value)))
        top.add("frequency", float(times))
        message.add("top_values", top)
    message.add("avg_length", _mean(strings.lengths))
    ranks = Message()
    for rank, (value, times) in enumerate(ranked):
        bucket = Message()
        bucket.add("low_rank", rank)
        bucket.add("high_rank", rank)
        bucket.add("label", _utf8(shown(value)))
        bucket.add("sample_count", float(times))
        ranks.add("buckets", bucket)
    message.add("rank_histogram", ranks)
    return message


def _bytes_stats(feature: FeatureStats, strings: Strings) -> Message:
    message = Message()
    message.add("common_stats", _common(feature))
    message.add("unique", strings.distinct.unique)
    message.add("avg_num_bytes", _mean(strings.lengths))
    if strings.count:
        message.add("min_num_bytes", float(strings.lengths.moments.min))
        message.add("max_num_bytes", float(strings.lengths.moments.max))
        message.add("max_num_bytes_int", strings.lengths.moments.max)
    return message


def _standard_histogram(numbers: Numbers) -> Message:
    """Bars of equal width over the finite values."""
    histogram = Message()
    histogram.add("num_nan", numbers.nan)
    edges = np.linspace(float(numbers.moments.min), float(numbers.moments.max), _BUCKETS + 1)
    for low, high, times in zip(edges, edges[1:], counts_between(numbers, edges), strict=False):
        histogram.add("buckets", _bucket(low, high, times))
    histogram.add("type", Word("STANDARD"))
    return histogram


def _quantile_histogram(quantiles: Quantiles, moments: Moments, nan: int = 0) -> Message:
    """Bars that hold a tenth of the values each."""
    histogram = Message()
    if nan:
        histogram.add("num_nan", nan)
    inner = quantiles.at([i / _BUCKETS for i in range(1, _BUCKETS)])
    edges = [moments.min, *inner, moments.max]  # a sketch does not know its ends
    for low, high in pairwise(edges):
        histogram.add("buckets", _bucket(low, high, quantiles.count / _BUCKETS))
    histogram.add("type", Word("QUANTILES"))
    return histogram


def _bucket(low: float, high: float, times: float) -> Message:
    bucket = Message()
    bucket.add("low_value", float(low))
    bucket.add("high_value", float(high))
    bucket.add("sample_count", float(times))
    return bucket


def _mean(lengths: Counted) -> float:
    return float(lengths.moments.mean or 0.0)


def _number(value: float) -> float | Word:
    if np.isinf(value):
        return Word("inf" if value > 0 else "-inf")
    return float(value)


def _utf8(text: str) -> bytes:
    """Names as protobuf's strings take them: what is no character becomes a question mark."""
    return text.encode("utf-8", "replace")


def _encoded(message: Message, name: str) -> bytes:
    return b"".join(_field(value, *_FIELDS[name][field]) for field, value in message.fields)


def _field(value: Scalar | Message, number: int, form: str) -> bytes:
    if isinstance(value, Message):
        return _delimited(number, _encoded(value, form))
    if isinstance(value, bytes):
        return _delimited(number, value)
    if isinstance(value, Word):
        if form == "double":
            return bytes(_varint(number << 3 | 1)) + struct.pack("<d", float(value.name))
        return bytes([*_varint(number << 3), *_varint(_TYPES[value.name])])
    if form == "varint":
        return bytes([*_varint(number << 3), *_varint(int(value))])
    if form == "double":
        return bytes(_varint(number << 3 | 1)) + struct.pack("<d", value)
    return bytes(_varint(number << 3 | 5)) + struct.pack("<f", value)


def _delimited(number: int, content: bytes) -> bytes:
    return bytes([*_varint(number << 3 | 2), *_varint(len(content))]) + content


def _varint(number: int) -> Iterator[int]:
    while number >= 0x80:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number
