"""Statistics as tensorflow_metadata's DatasetFeatureStatisticsList, which TFDV and Facets read: text and binary.

The messages are built by field name, as in text format. `_FIELDS` has the numbers for binary format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from rekord.health.stats.numbers import (
    CountStatistics,
    ExactMoments,
    MemoryBudget,
    NumberStatistics,
    Quantiles,
    count_between_edges,
)
from rekord.health.stats.report import FeatureStats, PartStats, Stats
from rekord.health.stats.strings import StringStatistics, format_string
from rekord.schema.interop.textproto import EnumName, Scalar, TextprotoMessage, build_message, format_message

_QUANTILE_BUCKETS = 10  # as in TFDV
_MAX_RANKED_VALUES = 1000
_MAX_TOP_VALUES = 20
_TYPES = {"INT": 0, "FLOAT": 1, "STRING": 2, "BYTES": 3, "STANDARD": 0, "QUANTILES": 1}
_SEQUENCE = "##SEQUENCE##"

_FieldForm: TypeAlias = "tuple[int, str]"
"""The number of a field, and how its value is written: a wire type, or the message type."""

_HISTOGRAM: dict[str, _FieldForm] = {
    "num_nan": (1, "varint"),
    "buckets": (3, "bucket"),
    "type": (4, "varint"),
}
_FIELDS: dict[str, dict[str, _FieldForm]] = {
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
    return format_message(_build_message(stats))


def to_binary(stats: Stats) -> bytes:
    """The bytes of the message (`stats.pb`), as TFX stores it."""
    return _encode_message(_build_message(stats), "list")


def _build_message(stats: Stats) -> TextprotoMessage:
    result = TextprotoMessage()
    parts = list(stats.splits.values()) or [stats.everything]
    for part in parts:
        result.add("datasets", _build_dataset(part))
    return result


def _build_dataset(part: PartStats) -> TextprotoMessage:
    message = build_message(name=_to_utf8(part.name), num_examples=part.records)
    for feature in part.features.values():
        if feature.kind is not None:
            message.add("features", _build_feature(feature))
    return message


def _build_feature(feature: FeatureStats) -> TextprotoMessage:
    message = TextprotoMessage()
    path = TextprotoMessage()
    if feature.is_step:
        path.add("step", _SEQUENCE)
    path.add("step", _to_utf8(feature.key))
    message.add("path", path)
    if feature.kind == "bytes":
        strings = feature.strings or StringStatistics(MemoryBudget())
        as_text = strings.utf8 == strings.count and not feature.has_images
        message.add("type", EnumName("STRING"))
        inner = _build_string_stats(feature, strings) if as_text else _build_bytes_stats(feature, strings)
        message.add("string_stats" if as_text else "bytes_stats", inner)
    else:
        message.add("type", EnumName("INT" if feature.kind == "int64" else "FLOAT"))
        numbers = feature.numbers or NumberStatistics(np.int64, MemoryBudget())
        message.add("num_stats", _build_num_stats(feature, numbers))
    return message


def _build_common_stats(feature: FeatureStats) -> TextprotoMessage:
    per_row = feature.seen.per_row
    message = build_message(num_non_missing=feature.present, num_missing=feature.missing)
    if per_row.moments.count:
        message.add("min_num_values", per_row.moments.min)
        message.add("max_num_values", per_row.moments.max)
        message.add("avg_num_values", float(per_row.moments.mean or 0.0))
        message.add("tot_num_values", per_row.moments.total)
        message.add("num_values_histogram", _build_quantile_histogram(per_row.quantiles, per_row.moments))
    if feature.seen.steps is not None and feature.seen.steps.moments.count:
        message.add(
            "feature_list_length_histogram",
            _build_quantile_histogram(feature.seen.steps.quantiles, feature.seen.steps.moments),
        )
    return message


def _build_num_stats(feature: FeatureStats, numbers: NumberStatistics) -> TextprotoMessage:
    message = build_message(common_stats=_build_common_stats(feature))
    moments = numbers.moments
    if moments.count:
        message.add("mean", float(moments.mean or 0.0))
        message.add("std_dev", float(moments.std or 0.0))
        message.add("num_zeros", numbers.zeros)
        # In TFDV, infinities can be the minimum and the maximum.
        message.add("min", _to_scalar(-np.inf if numbers.negative_inf else moments.min))
        message.add("median", float(numbers.quantiles.at([0.5])[0]))
        message.add("max", _to_scalar(np.inf if numbers.positive_inf else moments.max))
        message.add("histograms", _build_standard_histogram(numbers))
        message.add("histograms", _build_quantile_histogram(numbers.quantiles, moments, nan=numbers.nan))
    elif numbers.count:
        message.add("histograms", build_message(num_nan=numbers.nan))
    return message


def _build_string_stats(feature: FeatureStats, strings: StringStatistics) -> TextprotoMessage:
    message = build_message(common_stats=_build_common_stats(feature), unique=strings.distinct.unique)
    ranked = strings.distinct.top(_MAX_RANKED_VALUES)
    for value, times in ranked[:_MAX_TOP_VALUES]:
        message.add("top_values", build_message(value=_to_utf8(format_string(value)), frequency=float(times)))
    message.add("avg_length", _get_mean(strings.lengths))
    ranks = TextprotoMessage()
    for rank, (value, times) in enumerate(ranked):
        label = _to_utf8(format_string(value))
        ranks.add("buckets", build_message(low_rank=rank, high_rank=rank, label=label, sample_count=float(times)))
    message.add("rank_histogram", ranks)
    return message


def _build_bytes_stats(feature: FeatureStats, strings: StringStatistics) -> TextprotoMessage:
    message = build_message(
        common_stats=_build_common_stats(feature),
        unique=strings.distinct.unique,
        avg_num_bytes=_get_mean(strings.lengths),
    )
    if strings.count:
        message.add("min_num_bytes", float(strings.lengths.moments.min))
        message.add("max_num_bytes", float(strings.lengths.moments.max))
        message.add("max_num_bytes_int", strings.lengths.moments.max)
    return message


def _build_standard_histogram(numbers: NumberStatistics) -> TextprotoMessage:
    """Bars of equal width over the finite values."""
    histogram = build_message(num_nan=numbers.nan)
    edges = np.linspace(float(numbers.moments.min), float(numbers.moments.max), _QUANTILE_BUCKETS + 1)
    for low, high, times in zip(edges, edges[1:], count_between_edges(numbers, edges), strict=False):
        histogram.add("buckets", _build_bucket(low, high, times))
    histogram.add("type", EnumName("STANDARD"))
    return histogram


def _build_quantile_histogram(quantiles: Quantiles, moments: ExactMoments, nan: int = 0) -> TextprotoMessage:
    """Bars with a tenth of the values each."""
    histogram = build_message(num_nan=nan) if nan else TextprotoMessage()
    inner = quantiles.at([i / _QUANTILE_BUCKETS for i in range(1, _QUANTILE_BUCKETS)])
    edges = [moments.min, *inner, moments.max]  # a sketch does not know its ends
    for low, high in pairwise(edges):
        histogram.add("buckets", _build_bucket(low, high, quantiles.count / _QUANTILE_BUCKETS))
    histogram.add("type", EnumName("QUANTILES"))
    return histogram


def _build_bucket(low: float, high: float, times: float) -> TextprotoMessage:
    return build_message(low_value=float(low), high_value=float(high), sample_count=float(times))


def _get_mean(lengths: CountStatistics) -> float:
    return float(lengths.moments.mean or 0.0)


def _to_scalar(value: float) -> float | EnumName:
    if np.isinf(value):
        return EnumName("inf" if value > 0 else "-inf")
    return float(value)


def _to_utf8(text: str) -> bytes:
    """Names as protobuf strings: invalid characters become question marks."""
    return text.encode("utf-8", "replace")


def _encode_message(message: TextprotoMessage, name: str) -> bytes:
    return b"".join(_encode_field(value, *_FIELDS[name][field]) for field, value in message.fields)


def _encode_field(value: Scalar | TextprotoMessage, number: int, form: str) -> bytes:
    if isinstance(value, TextprotoMessage):
        return _encode_delimited(number, _encode_message(value, form))
    if isinstance(value, bytes):
        return _encode_delimited(number, value)
    if isinstance(value, EnumName):
        if form == "double":
            return bytes(_encode_varint(number << 3 | 1)) + struct.pack("<d", float(value.name))
        return bytes([*_encode_varint(number << 3), *_encode_varint(_TYPES[value.name])])
    if form == "varint":
        return bytes([*_encode_varint(number << 3), *_encode_varint(int(value))])
    if form == "double":
        return bytes(_encode_varint(number << 3 | 1)) + struct.pack("<d", value)
    return bytes(_encode_varint(number << 3 | 5)) + struct.pack("<f", value)


def _encode_delimited(number: int, content: bytes) -> bytes:
    return bytes([*_encode_varint(number << 3 | 2), *_encode_varint(len(content))]) + content


def _encode_varint(number: int) -> Iterator[int]:
    while number >= 0x80:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number
