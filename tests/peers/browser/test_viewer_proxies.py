"""The viewer behind the proxy of a notebook server, through a tunnel, under a hostile name, from a hostile page."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect
from viewer_process import RunningViewer, open_page, run_viewer

Served = tuple[Path, RunningViewer]

HUB = "hub.example.org"


@contextlib.contextmanager
def run_jupyter(folder: Path) -> Iterator[int]:
    """A Jupyter server with its proxy, as a hub starts one for a user; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    options = {
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.root_dir": folder,
        "ServerApp.base_url": "/user/name/",
        "ServerApp.allow_remote_access": True,
        "IdentityProvider.token": "",
    }
    command = [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"]
    command += [f"--{name}={value}" for name, value in options.items()]
    environment = os.environ | {"HOME": str(folder), "JUPYTER_PLATFORM_DIRS": "1"}
    with (
        open(folder / "jupyter.log", "w") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment) as process,
    ):
        try:
            while True:
                assert process.poll() is None, (folder / "jupyter.log").read_text()
                with contextlib.suppress(URLError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/user/name/api", timeout=60).close()
                    break
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", HUB])
def test_the_page_works_behind_the_proxy_of_a_notebook_server(
    named_browser: Browser, masks: Served, cache: Path, tmp_path: Path, host: str
) -> None:
    path, _ = masks
    arguments = ["--host", HUB] if host == HUB else []
    with run_jupyter(tmp_path) as port, run_viewer(path, *arguments, cache=cache) as viewer:
        parts = urlsplit(viewer.url)
        base = f"http://{host}:{port}/user/name/proxy/{parts.port}{parts.path}"
        page, log = open_page(named_browser, base)
        expect(page.locator(".tile img")).to_have_count(12)
        # A change is a POST, which has an Origin.
        page.locator("[data-index='1'] a").focus()
        page.keyboard.press("x")
        page.locator(".selection-bar button", has_text="Delete").click()
        expect(page.locator("pre[data-kind=command]")).to_contain_text("rekord delete")
        assert [url for url in log.requests if not url.startswith((base, "blob:"))] == []
        assert (log.errors, log.console) == ([], [])
        page.context.close()


def test_a_tunnel_may_have_another_port(named_browser: Browser, masks: Served) -> None:
    _, viewer = masks
    parts = urlsplit(viewer.url)
    with forward(parts.port or 0) as port:
        page, log = open_page(named_browser, f"http://localhost:{port}{parts.path}")
        expect(page.locator(".tile img")).to_have_count(12)
        assert (log.errors, log.console) == ([], [])
        page.context.close()


@contextlib.contextmanager
def forward(target: int) -> Iterator[int]:
    """A port whose connections lead to another one, as `ssh -L` makes it."""

    def copy(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    class Tunnel(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", target)) as outer:
                opened.extend([self.request, outer])
                back = threading.Thread(target=copy, args=(outer, self.request))
                back.start()
                copy(self.request, outer)
                back.join()

    opened: list[socket.socket] = []
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()
            for one in opened:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)


def test_a_name_that_resolves_to_this_machine_does_not_reach_the_page(named_browser: Browser, masks: Served) -> None:
    _, viewer = masks
    parts = urlsplit(viewer.url)
    page = named_browser.new_page()
    answer = page.goto(f"http://evil.example.org:{parts.port}{parts.path}")
    assert answer is not None
    assert answer.status == 421
    assert "tile" not in page.content()
    page.context.close()


def test_a_page_of_another_origin_gets_nothing_even_if_it_knows_the_address(
    named_browser: Browser, masks: Served, damaged: Served
) -> None:
    """The page of one viewer plays the hostile one: its policy is switched off."""
    _, viewer = masks
    context = named_browser.new_context(bypass_csp=True)
    page = context.new_page()
    page.goto(damaged[1].url)
    expect(page.locator(".table-row").nth(3)).to_be_visible()
    script = """async (url) => {
        const results = {};
        results.read = await fetch(url + "api/session").then((one) => one.status, () => "refused");
        results.blind = await fetch(url + "api/session", {mode: "no-cors"}).then((one) => one.type, () => "refused");
        const change = {method: "POST", body: "{}", mode: "no-cors"};
        results.post = await fetch(url + "api/tags", change).then((one) => one.type, () => "refused");
        results.image = await new Promise((done) => {
            const image = new Image();
            image.onload = () => done("shown");
            image.onerror = () => done("refused");
            image.src = url + "api/thumb?record=0&feature=image";
        });
        results.script = await new Promise((done) => {
            const script = document.createElement("script");
            script.onload = () => done("ran");
            script.onerror = () => done("refused");
            script.src = url + "static/dom.js";
            document.head.append(script);
        });
        return results;
    }"""
    assert set(page.evaluate(script, viewer.url).values()) == {"refused"}
    context.close()
