"""Objects in a notebook: HTML fragments that are static, escaped and small.

A fragment brings its own style, scoped to the class `rekord`, in the colours of the reports. It has no scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar

from rekord.report.charts import escape_html
from rekord.report.gallery import Thumbnail, render_image

Shown = TypeVar("Shown")

MAX_FRAGMENT_BYTES = 300_000
MAX_TEXT_CHARACTERS = 80
MAX_TABLE_ROWS = 24

_STYLE = """<style>
.rekord { --ink: #1c1d1f; --soft: #62666d; --line: #e6e6e3; --faint: #f1f1ee; --accent: #0f6e68; --warn: #9a3412;
  color: var(--ink); font: 13px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; max-width: 100%; }
@media (prefers-color-scheme: dark) { .rekord { --ink: #e8e8e6; --soft: #9ba0a8; --line: #2c2f34; --faint: #24272b;
  --accent: #5cc8bd; --warn: #f4a983; } }
.rekord p { margin: 0 0 6px; } .rekord p b { color: var(--accent); }
.rekord table { border-collapse: collapse; margin: 0 0 10px; display: block; overflow-x: auto; }
.rekord th, .rekord td { padding: 3px 14px 3px 0; text-align: left; vertical-align: top; border: 0;
  border-bottom: 1px solid var(--line); background: none; max-width: 320px; overflow-wrap: anywhere; }
.rekord th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.rekord td.n, .rekord th.n { text-align: right; white-space: nowrap; }
.rekord img { display: block; border-radius: 4px; background: var(--faint); }
.rekord .soft { color: var(--soft); } .rekord .warn { color: var(--warn); }
</style>"""


def never_raises(render: Callable[[Shown], str]) -> Callable[[Shown], str]:
    """Decorate `_repr_html_`: an object that cannot be shown is shown as text, and a large one too."""

    @wraps(render)
    def safe(shown: Shown) -> str:
        try:
            fragment = render(shown)
            if len(fragment.encode()) <= MAX_FRAGMENT_BYTES:
                return fragment
        except Exception:  # files may be corrupt or gone, and a notebook shows the object in any case
            pass
        return f"<pre>{escape_html(repr(shown)[:2000])}</pre>".replace("\\x0a", "\n")

    return safe


def safe_repr(render: Callable[[Shown], str]) -> Callable[[Shown], str]:
    """Decorate `__repr__`: what cannot be read, because its files are gone, has a name all the same."""

    @wraps(render)
    def safe(shown: Shown) -> str:
        try:
            return render(shown)
        except Exception as failure:
            return f"{type(shown).__name__}: cannot be shown ({shorten(str(failure).partition(chr(10))[0])})"

    return safe


def render_fragment(title: str, facts: Iterable[str], *parts: str) -> str:
    """An object: its title and facts in one line, then tables."""
    line = " · ".join(escape_html(shorten(fact)) for fact in facts)
    head = f"<p><b>{escape_html(shorten(title))}</b>{f'  {line}' if line else ''}</p>"
    return f'{_STYLE}<div class="rekord">{head}{"".join(parts)}</div>'


def render_table(head: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[int] = ()) -> str:
    """A table of texts, or of cells from `Cell`; further rows are counted. Columns in `right` hold numbers."""
    cells = "".join(f"<th{_align(i, right)}>{escape_html(shorten(name))}</th>" for i, name in enumerate(head))
    body = "".join(
        f"<tr>{''.join(f'<td{_align(i, right)}>{_cell(value)}</td>' for i, value in enumerate(row))}</tr>"
        for row in rows[:MAX_TABLE_ROWS]
    )
    more = f'<p class="soft">… {len(rows) - MAX_TABLE_ROWS:,} more</p>' if len(rows) > MAX_TABLE_ROWS else ""
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>{more}"


class Cell(str):
    """HTML of a table cell, which is not escaped again."""

    __slots__ = ()


def image_cell(image: Thumbnail, label: str) -> Cell:
    """An image in a table cell; `label` describes it to a screen reader."""
    return Cell(render_image(image, label))


def note_cell(text: str) -> Cell:
    """A remark in a table cell."""
    return Cell(f'<span class="soft">{escape_html(shorten(text))}</span>')


def shorten(text: object) -> str:
    """A text of bounded length."""
    shown = str(text)
    return shown if len(shown) <= MAX_TEXT_CHARACTERS else shown[: MAX_TEXT_CHARACTERS - 1] + "…"


def _cell(value: Any) -> str:
    return value if isinstance(value, Cell) else escape_html(shorten(value))


def _align(column: int, right: Sequence[int]) -> str:
    return ' class="n"' if column in right else ""
