"""The page of sources names all of them, its examples run, and its codes are registered."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

import rekord as rk
from rekord.codes import CODES
from rekord.testing import damage, wire

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sources.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = re.split(r"^### `(\w+)`$", TEXT, flags=re.MULTILINE)[1:]
EXAMPLES = {
    name: body.split("```python\n", 1)[1].split("\n```", 1)[0]
    for name, body in zip(SECTIONS[::2], SECTIONS[1::2], strict=True)
    if "```python\n" in body
}
BOX = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox>"
XML = f"<annotation><object><name>cat</name>{BOX}</object></annotation>"


def picture(path: Path, mode: str = "RGB") -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (8, 6)).save(path)
    return path.read_bytes()


def text(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


@pytest.fixture
def raw_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to work in that has all that the examples name."""
    monkeypatch.chdir(tmp_path)
    encoded = picture(tmp_path / "photos/cat/1.jpg")
    text(tmp_path / "photos/labels.csv", "image,label\ncat/1.jpg,cat\n")
    for folder in ("pairs/images", "voc/JPEGImages", "coco", "yolo/images", "boxes"):
        picture(tmp_path / folder / "1.jpg")
    for folder in ("pairs/masks", "voc/SegmentationClass"):
        picture(tmp_path / folder / "1.png", "L")
    picture(tmp_path / "cityscapes/leftImg8bit/train/bonn/1_leftImg8bit.png")
    picture(tmp_path / "cityscapes/gtFine/train/bonn/1_gtFine_labelTrainIds.png", "L")
    text(tmp_path / "voc/ImageSets/Segmentation/train.txt", "1\n")
    text(tmp_path / "voc/Annotations/1.xml", XML)
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2]}
    members = {"images": [{"id": 1, "file_name": "1.jpg"}], "categories": [{"id": 1, "name": "cat"}]}
    text(tmp_path / "coco/boxes.json", json.dumps({**members, "annotations": [box]}))
    text(tmp_path / "yolo/labels/1.txt", "0 0.5 0.5 0.2 0.2\n")
    text(tmp_path / "boxes/boxes.csv", "filename,class,xmin,ymin,xmax,ymax\n1.jpg,cat,1,1,3,3\n")
    text(tmp_path / "tables/flowers.csv", "name,petals\nrose,5\n")
    text(tmp_path / "tables/flowers.jsonl", '{"name": "rose", "petals": 5}\n')
    text(tmp_path / "tables/poem.txt", "a rose\n")
    table = pa.table({"name": ["rose"], "petals": [5]})
    parquet.write_table(table, "tables/flowers.parquet")
    with pa.OSFile("tables/flowers.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    np.save("tables/points.npy", np.zeros((3, 2)))
    np.savez("tables/points.npz", point=np.zeros((3, 2)))
    (tmp_path / "tars").mkdir()
    with tarfile.open("tars/a.tar", "w") as archive:
        for name, data in (("1.jpg", encoded), ("1.cls", b"0")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    (tmp_path / "records").mkdir()
    (tmp_path / "records/a.tfrecord").write_bytes(damage.frames([wire.example_bytes({"label": [1]})]))


def libraries(code: str) -> dict[str, Any]:
    """What an example needs beside rekord."""
    names: dict[str, Any] = {"rk": rk, "np": np, "pd": pd, "pl": pl}
    if "tf." in code:
        import tensorflow as tf

        names["tf"] = tf
    if "torch." in code:
        import torch

        names["torch"] = torch
    if "datasets." in code:
        import datasets

        names["datasets"] = datasets
    return names


def test_every_source_has_an_example():
    assert sorted(EXAMPLES) == sorted(rk.sources.__all__)


@pytest.mark.parametrize("source", EXAMPLES)
def test_the_example_of_a_source_writes_a_dataset(source, raw_data):
    assert f"rk.sources.{source}(" in EXAMPLES[source]
    exec(EXAMPLES[source], libraries(EXAMPLES[source]))
    report = rk.check("out")
    assert report.ok
    assert report.records > 0


def test_the_page_names_only_codes_that_are_registered():
    assert set(re.findall(r"\b[A-Z]\d{3}\b", TEXT)) <= set(CODES)


def test_every_source_is_in_a_table_of_defects():
    header = re.compile(r"^\| \|((?: `\w+` \|)+)$", re.MULTILINE)
    named = [name for line in header.findall(TEXT) for name in re.findall(r"`(\w+)`", line)]
    assert sorted(named) == sorted(rk.sources.__all__)
