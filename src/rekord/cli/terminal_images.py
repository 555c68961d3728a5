"""Images in the terminal: graphics protocols, or half blocks, whose upper and lower halves are pixels.

    kitty   ESC _ G a=T,f=100,… ; base64 of a PNG ESC \\         in pieces of at most 4,096 characters
    iterm   ESC ] 1337 ; File=inline=1;… : base64 of a PNG BEL
    sixel   ESC P q " 1;1;W;H #0;2;R;G;B … ESC \\                 six rows of pixels at a time, colours in percent
    blocks  ESC [ 38;2;R;G;B;48;2;R;G;B m ▀                      or 38;5;N;48;5;N with 256 colours

Sequences contain numbers and base64 alone: no text of a record becomes part of one.
"""

from __future__ import annotations

import base64
import io
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import numpy.typing as npt

from rekord.cli.console import escape_controls, is_terminal, truncate
from rekord.cli.options import Preview

if TYPE_CHECKING:
    from rekord.cli.payload_view import FeatureMap, PayloadMessage
    from rekord.codec.preview import ThumbnailBudget
    from rekord.schema import Mask

Pixels = npt.NDArray[np.uint8]
"""Of shape (height, width, 3)."""

_CELL_WIDTH, _CELL_HEIGHT = 10, 20  # pixels of a character cell, about
_MAX_COLUMNS, _MAX_ROWS = 64, 16  # of an image
_MAX_ENLARGED = 4
_INDENT = "  "
_MAX_IMAGES_PER_RECORD = 4
_MAX_PIXELS = 400_000_000  # decoded by one command
_KITTY_CHARACTERS = 4096
_SIXEL_COLOURS = 256
_MASK_WORDS = ("mask", "masks", "segmentation", "segmentation_mask", "annotation")


def choose_preview(requested: Preview, stream: TextIO | None, environment: Mapping[str, str] = os.environ) -> Preview:
    """The protocol to use: the requested one, or one that the terminal is known to have; never AUTO."""
    if requested != Preview.AUTO:
        return requested
    if not is_terminal(stream) or environment.get("NO_COLOR"):
        return Preview.NONE
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    # A multiplexer passes the variables of its terminal on, but not its graphics.
    is_direct = "TMUX" not in environment and not term.startswith(("screen", "tmux"))
    if is_direct:
        if (
            environment.get("KITTY_WINDOW_ID")
            or "kitty" in term
            or "ghostty" in (term.removeprefix("xterm-"), program)
        ):
            return Preview.KITTY
        if program in ("iTerm.app", "WezTerm") or environment.get("LC_TERMINAL") == "iTerm2":
            return Preview.ITERM
        if program == "mintty" or term.startswith(("foot", "mlterm", "yaft", "contour")) or "sixel" in term:
            return Preview.SIXEL
    has_colours = _has_true_colour(environment) or "256color" in term
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    return Preview.BLOCKS if has_colours and encoding == "utf8" and term != "dumb" else Preview.NONE


def _has_true_colour(environment: Mapping[str, str]) -> bool:
    return environment.get("COLORTERM", "").lower() in ("truecolor", "24bit")


