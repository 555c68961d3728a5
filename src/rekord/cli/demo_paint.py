"""Painting with distances: a shape is how far each pixel is from its edge, so edges are soft and masks exact."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Field: TypeAlias = "npt.NDArray[np.floating[Any]]"  # a number for each pixel


class Canvas:
    """A picture while it is painted: pixels of 0 to 1, and chance of its own, so that it is always the same."""

    def __init__(self, side: int, seed: tuple[int, ...]) -> None:
        self.side = side
        self.chance = np.random.default_rng(seed)
        at = np.arange(side, dtype=np.float32) + np.float32(0.5)
        self.x, self.y = np.meshgrid(at, at)
        self.pixels = np.zeros((side, side, 3), np.float32)

    def between(self, low: float, high: float) -> float:
        """A number by chance."""
        return float(self.chance.uniform(low, high))

    def turned(self, x: float, y: float, degrees: float = 0.0) -> tuple[Field, Field]:
        """The places of all pixels, as seen from a point that is turned: to its right, and below it."""
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        right, below = self.x - x, self.y - y
        return right * cos + below * sin, below * cos - right * sin

    def fill(
        self,
        distance: Field,
        colour: Sequence[float] | Field,
        *,
        light: Field | float = 1.0,
        strength: float = 1.0,
        soft: float = 1.0,
    ) -> None:
        """Paint where the distance is negative, by a light for each pixel; the edge is `soft` pixels wide."""
        touched = distance < soft / 2
        rows, columns = np.flatnonzero(touched.any(1)), np.flatnonzero(touched.any(0))
        if not len(rows):
            return
        # Most shapes are small: the rest of the picture is not computed with.
        part = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        ink: Field = np.asarray(colour, np.float32)
        ink = ink[part] if ink.ndim == 3 else ink
        ink = ink * (light[part][..., None] if isinstance(light, np.ndarray) else light)
        cover = np.clip(0.5 - distance[part] / np.float32(soft), 0, 1)[..., None] * np.float32(strength)
        self.pixels[part] += cover * (np.minimum(ink, 1) - self.pixels[part])

    def clouds(self, coarse: int) -> Field:
        """A smooth field of about -1 to 1 that changes `coarse` times over the picture."""
        from PIL import Image

        few = self.chance.uniform(-1, 1, (coarse + 2, coarse + 2)).astype(np.float32)
        whole = Image.fromarray(few).resize((self.side, self.side), Image.Resampling.BICUBIC)
        return np.asarray(whole, np.float32)

    def jpeg(self, quality: int, grain: float) -> bytes:
        """The picture as a camera stores it: with the noise of its sensor."""
        from PIL import Image

        noise = self.chance.standard_normal(self.pixels.shape, dtype=np.float32) * np.float32(grain)
        seen = np.clip((self.pixels + noise) * 255, 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(seen).save(file, "JPEG", quality=quality)
        return file.getvalue()


def ellipse(right: Field, below: Field, wide: float, high: float) -> Field:
    """The distance from an ellipse with these half axes; near its edge, where it counts, exact enough."""
    distance: Field = (np.hypot(right / wide, below / high) - 1) * min(wide, high)
    return distance


def box(right: Field, below: Field, wide: float, high: float, rounded: float = 0.0) -> Field:
    """The distance from a rectangle with these half sides."""
    beside, over = np.abs(right) - (wide - rounded), np.abs(below) - (high - rounded)
    outside = np.hypot(np.maximum(beside, 0), np.maximum(over, 0))
    distance: Field = outside + np.minimum(np.maximum(beside, over), 0) - rounded
    return distance


def gable(right: Field, below: Field, wide: float, high: float) -> Field:
    """The distance from a triangle that stands on its base, the middle of which is the point looked from."""
    slope = (np.abs(right) * high - (below + high) * wide) / math.hypot(wide, high)
    distance: Field = np.maximum(slope, below)
    return distance


def union(*distances: Field) -> Field:
    """The distance from what several shapes cover together."""
    whole = distances[0]
    for each in distances[1:]:
        whole = np.minimum(whole, each)
    return whole
