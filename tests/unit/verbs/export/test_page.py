"""The page of exporting names all formats, and only codes that there are."""

from __future__ import annotations

import re
from pathlib import Path

from rekord.codes import CODES
from rekord.verbs.export.export import _ENDINGS, FORMATS

TEXT = (Path(__file__).parents[4] / "docs" / "reference" / "exporting.md").read_text(encoding="utf-8")


def test_it_names_every_format_and_ending_and_no_code_that_there_is_not() -> None:
    assert all(f"`{name}`" in TEXT for name in FORMATS)
    assert all(f"`{ending}`" in TEXT for ending in _ENDINGS if not ending.endswith(".gz"))
    assert set(re.findall(r"\b[A-Z]\d{3}\b", TEXT)) <= set(CODES)