@dataclass
class ImagePrinter:
    """Draws the images of records. `masks` are the Mask columns by record key; a budget bounds what is decoded."""

    preview: Preview
    masks: Mapping[str, Mask] = field(default_factory=dict)
    true_colour: bool = True
    columns: int = _MAX_COLUMNS
    rows: int = _MAX_ROWS
    budget: ThumbnailBudget | None = None

    @classmethod
    def of_terminal(cls, preview: Preview, masks: Mapping[str, Mask]) -> ImagePrinter:
        """For this terminal, and its size."""
        size = shutil.get_terminal_size()
        return cls(
            preview,
            masks,
            true_colour=_has_true_colour(os.environ),
            columns=max(1, min(_MAX_COLUMNS, size.columns - len(_INDENT) - 1)),
            rows=max(1, min(_MAX_ROWS, size.lines - 2)),
        )

    def draw(self, message: PayloadMessage) -> Iterator[tuple[str, str]]:
        """The caption and the escape sequences of each image in a record; no text of it is in the latter."""
        if self.preview in (Preview.NONE, Preview.AUTO):
            return
        for key, data in _iter_images(message):
            pixels = self._decode(key, data)
            if pixels is not None:
                yield f"{_INDENT}{truncate(escape_controls(key))}", self.encode(pixels)

    def encode(self, pixels: Pixels) -> str:
        """The escape sequences that draw some pixels."""
        if self.preview == Preview.BLOCKS:
            return encode_blocks(pixels, true_colour=self.true_colour)
        if self.preview == Preview.SIXEL:
            return _INDENT + encode_sixel(pixels)
        width, height = self._fit_cells(pixels)
        encode = encode_kitty if self.preview == Preview.KITTY else encode_iterm
        return _INDENT + encode(pixels, width, height)

    def _decode(self, key: str, data: bytes) -> Pixels | None:
        """A small copy of an image, or of a mask in the colours of its classes."""
        from rekord.codec.preview import ThumbnailBudget, draw_image, draw_mask

        if self.budget is None:
            self.budget = ThumbnailBudget(pixels=_MAX_PIXELS)
        box = (self.columns, 2 * self.rows)
        if self.preview != Preview.BLOCKS:
            box = (self.columns * _CELL_WIDTH, self.rows * _CELL_HEIGHT)
        self.budget.side = max(box)
        declared = self.masks.get(key)
        pixels: Any = None
        if declared is not None or key.rpartition("/")[2].lower() in _MASK_WORDS or "segmentation" in key.lower():
            pixels = draw_mask(data, declared, self.budget)
            if pixels is not None:
                return _shrink_to(pixels, *box, nearest=True)
        if declared is None:
            pixels = draw_image(data, self.budget)
        return None if pixels is None else _shrink_to(pixels, *box, nearest=False)

    def _fit_cells(self, pixels: Pixels) -> tuple[int, int]:
        """The width and height of an image in cells; small ones are enlarged."""
        width, height = pixels.shape[1] / _CELL_WIDTH, pixels.shape[0] / _CELL_HEIGHT
        scale = min(_MAX_ENLARGED, self.columns / width, self.rows / height)
        return max(1, round(width * scale)), max(1, round(height * scale))


def _iter_images(message: PayloadMessage) -> Iterator[tuple[str, bytes]]:
    """The first images of a record, with their keys."""
    from rekord.codec.preview import is_image

    found = 0
    for key, data in _iter_byte_strings(message):
        if is_image(data):
            yield key, data
            found += 1
            if found == _MAX_IMAGES_PER_RECORD:
                return


def _iter_byte_strings(message: PayloadMessage) -> Iterator[tuple[str, bytes]]:
    groups: list[FeatureMap] = [one for one in (message.features, message.context) if one is not None]
    groups += (message.examples or [])[:1]
    for features in groups:
        for key in sorted(features):
            value = features[key]
            for data in value[:_MAX_IMAGES_PER_RECORD] if isinstance(value, list) else ():
                yield key, data
    for key in sorted(message.steps or {}):
        for value in (message.steps or {})[key][:_MAX_IMAGES_PER_RECORD]:
            for data in value[:1] if isinstance(value, list) else ():
                yield key, data


def _shrink_to(pixels: Pixels, width: int, height: int, *, nearest: bool) -> Pixels:
    """Pixels that fit a box, in their proportions."""
    from PIL import Image

    scale = min(1.0, width / pixels.shape[1], height / pixels.shape[0])
    if scale == 1.0:
        return pixels
    size = max(1, round(pixels.shape[1] * scale)), max(1, round(pixels.shape[0] * scale))
    # A mask has no colours between those of its classes.
    method = Image.Resampling.NEAREST if nearest else Image.Resampling.BOX
    return np.array(Image.fromarray(pixels).resize(size, method))


def _encode_png(pixels: Pixels) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def encode_kitty(pixels: Pixels, columns: int, rows: int) -> str:
    """The kitty graphics protocol: a PNG in pieces, drawn over so many cells; the terminal sends no answer."""
    data = base64.b64encode(_encode_png(pixels)).decode()
    pieces = [data[at : at + _KITTY_CHARACTERS] for at in range(0, len(data), _KITTY_CHARACTERS)]
    text = ""
    for number, piece in enumerate(pieces):
        first = f"a=T,f=100,q=2,c={columns},r={rows}," if number == 0 else ""
        text += f"\x1b_G{first}m={int(number < len(pieces) - 1)};{piece}\x1b\\"
    return text


