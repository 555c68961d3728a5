"""Every page of the tutorial, the how-tos and the explanations runs from top to bottom, and says what happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import DOCS, blocks, run_page

FOLDERS = ("tutorial", "howto", "explain")
PAGES = sorted(page for folder in FOLDERS for page in (DOCS / folder).glob("*.md"))
PROSE = {"index.md"}  # pages that only lead to others
RUN = {"python", "console", "setup"}
SHOWN = {"text", "json", "csv", "toml", "proto"}


@pytest.mark.parametrize("page", PAGES, ids=[f"{page.parent.name}/{page.stem}" for page in PAGES])
def test_a_page_runs_and_prints_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(page) > 0 or page.name in PROSE


@pytest.mark.parametrize("page", PAGES, ids=[f"{page.parent.name}/{page.stem}" for page in PAGES])
def test_every_block_of_a_page_is_of_a_kind_that_runs_or_is_only_shown(page: Path) -> None:
    kinds = {block.kind for block in blocks(page.read_text(encoding="utf-8")) if block.title is None}
    assert kinds <= RUN | SHOWN
