"""The whole way through the package with the oldest versions that pyproject.toml allows, and without pandas."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from minimum_versions import pins

import rekord as rk

ROWS = 300
CLASSES = ["cat", "dog", "owl"]


def png(seed: int) -> bytes:
    """A small image."""
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (8, 10, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def row(number: int) -> dict[str, Any]:
    """A row with every kind of column."""
    return {
        "id": number,
        "score": number / 2,
        "name": f"row {number}",
        "label": CLASSES[number % 3],
        "tokens": list(range(number % 5)),
        "image": png(number),
    }


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two splits in several shards, written by two workers."""
    schema = rk.Schema(
        {
            "id": rk.Int64(),
            "score": rk.Float32(),
            "name": rk.Text(),
            "label": rk.Label(CLASSES),
            "tokens": rk.Int64(shape=(None,)),
            "image": rk.Image(format="png"),
        }
    )
    out = tmp_path_factory.mktemp("oldest") / "out"
    split = {"train": 0.8, "val": 0.2}
    rk.write(map(row, range(ROWS)), out, schema=schema, split=split, shards=2, workers=2, progress=False)
    return out


def rekord(*arguments: object) -> str:
    """What the command line prints; it must succeed."""
    command = [sys.executable, "-m", "rekord", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_versions_are_the_oldest_allowed() -> None:
    assert platform.machine() in ("x86_64", "AMD64", "aarch64", "arm64")  # where isal is one of them
    pinned = [pin.partition(";")[0].strip().split("==") for pin in pins() if "==" in pin]
    assert len(pinned) >= 9
    for name, version in pinned:
        installed = importlib.metadata.version(name)
        assert (installed + ".0.0").startswith(version + "."), f"{name} {installed}, expected {version}"


def test_pandas_is_not_installed() -> None:
    assert importlib.util.find_spec("pandas") is None


@pytest.mark.parametrize("shuffle", [False, True, "block"])
def test_an_epoch_has_every_record_once(dataset: Path, shuffle: Any) -> None:
    ids: list[int] = []
    for split in rk.open(dataset).splits.values():
        for batch in split.batches(32, shuffle=shuffle, seed=3):
            ids += batch["id"].tolist()
            assert batch["score"].tolist() == [number / 2 for number in batch["id"].tolist()]
    assert sorted(ids) == list(range(ROWS))


def test_records_are_reached_by_number(dataset: Path) -> None:
    train = rk.open(dataset)["train"]
    whole = [int(one) for batch in train.batches(64) for one in batch["id"]]
    assert [int(train[i]["id"]) for i in (0, 7, -1)] == [whole[0], whole[7], whole[-1]]
    assert train[[5, 2]]["id"].tolist() == [whole[5], whole[2]]
    assert train[2]["name"] == f"row {whole[2]}"


def test_images_are_decoded_and_resized(dataset: Path) -> None:
    for batch in rk.open(dataset)["val"].batches(16, columns=["image"], decode=True, resize=(4, 4)):
        assert batch["image"].dtype == np.uint8
        assert batch["image"].shape[1:] == (4, 4, 3)


def test_classes_are_balanced(dataset: Path) -> None:
    train = rk.open(dataset)["train"]
    labels = np.concatenate([batch["label"] for batch in train.balanced(by="label").batches(64)])
    counts = np.bincount(labels, minlength=3)
    assert counts.max() - counts.min() <= 1


def test_arrow_columns_have_every_row(dataset: Path) -> None:
    table = rk.open(dataset)["val"].to_arrow()
    assert table["name"].to_pylist() == [f"row {number}" for number in table["id"].to_pylist()]


def test_query_counts_the_rows_of_each_class(dataset: Path) -> None:
    answer = json.loads(rekord("query", dataset, "select label, count(*) from records group by 1", "--json"))
    assert sum(count for _, count in answer["rows"]) == ROWS


def test_check_finds_nothing_wrong(dataset: Path) -> None:
    report = json.loads(rekord("check", dataset, "--json"))
    assert (report["ok"], report["records"]) == (True, ROWS)


def test_a_csv_is_written_and_shown(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("id,name,score\n" + "".join(f"{i},name {i},{i}.5\n" for i in range(20)))
    written = json.loads(rekord("write", table, tmp_path / "out", "--json"))
    assert sum(split["records"] for split in written["splits"].values()) == 20
    assert "name 3" in rekord("show", tmp_path / "out", "-n", 5)
    stats = json.loads(rekord("stats", tmp_path / "out", "--json"))
    assert stats["features"]["id"]["max"] == 19


@pytest.mark.parametrize("verb", ["write", "check", "query", "salvage", "train"])
def test_help_is_shown(verb: str) -> None:
    assert rekord(verb, "--help").startswith(f"Usage: rekord {verb} ")


def test_the_viewer_answers(dataset: Path) -> None:
    from urllib.request import urlopen

    with rk.view(dataset) as viewer, urlopen(f"{viewer.url}api/rows?split=train&count=2", timeout=60) as answer:
        document = json.load(answer)
    assert [one["record"] for one in document["rows"]] == [0, 1]
