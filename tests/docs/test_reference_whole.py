"""What holds for all pages of the reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

import rekord as rk
from rekord.cli.main import app
from rekord.codes import CODES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def links(path: Path) -> list[Path]:
    """The files that a page leads to."""
    named = LINK.findall(path.read_text(encoding="utf-8"))
    return [(path.parent / link).resolve() for link in named if "://" not in link]


@pytest.mark.parametrize("pattern", ["*.md", "docs/**/*.md"])
def test_the_links_of_all_pages_lead_somewhere(pattern: str) -> None:
    pages = list(ROOT.glob(pattern))
    assert pages
    assert [(page.name, link.name) for page in pages for link in links(page) if not link.exists()] == []


def test_the_readme_leads_to_the_docs_and_their_home_page_to_every_page() -> None:
    assert any(link.is_relative_to(ROOT / "docs") for link in links(ROOT / "README.md"))
    reached, waiting = set(), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page.suffix == ".md" and page not in reached:
            reached.add(page)
            waiting += [link for link in links(page) if link.is_relative_to(ROOT / "docs")]
    assert {path for path in (ROOT / "docs").rglob("*.md") if path not in reached} == set()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_verbs_flags_and_codes_that_there_are(page: str) -> None:
    text = PAGES[page]
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(re.findall(r"(?:`|\$ |^ {4})rekord ([a-z]+)\b", text, re.MULTILINE)) <= set(verbs)
    flags = {name for verb in verbs.values() for param in verb.params for name in param.opts}
    flags |= {"--help", *(name for param in typer.main.get_command(app).params for name in param.opts)}
    assert set(re.findall(r"(?<!\w)(--[a-z][a-z-]*)", text)) <= flags
    assert set(re.findall(r"\b[CDEFHSUWX]\d{3}\b", text)) <= set(CODES)


@pytest.mark.parametrize("page", ["text", "transforms"])
def test_a_page_about_transforms_names_those_that_there_are(page: str) -> None:
    named = set(re.findall(r"^\| `(\w+)\(", PAGES[page], re.MULTILINE))
    assert named
    assert named <= set(rk.transforms.__all__)
