"""A transcript as an SVG of a terminal, drawn line by line as the commands run."""

from __future__ import annotations

import re
from html import escape

_COLUMN_PIXELS, _LINE_PIXELS, _TOP_PIXELS, _SIDE_PIXELS = 8.43, 20, 52, 20
_TYPING_SECONDS, _OUTPUT_SECONDS, _PAUSE_SECONDS = 0.03, 0.12, 0.9
_LABEL = re.compile(r"(\s+)(where|expected|found|likely|do)(\s+)(.*)")
_CODE = re.compile(r"([A-Z]\d{3})(\s.*)")

_STYLE = """\
text { font: 14px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d7dae0; white-space: pre; }
.frame { fill: #1b1f27; }
.command { fill: #ffffff; font-weight: 600; }
.prompt, .good { fill: #7ec77b; }
.code { fill: #f0717a; font-weight: 600; }
.label { fill: #8b93a1; }
.do { fill: #7cc4f5; }
.line { animation: appear 0.01s backwards; }
@keyframes appear { from { opacity: 0; } }
@media (prefers-reduced-motion: reduce) { .line { animation: none; } }"""


def draw_terminal(transcript: str, title: str) -> str:
    """The SVG of a transcript: commands after `$ `, each followed by what it prints. It plays once and stays.

    Where animations do not run, every line is visible.
    """
    lines = transcript.rstrip("\n").split("\n")
    width = round(max(len(line) for line in lines) * _COLUMN_PIXELS + 2 * _SIDE_PIXELS)
    height = _TOP_PIXELS + len(lines) * _LINE_PIXELS + 4
    drawn, seconds = [], 0.3
    for number, line in enumerate(lines):
        y = _TOP_PIXELS + number * _LINE_PIXELS
        if line.startswith("$ "):
            seconds += _PAUSE_SECONDS if number else 0.0
        delay = f'style="animation-delay: {seconds:.2f}s"'
        drawn.append(f'<text class="line" {delay} x="{_SIDE_PIXELS}" y="{y}">{_spans(line)}</text>')
        seconds += len(line) * _TYPING_SECONDS if line.startswith("$ ") else _OUTPUT_SECONDS
    dots = "".join(
        f'<circle cx="{22 + 18 * i}" cy="20" r="6" fill="{colour}"/>'
        for i, colour in enumerate(("#f0717a", "#e8c266", "#7ec77b"))
    )
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{_STYLE}\n</style>",
            f'<rect class="frame" width="{width}" height="{height}" rx="8"/>',
            dots,
            *drawn,
            "</svg>",
            "",
        ]
    )


def _spans(line: str) -> str:
    if line.startswith("$ "):
        return _span("prompt", "$ ") + _span("command", line[2:])
    if match := _LABEL.fullmatch(line):
        before, label, space, text = match.groups()
        return before + _span("label", label) + space + (_span("do", text) if label == "do" else escape(text))
    if match := _CODE.fullmatch(line):
        return _span("code", match[1]) + escape(match[2])
    if line.startswith(("all good", "next: ")):
        return _span("good" if line.startswith("all") else "do", line)
    return escape(line)


def _span(kind: str, text: str) -> str:
    return f'<tspan class="{kind}">{escape(text)}</tspan>'
