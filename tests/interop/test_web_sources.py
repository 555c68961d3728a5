"""Files of the web as raw data: downloaded once to the cache, with progress, and resumed after an interruption."""

from __future__ import annotations

import http.server
import io
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.cli.main import run_command_line


class WebServer:
    """Serves files with ranges and ETags on loopback; `fail_after` bytes of bodies it hangs up."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.version = 1
        self.requests: list[tuple[str, str, str]] = []
        self.fail_after: int | None = None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.answer(body=False)

            def do_GET(self) -> None:
                self.answer(body=True)

            def answer(self, *, body: bool) -> None:
                wanted = self.headers.get("Range", "")
                outer.requests.append((self.command, self.path, wanted))
                data = outer.files.get(self.path.partition("?")[0])
                if data is None:
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                begin, end = 0, len(data)
                if wanted:
                    first, _, last = wanted.removeprefix("bytes=").partition("-")
                    begin, end = int(first), min(int(last) + 1, len(data))
                if body and outer.fail_after is not None and begin >= outer.fail_after:
                    self.send_response(503)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206 if wanted else 200)
                self.send_header("Content-Length", str(end - begin))
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("ETag", f'"{outer.version}"')
                if wanted:
                    self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
                self.end_headers()
                if body:
                    self.wfile.write(data[begin:end])

            def log_message(self, *arguments: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self._thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self._thread.join()

    @property
    def downloads(self) -> list[tuple[str, str, str]]:
        return [one for one in self.requests if one[0] == "GET"]


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    server = WebServer()
    yield server
    server.stop()


TABLE = b"a,b\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(1000))


def test_a_table_of_the_web_is_downloaded_once(web: WebServer, tmp_path: Path) -> None:
    web.files["/t.csv"] = TABLE
    (tmp_path / "t.csv").write_bytes(TABLE)
    rk.write(f"{web.url}/t.csv", tmp_path / "one", progress=False, workers=1)
    rk.write(tmp_path / "t.csv", tmp_path / "local", progress=False, workers=1)
    name = "train-00000-of-00001.tfrecord"
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
    assert len(web.downloads) == 1
    rk.write(f"{web.url}/t.csv", tmp_path / "two", progress=False, workers=1)
    assert len(web.downloads) == 1, "the copy is used again"


def test_a_file_with_another_etag_is_downloaded_again(web: WebServer, tmp_path: Path) -> None:
    web.files["/t.csv"] = TABLE
    rk.write(f"{web.url}/t.csv", tmp_path / "one", progress=False, workers=1)
    web.files["/t.csv"], web.version = TABLE.replace(b"\n1,1\n", b"\n1,7\n"), 2
    dataset = rk.sync(f"{web.url}/t.csv", tmp_path / "one", progress=False, workers=1)
    assert dataset["train"][1]["b"] == 7


def test_an_archive_of_the_web_is_a_folder_of_images(web: WebServer, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for i in range(6):
            image = io.BytesIO()
            Image.fromarray(np.full((8, 8, 3), i * 20, np.uint8)).save(image, "PNG")
            archive.writestr(f"{'cat' if i % 2 else 'dog'}/{i}.png", image.getvalue())
    web.files["/photos.zip"] = packed.getvalue()
    dataset = rk.write(f"{web.url}/photos.zip", tmp_path / "out", progress=False, workers=1)
    assert dataset.schema["label"].names == ("cat", "dog")
    assert len(dataset["train"]) == 6
    assert len(web.downloads) == 1


def test_an_interrupted_download_is_resumed_where_it_ended_and_shown(
    web: WebServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    web.files["/large.csv"] = b"a,b\n" + b"1234567,7654321\n" * (3 << 20)  # 48 MiB
    web.fail_after = 32 << 20
    arguments = ["write", f"{web.url}/large.csv", str(tmp_path / "out"), "--limit", "10", "--workers", "1"]
    assert run_command_line([*arguments, "--no-config"]) != 0
    assert "Traceback" not in capsys.readouterr().err
    web.fail_after, before = None, len(web.requests)
    assert run_command_line([*arguments, "--no-config"]) == 0
    ranges = [one[2] for one in web.requests[before:] if one[0] == "GET"]
    assert min(int(one.removeprefix("bytes=").partition("-")[0]) for one in ranges) == 32 << 20
    assert "resumed at 34 MB" in capsys.readouterr().err


def test_a_folder_of_the_web_is_refused(web: WebServer, tmp_path: Path) -> None:
    with pytest.raises(rk.DatasetError) as caught:
        rk.sources.image_folder(f"{web.url}/photos").facts()
    assert caught.value.location.path == f"{web.url}/photos"


def test_a_missing_file_is_reported_with_its_url(web: WebServer, tmp_path: Path) -> None:
    with pytest.raises(rk.DatasetError) as caught:
        rk.write(f"{web.url}/missing.csv", tmp_path / "out", progress=False)
    assert (caught.value.code, caught.value.location.path) == ("X501", f"{web.url}/missing.csv")


def test_without_room_in_the_cache_the_error_says_how_to_make_some(
    web: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REKORD_CACHE_SIZE", "1kB")
    monkeypatch.setattr("rekord.storage.cache._warned", {"before"})
    web.files["/t.csv"] = TABLE
    with pytest.raises(rk.DatasetError) as caught:
        rk.write(f"{web.url}/t.csv", tmp_path / "out", progress=False)
    assert caught.value.code == "X504"
    assert "REKORD_CACHE" in str(caught.value.do)
