"""The page about rewriting: its examples run, and say what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from rekord.codes import CODES

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "rewriting.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)


def test_the_examples_run_and_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    blocks = BLOCK.findall(TEXT)
    assert len(blocks) == 6
    for code, expected in blocks:
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            exec(compile(code, "rewriting.md", "exec"), space)
        assert told.getvalue() == expected


def test_every_code_that_is_named_has_a_page() -> None:
    named = set(re.findall(r"errors/(\w+)\.md", TEXT))
    assert named
    assert named <= set(CODES)
