"""Object storage through its protocol: the server is ours, on loopback, and fails when a test asks for it."""

from __future__ import annotations

import logging
import os
import pickle
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from object_server import Fault, FaultKind, ObjectServer

from rekord.errors import RekordError
from rekord.storage.local import read_up_to
from rekord.storage.object_clients import parse_address
from rekord.storage.objects import (
    CONCURRENT_PARTS,
    MAX_CONCURRENT_REQUESTS,
    MAX_GAP_BYTES,
    OBJECTS,
    PART_BYTES,
    ConflictError,
)
from rekord.storage.router import REMOTE, ROUTED_STORAGE, get_path_kind
from rekord.storage.traffic import Traffic, measure_traffic

MIB = 1 << 20


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    """A server with an empty bucket."""
    with ObjectServer() as server, server.environment(REKORD_REMOTE_TIMEOUT="60"):
        yield server


@pytest.fixture
def url(server: ObjectServer) -> str:
    return server.bucket


@pytest.fixture(params=["s3", "gs"])
def cloud(request: pytest.FixtureRequest, server: ObjectServer) -> str:
    """The bucket by the URL of each service: their conditions and names of headers differ."""
    return server.bucket.replace("s3", request.param)


def noise(size_bytes: int) -> bytes:
    return random.Random(size_bytes).randbytes(size_bytes)


def read_all(path: str) -> bytes:
    with OBJECTS.open_read(path) as file:
        return read_up_to(file, file.size_bytes + 1)


def caught_by(action: Callable[[], object]) -> RekordError:
    with pytest.raises(RekordError) as caught:
        action()
    return caught.value


# Reading.


@pytest.mark.parametrize("size_bytes", [0, 1, 100_000, (256 << 10) + 1, 20 * MIB])
def test_a_file_is_read_from_the_first_byte_to_the_last(server: ObjectServer, url: str, size_bytes: int) -> None:
    server.put("a/file", noise(size_bytes))
    with OBJECTS.open_read(f"{url}/a/file") as file:
        assert file.size_bytes == size_bytes
    assert read_all(f"{url}/a/file") == noise(size_bytes)


def test_a_small_file_is_opened_and_read_in_one_request(server: ObjectServer, url: str) -> None:
    server.put("small", noise(1000))
    assert read_all(f"{url}/small") == noise(1000)
    assert server.counts() == {"get": 1}


def test_a_file_can_be_read_from_any_byte(server: ObjectServer, url: str) -> None:
    data = noise(3 * MIB)
    server.put("file", data)
    with OBJECTS.open_read(f"{url}/file") as file:
        file.seek(2 * MIB + 5)
        assert read_up_to(file, 1000) == data[2 * MIB + 5 :][:1000]
        file.seek(0)
        assert read_up_to(file, 1000) == data[:1000]
        file.seek(len(data))
        assert read_up_to(file, 10) == b""


@pytest.mark.parametrize(
    "key", ["with space/a b", "ünï/çødé", "100%", "a%20b", "q?x#y", "a+b&c=d", "back\\slash", "~", "*", "日本/語"]
)
def test_any_printable_key_is_written_listed_and_read(server: ObjectServer, cloud: str, key: str) -> None:
    OBJECTS.put(f"{cloud}/d/{key}", b"data")
    assert server.get(f"d/{key}") == b"data"
    assert read_all(f"{cloud}/d/{key}") == b"data"
    assert OBJECTS.stat(f"{cloud}/d/{key}").size_bytes == 4
    assert [one.path for one in OBJECTS.list_recursive(f"{cloud}/d")] == [f"{cloud}/d/{key}"]
    folder, _, name = f"d/{key}".rpartition("/")
    assert [(one.name, one.kind, one.size_bytes) for one in OBJECTS.list(f"{cloud}/{folder}")] == [(name, "file", 4)]
    OBJECTS.remove(f"{cloud}/d/{key}")
    assert not server.objects


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("a//b", "an empty part (`//`)"),
        ("a/../b", "the part '..'"),
        ("./b", "the part '.'"),
        ("a\nb", "the part 'a\\nb'"),
    ],
)
def test_a_key_without_a_meaning_as_a_path_is_refused_by_name(
    server: ObjectServer, url: str, key: str, found: str
) -> None:
    failure = caught_by(lambda: OBJECTS.put(f"{url}/{key}", b""))
    assert (failure.code, failure.found, failure.location.path) == ("X581", found, f"{url}/{key}")
    assert not server.log
    server.put(f"d/{key}", b"")
    server.put("e/good", b"")
    failure = caught_by(lambda: list(OBJECTS.list_recursive(f"{url}/d")))
    assert (failure.code, failure.found) == ("X581", found)
    assert [one.path for one in OBJECTS.list_recursive(f"{url}/e")] == [f"{url}/e/good"]


