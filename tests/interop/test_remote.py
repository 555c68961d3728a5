"""Datasets on a real S3 server: opened, read in order and in any order, with errors that name the place."""

from __future__ import annotations

import http.server
import multiprocessing
import pickle
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.storage import object_clients
from rekord.storage.objects import OBJECTS, ObjectStorage
from rekord.storage.read_ahead import FIRST_BYTES
from rekord.storage.router import REMOTE, is_remote
from rekord.testing import corrupt_payload, example_bytes, frames

SCHEMA = rk.Schema({"n": rk.Int64(), "text": rk.Text(), "label": rk.Label(3), "tokens": rk.Int64(shape=(None,))})
BUCKET = "s3://rekord-test"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """An S3 server on loopback, which boto3 and rekord are pointed to."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    names = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="rekord-test")
        yield names["AWS_ENDPOINT_URL"]
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
    assert values(there.batches(64, shuffle="exact", seed=3)) == values(here.batches(64, shuffle="exact", seed=3))


def test_shuffle_is_block_wise_where_neighbours_are_cheap(dataset: tuple[str, Path]) -> None:
    split = rk.open(dataset[0])["train"]
    state = split.batches(64, shuffle=True, seed=3).state_dict()
    assert state["order"]["kind"] == "block"
    assert sorted(values(split.batches(64, shuffle=True, seed=3))) == sorted(values(split.batches(64)))


def test_files_without_a_manifest_are_found_by_folder_and_pattern(dataset: tuple[str, Path], server: str) -> None:
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


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The objects whose first bytes are read to recognise them."""
    asked: list[str] = []
    head = OBJECTS.head

    def counted(self: ObjectStorage, path: str, most_bytes: int) -> bytes:
        asked.append(path)
        return head(path, most_bytes)

    monkeypatch.setattr(ObjectStorage, "head", counted)
    return asked


def test_files_that_are_called_a_tar_are_recognised_there_by_one_request_each(server: str, heads: list[str]) -> None:
    client = boto3.client("s3")
    for block in range(3):
        rows = [example_bytes({"n": [4 * block + i]}) for i in range(4)]
        name = f"ray/2f9c1e0b_{block:06}_000000.tar"
        client.put_object(Bucket="rekord-test", Key=name, Body=frames(rows))
    client.put_object(Bucket="rekord-test", Key="ray/archive.tar", Body=b"no record" * 200)
    client.put_object(Bucket="rekord-test", Key="ray/empty.tar", Body=b"")
    client.put_object(Bucket="rekord-test", Key="ray/info.json", Body=b"{}")
    split = rk.open(f"{BUCKET}/ray")
    assert len(heads) == 4  # the archive too, which its name does not give away
    assert values(split.batches(5)) == list(range(12))
    assert rk.check(f"{BUCKET}/ray").records == 12


def test_of_many_files_there_at_most_a_hundred_are_asked_for(server: str, heads: list[str]) -> None:
    client = boto3.client("s3")
    for number in range(130):
        client.put_object(
            Bucket="rekord-test",
            Key=f"many/2f9c1e0b_{number:06}_000000.tar",
            Body=frames([example_bytes({"n": [number]})]),
        )
    assert len(rk.open(f"{BUCKET}/many")["all"].paths) == 130
    assert len(heads) == 100
    heads.clear()
    client.put_object(Bucket="rekord-test", Key="many/x.tfrecord", Body=frames([example_bytes({"n": [7]})]))
    assert values(rk.open(f"{BUCKET}/many", schema=rk.Schema({"n": rk.Int64()})).batches(5)) == [7]
    assert heads == []  # names are enough


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


def test_a_shuffled_split_goes_on_after_a_resume(dataset: tuple[str, Path]) -> None:
    split = rk.open(dataset[0])["train"]
    whole = values(split.batches(50, shuffle=True, seed=8))
    batches = iter(split.batches(50, shuffle=True, seed=8))
    first = [n for _ in range(3) for n in next(batches)["n"].tolist()]
    again = rk.open(dataset[0])["train"].batches(64, shuffle=True, seed=8)
    again.load_state_dict(batches.state_dict())
    assert first + values(again) == whole


def test_ranks_share_a_remote_split(dataset: tuple[str, Path]) -> None:
    split = rk.open(dataset[0])["train"]
    parts = [values(split.batches(16, shuffle=True, rank=rank, world=3)) for rank in range(3)]
    assert sorted(n for part in parts for n in part) == sorted(values(split.batches(64)))


def _read_in_child(split: Any, results: Any) -> None:
    results.send(values(split.batches(50, shuffle=True, seed=5)))


@pytest.mark.concurrency
def test_a_forked_process_makes_connections_of_its_own(dataset: tuple[str, Path]) -> None:
    split = rk.open(dataset[0])["train"]
    wanted = values(split.batches(50, shuffle=True, seed=5))
    split[[3, 300]]
    context = multiprocessing.get_context("fork")
    for _ in range(2):
        here, there = context.Pipe(duplex=False)
        child = context.Process(target=_read_in_child, args=(split, there))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks while threads run, on new Pythons
            child.start()
        there.close()
        assert here.poll(60)
        assert here.recv() == wanted
        child.join()
        assert child.exitcode == 0
    assert values(split.batches(50, shuffle=True, seed=5)) == wanted


