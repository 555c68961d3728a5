"""The columns that windows are made of, and the schema of windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rekord.conversion.splits import SPLIT_COLUMN
from rekord.errors import RekordError, closest_match, error, preview, schema_error
from rekord.schema import Bytes, Feature, Float32, Int64, Label, Schema, Tensor, Text, Timestamp
from rekord.transforms.windows import Window, parse_duration


class SeriesColumn(NamedTuple):
    """A column of the rows that windows are made of."""

    name: str
    feature: Feature


_FEATURES = (Int64, Float32, Timestamp, Text, Bytes, Label, Tensor)


def plan_window_schema(window: Window, schema: Schema) -> tuple[tuple[SeriesColumn, ...], Schema]:
    """The columns to sort, and the schema of windows."""
    by = window.by or ()
    for name in (*by, *([window.time] if window.time else []), *window.label, *window.targets, *_range_names(window)):
        if name not in schema:
            near = closest_match(name, list(schema))
            raise schema_error(
                "S155",
                f"source has no column `{name}`",
                column=name,
                expected="one of " + ", ".join(f"`{one}`" for one in list(schema)[:8]),
                found="no such column",
                do=f"did you mean `{near}`?" if near else "name a column of the source",
            )
    scalars: dict[str, Feature] = {}
    series: dict[str, Feature] = {}
    targets: dict[str, Feature] = {}
    columns = []
    length = None if window.is_timed else int(window.size)
    for name, feature in schema.context.items():
        if feature.shape or not isinstance(feature, _FEATURES):
            raise column_error(name, feature, "one number or text per row")
        if name == window.time:
            if feature.is_label or feature.value_kind == "bytes":
                raise column_error(name, feature, "timestamps or numbers")
            scalars[name] = Timestamp("us") if feature.is_text else _required(feature)
            if name in by or name in window.label:
                raise column_error(name, feature, "a column for the time alone")
            continue
        columns.append(SeriesColumn(name, feature))
        if name in by or name in window.label:
            counted = name in window.label and window.label_from == "any"
            scalars[name] = Int64() if counted else _required(feature)
        else:
            series[name] = _with_length(name, feature, None if window.steps else length)
        if name in window.targets:
            targets[f"{name}_target"] = _with_length(name, feature, window.horizon)
    if window.incomplete == "pad":
        scalars["length"] = Int64()
    if not series:
        raise column_error(next(iter(schema)), schema[next(iter(schema))], "columns besides those of the group")
    clash = next((name for name in targets if name in schema), None)
    if clash is not None or ("length" in schema and window.incomplete == "pad"):
        raise column_error(clash or "length", schema[clash or "length"], "an unused name: windows add this column")
    if window.split_by_time and SPLIT_COLUMN in schema:
        raise column_error(SPLIT_COLUMN, schema[SPLIT_COLUMN], "an unused name: windows add this column")
    if window.steps:
        steps = {name: _required(schema[name]) for name in series}
        return tuple(columns), Schema(context={**scalars, **targets}, steps=steps)
    return tuple(columns), Schema({**scalars, **series, **targets})


def _range_names(window: Window) -> list[str]:
    return [name for name, _, _ in window.ranges]


def _required(feature: Feature) -> Feature:
    return replace(feature, optional=False)


def _with_length(name: str, feature: Feature, length: int | None) -> Feature:
    changes: Any = {"optional": False, "shape": (length,)}
    return replace(feature, **changes)


def column_error(name: str, feature: Feature, expected: str) -> RekordError:
    return schema_error(
        "S155",
        f"`{name}` cannot be used in windows",
        column=name,
        expected=expected,
        found=f"{feature!r}"[:60],
        do=f"leave it out when the source is read, or convert it first: {name[:20]}",
    )


def find_time_unit(window: Window, schema: Schema) -> str | None:
    """The unit of timestamps; "" if they are texts, None if the time is a number."""
    feature = None if window.time is None else schema[window.time]
    unit = "" if feature is not None and feature.is_text else getattr(feature, "unit", None)
    for name, value in (("size", window.size), ("stride", window.stride), ("max_gap", window.max_gap)):
        if isinstance(value, str):
            if unit is None:
                raise error(
                    "U605",
                    f"`{name}` cannot be a duration: `{window.time}` has numbers",
                    expected="a number, in units of the time",
                    found=preview(value),
                    do=f"{name}=10, or store timestamps in `{window.time}`"[:100],
                )
            to_ticks(name, value, unit or "us")
    return unit


def to_ticks(name: str, value: Any, unit: str) -> Any:
    """A duration in ticks of a unit; a number as it is."""
    if not isinstance(value, str):
        return value
    tick = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    ticks, rest = divmod(parse_duration(name, value), tick)
    if rest or not ticks:
        raise error(
            "U605",
            f"`{name}` is finer than the timestamps",
            expected=f"a multiple of 1{unit}",
            found=preview(value),
            do=f'{name}="1{unit}"',
        )
    return ticks


def feature_of(columns: Sequence[SeriesColumn], name: str) -> Feature:
    return next(column.feature for column in columns if column.name == name)