def test_a_listing_of_many_keys_is_complete(server: ObjectServer, url: str) -> None:
    for number in range(2500):
        server.put(f"many/{number:05}/x", b"12")
    server.put("many-more/x", b"")
    listed = list(OBJECTS.list_recursive(f"{url}/many"))
    assert [one.path for one in listed] == [f"{url}/many/{number:05}/x" for number in range(2500)]
    assert {one.size_bytes for one in listed} == {2}
    assert {one.etag for one in listed} == {server.objects["many/00000/x"].etag}
    assert server.counts() == {"list": 3}
    assert [one.name for one in OBJECTS.list(f"{url}/many")] == [f"{number:05}" for number in range(2500)]


def test_an_object_and_a_prefix_may_share_a_name(server: ObjectServer, url: str) -> None:
    server.put("a", b"file")
    server.put("a/b", b"below")
    assert OBJECTS.stat(f"{url}/a").kind == "file"
    assert OBJECTS.stat(f"{url}/a/").kind == "folder"
    assert sorted((one.name, one.kind) for one in OBJECTS.list(url)) == [("a", "file"), ("a", "folder")]
    assert [one.path for one in OBJECTS.list_recursive(url)] == [f"{url}/a", f"{url}/a/b"]


def test_markers_of_folders_are_folders_and_empty_objects_are_files(server: ObjectServer, url: str) -> None:
    for key in ("d/", "d/sub/", "d/sub/x", "d/empty.txt", "d/sub!"):
        server.put(key, b"x" if key == "d/sub/x" else b"")
    assert [(one.name, one.kind) for one in OBJECTS.list(f"{url}/d")] == [
        ("empty.txt", "file"),
        ("sub", "folder"),
        ("sub!", "file"),
    ]
    paths = [one.path for one in OBJECTS.list_recursive(f"{url}/d")]
    assert sorted(paths) == [f"{url}/d/empty.txt", f"{url}/d/sub!", f"{url}/d/sub/x"]
    assert OBJECTS.stat(f"{url}/d").kind == "folder"
    assert caught_by(lambda: OBJECTS.open_read(f"{url}/d")).code == "X503"


@pytest.mark.parametrize("read", [OBJECTS.stat, OBJECTS.open_read, OBJECTS.list, lambda path: OBJECTS.head(path, 5)])
def test_what_does_not_exist_is_missing(server: ObjectServer, url: str, read: Callable[[str], object]) -> None:
    server.put("nothing-else", b"")
    failure = caught_by(lambda: read(f"{url}/nothing"))
    assert (failure.code, failure.location.path) == ("X501", f"{url}/nothing")
    assert isinstance(failure, FileNotFoundError)
    assert get_path_kind(f"{url}/nothing") is None


def test_stat_reports_the_version_of_an_object(server: ObjectServer, cloud: str) -> None:
    server.put("x", b"one")
    first = OBJECTS.stat(f"{cloud}/x")
    assert (first.kind, first.size_bytes, first.etag) == ("file", 3, server.objects["x"].etag)
    server.put("x", b"two")
    second = OBJECTS.stat(f"{cloud}/x")
    assert (second.mtime_ns, second.etag) != (first.mtime_ns, first.etag)
    assert second.identity == first.identity


# Ranges.


def test_ranges_come_back_in_the_order_that_was_asked(server: ObjectServer, url: str) -> None:
    data, other = noise(9 * MIB), noise(5000)
    server.put("a", data)
    server.put("b", other)
    wanted = [
        (f"{url}/a", 8 * MIB, 9 * MIB),
        (f"{url}/b", 10, 20),
        (f"{url}/a", 0, 5),
        (f"{url}/a", 3, 8),
        (f"{url}/a", 7, 7),
        (f"{url}/a", 1000, 5000),
    ]
    sources = {f"{url}/a": data, f"{url}/b": other}
    assert REMOTE.ranges(wanted) == [sources[path][begin:end] for path, begin, end in wanted]
    assert server.counts() == {"get": 3}, "near ranges share a request"


