"""One small dataset for each layout that reader code is generated for."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import rekord as rk

ROWS = 6
NAMES = ("classification", "segmentation", "detection", "table", "text", "tensors", "sequences")


def encoded(pixels: Any, format: str = "PNG") -> bytes:
    """Pixels as the bytes of a file."""
    made = io.BytesIO()
    Image.fromarray(pixels).save(made, format)
    return made.getvalue()


def image(i: int) -> Any:
    """An image of (4 + i) × 5 pixels."""
    return np.full((4 + i, 5, 3), 40 * i, np.uint8)


def mask(i: int) -> Any:
    """The mask of image i: class ids, and 255 in the first row."""
    ids = np.full((4 + i, 5), i % 3, np.uint8)
    ids[0] = 255
    return ids


def boxes(i: int) -> list[list[float]]:
    """The boxes of image i: none, one or two, whose sides float32 holds exactly."""
    return [[0.25, 0.125, 0.5, 0.75]] * (i % 3)


def write_layout(name: str, folder: Path, **options: Any) -> str:
    """Write the dataset of a layout, unshuffled, and return its path."""
    rows = [_row(name, i) for i in range(ROWS)]
    out = folder / name
    rk.write(rows, out, progress=False, workers=1, shuffle=False, **_HOW[name](), **options)
    return str(out)


def _row(name: str, i: int) -> dict[str, Any]:
    match name:
        case "classification":
            return {"image": encoded(image(i)), "label": i % 2}
        case "segmentation":
            return {"image": encoded(image(i)), "mask": encoded(mask(i)), "filename": f"{i}.png"}
        case "detection":
            return {
                "image": encoded(image(i)),
                "filename": f"{i}.png",
                "boxes": boxes(i),
                "label": [1 + j for j in range(i % 3)],
                "class_text": ["cat", "dog"][: i % 3],
            }
        case "table":
            return {
                "id": i,
                "score": i / 2,
                "vector": [i, 0.5, -i],
                "maybe": i if i % 2 else None,
                "d": 4 + i,
            }
        case "text":
            return {"id": i, "text": f"näme {i}", "tokens": list(range(i)), "words": ["a"] * i}
        case "tensors":
            return {
                "id": i,
                "cube": np.full((2, 3), 1000 * i - 5, np.int16),
                "rows": np.full((i, 2), i, np.float32),
                "flag": np.array([i % 2 == 0, True]),
                "pairs": [[i, j] for j in range(i)],
                "inner": [[i] * i, [i] * i],
            }
        case _:
            return {"id": i, "x": [[j, i] for j in range(i)]}


_HOW: dict[str, Any] = {
    "classification": lambda: {
        "schema": rk.Schema({"image": rk.Image(key="image/encoded"), "label": rk.Label(["no", "yes"])})
    },
    "segmentation": lambda: {
        "schema": rk.Schema(
            {
                "image": rk.Image(key="image/encoded"),
                "mask": rk.Mask(classes=3, ignore=255, key="image/segmentation/class/encoded"),
                "filename": rk.Text(key="image/filename"),
            }
        )
    },
    "detection": lambda: {
        "schema": rk.Schema(
            {
                "image": rk.Image(key="image/encoded"),
                "filename": rk.Text(key="image/filename"),
                "boxes": rk.Boxes(),
                "label": rk.Int64(shape=(None,), key="image/object/class/label"),
                "class_text": rk.Text(shape=(None,), key="image/object/class/text"),
            }
        )
    },
    "table": lambda: {
        "schema": rk.Schema(
            {
                "id": rk.Int64(),
                "score": rk.Float32(),
                "vector": rk.Float32(shape=(3,)),
                "maybe": rk.Int64(optional=True),
                "d": rk.Int64(default=4),
            }
        )
    },
    "text": lambda: {
        "schema": rk.Schema(
            {
                "id": rk.Int64(),
                "text": rk.Text(),
                "tokens": rk.Int64(shape=(None,)),
                "words": rk.Text(shape=(None,)),
            }
        )
    },
    "tensors": lambda: {
        "schema": rk.Schema(
            {
                "id": rk.Int64(),
                "cube": rk.Tensor("int16", shape=(2, 3)),
                "rows": rk.Tensor("float32", shape=(None, 2)),
                "flag": rk.Tensor("bool", shape=(2,)),
                "pairs": rk.Float32(shape=(None, 2)),
                "inner": rk.Int64(shape=(2, None)),
            }
        )
    },
    "sequences": lambda: {"schema": rk.Schema(context={"id": rk.Int64()}, steps={"x": rk.Float32(shape=(2,))})},
}
