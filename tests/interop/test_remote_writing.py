"""Every verb that publishes, with an output in object storage: the bytes are those of a run on a disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from object_server import Fault, ObjectServer
from sample_conversions import read_tree

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.errors import RekordError
from rekord.testing import corrupt_payload

SCHEMA = rk.Schema({"x": rk.Int64(), "text": rk.Text(), "label": rk.Label(["cat", "dog", "cow"])})
ROWS = [{"x": i, "text": f"row {i} " + "abc" * (i % 7), "label": i % 3} for i in range(60)]
SECRET = "secret-of-the-test"


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with ObjectServer() as server, server.environment():
        yield server


@pytest.fixture(scope="module")
def given(server: ObjectServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same dataset on a disk and in a bucket."""
    local = tmp_path_factory.mktemp("given") / "given"
    places = str(local), f"{server.bucket}/given"
    for place in places:
        rk.write(ROWS, place, schema=SCHEMA, shards=3, progress=False)
    return places


def read_objects(server: ObjectServer, path: str) -> dict[str, bytes]:
    begin = path.removeprefix(f"{server.bucket}/")
    if begin in server.objects:
        return {"": server.get(begin)}
    begin += "/"
    return {key[len(begin) :]: one.data for key, one in server.objects.items() if key.startswith(begin)}


def read_local(path: Path) -> dict[str, bytes]:
    return {"": path.read_bytes()} if path.is_file() else read_tree(path)


def numbers(path: Path) -> str:
    folder = path.parent / "numbers"
    folder.mkdir(exist_ok=True)
    lines = [f"{i},{'abc' * i},{('cat', 'dog', 'cow')[i % 3]}" for i in range(40)]
    for part in range(3):
        (folder / f"{part}.csv").write_text("x,text,label\n" + "\n".join(lines[part::3]) + "\n")
    return str(folder)


def bad_rows() -> list[dict[str, Any]]:
    return [*ROWS[:20], {"x": "no number", "text": "bad", "label": 0}, *ROWS[20:]]


WRITES: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "plain": (lambda _: ROWS, {"shards": 2}),
    "shuffled": (lambda _: ROWS, {"shards": 3, "shuffle": True, "seed": 7}),
    "stratified": (lambda _: ROWS, {"split": {"train": 0.5, "val": 0.5}, "stratify": "label", "shuffle": True}),
    "rejects": (lambda _: bad_rows(), {"on_bad_row": "reject", "max_rejects": 3}),
    "gzip": (lambda _: ROWS, {"compression": "gzip", "shard_size": 800}),
    "zlib, shuffled": (lambda _: ROWS, {"compression": "zlib", "shuffle": True, "shards": 2}),
    "tfds": (lambda _: ROWS, {"format": "tfds", "split": {"train": 0.5, "test": 0.5}}),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_conversion_writes_the_bytes_of_one_on_a_disk(
    server: ObjectServer, tmp_path: Path, name: str, workers: int
) -> None:
    rows, options = WRITES[name]
    out = f"{server.bucket}/{name.replace(', ', '-')}-{workers}/data"
    options = {"schema": SCHEMA, "workers": workers, "progress": False, **options}
    rk.write(rows(tmp_path), out, **options)
    rk.write(rows(tmp_path), tmp_path / "data", **options)
    assert read_objects(server, out) == read_tree(tmp_path / "data")
    assert rk.check(out).ok


