"""The HTML reports in a real browser: it shows them without complaint, and requests nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from browser import show_page
from terminal import draw_terminal
from training_runs import PIXEL, finished_run, hostile_run

import rekord as rk
from rekord.testing import example_bytes, frames
from rekord.training.report import ShownMistake, render_training_page
from rekord.training.result import Mistake

HOSTILE = "\"><script>alert('x')</script><img src=https://evil.example/x onerror=alert(1)>\x00\u202e&amp;"


def test_a_page_that_complains_and_requests_is_noticed(tmp_path: Path) -> None:
    bad = '<!DOCTYPE html><script>console.error("x")</script><img src="https://evil.example/x.png">'
    report = show_page(bad, tmp_path / "bad")
    assert len(report.console) > 0
    assert report.requested == ["https://evil.example/x.png"]


def test_statistics_of_hostile_names_and_values(tmp_path: Path) -> None:
    rows = [{HOSTILE: [i], "text": [f"{HOSTILE}{i % 3}".encode()], "label": [i % 2], "x": [i / 7]} for i in range(40)]
    (tmp_path / "train.tfrecord").write_bytes(frames([example_bytes(row) for row in rows]))
    schema = rk.Schema({"label": rk.Label(["<b>cat</b>", "</style>"]), "gone": rk.Float32(optional=True)})
    page = rk.stats(tmp_path, schema=schema).to_html()
    assert show_page(page, tmp_path / "shown") == ([], [])


def test_statistics_of_a_dataset_with_images(tmp_path: Path) -> None:
    images = [np.full((8, 8, 3), 20 * i, np.uint8) for i in range(10)]
    schema = rk.Schema({"image": rk.Image(format="png"), "label": rk.Label(["cat", "dog"])})
    rows = [{"image": image, "label": i % 2} for i, image in enumerate(images)]
    rk.write(rows, tmp_path / "data", schema=schema, progress=False)
    assert show_page(rk.stats(tmp_path / "data").to_html(), tmp_path / "shown") == ([], [])


def test_statistics_of_masks_and_boxes_in_a_narrow_window(tmp_path: Path) -> None:
    mask = np.zeros((12, 16), np.uint8)
    mask[:6] = 1
    schema = rk.Schema({"image": rk.Image(format="png"), "mask": rk.Mask(classes=2, ignore=255)})
    rows = [{"image": np.full((12, 16, 3), 9 * i, np.uint8), "mask": mask} for i in range(8)]
    rk.write(rows, tmp_path / "masks", schema=schema, progress=False)
    sides = {f"image/object/bbox/{side}": [0.1, 0.5] for side in ("xmin", "ymin")}
    sides |= {f"image/object/bbox/{side}": [0.4, 0.9] for side in ("xmax", "ymax")}
    row = {"image/encoded": [rk.open(tmp_path / "masks")["train"][0]["image"]], **sides}
    row["image/object/class/text"] = [HOSTILE.encode(), b"dog"]
    (tmp_path / "boxes.tfrecord").write_bytes(frames([example_bytes(row)] * 3))
    for place in ("masks", "boxes.tfrecord"):
        page = rk.stats(tmp_path / place).to_html()
        assert page.count("<img ") in (3, 8)
        assert show_page(page, tmp_path / f"shown {place}", width=500) == ([], [])


def test_mistakes_in_a_training_report(tmp_path: Path) -> None:
    wrong = Mistake(3, HOSTILE, "daisy", 0.9)
    shown = [ShownMistake(wrong, [(PIXEL, "png")]), ShownMistake(wrong, [None])]
    page = render_training_page(finished_run(mistakes=(wrong, wrong)), shown)
    assert page.count("<img ") == 1
    assert show_page(page, tmp_path / "shown") == ([], [])


def test_an_image_that_the_browser_refuses_is_noticed(tmp_path: Path) -> None:
    page = render_training_page(finished_run()).replace("<main>", '<main><img src="https://evil.example/x.png" />')
    assert any("Content Security Policy" in line for line in show_page(page, tmp_path / "shown").console)


def test_a_training_report_with_hostile_names_in_a_narrow_window(tmp_path: Path) -> None:
    assert show_page(render_training_page(hostile_run()), tmp_path / "shown", width=500) == ([], [])


def test_the_terminal_image(tmp_path: Path) -> None:
    image = draw_terminal("$ rekord check x\nF102  x  record 1\n      do        y\nall good\n", "a <title>")
    assert show_page(f"<!DOCTYPE html>{image}", tmp_path / "shown") == ([], [])
