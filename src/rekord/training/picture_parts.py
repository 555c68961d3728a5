"""Images as inputs of a model, whether encoded or stored as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rekord.codec.columns import Strings
from rekord.training.forms import MOST_CHANNELS
from rekord.training.parts import Array, Batch, Spec, bounded, dense
from rekord.training.task import Form

LEAST_SIDE = 8
MOST_SIDE = 4096
"""What a model can be asked to take as the height or width of an image."""


@dataclass(frozen=True)
class Picture:
    """An image, all of them of one size; a record that has none gets a black one.

    `is_stored` says that the column is declared as bytes, which nobody has decoded before.
    """

    column: str
    height: int
    width: int
    channels: int
    is_stored: bool = False

    form: ClassVar[Form] = "image"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def spec(self) -> Spec:
        return Spec("image", (self.height, self.width, self.channels), "uint8")

    def __call__(self, batch: Batch) -> Array:
        column = batch[self.column]
        if not isinstance(column, Strings):
            return dense(column)
        from rekord.codec.looking import Unsound
        from rekord.codec.pixels import image_pixels

        out = np.zeros((len(column), *self.spec.shape), np.uint8)
        for row, data in enumerate(column.tolist()):
            if data is not None:
                try:
                    out[row] = image_pixels(data, self.channels, (self.height, self.width))
                except Unsound as refused:
                    raise refused.told(self.column) from refused.__cause__
        return out

    def to_dict(self) -> dict[str, Any]:
        return {
            "column": self.column,
            "height": self.height,
            "width": self.width,
            "channels": self.channels,
            "is_stored": self.is_stored,
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Picture:
        height, width, channels = _size(told)
        return cls(str(told["column"]), height, width, channels, bool(told["is_stored"]))


@dataclass(frozen=True)
class Pixels:
    """An image that is stored as numbers, `scale` of which are 1; larger ones are thinned out to the size."""

    column: str
    height: int
    width: int
    channels: int
    scale: float

    form: ClassVar[Form] = "image"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def spec(self) -> Spec:
        return Spec("image", (self.height, self.width, self.channels), "float32")

    def __call__(self, batch: Batch) -> Array:
        values = dense(batch[self.column])
        values = values.reshape(len(values), *values.shape[1:3], self.channels)
        rows, columns = _nearest(values.shape[1], self.height), _nearest(values.shape[2], self.width)
        with np.errstate(over="ignore"):
            scaled = values[:, rows[:, None], columns].astype(np.float32) / np.float32(self.scale)
        bounded: Array = np.nan_to_num(scaled, nan=0.0, posinf=1.0, neginf=-1.0)
        return bounded

    def to_dict(self) -> dict[str, Any]:
        return {
            "column": self.column,
            "height": self.height,
            "width": self.width,
            "channels": self.channels,
            "scale": self.scale,
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Pixels:
        height, width, channels = _size(told)
        return cls(str(told["column"]), height, width, channels, float(told["scale"]))


def _size(told: Mapping[str, Any]) -> list[int]:
    most = {"height": MOST_SIDE, "width": MOST_SIDE, "channels": MOST_CHANNELS}
    return [bounded(told[name], limit) for name, limit in most.items()]


def _nearest(have: int, want: int) -> Array:
    places: Array = ((np.arange(want) + 0.5) * have / want).astype(np.int64)
    return places
