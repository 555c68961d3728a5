"""The frame and the style sheet of all HTML reports: light and dark, for screens of any width and for paper."""

from __future__ import annotations

import os

from rekord.report.charts import escape_html
from rekord.version import VERSION

_LIGHT = """
  --page: #fbfbfa; --card: #ffffff; --ink: #1c1d1f; --soft: #62666d; --line: #e6e6e3; --faint: #f1f1ee;
  --accent: #0f6e68; --wash: #d5e8e6; --warn: #9a3412; --warn-wash: #fbe9df;
"""
_DARK = """
  --page: #131416; --card: #1b1d20; --ink: #e8e8e6; --soft: #9ba0a8; --line: #2c2f34; --faint: #24272b;
  --accent: #5cc8bd; --wash: #234340; --warn: #f4a983; --warn-wash: #3a251b;
"""
_THEME = (
    f":root {{ color-scheme: light dark;{_LIGHT}}}\n@media (prefers-color-scheme: dark) {{ :root {{{_DARK}}} }}\n"
)
# The colours as the browser asks for them, unless the page sets `data-theme` on its root.
SWITCHABLE_THEME = (
    f"{_THEME}:root[data-theme=light] {{ color-scheme: light;{_LIGHT}}}\n"
    f":root[data-theme=dark] {{ color-scheme: dark;{_DARK}}}\n"
)

