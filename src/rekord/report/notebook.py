"""Objects in a notebook as HTML fragments (static, escaped and small), and images in galleries of tiles.

A fragment brings its own style, scoped to the class `rekord`, in the colours of the reports. It has no scripts.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, TypeVar

from rekord.report.charts import escape_html, format_percent

Thumbnail = tuple[bytes, str]
"""The bytes of a small image, and their format: jpeg or png."""

CaptionLine = Sequence[tuple[str, Literal["plain", "strong", "wrong"]]]
"""Pieces of text with their emphasis. They are escaped here: most of them come from the data."""

_MAX_NAME_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class TileBox:
    """A box on an image, in fractions of its width and height."""

    left: float
    top: float
    right: float
    bottom: float
    name: str
    colour: str


@dataclass(frozen=True, slots=True)
class Tile:
    """One record in a gallery: images side by side, None for one that cannot be shown, and lines below them."""

    images: Sequence[Thumbnail | None]
    labels: Sequence[str]  # of each image, for screen readers
    caption: Sequence[CaptionLine] = ()
    boxes: Sequence[TileBox] = ()
    fits: bool = False  # frames have the shape of the images, not that of a square
    is_tiny: bool = False  # an image of a few pixels is enlarged without blurring it


def render_gallery(tiles: Iterable[Tile], *, side: int | None = None) -> str:
    """Tiles in a grid; `side` is the smallest width of one in pixels."""
    width = "" if side is None else f' style="--tile:{side}px"'
    return f'<ul class="gallery"{width}>{"".join(map(_render_tile, tiles))}</ul>'


def render_image(image: Thumbnail, label: str, *, style: str = "", height: int | None = None) -> str:
    """An image as part of the page; `label` describes it to a screen reader."""
    data, kind = image
    kept = f' class="{style}"' if style else ""
    tall = "" if height is None else f' height="{height}"'
    name = escape_html(label[:_MAX_NAME_CHARACTERS])
    return f'<img src="data:image/{kind};base64,{b64encode(data).decode()}" alt="{name}"{kept}{tall} />'


def render_swatches(items: Iterable[tuple[str, str, int]], total: int) -> str:
    """The legend of coloured classes with their shares: (colour, name, count) each."""
    listed = "".join(
        f'<li><i style="background:{colour}"></i>{escape_html(name)} <span>{format_percent(times, total)}</span></li>'
        for colour, name, times in items
    )
    return f'<ul class="swatches">{listed}</ul>'


def _render_tile(tile: Tile) -> str:
    shots = "".join(_render_shot(image, label, tile) for image, label in zip(tile.images, tile.labels, strict=True))
    lines = f"<p>{'<br />'.join(map(_render_line, tile.caption))}</p>" if tile.caption else ""
    return f'<li><div class="shots">{shots}</div>{lines}</li>'


def _render_line(line: CaptionLine) -> str:
    marks = {"plain": "{}", "strong": "<b>{}</b>", "wrong": '<span class="wrong">{}</span>'}
    return "".join(marks[emphasis].format(escape_html(text)) for text, emphasis in line)


def _render_shot(image: Thumbnail | None, label: str, tile: Tile) -> str:
    if image is None:
        gone = f'<span class="gone" role="img" aria-label="{escape_html(label)}">cannot be shown</span>'
        return f'<div class="shot">{gone}</div>'
    # Boxes are placed relative to the image, which therefore fills its frame.
    kind = "shot fit" if tile.boxes or tile.fits else "shot"
    boxes = "".join(map(_render_box, tile.boxes))
    return f'<div class="{kind}">{render_image(image, label, style="tiny" if tile.is_tiny else "")}{boxes}</div>'


def _render_box(box: TileBox) -> str:
    left, right = sorted(min(max(side, 0.0), 1.0) for side in (box.left, box.right))
    top, bottom = sorted(min(max(side, 0.0), 1.0) for side in (box.top, box.bottom))
    place = f"left:{left:.1%};top:{top:.1%};width:{right - left:.1%};height:{bottom - top:.1%}"
    name = escape_html(box.name[:_MAX_NAME_CHARACTERS])
    tag = f'<b style="background:{box.colour}">{name}</b>' if name else ""
    return f'<i style="{place};border-color:{box.colour}" title="{name}">{tag}</i>'


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
