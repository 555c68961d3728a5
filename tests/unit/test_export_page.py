"""The page of exporting: its examples run, and it names all formats and only codes that there are."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

import rekord as rk
from rekord.cli.main import run
from rekord.codes import CODES
from rekord.verbs.exports.formats import _ENDINGS, FORMATS

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "exporting.md").read_text(encoding="utf-8")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = io.BytesIO()
    Image.new("RGB", (8, 6)).save(file, "JPEG")
    schema = rk.Schema(
        {
            "image": rk.Image(),
            "filename": rk.Text(),
            "caption": rk.Text(optional=True),
            "label": rk.Label(["cat", "dog"]),
            "boxes": rk.Boxes(),
            "labels": rk.Int64((None,)),
        }
    )
    rows = [
        {"image": file.getvalue(), "filename": f"{i}.jpg", "caption": None, "label": i % 2}
        | {"boxes": [[0.1, 0.1, 0.5, 0.5]], "labels": [1]}
        for i in range(8)
    ]
    split = {"train": 0.5, "val": 0.5}
    rk.write(rows, "data", schema=schema, split=split, split_by="filename", progress=False)


@pytest.mark.usefixtures("data")
def test_the_examples_run() -> None:
    for command in re.findall(r"^    rekord (.+)$", TEXT, re.MULTILINE):
        assert run(shlex.split(command)) == 0, command
    Path("train.parquet").unlink()
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, "exporting.md", "exec"), {})
    rk.write("train.parquet", "again", progress=False)


def test_it_names_every_format_and_ending_and_no_code_that_there_is_not() -> None:
    assert all(f"`{name}`" in TEXT for name in FORMATS)
    assert all(f"`{ending}`" in TEXT for ending in _ENDINGS if not ending.endswith(".gz"))
    assert set(re.findall(r"\b[A-Z]\d{3}\b", TEXT)) <= set(CODES)
