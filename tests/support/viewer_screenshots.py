"""Images of the viewer for the docs and the README. Run this file to write them again."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow
from playwright.sync_api import Page, expect
from viewer_process import launch_browser, open_page, run_viewer

import rekord as rk
from rekord.cli.demo_data import IGNORED, SCENE_CLASSES, draw_scenes

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MAX_BYTES = 60_000
_SCENES = 60


def write_scenes(folder: Path) -> Path:
    """The landscapes of the demo, with masks, boxes and a season."""
    for name in ("images", "masks"):
        (folder / name).mkdir()
    draw_scenes(str(folder), _SCENES)
    schema = rk.Schema(
        {
            "image": rk.Image(),
            "mask": rk.Mask(classes=len(SCENE_CLASSES), ignore=IGNORED),
            "boxes": rk.Boxes(),
            "box_class": rk.Label(list(SCENE_CLASSES), shape=(None,)),
            "main": rk.Label(list(SCENE_CLASSES)),
            "sky": rk.Float32(),
        }
    )
    rk.write(list(_iter_rows(folder)), folder / "landscapes", schema=schema, shards=2, progress=False)
    return folder / "landscapes"


def _iter_rows(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted((folder / "images").iterdir()):
        ids = np.asarray(Pillow.open(folder / "masks" / f"{file.stem}.png"))
        boxes, kinds, sizes = [], [], []
        for kind in range(1, len(SCENE_CLASSES)):
            rows, columns = np.nonzero(ids == kind)
            if len(rows) > 40:
                corners = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
                boxes.append([value / len(ids) for value in corners])
                kinds.append(kind)
                sizes.append(len(rows))
        pixels = np.asarray(Pillow.open(file).convert("RGB")).astype(float)
        yield {
            "image": file.read_bytes(),
            "mask": (folder / "masks" / f"{file.stem}.png").read_bytes(),
            "boxes": np.array(boxes, np.float32).reshape(-1, 4),
            "box_class": kinds,
            "main": kinds[int(np.argmax(sizes))] if sizes else 0,
            "sky": float(pixels[:30, :, 2].mean() / 255),
        }


def save_screenshot(page: Page, name: str) -> None:
    """A screenshot with few colours, so that it is small."""
    image = Pillow.open(io.BytesIO(page.screenshot())).convert("RGB")
    for colours in (256, 128, 64, 32):
        file = io.BytesIO()
        image.quantize(colours, Pillow.Quantize.FASTOCTREE).save(file, "png", optimize=True)
        if len(file.getvalue()) <= MAX_BYTES:
            break
    (IMAGES / f"viewer-{name}.png").write_bytes(file.getvalue())
    print(f"viewer-{name}.png: {len(file.getvalue()):,} bytes")


def main() -> None:
    """Write all images."""
    with tempfile.TemporaryDirectory() as made, launch_browser() as browser:
        folder = Path(made)
        with run_viewer(write_scenes(folder), cache=folder / "cache") as viewer:
            page, _ = open_page(browser, f"{viewer.url}?in.main=2&in.main=3", width=900, height=520)
            expect(page.locator(".tile canvas").first).to_be_visible()
            expect(page.locator(".bar-button[aria-pressed=true]")).to_have_count(2)
            page.wait_for_load_state("networkidle")
            save_screenshot(page, "gallery")
            page, _ = open_page(browser, f"{viewer.url}?view=record&record=7", width=1180, height=680, theme="dark")
            expect(page.locator(".legend li").nth(1)).to_be_visible()
            box = page.locator(".stage").bounding_box()
            assert box is not None
            page.mouse.move(box["x"] + box["width"] * 0.45, box["y"] + box["height"] * 0.72)
            save_screenshot(page, "record")
            page, _ = open_page(browser, f"{viewer.url}?view=mosaic&by=main", width=900, height=520)
            expect(page.locator(".mosaic-tools progress")).to_be_hidden()
            save_screenshot(page, "mosaic")


if __name__ == "__main__":
    main()