@pytest.mark.concurrency
def test_workers_of_a_data_loader_read_there(dataset: tuple[str, Path]) -> None:
    split = rk.open(dataset[0])["train"]
    wanted = values(split.batches(50, shuffle=True, seed=5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        loader = split.to_torch(50, shuffle=True, seed=5, workers=2)
        assert [n for batch in loader for n in batch["n"].tolist()] == wanted


def test_a_remote_split_can_be_pickled(dataset: tuple[str, Path]) -> None:
    split = rk.open(dataset[0])["train"]
    split[3]
    copy = pickle.loads(pickle.dumps(split))
    assert values(copy.batches(50, shuffle=True)) == values(split.batches(50, shuffle=True))


def test_the_command_line_reads_there(dataset: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["check", dataset[0]]) == 0
    assert "600 records" in capsys.readouterr().out
    shard = f"{dataset[0]}/{sorted(dataset[1].glob('val-*'))[0].name}"
    assert run_command_line(["show", shard, "-n", "1"]) == 0
    first = values(rk.open(dataset[1])["val"].batches(1))[0]
    assert f"row {first}" in capsys.readouterr().out
    assert run_command_line(["check", f"{BUCKET}/no/such"]) == 3
    assert "X501" in capsys.readouterr().err


def test_a_bucket_that_is_not_there_is_said(server: str) -> None:
    with pytest.raises(rk.DatasetError) as caught:
        rk.open("s3://rekord-no-such-bucket/ds")
    assert (caught.value.code, caught.value.location.path) == ("X568", "s3://rekord-no-such-bucket/ds/rekord.json")


# A server that fails.


class Server:
    """Answers every request in a way that a test chooses, as S3 does it."""

    def __init__(self) -> None:
        self.answer: Callable[[http.server.BaseHTTPRequestHandler], None] = lambda request: None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                outer.answer(self)

            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *arguments: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self._thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self._thread.join()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "REKORD_REMOTE_TIMEOUT": "0",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.http.server_port}",
    }.items():
        monkeypatch.setenv(name, value)
    yield server
    server.stop()


def say(
    request: http.server.BaseHTTPRequestHandler,
    status: int,
    body: bytes = b"",
    *,
    size_bytes: int | None = None,
    span: str | None = None,
) -> None:
    """An answer whose body may be shorter than it says."""
    announced = len(body) if size_bytes is None else size_bytes
    request.send_response(status)
    request.send_header("Content-Length", str(announced))
    request.send_header("ETag", '"1"')
    request.send_header("Last-Modified", "Thu, 19 Nov 2026 12:00:00 GMT")
    if span is not None:
        request.send_header("Content-Range", f"bytes {span}")
    request.end_headers()
    request.wfile.write(body)
    request.close_connection = announced != len(body) and request.command == "GET"


def test_no_permission_is_said_with_the_address(failing: Server) -> None:
    failing.answer = lambda request: say(request, 403)
    for read in (rk.open, lambda path: list(rk.records(path))):
        with pytest.raises(rk.DatasetError) as caught:
            read("s3://secret/x.tfrecord")
        assert (caught.value.code, caught.value.location.path) == ("X556", "s3://secret/x.tfrecord")


def test_an_answer_that_is_cut_off_is_no_end_of_file(failing: Server) -> None:
    def cut(request: http.server.BaseHTTPRequestHandler) -> None:
        if request.command == "HEAD":
            say(request, 200, size_bytes=100_000)
        else:
            say(request, 206, b"x" * 500, size_bytes=100_000, span="0-99999/100000")

    failing.answer = cut
    with pytest.raises(rk.DatasetError) as caught:
        list(rk.records("s3://b/x.tfrecord"))
    assert (caught.value.code, caught.value.location.path) == ("X557", "s3://b/x.tfrecord")


def test_a_server_that_dies_in_the_middle_is_said_after_all_records_before(failing: Server) -> None:
    data = rk.testing.frames(bytes(1_000) for _ in range(2_000))

    def give(request: http.server.BaseHTTPRequestHandler) -> None:
        if request.command == "HEAD":
            say(request, 200, size_bytes=len(data))
            return
        begin, end = map(int, request.headers["Range"].removeprefix("bytes=").split("-"))
        if begin:
            say(request, 500)
        else:
            body = data[begin : end + 1]
            say(request, 206, body, span=f"{begin}-{begin + len(body) - 1}/{len(data)}")

    failing.answer = give
    got: list[bytes] = []
    with pytest.raises(rk.DatasetError) as caught:
        got.extend(rk.records("s3://b/x.tfrecord"))
    assert (caught.value.code, caught.value.location.path) == ("X555", "s3://b/x.tfrecord")
    assert got == [bytes(1_000)] * (FIRST_BYTES // 1_016)


def test_a_server_that_is_gone_is_said(failing: Server) -> None:
    failing.stop()
    failing.stop = lambda: None  # type: ignore[method-assign]
    with pytest.raises(rk.DatasetError) as caught:
        rk.open("s3://b/ds")
    assert caught.value.code == "X555"
    assert caught.value.location.path == "s3://b/ds/rekord.json"


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_clients, "_library", None)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(rk.UsageError) as caught:
        rk.open("gs://missing-package/ds")
    assert (caught.value.code, caught.value.do) == ("U602", "pip install 'rekord[gcs]'")