STYLE = (
    _THEME
    + """* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  font-variant-numeric: tabular-nums;
}
main, header.top { max-width: 1080px; margin: 0 auto; padding: 0 28px; }
header.top { padding-top: 64px; padding-bottom: 8px; }
main { padding-bottom: 96px; }
h1 {
  font-size: 30px; line-height: 1.2; font-weight: 650; letter-spacing: -0.02em; margin: 0;
  overflow-wrap: anywhere;
}
h2 { font-size: 20px; font-weight: 650; letter-spacing: -0.01em; margin: 72px 0 6px; }
h3 { font-size: 16px; font-weight: 600; margin: 0; overflow-wrap: anywhere; }
h4 { font-size: 12px; font-weight: 600; color: var(--soft); margin: 0 0 8px; }
p { margin: 0 0 16px; }
.lead, .hint { color: var(--soft); max-width: 68ch; }
.hint { font-size: 14px; margin-bottom: 20px; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
.eyebrow { font-size: 13px; font-weight: 600; color: var(--accent); margin: 0 0 8px; }
.cards {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 14px;
  margin: 28px 0 0; padding: 0; list-style: none;
}
.cards li, .feature, .panel { background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.cards li { padding: 16px 18px; }
.cards b { display: block; font-size: 24px; font-weight: 620; letter-spacing: -0.02em; line-height: 1.25; }
.cards span { font-size: 13px; color: var(--soft); }
.panel { padding: 8px 20px; overflow-x: auto; }
.notice { background: var(--warn-wash); border-radius: 12px; padding: 16px 20px; margin: 24px 0 0; }
.notice b { color: var(--warn); }
.notice ul { margin: 8px 0 0; padding-left: 20px; font-size: 14px; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { padding: 7px 14px 7px 0; text-align: left; vertical-align: middle; border-bottom: 1px solid var(--line); }
tr:last-child > th, tr:last-child > td { border-bottom: 0; }
thead th { font-size: 12px; font-weight: 600; color: var(--soft); white-space: nowrap; }
tbody th { font-weight: 500; overflow-wrap: anywhere; min-width: 10ch; }
.n { text-align: right; white-space: nowrap; }
td:last-child, th:last-child { padding-right: 0; }
.bar { min-width: 80px; width: 40%; }
.sides .bar { width: 18%; min-width: 48px; }
.bar i { display: block; height: 8px; border-radius: 4px; background: var(--accent); min-width: 1px; }
.bar i.none { background: none; }
.pill {
  display: inline-block; font-size: 12px; font-weight: 600; border-radius: 99px; padding: 1px 9px;
  background: var(--faint); color: var(--soft); white-space: nowrap;
}
.pill.alert { background: var(--warn-wash); color: var(--warn); }
.pill.kind { background: var(--wash); color: var(--accent); }
.feature { padding: 22px 24px 24px; margin: 16px 0 0; scroll-margin-top: 16px; }
.feature:target { border-color: var(--accent); }
.feature > header { display: flex; flex-wrap: wrap; gap: 6px 12px; align-items: baseline; }
.facts {
  display: flex; flex-wrap: wrap; gap: 4px 22px; margin: 6px 0 0; padding: 0; list-style: none;
  font-size: 14px; color: var(--soft);
}
.facts b { color: var(--ink); font-weight: 600; }
.facts .alert, .facts .alert b { color: var(--warn); }
.columns {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr));
  gap: 28px 40px; margin-top: 20px;
}
.columns > * { min-width: 0; }
.columns > :only-child { max-width: 500px; }
.columns table { font-size: 13px; }
.columns th, .columns td { padding-top: 4px; padding-bottom: 4px; border-bottom: 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 16px 24px; }
figure { margin: 0; }
figcaption { font-size: 12px; color: var(--soft); margin-bottom: 4px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg.histogram { height: 132px; }
svg .fill { fill: var(--accent); }
svg .axis { stroke: var(--line); }
svg text { fill: var(--soft); font-size: 11px; }
.spark { width: 96px; }
.value { overflow-wrap: anywhere; max-width: 26ch; }
footer { color: var(--soft); font-size: 13px; margin-top: 72px; }
header.top .lead { font-size: 17px; margin: 10px 0 0; overflow-wrap: anywhere; }
main > h3 { margin: 36px 0 12px; }
.curves { width: 100%; }
.curves polyline { fill: none; stroke-width: 2; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
polyline.train, line.train { stroke: var(--soft); stroke-dasharray: 5 4; }
polyline.held, line.held { stroke: var(--accent); }
line.held, line.train { stroke-width: 2; }
circle.train { fill: var(--soft); }
circle.held { fill: var(--accent); }
line.level { stroke: var(--warn); stroke-dasharray: 2 4; }
.key { display: inline-flex; align-items: center; gap: 6px; margin-right: 16px; font-size: 13px; color: var(--soft); }
.key svg { width: 22px; }
.key i { width: 12px; height: 12px; border-radius: 3px; }
.keys { margin: 10px 0 0; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); gap: 16px; }
.plots .panel { padding: 18px 20px; }
.time { display: flex; height: 22px; border-radius: 6px; overflow: hidden; background: var(--faint); }
i.computing { background: var(--accent); }
i.waiting { background: var(--warn); }
i.once { background: var(--soft); }
.heat { width: auto; font-size: 13px; }
.heat th, .heat td { padding: 4px 8px; border: 1px solid var(--card); }
.heat td { text-align: center; min-width: 46px; }
.heat td.right { background: color-mix(in srgb, var(--accent) var(--share, 0%), var(--card)); }
.heat td.wrong { background: color-mix(in srgb, var(--warn) var(--share, 0%), var(--card)); }
.heat td.total { text-align: right; color: var(--soft); }
.heat small { display: block; font-size: 11px; line-height: 1.2; }
.heat thead span { display: inline-block; max-width: 12ch; overflow: hidden; text-overflow: ellipsis; }
.good { background: var(--wash); border-radius: 12px; padding: 16px 20px; margin: 24px 0 0; }
pre {
  background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 20px; margin: 0 0 16px;
  overflow-x: auto; font: 13px/1.55 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
}
.gallery {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, var(--tile, 132px)), 1fr));
  gap: 14px; margin: 0; padding: 0; list-style: none; align-items: start;
}
.gallery li { min-width: 0; font-size: 13px; line-height: 1.4; overflow-wrap: anywhere; }
.gallery p { margin: 6px 0 0; color: var(--soft); }
.gallery p b { color: var(--ink); font-weight: 600; }
.gallery .wrong { color: var(--warn); }
.shots { display: grid; grid-auto-flow: column; grid-auto-columns: minmax(0, 1fr); gap: 4px; }
.shot {
  position: relative; aspect-ratio: 1; display: flex; align-items: center; justify-content: center;
  background: var(--faint); border-radius: 8px; overflow: hidden;
}
.shot img { display: block; width: 100%; height: 100%; object-fit: contain; }
.shot img.tiny { image-rendering: pixelated; }
.shot.fit { aspect-ratio: auto; }
.shot.fit img { height: auto; }
.shot span.gone { padding: 8px; font-size: 12px; text-align: center; color: var(--soft); }
.shot i { position: absolute; border: 2px solid; border-radius: 3px; pointer-events: none; }
.shot i b {
  position: absolute; left: -2px; top: -2px; max-width: calc(100% + 4px); padding: 0 4px; overflow: hidden;
  font: 600 11px/15px system-ui, sans-serif; white-space: nowrap; text-overflow: ellipsis; color: #101113;
  border-radius: 3px 0 3px 0;
}
.strips { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 28px 32px; }
.strips h3 { font-size: 14px; margin: 0 0 8px; }
.strips h3 span { color: var(--soft); font-weight: 400; }
.strips .gallery { --tile: 76px; grid-template-columns: repeat(5, minmax(0, 1fr)); gap: 8px; }
.swatches { display: flex; flex-wrap: wrap; gap: 6px 20px; margin: 18px 0 0; padding: 0; list-style: none; }
.swatches li { display: inline-flex; align-items: center; gap: 7px; font-size: 13px; overflow-wrap: anywhere; }
.swatches i { width: 12px; height: 12px; border-radius: 3px; flex: none; border: 1px solid var(--line); }
.swatches span { color: var(--soft); }
details { margin-top: 10px; font-size: 13px; }
summary { cursor: pointer; color: var(--accent); }
summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
.remarks { margin: 0; padding: 0; list-style: none; font-size: 14px; }
.remarks li { padding: 7px 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
.remarks li:last-child { border-bottom: 0; }
.remarks .pill { margin-right: 6px; }
.rows { overflow-x: auto; }
.rows td, .rows th { vertical-align: top; max-width: 30ch; overflow-wrap: anywhere; padding-right: 18px; }
.scatter circle { fill: var(--accent); fill-opacity: 0.55; stroke: var(--accent); }
.scatter line.even { stroke: var(--soft); stroke-dasharray: 3 4; opacity: 0.5; }
@media (max-width: 640px) {
  main, header.top { padding-left: 16px; padding-right: 16px; }
  header.top { padding-top: 36px; }
  h2 { margin-top: 52px; }
  .feature { padding: 18px 16px; }
  .wide { display: none; }
  .bar { min-width: 40px; }
  th, td { padding-right: 10px; }
}
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print { body { background: #fff; } .feature, .panel { break-inside: avoid; } h2 { margin-top: 36px; } }
"""
)


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render_page(eyebrow: str, path: str, body: str, *, lead: str = "") -> str:
    """A whole page about the dataset at `path`. It loads nothing and runs nothing; `body` is HTML."""
    title = get_base_name(path)
    about = f'<p class="lead">{escape_html(lead)}</p>' if lead else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8" />'
        f'<meta http-equiv="Content-Security-Policy" content="{escape_html(_POLICY)}" />'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />'
        f"<title>{escape_html(title)}: {escape_html(eyebrow.lower())}</title><style>{STYLE}</style></head><body>"
        f'<header class="top"><p class="eyebrow">{escape_html(eyebrow)}</p><h1>{escape_html(title)}</h1>{about}'
        f"</header><main>{body}<footer>rekord {escape_html(VERSION)} · {escape_html(path)}</footer></main></body>"
        "</html>\n"
    )


def get_base_name(path: str) -> str:
    """The last part of a path: the display name of a dataset."""
    return os.path.basename(os.path.normpath(path)) or path
