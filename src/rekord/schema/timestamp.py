"""Timestamps: points in time, stored as int64 ticks of a declared unit since 1970-01-01 UTC."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from calendar import monthrange
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.arguments import check_keywords
from rekord.errors import preview
from rekord.schema.base import (
    Changes,
    Feature,
    InvalidDefault,
    ListKind,
    Shape,
    conform_to_shape,
    flat_values,
    integer_changes,
    restore_shape,
)

Moment: TypeAlias = "str | datetime.datetime | np.datetime64"
Unit = Literal["s", "ms", "us", "ns"]
TICKS_PER_SECOND: dict[str, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
TIME_FORMATS: dict[str, Unit] = {
    "UNIX_SECONDS": "s",
    "UNIX_MILLISECONDS": "ms",
    "UNIX_MICROSECONDS": "us",
    "UNIX_NANOSECONDS": "ns",
}
"""The units by their names in the time domain of TFX."""

_ROUNDINGS = ("exact", "floor", "nearest")
_LEAST, _MOST = -(2**63) + 1, 2**63 - 1  # NumPy reserves the lowest number for NaT
_SECONDS = {"W": 604_800, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
_FRACTIONS = {"ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
_ISO = re.compile(
    r"(?P<year>-?\d{4,12})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?:[T ](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,18}))?)?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?)?"
)


class NoTimestamp(InvalidDefault):
    """Why a value is not a valid timestamp of a feature, with an error code."""

    def __init__(self, code: str, what: str, *, expected: str, found: object, do: str, at: int = 0) -> None:
        super().__init__(expected, found)
        self.code = code
        self.what = what
        self.do = do
        self.at = at
        if isinstance(found, str):
            self.found = found


@check_keywords
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timestamp(Feature):
    """Points in time, stored as int64 ticks of `unit` ("s", "ms", "us" or "ns") since 1970-01-01 UTC.

    `tz` is a time zone such as "UTC" or "Europe/Berlin": rows then need timezone-aware datetimes. Without it, naive
    datetimes are stored as they are. Both are read as `datetime64[unit]` in UTC; tables have the time zone. A value
    finer than the unit is an error unless `rounding` is "floor" or "nearest". NaT is a missing value.
    """

    unit: Unit = "us"
    shape: Shape = ()
    _: KW_ONLY
    tz: str | None = None
    range: tuple[Moment | None, Moment | None] | None = None
    rounding: Literal["exact", "floor", "nearest"] = "exact"
    partitions: tuple[str, ...] = ()

    _kind: ClassVar[ListKind] = "int64"
    _first: ClassVar[tuple[str, ...]] = ("unit",)
    family = "integer"
    reads_text = True

    def _validate_fields(self) -> None:
        self._validate_shape()
        self._check_choice("unit", self.unit, tuple(TICKS_PER_SECOND), do='unit="us"')
        self._check_choice("rounding", self.rounding, _ROUNDINGS, do='rounding="nearest"')
        if self.tz is not None:
            self._check_zone()
        ends = self._validate_range(self.range, (_LEAST, _MOST), self._ticks)
        if ends is not None:
            texts = [None if tick in (_LEAST, _MOST) else self.text(tick) for tick in ends]
            self._set("range", tuple(texts))

    def _check_zone(self) -> None:
        try:
            zoneinfo.ZoneInfo(self.tz)  # type: ignore[arg-type]
        except Exception:  # zoneinfo raises many types for a path, or for something that is not a str
            raise self._field_error("tz", self.tz, "a time zone name, or None", 'tz="UTC"') from None

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"<M8[{self.unit}]")

    @property
    def time_zone(self) -> str | None:
        return self.tz

    @property
    def number_text(self) -> Callable[[int], str]:
        return self.text

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        return np.dtype("<i8")

    @property
    def limits(self) -> tuple[int, int] | None:
        if self.range is None:
            return None
        low, high = self.range
        return _LEAST if low is None else self._ticks(low), _MOST if high is None else self._ticks(high)

    def is_missing(self, value: object) -> bool:
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            return True
        if not isinstance(value, (np.datetime64, np.ndarray)) or value.shape:
            return False
        return value.dtype.kind == "M" and bool(np.isnat(value))

    def default_value(self) -> Any:
        ticks = np.array([self._ticks(one) for one in flat_values(self.default)], np.int64).view(self.dtype)
        if self._partition_keys():
            return self.default
        if self.shape == ():
            return ticks[0]
        return restore_shape(ticks, self.shape)

    def text(self, tick: int) -> str:
        """A stored number as ISO 8601; with a time zone, in UTC with a final Z."""
        naive = str(np.datetime_as_string(np.array(tick, np.int64).view(self.dtype)))
        return naive if self.tz is None or naive == "NaT" else f"{naive}Z"

    def changes_since(self, before: Feature) -> Changes:
        unit, zone = getattr(before, "unit", None), getattr(before, "tz", None)
        if unit is not None and unit != self.unit:
            yield False, f"unit {unit} became {self.unit}"
        elif unit is not None and zone != self.tz:
            yield True, f"time zone {zone} became {self.tz}"
        yield from integer_changes(before, self)

    def tfx_domain(self) -> tuple[str, dict[str, Any]] | None:
        name = next(name for name, unit in TIME_FORMATS.items() if unit == self.unit)
        return "time_domain", {"integer_format": name}

    def tfds_feature(self) -> tuple[str, dict[str, Any]]:
        return "tensor", {"dtype": "int64"}

    def _conform_default(self, value: object) -> Any:
        return conform_to_shape(_unboxed(value), self.shape, bool(self.partitions), self._conform_element)

    def _conform_element(self, value: object) -> str:
        tick, limits = self._ticks(value), self.limits
        if limits is not None and not limits[0] <= tick <= limits[1]:
            raise InvalidDefault(f"a time from {self.range[0]} to {self.range[1]}", value)  # type: ignore[index]
        return self.text(tick)

    def _stored_value(self, value: Any) -> int:
        return self._ticks(value)

    def _ticks(self, value: object) -> int:
        if self.is_missing(value):
            raise InvalidDefault("a time", value)
        return ticks_of(value, self)


def _unboxed(value: object) -> object:
    """An array of datetime64 as lists of scalars; `tolist` would give datetimes or plain numbers."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "M":
        return value[()] if not value.ndim else [_unboxed(part) for part in value]
    return value


