"""The data of `rekord demo`: landscapes with masks, and signs in a folder for each class; always the same."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

PixelField: TypeAlias = "npt.NDArray[np.floating[Any]]"  # a number for each pixel


class DemoCanvas:
    """An image while it is painted: pixels from 0 to 1, and its own random numbers, so that it is always the same."""

    def __init__(self, side: int, seed: tuple[int, ...]) -> None:
        self.side = side
        self.chance = np.random.default_rng(seed)
        at = np.arange(side, dtype=np.float32) + np.float32(0.5)
        self.x, self.y = np.meshgrid(at, at)
        self.pixels = np.zeros((side, side, 3), np.float32)

    def between(self, low: float, high: float) -> float:
        """A number by chance."""
        return float(self.chance.uniform(low, high))

    def turned(self, x: float, y: float, degrees: float = 0.0) -> tuple[PixelField, PixelField]:
        """The coordinates of all pixels relative to a rotated point: to its right, and below it."""
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        right, below = self.x - x, self.y - y
        return right * cos + below * sin, below * cos - right * sin

    def fill(
        self,
        distance: PixelField,
        colour: Sequence[float] | PixelField,
        *,
        light: PixelField | float = 1.0,
        strength: float = 1.0,
        soft: float = 1.0,
    ) -> None:
        """Paint where the distance is negative, with a light value per pixel; the edge is `soft` pixels wide."""
        touched = distance < soft / 2
        rows, columns = np.flatnonzero(touched.any(1)), np.flatnonzero(touched.any(0))
        if not len(rows):
            return
        # Most shapes are small: the rest of the image is not computed with.
        part = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        ink: PixelField = np.asarray(colour, np.float32)
        ink = ink[part] if ink.ndim == 3 else ink
        ink = ink * (light[part][..., None] if isinstance(light, np.ndarray) else light)
        cover = np.clip(0.5 - distance[part] / np.float32(soft), 0, 1)[..., None] * np.float32(strength)
        self.pixels[part] += cover * (np.minimum(ink, 1) - self.pixels[part])

    def clouds(self, coarse: int) -> PixelField:
        """A smooth field of about -1 to 1 that changes `coarse` times over the image."""
        from PIL import Image

        few = self.chance.uniform(-1, 1, (coarse + 2, coarse + 2)).astype(np.float32)
        whole = Image.fromarray(few).resize((self.side, self.side), Image.Resampling.BICUBIC)
        return np.asarray(whole, np.float32)

    def jpeg(self, quality: int, grain: float) -> bytes:
        """The image as a camera stores it: with the noise of its sensor."""
        from PIL import Image

        noise = self.chance.standard_normal(self.pixels.shape, dtype=np.float32) * np.float32(grain)
        seen = np.clip((self.pixels + noise) * 255, 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(seen).save(file, "JPEG", quality=quality)
        return file.getvalue()


def ellipse_distance(right: PixelField, below: PixelField, wide: float, high: float) -> PixelField:
    """The distance from an ellipse with these half axes; accurate near its edge, where it matters."""
    distance: PixelField = (np.hypot(right / wide, below / high) - 1) * min(wide, high)
    return distance


def box_distance(right: PixelField, below: PixelField, wide: float, high: float, rounded: float = 0.0) -> PixelField:
    """The distance from a rectangle with these half sides."""
    beside, over = np.abs(right) - (wide - rounded), np.abs(below) - (high - rounded)
    outside = np.hypot(np.maximum(beside, 0), np.maximum(over, 0))
    distance: PixelField = outside + np.minimum(np.maximum(beside, over), 0) - rounded
    return distance


def triangle_distance(right: PixelField, below: PixelField, wide: float, high: float) -> PixelField:
    """The distance from a triangle that stands on its base; the centre of the base is the origin."""
    slope = (np.abs(right) * high - (below + high) * wide) / math.hypot(wide, high)
    distance: PixelField = np.maximum(slope, below)
    return distance


def union_distance(*distances: PixelField) -> PixelField:
    """The distance from what several shapes cover together."""
    whole = distances[0]
    for each in distances[1:]:
        whole = np.minimum(whole, each)
    return whole


SCENE_CLASSES = ("background", "tree", "house", "balloon", "car")
SCENE_SIDE = 128
IGNORED = 255  # in a mask: the rim of an object, where the class of a pixel is ambiguous

OBJECT_CLASSES = ("circle", "cross", "square", "stripes")
OBJECT_SIDE = 64

_TREE, _HOUSE, _BALLOON, _CAR = 1, 2, 3, 4
_RIM_PIXELS = 0.8
_PALETTE = {
    0: (0, 0, 0),
    1: (0, 128, 0),
    2: (128, 0, 0),
    3: (128, 0, 128),
    4: (0, 0, 128),
    255: (224, 224, 192),
}


def draw_scenes(folder: str, count: int) -> int:
    """Landscapes in `images/`, and the class of each of their pixels in `masks/`; returns their size in bytes."""
    written = 0
    for number in range(count):
        scene = _draw_scene(number)
        name = f"scene_{number:04}"
        written += write_file(os.path.join(folder, "images", f"{name}.jpg"), scene.jpeg)
        written += write_file(os.path.join(folder, "masks", f"{name}.png"), encode_palette_png(scene.mask))
    return written


def draw_objects(folder: str, count: int) -> int:
    """Painted signs, each in the folder of its class; returns their size in bytes."""
    written = 0
    for number in range(count):
        name = OBJECT_CLASSES[number % len(OBJECT_CLASSES)]
        written += write_file(os.path.join(folder, name, f"{number:04}.jpg"), _draw_object(number))
    return written


def write_file(path: str, data: bytes) -> int:
    """Write a file, and create its folders; returns its size in bytes. Failures are reported as usual."""
    from rekord.storage.local import LOCAL

    LOCAL.make_folder(os.path.dirname(path))
    file = LOCAL.create(path)
    try:
        return file.write(data)
    finally:
        file.close()


def encode_palette_png(mask: npt.NDArray[np.uint8]) -> bytes:
    """A mask as annotation tools save it: ids that stand for colours."""
    from PIL import Image

    image = Image.frombytes("P", (mask.shape[1], mask.shape[0]), mask.tobytes())
    image.putpalette([part for number in range(256) for part in _PALETTE.get(number, (0, 0, 0))])
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@dataclass(frozen=True, slots=True)
class DemoScene:
    """A landscape, and the class of each of its pixels."""

    jpeg: bytes
    mask: npt.NDArray[np.uint8]


def _draw_scene(number: int) -> DemoScene:
    canvas = DemoCanvas(SCENE_SIDE, (1, number))
    mask = np.zeros((SCENE_SIDE, SCENE_SIDE), np.uint8)
    horizon = _draw_landscape(canvas)
    standing = [_TREE, _HOUSE, _CAR, int(canvas.chance.choice([_TREE, _HOUSE, _CAR]))]
    feet = sorted(canvas.between(horizon + 8, SCENE_SIDE - 6) for _ in standing)
    for kind, foot in zip(canvas.chance.permutation(standing), feet, strict=True):
        # Nearer objects are lower in the image, larger, and hide the ones behind them.
        scale = 0.75 + 0.65 * (foot - horizon) / (SCENE_SIDE - horizon)
        x = canvas.between(12, SCENE_SIDE - 12)
        shape = {_TREE: _draw_tree, _HOUSE: _draw_house, _CAR: _draw_car}[int(kind)](canvas, x, foot, scale)
        _mark_class(mask, shape, int(kind))
    for _ in range(int(canvas.chance.integers(1, 3))):
        _mark_class(mask, _draw_balloon(canvas, horizon), _BALLOON)
    evening = 1 + canvas.between(-0.12, 0.12) * (canvas.x / SCENE_SIDE - 0.5)
    canvas.pixels *= evening[..., None] * np.float32(canvas.between(0.85, 1.1))
    return DemoScene(canvas.jpeg(quality=int(canvas.chance.integers(80, 93)), grain=canvas.between(0.01, 0.03)), mask)


def _mark_class(mask: npt.NDArray[np.uint8], shape: PixelField, kind: int) -> None:
    mask[shape < 0] = kind
    mask[np.abs(shape) < _RIM_PIXELS] = IGNORED


def _draw_landscape(canvas: DemoCanvas) -> float:
    """Draw sky, hills and a meadow; returns where the meadow begins."""
    side, between = canvas.side, canvas.between
    horizon = between(0.42, 0.56) * side
    high = np.array([between(0.25, 0.5), between(0.45, 0.65), between(0.75, 0.95)], np.float32)
    low = np.array([between(0.75, 0.95), between(0.75, 0.9), between(0.75, 0.9)], np.float32)
    down = np.clip(canvas.y / horizon, 0, 1)[..., None]
    canvas.pixels = high + (low - high) * down
    canvas.fill(0.25 - canvas.clouds(4), (0.95, 0.95, 0.97), strength=0.6, soft=0.6)
    for far in (1.0, 0.6):
        waves = sum(between(2, 6) * np.sin(canvas.x * between(0.02, 0.09) + between(0, 6.3)) for _ in range(3))
        ridge = horizon - 7 * far + waves * far - canvas.y
        haze = (0.45 + 0.1 * far, 0.52 + 0.08 * far, 0.5 + 0.2 * far)
        canvas.fill(ridge, haze, light=1 + 0.08 * canvas.clouds(9))
    green = (between(0.3, 0.48), between(0.5, 0.64), between(0.2, 0.32))
    grass = 1 + 0.12 * canvas.clouds(5) + 0.1 * canvas.clouds(24) - 0.15 * (canvas.y - horizon) / side
    canvas.fill(horizon - canvas.y, green, light=grass)
    return horizon


def _draw_shadow(canvas: DemoCanvas, x: float, foot: float, wide: float) -> None:
    right, below = canvas.turned(x + 0.25 * wide, foot)
    canvas.fill(ellipse_distance(right, below, wide * 1.1, 2.2), (0.1, 0.14, 0.1), strength=0.45, soft=3)


def _draw_tree(canvas: DemoCanvas, x: float, foot: float, scale: float) -> PixelField:
    tall = canvas.between(15, 21) * scale
    right, below = canvas.turned(x, foot, canvas.between(-5, 5))
    _draw_shadow(canvas, x, foot, 0.5 * tall)
    trunk = box_distance(right, below + 0.35 * tall, 0.07 * tall, 0.35 * tall)
    leaves = union_distance(
        *(
            ellipse_distance(right - side * tall, below + up * tall, wide * tall, wide * tall)
            for side, up, wide in ((-0.22, 0.85, 0.3), (0.22, 0.9, 0.28), (0.0, 1.2, 0.34))
        )
    )
    leaves = leaves + 0.8 * canvas.clouds(30)
    canvas.fill(trunk, (0.38, 0.26, 0.16), light=1 - 0.03 * right)
    autumn = canvas.between(0, 1) ** 3
    green = (0.14 + 0.5 * autumn, 0.36 - 0.02 * autumn, 0.12)
    canvas.fill(leaves, green, light=1 - 0.35 * right / tall + 0.3 * canvas.clouds(28))
    return union_distance(trunk, leaves)


def _draw_house(canvas: DemoCanvas, x: float, foot: float, scale: float) -> PixelField:
    wide, high = canvas.between(10, 15) * scale, canvas.between(7, 10) * scale
    right, below = canvas.turned(x, foot)
    _draw_shadow(canvas, x, foot, wide)
    wall = box_distance(right, below + high, wide, high)
    roof = triangle_distance(right, below + 2 * high, 1.15 * wide, canvas.between(0.6, 0.9) * wide)
    pale = canvas.between(0.72, 0.95)
    canvas.fill(wall, (pale, 0.93 * pale, 0.8 * pale), light=1 - 0.012 * right + 0.05 * canvas.clouds(20))
    canvas.fill(roof, (canvas.between(0.5, 0.75), 0.24, 0.18), light=1 + 0.12 * np.sin(below * 1.6))
    for side in (-0.5, 0.5):
        canvas.fill(box_distance(right - side * wide, below + 1.2 * high, 0.2 * wide, 0.25 * high), (0.2, 0.24, 0.3))
    canvas.fill(box_distance(right, below + 0.5 * high, 0.14 * wide, 0.5 * high), (0.33, 0.22, 0.16))
    return union_distance(wall, roof)


def _draw_car(canvas: DemoCanvas, x: float, foot: float, scale: float) -> PixelField:
    long, high = canvas.between(13, 17) * scale, canvas.between(3.6, 4.6) * scale
    right, below = canvas.turned(x, foot, canvas.between(-6, 6))
    if canvas.between(0, 1) < 0.5:
        right = -right
    _draw_shadow(canvas, x, foot, long)
    body = box_distance(right, below + 1.7 * high, long, high, 0.6 * high)
    cabin = box_distance(right + 0.12 * long, below + 3.0 * high, 0.55 * long, 1.1 * high, 0.7 * high)
    wheels = union_distance(
        *(ellipse_distance(right - at * long, below + 0.9 * high, high, high) for at in (-0.58, 0.58))
    )
    paints = ((0.75, 0.12, 0.1), (0.12, 0.25, 0.7), (0.9, 0.72, 0.1), (0.15, 0.5, 0.5), (0.7, 0.7, 0.74))
    paint = paints[int(canvas.chance.integers(len(paints)))]
    shine = 1.1 - 0.06 * (below + 1.7 * high) + 0.05 * canvas.clouds(6)
    canvas.fill(union_distance(body, cabin), paint, light=shine)
    canvas.fill(box_distance(right + 0.12 * long, below + 3.1 * high, 0.42 * long, 0.6 * high, 1), (0.55, 0.68, 0.75))
    canvas.fill(wheels, (0.08, 0.08, 0.09))
    canvas.fill(wheels + 0.55 * high, (0.6, 0.6, 0.62))
    return union_distance(body, cabin, wheels)


def _draw_balloon(canvas: DemoCanvas, horizon: float) -> PixelField:
    size = canvas.between(9, 15)
    x, y = canvas.between(10, canvas.side - 10), canvas.between(6, horizon - 8)
    right, below = canvas.turned(x, y, canvas.between(-10, 10))
    silk = union_distance(
        ellipse_distance(right, below, size, size),
        triangle_distance(right, 0.4 * size - below, 0.88 * size, 1.4 * size),
    )
    silk = np.maximum(silk, below - 1.35 * size)
    basket = box_distance(right, below - 1.5 * size, 0.2 * size, 0.16 * size)
    one, other = canvas.chance.uniform(0.1, 0.95, (2, 3))
    one[int(canvas.chance.integers(3))] = 0.95
    across = np.clip(right / size, -1, 1)
    panels = np.where((np.sin(np.arcsin(across) * 6) > 0)[..., None], one, other)
    canvas.fill(silk, panels.astype(np.float32), light=1.05 - 0.3 * across)
    canvas.fill(basket, (0.45, 0.3, 0.15))
    return union_distance(silk, basket)


def _draw_object(number: int) -> bytes:
    """A sign of the class that its number has, on a wall."""
    canvas = DemoCanvas(OBJECT_SIDE, (2, number))
    between, side = canvas.between, canvas.side
    wall = canvas.chance.uniform(0.12, 0.5, 3)
    rough = 1 + 0.25 * canvas.clouds(3) + 0.12 * canvas.clouds(20)
    canvas.pixels = np.float32(wall) * rough[..., None]
    size = between(0.2, 0.32) * side
    x, y = (side / 2 + between(-0.16, 0.16) * side for _ in range(2))
    right, below = canvas.turned(x, y, between(-30, 30))
    shape = _draw_sign(canvas, OBJECT_CLASSES[number % len(OBJECT_CLASSES)], right, below, size)
    paint = canvas.chance.uniform(0.6, 1, 3)
    canvas.fill(shape + between(1, 3), (0.1, 0.1, 0.1), strength=0.35, soft=5)
    light = 1 + 0.2 * canvas.clouds(2) + 0.08 * canvas.clouds(16)
    canvas.fill(shape, paint, light=light, soft=between(1, 2))
    if between(0, 1) < 0.5:
        # A twig in front of it.
        along, across = canvas.turned(x + between(-8, 8), y + between(-8, 8), between(0, 180))
        twig = box_distance(along, across + 2 * canvas.clouds(4), side, between(1, 2.5))
        canvas.fill(twig, canvas.chance.uniform(0.1, 0.5, 3))
    canvas.pixels *= np.float32(between(0.75, 1.2))
    return canvas.jpeg(quality=int(canvas.chance.integers(70, 92)), grain=between(0.01, 0.05))


def _draw_sign(canvas: DemoCanvas, name: str, right: PixelField, below: PixelField, size: float) -> PixelField:
    match name:
        case "circle":
            return ellipse_distance(right, below, size, size * canvas.between(0.85, 1))
        case "cross":
            arm = size * canvas.between(0.22, 0.34)
            return union_distance(
                box_distance(right, below, 1.1 * size, arm), box_distance(right, below, arm, 1.1 * size)
            )
        case "square":
            return box_distance(right, below, 0.9 * size, 0.9 * size * canvas.between(0.85, 1))
        case _:
            apart = size * canvas.between(0.5, 0.62)
            return union_distance(
                *(box_distance(right, below - at * apart, size, 0.27 * apart) for at in (-1.5, -0.5, 0.5, 1.5))
            )
