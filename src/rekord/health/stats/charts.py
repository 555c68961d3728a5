"""Charts as SVG and as rows of bars, drawn from numbers alone and readable without seeing them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from rekord.health.stats.figures import number, share

_WIDTH, _HEIGHT, _FOOT = 320, 112, 20
_SPARK_WIDTH, _SPARK_HEIGHT = 96, 22


def escaped(text: object) -> str:
    """Text from outside as it may stand in the page: markup means nothing, and what cannot be seen is spelled out."""
    letters = [one if one.isprintable() else _spelled(one) for one in str(text)]
    return html.escape("".join(letters), quote=True)


def percent(part: int, whole: int) -> str:
    """A share as it may stand in the page: little is less than a tenth, `<0.1%`."""
    return html.escape(share(part, whole))


def _spelled(letter: str) -> str:
    point = ord(letter)
    if point <= 0xFF:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"


def histogram(edges: Sequence[float], counts: Sequence[int], title: str) -> str:
    """Bars of equal width over the range of a feature, with the range below them."""
    bars = _bars(counts, _WIDTH, _HEIGHT)
    low, high = (number(edge) for edge in _ends(edges))
    label = f"{title}: {_told(edges, counts)}"
    return (
        f'<svg class="histogram" height="{_HEIGHT + _FOOT}" role="img" aria-label="{escaped(label)}">'
        f"<title>{escaped(label)}</title>"
        # The bars are stretched to the room that there is; the text around them is not.
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" height="{_HEIGHT}" preserveAspectRatio="none">{bars}</svg>'
        f'<line class="axis" x1="0" x2="100%" y1="{_HEIGHT}.5" y2="{_HEIGHT}.5" />'
        f'<text x="0" y="{_HEIGHT + 16}">{escaped(low)}</text>'
        f'<text x="100%" y="{_HEIGHT + 16}" text-anchor="end">{escaped(high)}</text></svg>'
    )


def spark(counts: Sequence[int]) -> str:
    """The shape of a distribution, as large as a word. The table around it says its numbers."""
    return (
        f'<svg class="spark" viewBox="0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}" aria-hidden="true">'
        f"{_bars(counts, _SPARK_WIDTH, _SPARK_HEIGHT)}</svg>"
    )


def bar_rows(rows: Iterable[tuple[str, int]], total: int, head: str) -> str:
    """A table of values with a bar, a count and a share each."""
    listed = list(rows)
    most = max((times for _, times in listed), default=0)
    body = "".join(
        f'<tr><th scope="row" class="value">{escaped(name)}</th>{bar_cell(times, most)}'
        f'<td class="n">{times:,}</td><td class="n">{percent(times, total)}</td></tr>'
        for name, times in listed
    )
    return (
        f'<table><thead><tr><th scope="col">{escaped(head)}</th><td></td><th scope="col" class="n">count</th>'
        f'<th scope="col" class="n">share</th></tr></thead><tbody>{body}</tbody></table>'
    )


def bar_cell(part: float, most: float) -> str:
    """A bar in a cell of a table. The cells beside it say its number."""
    width = 100 * part / most if most else 0
    kind = "" if part else ' class="none"'
    return f'<td class="bar" aria-hidden="true"><i{kind} style="width:{width:.1f}%"></i></td>'


def _bars(counts: Sequence[int], width: int, height: int) -> str:
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


def _told(edges: Sequence[float], counts: Sequence[int]) -> str:
    """What a chart shows, for somebody who hears it."""
    if not counts or not sum(counts):
        return "no values"
    at = max(range(len(counts)), key=lambda i: counts[i])
    low, high = _ends(edges)
    most = f"most, {share(counts[at], sum(counts))}, from {number(edges[at])} to {number(edges[at + 1])}"
    return f"from {number(low)} to {number(high)}; {most}"


def _ends(edges: Sequence[float]) -> tuple[float, float]:
    """The range that is written below the bars; bars of single whole numbers begin half a step before."""
    low, high = edges[0], edges[-1]
    if low % 1 == 0.5 and high % 1 == 0.5 and high - low == len(edges) - 1:
        return int(low + 0.5), int(high - 0.5)
    return low, high