def encode_iterm(pixels: Pixels, columns: int, rows: int) -> str:
    """The inline images of iTerm2: a PNG, drawn over so many cells."""
    data = _encode_png(pixels)
    facts = f"inline=1;size={len(data)};width={columns};height={rows};preserveAspectRatio=1"
    return f"\x1b]1337;File={facts}:{base64.b64encode(data).decode()}\x07"


def encode_sixel(pixels: Pixels) -> str:
    """Sixels: for six rows at a time, and each of their colours, which pixels of each column have it."""
    from PIL import Image

    image = Image.fromarray(pixels)
    listed = image.convert("RGB").getcolors(_SIXEL_COLOURS)
    if listed is None:
        image = image.quantize(_SIXEL_COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        palette = np.array(image.getpalette(), np.uint8).reshape(-1, 3)
        numbers = np.array(image)
    else:  # as it is: the colours of classes
        palette = np.array([colour for _, colour in listed], np.uint8)
        packed = [int(r) << 16 | int(g) << 8 | int(b) for r, g, b in palette]
        order = np.argsort(packed)
        wide = pixels.astype(np.int64)
        flat = wide[:, :, 0] << 16 | wide[:, :, 1] << 8 | wide[:, :, 2]
        numbers = order[np.searchsorted(np.array(packed)[order], flat)]
    height, width = numbers.shape
    parts = [f'\x1bPq"1;1;{width};{height}']
    for number in np.unique(numbers).tolist():
        red, green, blue = (round(int(one) * 100 / 255) for one in palette[number])
        parts.append(f"#{number};2;{red};{green};{blue}")
    for top in range(0, height, 6):
        band = numbers[top : top + 6]
        weights = (1 << np.arange(len(band)))[:, None]
        lines = [
            f"#{number}{_run_lengths(((band == number) * weights).sum(0))}" for number in np.unique(band).tolist()
        ]
        parts.append("$".join(lines) + "-")
    return "".join(parts) + "\x1b\\"


def _run_lengths(sixels: npt.NDArray[Any]) -> str:
    """Sixels as characters; four or more equal ones as their number and one of them."""
    ends = np.append(np.flatnonzero(np.diff(sixels)), len(sixels) - 1)
    starts = np.append(0, ends[:-1] + 1)
    text = ""
    for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
        letter, count = chr(63 + int(sixels[begin])), end - begin + 1
        text += f"!{count}{letter}" if count > 3 else letter * count
    return text


def encode_blocks(pixels: Pixels, *, true_colour: bool) -> str:
    """Half blocks: two rows of pixels per line of text, as foreground and background."""
    lines = []
    for top in range(0, len(pixels), 2):
        upper, lower = pixels[top], pixels[top + 1] if top + 1 < len(pixels) else None
        text, before = _INDENT, ""
        for column in range(len(upper)):
            style = _colour_code(38, upper[column], true_colour=true_colour)
            style += ";" + ("49" if lower is None else _colour_code(48, lower[column], true_colour=true_colour))
            text += "▀" if style == before else f"\x1b[{style}m▀"
            before = style
        lines.append(f"{text}\x1b[0m")
    return "\n".join(lines)


_CUBE = np.array([0, 95, 135, 175, 215, 255])
_GREYS = np.arange(8, 248, 10)


def _colour_code(ground: int, colour: Pixels, *, true_colour: bool) -> str:
    if true_colour:
        return f"{ground};2;{colour[0]};{colour[1]};{colour[2]}"
    return f"{ground};5;{nearest_xterm_colour(colour)}"


def nearest_xterm_colour(colour: Pixels) -> int:
    """The number of the nearest of the 240 fixed colours: a cube of 6 × 6 × 6, and 24 greys."""
    wanted = colour.astype(np.int64)
    levels = np.abs(_CUBE[None, :] - wanted[:, None]).argmin(1)
    grey = int(np.abs(_GREYS - wanted.mean()).argmin())
    in_cube = int(((_CUBE[levels] - wanted) ** 2).sum())
    in_greys = int(((_GREYS[grey] - wanted) ** 2).sum())
    return 232 + grey if in_greys < in_cube else int(16 + levels @ (36, 6, 1))


def stdout_preview(requested: Preview) -> Preview:
    """The protocol for standard output."""
    return choose_preview(requested, sys.stdout)
