"""`rekord view` as a process of its own, and its page in a headless browser."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from browser import require_chromium
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

_URL = re.compile(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}/")
_TIMEOUT_MS = 60_000  # nothing is timed: a busy machine only takes longer


@dataclass(frozen=True)
class RunningViewer:
    """A server and the address of its page."""

    url: str
    process: subprocess.Popen[str]

    @property
    def origin(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


@contextlib.contextmanager
def run_viewer(*arguments: object, cache: Path) -> Iterator[RunningViewer]:
    """`rekord view ARGUMENTS` until the end of the block; `cache` is the folder of its cache."""
    command = [sys.executable, "-m", "rekord", "view", *map(str, arguments), "--no-browser"]
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            printed = []
            for line in process.stdout:
                printed.append(line)
                if found := _URL.search(line):
                    yield RunningViewer(found[0], process)
                    break
            else:
                raise AssertionError(f"no address was printed: {''.join(printed)}")
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()


@dataclass
class PageLog:
    """What a page logged, threw and requested."""

    console: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", self._add_message)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._add_request)

    def _add_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.console.append(message.text)

    def _add_request(self, request: Request) -> None:
        self.requests.append(request.url)

    def paths(self, part: str) -> list[str]:
        """The requests whose address contains `part`."""
        return [url for url in self.requests if part in url]


@contextlib.contextmanager
def launch_browser() -> Iterator[Browser]:
    """Headless Chromium, which all tests of a process share."""
    chromium = require_chromium()
    expect.set_options(timeout=_TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def open_page(
    browser: Browser, url: str, *, width: int = 1280, height: int = 800, theme: str = "light"
) -> tuple[Page, PageLog]:
    """A new page with a storage of its own."""
    scheme = "dark" if theme == "dark" else "light"
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(_TIMEOUT_MS)
    log = PageLog()
    log.watch(page)
    page.goto(url)
    return page, log
