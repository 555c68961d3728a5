"""Charts as SVG and as rows of bars, drawn from numbers alone and accessible to screen readers."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rekord.report.formatting import format_duration, format_number, format_share

_BAR_WIDTH, _BAR_HEIGHT, _FOOT = 320, 112, 20
_SPARK_WIDTH, _SPARK_HEIGHT = 96, 22


def escape_html(text: object) -> str:
    """Text from outside, escaped for the page: no markup, and unprintable characters as escapes."""
    letters = [one if one.isprintable() else _spell_out(one) for one in str(text)]
    return html.escape("".join(letters), quote=True)


def format_percent(part: int, whole: int) -> str:
    """A share in percent, escaped for the page."""
    return html.escape(format_share(part, whole))


def _spell_out(letter: str) -> str:
    point = ord(letter)
    if point <= 0xFF:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"


def render_histogram(
    edges: Sequence[float],
    counts: Sequence[int],
    title: str,
    format_edge: Callable[[float], str] = format_number,
) -> str:
    """Bars of equal width over the range of a feature, with the range below them."""
    bars = _render_bars(counts, _BAR_WIDTH, _BAR_HEIGHT)
    low, high = map(format_edge, _axis_range(edges))
    label = f"{title}: {_describe_histogram(edges, counts, format_edge)}"
    return (
        f'<svg class="histogram" height="{_BAR_HEIGHT + _FOOT}" role="img" aria-label="{escape_html(label)}">'
        f"<title>{escape_html(label)}</title>"
        # The bars are stretched to the available width; the text around them is not.
        f'<svg viewBox="0 0 {_BAR_WIDTH} {_BAR_HEIGHT}" height="{_BAR_HEIGHT}" preserveAspectRatio="none">'
        f"{bars}</svg>"
        f'<line class="axis" x1="0" x2="100%" y1="{_BAR_HEIGHT}.5" y2="{_BAR_HEIGHT}.5" />'
        f'<text x="0" y="{_BAR_HEIGHT + 16}">{escape_html(low)}</text>'
        f'<text x="100%" y="{_BAR_HEIGHT + 16}" text-anchor="end">{escape_html(high)}</text></svg>'
    )


def render_sparkline(counts: Sequence[int]) -> str:
    """A distribution, as large as a word. The table around it has the numbers."""
    return (
        f'<svg class="spark" viewBox="0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}" aria-hidden="true">'
        f"{_render_bars(counts, _SPARK_WIDTH, _SPARK_HEIGHT)}</svg>"
    )


def render_bar_table(rows: Iterable[tuple[str, int]], total: int, head: str) -> str:
    """A table of values with their bars, counts and shares."""
    listed = list(rows)
    most = max((times for _, times in listed), default=0)
    body = "".join(
        f'<tr><th scope="row" class="value">{escape_html(name)}</th>{render_bar_cell(times, most)}'
        f'<td class="n">{times:,}</td><td class="n">{format_percent(times, total)}</td></tr>'
        for name, times in listed
    )
    return (
        f'<table><thead><tr><th scope="col">{escape_html(head)}</th><td></td><th scope="col" class="n">count</th>'
        f'<th scope="col" class="n">share</th></tr></thead><tbody>{body}</tbody></table>'
    )


def render_bar_cell(part: float, most: float) -> str:
    """A bar in a table cell. The cells next to it have the number."""
    width = 100 * part / most if most else 0
    kind = "" if part else ' class="none"'
    return f'<td class="bar" aria-hidden="true"><i{kind} style="width:{width:.1f}%"></i></td>'


def _render_bars(counts: Sequence[int], width: int, height: int) -> str:
    most = max(counts, default=0)
    step = width / max(len(counts), 1)
    gap = 1.0 if step > 4 else 0.0
    shapes = []
    for i, times in enumerate(counts):
        if times:
            tall = max(height * times / most, 1.0)
            shapes.append(
                f'<rect class="fill" x="{i * step:.1f}" y="{height - tall:.1f}" '
                f'width="{step - gap:.1f}" height="{tall:.1f}" />'
            )
    return "".join(shapes)


def _describe_histogram(edges: Sequence[float], counts: Sequence[int], format_edge: Callable[[float], str]) -> str:
    """A description of a chart for screen readers."""
    if not counts or not sum(counts):
        return "no values"
    at = max(range(len(counts)), key=lambda i: counts[i])
    low, high = _axis_range(edges)
    most = (
        f"most, {format_share(counts[at], sum(counts))}, from {format_edge(edges[at])} to "
        f"{format_edge(edges[at + 1])}"
    )
    return f"from {format_edge(low)} to {format_edge(high)}; {most}"


def _axis_range(edges: Sequence[float]) -> tuple[float, float]:
    """The range shown below the bars; bars of single integers start half a step before."""
    low, high = edges[0], edges[-1]
    if low % 1 == 0.5 and high % 1 == 0.5 and high - low == len(edges) - 1:
        return int(low + 0.5), int(high - 0.5)
    return low, high


_WIDTH, _HEIGHT = 480, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 8, 24
_MAX_DOTS = 100
_GRID_LINES = 4


@dataclass(frozen=True, slots=True)
class ChartCurve:
    """A line in a chart: one value per epoch, from epoch 1."""

    name: str
    style: str  # a CSS class
    values: Sequence[float]


def render_curves(
    title: str, lines: Sequence[ChartCurve], *, top: float | None = None, level: float | None = None
) -> str:
    """Lines over the epochs, from 0 to the largest value or to `top`; `level` is a dashed line across."""
    epochs = max(len(line.values) for line in lines)
    shown = [value for line in lines for value in line.values if math.isfinite(value)]
    most = top or _round_up(max([*shown, level or 0.0], default=0.0))
    label = f"{title}: {'; '.join(_describe_curve(line) for line in lines)}"
    drawn = "".join(_render_line(line, epochs, most) for line in lines)
    return (
        f'<svg class="curves" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape_html(label)}">'
        f"<title>{escape_html(label)}</title>{_render_axes(epochs, most)}{_render_level(level, most)}{drawn}</svg>"
    )


def render_legend(lines: Sequence[ChartCurve], *, level: str | None = None) -> str:
    """The legend of a chart."""
    items = [(line.style, line.name) for line in lines] + ([("level", level)] if level else [])
    return "".join(
        f'<span class="key"><svg viewBox="0 0 22 8" aria-hidden="true">'
        f'<line class="{style}" x1="1" x2="21" y1="4" y2="4" /></svg>{escape_html(name)}</span>'
        for style, name in items
    )


def render_time_bar(parts: Sequence[tuple[str, str, float]]) -> str:
    """Shares of a duration as one bar: (name, CSS class, seconds) each."""
    total = sum(seconds for _, _, seconds in parts)
    labels = [
        f"{name} {format_duration(seconds)} ({100 * seconds / total if total else 0:.0f} %)"
        for name, _, seconds in parts
    ]
    pieces = "".join(
        f'<i class="{style}" style="width:{100 * seconds / total:.1f}%" title="{escape_html(words)}"></i>'
        for (_, style, seconds), words in zip(parts, labels, strict=True)
        if seconds > 0
    )
    keys = "".join(
        f'<span class="key"><i class="{style}"></i>{escape_html(words)}</span>'
        for (_, style, _), words in zip(parts, labels, strict=True)
    )
    label = escape_html("; ".join(labels))
    return f'<div class="time" role="img" aria-label="{label}">{pieces}</div><p class="keys">{keys}</p>'


MAX_SCATTER_POINTS = 200
_SCATTER_WIDTH, _SCATTER_HEIGHT = 480, 300
_MAX_RADIUS, _MIN_RADIUS = 16.0, 3.0


def render_scatter(title: str, points: Sequence[tuple[int, int, int]], *, axes: tuple[str, str]) -> str:
    """Circles at (x, y), whose area is the count; both axes start at 0, and the dashed line is x = y.

    Beyond 200, neighbouring points are drawn as one, at their mean.
    """
    drawn = _merge_points(points)
    right, top = (_round_up(max(point[axis] for point in drawn)) for axis in (0, 1))
    room = _SCATTER_WIDTH - _LEFT - _RIGHT, _SCATTER_HEIGHT - _TOP - _BOTTOM
    most = max(times for _, _, times in drawn)
    total = sum(times for _, _, times in drawn)
    circles = []
    # Small circles last, so that no large one hides them.
    for x, y, times in sorted(drawn, key=lambda point: -point[2]):
        radius = max(_MAX_RADIUS * math.sqrt(times / most), _MIN_RADIUS)
        words = f"{x:,.0f} × {y:,.0f}: {times:,} ({format_share(times, total)})"
        circles.append(
            f'<circle cx="{_LEFT + room[0] * x / right:.1f}" cy="{_TOP + room[1] * (1 - y / top):.1f}" '
            f'r="{radius:.1f}"><title>{escape_html(words)}</title></circle>'
        )
    even = min(right, top)
    grid = [
        f'<line class="even" x1="{_LEFT}" y1="{_TOP + room[1]}" x2="{_LEFT + room[0] * even / right:.1f}" '
        f'y2="{_TOP + room[1] * (1 - even / top):.1f}" />'
    ]
    for step in range(_GRID_LINES + 1):
        share = step / _GRID_LINES
        y, x = _TOP + room[1] * (1 - share), _LEFT + room[0] * share
        anchor = "end" if step == _GRID_LINES else "middle"
        grid.append(
            f'<line class="axis" x1="{_LEFT}" x2="{_SCATTER_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" />'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{format_number(top * share)}</text>'
            f'<text x="{x:.1f}" y="{_SCATTER_HEIGHT - 6}" text-anchor="{anchor}">'
            f"{format_number(right * share)}</text>"
        )
    first, last = min(drawn), max(drawn)
    label = f"{title}: {axes[0]} from {first[0]:,.0f} to {last[0]:,.0f}, " + (
        f"{axes[1]} from {min(point[1] for point in drawn):,.0f} to {max(point[1] for point in drawn):,.0f}"
    )
    return (
        f'<svg class="scatter" viewBox="0 0 {_SCATTER_WIDTH} {_SCATTER_HEIGHT}" role="img" '
        f'aria-label="{escape_html(label)}"><title>{escape_html(label)}</title>{"".join(grid)}{"".join(circles)}</svg>'
    )


def _merge_points(points: Sequence[tuple[int, int, int]]) -> list[tuple[float, float, int]]:
    if len(points) <= MAX_SCATTER_POINTS:
        return [*points]
    cells = 16, 12
    most = max(x for x, _, _ in points), max(y for _, y, _ in points)
    merged: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for x, y, times in points:
        merged.setdefault((x * cells[0] // (most[0] + 1), y * cells[1] // (most[1] + 1)), []).append((x, y, times))
    out: list[tuple[float, float, int]] = []
    for group in merged.values():
        total = sum(times for _, _, times in group)
        means = [sum(point[axis] * point[2] for point in group) / total for axis in (0, 1)]
        out.append((means[0], means[1], total))
    return out


def _render_axes(epochs: int, most: float) -> str:
    parts = []
    for i in range(_GRID_LINES + 1):
        value = most * i / _GRID_LINES
        y = _y(value, most)
        parts.append(
            f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" />'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" '
            f'text-anchor="end">{escape_html(format_number(float(value)))}</text>'
        )
    for epoch in sorted({1, (epochs + 1) // 2, epochs}):
        name = f"epoch {epoch}" if epoch == 1 else f"{epoch:,}"
        anchor = "end" if epoch == epochs > 1 else "start" if epoch == 1 < epochs else "middle"
        parts.append(f'<text x="{_x(epoch, epochs):.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{name}</text>')
    return "".join(parts)


def _render_level(level: float | None, most: float) -> str:
    if level is None or not math.isfinite(level):
        return ""
    y = _y(level, most)
    return f'<line class="level" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" />'


def _render_line(line: ChartCurve, epochs: int, most: float) -> str:
    points = [
        (epoch, value, _x(epoch, epochs), _y(value, most))
        for epoch, value in enumerate(line.values, 1)
        if math.isfinite(value)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for _, _, x, y in points)
    every = max(1, math.ceil(len(points) / _MAX_DOTS))
    dots = "".join(
        f'<circle class="{line.style}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">'
        f"<title>{escape_html(line.name)}, epoch {epoch:,}: {escape_html(format_number(value))}</title></circle>"
        for epoch, value, x, y in points[::every]
    )
    return f'<polyline class="{line.style}" points="{path}" />{dots}'


def _x(epoch: int, epochs: int) -> float:
    room = _WIDTH - _LEFT - _RIGHT
    return _LEFT + (room * (epoch - 1) / (epochs - 1) if epochs > 1 else room / 2)


def _y(value: float, most: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - min(max(value / most if most else 0.0, 0.0), 1.0))


def _describe_curve(line: ChartCurve) -> str:
    """A description of a line for screen readers."""
    first, last = (format_number(float(line.values[at])) for at in (0, -1))
    return f"{line.name} {last}" if len(line.values) == 1 else f"{line.name} from {first} to {last}"


def _round_up(value: float) -> float:
    """The smallest round number ≥ `value`."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return power * next(step for step in (1, 2, 4, 8, 10) if step * power >= value * 0.999)
