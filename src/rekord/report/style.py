"""The style sheet of HTML reports: light and dark, for screens of any width and for paper."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfbfa; --card: #ffffff; --ink: #1c1d1f; --soft: #62666d; --line: #e6e6e3; --faint: #f1f1ee;
  --accent: #0f6e68; --wash: #d5e8e6; --warn: #9a3412; --warn-wash: #fbe9df;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #131416; --card: #1b1d20; --ink: #e8e8e6; --soft: #9ba0a8; --line: #2c2f34; --faint: #24272b;
    --accent: #5cc8bd; --wash: #234340; --warn: #f4a983; --warn-wash: #3a251b;
  }
}
* { box-sizing: border-box; }
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
@media (max-width: 640px) {
  main, header.top { padding-left: 16px; padding-right: 16px; }
  header.top { padding-top: 36px; }
  h2 { margin-top: 52px; }
  .feature { padding: 18px 16px; }
  .wide { display: none; }
}
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print { body { background: #fff; } .feature, .panel { break-inside: avoid; } h2 { margin-top: 36px; } }
"""


TRAINING_STYLE = """
.lead { font-size: 17px; margin: 10px 0 0; overflow-wrap: anywhere; }
h3 { margin: 36px 0 12px; }
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
"""
