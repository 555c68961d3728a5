"""The HTML reports in a real browser: it shows them without complaint, and requests nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from browser import show_page
from terminal import draw_terminal
from training_runs import hostile_run

import rekord as rk
from rekord.testing import example_bytes, frames
from rekord.training.report import render_training_page

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


def test_a_training_report_with_hostile_names_in_a_narrow_window(tmp_path: Path) -> None:
    assert show_page(render_training_page(hostile_run()), tmp_path / "shown", width=500) == ([], [])


def test_the_terminal_image(tmp_path: Path) -> None:
    image = draw_terminal("$ rekord check x\nF102  x  record 1\n      do        y\nall good\n", "a <title>")
    assert show_page(f"<!DOCTYPE html>{image}", tmp_path / "shown") == ([], [])
