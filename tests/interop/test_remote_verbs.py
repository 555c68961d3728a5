"""The verbs that read say of a dataset in a bucket what they say of a local copy, with few requests."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from object_server import Fault, ObjectServer
from PIL import Image
from viewer_client import open_viewer

import rekord as rk
from rekord.cli.main import run_command_line

SHARDS = 3
FILES = 2 * SHARDS
SHARD = "train-00001-of-00003.tfrecord"
SCHEMA = rk.Schema({"image": rk.Image(), "label": rk.Label(3), "score": rk.Float32(), "text": rk.Text()})


def png(number: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 255, (12, 12, 3), np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two datasets that differ in some records."""
    folder = tmp_path_factory.mktemp("written")
    rows = [{"image": png(i % 7), "label": i % 3, "score": i / 7, "text": f"text {i}"} for i in range(300)]
    options: Any = {"schema": SCHEMA, "split": {"train": 0.8, "val": 0.2}, "shards": SHARDS, "workers": 1}
    rk.write(rows, folder / "ds", progress=False, **options)
    other = [{**row, "score": float(row["score"]) + (i < 10)} for i, row in enumerate(rows[:-5])]
    rk.write(other, folder / "other", progress=False, **options)
    return folder


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectServer]:
    with ObjectServer() as server, server.environment():
        yield server


