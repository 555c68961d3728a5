"""Datasets on a real S3 server: opened, read in order and in any order, with errors that name the place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

import rekord as rk
from rekord.storage.anywhere import ANYWHERE, REMOTE
from rekord.storage.remote import is_remote
from rekord.testing import corrupt_payload

SCHEMA = rk.Schema(
    {"n": rk.Int64(), "text": rk.Text(), "label": rk.Label(3), "tokens": rk.Int64(shape=(None,))}
)
BUCKET = "s3://rekord-test"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """An S3 server on loopback, which boto3 and s3fs are pointed to."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    names = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        boto3.client("s3").create_bucket(Bucket="rekord-test")
        yield names["AWS_ENDPOINT_URL"]
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        moto.stop()


@pytest.fixture(scope="module")
def dataset(server: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A dataset of two splits, here and there."""
    local = tmp_path_factory.mktemp("data") / "ds"
    rows = ({"n": i, "text": f"row {i}", "label": i % 3, "tokens": list(range(i % 5))} for i in range(600))
    rk.write(rows, local, schema=SCHEMA, split={"train": 0.8, "val": 0.2}, shards=3, progress=False)
    client = boto3.client("s3")
    for path in local.rglob("*"):
        if path.is_file():
            client.upload_file(str(path), "rekord-test", f"ds/{path.relative_to(local)}")
    return f"{BUCKET}/ds", local


def values(batches: rk.dataset.batches.Batches) -> list[int]:
    return [n for batch in batches for n in batch["n"].tolist()]


@pytest.mark.parametrize(
    ("path", "remote"),
    [
        ("s3://a/b", True),
        ("gs://x", True),
        ("memory://x", True),
        ("/a/b", False),
        ("c://x", False),
        ("a:b", False),
    ],
)
def test_a_scheme_makes_a_path_remote(path: str, remote: bool) -> None:
    assert is_remote(path) is remote


def test_a_remote_dataset_is_the_local_one(dataset: tuple[str, Path]) -> None:
    there, here = rk.open(dataset[0]), rk.open(dataset[1])
    assert list(there.splits) == list(here.splits)
    assert there.schema == here.schema
    for name in here.splits:
        assert len(there[name]) == len(here[name])
        assert values(there[name].batches(50)) == values(here[name].batches(50))


def test_records_are_read_in_any_order_by_ranges(dataset: tuple[str, Path]) -> None:
    there, here = rk.open(dataset[0])["train"], rk.open(dataset[1])["train"]
    numbers = [5, 400, 0, 17, 17, 233]
    assert there[numbers]["text"].tolist() == here[numbers]["text"].tolist()
    assert there[7]["tokens"].tolist() == here[7]["tokens"].tolist()
    assert values(there.batches(64, shuffle="exact", seed=3)) == values(
        here.batches(64, shuffle="exact", seed=3)
    )


def test_shuffle_is_block_wise_where_neighbours_are_cheap(dataset: tuple[str, Path]) -> None:
    split = rk.open(dataset[0])["train"]
    state = split.batches(64, shuffle=True, seed=3).state_dict()
    assert state["order"]["kind"] == "block"
    assert sorted(values(split.batches(64, shuffle=True, seed=3))) == sorted(values(split.batches(64)))


def test_files_without_a_manifest_are_found_by_folder_and_pattern(
    dataset: tuple[str, Path], server: str
) -> None:
    client = boto3.client("s3")
    shards = sorted(dataset[1].glob("val-*"))
    for shard in shards:
        client.upload_file(str(shard), "rekord-test", f"plain/{shard.name}")
    wanted = values(rk.open(dataset[1])["val"].batches(50))
    assert values(rk.open(f"{BUCKET}/plain", schema=SCHEMA).batches(50)) == wanted
    assert values(rk.open(f"{BUCKET}/plain/val-*", schema=SCHEMA).batches(50)) == wanted
    one = rk.open(f"{BUCKET}/plain/{shards[0].name}", schema=SCHEMA)
    assert one[3]["n"] == wanted[3]
    assert rk.check(f"{BUCKET}/plain").ok


def test_what_is_missing_or_damaged_there_is_said_with_its_address(dataset: tuple[str, Path]) -> None:
    with pytest.raises(rk.DatasetError) as missing:
        rk.open(f"{BUCKET}/nothing/here")
    assert (missing.value.code, missing.value.location.path) == ("X501", f"{BUCKET}/nothing/here")
    shard = sorted(dataset[1].glob("train-*"))[0]
    body = corrupt_payload(shard.read_bytes(), 4)
    boto3.client("s3").put_object(Bucket="rekord-test", Key="bad/x.tfrecord", Body=body)
    path = f"{BUCKET}/bad/x.tfrecord"
    with pytest.raises(rk.FrameError) as damaged:
        list(rk.records(path))
    assert (damaged.value.code, damaged.value.location.path, damaged.value.location.record) == (
        "F102",
        path,
        4,
    )


def test_nothing_is_written_there(server: str, tmp_path: Path) -> None:
    with pytest.raises(rk.DatasetError) as caught:
        ANYWHERE.create(f"{BUCKET}/x")
    assert (caught.value.code, caught.value.location.path) == ("X504", f"{BUCKET}/x")


def test_ranges_come_side_by_side_and_whole(dataset: tuple[str, Path]) -> None:
    shard = sorted(dataset[1].glob("train-*"))[0]
    url, data = f"{dataset[0]}/{shard.name}", shard.read_bytes()
    pieces = [(0, 16), (100, 400), (len(data) - 5, len(data))]
    assert REMOTE.ranges([(url, *piece) for piece in pieces]) == [data[a:b] for a, b in pieces]
    with pytest.raises(rk.DatasetError) as short:
        REMOTE.ranges([(url, len(data) - 5, len(data) + 5)])
    assert short.value.location.path == url


def test_a_place_that_nobody_knows_is_refused() -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.open("nowhere://x/y")
    assert caught.value.code == "U605"