def test_worker_processes_write_to_the_storage_themselves(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sample_conversions import use_small_parts

    use_small_parts(monkeypatch)
    source = rk.sources.csv(numbers(tmp_path / "x"))
    out = f"{server.bucket}/by-workers/data"
    options: dict[str, Any] = {"workers": 3, "progress": False, "map": lambda row: row, "shuffle": True, "shards": 4}
    rk.write(source, out, **options)
    rk.write(source, tmp_path / "data", **options)
    assert read_objects(server, out) == read_tree(tmp_path / "data")


def damage(folder: str) -> str:
    """A copy of a dataset with a damaged record; its folder."""
    import shutil

    copy = f"{folder}-damaged"
    if not os.path.exists(copy):
        shutil.copytree(folder, copy)
        path = Path(copy) / "train-00001-of-00003.tfrecord"
        path.write_bytes(corrupt_payload(path.read_bytes(), record=3))
    return copy


VERBS: dict[str, Callable[[str, str, str], object]] = {
    "rewrite": lambda path, out, local: rk.rewrite(path, out, drop=["text"], shards=2, progress=False),
    "split": lambda path, out, local: rk.split(path, out, split={"train": 0.7, "val": 0.3}, progress=False),
    "balance": lambda path, out, local: rk.balance(path, out, by="label", progress=False),
    "append": lambda path, out, local: rk.append(path, ROWS[:7], out, progress=False),
    "delete": lambda path, out, local: rk.delete(path, out, where="x = 5", progress=False),
    "relabel": lambda path, out, local: rk.relabel(path, out, {"dog": "cat"}, progress=False),
    "export/data.parquet": lambda path, out, local: rk.export(path, out),
    "export/data.jsonl": lambda path, out, local: rk.export(path, out),
    "export/data.csv.gz": lambda path, out, local: rk.export(path, out),
    "export/data.tar": lambda path, out, local: rk.export(path, out),
    "export/tfds/1.0.0": lambda path, out, local: rk.export(path, out, format="tfds"),
    "export/folder": lambda path, out, local: rk.export(path, out, format="parquet"),
    "salvage": lambda path, out, local: rk.salvage(damage(local), out),
    "salvage-file.tfrecord": lambda path, out, local: rk.salvage(
        f"{damage(local)}/train-00001-of-00003.tfrecord", out
    ),
    "schema.json": lambda path, out, local: SCHEMA.save(out),
}


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_writes_the_bytes_of_one_on_a_disk(
    server: ObjectServer, given: tuple[str, str], tmp_path: Path, name: str
) -> None:
    run = VERBS[name]
    local, remote = given
    out, place = f"{server.bucket}/verbs/{name}", tmp_path / name
    place.parent.mkdir(parents=True, exist_ok=True)
    run(local, out, local)
    run(local, str(place), local)
    assert read_objects(server, out) == read_local(place)
    run(remote, f"{server.bucket}/there-and-back/{name}", local)
    assert read_objects(server, f"{server.bucket}/there-and-back/{name}").keys() == read_local(place).keys()


def test_unchanged_shards_are_copied_by_the_server(server: ObjectServer) -> None:
    given, out = f"{server.bucket}/large", f"{server.bucket}/copied/data"
    rows = [{"x": i, "text": "abcdefghij" * 4000, "label": 0} for i in range(90)]
    rk.write(rows, given, schema=SCHEMA, shards=3, progress=False)
    server.reset()
    rk.delete(given, out, where=[0], progress=False)
    copied = {one.key.rpartition("/")[2] for one in server.log if one.operation == "copy"}
    assert {"train-00001-of-00003.tfrecord", "train-00002-of-00003.tfrecord"} <= copied
    shard_bytes = len(server.get("large/train-00000-of-00003.tfrecord"))
    assert server.bytes_received < 1.2 * shard_bytes  # the changed one, and metadata
    assert server.bytes_sent < 2.2 * shard_bytes  # the changed one, and the first bytes of each


def test_writers_and_files_of_the_command_line_go_there_too(
    server: ObjectServer, given: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"{server.bucket}/files"
    for folder in (place, str(tmp_path)):
        with rk.Writer(f"{folder}/one.tfrecord", SCHEMA) as writer:
            for row in ROWS:
                writer.write(row)
        assert run_command_line(["stats", given[0], "--html", f"{folder}/stats.html"]) == 0
        assert run_command_line(["query", given[0], "select x from records", "-o", f"{folder}/x.parquet"]) == 0
        assert run_command_line(["infer", given[0], "-o", f"{folder}/schema.json"]) == 0
    capsys.readouterr()
    assert read_objects(server, place) == read_tree(tmp_path)


def test_a_writer_that_raises_leaves_no_object(server: ObjectServer) -> None:
    path = f"{server.bucket}/raises/one.tfrecord"
    with pytest.raises(ZeroDivisionError), rk.Writer(path, SCHEMA) as writer:
        writer.write({**ROWS[0], "x": 1 // (len(path) - len(path))})
    assert not [key for key in server.objects if key.startswith("raises")]
    assert not server.uploads


def test_index_files_of_other_tools_are_written_next_to_a_dataset(
    server: ObjectServer, given: tuple[str, str], tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(given[0], tmp_path / "data")
    remote = f"{server.bucket}/indexed"
    for key, data in read_objects(server, given[1]).items():
        server.put(f"indexed/{key}", data)
    for place in (str(tmp_path / "data"), remote):
        assert run_command_line(["index", place, "--format", "dali"]) == 0
    assert read_objects(server, remote) == read_tree(tmp_path / "data")


def test_credentials_are_in_no_object_no_message_and_no_log(
    server: ObjectServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="rekord")
    out = f"{server.bucket}/credentials/data"
    rk.write(ROWS, out, schema=SCHEMA, progress=False)
    failures = []
    with server.environment(REKORD_REMOTE_TIMEOUT="0"):
        for kind in ("denied", "bad_key", "expired", "503", "drop"):
            server.inject(Fault(kind))  # type: ignore[arg-type]
            with pytest.raises(RekordError) as caught:
                rk.write(ROWS, f"{out}-2", schema=SCHEMA, progress=False)
            failures.append(caught.value)
            server.reset()
    seen = [str(failure) + repr(failure.to_dict()) for failure in failures]
    assert {failure.code for failure in failures} >= {"X555", "X556"}
    assert not any(word in text for text in [*seen, caplog.text] for word in (SECRET, "testing"))
    for key, one in server.objects.items():
        assert SECRET.encode() not in one.data, key
        assert b"testing" not in one.data, key


@pytest.fixture
def moto() -> Iterator[str]:
    """Another implementation of S3."""
    judge = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    judge.start()
    host, port = judge.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        }.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="judge")
        yield "s3://judge"
        judge.stop()


def test_an_independent_server_agrees(moto: str, tmp_path: Path) -> None:
    for folder in (moto, str(tmp_path)):
        rk.write(ROWS, f"{folder}/data", schema=SCHEMA, shards=3, shuffle=True, progress=False)
        rk.append(f"{folder}/data", ROWS[:7], f"{folder}/more", progress=False)
    client = boto3.client("s3")
    keys = [one["Key"] for one in client.list_objects_v2(Bucket="judge")["Contents"]]
    found = {key: client.get_object(Bucket="judge", Key=key)["Body"].read() for key in keys}
    assert found == read_tree(tmp_path)
    assert client.list_multipart_uploads(Bucket="judge").get("Uploads", []) == []