def test_ranges_further_apart_than_a_request_costs_are_not_merged(server: ObjectServer, url: str) -> None:
    server.put("a", noise(MIB))
    OBJECTS.ranges([(f"{url}/a", 0, 10), (f"{url}/a", 10 + MAX_GAP_BYTES, 20 + MAX_GAP_BYTES)])
    assert server.counts() == {"get": 1}
    OBJECTS.ranges([(f"{url}/a", 0, 10), (f"{url}/a", 11 + MAX_GAP_BYTES, 20 + MAX_GAP_BYTES)])
    assert server.counts() == {"get": 3}


def test_the_number_of_concurrent_requests_is_bounded(server: ObjectServer, url: str) -> None:
    server.put("a", noise(20 * MIB))
    server.inject(Fault("slow", seconds=0.02))
    OBJECTS.ranges([(f"{url}/a", number * 100_000, number * 100_000 + 10) for number in range(200)])
    assert 1 < server.most_at_once <= MAX_CONCURRENT_REQUESTS


@pytest.mark.parametrize(("begin", "end"), [(990, 1010), (2000, 2010)])
def test_a_range_past_the_end_is_no_shorter_answer(server: ObjectServer, url: str, begin: int, end: int) -> None:
    server.put("a", noise(1000))
    failure = caught_by(lambda: OBJECTS.ranges([(f"{url}/a", begin, end)]))
    assert (failure.code, failure.location.path) == ("X557", f"{url}/a")


# An object that is replaced.


def test_an_object_that_is_replaced_while_it_is_read_is_an_error(server: ObjectServer, cloud: str) -> None:
    server.put("a", b"a" * 30 * MIB)
    with OBJECTS.open_read(f"{cloud}/a") as file:
        assert read_up_to(file, 1000) == b"a" * 1000
        server.put("a", b"b" * 30 * MIB)
        failure = caught_by(lambda: read_up_to(file, 30 * MIB))
    assert (failure.code, failure.location.path) == ("X548", f"{cloud}/a")


def test_ranges_of_two_versions_are_never_mixed(server: ObjectServer, url: str) -> None:
    server.put("a", b"a" * MIB)
    server.inject(Fault("slow", seconds=0, skip=2, times=1, hook=lambda: server.put("a", b"b" * MIB)))
    failure = caught_by(
        lambda: OBJECTS.ranges([(f"{url}/a", number * 100_000, number * 100_000 + 9) for number in range(10)])
    )
    assert (failure.code, failure.location.path) == ("X548", f"{url}/a")


def test_ranges_are_of_the_version_that_was_opened(server: ObjectServer, cloud: str) -> None:
    server.put("a", b"a" * 100)
    versions = {f"{cloud}/a": OBJECTS.stat(f"{cloud}/a").mtime_ns}
    assert REMOTE.ranges([(f"{cloud}/a", 0, 3)], versions=versions) == [b"aaa"]
    server.put("a", b"b" * 100)
    assert caught_by(lambda: REMOTE.ranges([(f"{cloud}/a", 0, 3)], versions=versions)).code == "X548"


def test_a_body_that_is_cut_is_not_continued_with_another_object(server: ObjectServer, url: str) -> None:
    server.put("a", b"a" * MIB)
    server.inject(Fault("cut", times=1))
    server.inject(Fault("slow", seconds=0, hook=lambda: server.put("a", b"b" * MIB)))
    failure = caught_by(lambda: OBJECTS.head(f"{url}/a", MIB))
    assert failure.code == "X557"
    assert [request.range for request in server.log] == ["bytes=0-1048575", "bytes=524288-1048575"]


# Failing requests.


