"""Windows over time series: many rows become one. The conversion sorts the rows, so this is for writing only."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rekord.arguments import check_keywords, flag, integer, invalid, one_of, positive_int
from rekord.errors import error
from rekord.schema import Schema
from rekord.transforms.base import Bound, RecordedTransform

LabelRule: TypeAlias = Literal["last", "first", "majority", "any"]
Duration: TypeAlias = "int | float | str"
ValueRanges: TypeAlias = "Mapping[str, Sequence[float | None]] | Sequence[Sequence[Any]]"
"""The least and the most valid value by column, or the three as a list for each column."""
TimeBorders: TypeAlias = "Mapping[str, Any] | Sequence[Sequence[Any]]"
"""A ratio or the first time by split, or pairs of them."""

_SECOND = 10**9
TICKS_OF: dict[str, int] = {
    "ns": 1, "us": 10**3, "ms": 10**6, "s": _SECOND, "min": 60 * _SECOND, "h": 3600 * _SECOND, "d": 86_400 * _SECOND
}  # fmt: skip
"""Nanoseconds by the unit of a duration."""

_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?(ns|us|ms|s|min|h|d)")
_MAX_ROWS = 1 << 24
_RULES = ("last", "first", "majority", "any")


def parse_duration(name: str, value: object) -> int:
    """A duration such as "10s" in nanoseconds."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise invalid(name, value, 'a duration such as "10s", "500ms" or "1h"', f'{name}="10s"')
    number, unit = str(found[1]), str(found[2])
    whole, _, part = number.partition(".")
    ticks: int = int(whole) * TICKS_OF[unit] + int(part or 0) * TICKS_OF[unit] // int(10 ** len(part))
    if not 0 < ticks < 1 << 62:
        raise invalid(name, value, "a duration above 0", f'{name}="10s"')
    return ticks


@dataclass(frozen=True, kw_only=True)
class Window(RecordedTransform):
    """How the rows of a series become windows; see `rk.transforms.window`."""

    name = "window"

    size: int | str
    stride: int | str
    by: tuple[str, ...] | None
    time: str | None
    label: tuple[str, ...]
    label_from: str
    targets: tuple[str, ...]
    horizon: int
    incomplete: str
    steps: bool
    max_gap: Duration | None
    ranges: tuple[tuple[str, float | None, float | None], ...]
    monotonic: bool
    split_by_time: tuple[tuple[str, Any], ...]

    @property
    def is_timed(self) -> bool:
        """Whether size and stride are durations."""
        return isinstance(self.size, str)

    def bind(self, before: Schema) -> Bound:
        """Refused: one row is not enough."""
        raise error(
            "U605",
            "`window` must be the first transform of rk.write",
            expected="windows of the rows of a source, before other transforms",
            found="a transform of single rows",
            do='rk.write("sensors/", "out", transforms=[rk.transforms.window(128, 64), …])',
        )


def _names(name: str, value: object) -> tuple[str, ...]:
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, Sequence) or not all(isinstance(one, str) and one for one in several):
        raise invalid(name, value, "a column, or several", f'{name}="device"')
    if len(set(several)) < len(several):
        raise invalid(name, value, "each column once", f"{name}={list(dict.fromkeys(several))}"[:60])
    return tuple(several)


