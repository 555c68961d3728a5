"""The charts of a training report: curves by epoch, and where the time went. All can be heard as well as seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rekord.health.stats.charts import escaped
from rekord.health.stats.figures import number

_WIDTH, _HEIGHT = 480, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 8, 24
_MOST_DOTS = 100
_GRID = 4


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a chart: a value an epoch, from epoch 1 on."""

    name: str
    style: str  # a class of the sheet
    values: Sequence[float]


def curves(
    title: str, lines: Sequence[Curve], *, top: float | None = None, level: float | None = None
) -> str:
    """Lines over the epochs, from 0 to the largest value or to `top`; `level` is a dashed line across."""
    epochs = max(len(line.values) for line in lines)
    shown = [value for line in lines for value in line.values if math.isfinite(value)]
    most = top or _rounded_up(max([*shown, level or 0.0], default=0.0))
    label = f"{title}: {'; '.join(_told(line) for line in lines)}"
    drawn = "".join(_line(line, epochs, most) for line in lines)
    return (
        f'<svg class="curves" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escaped(label)}">'
        f"<title>{escaped(label)}</title>{_axes(epochs, most)}{_level(level, most)}{drawn}</svg>"
    )


def legend(lines: Sequence[Curve], *, level: str | None = None) -> str:
    """What the lines of a chart are."""
    items = [(line.style, line.name) for line in lines] + ([("level", level)] if level else [])
    return "".join(
        f'<span class="key"><svg viewBox="0 0 22 8" aria-hidden="true">'
        f'<line class="{style}" x1="1" x2="21" y1="4" y2="4" /></svg>{escaped(name)}</span>'
        for style, name in items
    )


def time_bar(parts: Sequence[tuple[str, str, float]]) -> str:
    """Shares of a time side by side: (name, class of the sheet, seconds) each."""
    from rekord.verbs.figures import duration

    total = sum(seconds for _, _, seconds in parts)
    told = [
        f"{name} {duration(seconds)} ({100 * seconds / total if total else 0:.0f} %)"
        for name, _, seconds in parts
    ]
    pieces = "".join(
        f'<i class="{style}" style="width:{100 * seconds / total:.1f}%" title="{escaped(words)}"></i>'
        for (_, style, seconds), words in zip(parts, told, strict=True)
        if seconds > 0
    )
    keys = "".join(
        f'<span class="key"><i class="{style}"></i>{escaped(words)}</span>'
        for (_, style, _), words in zip(parts, told, strict=True)
    )
    label = escaped("; ".join(told))
    return f'<div class="time" role="img" aria-label="{label}">{pieces}</div><p class="keys">{keys}</p>'


def _axes(epochs: int, most: float) -> str:
    parts = []
    for i in range(_GRID + 1):
        value = most * i / _GRID
        y = _y(value, most)
        parts.append(
            f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" />'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escaped(number(float(value)))}</text>'
        )
    for epoch in sorted({1, (epochs + 1) // 2, epochs}):
        name = f"epoch {epoch}" if epoch == 1 else f"{epoch:,}"
        anchor = "end" if epoch == epochs > 1 else "start" if epoch == 1 < epochs else "middle"
        parts.append(
            f'<text x="{_x(epoch, epochs):.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{name}</text>'
        )
    return "".join(parts)


def _level(level: float | None, most: float) -> str:
    if level is None or not math.isfinite(level):
        return ""
    y = _y(level, most)
    return f'<line class="level" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" />'


def _line(line: Curve, epochs: int, most: float) -> str:
    points = [
        (epoch, value, _x(epoch, epochs), _y(value, most))
        for epoch, value in enumerate(line.values, 1)
        if math.isfinite(value)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for _, _, x, y in points)
    every = max(1, math.ceil(len(points) / _MOST_DOTS))
    dots = "".join(
        f'<circle class="{line.style}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">'
        f"<title>{escaped(line.name)}, epoch {epoch:,}: {escaped(number(value))}</title></circle>"
        for epoch, value, x, y in points[::every]
    )
    return f'<polyline class="{line.style}" points="{path}" />{dots}'


def _x(epoch: int, epochs: int) -> float:
    room = _WIDTH - _LEFT - _RIGHT
    return _LEFT + (room * (epoch - 1) / (epochs - 1) if epochs > 1 else room / 2)


def _y(value: float, most: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - min(max(value / most if most else 0.0, 0.0), 1.0))


def _told(line: Curve) -> str:
    """What a line shows, for somebody who hears it."""
    first, last = (number(float(line.values[at])) for at in (0, -1))
    return f"{line.name} {last}" if len(line.values) == 1 else f"{line.name} from {first} to {last}"


def _rounded_up(value: float) -> float:
    """The next number from `value` on that is easy to read."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return power * next(step for step in (1, 2, 4, 8, 10) if step * power >= value * 0.999)
