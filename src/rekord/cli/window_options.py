"""The options of `rekord write` for windows of time series."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rekord.cli.options import Panel, flag_option, integer_option, option_group, text_option
from rekord.cli.write_options import attribute_errors_to_option, parse_names
from rekord.errors import UsageError, error

if TYPE_CHECKING:
    from rekord.transforms.base import Transform


@option_group(Panel.WINDOWS)
class WindowOptions:
    """Windows of time series."""

    window: str | None = text_option("--window", "N|10s", "Windows of N consecutive rows, or of a duration.")
    stride: str | None = text_option("--stride", "N|5s", "Rows or time between windows. Default: that of --window.")
    by: str | None = text_option("--by", "A,B", "Columns that identify a series, or all. Default: the file.")
    time: str | None = text_option("--time", "COLUMN", "Column to sort the rows of a series by.")
    horizon: int | None = integer_option("--horizon", "Rows after a window that --targets are taken from.")
    targets: str | None = text_option("--targets", "A,B", "Columns to forecast.")
    window_label: str | None = text_option(
        "--window-label", "A=RULE", "One value per window: last (default), first, majority or any of a column."
    )
    max_gap: str | None = text_option("--max-gap", "N|1s", "Longest pause that a window may span.")
    pad: bool = flag_option("--pad", "Pad incomplete windows instead of dropping them.")
    steps: bool = flag_option("--steps", "Store windows as the steps of SequenceExamples.")
    monotonic: bool = flag_option("--monotonic", "Treat rows that come after a later one as bad.")
    value_ranges: list[str] | None = text_option(
        "--value-range", "KEY=LOW,HIGH", "Treat rows with other values as bad; leave an end empty."
    )
    split_time: str | None = text_option(
        "--split-time", "A=0.8,B=0.2", "Splits by time: ratios, or first times as in train,val=2024-06-01."
    )


def parse_window(given: WindowOptions) -> list[Transform]:
    """The windows to make; none without --window."""
    others = {
        "--stride": given.stride, "--by": given.by, "--time": given.time, "--horizon": given.horizon,
        "--targets": given.targets, "--window-label": given.window_label, "--max-gap": given.max_gap,
        "--pad": given.pad, "--steps": given.steps, "--monotonic": given.monotonic,
        "--value-range": given.value_ranges, "--split-time": given.split_time,
    }  # fmt: skip
    if given.window is None:
        for option, value in others.items():
            if value:
                raise error(
                    "U605",
                    f"`{option}` has no effect without `--window`",
                    expected="--window N next to it",
                    found=f"{option} alone",
                    do=f"add --window 128, or leave {option} out",
                )
        return []
    from rekord.transforms import window

    with attribute_errors_to_option("--window-label", given.window_label or ""):
        label, rule = _parse_window_label(given.window_label)
    with attribute_errors_to_option("--value-range", ",".join(given.value_ranges or ())):
        ranges = [_parse_range(text) for text in given.value_ranges or ()]
    with attribute_errors_to_option("--split-time", given.split_time or ""):
        borders = _parse_borders(given.split_time)
    try:
        made = window(
            _parse_rows(given.window),
            None if given.stride is None else _parse_rows(given.stride),
            by=None if given.by is None else () if given.by == "all" else parse_names(given.by),
            time=given.time,
            label=label,
            label_from=rule,  # type: ignore[arg-type]
            targets=parse_names(given.targets),
            horizon=given.horizon or 0,
            incomplete="pad" if given.pad else "drop",
            steps=given.steps,
            max_gap=None if given.max_gap is None else _parse_rows(given.max_gap),
            ranges=ranges,
            monotonic=given.monotonic,
            split_by_time=borders,
        )
    except UsageError as failure:
        if not failure.what.startswith("`size`"):
            raise
        do = (failure.do or "").replace("size=", "--window ").replace('"', "")
        what = failure.what.replace("`size`", "`--window`")
        raise error("U605", what, expected=failure.expected, found=failure.found, do=do) from None
    return [made]


def _parse_rows(text: str) -> Any:
    """A number, or a duration as it is."""
    if text.isascii() and text.isdigit() and len(text) < 12:
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def _parse_window_label(text: str | None) -> tuple[tuple[str, ...], str]:
    if text is None:
        return (), "last"
    names, _, rule = text.partition("=")
    return parse_names(names), rule or "last"


def _parse_range(text: str) -> tuple[str, float | None, float | None]:
    key, _, ends = text.partition("=")
    low, comma, high = ends.partition(",")
    try:
        if not key or not comma:
            raise ValueError(text)
        return key, float(low) if low else None, float(high) if high else None
    except ValueError:
        raise error("U605", expected="a column and two ends: temp=-40,85") from None


def _parse_borders(text: str | None) -> list[tuple[str, Any]]:
    """`train=0.8,val=0.2`, or `train,val=2024-06-01`."""
    if text is None:
        return []
    pairs = [part.partition("=") for part in text.split(",")]
    if not pairs[0][1]:
        return [(name.strip(), value or None) for name, _, value in pairs]
    try:
        return [(name.strip(), float(value)) for name, _, value in pairs]
    except ValueError:
        raise error("U605", expected="ratios, or the first time of each split after the first") from None
