"""The docs site: it builds without a warning, loads nothing from elsewhere, and has all that there is on it."""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import generated
import pytest

import rekord as rk
import rekord.testing

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
CONFIGURATION = (ROOT / "zensical.toml").read_text(encoding="utf-8")
NAVIGATION = re.findall(r'= "([\w/-]+\.md)"', CONFIGURATION)
LINK = re.compile(r"\]\(([^)#\s]+\.md)")
# What a browser fetches by itself. A link that a person may follow is none of it.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc=[\"']?(https?:)?//"
    r"|<link\b(?![^>]*\brel=[\"']?canonical)[^>]*?\bhref=[\"']?(https?:)?//"
    r"|@import\s+(?:url\()?[\"']?(https?:)?//|\burl\([\"']?(https?:)?//"
)


def _build(folder: Path) -> subprocess.CompletedProcess[str]:
    """The site of the docs in a folder, as `make docs` builds it."""
    shutil.copy(ROOT / "zensical.toml", folder)
    (folder / "src").symlink_to(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    done.stdout = re.sub(r"\x1b\[[\d;]*m", "", done.stdout)  # it is coloured even where nobody sees it
    return done


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(DOCS, folder / "docs")
    done = _build(folder)
    assert (done.returncode, "No issues found" in done.stdout) == (0, True), done.stdout[-5000:]
    return folder / "build" / "site"


def test_every_page_is_on_the_site(site: Path) -> None:
    def built(page: Path) -> Path:
        place = site / page.relative_to(DOCS).with_suffix("")
        return (place.parent if place.name == "index" else place) / "index.html"

    assert [page.name for page in PAGES if not built(page).is_file()] == []


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".svg")]
    assert len(files) > len(PAGES)
    found = [(path.name, FETCHED.search(path.read_text(encoding="utf-8"))) for path in files]
    assert [(name, hit[0]) for name, hit in found if hit] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[there](nowhere.md)", "page does not exist"),
        ("[there](other.md#nowhere)", "anchor does not exist"),
        ("[there][rekord.nowhere]", "unresolved autoref"),
        ("::: rekord.nowhere", "rekord.nowhere could not be found"),
    ],
)
def test_a_page_that_is_not_right_fails_the_build(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Home\n\n{text}\n")
    (tmp_path / "docs" / "other.md").write_text("# Other\n\n## Somewhere\n")
    done = _build(tmp_path)
    assert done.returncode != 0
    assert said in done.stdout


def test_the_navigation_names_pages_that_there_are() -> None:
    assert [name for name in NAVIGATION if not (DOCS / name).is_file()] == []
    assert len(NAVIGATION) == len(set(NAVIGATION))


def test_every_page_is_in_the_navigation_or_on_an_index_that_is() -> None:
    listed = {(DOCS / name).resolve() for name in NAVIGATION}
    for index in ("howto/index.md", "errors.md", "decisions/index.md"):
        page = DOCS / index
        assert page in listed
        listed |= {(page.parent / link).resolve() for link in LINK.findall(page.read_text(encoding="utf-8"))}
    assert [str(page.relative_to(DOCS)) for page in PAGES if page.resolve() not in listed] == []


@pytest.mark.parametrize("page", generated.PAGES, ids=[page.name for page in generated.PAGES])
def test_a_page_that_follows_from_the_code_is_up_to_date(page: Path) -> None:
    current = page.read_text(encoding="utf-8") == generated.PAGES[page]()
    assert current, f"out of date: {generated.COMMAND}"


def _public() -> Iterator[tuple[str, Any]]:
    """Every public name, and what it stands for."""
    for module in (rk, rk.sources, rk.layouts, rk.transforms, rekord.testing):
        for name in module.__all__:
            if name not in ("layouts", "sources", "transforms"):
                yield f"{module.__name__}.{name}", getattr(module, name)


PUBLIC = dict(_public())


def _documented() -> list[Any]:
    """What the pages of the Python reference are generated from."""
    found = []
    for page in sorted((DOCS / "reference" / "api").glob("*.md")):
        for path in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            module, _, name = path.rpartition(".")
            found.append(getattr(importlib.import_module(module), name))
    return found


def test_every_public_name_is_on_one_page_of_the_reference() -> None:
    documented = [id(one) for one in _documented()]
    assert [name for name, one in PUBLIC.items() if documented.count(id(one)) != 1] == []
    assert len(documented) == len(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring(name: str) -> None:
    if inspect.isfunction(PUBLIC[name]) or inspect.isclass(PUBLIC[name]):
        assert (inspect.getdoc(PUBLIC[name]) or "").strip()


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(DOCS)) for page in PAGES])
def test_lists_stand_apart_so_that_every_renderer_sees_them(page: Path) -> None:
    """GitHub begins a list right below a paragraph, and nests it by two spaces; the site's renderer does neither."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    item = re.compile(r"(?:[-*+]|\d+\.) ")
    before = ""
    for line in text.splitlines():
        if item.match(line):
            assert not before.strip() or item.match(before) or before.startswith(" "), line
        assert not re.match(r" {1,3}(?:[-*+]|\d+\.) ", line), line
        before = line
