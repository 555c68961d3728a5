"""Dates and times of an answer as text: DuckDB and Arrow have more of them than Python's `datetime`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_INFINITY = {2**31 - 1: "infinity", 1 - 2**31: "-infinity"}
_LONG_INFINITY = {2**63 - 1: "infinity", 1 - 2**63: "-infinity"}


def times_as_text(column: Any) -> Any:
    """A column with text in place of all dates and times, in lists and structs too."""
    numbers = _replaced(column.type, lambda kind: pa.int32() if kind.bit_width == 32 else pa.int64())
    if numbers == column.type:
        return column
    convert = _converter(column.type)
    texts = [None if value is None else convert(value) for value in column.cast(numbers).to_pylist()]
    return pa.array(texts, _replaced(column.type, lambda _: pa.string()))


def _replaced(kind: Any, leaf: Callable[[Any], Any]) -> Any:
    """A type with others in place of its dates and times."""
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        return leaf(kind)
    if pa.types.is_map(kind):
        return pa.map_(_replaced(kind.key_type, leaf), _replaced(kind.item_type, leaf))
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([field.with_type(_replaced(field.type, leaf)) for field in fields])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        item = kind.value_field.with_type(_replaced(kind.value_type, leaf))
        if pa.types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.large_list(item) if pa.types.is_large_list(kind) else pa.list_(item)
    return kind


def _converter(kind: Any) -> Callable[[Any], Any]:
    """What puts text in place of the numbers that stand for dates and times of a type."""
    if pa.types.is_date(kind):
        return partial(_date, days=1 if kind.bit_width == 32 else 86_400_000)
    if pa.types.is_time(kind):
        return partial(_time, per_second=_PER_SECOND[kind.unit])
    if pa.types.is_timestamp(kind):
        return partial(_timestamp, per_second=_PER_SECOND[kind.unit], zone=kind.tz)
    if pa.types.is_map(kind):
        key, item = _converter(kind.key_type), _converter(kind.item_type)
        return lambda pairs: [(key(one), None if other is None else item(other)) for one, other in pairs]
    if pa.types.is_struct(kind):
        parts = {kind.field(i).name: _converter(kind.field(i).type) for i in range(kind.num_fields)}
        return lambda value: {name: None if one is None else parts[name](one) for name, one in value.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = _converter(kind.value_type)
        return lambda values: [None if value is None else inner(value) for value in values]
    return lambda value: value


def _date(value: int, days: int) -> str:
    return _INFINITY.get(value) or str(np.datetime64(value // days, "D"))


def _time(value: int, per_second: int) -> str:
    seconds, part = divmod(value, per_second)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{_fraction(part, per_second)}"


def _timestamp(value: int, per_second: int, zone: str | None) -> str:
    if value in _LONG_INFINITY:
        return _LONG_INFINITY[value]
    seconds, part = divmod(value, per_second)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
        if zone is not None and zone not in ("UTC", "Etc/UTC"):
            from zoneinfo import ZoneInfo

            moment = moment.astimezone(ZoneInfo(zone))
    except (OverflowError, ValueError, KeyError):  # of no year, or in no zone, that Python knows
        text, offset = str(np.datetime64(seconds, "s")).replace("T", " "), "+00:00"
    else:
        text = moment.isoformat(" ")
        text, offset = text[:19], text[19:]
    return text + _fraction(part, per_second) + (offset if zone is not None else "")


def _fraction(part: int, per_second: int) -> str:
    """The part of a second, in as many digits as Python writes."""
    if part == 0:
        return ""
    billionths = part * (10**9 // per_second)
    return f".{billionths:09}" if billionths % 1000 else f".{billionths // 1000:06}"
