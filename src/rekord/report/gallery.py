"""Images in reports: tiles with captions, boxes on top of them, and the legend of their colours."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

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
