"""The page from data to a training step keeps its promise of few lines; test_pages_run.py runs it."""

from __future__ import annotations

import re

import pytest
from pages import DOCS, blocks

MOST_LINES = 6
PAGE = (DOCS / "tutorial" / "first-hour.md").read_text(encoding="utf-8")
SECTIONS = {part.split("\n", 1)[0]: part for part in PAGE.split("\n## ")[1:] if "```python" in part}


def test_the_page_has_the_five_kinds_of_data() -> None:
    assert len(SECTIONS) == 5


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_reaches_a_training_step_in_a_few_lines(title: str) -> None:
    (block,) = [block for block in blocks(SECTIONS[title]) if block.kind == "python"]
    lines = [line for line in block.body.splitlines() if line.strip() and not re.match(r"(import|from) ", line)]
    assert len(lines) <= MOST_LINES, lines
    assert any("rk.write(" in line for line in lines)
    assert re.search(r"model\.fit\(|\.backward\(\)", lines[-1])
