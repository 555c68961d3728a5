"""Pictures of another size: `resize` and `crop`, for images, masks and boxes together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from rekord.codec.unfit import Unfit
from rekord.schema import Image
from rekord.transforms.arguments import checked_columns, colour, one_of, refused, side
from rekord.transforms.canvas import FILTERS, Pixels
from rekord.transforms.moves import Move, Size
from rekord.transforms.picture_binding import Known, Pictured
from rekord.transforms.picture_row import Step

Filter: TypeAlias = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
Fit: TypeAlias = Literal["stretch", "pad", "crop", "within"]

FITS = ("stretch", "pad", "crop", "within")


def resize(
    height: int,
    width: int,
    *,
    filter: Filter = "bilinear",
    fit: Fit = "stretch",
    pad: int | Sequence[int] = 0,
    columns: Sequence[str] | None = None,
    per_box: Sequence[str] | None = None,
) -> Resize:
    """Images of one size, with their masks and boxes.

    `fit` says what becomes of another aspect: "stretch" ignores it; "pad" keeps it, and fills the rest with the
    colour `pad`, masks with `ignore` (or 0); "crop" keeps it, and cuts off what is too much at both ends; "within"
    keeps it, makes nothing larger, and leaves a side smaller. All filters but "nearest" average what falls into a
    pixel when they make a picture smaller. Masks always have the class of the nearest pixel.

    Where boxes are cropped away they are dropped, and with them their values in the columns under the same record key
    (`image/object/…`) and in those that `per_box` names.
    """
    return Resize(
        height=side("height", height),
        width=side("width", width),
        filter=one_of("filter", filter, tuple(FILTERS)),
        fit=one_of("fit", fit, FITS),
        pad=colour("pad", pad),
        columns=checked_columns("columns", columns),
        per_box=checked_columns("per_box", per_box),
    )


@dataclass(frozen=True, kw_only=True)
class Resize(Pictured):
    """The transform that `resize` makes."""

    height: int
    width: int
    filter: str
    fit: str
    pad: tuple[int, ...]
    columns: tuple[str, ...] | None
    per_box: tuple[str, ...] | None

    name = "resize"

    def options(self) -> Mapping[str, Any]:
        return {
            "height": self.height,
            "width": self.width,
            "filter": self.filter,
            "fit": self.fit,
            "pad": list(self.pad),
            "columns": _listed(self.columns),
            "per_box": _listed(self.per_box),
        }

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str | None = None) -> Resize:
        """The transform that has these options."""
        return resize(**options)

    def step(self) -> Step:
        return self

    def after(self, known: Known, column: str, image: Image) -> Known:
        size = None if self.fit == "within" else (self.height, self.width)
        return replace(
            known,
            size=size,
            moves=True,
            drops_boxes=known.drops_boxes or self.fit == "crop",
            per_box=_joined(known.per_box, self.per_box),
        )

    def move(self, size: Size) -> Move | None:
        """Where pixels go."""
        wanted = (self.height, self.width)
        if size == wanted:
            return None
        whole = (0.0, 0.0, float(size[0]), float(size[1]))
        if self.fit == "stretch":
            return Move(whole, wanted, wanted, (0, 0))
        if self.fit == "crop":
            return Move(_middle(size, wanted), wanted, wanted, (0, 0))
        scale = min(self.height / size[0], self.width / size[1])
        if self.fit == "within" and scale >= 1:
            return None
        inner = (_scaled(size[0], scale, self.height), _scaled(size[1], scale, self.width))
        if self.fit == "within":
            return Move(whole, inner, inner, (0, 0))
        return Move(whole, inner, wanted, ((self.height - inner[0]) // 2, (self.width - inner[1]) // 2))

    def changes(self, move: Move | None) -> bool:
        """Whether it does anything to a picture."""
        return move is not None

    def paint(self, pixels: Pixels, move: Move | None) -> None:
        """Do it."""
        assert move is not None
        pixels.move(move, self.filter, self.pad)


def crop(
    height: int,
    width: int,
    *,
    at: Literal["center"] | tuple[int, int] = "center",
    columns: Sequence[str] | None = None,
    per_box: Sequence[str] | None = None,
) -> Crop:
    """A part of each image, with its masks and boxes: its middle, or what begins `at` a row and a column.

    A picture that is smaller is a bad row. Boxes are treated as by `resize`.
    """
    if at != "center" and not _is_place(at):
        raise refused("at", at, '"center", or the first row and column', 'at="center"')
    return Crop(
        height=side("height", height),
        width=side("width", width),
        at=None if at == "center" else (int(at[0]), int(at[1])),
        columns=checked_columns("columns", columns),
        per_box=checked_columns("per_box", per_box),
    )


@dataclass(frozen=True, kw_only=True)
class Crop(Pictured):
    """The transform that `crop` makes."""

    height: int
    width: int
    at: Size | None  # None: the middle
    columns: tuple[str, ...] | None
    per_box: tuple[str, ...] | None

    name = "crop"

    @property
    def filter(self) -> str:
        """None is needed."""
        return "nearest"

    def options(self) -> Mapping[str, Any]:
        return {
            "height": self.height,
            "width": self.width,
            "at": "center" if self.at is None else list(self.at),
            "columns": _listed(self.columns),
            "per_box": _listed(self.per_box),
        }

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str | None = None) -> Crop:
        """The transform that has these options."""
        return crop(**options)

    def step(self) -> Step:
        return self

    def after(self, known: Known, column: str, image: Image) -> Known:
        per_box = _joined(known.per_box, self.per_box)
        return replace(known, size=(self.height, self.width), moves=True, drops_boxes=True, per_box=per_box)

    def move(self, size: Size) -> Move | None:
        """Where pixels go; raises Unfit where there are too few."""
        wanted = (self.height, self.width)
        top, left = self.at or ((size[0] - self.height) // 2, (size[1] - self.width) // 2)
        if min(top, left) < 0 or top + self.height > size[0] or left + self.width > size[1]:
            place = "" if self.at is None else f" at row {top:,}, column {left:,}"
            raise Unfit(
                "E384",
                "is smaller than the part that is to be cropped",
                expected=f"{self.height:,} × {self.width:,} pixels{place} (height × width)",
                found=f"{size[0]:,} × {size[1]:,}",
                do=f'rk.transforms.resize({self.height}, {self.width}, fit="crop") takes pictures of any size',
            )
        if size == wanted:
            return None
        return Move((float(top), float(left), float(self.height), float(self.width)), wanted, wanted, (0, 0))

    def changes(self, move: Move | None) -> bool:
        """Whether it does anything to a picture."""
        return move is not None

    def paint(self, pixels: Pixels, move: Move | None) -> None:
        """Do it."""
        assert move is not None
        pixels.move(move, self.filter, (0,))


def _middle(size: Size, wanted: Size) -> tuple[float, float, float, float]:
    """The largest part in the middle of a picture that has the aspect of another size."""
    height, width = size
    # Compared in whole numbers: one of the two sides stays exactly as it is.
    if height * wanted[1] > width * wanted[0]:
        kept = width * wanted[0] / wanted[1]
        return (height - kept) / 2, 0.0, kept, float(width)
    kept = height * wanted[1] / wanted[0]
    return 0.0, (width - kept) / 2, float(height), kept


def _scaled(length: int, scale: float, most: int) -> int:
    return min(max(round(length * scale), 1), most)


def _is_place(at: object) -> bool:
    return (
        isinstance(at, (tuple, list))
        and len(at) == 2
        and all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in at)
    )


def _listed(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)


def _joined(first: tuple[str, ...] | None, last: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if first is None or last is None:
        return last if first is None else first
    return tuple(dict.fromkeys([*first, *last]))
