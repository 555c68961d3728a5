"""One browser for all tests of a process, and the datasets that the viewer shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import viewer_data
from browser import require_chromium
from playwright.sync_api import Browser
from viewer_process import RunningViewer, launch_browser, run_viewer


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with launch_browser() as launched:
        yield launched


@pytest.fixture(scope="session")
def named_browser(browser: Browser) -> Iterator[Browser]:
    """A browser for which names below example.org are this machine."""
    launched = browser.browser_type.launch(
        executable_path=require_chromium(), args=["--no-sandbox", "--host-resolver-rules=MAP *.example.org 127.0.0.1"]
    )
    yield launched
    launched.close()


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def _served(
    make: Callable[[Path], Path], *arguments: str
) -> Callable[[pytest.TempPathFactory, Path], Iterator[tuple[Path, RunningViewer]]]:
    def fixture(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[tuple[Path, RunningViewer]]:
        path = make(tmp_path_factory.mktemp("data"))
        with run_viewer(path, *arguments, cache=cache) as viewer:
            yield path, viewer

    return fixture


# Each is the path of a dataset and a viewer of it.
masks = pytest.fixture(scope="session")(_served(viewer_data.write_masks))
rotated = pytest.fixture(scope="session")(_served(viewer_data.write_rotated))
damaged = pytest.fixture(scope="session")(_served(viewer_data.write_damaged))
leak = pytest.fixture(scope="session")(_served(viewer_data.write_leak))
hostile = pytest.fixture(scope="session")(_served(viewer_data.write_hostile))
