"""Azure storage, as Azurite implements it: another protocol, and a server that nobody here has written."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import random
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

import rekord as rk
from rekord.errors import RekordError
from rekord.storage.local import read_up_to
from rekord.storage.objects import OBJECTS, PART_BYTES, ConflictError
from rekord.storage.router import REMOTE

CONTAINER = "rekord-test"
URL = f"az://{CONTAINER}"
ACCOUNT = "rekord"
KEY = base64.b64encode(bytes(range(64))).decode()
_AZURITE = Path(sys.prefix) / "node_modules" / ".bin" / "azurite-blob"


@pytest.fixture(scope="module", autouse=True)
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with an empty container, on a port of its own, and the environment that leads to it."""
    folder = tmp_path_factory.mktemp("azurite")
    command = [
        os.environ.get("REKORD_AZURITE", str(_AZURITE)),
        *("--blobHost", "127.0.0.1", "--blobPort", "0", "--skipApiVersionCheck", "--disableTelemetry"),
        *("--location", str(folder)),
    ]
    environment = os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    log = folder / "log"
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, env=environment) as process:
        try:
            while (found := re.search(r"listens on (http://127\.0\.0\.1:\d+)", log.read_text())) is None:
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            endpoint = f"{found[1]}/{ACCOUNT}"
            _create_container(endpoint)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(
                    "AZURE_STORAGE_CONNECTION_STRING",
                    f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint};",
                )
                patch.setenv("REKORD_REMOTE_TIMEOUT", "5")
                yield endpoint
        finally:
            process.terminate()


def _create_container(endpoint: str) -> None:
    date, version = formatdate(usegmt=True), "2023-11-03"
    resource = [f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}", "restype:container"]
    text = "\n".join(["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{version}", *resource])
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {ACCOUNT}:{signature}",
    }
    request = urllib.request.Request(f"{endpoint}/{CONTAINER}?restype=container", method="PUT", headers=headers)
    with urllib.request.urlopen(request) as response:
        assert response.status == 201


def noise(size_bytes: int) -> bytes:
    return random.Random(size_bytes).randbytes(size_bytes)


def read_all(path: str) -> bytes:
    with OBJECTS.open_read(path) as file:
        return read_up_to(file, file.size_bytes + 1)


def caught_by(action: Callable[[], object]) -> RekordError:
    with pytest.raises(RekordError) as caught:
        action()
    return caught.value


@pytest.mark.parametrize("size_bytes", [0, 10, PART_BYTES + 1, 3 * PART_BYTES])
def test_what_is_written_is_read(size_bytes: int) -> None:
    path = f"{URL}/written/{size_bytes} ü %20"
    with OBJECTS.create(path) as file:
        file.write(noise(size_bytes))
    assert read_all(path) == noise(size_bytes)
    assert OBJECTS.stat(path).size_bytes == size_bytes


def test_an_object_is_created_once_and_replaced_by_whom_knows_its_version() -> None:
    path = f"{URL}/conditional"
    first = OBJECTS.put(path, b"1")
    assert caught_by(lambda: OBJECTS.put(path, b"2")).code == "X578"
    second = OBJECTS.replace_if(path, b"3", first)
    assert isinstance(caught_by(lambda: OBJECTS.replace_if(path, b"4", first)), ConflictError)
    assert OBJECTS.read(path, most_bytes=10) == (b"3", second)
    OBJECTS.remove(path)
    assert isinstance(caught_by(lambda: OBJECTS.replace_if(path, b"4", second)), ConflictError)
    OBJECTS.remove(path)


def test_versions_of_a_listing_are_those_of_objects() -> None:
    for name in ("a", "b/c", "b/d"):
        OBJECTS.put(f"{URL}/listed/{name}", name.encode())
    listed = list(OBJECTS.list_recursive(f"{URL}/listed"))
    assert [one.path for one in listed] == [f"{URL}/listed/{name}" for name in ("a", "b/c", "b/d")]
    assert [one.etag for one in listed] == [OBJECTS.stat(one.path).etag for one in listed]
    assert [(one.name, one.kind) for one in OBJECTS.list(f"{URL}/listed")] == [("a", "file"), ("b", "folder")]


def test_an_object_that_is_replaced_while_it_is_read_is_an_error() -> None:
    path = f"{URL}/replaced"
    OBJECTS.put(path, b"a" * (60 << 20))
    versions = {path: OBJECTS.stat(path).mtime_ns}
    with OBJECTS.open_read(path) as file:
        assert read_up_to(file, 1000) == b"a" * 1000
        OBJECTS.put(path, b"b" * (60 << 20), create_only=False)
        assert caught_by(lambda: read_up_to(file, 60 << 20)).code == "X548"
    assert caught_by(lambda: REMOTE.ranges([(path, 0, 5)], versions=versions)).code == "X548"


def test_an_upload_that_fails_half_way_never_appears() -> None:
    path = f"{URL}/aborted"

    def fail() -> None:
        with OBJECTS.create(path) as file:
            file.write(bytes(2 * PART_BYTES))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert caught_by(lambda: OBJECTS.stat(path)).code == "X501"


def test_the_server_copies_and_removes() -> None:
    OBJECTS.put(f"{URL}/copies/a", noise(1000))
    assert OBJECTS.copy(f"{URL}/copies/a", f"{URL}/copies/b") is True
    assert read_all(f"{URL}/copies/b") == noise(1000)
    OBJECTS.remove_many([f"{URL}/copies/{name}" for name in ("a", "missing", "b")])
    assert list(OBJECTS.list_recursive(f"{URL}/copies")) == []


@pytest.mark.parametrize(("path", "code"), [(f"{URL}/no/such", "X501"), ("az://no-such-container/x", "X568")])
def test_what_does_not_exist_is_missing(path: str, code: str) -> None:
    failure = caught_by(lambda: OBJECTS.stat(path))
    assert (failure.code, failure.location.path) == (code, path)


def test_a_wrong_key_is_an_access_error_without_the_key(monkeypatch: pytest.MonkeyPatch, azurite: str) -> None:
    wrong = base64.b64encode(b"another key").decode()
    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING", f"AccountName={ACCOUNT};AccountKey={wrong};BlobEndpoint={azurite};"
    )
    failure = caught_by(lambda: OBJECTS.head(f"{URL}/x", 10))
    assert (failure.code, failure.location.path) == ("X556", f"{URL}/x")
    assert wrong not in str(failure.to_dict())


def test_a_dataset_is_read_there(tmp_path: Path) -> None:
    rk.write([{"n": i} for i in range(300)], tmp_path / "ds", shards=2, progress=False)
    for file in (tmp_path / "ds").rglob("*"):
        if file.is_file():
            OBJECTS.put(f"{URL}/ds/{file.relative_to(tmp_path / 'ds').as_posix()}", file.read_bytes())
    local, remote = rk.open(tmp_path / "ds")["train"], rk.open(f"{URL}/ds")["train"]
    assert remote[[5, 200]]["n"].tolist() == local[[5, 200]]["n"].tolist()
    wanted = sorted(n for batch in local.batches(50) for n in batch["n"].tolist())
    assert sorted(n for batch in remote.batches(50, shuffle=True, seed=1) for n in batch["n"].tolist()) == wanted
