"""The page of sources names all of them, with an example and a column of defects."""

from __future__ import annotations

import re
from pathlib import Path

import rekord as rk

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sources.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = re.split(r"^### `(\w+)`$", TEXT, flags=re.MULTILINE)[1:]
EXAMPLES = {
    name: body.split("```python\n", 1)[1].split("\n```", 1)[0]
    for name, body in zip(SECTIONS[::2], SECTIONS[1::2], strict=True)
    if "```python\n" in body
}


def test_every_source_has_an_example():
    assert sorted(EXAMPLES) == sorted(rk.sources.__all__)
    assert all(f"rk.sources.{name}(" in code for name, code in EXAMPLES.items())


def test_every_source_is_in_a_table_of_defects():
    header = re.compile(r"^\| \|((?: `\w+` \|)+)$", re.MULTILINE)
    named = [name for line in header.findall(TEXT) for name in re.findall(r"`(\w+)`", line)]
    assert sorted(named) == sorted(rk.sources.__all__)
