"""Headless Chromium for the tests. Run this file to install it where it is missing (Debian, as root)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_PACKAGE = "chromium-headless-shell"


class PageReport(NamedTuple):
    """What a browser logged and requested while it showed a page."""

    console: list[str]
    requested: list[str]


def find_chromium() -> str | None:
    """The browser that `REKORD_CHROMIUM` names, or one that is installed."""
    return os.environ.get("REKORD_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


def require_chromium() -> str:
    """The browser; without one, the test fails where `REKORD_BROWSER=required`, and is skipped elsewhere."""
    import pytest

    if (chromium := find_chromium()) is not None:
        return chromium
    reason = f"no Chromium found: install {_PACKAGE}, or set REKORD_CHROMIUM"
    stop = pytest.fail if os.environ.get("REKORD_BROWSER") == "required" else pytest.skip
    stop(reason)
    raise AssertionError(reason)  # both have raised


def show_page(page: str, folder: Path, *, width: int = 1200) -> PageReport:
    """Open an HTML document in the browser and take a screenshot, which must show something."""
    chromium = require_chromium()
    folder.mkdir(exist_ok=True)
    file, screenshot, net_log = folder / "page.html", folder / "page.png", folder / "net.json"
    file.write_text(page, encoding="utf-8")
    command = [
        chromium,
        *(
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--enable-logging=stderr",
        ),
        *(f"--user-data-dir={folder / 'profile'}", f"--log-net-log={net_log}"),
        *(f"--screenshot={screenshot}", f"--window-size={width},2000", file.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert screenshot.stat().st_size > 1000
    params = [event.get("params", {}) for event in json.loads(net_log.read_text(encoding="utf-8"))["events"]]
    # What the browser requests for itself, such as the time of day, has no page as its initiator.
    requested = {one["url"] for one in params if one.get("initiator", "not an origin") != "not an origin"}
    return PageReport([line for line in done.stderr.splitlines() if "CONSOLE" in line], sorted(requested))


if __name__ == "__main__":
    if find_chromium() is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            if os.environ.get("REKORD_BROWSER") == "required":
                sys.exit(f"no Chromium found: install {_PACKAGE}, or set REKORD_CHROMIUM")
            sys.exit(0)  # the tests say that they are skipped, and why
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", _PACKAGE], check=True)
