"""What the sheet of a training report has beside that of all reports: curves, a matrix, a bar of time, code."""

from __future__ import annotations

STYLE = """
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
