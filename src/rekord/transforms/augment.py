"""Pictures varied at random, with the masks and boxes that lie on them, so that copies of a record differ."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from PIL import Image as Pillow
from PIL import ImageEnhance

from rekord import _core
from rekord.codec.looking import FORMATS, MadeMask
from rekord.codec.pictures import stored_image
from rekord.codec.png import grey_png
from rekord.codec.unfit import Unfit
from rekord.errors import error
from rekord.schema import Image, Mask, Schema
from rekord.schema.refuse import near_miss, shown
from rekord.transforms.augment_turns import Turn, TurnedFrame, turned_ids, turned_image
from rekord.transforms.base import Row
from rekord.transforms.canvas import Pixels, loaded
from rekord.transforms.moves import Size
from rekord.transforms.picture_binding import Known, bind_pictures
from rekord.transforms.picture_row import Work, _ids

Roll: TypeAlias = Callable[[str], float]
"""A number from 0 up to 1 for each name, always the same."""

AUGMENTATIONS = ("flip", "crop", "rotate", "colour")

_MOVES = ("flip", "crop", "rotate")
_SPELLINGS = {"color": "colour"}
_TOP_OF_16_BITS = 65_535.0
_ANY = Image()
_OUTLINE = Mask(classes=256)


def roll_of(*words: object) -> Roll:
    """Numbers that are as good as random, for whoever says the same words: on every machine, in any order."""
    key = hashlib.blake2b("\0".join(map(str, words)).encode("utf-8", "surrogateescape")).digest()

    def roll(name: str) -> float:
        drawn = hashlib.blake2b(name.encode(), key=key, digest_size=8).digest()
        return (int.from_bytes(drawn, "little") >> 11) / (1 << 53)

    return roll


def checked_augmentations(given: object) -> tuple[str, ...]:
    """The names of augmentations, each once."""
    names = (
        [given] if isinstance(given, str) else list(given) if isinstance(given, (list, tuple)) else [given]
    )
    made = [_SPELLINGS.get(one, one) if isinstance(one, str) else one for one in names]
    for one in made:
        if one not in AUGMENTATIONS:
            near = near_miss(one, AUGMENTATIONS) if isinstance(one, str) else None
            raise error(
                "U644",
                f"there is no augmentation {shown(one)}",
                expected="some of " + ", ".join(AUGMENTATIONS),
                found=shown(one),
                do=f'augment=["{near or "flip"}"]',
            )
    return tuple([one for one in AUGMENTATIONS if one in made])


@dataclass(frozen=True)
class Augmentation:
    """What varies the pictures of rows. A row may be changed in place."""

    works: tuple[Varying, ...]
    touches: frozenset[str]

    def __call__(self, row: Row, roll: Roll) -> Row:
        """The row, varied as the roll says; raises what does not fit, with its column."""
        for work in self.works:
            work.vary(row, roll)
        return row


def augmentation(
    names: Sequence[str], schema: Schema, *, per_box: Sequence[str] | None = None
) -> Augmentation:
    """The augmentations of these names for rows of a schema. A SchemaError where it has no pictures for them."""
    asked = _Asked(tuple(names), None if per_box is None else tuple(per_box))
    bound, _ = bind_pictures([asked], schema, {})
    works: Sequence[Work] = bound.apply.works  # type: ignore[attr-defined]
    varying = tuple([Varying(one.layers, one.feature, (), one.output, asked.names) for one in works])
    return Augmentation(varying, bound.touches or frozenset(schema))


@dataclass(frozen=True)
class _Asked:
    """Augmentations as a transform, to find out which columns belong together."""

    names: tuple[str, ...]
    per_box: tuple[str, ...] | None
    columns: tuple[str, ...] | None = None

    name = "augment"

    def step(self) -> None:
        return None

    def after(self, known: Known, column: str, image: Image) -> Known:
        moves = any(one in _MOVES for one in self.names)
        cuts = any(one in ("crop", "rotate") for one in self.names)
        return replace(known, moves=moves, drops_boxes=cuts, per_box=self.per_box)


@dataclass(frozen=True)
class Varying(Work):
    """The picture of a row, varied. Its size, its format and the columns beside it stay what they are."""

    names: tuple[str, ...] = ()

    def vary(self, row: Row, roll: Roll) -> None:
        """Vary the picture, and what lies on it."""
        value = row.get(self.layers.image)
        if value is None:
            return
        try:
            data = value if isinstance(value, bytes) else stored_image(value, _ANY)
            facts = _core.look(data, False)
            size = (facts.height, facts.width)
            pixels = loaded(data, None, "nearest")
        except Unfit as unfit:
            raise unfit.told(self.layers.image) from unfit.__cause__
        turn = Turn.drawn(self.names, size, roll)
        if turn is not None:
            pixels.image = turned_image(pixels.image, turn)
        if "colour" in self.names:
            recolour(pixels, roll)
        format = FORMATS.get(facts.format, "png")
        self._store(row, pixels, size, data, format, self._format(format))
        if turn is not None:
            for name, mask in self.layers.masks.items():
                if row.get(name) is not None:
                    row[name] = MadeMask(grey_png(turned_ids(_ids(row[name], mask, size, name), turn)))
            self._boxes(row, TurnedFrame(size, turn))  # type: ignore[arg-type]
            self._turn_outlines(row, size, turn)

    def _turn_outlines(self, row: Row, size: Size, turn: Turn) -> None:
        for name in self.layers.outlines:
            if row.get(name) is not None:
                found = [_ids(bytes(data), _OUTLINE, size, name) for data in row[name]]
                row[name] = [grey_png(turned_ids(ids, turn)) for ids in found]


def recolour(pixels: Pixels, roll: Roll) -> None:
    """Another brightness, contrast and saturation; alpha stays."""
    brightness, contrast, saturation = [
        _factor(roll, one) for one in ("brightness", "contrast", "saturation")
    ]
    image: Any = pixels.image
    if image.mode == "F":  # grey of 16 bits
        values = np.asarray(image) * brightness
        middle = values.mean()
        values = np.clip(middle + (values - middle) * contrast, 0, _TOP_OF_16_BITS)
        pixels.image = Pillow.fromarray(values.astype(np.float32))
        return
    image = ImageEnhance.Brightness(image).enhance(brightness)
    image = ImageEnhance.Contrast(image).enhance(contrast)
    if image.mode.startswith("RGB"):
        image = ImageEnhance.Color(image).enhance(saturation)
    pixels.image = image


def _factor(roll: Roll, name: str) -> float:
    """By so much more or less: always enough to be another picture."""
    by = 0.1 + 0.2 * roll(f"colour/{name}/by")
    return 1 + by if roll(f"colour/{name}/up") < 0.5 else 1 - by