@check_keywords
def window(
    size: int | str,
    stride: int | str | None = None,
    *,
    by: str | Sequence[str] | None = None,
    time: str | None = None,
    label: str | Sequence[str] = (),
    label_from: LabelRule = "last",
    targets: str | Sequence[str] = (),
    horizon: int = 0,
    incomplete: Literal["drop", "pad"] = "drop",
    steps: bool = False,
    max_gap: Duration | None = None,
    ranges: ValueRanges = (),
    monotonic: bool = False,
    split_by_time: TimeBorders = (),
) -> Window:
    """Windows of `size` rows, a new one every `stride` rows (default: `size`), as the rows of the dataset.

    Rows are grouped by the columns `by` (default: by file; `by=()` is one series) and sorted by the column `time`
    (default: their order in the files). A column becomes one of shape (size,), or with `steps` the steps of a
    SequenceExample; columns of `by` keep their value, and `time` is that of the first row. If `time` has timestamps,
    `size` and `stride` may be durations such as "10s": windows then have as many rows as fall into them.

    `label` names columns of which each window has one value, by `label_from`: that of the last or first row, the
    most frequent one, or whether any is not 0. `targets` are columns to forecast: `x_target` has the values of `x`
    in the `horizon` rows after the window. Windows at the end of a series that lack rows are dropped, or padded
    with zeros (`incomplete="pad"`), with their number of rows in the column `length`.

    A row is bad if it lacks a value, repeats the time of another row of its group, is outside of
    `ranges={"temp": (-40, 85)}`, or, with `monotonic`, comes after a later row in its file. A window spans neither a
    bad row nor a pause longer than `max_gap`, a duration or a number in units of `time`.

    `split_by_time` gives each split its own time, so that no two share a row: ratios of all rows, such as
    `{"train": 0.8, "val": 0.2}`, or where each split after the first begins, `{"train": None, "val": "2024-06-01"}`.
    Windows across a border are dropped.
    """
    stride = size if stride is None else stride
    if isinstance(size, str) != isinstance(stride, str):
        raise invalid("stride", stride, "rows for a size in rows, or a duration for a duration", f"stride={size!r}")
    for name, value in (("size", size), ("stride", stride)):
        if isinstance(value, str):
            parse_duration(name, value)
        else:
            positive_int(name, value, most=_MAX_ROWS)
    one_of("label_from", label_from, _RULES)
    one_of("incomplete", incomplete, ("drop", "pad"))
    flag("steps", steps)
    flag("monotonic", monotonic)
    integer("horizon", horizon, least=0, most=_MAX_ROWS, do="horizon=24")
    if time is not None and (not isinstance(time, str) or not time):
        raise invalid("time", time, "a column", 'time="t"')
    wanted = _names("targets", targets)
    if bool(wanted) != bool(horizon):
        raise invalid("horizon", horizon, "targets= and horizon= together", 'targets="temp", horizon=24')
    timed = [
        ("size", isinstance(size, str)),
        ("max_gap", max_gap is not None),
        ("split_by_time", bool(split_by_time)),
    ]
    for name, needed in [*timed, ("monotonic", monotonic)]:
        if needed and time is None:
            raise invalid("time", None, f"the column with the time, which {name}= needs", 'time="t"')
    if isinstance(size, str) and incomplete == "pad":
        raise invalid("incomplete", "pad", "a size in rows: windows of a duration have no fixed length", "size=128")
    if isinstance(max_gap, str):
        parse_duration("max_gap", max_gap)
    elif max_gap is not None and (isinstance(max_gap, bool) or not max_gap > 0):
        raise invalid("max_gap", max_gap, "a duration, or a number above 0", 'max_gap="1s"')
    return Window(
        size=size,
        stride=stride,
        by=None if by is None else _names("by", by),
        time=time,
        label=_names("label", label),
        label_from=label_from,
        targets=wanted,
        horizon=horizon,
        incomplete=incomplete,
        steps=steps,
        max_gap=max_gap,
        ranges=_parse_ranges(ranges),
        monotonic=monotonic,
        split_by_time=_parse_borders(split_by_time),
    )


def _parse_ranges(ranges: Any) -> tuple[tuple[str, float | None, float | None], ...]:
    items = [(name, *ends) for name, ends in ranges.items()] if isinstance(ranges, Mapping) else list(ranges)
    found = []
    for item in items:
        sound = len(item) == 3 and isinstance(item[0], str)
        ends = item[1:] if sound else ()
        if not sound or not all(one is None or isinstance(one, (int, float)) for one in ends):
            raise invalid("ranges", ranges, "two ends for each column, or None", 'ranges={"temp": (-40, 85)}')
        found.append((item[0], *ends))
    return tuple(found)


def _parse_borders(borders: Any) -> tuple[tuple[str, Any], ...]:
    do = 'split_by_time={"train": 0.8, "val": 0.2}'
    items = list(borders.items()) if isinstance(borders, Mapping) else [tuple(one) for one in borders]
    if not items:
        return ()
    if len(items) < 2 or not all(len(one) == 2 and isinstance(one[0], str) for one in items):
        raise invalid("split_by_time", borders, "at least two splits, each with a ratio or its first time", do)
    values = [value for _, value in items]
    if values[0] is None:
        if any(value is None or isinstance(value, bool) for value in values[1:]):
            raise invalid("split_by_time", borders, "the first time of each split but the first", do)
        texts = [value.isoformat() if isinstance(value, datetime.date) else value for value in values]
        return tuple(zip([name for name, _ in items], texts, strict=True))
    if not all(isinstance(value, (int, float)) and 0 < value < 1 for value in values) or abs(sum(values) - 1) > 1e-6:
        raise invalid("split_by_time", borders, "ratios that add up to 1, or None and first times", do)
    return tuple((name, float(value)) for name, value in items)