@pytest.mark.parametrize("kind", ["500", "503", "slow_down", "429", "drop", "cut", "slow"])
def test_one_request_in_ten_may_fail(server: ObjectServer, url: str, kind: FaultKind) -> None:
    data = noise(10 * MIB)
    server.put("a", data)
    server.inject(Fault(kind, share=0.1, seconds=0.01))
    wanted = [(f"{url}/a", number * 100_000, number * 100_000 + 9000) for number in range(100)]
    assert OBJECTS.ranges(wanted) == [data[begin:end] for _, begin, end in wanted]
    with OBJECTS.create(f"{url}/copy") as file:
        file.write(data)
    assert server.get("copy") == data
    assert read_all(f"{url}/copy") == data
    assert server.faults[0].struck > 3


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("500", "X555"),
        ("503", "X555"),
        ("slow_down", "X577"),
        ("429", "X577"),
        ("drop", "X555"),
        ("denied", "X556"),
        ("expired", "X556"),
        ("bad_key", "X556"),
        ("bad_signature", "X556"),
        ("skew", "X569"),
        ("redirect", "X567"),
        ("cut", "X557"),
    ],
)
def test_a_failure_that_does_not_end_has_a_code_and_a_remedy(
    server: ObjectServer, url: str, monkeypatch: pytest.MonkeyPatch, kind: FaultKind, code: str
) -> None:
    monkeypatch.setenv("REKORD_REMOTE_TIMEOUT", "0")
    server.put("a", noise(1000))
    server.inject(Fault(kind))
    read = [lambda: OBJECTS.head(f"{url}/a", 1000), lambda: read_all(f"{url}/a")]
    write = [
        lambda: OBJECTS.stat(f"{url}/a"),
        lambda: list(OBJECTS.list_recursive(url)),
        lambda: OBJECTS.list(url),
        lambda: OBJECTS.put(f"{url}/b", b""),
        lambda: OBJECTS.create(f"{url}/b").close(),
        lambda: OBJECTS.remove(f"{url}/a"),
        lambda: OBJECTS.copy(f"{url}/a", f"{url}/b"),
    ]
    for action in read if kind == "cut" else read + write:
        failure = caught_by(action)
        # The answer to HEAD has no body that tells why.
        assert failure.code == code or (failure.code, kind) == ("X555", "slow_down")
        assert failure.location.path is not None
        assert failure.location.path.startswith(url)
        assert failure.found
        assert failure.do


@pytest.mark.parametrize("key", ["orange", "416", "a"])
def test_a_denied_object_costs_two_requests_whatever_its_name(server: ObjectServer, url: str, key: str) -> None:
    server.put(key, b"")
    server.inject(Fault("denied"))
    assert caught_by(lambda: OBJECTS.stat(f"{url}/{key}")).code == "X556"
    assert server.counts() == {"head": 1, "get": 1}
    assert caught_by(lambda: OBJECTS.head(f"{url}/{key}", 10)).code == "X556"
    assert server.counts() == {"head": 1, "get": 2}


def test_the_right_region_is_named_if_the_server_names_it(server: ObjectServer, url: str) -> None:
    server.put("a", b"")
    server.region, server.checks_region = "eu-central-1", True
    failure = caught_by(lambda: OBJECTS.stat(f"{url}/a"))
    assert (failure.code, failure.expected, failure.do) == (
        "X567",
        "region eu-central-1",
        "export AWS_REGION=eu-central-1",
    )


