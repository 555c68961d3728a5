"""`map=` on every kind of source: how many processes call it, and that bytes do not depend on their number."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from map_processes import assert_processes_take_part
from PIL import Image
from sample_conversions import execute_conversion

import rekord as rk

ROWS = [{"id": i, "text": f"row {i}", "score": i / 4} for i in range(12)]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}


def image(path: Path, *, mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    value = 0 if mode == "L" else tuple(path.stem.encode()[-3:].rjust(3, b"0"))
    Image.new(mode, (6, 4), value).save(path)
    return path


def pairs(folder: Path) -> Any:
    for i in range(12):
        image(folder / "images" / f"{i}.jpg")
        image(folder / "masks" / f"{i}.png", mode="L")
    return rk.sources.segmentation(folder / "images", folder / "masks")


def classes(folder: Path) -> Any:
    for i in range(12):
        image(folder / ["cat", "dog"][i % 2] / f"{i}.png")
    return rk.sources.image_folder(folder)


def coco(folder: Path) -> Any:
    document: dict[str, Any] = {"images": [], "annotations": [], "categories": [{"id": 1, "name": "cat"}]}
    for i in range(12):
        image(folder / "images" / f"{i}.jpg")
        document["images"].append({"id": i, "file_name": f"{i}.jpg", "width": 6, "height": 4})
        document["annotations"].append({"id": i, "image_id": i, "category_id": 1, "bbox": [1, 1, 2, 2]})
    (folder / "coco.json").write_text(json.dumps(document))
    return rk.sources.coco(folder / "coco.json", folder / "images")


def tar(folder: Path) -> Any:
    with tarfile.open(folder / "rows.tar", "w") as file:
        for i in range(12):
            for name, data in ((f"{i:03}.txt", b"text"), (f"{i:03}.cls", b"%d" % (i % 3))):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                file.addfile(member, io.BytesIO(data))
    return rk.sources.webdataset(folder / "rows.tar")


def file(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def parquet(folder: Path) -> Any:
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "rows.parquet")
    return folder / "rows.parquet"


def records(folder: Path) -> Any:
    if not (folder / "old").exists():
        rk.write(ROWS, folder / "old", progress=False)
    return rk.sources.records(folder / "old")


def many_lines(folder: Path) -> Any:
    """Enough for parts that workers read themselves."""
    return file(folder, "many.jsonl", "".join(json.dumps({"id": i, "text": "x" * 500}) + "\n" for i in range(4000)))


SOURCES: dict[str, Callable[[Path], Any]] = {
    "list": lambda folder: ROWS,
    "paths": lambda folder: [Path(f"{i}.jpg") for i in range(12)],
    "tuples": lambda folder: [(i, f"label {i}") for i in range(12)],
    "generator": lambda folder: (dict(row) for row in ROWS),
    "columns": lambda folder: {"id": np.arange(12), "vec": np.ones((12, 3), np.float32)},
    "pandas": lambda folder: pd.DataFrame(COLUMNS),
    "polars": lambda folder: pl.DataFrame(COLUMNS),
    "arrow": lambda folder: pa.table(COLUMNS),
    "csv": lambda folder: file(folder, "t.csv", pd.DataFrame(COLUMNS).to_csv(index=False)),
    "jsonl": lambda folder: file(folder, "t.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS)),
    "jsonl in parts": many_lines,
    "parquet": parquet,
    "text": lambda folder: file(folder, "t.txt", "".join(f"line {i}\n" for i in range(12))),
    "image_folder": classes,
    "segmentation": pairs,
    "coco": coco,
    "webdataset": tar,
    "records": records,
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.concurrency
def test_all_workers_call_the_function_and_bytes_do_not_depend_on_them(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    made: dict[str, Any] = {}

    def make() -> Any:
        if kind == "generator" or "source" not in made:
            made["source"] = SOURCES[kind](folder)
        return made["source"]

    assert_processes_take_part(make, tmp_path, monkeypatch, shuffle=kind in ("list", "csv", "image_folder"), shards=2)


@pytest.mark.parametrize("kind", ["generator", "csv", "image_folder"])
@pytest.mark.concurrency
def test_with_a_schema_or_a_layout_rows_are_encoded_by_all_workers(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    schema = rk.Schema({"id": rk.Int64(), "text": rk.Text(), "score": rk.Float32()})
    options: dict[str, Any] = {"layout": "classification"} if kind == "image_folder" else {"schema": schema}
    source = SOURCES[kind](folder)

    def make() -> Any:
        return SOURCES[kind](folder) if kind == "generator" else source

    assert_processes_take_part(make, tmp_path, monkeypatch, **options)


def test_the_summary_says_why_fewer_processes_took_part(tmp_path: Path) -> None:
    plain = execute_conversion(ROWS, tmp_path / "plain", {"workers": 4})
    assert (plain.processes, plain.processes_remark) == (
        1,
        "these rows can only be read in sequence, and without map= other processes would not help",
    )
    lock = threading.Lock()
    rows = [{"id": i, "lock": lock} for i in range(5)]
    local = execute_conversion(rows, tmp_path / "local", {"map": take_id, "workers": 4})
    assert (local.processes, local.processes_remark) == (1, "`lock` of row 0 cannot be pickled: lock")
    assert rk.open(tmp_path / "local")["train"].to_arrow()["id"].to_pylist() == list(range(5))


def take_id(row: Any) -> Any:
    return {"id": row["id"]}
