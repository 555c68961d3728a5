"""What the tests of training share: images, rows that were written, and refusals."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import rekord as rk

Row = dict[str, Any]
Written = Callable[..., Any]


def image(value: int, size: tuple[int, int] = (16, 16), mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, value if mode == "L" else (value, 255 - value, 0)).save(file, "PNG")
    return file.getvalue()


def split_of(path: Path, rows: list[Row], schema: dict[str, Any] | rk.Schema | None = None) -> Any:
    """The rows, written to a file and opened."""
    declared = rk.Schema(schema) if isinstance(schema, dict) else schema or rk.infer(rows)
    with rk.Writer(path, declared) as writer:
        for row in rows:
            writer.write(row)
    return rk.open(path, declared)["train"]


def refusal(call: Callable[[], object]) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        call()
    return caught.value