def test_reading_follows_a_redirect_and_writing_does_not(
    server: ObjectServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ObjectServer() as other:
        other.put("a", b"there")
        server.inject(Fault("temporary_redirect", location=other.url))
        assert OBJECTS.head(f"{url}/a", 10) == b"there"
        assert [one.path for one in OBJECTS.list_recursive(url)] == [f"{url}/a"]
        # Keys are not sent to a server that another one names.
        assert not any("Authorization" in request.headers for request in other.log)
        failure = caught_by(lambda: OBJECTS.put(f"{url}/b", b""))
        assert (failure.code, failure.location.path) == ("X567", f"{url}/b")
        assert "b" not in other.objects


@pytest.mark.parametrize(
    "action",
    [
        OBJECTS.stat,
        OBJECTS.list,
        OBJECTS.open_read,
        lambda path: list(OBJECTS.list_recursive(path)),
        lambda path: OBJECTS.put(path, b""),
        lambda path: OBJECTS.replace_if(path, b"", '"x"'),
        lambda path: OBJECTS.create(path).close(),
        get_path_kind,
    ],
)
def test_a_missing_bucket_is_no_missing_file(server: ObjectServer, action: Callable[[str], object]) -> None:
    failure = caught_by(lambda: action("s3://no-such-bucket/d/a"))
    assert (failure.code, failure.location.path) == ("X568", "s3://no-such-bucket/d/a")


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "https://no-such-host.invalid"])
def test_an_endpoint_that_does_not_answer_is_unreachable(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("REKORD_REMOTE_TIMEOUT", "0")
    failure = caught_by(lambda: OBJECTS.stat("s3://bucket/a"))
    assert (failure.code, failure.location.path) == ("X555", "s3://bucket/a")


def test_a_timeout_that_is_no_number_is_refused(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKORD_REMOTE_TIMEOUT", "soon")
    assert caught_by(lambda: OBJECTS.stat("s3://bucket/a")).code == "U605"


# Writing.


@pytest.mark.parametrize("size_bytes", [0, 10, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 5])
def test_an_object_appears_when_it_is_closed(server: ObjectServer, cloud: str, size_bytes: int) -> None:
    file = ROUTED_STORAGE.create(f"{cloud}/new")
    file.write(noise(size_bytes))
    file.fsync()
    assert "new" not in server.objects
    file.close()
    file.close()
    assert server.get("new") == noise(size_bytes)
    assert not server.uploads


@pytest.mark.parametrize("size_bytes", [10, 3 * PART_BYTES])
def test_an_object_that_fails_half_way_never_appears(server: ObjectServer, cloud: str, size_bytes: int) -> None:
    def fail() -> None:
        with OBJECTS.create(f"{cloud}/new") as file:
            file.write(noise(size_bytes))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert "new" not in server.objects
    assert not server.uploads


def test_a_part_that_cannot_be_sent_aborts_the_upload(
    server: ObjectServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REKORD_REMOTE_TIMEOUT", "0")
    server.inject(Fault("500", operation="put_part", skip=1))
    file = OBJECTS.create(f"{url}/new")

    def write() -> None:
        file.write(noise(6 * PART_BYTES))
        file.close()

    assert caught_by(write).code == "X555"
    file.close()
    assert "new" not in server.objects
    assert not server.uploads


def test_parts_are_sent_side_by_side_and_bounded(server: ObjectServer, url: str) -> None:
    server.inject(Fault("slow", operation="put_part", seconds=0.05))
    with OBJECTS.create(f"{url}/new") as file:
        file.write(noise(10 * PART_BYTES))
    assert 1 < server.most_at_once <= CONCURRENT_PARTS + 1


@pytest.mark.parametrize("kind", ["lost", "lost_500"])
@pytest.mark.parametrize("size_bytes", [10, 2 * PART_BYTES])
def test_an_upload_of_which_the_last_answer_was_lost_is_complete(
    server: ObjectServer, cloud: str, kind: FaultKind, size_bytes: int
) -> None:
    server.inject(Fault(kind, operation=("put", "complete_upload"), times=1))
    with OBJECTS.create(f"{cloud}/new") as file:
        file.write(noise(size_bytes))
    assert server.get("new") == noise(size_bytes)


def test_only_one_writer_creates_an_object(server: ObjectServer, cloud: str) -> None:
    def attempt(number: int) -> str:
        try:
            return OBJECTS.put(f"{cloud}/lock", str(number).encode())
        except ConflictError as failure:
            return f"{failure.code} {failure.location.path}"

    with ThreadPoolExecutor(8) as pool:
        outcomes = sorted(pool.map(attempt, range(8)))
    assert outcomes == [server.objects["lock"].etag, *[f"X578 {cloud}/lock"] * 7]


@pytest.mark.parametrize("kind", ["lost", "lost_500"])
def test_a_put_of_which_the_answer_was_lost_is_no_conflict(server: ObjectServer, cloud: str, kind: FaultKind) -> None:
    server.inject(Fault(kind, operation="put", times=1))
    etag = OBJECTS.put(f"{cloud}/a", b"mine")
    assert etag == server.objects["a"].etag
    server.reset()
    server.inject(Fault(kind, operation="put", times=1))
    assert OBJECTS.replace_if(f"{cloud}/a", b"mine again", etag) == server.objects["a"].etag
    assert server.get("a") == b"mine again"


def test_equal_content_of_another_writer_is_a_conflict(server: ObjectServer, cloud: str) -> None:
    server.put("a", b"same")
    with pytest.raises(ConflictError):
        OBJECTS.put(f"{cloud}/a", b"same")
    assert OBJECTS.put(f"{cloud}/a", b"other", create_only=False) == server.objects["a"].etag


def test_an_object_is_replaced_only_if_it_is_the_expected_one(server: ObjectServer, cloud: str) -> None:
    first = OBJECTS.put(f"{cloud}/a", b"1")
    assert OBJECTS.read(f"{cloud}/a", most_bytes=10) == (b"1", first)
    second = OBJECTS.replace_if(f"{cloud}/a", b"2", first)
    with pytest.raises(ConflictError):
        OBJECTS.replace_if(f"{cloud}/a", b"3", first)
    assert server.get("a") == b"2"
    server.drop("a")
    with pytest.raises(ConflictError):
        OBJECTS.replace_if(f"{cloud}/a", b"3", second)
    assert "a" not in server.objects


def test_a_race_that_is_not_decided_yet_is_tried_again(server: ObjectServer, url: str) -> None:
    server.inject(Fault("conflict", operation="put", times=2))
    assert OBJECTS.put(f"{url}/a", b"x") == server.objects["a"].etag
    server.inject(Fault("conflict", operation="put"))
    with pytest.raises(ConflictError):
        OBJECTS.put(f"{url}/b", b"x")


def test_a_conflict_survives_pickling(server: ObjectServer, url: str) -> None:
    server.put("a", b"")
    failure = pickle.loads(pickle.dumps(caught_by(lambda: OBJECTS.put(f"{url}/a", b""))))
    assert isinstance(failure, ConflictError)
    assert failure.message.startswith("DatasetError X578: ")


def test_the_server_copies_without_a_transfer(server: ObjectServer, url: str) -> None:
    server.put("a b", noise(MIB))
    before = measure_traffic()
    assert OBJECTS.copy(f"{url}/a b", f"{url}/c d") is True
    assert server.get("c d") == noise(MIB)
    assert (measure_traffic() - before).read_bytes == 0
    assert OBJECTS.copy(f"{url}/a b", "s3://other-bucket/c") is False
    assert caught_by(lambda: OBJECTS.copy(f"{url}/nothing", f"{url}/c")).code == "X501"


def test_many_objects_are_removed_in_few_requests(server: ObjectServer, url: str) -> None:
    for number in range(1500):
        server.put(f"d/{number}", b"")
    server.put("keep", b"")
    OBJECTS.remove_many([f"{url}/d/{number}" for number in range(1501)])
    assert list(server.objects) == ["keep"]
    assert server.counts() == {"delete_many": 2}


def test_folders_are_nothing_and_renames_are_refused(server: ObjectServer, url: str) -> None:
    OBJECTS.make_folder(f"{url}/d")
    OBJECTS.sync_folder(f"{url}/d")
    OBJECTS.remove_folder(f"{url}/d")
    assert not server.log
    assert caught_by(lambda: OBJECTS.rename(f"{url}/a", f"{url}/b")).code == "X504"


def upload(path: str) -> None:
    with OBJECTS.create(path) as file:
        file.write(noise(2 * PART_BYTES + 1))


ACTIONS: dict[str, Callable[[str], object]] = {
    "get": lambda url: OBJECTS.head(f"{url}/a", 10),
    "head": lambda url: OBJECTS.stat(f"{url}/a"),
    "list": lambda url: list(OBJECTS.list_recursive(url)),
    "put": lambda url: OBJECTS.put(f"{url}/b", b"new"),
    "copy": lambda url: OBJECTS.copy(f"{url}/a", f"{url}/b"),
    "delete": lambda url: OBJECTS.remove(f"{url}/a"),
    "delete_many": lambda url: OBJECTS.remove(f"{url}/a"),
    "create_upload": lambda url: upload(f"{url}/b"),
    "put_part": lambda url: upload(f"{url}/b"),
    "complete_upload": lambda url: upload(f"{url}/b"),
}


@pytest.mark.parametrize("kind", ["drop", "lost", "lost_500"])
@pytest.mark.parametrize("operation", ACTIONS)
def test_any_request_may_fail_once(server: ObjectServer, cloud: str, operation: Any, kind: FaultKind) -> None:
    server.put("a", b"old")
    server.inject(Fault(kind, operation=operation, times=1))
    ACTIONS[operation](cloud)
    uploaded = {"a": b"old", "b": noise(2 * PART_BYTES + 1)}
    expected = {
        "put": {"a": b"old", "b": b"new"},
        "copy": {"a": b"old", "b": b"old"},
        "delete": {},
        "delete_many": {},
        "create_upload": uploaded,
        "put_part": uploaded,
        "complete_upload": uploaded,
    }
    assert {key: found.data for key, found in server.objects.items()} == expected.get(operation, {"a": b"old"})


@pytest.mark.parametrize("after", [False, True])
def test_a_server_that_dies_at_any_request_leaves_all_of_an_object_or_nothing(
    server: ObjectServer, url: str, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    monkeypatch.setenv("REKORD_REMOTE_TIMEOUT", "0")
    upload(f"{url}/new")
    requests = server.n_requests
    assert requests == 5
    for number in range(1, requests + 1):
        server.drop()
        server.die_at(number, after=after)
        failure = caught_by(lambda: upload(f"{url}/new"))
        assert (failure.code, failure.location.path) == ("X555", f"{url}/new")
        assert {found.data for found in server.objects.values()} <= {noise(2 * PART_BYTES + 1)}
        assert bool(server.objects) == (after and number == requests)


# Requests and bytes are counted.


def test_traffic_is_what_the_server_saw(server: ObjectServer, url: str) -> None:
    server.put("a", noise(20 * MIB))
    before = measure_traffic()
    assert len(read_all(f"{url}/a")) == 20 * MIB
    OBJECTS.stat(f"{url}/a")
    list(OBJECTS.list_recursive(url))
    OBJECTS.put(f"{url}/b", bytes(100))
    with OBJECTS.create(f"{url}/c") as file:
        file.write(bytes(2 * PART_BYTES + 1))
    OBJECTS.remove(f"{url}/b")
    seen = measure_traffic() - before
    assert seen == Traffic(
        reads=server.counts()["get"] + 1,
        writes=1 + 5,
        lists=1,
        deletes=1,
        read_bytes=20 * MIB,
        written_bytes=100 + 2 * PART_BYTES + 1,
    )
    assert seen.requests == server.n_requests


# Clients, processes, credentials.


FORK = """
import multiprocessing, sys, warnings
from rekord.storage.objects import OBJECTS
from rekord.storage.traffic import measure_traffic

def read():
    return len(OBJECTS.head(sys.argv[1], 2000))

def read_in_child(results):
    results.send((read(), measure_traffic().reads))

before = read()
context = multiprocessing.get_context("fork")
here, there = context.Pipe(duplex=False)
child = context.Process(target=read_in_child, args=(there,))
warnings.simplefilter("ignore", DeprecationWarning)  # of forks while threads run, on new Pythons
child.start()
there.close()
there = here.recv()
child.join()
print(before, there, child.exitcode, read())
"""


@pytest.mark.concurrency
def test_a_forked_process_reads_with_a_client_of_its_own(server: ObjectServer, url: str) -> None:
    server.put("a", noise(1000))
    environment = {**os.environ, **server.variables()}
    done = subprocess.run(
        [sys.executable, "-c", FORK, f"{url}/a"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "1000 (1000, 1) 0 1000\n", done.stderr


def test_a_storage_is_pickled_without_its_clients(server: ObjectServer, url: str) -> None:
    server.put("a", b"1")
    read_all(f"{url}/a")
    data = pickle.dumps((OBJECTS, REMOTE, ROUTED_STORAGE))
    assert len(data) < 300
    assert pickle.loads(data)[0].head(f"{url}/a", 5) == b"1"


SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIA-LEAK-0",
    "AWS_SECRET_ACCESS_KEY": "LEAK-1-secret",
    "AWS_SESSION_TOKEN": "LEAK-2-token",
}


@pytest.mark.parametrize(
    "kind", ["denied", "expired", "bad_key", "bad_signature", "skew", "500", "drop", "cut", "redirect"]
)
def test_credentials_are_in_no_error_log_or_repr(
    server: ObjectServer,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    kind: FaultKind,
) -> None:
    caplog.set_level(logging.DEBUG)
    for name, value in {**SECRETS, "REKORD_REMOTE_TIMEOUT": "0"}.items():
        monkeypatch.setenv(name, value)
    server.put("a", noise(1000))
    server.inject(Fault(kind))
    for action in (lambda: OBJECTS.head(f"{url}/a", 1000), lambda: OBJECTS.head("s3://other/a", 1000)):
        failure = caught_by(action)
        shown = [
            str(failure),
            repr(failure),
            str(failure.to_dict()),
            "".join(traceback.format_exception(failure)),
            str(pickle.dumps(failure)),
            caplog.text,
            *capfd.readouterr(),
        ]
        assert server.log[0].headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIA-LEAK-0")
        for text in shown:
            assert "LEAK" not in text
            assert "Credential=" not in text


@pytest.fixture
def aws_files(server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No keys in the environment; `config` and `credentials` in this folder."""
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT_URL",
    ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    server.put("a", b"data")
    return tmp_path


def signed_scope(server: ObjectServer) -> list[str]:
    return server.log[-1].headers["Authorization"].partition("Credential=")[2].partition(",")[0].split("/")


@pytest.mark.parametrize("profile", ["default", "work"])
def test_keys_region_and_endpoint_come_from_a_profile(
    server: ObjectServer, url: str, aws_files: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    section = "default" if profile == "default" else "profile work"
    (aws_files / "config").write_text(f"[{section}]\nregion = eu-west-3\nendpoint_url = {server.url}\n")
    (aws_files / "credentials").write_text(
        f"[other]\naws_access_key_id = NO\naws_secret_access_key = NO\n"
        f"[{profile}]\naws_access_key_id = KEY-{profile}\naws_secret_access_key = S\naws_session_token = T\n"
    )
    if profile != "default":
        monkeypatch.setenv("AWS_PROFILE", profile)
    assert OBJECTS.head(f"{url}/a", 10) == b"data"
    scope = signed_scope(server)
    assert (scope[0], scope[2]) == (f"KEY-{profile}", "eu-west-3")
    assert server.log[-1].headers["x-amz-security-token"] == "T"


def test_an_endpoint_of_a_service_section_is_used(server: ObjectServer, url: str, aws_files: Path) -> None:
    (aws_files / "config").write_text(
        f"[default]\nservices = mine\naws_access_key_id = K\naws_secret_access_key = S\n"
        f"[services mine]\ns3 =\n  endpoint_url = {server.url}\n"
    )
    assert OBJECTS.head(f"{url}/a", 10) == b"data"
    assert signed_scope(server)[2] == "us-east-1"


def test_missing_credentials_are_reported_before_a_request(
    server: ObjectServer, url: str, aws_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    failure = caught_by(lambda: OBJECTS.head(f"{url}/a", 10))
    assert (failure.code, failure.location.path) == ("X566", f"{url}/a")
    assert not server.log


def test_a_public_bucket_is_read_without_a_signature(
    server: ObjectServer, url: str, aws_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert OBJECTS.head(f"{url}/a", 10) == b"data"
    assert "Authorization" not in server.log[-1].headers


def test_new_credentials_in_the_environment_are_used(
    server: ObjectServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put("a", b"data")
    for key in ("FIRST", "SECOND"):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        OBJECTS.head(f"{url}/a", 10)
        assert signed_scope(server)[0] == key


@pytest.mark.parametrize(
    ("url", "provider", "bucket", "key", "account"),
    [
        ("s3://b/a/c", "s3", "b", "a/c", None),
        ("s3a://b/a/", "s3", "b", "a", None),
        ("gs://b", "gs", "b", "", None),
        ("gcs://b/x", "gs", "b", "x", None),
        ("az://container/x", "az", "container", "x", None),
        ("abfss://container@name.dfs.core.windows.net/x/y", "az", "container", "x/y", "name"),
    ],
)
def test_a_url_has_a_bucket_and_a_key(url: str, provider: str, bucket: str, key: str, account: str | None) -> None:
    address = parse_address(url)
    assert (address.provider, address.bucket, address.key, address.account) == (provider, bucket, key, account)


def test_a_url_without_a_bucket_is_refused() -> None:
    assert caught_by(lambda: OBJECTS.stat("s3:///a")).code == "U605"