def ticks_of(value: object, feature: Timestamp) -> int:
    """One point in time as the stored number; raises NoTimestamp."""
    if isinstance(value, np.datetime64):
        return int(ticks_of_array(np.array([value]), feature)[0])
    if isinstance(value, datetime.datetime):
        attoseconds = _of_datetime(value, feature)
    elif isinstance(value, str):
        attoseconds = _of_text(value, feature)
    else:
        is_number = isinstance(value, (int, float, np.number))
        raise NoTimestamp(
            "E302",
            f"has type {type(value).__name__}, expected Timestamp",
            expected="a datetime, datetime64, pandas Timestamp, or ISO 8601 str",
            found=preview(value),
            do=f'np.datetime64(value, "{feature.unit}") for ticks since 1970'
            if is_number
            else "convert it to a datetime",
        )
    tick, rest = divmod(attoseconds * TICKS_PER_SECOND[feature.unit], 10**18)
    if rest and feature.rounding == "exact":
        raise _too_fine(str(value), feature)
    if feature.rounding == "nearest" and 2 * rest >= 10**18:
        tick += 1
    if not _LEAST <= tick <= _MOST:
        raise _too_far(str(value), feature)
    return tick


def ticks_of_array(times: npt.NDArray[Any], feature: Timestamp) -> npt.NDArray[np.int64]:
    """An array of datetime64 as the stored numbers; NaT is kept. Raises NoTimestamp."""
    unit, count = np.datetime_data(times.dtype)
    if unit == "generic":
        if not np.isnat(times).all():
            raise NoTimestamp(
                "E302",
                "is a datetime64 without a unit",
                expected="datetime64 with a unit",
                found=str(times.dtype),
                do='values.astype("datetime64[s]")',
            )
        return np.full(times.shape, np.iinfo(np.int64).min)
    missing = np.isnat(times)
    if unit in ("Y", "M"):
        # Calendar units have no fixed length; days do, and 64 bits of days cover every month here.
        numbers = np.where(missing, 0, times.astype(np.int64))
        far = np.abs(numbers) > 2**53
        days = np.where(missing | far, np.datetime64("NaT"), times).astype("M8[D]")
        _refuse(far, times, _too_far, feature)
        times, unit, count = days, "D", 1
    length = Fraction(_SECONDS[unit]) if unit in _SECONDS else Fraction(1, _FRACTIONS[unit])
    ratio = length * count * TICKS_PER_SECOND[feature.unit]
    numbers = np.where(missing, 0, np.ascontiguousarray(times).astype(np.int64))
    if ratio.denominator == 1:
        _refuse(np.abs(numbers) > _MOST // ratio.numerator, times, _too_far, feature)
        ticks = numbers * ratio.numerator
    elif ratio.numerator == 1:
        ticks, rest = np.divmod(numbers, ratio.denominator)
        if feature.rounding == "exact":
            _refuse(rest != 0, times, _too_fine, feature)
        elif feature.rounding == "nearest":
            ticks += rest >= ratio.denominator - rest
    else:  # datetime64[7ms] and the like
        singles = [ticks_of(str(one), _naive(feature)) if not np.isnat(one) else 0 for one in times.ravel()]
        ticks = np.array(singles, np.int64).reshape(times.shape)
    ticks[missing] = np.iinfo(np.int64).min
    return ticks


def _naive(feature: Timestamp) -> Timestamp:
    return Timestamp(feature.unit, rounding=feature.rounding)


def _refuse(wrong: npt.NDArray[np.bool_], times: Any, reason: Any, feature: Timestamp) -> None:
    if wrong.any():
        at = int(np.argmax(wrong.ravel()))
        failure = reason(str(times.ravel()[at]), feature)
        failure.at = at
        raise failure


def _of_datetime(value: datetime.datetime, feature: Timestamp) -> int:
    """Attoseconds since 1970 in UTC."""
    offset = value.utcoffset()
    if offset is None:
        _check_naive(str(value), feature)
    seconds = (value.toordinal() - 719_163) * 86_400 + value.hour * 3_600 + value.minute * 60 + value.second
    micros = value.microsecond
    if offset is not None:
        seconds -= offset.days * 86_400 + offset.seconds
        micros -= offset.microseconds
    nanos = getattr(value, "nanosecond", 0)  # of pandas
    return seconds * 10**18 + micros * 10**12 + nanos * 10**9


def _of_text(value: str, feature: Timestamp) -> int:
    found = _ISO.fullmatch(value.strip())
    parts = found.groupdict() if found else {}
    year, month, day = (int(parts[name]) if found else 0 for name in ("year", "month", "day"))
    hour, minute, second = (int(parts.get(name) or 0) for name in ("hour", "minute", "second"))
    # The calendar repeats every 400 years; Python supports only years from 1.
    is_date = 1 <= month <= 12 and 1 <= day <= monthrange(year % 400 + 400, month)[1]
    if not is_date or hour > 23 or minute > 59 or second > 59:
        raise NoTimestamp(
            "E303",
            "is not ISO 8601 text",
            expected="text such as 2026-01-31T12:30:00, followed by Z or +01:00 if tz= is declared",
            found=preview(value),
            do="parse other formats with datetime.datetime.strptime(value, …)",
        )
    zone = parts["zone"]
    if zone is None:
        _check_naive(value, feature)
    days = datetime.date(year % 400 + 400, month, day).toordinal() - 719_163 + (year // 400 - 1) * 146_097
    seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - _offset(zone)
    return seconds * 10**18 + int((parts["fraction"] or "0").ljust(18, "0"))


def _offset(zone: str | None) -> int:
    """The seconds that a zone such as +01:00 is ahead of UTC."""
    if zone in (None, "Z"):
        return 0
    assert zone is not None
    sign = -1 if zone[0] == "-" else 1
    return sign * (int(zone[1:3]) * 3_600 + int(zone[-2:]) * 60)


def _check_naive(found: str, feature: Timestamp) -> None:
    if feature.tz is not None:
        raise no_zone(found, feature)


def no_zone(found: str, feature: Timestamp) -> NoTimestamp:
    """The error for a naive time, for a feature that declares a time zone."""
    return NoTimestamp(
        "E319",
        "has no time zone, but the schema declares one",
        expected=f'a timezone-aware time, for tz="{feature.tz}"',
        found=found[:60],
        do=f'value.replace(tzinfo=zoneinfo.ZoneInfo("{feature.tz}")), or declare Timestamp without tz=',
    )


def _too_fine(found: str, feature: Timestamp) -> NoTimestamp:
    return NoTimestamp(
        "E315",
        f"is more precise than its unit, {feature.unit}",
        expected=f"a time in whole {feature.unit}",
        found=found[:60],
        do='declare a finer unit, such as Timestamp("ns"), or rounding="nearest"',
    )


def _too_far(found: str, feature: Timestamp) -> NoTimestamp:
    return NoTimestamp(
        "E310",
        f"does not fit int64 in {feature.unit}",
        expected=f"a time within 2^63 {feature.unit} of 1970",
        found=found[:60],
        do='declare a coarser unit, such as Timestamp("s")',
    )