@pytest.fixture
def server(running: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    running.drop()
    running.reset()
    yield running
    running.reset()


def upload(server: ObjectServer, folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            server.put(path.relative_to(folder).as_posix(), path.read_bytes())
    server.reset()


def run(arguments: list[str], root: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """The exit code and the JSON document of a command, with paths below ROOT."""
    capsys.readouterr()
    code = run_command_line([one.replace("ROOT", root) for one in arguments] + ["--no-config"])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err, printed.err
    return code, json.loads(printed.out.replace(root, "ROOT"))


COMMANDS = [
    ["check", "ROOT/ds", "--json"],
    ["check", f"ROOT/ds/{SHARD}", "--json"],
    ["check", "ROOT/ds/train-*", "--json"],
    ["doctor", "ROOT/ds", "--json"],
    ["doctor", f"ROOT/ds/{SHARD}", "--json"],
    ["stats", "ROOT/ds", "--json"],
    ["stats", "ROOT/ds", "--split", "val", "--json"],
    ["diff", "ROOT/ds", "ROOT/other", "--json"],
    ["diff", "ROOT/ds", "ROOT/other", "--key", "text", "--json"],
    ["diff", "ROOT/ds", "ROOT/ds", "--json"],
    ["show", "ROOT/ds", "-n", "3", "--json"],
    ["show", f"ROOT/ds/{SHARD}", "-n", "2", "--json"],
    ["query", "ROOT/ds", "select label, count(*) n, sum(score) s from records group by 1 order by 1", "--json"],
    ["query", "ROOT/ds", "select text from records where score > 20 order by score limit 3", "--json"],
    ["infer", "ROOT/ds", "--json"],
    ["trace", "ROOT/ds", "--split", "train", "--record", "7", "--json"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(one[:4]) for one in COMMANDS])
def test_a_verb_says_the_same_of_a_bucket(
    command: list[str], written: Path, server: ObjectServer, capsys: pytest.CaptureFixture[str]
) -> None:
    upload(server, written)
    expected = run(command, str(written), capsys)
    assert run(command, server.bucket, capsys) == expected
    # A few requests a file; two datasets, each with a manifest and indexes.
    assert server.n_requests <= 24 + 16 * FILES, server.counts()


def remove_shard(folder: Path) -> None:
    (folder / SHARD).unlink()


def cut_shard(folder: Path) -> None:
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:-20])


def flip_payload(folder: Path) -> None:
    data = bytearray((folder / SHARD).read_bytes())
    data[400] ^= 1
    (folder / SHARD).write_bytes(data)


def exchange_shards(folder: Path) -> None:
    other = folder / SHARD.replace("00001-of", "00002-of")
    mine, theirs = (folder / SHARD).read_bytes(), other.read_bytes()
    (folder / SHARD).write_bytes(theirs)
    other.write_bytes(mine)


def remove_index(folder: Path) -> None:
    (folder / ".rekord" / "index" / f"{SHARD}.arrow").unlink()


def damage_index(folder: Path) -> None:
    index = folder / ".rekord" / "index" / f"{SHARD}.arrow"
    data = bytearray(index.read_bytes())
    data[len(data) // 2] ^= 1
    index.write_bytes(data)


def damage_manifest(folder: Path) -> None:
    text = (folder / "rekord.json").read_text()
    (folder / "rekord.json").write_text(text.replace('"seed": 0', '"seed": 1'))


def add_shard(folder: Path) -> None:
    shutil.copy(folder / SHARD, folder / "train-extra.tfrecord")


def remove_companion(folder: Path) -> None:
    (folder / "schema.pbtxt").unlink()


def remove_manifest(folder: Path) -> None:
    (folder / "rekord.json").unlink()


def add_label_map(folder: Path) -> None:
    (folder / "label_map.pbtxt").write_text('item { id: 1 name: "cat" }\n')


DAMAGES = [
    *(remove_shard, cut_shard, flip_payload, exchange_shards, remove_index, damage_index, damage_manifest, add_shard),
    *(remove_companion, remove_manifest, add_label_map),
]


@pytest.mark.parametrize("verb", ["check", "doctor"])
@pytest.mark.parametrize("damage", DAMAGES, ids=[one.__name__ for one in DAMAGES])
def test_what_is_wrong_with_a_dataset_is_found_in_a_bucket_too(
    damage: Callable[[Path], None],
    verb: str,
    written: Path,
    server: ObjectServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(written / "ds", tmp_path / "copy" / "ds")
    damage(tmp_path / "copy" / "ds")
    upload(server, tmp_path / "copy")
    expected = run([verb, "ROOT/ds", "--json"], str(tmp_path / "copy"), capsys)
    assert run([verb, "ROOT/ds", "--json"], server.bucket, capsys) == expected


def test_check_reads_the_bytes_of_a_dataset_once(written: Path, server: ObjectServer) -> None:
    upload(server, written)
    size = sum(len(one.data) for key, one in server.objects.items() if key.startswith("ds/") and "tfrecord" in key)
    rk.check(f"{server.bucket}/ds")
    assert server.bytes_sent <= 1.2 * size + 30_000, (server.bytes_sent, size)


def test_the_number_of_requests_does_not_grow_with_the_records(
    tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for number in (200, 2000):
        rk.write([{"x": i, "label": i % 3} for i in range(number)], tmp_path / f"{number}", shards=2, progress=False)
        upload(server, tmp_path)
        for verb in (rk.check, rk.doctor, rk.stats):
            verb(f"{server.bucket}/{number}")
        rk.open(f"{server.bucket}/{number}").sql("select label, count(*) from records group by 1")
        counts.append(server.n_requests)
    assert counts[1] <= counts[0] + 4, counts


def test_a_replaced_dataset_is_the_new_one_when_it_is_opened_again(tmp_path: Path, server: ObjectServer) -> None:
    for number in (20, 30):
        rk.write([{"x": i} for i in range(number)], tmp_path / f"{number}" / "ds", progress=False)
    upload(server, tmp_path / "20")
    old = rk.open(f"{server.bucket}/ds")["train"]
    upload(server, tmp_path / "30")
    assert (len(old), len(rk.open(f"{server.bucket}/ds")["train"])) == (20, 30)


def test_the_viewer_shows_the_same_of_a_bucket(written: Path, server: ObjectServer) -> None:
    upload(server, written)
    found = []
    for root in (str(written), server.bucket):
        with open_viewer(f"{root}/ds") as viewer:
            status = viewer.wait()
            rows = viewer.json("rows", split="train", first=20, count=20)["rows"]
            documents = {
                "rows": [[row[name] for name in ("record", "file", "file_record", "offset")] for row in rows],
                "splits": status["sides"][0]["splits"],
            }
        found.append(json.loads(json.dumps(documents).replace(root, "ROOT")))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["503", "cut", "slow_down"])
def test_a_tenth_of_all_requests_may_fail(
    kind: Any, written: Path, server: ObjectServer, capsys: pytest.CaptureFixture[str]
) -> None:
    upload(server, written)
    expected = run(["check", "ROOT/ds", "--json"], str(written), capsys)
    server.inject(Fault(kind, operation="get" if kind == "cut" else None, share=0.1))
    assert run(["check", "ROOT/ds", "--json"], server.bucket, capsys) == expected
    dataset = rk.open(f"{server.bucket}/ds")["train"]
    for shuffle in (False, True, "exact"):
        texts = [text for batch in dataset.batches(32, shuffle=shuffle) for text in batch["text"]]  # type: ignore[arg-type]
        assert len(set(texts)) == len(dataset)


@pytest.mark.parametrize("shuffle", [False, True, "exact"])
def test_an_object_replaced_while_it_is_read_is_an_error_and_never_mixed_data(
    shuffle: Any, tmp_path: Path, server: ObjectServer
) -> None:
    def records(first: int) -> dict[str, np.ndarray]:
        # Floats: the length of an integer depends on its value.
        return {
            "x": np.arange(first, first + 40_000).astype(np.float32),
            "data": np.full((40_000, 64), first, np.float32),
        }

    for name, first in (("old", 0), ("new", 1_000_000)):
        rk.write(records(first), tmp_path / name, shards=1, progress=False, workers=1)
    key = "old/train-00000-of-00001.tfrecord"
    for path in (tmp_path / "old").rglob("*"):
        if path.is_file():
            server.put(f"old/{path.relative_to(tmp_path / 'old').as_posix()}", path.read_bytes())
    other = (tmp_path / "new" / "train-00000-of-00001.tfrecord").read_bytes()
    assert len(other) == len(server.get(key))
    train = rk.open(f"{server.bucket}/old")["train"]
    server.reset()
    server.inject(
        Fault("slow", operation="get", key=key, skip=1, times=1, seconds=0, hook=lambda: server.put(key, other))
    )
    seen: list[float] = []

    def read() -> None:
        for batch in train.batches(500, shuffle=shuffle, columns=["x"], threads=1, prefetch=0):
            seen.extend(batch["x"].tolist())

    with pytest.raises(rk.RekordError) as caught:
        read()
    assert caught.value.code == "X548", caught.value
    assert caught.value.location.path == f"{server.bucket}/{key}"
    assert all(number < 1_000_000 for number in seen)


def test_a_model_trains_on_a_bucket(written: Path, server: ObjectServer, tmp_path: Path) -> None:
    upload(server, written)
    command = ["train", f"{server.bucket}/ds", str(tmp_path / "model"), "--label", "label"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "rekord",
            *command,
            "--columns",
            "image",
            "--epochs",
            "1",
            "--backend",
            "torch",
            "--json",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["epochs"][0]["loss"] > 0
    assert (tmp_path / "model" / "model.keras").exists()


def test_stats_counts_the_requests_that_the_server_saw(
    written: Path, server: ObjectServer, capsys: pytest.CaptureFixture[str]
) -> None:
    upload(server, written)
    assert run_command_line(["stats", f"{server.bucket}/ds", "--stats", "--no-config"]) == 0
    line = capsys.readouterr().err.strip().splitlines()[-1]
    counts = server.counts()
    reads = counts["get"] + counts["head"]
    assert line.startswith(
        f"remote storage: {server.n_requests:,} requests ({reads:,} read, {counts['list']:,} list)"
    )
    assert run_command_line(["stats", str(written / "ds"), "--stats", "--no-config"]) == 0
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("remote storage: 0 requests, 0 bytes read")
    assert run_command_line(["stats", f"{server.bucket}/ds", "--no-config"]) == 0
    assert "remote storage" not in capsys.readouterr().err
