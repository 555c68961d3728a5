"""Every page of the docs runs from top to bottom, and says what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pages
import pytest
from pages import DOCS, Block, blocks, cases, error_page_names, run_blocks, run_page

from rekord.codes import CODES

ERRORS = DOCS / "errors"
UNTOUCHED = ("decisions", "errors")  # decisions show what was measured; errors have tests of their own, below
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in UNTOUCHED)
IDS = [str(page.relative_to(DOCS).with_suffix("")) for page in PAGES]
# Pages that only lead to others, describe, or are generated from docstrings.
PROSE = {
    "errors",
    "explain/architecture",
    "explain/benchmark",
    "explain/choosing",
    "howto/index",
    "reference/index",
    "reference/shaping",
}
PROSE |= {"reference/writing", *(name for name in IDS if name.startswith("reference/api/"))}
# Loader workers are forked, which is not safe in a process in which other tests have started threads; and Keras keeps
# the backend that it was first imported with.
ALONE = {"reference/torch", "tutorial/first-hour", "tutorial/training"}
# As in pyproject.toml: Keras's own variables do not know the newest form of NumPy's protocol.
WARNINGS = ["-Werror", "-Wignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"]
RUN = {"python", "console", "setup"}
SHOWN = {"text", "json", "csv", "toml", "proto"}

# Pages that show a part of what `rekord check` prints: tests/unit/test_dataset_pages.py runs these.
TRANSCRIPTS = {"H780", "H781", "H783", "H784", "H786", "H787", "H788", "H789", "X545"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and a cache of its own."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    return place


@pytest.mark.parametrize(("name", "page"), list(zip(IDS, PAGES, strict=True)), ids=IDS)
def test_a_page_runs_and_prints_what_it_says(name: str, page: Path) -> None:
    if name in ALONE:
        done = subprocess.run(
            [sys.executable, *WARNINGS, pages.__file__, str(page)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
    else:
        assert (run_page(page) == 0) == (name in PROSE)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_block_of_a_page_is_of_a_kind_that_runs_or_is_only_shown(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert {block.kind for block in blocks(text) if block.title is None} <= RUN | SHOWN
    # No fence is indented or of tildes: the runner would not see it.
    assert not re.search(r"^(?: +```|\s*~~~)", text, re.MULTILINE)


EXAMPLES = [
    (page, case) for page in sorted(ERRORS.glob("*.md")) if page.stem not in TRANSCRIPTS for case in cases(page)
]


@pytest.mark.parametrize(("page", "case"), EXAMPLES, ids=[f"{page.stem}-{case[-1].line}" for page, case in EXAMPLES])
def test_an_example_of_an_error_page_says_what_the_page_says(page: Path, case: list[Block], here: Path) -> None:
    assert case[-1].prints is None or page.stem in case[-1].prints
    assert case[-1].kind != "console" or page.stem in case[-1].body
    assert run_blocks(case, page, error_page_names(case, here)) > 0


def test_all_pages_of_schema_errors_and_most_others_have_examples() -> None:
    shown = {page.stem for page, _ in EXAMPLES}
    assert {code for code in CODES if code[0] == "S"} <= shown
    assert len(shown) > len(CODES) * 0.45
