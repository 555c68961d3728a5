"""The viewer opens whatever names a dataset: a glob, a TFDS folder, a bucket, and two of them side by side."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from object_server import ObjectServer
from viewer_client import ViewerClient, open_viewer
from viewer_data import CLASSES, make_image, write_masks

import rekord as rk
from rekord.testing import corrupt_payload

RECORDS = 12
PAGE_REQUESTS = 24
"""What a bucket may be asked for one page of records, and for what a page shows of one."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with ObjectServer() as running, running.environment():
        yield running


@pytest.fixture
def bucket(server: ObjectServer, tmp_path: Path) -> str:
    """A dataset of images and masks in a bucket; the payload of the first record of its second file is damaged."""
    folder = write_masks(tmp_path / "local")
    server.drop()
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if path.name == "train-00001-of-00002.tfrecord":
                data = bytes(corrupt_payload(data, 0))
            server.put(path.relative_to(folder.parent).as_posix(), data)
    server.reset()
    return f"{server.bucket}/masks"


def texts(viewer: ViewerClient, column: str, **query: Any) -> list[str | None]:
    """The cells of a column, None for records that cannot be read."""
    page = viewer.json("rows", **query)
    return [row["cells"][page["columns"].index(column)]["text"] if row["cells"] else None for row in page["rows"]]


def test_a_glob_opens_the_files_that_it_names(tmp_path: Path) -> None:
    folder = write_masks(tmp_path)
    second = range(RECORDS // 2, RECORDS)
    for pattern, expected, codes in (("train-0000*", range(RECORDS), []), ("*-00001-of-*", second, ["X505"])):
        with open_viewer(str(folder / pattern)) as viewer:
            viewer.wait()
            assert texts(viewer, "note") == [f"note {i}" for i in expected]
            assert viewer.get("thumb", split="train", record=0, feature="image", px=64).status == 200
            viewer.wait_for_check()
            # Half of the shards is not the whole split.
            assert [one["code"] for one in viewer.json("findings")["findings"]] == codes


def test_a_tfds_folder_opens_with_its_splits_names_and_images(tmp_path: Path) -> None:
    schema = rk.Schema({"image": rk.Image(format="png"), "label": rk.Label(CLASSES)})
    rows = [{"image": make_image(i), "label": i % len(CLASSES)} for i in range(RECORDS)]
    options: Any = {"schema": schema, "split": {"train": 0.75, "test": 0.25}, "shards": 1, "shuffle": False}
    rk.write(rows, tmp_path / "pets", format="tfds", progress=False, **options)
    with open_viewer(tmp_path / "pets") as viewer:
        status = viewer.wait()
        splits = {one["name"]: one["records"] for one in status["sides"][0]["splits"]}
        dataset = rk.open(tmp_path / "pets")
        assert splits == {"train": len(dataset["train"]), "test": len(dataset["test"])}
        assert sum(splits.values()) == RECORDS
        for split in splits:
            assert texts(viewer, "label", split=split) == [CLASSES[row["label"]] for row in dataset[split]]
        assert viewer.get("image", split="test", record=1, feature="image").body[:4] == b"\x89PNG"


def test_a_bucket_shows_rows_images_and_findings_with_few_requests(bucket: str, server: ObjectServer) -> None:
    with open_viewer(bucket) as viewer:
        viewer.wait()
        opened = server.n_requests
        assert opened <= PAGE_REQUESTS, server.counts()
        notes = texts(viewer, "note")
        assert notes == [None if i == RECORDS // 2 else f"note {i}" for i in range(RECORDS)]
        assert server.n_requests - opened <= PAGE_REQUESTS, server.counts()
        before = server.n_requests
        assert viewer.get("image", split="train", record=3, feature="image").body[:4] == b"\x89PNG"
        assert viewer.get("mask", split="train", record=3, feature="mask").status == 200
        assert viewer.json("record", split="train", record=RECORDS // 2)["state"] == "damaged"
        assert server.n_requests - before <= PAGE_REQUESTS, server.counts()
        # What is far away is not read as a whole unless it is asked for.
        assert viewer.json("status")["check"]["state"] == "idle"
        assert viewer.post("check", {}).status == 200
        viewer.wait_for_check()
        [finding] = viewer.json("findings")["findings"]
        assert (finding["code"], finding["records"]) == ("F102", [["train", RECORDS // 2]])
        assert not server.counts().keys() & {"put", "delete", "create_upload"}


def test_a_local_dataset_and_a_bucket_are_shown_side_by_side(bucket: str, tmp_path: Path) -> None:
    with open_viewer(tmp_path / "local" / "masks", bucket) as viewer:
        viewer.wait()
        assert texts(viewer, "note", side=0)[7] == texts(viewer, "note", side=1)[7] == "note 7"
        here, there = (viewer.get("image", side=side, split="train", record=7, feature="image") for side in (0, 1))
        assert here.body == there.body
        while (answer := viewer.json("compare", key="note", only="all"))["state"] == "running":
            pass
        # The damaged record is only in the local one.
        assert answer["counts"] == {"same": RECORDS - 1, "left": 1, "changed": 0, "right": 0}


def test_the_command_opens_a_bucket(bucket: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rekord", "view", bucket, "--no-browser"]
    environment = os.environ | {"REKORD_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, process_group=0) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{url}api/rows?first=1&count=1", timeout=60) as answer:
            [row] = json.load(answer)["rows"]
        assert (row["record"], row["file"]) == (1, "train-00000-of-00002.tfrecord")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
