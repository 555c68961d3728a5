"""What is wrong with one image among good ones is found at its record, wherever that is and however packed."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

import rekord as rk
from rekord.testing import example_bytes, frame_offsets, frames

PutFile = Callable[..., Path]
MASK = "image/segmentation/class/encoded"
SCHEMA = rk.layouts.deeplab(classes=3, ignore=255).schema


def encoded(picture: Any, form: str = "png") -> bytes:
    file = io.BytesIO()
    picture.save(file, form)
    return file.getvalue()


def image(number: int, form: str = "png") -> bytes:
    return encoded(Pillow.new("RGB", (8, 6), (number, 2 * number, 3 * number)), form)


def mask(value: int = 1, size: tuple[int, int] = (8, 6)) -> bytes:
    return encoded(Pillow.fromarray(np.full((size[1], size[0]), value, np.uint8)))


def palette() -> bytes:
    return encoded(Pillow.new("RGB", (8, 6), (200, 0, 0)).convert("P"))


def row(number: int, **changed: Any) -> dict[str, Any]:
    values = {
        "image/encoded": image(number),
        "image/filename": b"%d" % number,
        "image/format": b"png",
        "image/height": 6,
        "image/width": 8,
        "image/channels": 3,
        MASK: mask(),
        "image/segmentation/class/format": b"png",
    }
    return {key: [value] for key, value in {**values, **changed}.items()}


WRONG: dict[str, tuple[Callable[[int], dict[str, Any]], str, str]] = {
    "another format": (lambda i: {"image/encoded": image(i, "jpeg")}, "H764", "warning"),
    "another height": (lambda i: {"image/height": 7}, "H765", "error"),
    "no class id": (lambda i: {MASK: mask(9)}, "H767", "error"),
    "another size of the mask": (lambda i: {MASK: mask(size=(7, 6))}, "H768", "error"),
    "a palette": (lambda i: {MASK: palette()}, "H766", "error"),
}


@pytest.mark.parametrize("at", [0, 3, 5], ids=["first", "middle", "last"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("wrong", WRONG)
def test_an_image_that_is_not_what_it_should_be_is_found_at_its_record(
    put_file: PutFile, compress: Callable[[bytes, str], bytes], wrong: str, compression: str, at: int
) -> None:
    change, code, severity = WRONG[wrong]
    data = frames(example_bytes(row(i, **change(i) if i == at else {})) for i in range(6))
    name = "x.tfrecord" if compression == "none" else "x.tfrecord.gz"
    report = rk.check(put_file(compress(data, compression), name), SCHEMA)
    found = [one for one in report.findings if "H760" <= one.code < "H770"]
    assert [(one.code, one.severity, one.record, one.offset) for one in found] == [
        (code, severity, at, frame_offsets(data)[at])
    ]
    assert all(one.do for one in found)
