"""`rekord view`: a dataset, or two, in the browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

from rekord.cli import console
from rekord.cli.console import escape_controls
from rekord.cli.options import (
    JSON_OPTION,
    PATH_ARGUMENT,
    argument,
    flag_option,
    integer_option,
    text_option,
    with_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rekord.viewer.run import Viewer


@with_options
def view(
    path: str = PATH_ARGUMENT,
    other: str | None = argument("[PATH]", "Second dataset, to compare the two by key.", default=None),
    port: int | None = integer_option(
        "--port", "Port to listen on. Default: the first free one from 7355.", do="--port 8080"
    ),
    no_browser: bool = flag_option("--no-browser", "Print the address without opening it."),
    edit: bool = flag_option("--edit", "Let the page write new datasets: delete or relabel records."),
    predictions: str | None = text_option(
        "--predictions", "FILE", "Predictions that train wrote. Default: those next to the dataset."
    ),
    host: list[str] | None = text_option(
        "--host", "NAME", "Host name under which a proxy serves the page; may be repeated."
    ),
    as_json: bool = JSON_OPTION,
) -> int:
    """Show records, images, masks, boxes, histograms and findings in the browser.

    Opens at once, also a file of many gigabytes without an index: that is read in the background. Only this machine
    can reach the page, by the address that is printed. Press Ctrl-C to stop.
    """
    from rekord.viewer.run import start_viewer

    given = [path] if other is None else [path, other]
    viewer = start_viewer(given, port=port, edit=edit, hosts=host or (), predictions=predictions)
    with viewer:
        try:
            _announce(viewer, given, as_json=as_json, is_silent=no_browser)
            while not viewer.wait(0.5):
                pass  # in short waits, so that Ctrl-C is handled at once
        except KeyboardInterrupt:
            console.print_status("stopped")
    return 0


def _announce(viewer: Viewer, given: Sequence[str], *, as_json: bool, is_silent: bool) -> None:
    """Print the address, and open it unless there is no browser."""
    if as_json:
        console.print_json({"url": viewer.url, "port": viewer.port})
    else:
        console.print_line(viewer.url)
    console.flush_stdout()
    console.print_status(f"showing {' and '.join(map(escape_controls, given))}; press Ctrl-C to stop")
    if os.environ.get("SSH_CONNECTION"):
        console.print_status(f"from your own machine: ssh -L {viewer.port}:127.0.0.1:{viewer.port} HOST")
    elif not is_silent and _has_browser():
        # Not waited for: some browsers block, and none may keep Ctrl-C from working.
        Thread(target=_open_page, args=(viewer.opening_url,), daemon=True).start()


def _has_browser() -> bool:
    """Whether there is a browser to open: not in scripts, and not without a display."""
    if not console.is_terminal(sys.stdout):
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER"))


def _open_page(url: str) -> None:
    with suppress(Exception):
        webbrowser.open(url)
