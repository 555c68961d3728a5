"""The chart of the main ratios: an SVG for the README, light and dark, readable on a phone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from floors import FLOORS
from results import Group

from rekord.report.charts import escape_html

# Work of a floor, and the text of its bar.
_BARS = {
    "Decode tabular, 1 thread, batches of 1024": "Decode a table, one thread",
    "Decode tabular, default settings, batches of 128": "Decode a table, batches of 128",
    "Decode sequences": "Decode sequences, one thread",
    "Decode images": "Read images, one thread",
    "`to_tensorflow`, tabular, batches of 128": "Feed TensorFlow, batches of 128",
    "Feed torch": "Feed PyTorch",
    "Training loop on a table, 2 workers": "Training loop on a table",
    "Training loop on images, 2 workers": "Training loop on images",
    "Random records": "Random records",
    "Encode NumPy columns": "Encode NumPy columns",
    "Write a table from CSV": "Convert CSV",
    "Write image pairs, 2 workers": "Convert images with masks",
    "Parquet export": "Export to Parquet",
    "`count(*)`, one column decoded": "SQL count(*)",
}
_README = (
    "Decode tabular, 1 thread, batches of 1024",
    "Decode images",
    "`to_tensorflow`, tabular, batches of 128",
    "Feed torch",
    "Training loop on images, 2 workers",
    "Random records",
    "Encode NumPy columns",
    "Write image pairs, 2 workers",
)
_WIDTH, _ROW, _TOP, _PAD = 600, 50, 82, 20
_TITLE = "How many times as fast as its peers rekord is"
_STYLE = """\
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; fill: #1c1d1f; }
.title { font-size: 21px; font-weight: 650; }
.work { font-size: 17px; }
.soft { font-size: 15px; fill: #62666d; }
.ratio { font-size: 17px; font-weight: 650; }
.card { fill: #ffffff; stroke: #e6e6e3; }
.track { fill: #f1f1ee; }
.bar { fill: #0f6e68; }
.slower { fill: #9a3412; }
.one { stroke: #62666d; stroke-dasharray: 3 3; }
@media (prefers-color-scheme: dark) {
  text { fill: #e8e8e6; }
  .soft { fill: #9ba0a8; }
  .card { fill: #1b1d20; stroke: #2c2f34; }
  .track { fill: #24272b; }
  .bar { fill: #5cc8bd; }
  .slower { fill: #f4a983; }
  .one { stroke: #9ba0a8; }
}"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the chart."""

    work: str
    against: str
    ratio: float


def chart_bars(groups: Sequence[Group]) -> list[Bar]:
    """The measured ratios of the chart."""
    tables = {table.title: table for group in groups for table in group.tables}
    measured = {floor.work: floor.evaluate(tables)[1] for floor in FLOORS}
    return [
        Bar(text, found.against, found.value) for work, text in _BARS.items() if (found := measured[work]) is not None
    ]


def readme_table(bars: Sequence[Bar]) -> str:
    """The chart and some of its bars, as the README shows them."""
    rows = [
        f"| {bar.work} | {bar.against} | {_ratio(bar.ratio)} |"
        for bar in bars
        if bar.work in {_BARS[work] for work in _README}
    ]
    head = ["| what | against | times as fast |", "|---|---|--:|"]
    return "\n".join([f"![{_TITLE}](docs/images/speed.svg)", "", *head, *rows])


def draw_chart(bars: Sequence[Bar]) -> str:
    """Horizontal bars on a logarithmic scale; the text is above each bar, so that it fits on a phone."""
    ratios = [bar.ratio for bar in bars] or [1.0]
    low, high = min(0.5, *ratios), max(10.0, *ratios)
    inner = _WIDTH - 2 * _PAD

    def x(ratio: float) -> float:
        return _PAD + inner * math.log(ratio / low) / math.log(high / low)

    height = _TOP + _ROW * len(bars) + _PAD
    described = "; ".join(f"{bar.work}: {_ratio(bar.ratio)} × {bar.against}" for bar in bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape_html(_TITLE)}</title>',
        f'<desc id="desc">{escape_html(described)}.</desc>',
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="12"/>',
        f'<text class="title" x="{_PAD}" y="36">rekord, times as fast</text>',
        f'<text class="soft" x="{_PAD}" y="60">against the fastest setup of each peer; logarithmic scale</text>',
    ]
    for row, bar in enumerate(bars):
        y = _TOP + _ROW * row
        start, end = sorted((x(1.0), x(bar.ratio)))
        lines += [
            f'<text x="{_PAD}" y="{y + 16}"><tspan class="work">{escape_html(bar.work)}</tspan> '
            f'<tspan class="soft">{escape_html(_short(bar.against))}</tspan></text>',
            f'<text class="ratio" x="{_WIDTH - _PAD}" y="{y + 16}" text-anchor="end">{_ratio(bar.ratio)} ×</text>',
            f'<rect class="track" x="{_PAD}" y="{y + 24}" width="{inner}" height="12" rx="3"/>',
            f'<rect class="{"bar" if bar.ratio >= 1 else "slower"}" x="{start:.1f}" y="{y + 24}" '
            f'width="{end - start:.1f}" height="12" rx="3"/>',
        ]
    lines.append(f'<line class="one" x1="{x(1):.1f}" x2="{x(1):.1f}" y1="{_TOP + 20}" y2="{height - _PAD + 8}"/>')
    return "\n".join([*lines, "</svg>", ""])


def _ratio(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 20 else f"{ratio:.1f}"


def _short(against: str) -> str:
    """The peer without its settings."""
    return f"vs. {against.split(',')[0].removesuffix(' (no CRC)')}"
